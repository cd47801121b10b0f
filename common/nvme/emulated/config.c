/* config.c: reads and checks the configuration of emulated controllers. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/nvme/emulated/emulated_impl.h"
#include "common/error.h"

#define BYTES_MAX (1ull << 54) /* of a namespace: 16 PiB; pst_nvme_emulated_pattern uses the bits above */

/* IOPS at 4 KiB and latency of optane and 980pro: GIDS (Park et al., VLDB 2024), section 4.2. IOPS of p5510:
 * Hyperion, section II-C; its latency is assumed. The bandwidth is the peak IOPS times 4 KiB. */
static const struct preset {
    const char *name;
    double iops, latency_us;
} presets[] = {{"none", 0, 0}, {"optane", 1.5e6, 11}, {"980pro", 700e3, 324}, {"p5510", 750e3, 82}};

/* What the configuration says about speed; below 0: nothing. */
struct pace {
    const char *preset;
    double latency_us, iops, bytes_per_s, dilate, bus_bytes_per_s;
};

static const struct pace no_pace = {
    .preset = "none", .latency_us = -1, .iops = -1, .bytes_per_s = -1, .dilate = 1};

static pst_rc set_preset(struct pst_emu_config *c, const char *name)
{
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
        if (strcmp(name, presets[i].name) != 0)
            continue;
        c->iops = presets[i].iops;
        c->latency_ns = presets[i].latency_us * 1e3;
        c->bytes_per_s = presets[i].iops * 4096;
        return PST_OK;
    }
    return pst_fail(PST_E_ARG, "preset is \"%s\"; expected none, optane, 980pro or p5510", name);
}

static pst_rc set_pace(struct pst_emu_config *c, const struct pace *p)
{
    const pst_rc rc = set_preset(c, p->preset);
    c->latency_ns = p->dilate * (p->latency_us >= 0 ? p->latency_us * 1e3 : c->latency_ns);
    c->iops = (p->iops >= 0 ? p->iops : c->iops) / p->dilate;
    c->bytes_per_s = (p->bytes_per_s >= 0 ? p->bytes_per_s : c->bytes_per_s) / p->dilate;
    c->bus_bytes_per_s = p->bus_bytes_per_s / p->dilate;
    return rc;
}

static pst_rc read_faults(struct pst_emu_faults *f, json_t *json)
{
    double delay_us = 1000, reorder_us = 0;
    json_int_t seed = 1, dead_after = 0;
    json_error_t e;
    if (json != NULL &&
        json_unpack_ex(json, &e, 0, "{s?F, s?F, s?F, s?F, s?F, s?F, s?F, s?I, s?I !}", "error_rate",
                       &f->error_rate, "delay_rate", &f->delay_rate, "lost_rate", &f->lost_rate, "fatal_rate",
                       &f->fatal_rate, "torn_rate", &f->torn_rate, "delay_us", &delay_us, "reorder_us",
                       &reorder_us, "seed", &seed, "dead_after", &dead_after) != 0)
        return pst_fail(PST_E_ARG, "faults: %s", e.text);
    const double rates[] = {f->error_rate, f->delay_rate, f->lost_rate, f->fatal_rate, f->torn_rate};
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        if (!(rates[i] >= 0 && rates[i] <= 1))
            return pst_fail(PST_E_ARG, "faults: a rate is %g; expected a probability from 0 to 1", rates[i]);
    }
    if (!(delay_us >= 0 && delay_us <= 6e7 && reorder_us >= 0 && reorder_us <= 6e7))
        return pst_fail(PST_E_ARG, "faults: expected delay_us and reorder_us from 0 to 60000000");
    if (dead_after < 0)
        return pst_fail(PST_E_ARG, "faults: dead_after is %lld; expected a number of at least 0",
                        (long long)dead_after);
    f->dead_after = (uint64_t)dead_after;
    f->delay_ns = (uint64_t)(delay_us * 1e3);
    f->reorder_ns = (uint64_t)(reorder_us * 1e3);
    f->seed = (uint64_t)seed;
    return PST_OK;
}

static pst_rc open_one(struct pst_emu_namespace_config *n, uint32_t ssd, const char *path, struct stat *st)
{
    n->fd[ssd] = open(path, (n->writable ? O_RDWR : O_RDONLY) | O_CLOEXEC);
    return n->fd[ssd] < 0 || fstat(n->fd[ssd], st) != 0
               ? pst_fail_errno("cannot open the namespace's file %s", path)
               : PST_OK;
}

/* Each SSD has a file of its own. A shorter one reads as zeroes beyond its end. */
static pst_rc open_files(struct pst_emu_namespace_config *n, json_t *paths, uint32_t ssds)
{
    const bool sized = n->bytes > 0;
    if (n->unit != 0 || json_array_size(paths) != ssds)
        return pst_fail(PST_E_ARG,
                        "\"paths\": expected a list of %u paths, one for each SSD, and no \"unit\"", ssds);
    n->own_files = true;
    for (uint32_t i = 0; i < ssds; i++) {
        const char *path = json_string_value(json_array_get(paths, i));
        struct stat st;
        pst_rc rc = path != NULL
                        ? open_one(n, i, path, &st)
                        : pst_fail(PST_E_ARG, "paths[%u]: expected the path of a file, as a string", i);
        if (rc != PST_OK)
            return rc;
        const uint64_t all = (uint64_t)st.st_size > n->at ? (uint64_t)st.st_size - n->at : 0;
        n->bytes = !sized && all > n->bytes ? all : n->bytes;
    }
    return PST_OK;
}

static pst_rc open_file(struct pst_emu_namespace_config *n, const char *path, uint32_t ssds)
{
    struct stat st;
    const pst_rc rc = open_one(n, 0, path, &st);
    if (rc != PST_OK)
        return rc;
    if (n->bytes == 0 && (uint64_t)st.st_size > n->at) {
        const uint64_t all = (uint64_t)st.st_size - n->at;
        n->bytes = n->unit == 0 ? all : (all + n->unit - 1) / n->unit;
        /* all SSDs have as many units as the one with the most; a missing unit reads as zeroes */
        if (n->unit != 0)
            n->bytes = (n->bytes + ssds - 1) / ssds * n->unit;
    }
    return PST_OK;
}

static pst_rc read_namespace(struct pst_emu_namespace_config *n, json_t *json, const struct pst_emu_config *c)
{
    const char *kind = "", *path = NULL;
    json_int_t bytes = 0, blocks = 0, at = 0, unit = 0;
    json_t *paths = NULL;
    int writable = 0, filled = 0;
    json_error_t e;
    *n = (struct pst_emu_namespace_config){.bytes = 0};
    memset(n->fd, 0xff, sizeof n->fd);
    if (json_unpack_ex(json, &e, 0, "{s:s, s?s, s?o, s?I, s?I, s?I, s?I, s?b, s?b !}", "kind", &kind, "path",
                       &path, "paths", &paths, "bytes", &bytes, "blocks", &blocks, "at", &at, "unit", &unit,
                       "writable", &writable, "filled", &filled) != 0)
        return pst_fail(PST_E_ARG, "%s", e.text);
    if (bytes < 0 || blocks < 0 || at < 0 || unit < 0 || (uint64_t)blocks > BYTES_MAX / c->lba_bytes ||
        (uint64_t)bytes > BYTES_MAX || unit % c->lba_bytes != 0)
        return pst_fail(PST_E_ARG,
                        "expected values from 0 to 16 PiB for \"bytes\", \"blocks\" and \"at\", and a "
                        "multiple of %u for \"unit\"",
                        c->lba_bytes);
    n->bytes = bytes > 0 ? (uint64_t)bytes : (uint64_t)blocks * c->lba_bytes;
    n->at = (uint64_t)at;
    n->unit = (uint64_t)unit;
    n->writable = writable;
    n->filled = filled;
    static const char *const kinds[] = {"ram", "file", "function"};
    while (n->kind <= PST_EMU_FUNCTION && strcmp(kind, kinds[n->kind]) != 0)
        n->kind++;
    if (n->kind > PST_EMU_FUNCTION)
        return pst_fail(PST_E_ARG, "kind is \"%s\"; expected ram, file or function", kind);
    if (n->kind == PST_EMU_FILE) {
        pst_rc rc =
            (path == NULL) == (paths == NULL)
                ? pst_fail(PST_E_ARG, "expected \"path\" or \"paths\": a namespace of this kind needs "
                                      "the path of its file, or of a file for each SSD")
            : paths != NULL ? open_files(n, paths, c->ssds)
                            : open_file(n, path, c->ssds);
        if (rc != PST_OK)
            return rc;
    }
    n->bytes = pst_align_up(n->bytes, c->lba_bytes);
    return n->bytes > 0 ? PST_OK
                        : pst_fail(PST_E_ARG, "the namespace has no size: set \"bytes\" or \"blocks\"");
}

/* A bus that other processes pass, too. It is in two pages at most. */
static pst_rc map_bus(struct pst_emu_config *c, json_t *json)
{
    const char *path;
    json_int_t at;
    json_error_t e;
    struct stat st;
    if (json_unpack_ex(json, &e, 0, "{s:s, s:I, s:F !}", "path", &path, "at", &at, "bytes_per_s",
                       &c->bus_bytes_per_s) != 0)
        return pst_fail(PST_E_ARG, "bus: %s", e.text);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0)
        return pst_fail_errno("cannot open the file %s of the modelled bus", path);
    if (at < 0 || at % (json_int_t)sizeof(uint64_t) != 0 ||
        st.st_size < at + (json_int_t)sizeof(struct pst_bus) ||
        !(c->bus_bytes_per_s >= PST_BUS_RATE_MIN && c->bus_bytes_per_s <= PST_BUS_RATE_MAX)) {
        (void)close(fd);
        return pst_fail(PST_E_ARG,
                        "bus: expected \"bytes_per_s\" from %g to %g, and in \"at\" a multiple of 8 inside "
                        "the file %s, which has %lld bytes",
                        PST_BUS_RATE_MIN, PST_BUS_RATE_MAX, path, (long long)st.st_size);
    }
    const json_int_t first = at / PST_PAGE * PST_PAGE;
    c->bus_page = mmap(NULL, 2 * PST_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, first);
    (void)close(fd);
    if (c->bus_page == MAP_FAILED) {
        c->bus_page = NULL;
        return pst_fail_errno("cannot map the file %s of the modelled bus", path);
    }
    c->bus = (struct pst_bus *)(void *)((char *)c->bus_page + (at - first));
    return PST_OK;
}

static pst_rc check(const struct pst_emu_config *c, double dilate, json_int_t transfer)
{
    if (c->ssds < 1 || c->ssds > PST_NVME_EMULATED_SSDS_MAX)
        return pst_fail(PST_E_ARG, "ssds is %u; expected 1 to %d", c->ssds, PST_NVME_EMULATED_SSDS_MAX);
    if (c->workers < 1 || c->workers > PST_EMU_WORKERS_MAX)
        return pst_fail(PST_E_ARG, "workers is %u; expected 1 to %d", c->workers, PST_EMU_WORKERS_MAX);
    if (c->lba_bytes != 512 && c->lba_bytes != 4096)
        return pst_fail(PST_E_ARG, "lba_bytes is %u; expected 512 or 4096", c->lba_bytes);
    if (c->entries_max < 2 || c->entries_max > 65536)
        return pst_fail(PST_E_ARG, "entries_max is %u; expected 2 to 65536", c->entries_max);
    if (c->queues < 1 || c->queues > PST_EMU_QUEUES_MAX)
        return pst_fail(PST_E_ARG, "queues is %u; expected 1 to %d", c->queues, PST_EMU_QUEUES_MAX);
    if (c->dstrd > 8)
        return pst_fail(PST_E_ARG, "dstrd is %u; expected 0 to 8", c->dstrd);
    if (transfer < 0 || transfer % (2 * PST_PAGE) != 0 || (transfer & (transfer - 1)) != 0)
        return pst_fail(PST_E_ARG, "transfer_bytes is %lld; expected 0 or a power of two of at least 8192",
                        (long long)transfer);
    if (!(c->bus_bytes_per_s >= 0))
        return pst_fail(PST_E_ARG, "bus_bytes_per_s: expected a number of at least 0");
    if (!(c->latency_ns >= 0 && c->iops >= 0 && c->bytes_per_s >= 0 && c->spread >= 0 && c->spread <= 3))
        return pst_fail(PST_E_ARG, "expected numbers of at least 0 for latency_us, iops and bytes_per_s, and "
                                   "a number from 0 to 3 for spread");
    if (!(dilate >= 1 && dilate <= 1e6))
        return pst_fail(PST_E_ARG, "dilate is %g; expected 1 to 1000000", dilate);
    return PST_OK;
}

static pst_rc read_all(struct pst_emu_config *c, json_t *json)
{
    struct pace pace = no_pace;
    json_t *namespaces = NULL, *faults = NULL, *bus = NULL;
    json_int_t transfer = 131072;
    int ssds = 1, workers = 1, lba = 512, entries = 1024, queues = 16, dstrd = 0, check_ids = 0;
    json_error_t e;
    c->spread = 0.1;
    if (json_unpack_ex(
            json, &e, 0,
            "{s?i, s?i, s?s, s?F, s?F, s?F, s?F, s?F, s?F, s?i, s?i, s?i, s?i, s?I, s?b, s:o, s?o, s?o !}",
            "ssds", &ssds, "workers", &workers, "preset", &pace.preset, "latency_us", &pace.latency_us,
            "iops", &pace.iops, "bytes_per_s", &pace.bytes_per_s, "bus_bytes_per_s", &pace.bus_bytes_per_s,
            "spread", &c->spread, "dilate", &pace.dilate, "lba_bytes", &lba, "entries_max", &entries,
            "queues", &queues, "dstrd", &dstrd, "transfer_bytes", &transfer, "check_ids", &check_ids,
            "namespaces", &namespaces, "faults", &faults, "bus", &bus) != 0)
        return pst_fail(PST_E_ARG, "%s", e.text);
    c->ssds = (uint32_t)ssds;
    c->workers = (uint32_t)workers;
    c->lba_bytes = (uint32_t)lba;
    c->entries_max = (uint32_t)entries;
    c->queues = (uint32_t)queues;
    c->dstrd = (uint32_t)dstrd;
    c->check_ids = check_ids;
    pst_rc rc = set_pace(c, &pace);
    rc = rc == PST_OK ? check(c, pace.dilate, transfer) : rc;
    if (rc != PST_OK)
        return rc;
    c->transfer_bytes = (uint64_t)transfer;
    if (bus != NULL && (rc = map_bus(c, bus)) != PST_OK)
        return rc;
    const size_t n = json_array_size(namespaces);
    if (n < 1 || n > PST_EMU_NAMESPACES_MAX)
        return pst_fail(PST_E_ARG, "namespaces: expected a list of 1 to %d objects", PST_EMU_NAMESPACES_MAX);
    for (size_t i = 0; i < n && rc == PST_OK; i++) {
        c->nnamespaces++;
        rc = pst_wrap(read_namespace(&c->namespaces[i], json_array_get(namespaces, i), c), "namespaces[%zu]",
                      i);
    }
    return rc == PST_OK ? read_faults(&c->faults, faults) : rc;
}

pst_rc pst_emu_configure(struct pst_emu_config *c, const char *text)
{
    memset(c, 0, sizeof *c);
    json_error_t e;
    json_t *json = json_loads(text, JSON_REJECT_DUPLICATES, &e);
    if (json == NULL)
        return pst_fail(PST_E_ARG, "the emulated controller's configuration, line %d: %s", e.line, e.text);
    pst_rc rc = read_all(c, json);
    json_decref(json);
    if (rc != PST_OK)
        pst_emu_config_release(c);
    return pst_wrap(rc, "the emulated controller's configuration");
}

pst_rc pst_nvme_emulated_speed_of(struct pst_nvme_emulated_speed *speed, const char *json)
{
    struct pst_emu_config c = {0};
    struct pace pace = no_pace;
    json_error_t e;
    json_t *root = json_loads(json, JSON_REJECT_DUPLICATES, &e);
    pst_rc rc = PST_OK;
    if (json_unpack_ex(root, &e, 0, "{s?s, s?F, s?F, s?F, s?F}", "preset", &pace.preset, "latency_us",
                       &pace.latency_us, "iops", &pace.iops, "bytes_per_s", &pace.bytes_per_s, "dilate",
                       &pace.dilate) != 0)
        rc = pst_fail(PST_E_ARG, "the emulated controller's configuration: %s", e.text);
    rc = rc == PST_OK ? set_pace(&c, &pace) : rc;
    *speed = (struct pst_nvme_emulated_speed){c.iops, c.bytes_per_s, c.latency_ns * 1e-9};
    json_decref(root);
    return rc;
}

void pst_emu_config_release(struct pst_emu_config *c)
{
    for (uint32_t i = 0; i < c->nnamespaces; i++) {
        for (uint32_t k = 0; k < PST_NVME_EMULATED_SSDS_MAX; k++)
            if (c->namespaces[i].fd[k] >= 0)
                (void)close(c->namespaces[i].fd[k]);
    }
    c->nnamespaces = 0;
    if (c->bus_page != NULL)
        (void)munmap(c->bus_page, 2 * PST_PAGE);
    c->bus_page = NULL;
    c->bus = NULL;
}
