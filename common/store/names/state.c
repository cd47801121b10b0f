/* state.c: saves and loads the state of a set of names, so that an import can go on. */
#include <stdlib.h>

#include "common/error.h"
#include "common/store/names/names_impl.h"

#define RECORD_BYTES_MORE 10 /* than its text: what a name in memory has at most */

/* Files that each step goes on from, and of which of them only what finished workers wrote counts. */
static const struct {
    unsigned files, partial;
} needs[] = {
    [PST_NAMES_ADDING] = {1u << FILE_LOG | 1u << FILE_MENTIONS, 0},
    [PST_NAMES_FINDING] = {1u << FILE_LOG | 1u << FILE_MENTIONS | 1u << FILE_FOUND, 1u << FILE_FOUND},
    [PST_NAMES_NUMBERING] = {1u << FILE_LOG | 1u << FILE_FOUND | 1u << FILE_ASSIGNED | 1u << FILE_NUMBERS,
                             1u << FILE_NUMBERS},
    [PST_NAMES_GIVING] = {1u << FILE_LOG | 1u << FILE_NUMBERS, 0},
};

struct kept {
    bool done[PST_NAMES_PARTS_MAX];
    int each; /* streams of one part */
};

static bool is_kept(const void *ctx, int stream)
{
    const struct kept *k = ctx;
    return k->done[stream / k->each];
}

/* What was written of it is on the disk. */
static pst_rc settle(struct pst_names *n, enum names_file file)
{
    pst_rc rc = PST_OK;
    if (n->step == PST_NAMES_ADDING && file == FILE_LOG)
        rc = pst_ids_flush(&n->known);
    if (rc == PST_OK && n->step == PST_NAMES_ADDING)
        rc = pst_log_streams_flush(&n->file[file]);
    return rc == PST_OK ? pst_log_streams_sync(&n->file[file]) : rc;
}

pst_rc pst_names_state(struct pst_names *n, json_t **state)
{
    struct kept kept = {.each = 1};
    json_t *parts = json_array(), *files = json_array();
    pst_rc rc = PST_OK;
    assert(n->aside && n->spec.named);
    for (int p = 0; p < n->parts; p++) {
        const struct names_part *x = &n->part[p];
        kept.done[p] = __atomic_load_n(&x->done, __ATOMIC_ACQUIRE);
        const bool counted = kept.done[p] || n->step > PST_NAMES_FINDING;
        (void)json_array_append_new(
            parts, json_pack("[I, I, I, b]", (json_int_t)x->mentions, counted ? (json_int_t)x->names : 0,
                             counted ? (json_int_t)x->text_bytes : 0, (int)kept.done[p]));
    }
    for (int i = 0; rc == PST_OK && i < NAMES_FILES; i++) {
        const bool needed = needs[n->step].files >> i & 1, partial = needs[n->step].partial >> i & 1;
        kept.each = i == FILE_FOUND ? 2 : 1;
        if (needed)
            rc = settle(n, (enum names_file)i);
        (void)json_array_append_new(
            files,
            needed ? pst_log_streams_state(&n->file[i], partial ? is_kept : NULL, &kept) : json_null());
    }
    *state = json_pack("{s:i, s:I, s:I, s:I, s:o, s:o}", "step", (int)n->step, "resident",
                       (json_int_t)n->resident, "resident_bytes", (json_int_t)n->resident_bytes, "mentions",
                       (json_int_t)n->mentions_aside, "parts", parts, "files", files);
    return rc;
}

static uint64_t number(const json_t *o, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(o, key));
}

static pst_rc load_parts(struct pst_names *n, const json_t *all)
{
    n->parts = (int)json_array_size(all);
    if (n->parts < 1 || n->parts > PST_NAMES_PARTS_MAX || n->step > PST_NAMES_GIVING)
        return pst_fail(PST_E_FORMAT, "--resume: the names in the journal of the interrupted import are "
                                      "damaged: import again without --resume");
    for (int p = 0; p < n->parts; p++) {
        const json_t *one = json_array_get(all, (size_t)p);
        n->part[p] = (struct names_part){.mentions = (uint64_t)json_integer_value(json_array_get(one, 0)),
                                         .names = (uint64_t)json_integer_value(json_array_get(one, 1)),
                                         .text_bytes = (uint64_t)json_integer_value(json_array_get(one, 2)),
                                         .done = json_is_true(json_array_get(one, 3))};
    }
    return PST_OK;
}

static pst_rc load_files(struct pst_names *n, const json_t *files)
{
    static const int streams_of_part[NAMES_FILES] = {0, 1, 2, 1, 1};
    pst_rc rc = PST_OK;
    for (int i = 0; rc == PST_OK && i < NAMES_FILES; i++) {
        if ((needs[n->step].files >> i & 1) == 0)
            continue;
        rc = pst_log_streams_load(&n->file[i], n->spec.dir, pst_names_file_name(n, (enum names_file)i),
                                  json_array_get(files, (size_t)i));
        if (rc == PST_OK && n->file[i].n != (i == FILE_LOG ? LOG_STREAMS : streams_of_part[i] * n->parts))
            rc = pst_fail(PST_E_FORMAT, "--resume: the names in the journal of the interrupted import are "
                                        "damaged: import again without --resume");
    }
    if (rc == PST_OK)
        n->block_bytes = n->file[FILE_LOG].block_bytes;
    return rc;
}

/* Room for the names that were in memory, whatever memory there is now: they must be the same. */
static void expect_resident(struct pst_names *n)
{
    n->replaying = true;
    n->dict.limit = n->resident;
    n->dict.memory_bytes = UINT64_MAX;
    n->dict.room = n->resident_bytes + (uint64_t)n->resident * RECORD_BYTES_MORE + PST_NAMES_BYTES_MAX;
}

pst_rc pst_names_load(struct pst_names **out, const struct pst_names_spec *spec, const json_t *state,
                      bool again)
{
    pst_rc rc = pst_names_new(out, spec);
    if (rc != PST_OK)
        return rc;
    struct pst_names *n = *out;
    n->step = (enum pst_names_step)number(state, "step");
    n->mentions_aside = number(state, "mentions");
    rc = load_parts(n, json_object_get(state, "parts"));
    if (rc == PST_OK)
        rc = load_files(n, json_object_get(state, "files"));
    n->resident = (int64_t)number(state, "resident");
    n->resident_bytes = number(state, "resident_bytes");
    n->known = (struct pst_ids_writer){.s = &n->file[FILE_LOG], .stream = LOG_KNOWN};
    if (again || n->step == PST_NAMES_ADDING)
        expect_resident(n);
    n->aside = !n->replaying;
    return rc;
}
