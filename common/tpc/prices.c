/* prices.c: reads and checks a file of prices. */
#include "common/tpc/prices.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/pipeline/json/keys.h"
#include "common/tpc/tpc.h"

/* Prices: Hyperion, section VI and Table I. SSDs: `common/nvme/emulated` has the sources of the rates. GPUs:
 * float32 rates are NVIDIA's; 24 GB/s over PCIe 4.0 are the paper's (section II-C), and 5.0 has twice that.
 */
static const char builtin[] =
    "{\n"
    "  \"machine_usd\": 14098,\n"
    "  \"electricity_usd\": 17000,\n"
    "  \"gpus\": {\n"
    "    \"a100\": {\"usd\": 14177, \"tflops\": 19.5, \"pcie_bytes_per_s\": 24e9},\n"
    "    \"h800\": {\"usd\": 44000, \"tflops\": 51, \"pcie_bytes_per_s\": 48e9}\n"
    "  },\n"
    "  \"ssds\": {\n"
    "    \"p5510\": {\"usd\": 308, \"iops\": 750e3, \"bytes_per_s\": 3.072e9},\n"
    "    \"980pro\": {\"usd\": 100, \"iops\": 700e3, \"bytes_per_s\": 2.8672e9}\n"
    "  },\n"
    "  \"systems\": {\n"
    "    \"A\": {\"gpu\": \"a100\", \"ssd\": \"p5510\", \"ssds\": 12},\n"
    "    \"B\": {\"gpu\": \"h800\", \"ssd\": \"p5510\", \"ssds\": 12},\n"
    "    \"C\": {\"gpu\": \"a100\", \"machines\": 8}\n"
    "  }\n"
    "}\n";

struct reader {
    const struct pst_json *doc;
    struct pst_diag *diag;
    struct pst_tpc_prices *prices;
};

/* Calls `read` for each entry of an object of named objects. */
static void read_list(struct reader *r, json_t *list, const char *path, int *count,
                      void (*read)(struct reader *r, json_t *entry, const char *path, const char *name))
{
    const char *name;
    json_t *entry;
    char at[PST_JSON_PATH_MAX];
    json_object_foreach(list, name, entry)
    {
        pst_json_join(at, path, name);
        if (!json_is_object(entry))
            pst_json_error(r->doc, r->diag, at, "expected an object, found %s", pst_json_kind(entry));
        else if (name[0] == '\0' || strlen(name) >= PST_NAME_MAX)
            pst_json_error(r->doc, r->diag, at, "expected a name of 1 to %d characters", PST_NAME_MAX - 1);
        else if (*count == PST_TPC_KINDS_MAX)
            pst_json_error(r->doc, r->diag, at, "too many entries: at most %d are allowed",
                           PST_TPC_KINDS_MAX);
        else
            read(r, entry, at, name);
    }
}

static void read_gpu(struct reader *r, json_t *entry, const char *path, const char *name)
{
    struct pst_tpc_gpu *g = &r->prices->gpus[r->prices->ngpus++];
    (void)snprintf(g->name, sizeof g->name, "%s", name);
    const struct pst_json_key keys[] = {
        {"usd", PST_JSON_NUMBER, .needed = true, .zero = true, .to = &g->usd},
        {"tflops", PST_JSON_NUMBER, .needed = true, .to = &g->tflops},
        {"pcie_bytes_per_s", PST_JSON_NUMBER, .needed = true, .to = &g->pcie_bytes_per_s},
    };
    pst_json_keys(r->doc, r->diag, entry, path, keys, sizeof keys / sizeof *keys);
}

static void read_ssd(struct reader *r, json_t *entry, const char *path, const char *name)
{
    struct pst_tpc_ssd *s = &r->prices->ssds[r->prices->nssds++];
    (void)snprintf(s->name, sizeof s->name, "%s", name);
    const struct pst_json_key keys[] = {
        {"usd", PST_JSON_NUMBER, .needed = true, .zero = true, .to = &s->usd},
        {"iops", PST_JSON_NUMBER, .needed = true, .to = &s->iops},
        {"bytes_per_s", PST_JSON_NUMBER, .needed = true, .to = &s->bytes_per_s},
    };
    pst_json_keys(r->doc, r->diag, entry, path, keys, sizeof keys / sizeof *keys);
}

/* The index of `name`; if there is none, an error at path.key. */
static int named(struct reader *r, const char *path, const char *key, const char *name,
                 int (*find)(const struct pst_tpc_prices *prices, const char *name))
{
    char at[PST_JSON_PATH_MAX];
    const int found = find(r->prices, name);
    pst_json_join(at, path, key);
    if (found < 0)
        pst_json_error(r->doc, r->diag, at, "\"%s\" is not one of the names in \"%ss\"", name, key);
    return found;
}

static void read_system(struct reader *r, json_t *entry, const char *path, const char *name)
{
    struct pst_tpc_system *s = &r->prices->systems[r->prices->nsystems++];
    const char *gpu = NULL, *ssd = NULL;
    *s = (struct pst_tpc_system){.ssd = -1, .gpus = 1, .machines = 1};
    (void)snprintf(s->name, sizeof s->name, "%s", name);
    const struct pst_json_key keys[] = {
        {"gpu", PST_JSON_TEXT, .needed = true, .to = &gpu},
        {"ssd", PST_JSON_TEXT, .to = &ssd},
        {"gpus", PST_JSON_COUNT, .zero = true, .most = PST_TPC_COUNT_MAX, .to = &s->gpus},
        {"ssds", PST_JSON_COUNT, .zero = true, .most = PST_TPC_COUNT_MAX, .to = &s->ssds},
        {"machines", PST_JSON_COUNT, .zero = false, .most = PST_TPC_COUNT_MAX, .to = &s->machines},
    };
    pst_json_keys(r->doc, r->diag, entry, path, keys, sizeof keys / sizeof *keys);
    if (gpu != NULL)
        s->gpu = named(r, path, "gpu", gpu, pst_tpc_gpu_named);
    if (ssd != NULL)
        s->ssd = named(r, path, "ssd", ssd, pst_tpc_ssd_named);
    else if (s->ssds > 0)
        pst_json_error(r->doc, r->diag, path,
                       "the key \"ssd\" is missing: it must name the model of these %d SSDs", s->ssds);
}

static void read_all(struct reader *r, json_t *root)
{
    json_t *gpus = NULL, *ssds = NULL, *systems = NULL;
    struct pst_tpc_prices *p = r->prices;
    const struct pst_json_key keys[] = {
        {"machine_usd", PST_JSON_NUMBER, .needed = true, .zero = true, .to = &p->machine_usd},
        {"electricity_usd", PST_JSON_NUMBER, .needed = true, .zero = true, .to = &p->electricity_usd},
        {"gpus", PST_JSON_OBJECT, .needed = true, .to = &gpus},
        {"ssds", PST_JSON_OBJECT, .needed = true, .to = &ssds},
        {"systems", PST_JSON_OBJECT, .to = &systems},
    };
    pst_json_keys(r->doc, r->diag, root, "", keys, sizeof keys / sizeof *keys);
    read_list(r, gpus, "gpus", &p->ngpus, read_gpu);
    read_list(r, ssds, "ssds", &p->nssds, read_ssd);
    read_list(r, systems, "systems", &p->nsystems, read_system);
    if (gpus != NULL && p->ngpus == 0)
        pst_json_error(r->doc, r->diag, "gpus", "expected at least one GPU");
    if (ssds != NULL && p->nssds == 0)
        pst_json_error(r->doc, r->diag, "ssds", "expected at least one SSD");
}

bool pst_tpc_prices_load(struct pst_tpc_prices *prices, const char *file, struct pst_diag *diag)
{
    struct pst_json doc;
    struct reader r = {.doc = &doc, .diag = diag, .prices = prices};
    const size_t before = diag->count;
    memset(prices, 0, sizeof *prices);
    const bool ok = file != NULL
                        ? pst_json_load(&doc, file, diag)
                        : pst_json_parse(&doc, "the built-in prices", builtin, strlen(builtin), diag);
    if (ok)
        read_all(&r, doc.root);
    pst_json_release(&doc);
    return diag->count == before;
}

const char *pst_tpc_prices_default(void)
{
    return builtin;
}

int pst_tpc_gpu_named(const struct pst_tpc_prices *prices, const char *name)
{
    for (int i = 0; i < prices->ngpus; i++)
        if (strcmp(prices->gpus[i].name, name) == 0)
            return i;
    return -1;
}

int pst_tpc_ssd_named(const struct pst_tpc_prices *prices, const char *name)
{
    for (int i = 0; i < prices->nssds; i++)
        if (strcmp(prices->ssds[i].name, name) == 0)
            return i;
    return -1;
}

double pst_tpc_system_cost(const struct pst_tpc_prices *p, const struct pst_tpc_system *system,
                           double *machine_usd)
{
    struct pst_tpc_parts parts = {.machine_usd = p->machine_usd,
                                  .electricity_usd = p->electricity_usd,
                                  .gpu_usd = p->gpus[system->gpu].usd,
                                  .ssd_usd = system->ssd >= 0 ? p->ssds[system->ssd].usd : 0,
                                  .gpus = system->gpus,
                                  .ssds = system->ssds,
                                  .machines = 1};
    *machine_usd = pst_tpc_cost(&parts);
    parts.machines = system->machines;
    return pst_tpc_cost(&parts);
}
