/* drives.c: opens the drives of the backends "nvme" and "emulated", and finds where on them a byte of a file
 * lies. */
#include "stages/lib/io/drives.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/nvme/driver/vfio.h"
#include "common/store/array_id.h"
#include "common/store/dataset/stripe.h"
#include "common/error.h"

#define NAME_SHOWN 100   /* of a file's path in messages: its end */
#define ENTRIES_MAX 4096 /* of a queue; each has 4 KiB for a PRP list */

bool pst_io_drives_stored(const char *backend, const struct pst_io_nvme_config *c)
{
    return strcmp(backend, pst_io_emulated_ops.name) == 0 && c->drives != NULL && c->drives[0] != '\0';
}

uint32_t pst_io_drives_listed(const struct pst_io_nvme_config *c)
{
    uint32_t n = 1;
    for (const char *at = c->drives; at != NULL && (at = strchr(at, ',')) != NULL; at++)
        n++;
    return n;
}

/* ---- emulated drives over files --------------------------------------------------------------------- */

const struct pst_request_array *pst_io_array_in(const struct pst_request_array *arrays, uint32_t file)
{
    uint32_t a = 0;
    while (a + 1 < PST_REQUEST_ARRAYS_MAX && file - arrays[a].rows_in.first >= arrays[a].rows_in.over)
        a++;
    return &arrays[a];
}

/* One namespace, which is another file on each drive. */
static json_t *stored_files(const struct pst_io_nvme_config *c)
{
    json_t *paths = json_array();
    for (const char *at = c->drives, *end; at != NULL && *at != '\0'; at = *end == ',' ? end + 1 : end) {
        end = at + strcspn(at, ",");
        (void)json_array_append_new(paths, json_stringn(at, (size_t)(end - at)));
    }
    return json_pack("[{ss, so, sb}]", "kind", "file", "paths", paths, "writable", (int)c->writable);
}

/* Makes a namespace for each file. Rows that fill blocks are units; of others, the fewest rows that fill
 * blocks. */
static json_t *namespaces(struct pst_io_drives *d, const struct pst_io_config *c)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < c->nfiles; i++) {
        const struct pst_extent *rows = &pst_io_array_in(c->arrays, i)->rows_in;
        const uint64_t unit = rows->unit * pst_stripe_group(rows->unit, PST_SECTOR);
        json_t *ns = json_pack("{ss, ss, sI, sI, sb}", "kind", "file", "path", c->files[i].path, "at",
                               (json_int_t)rows->base, "unit", (json_int_t)unit, "writable",
                               (int)c->files[i].writable);
        (void)json_array_append_new(list, ns);
        d->extents[i] =
            (struct pst_extent){.from = rows->base, .unit = unit, .over = c->nvme->ssds, .nsid = i + 1};
    }
    return list;
}

/* `emulated` may not contradict the pipeline's bus, nor name another one: any file would do. */
static pst_rc check_bus(const struct pst_io_config *c, const json_t *emulated)
{
    static const char *const keys[] = {"bus", "bus_bytes_per_s", "dilate"};
    for (int i = 0; i < (c->nvme->bus != NULL ? 3 : 1); i++)
        if (json_object_get(emulated, keys[i]) != NULL)
            return pst_fail(PST_E_ARG,
                            "the parameter \"emulated\" has the key %s, but the pipeline already models the "
                            "bus (its field \"bus\"): remove the key",
                            keys[i]);
    return PST_OK;
}

/* Messages name the file of a drive. */
static void name_files(struct pst_io_drives *d, const char *files)
{
    for (uint32_t i = 0; i < d->n; i++, files += strcspn(files, ","), files += *files == ',') {
        const int length = (int)strcspn(files, ",");
        (void)snprintf(d->t[i].what, sizeof d->t[i].what, "emulated SSD %u (%.*s)", i,
                       length < NAME_SHOWN ? length : NAME_SHOWN,
                       files + (length < NAME_SHOWN ? 0 : length - NAME_SHOWN));
    }
}

static pst_rc start_emulated(struct pst_io_drives *d, const struct pst_io_config *c)
{
    json_error_t e;
    const bool stored = pst_io_drives_stored(pst_io_emulated_ops.name, c->nvme);
    const char *more = c->nvme->emulated != NULL && c->nvme->emulated[0] != '\0' ? c->nvme->emulated : "{}";
    json_t *json = json_loads(more, JSON_REJECT_DUPLICATES, &e);
    if (!json_is_object(json)) {
        json_decref(json);
        return pst_fail(PST_E_ARG, "the parameter \"emulated\" is not a JSON object: %s", e.text);
    }
    pst_rc rc = check_bus(c, json);
    if (rc == PST_OK && stored && pst_io_drives_listed(c->nvme) != c->nvme->ssds)
        rc = pst_fail(PST_E_ARG,
                      "drives lists %u files, but ssds is %u: set ssds to the number of files, or to 1",
                      pst_io_drives_listed(c->nvme), c->nvme->ssds);
    if (rc != PST_OK) {
        json_decref(json);
        return rc;
    }
    json_t *whole =
        json_pack("{si, ss, sf, so}", "ssds", (int)c->nvme->ssds, "preset", c->nvme->preset, "dilate",
                  c->nvme->dilate, "namespaces", stored ? stored_files(c->nvme) : namespaces(d, c));
    bool ok = whole != NULL && json_object_update(whole, json) == 0;
    if (ok && c->nvme->bus != NULL)
        ok = json_object_set_new(whole, "bus",
                                 json_pack("{ss sI sf}", "path", c->nvme->bus, "at",
                                           (json_int_t)c->nvme->bus_at, "bytes_per_s",
                                           c->nvme->bus_bytes_per_s)) == 0;
    char *text = ok ? json_dumps(whole, JSON_COMPACT) : NULL;
    rc = text != NULL
             ? pst_nvme_emulated_start(&d->emulated, text)
             : pst_fail(PST_E_NOMEM, "out of memory: cannot write the configuration of the emulated drives");
    rc = rc == PST_OK ? pst_nvme_emulated_speed_of(&d->speed, text) : rc;
    free(text);
    json_decref(whole);
    json_decref(json);
    d->n = c->nvme->ssds;
    for (uint32_t i = 0; rc == PST_OK && i < d->n; i++)
        rc = pst_nvme_emulated_connect(&d->t[i], &d->emulated, i);
    if (rc == PST_OK && stored)
        name_files(d, c->nvme->drives);
    return rc;
}

/* ---- real drives ---------------------------------------------------------------------------------- */

static pst_rc connect_drives(struct pst_io_drives *d, const struct pst_io_config *c)
{
    char *list = strdup(c->nvme->drives != NULL ? c->nvme->drives : "");
    pst_rc rc =
        list != NULL ? PST_OK : pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the drives' addresses");
    char *save = NULL;
    for (char *at = list != NULL ? strtok_r(list, ", ", &save) : NULL; at != NULL && rc == PST_OK;
         at = strtok_r(NULL, ", ", &save)) {
        if (d->n == PST_NVME_SSDS_MAX)
            rc = pst_fail(PST_E_LIMIT, "the parameter drives lists too many drives: at most %d are supported",
                          PST_NVME_SSDS_MAX);
        else
            rc = pst_nvme_vfio_connect(&d->t[d->n], at);
        d->n += rc == PST_OK;
    }
    free(list);
    if (rc == PST_OK && d->n == 0)
        rc = pst_fail(PST_E_ARG, "backend \"nvme\" needs the PCI addresses of its drives, for example "
                                 "\"drives\": \"0000:01:00.0,0000:02:00.0\"; `penstock disks` lists the "
                                 "drives, and `penstock store` writes a dataset to them");
    return rc;
}

/* Reads the block that says what a drive holds. */
static pst_rc read_signature(struct pst_io_drives *d, uint32_t drive, const struct pst_io_config *c,
                             struct pst_stripe *stripe)
{
    struct pst_nvme_dma block;
    struct pst_nvme_stack *stack = NULL;
    struct pst_nvme_result result;
    uint32_t n = 0;
    pst_rc rc = pst_nvme_dma_new(&block, &d->t[drive], PST_STRIPE_BLOCK);
    if (rc != PST_OK)
        return rc;
    const struct pst_nvme_stack_config config = {.controllers = &d->list[drive],
                                                 .ssds = 1,
                                                 .lanes = 1,
                                                 .requests_max = 1,
                                                 .retries = 3,
                                                 .timeout_ms = c->nvme->timeout_ms};
    const struct pst_nvme_request read = {.opcode = PST_NVME_READ,
                                          .nsid = 1,
                                          .lba_shift = (uint8_t)d->lba_shift,
                                          .bytes = PST_STRIPE_BLOCK,
                                          .iova = block.iova};
    rc = pst_nvme_stack_new(&stack, &config);
    rc = rc == PST_OK ? pst_nvme_stack_add(stack, &read) : rc;
    while (rc == PST_OK && n == 0)
        rc = pst_nvme_stack_poll(stack, &result, 1, &n); /* this ends, because a late command is aborted */
    char text[64];
    if (rc == PST_OK && result.status != PST_NVME_OK)
        rc = pst_fail(PST_E_IO, "%s: cannot read the first block: %s", d->t[drive].what,
                      pst_nvme_status_text(result.status, text));
    if (rc == PST_OK)
        rc = pst_stripe_match(block.base, c->nvme->dataset, drive, d->n, d->t[drive].what, stripe);
    pst_nvme_stack_free(stack);
    pst_nvme_dma_free(&block);
    return rc;
}

static pst_rc check_blocks(const struct pst_io_drives *d, const struct pst_stripe *s)
{
    const uint64_t block = 1ull << d->lba_shift;
    if (d->n == 1 || (s->row_bytes * s->group % block == 0 && s->unit % block == 0))
        return PST_OK;
    return pst_fail(PST_E_UNSUPPORTED,
                    "%s: the dataset was written in groups of %u rows of %llu bytes and in units of %u bytes "
                    "of topology, which are not whole blocks of %llu bytes: the drive was formatted with "
                    "another block size since then; run `penstock store` again",
                    d->t[0].what, s->group, (unsigned long long)s->row_bytes, s->unit,
                    (unsigned long long)block);
}

/* The places of the arrays that lie on these drives. Others have none. */
static void set_extents(struct pst_io_drives *d, const struct pst_io_config *c, const struct pst_stripe *s)
{
    static const enum pst_array_id id[PST_STRIPE_AREAS] = {
        [PST_STRIPE_INDPTR] = PST_ARRAY_INDPTR, [PST_STRIPE_INDICES] = PST_ARRAY_INDICES};
    const struct pst_extent *features = &c->arrays[PST_ARRAY_FEATURES].rows_in;
    d->extents[features->first] = (struct pst_extent){
        .from = features->base, .unit = s->row_bytes * s->group, .base = s->data_at, .over = d->n, .nsid = 1};
    for (int k = 0; k < PST_STRIPE_AREAS && s->unit > 0; k++) {
        const struct pst_request_array *array = &c->arrays[id[k]];
        if (array->rows == 0)
            continue;
        d->extents[array->rows_in.first] = (struct pst_extent){
            .from = array->rows_in.base, .unit = s->unit, .base = s->topology[k].at, .over = d->n, .nsid = 1};
    }
}

static pst_rc read_signatures(struct pst_io_drives *d, const struct pst_io_config *c)
{
    struct pst_stripe first = {.stripes = 0}, stripe;
    pst_rc rc = PST_OK;
    for (uint32_t i = 0; i < d->n && rc == PST_OK; i++) {
        rc = read_signature(d, i, c, &stripe);
        if (rc == PST_OK && c->nvme->topology)
            rc = pst_stripe_need_topology(&stripe, c->nvme->dataset, d->t[i].what);
        first = i == 0 ? stripe : first;
        if (rc == PST_OK)
            rc = pst_stripe_agree(&stripe, d->t[i].what, &first, d->t[0].what, c->nvme->dataset);
    }
    rc = rc == PST_OK ? check_blocks(d, &first) : rc;
    if (rc == PST_OK)
        set_extents(d, c, &first);
    return rc;
}

/* ---- both ----------------------------------------------------------------------------------------- */

/* Entries of each queue pair. Without a limit, all queues together hold a whole group of requests twice,
 * because requests do not divide evenly over drives. The drive's MQES can make it less. */
static uint32_t queue_entries(const struct pst_io_drives *d, const struct pst_io_config *c)
{
    const uint32_t pairs = d->n * c->nvme->queues;
    const uint32_t whole = 2 * PST_IO_GROUP_REQUESTS / pairs, ops = (uint32_t)c->depth + 1;
    const uint32_t wanted = whole > ops ? whole : ops;
    return c->whole_groups && wanted < ENTRIES_MAX ? wanted : c->whole_groups ? ENTRIES_MAX : ops;
}

static pst_rc bring_up(struct pst_io_drives *d, uint32_t i, const struct pst_io_config *c)
{
    const struct pst_nvme_config config = {.queues = c->nvme->queues, .depth = queue_entries(d, c)};
    struct pst_nvme_namespace ns;
    pst_rc rc = pst_nvme_open(&d->c[i], &d->t[i], &config);
    if (rc != PST_OK)
        return rc;
    d->open[i] = true;
    d->list[i] = &d->c[i];
    rc = pst_nvme_namespace(&d->c[i], 1, &ns);
    if (rc != PST_OK)
        return rc;
    uint32_t shift = 9;
    while ((1u << shift) < ns.lba_bytes)
        shift++;
    if (i > 0 && shift != d->lba_shift)
        return pst_fail(PST_E_UNSUPPORTED,
                        "%s has blocks of %u bytes, but %s has blocks of %u: all drives of a dataset must "
                        "have the same block size",
                        d->t[i].what, 1u << shift, d->t[0].what, 1u << d->lba_shift);
    d->lba_shift = shift;
    for (int r = 0; r < d->nregions && rc == PST_OK; r++)
        rc = d->t[i].ops->dma_map(&d->t[i], (void *)(uintptr_t)d->regions[r].base, d->regions[r].bytes,
                                  &d->regions[r].iova[i]);
    return rc;
}

pst_rc pst_io_drives_open(struct pst_io_drives *d, const struct pst_io_config *c, bool emulated)
{
    memset(d, 0, sizeof *d);
    if (c->nregions > PST_IO_DRIVES_REGIONS_MAX)
        return pst_fail(
            PST_E_LIMIT,
            "the pipeline has %d memory regions for slots, but a drive can use at most %d: use fewer links",
            c->nregions, PST_IO_DRIVES_REGIONS_MAX);
    for (; d->nregions < c->nregions; d->nregions++) {
        d->regions[d->nregions].base = c->regions[d->nregions].iov_base;
        d->regions[d->nregions].bytes = c->regions[d->nregions].iov_len;
    }
    pst_rc rc = emulated ? start_emulated(d, c) : connect_drives(d, c);
    for (uint32_t i = 0; i < d->n && rc == PST_OK; i++)
        rc = bring_up(d, i, c);
    if (rc == PST_OK && (!emulated || pst_io_drives_stored(pst_io_emulated_ops.name, c->nvme)))
        rc = read_signatures(d, c);
    if (rc != PST_OK)
        pst_io_drives_close(d);
    return rc;
}

void pst_io_drives_close(struct pst_io_drives *d)
{
    for (uint32_t i = 0; i < PST_NVME_SSDS_MAX; i++) {
        if (d->open[i])
            pst_nvme_close(&d->c[i]);
        if (d->t[i].ops != NULL)
            d->t[i].ops->close(&d->t[i]);
    }
    pst_nvme_emulated_stop(&d->emulated);
    memset(d, 0, sizeof *d);
}

bool pst_io_drives_find(const struct pst_io_drives *d, uint32_t file, uint64_t at,
                        struct pst_nvme_request *where, uint64_t *run)
{
    struct pst_extent_place place;
    if (!pst_extent_find(&d->extents[file], at, &place))
        return false;
    *run = place.run;
    where->ssd = (uint16_t)place.place;
    where->nsid = d->extents[file].nsid;
    where->lba_shift = (uint8_t)d->lba_shift;
    where->lba = place.at >> d->lba_shift;
    return true;
}

bool pst_io_drives_iova(const struct pst_io_drives *d, uint32_t drive, const void *memory, uint64_t bytes,
                        uint64_t *iova)
{
    const char *at = memory;
    for (int i = 0; i < d->nregions; i++) {
        if (at < d->regions[i].base || at >= d->regions[i].base + d->regions[i].bytes)
            continue;
        const uint64_t offset = (uint64_t)(at - d->regions[i].base);
        *iova = d->regions[i].iova[drive] + offset;
        return bytes <= d->regions[i].bytes - offset;
    }
    return false;
}
