#include "dict.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "../error.h"

void pst_dict_init(struct pst_dict *d, uint64_t memory_bytes)
{
    *d = (struct pst_dict){.memory_bytes = memory_bytes};
}

/* Grows one block by half, within what may be used; while it moves, both are there. */
static pst_rc grow(struct pst_dict *d, void **block, int64_t *room, int64_t need, size_t item)
{
    if (need <= *room)
        return PST_OK;
    int64_t more = pst_max_i64(pst_max_i64(need, *room + *room / 2), 4096);
    uint64_t extra = (uint64_t)(more - *room) * item;
    if (d->used + extra > d->memory_bytes)
        return pst_fail(PST_E_LIMIT,
                        "names: %" PRId64 " of them fill the %" PRIu64
                        " MiB that --memory leaves for names: give it more",
                        d->n, d->memory_bytes >> 20);
    void *moved = realloc(*block, (size_t)more * item);
    if (moved == NULL)
        return pst_fail(PST_E_NOMEM, "no memory for names");
    *block = moved;
    *room = more;
    d->used += extra;
    return PST_OK;
}

static uint64_t place(const struct pst_dict *d, const char *name, size_t bytes)
{
    uint64_t at = XXH3_64bits(name, bytes) & (d->slots - 1);
    for (; d->slot[at] != 0; at = (at + 1) & (d->slots - 1)) {
        int64_t k = d->slot[at] - 1;
        if (d->at[k + 1] - d->at[k] == (int64_t)bytes && memcmp(d->bytes + d->at[k], name, bytes) == 0)
            break;
    }
    return at;
}

/* A table twice as large, at most half full. */
static pst_rc rehash(struct pst_dict *d)
{
    uint64_t slots = d->slots > 0 ? 2 * d->slots : 1024;
    if (d->used + slots * sizeof *d->slot > d->memory_bytes)
        return pst_fail(PST_E_LIMIT,
                        "names: %" PRId64 " of them fill the %" PRIu64
                        " MiB that --memory leaves for names: give it more",
                        d->n, d->memory_bytes >> 20);
    int64_t *slot = calloc(slots, sizeof *slot);
    if (slot == NULL)
        return pst_fail(PST_E_NOMEM, "no memory for names");
    d->used += (slots - d->slots) * sizeof *slot;
    free(d->slot);
    d->slot = slot;
    d->slots = slots;
    for (int64_t k = 0; k < d->n; k++)
        d->slot[place(d, d->bytes + d->at[k], (size_t)(d->at[k + 1] - d->at[k]))] = k + 1;
    return PST_OK;
}

int64_t pst_dict_find(const struct pst_dict *d, const char *name, size_t bytes)
{
    return d->slots > 0 ? d->slot[place(d, name, bytes)] - 1 : -1;
}

pst_rc pst_dict_add(struct pst_dict *d, const char *name, size_t bytes, int64_t *number)
{
    pst_rc rc = (uint64_t)d->n * 2 >= d->slots ? rehash(d) : PST_OK;
    if (rc != PST_OK)
        return rc;
    uint64_t at = place(d, name, bytes);
    if (d->slot[at] != 0) {
        *number = d->slot[at] - 1;
        return PST_OK;
    }
    int64_t begin = d->n > 0 ? d->at[d->n] : 0;
    rc = grow(d, (void **)&d->at, &d->at_room, d->n + 2, sizeof *d->at);
    if (rc == PST_OK)
        rc = grow(d, (void **)&d->bytes, &d->bytes_room, begin + (int64_t)bytes + 1, 1);
    if (rc != PST_OK)
        return rc;
    memcpy(d->bytes + begin, name, bytes);
    d->at[d->n] = begin;
    d->at[d->n + 1] = begin + (int64_t)bytes;
    *number = d->n++;
    d->slot[at] = d->n;
    return PST_OK;
}

pst_rc pst_dict_write(const struct pst_dict *d, struct pst_build *b, enum pst_array_id at_id,
                      enum pst_array_id bytes_id)
{
    static const int64_t none = 0;
    pst_rc rc = pst_build_array_from(b, at_id, PST_I64, d->n + 1, d->n > 0 ? d->at : &none);
    if (rc == PST_OK)
        rc = pst_build_array_from(b, bytes_id, PST_U8, d->n > 0 ? d->at[d->n] : 0, d->n > 0 ? d->bytes : "");
    return rc;
}

void pst_dict_release(struct pst_dict *d)
{
    free(d->at);
    free(d->bytes);
    free(d->slot);
    *d = (struct pst_dict){.n = 0};
}
