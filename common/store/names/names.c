/* names.c: takes names in: numbers them in memory, or writes them to streams once it is full. */
#include "common/store/names/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/names/names_impl.h"

#define OWN_BLOCKS 6 /* besides one for each stream: of the log, and to read it */
#define GROUP 64     /* mentions whose memory is asked for before it is looked at */
#define PARTS_MIN 4
#define SEED_STEP 0x9e3779b97f4a7c15u /* another hash at each depth */

/* ---- making one ---- */

static uint64_t power_below(uint64_t value)
{
    return UINT64_C(1) << (63 - __builtin_clzll(value));
}

static uint64_t clamp(uint64_t value, uint64_t least, uint64_t most)
{
    return value < least ? least : value > most ? most : value;
}

pst_rc pst_names_new(struct pst_names **out, const struct pst_names_spec *spec)
{
    assert(spec->row > 0 && GROUP % spec->row == 0);
    *out = NULL;
    if (spec->memory_bytes < PST_NAMES_MEMORY_MIN)
        return pst_fail(
            PST_E_LIMIT,
            "the names of vertices need at least %u bytes of memory, found %llu: increase --memory",
            PST_NAMES_MEMORY_MIN, (unsigned long long)spec->memory_bytes);
    struct pst_names *n = calloc(1, sizeof *n);
    if (n == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate names");
    const uint64_t memory = spec->memory_bytes;
    n->spec = *spec;
    n->block_bytes =
        (uint32_t)clamp(power_below(memory / 1024), PST_LOG_STREAM_BLOCK_MIN, PST_LOG_STREAM_BLOCK_MAX);
    n->parts = (int)clamp(memory / 4 / n->block_bytes, PARTS_MIN, PST_NAMES_PARTS_MAX);
    n->workers = (int)clamp(memory / 8 / PST_NAMES_MEMORY_MIN, 1,
                            clamp((uint64_t)pst_max_i64(spec->threads, 1), 1, NAMES_WORKERS_MAX));
    pst_dict_init(&n->dict, memory - (uint64_t)(n->parts + OWN_BLOCKS) * n->block_bytes);
    n->dict.seed = (uint64_t)spec->depth * SEED_STEP;
    n->dict.hash_bits = spec->hash_bits;
    for (int i = 0; i < NAMES_FILES; i++)
        n->file[i].fd = -1;
    *out = n;
    return PST_OK;
}

const char *pst_names_file_name(const struct pst_names *n, enum names_file file)
{
    static const char *const names[NAMES_FILES] = {"names-log", "names-mentions", "names-found",
                                                   "names-assigned", "names-numbers"};
    return n->spec.named ? names[file] : NULL;
}

pst_rc pst_names_open(struct pst_names *n, enum names_file file, int streams)
{
    pst_log_streams_close(&n->file[file], false);
    return pst_log_streams_make(&n->file[file], n->spec.dir, pst_names_file_name(n, file), streams,
                                n->block_bytes);
}

bool pst_names_stopped(const struct pst_names *n)
{
    return __atomic_load_n(&n->stop, __ATOMIC_RELAXED) ||
           (n->spec.stop != NULL && __atomic_load_n(n->spec.stop, __ATOMIC_RELAXED));
}

bool pst_names_aside(const struct pst_names *n)
{
    return n->aside;
}

bool pst_names_ready(const struct pst_names *n)
{
    return !n->replaying;
}

uint64_t pst_names_mentions_aside(const struct pst_names *n)
{
    return n->mentions_aside;
}

const struct pst_dict *pst_names_dict(const struct pst_names *n)
{
    return &n->dict;
}

enum pst_names_step pst_names_step(const struct pst_names *n)
{
    return n->step;
}

int64_t pst_names_count(const struct pst_names *n, uint64_t *text_bytes)
{
    uint64_t names = n->aside ? (uint64_t)n->resident : (uint64_t)n->dict.n;
    *text_bytes = n->aside ? n->resident_bytes : n->dict.text_bytes;
    for (int p = 0; n->aside && p < n->parts; p++) {
        names += n->part[p].names;
        *text_bytes += n->part[p].text_bytes;
    }
    return (int64_t)names;
}

/* ---- adding ---- */

/* The memory is full: what is there stays as it is, and is only looked up from now on. */
static pst_rc begin_aside(struct pst_names *n)
{
    n->aside = true;
    if (n->replaying) {
        n->replaying = false;
        if (n->step > PST_NAMES_ADDING)
            pst_dict_release(&n->dict);
        return PST_OK;
    }
    n->resident = n->dict.n;
    n->resident_bytes = n->dict.text_bytes;
    if (n->spec.depth > PST_NAMES_DEPTH_MAX)
        return pst_fail(PST_E_LIMIT,
                        "a part of the names does not fit the %llu KiB of memory for names, although the "
                        "names were divided %d times: increase --memory",
                        (unsigned long long)(n->spec.memory_bytes >> 10), PST_NAMES_DEPTH_MAX);
    pst_rc rc = pst_names_open(n, FILE_LOG, LOG_STREAMS);
    n->known = (struct pst_ids_writer){.s = &n->file[FILE_LOG], .stream = LOG_KNOWN};
    return rc == PST_OK ? pst_names_open(n, FILE_MENTIONS, n->parts) : rc;
}

static inline pst_rc put_known(struct pst_names *n, int64_t id)
{
    const unsigned char code = IN_MEMORY;
    n->mentions_aside++;
    pst_rc rc = pst_log_stream_put(&n->file[FILE_LOG], LOG_PARTS, &code, 1);
    return rc == PST_OK ? pst_ids_put(&n->known, (uint64_t)id) : rc;
}

static inline pst_rc put_aside(struct pst_names *n, int part, struct pst_name name)
{
    const unsigned char code = (unsigned char)part;
    n->mentions_aside++;
    n->part[part].mentions++;
    pst_rc rc = pst_log_stream_put(&n->file[FILE_LOG], LOG_PARTS, &code, 1);
    return rc == PST_OK ? put_name(&n->file[FILE_MENTIONS], part, name) : rc;
}

/* The number of each, or -1 - part where it is not in memory, which is full. */
static void look_up(const struct pst_names *n, const struct pst_name *name, size_t count, int64_t *id)
{
    uint64_t hash[GROUP];
    for (size_t from = 0; from < count; from += GROUP) {
        const size_t group = count - from < GROUP ? count - from : GROUP;
        for (size_t i = 0; i < group; i++) {
            hash[i] = pst_dict_hash(&n->dict, name[from + i]);
            pst_dict_expect(&n->dict, hash[i]);
        }
        for (size_t i = 0; i < group; i++)
            pst_dict_expect_record(&n->dict, hash[i]);
        for (size_t i = 0; i < group; i++) {
            const int64_t found = pst_dict_find(&n->dict, hash[i], name[from + i]);
            id[from + i] = found >= 0 ? found : -1 - (int64_t)(((hash[i] >> 32) * (uint64_t)n->parts) >> 32);
        }
    }
}

/* Whole rows that are put aside; id is overwritten. */
static pst_rc add_aside(struct pst_names *n, const struct pst_name *name, size_t count, int64_t *id)
{
    pst_rc rc = PST_OK;
    look_up(n, name, count, id);
    for (size_t i = 0; rc == PST_OK && i < count; i++)
        rc = id[i] >= 0 ? put_known(n, id[i]) : put_aside(n, (int)(-1 - id[i]), name[i]);
    return rc;
}

/* Numbers up to `end`, or up to the row that has a name for which there is no room. */
static pst_rc add_group(struct pst_names *n, const struct pst_name *name, size_t from, size_t end,
                        int64_t *id, size_t *known)
{
    uint64_t hash[GROUP];
    for (size_t i = from; i < end; i++) {
        hash[i - from] = pst_dict_hash(&n->dict, name[i]);
        pst_dict_expect(&n->dict, hash[i - from]);
    }
    for (size_t i = from; i < end; i++)
        pst_dict_expect_record(&n->dict, hash[i - from]);
    for (size_t i = from; i < end; i++) {
        pst_rc rc = pst_dict_put(&n->dict, hash[i - from], name[i], &id[i]);
        if (rc != PST_OK)
            return rc;
        *known = i + 1;
        if (id[i] >= 0)
            continue;
        *known = i - i % (size_t)n->spec.row;
        return begin_aside(n);
    }
    return PST_OK;
}

pst_rc pst_names_add(struct pst_names *n, const struct pst_name *name, size_t count, int64_t *id,
                     size_t *known)
{
    assert((n->step == PST_NAMES_ADDING || n->replaying) && count % (size_t)n->spec.row == 0);
    const bool again = n->replaying;
    pst_rc rc = PST_OK;
    *known = 0;
    for (size_t from = 0; rc == PST_OK && !n->aside && from < count; from += GROUP)
        rc = add_group(n, name, from, from + GROUP < count ? from + GROUP : count, id, known);
    if (rc == PST_OK && n->aside && !again)
        rc = add_aside(n, name + *known, count - *known, id + *known);
    return rc;
}

/* ---- giving ---- */

static pst_rc begin_giving(struct pst_names *n)
{
    n->number = calloc((size_t)n->parts + 1, sizeof *n->number);
    if (n->number == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot read the numbers of names");
    pst_log_stream_read(&n->log, &n->file[FILE_LOG], LOG_PARTS);
    for (int p = 0; p < n->parts; p++)
        pst_log_stream_read(&n->number[p].r, &n->file[FILE_NUMBERS], p);
    pst_log_stream_read(&n->number[n->parts].r, &n->file[FILE_LOG], LOG_KNOWN);
    return PST_OK;
}

pst_rc pst_names_next(struct pst_names *n, int64_t *id, size_t want, size_t *got)
{
    assert(n->step == PST_NAMES_GIVING);
    pst_rc rc = n->number == NULL ? begin_giving(n) : PST_OK;
    *got = 0;
    while (rc == PST_OK && *got < want) {
        if ((rc = pst_log_stream_ahead(&n->log, 1)) != PST_OK || n->log.at == n->log.end)
            return rc;
        size_t take = n->log.end - n->log.at;
        take = take < want - *got ? take : want - *got;
        const unsigned char *part = n->log.buffer + n->log.at;
        for (size_t i = 0; rc == PST_OK && i < take; i++) {
            if (part[i] >= n->parts && part[i] != IN_MEMORY)
                return damaged();
            rc = pst_ids_next(&n->number[part[i] == IN_MEMORY ? n->parts : part[i]], &id[*got + i]);
        }
        n->log.at += take;
        *got += take;
    }
    return rc;
}

void pst_names_free(struct pst_names *n)
{
    if (n == NULL)
        return;
    pst_dict_release(&n->dict);
    pst_log_stream_reader_release(&n->log);
    for (int p = 0; n->number != NULL && p <= n->parts; p++)
        pst_log_stream_reader_release(&n->number[p].r);
    free(n->number);
    for (int i = 0; i < NAMES_FILES; i++)
        pst_log_streams_close(&n->file[i], true);
    free(n);
}
