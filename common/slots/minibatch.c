/* minibatch.c: the size and layout of a minibatch's slot, and the check of one that another process filled.
 */
#include "common/slots/minibatch.h"

#include <math.h>
#include <string.h>

#include "common/error.h"
#include "common/slots/request.h"
#include "common/util/dtype.h"

/* ---- size and layout ------------------------------------------------------------------------------ */

static int64_t scaled(int64_t base, int64_t bound, double margin)
{
    const double want = ceil((double)base * margin);
    const int64_t size = want >= (double)PST_MINIBATCH_COUNT_MAX ? PST_MINIBATCH_COUNT_MAX : (int64_t)want;
    return pst_max_i64(1, pst_min_i64(size, bound));
}

void pst_minibatch_size_scale(struct pst_minibatch_size *size, const struct pst_minibatch_size *base,
                              const struct pst_minibatch_size *bound, double margin)
{
    assert(base->hops == bound->hops && margin > 0);
    *size = *base;
    for (int h = 0; h <= base->hops; h++)
        size->n[h] = scaled(base->n[h], bound->n[h], margin);
    for (int h = 0; h < base->hops; h++)
        size->edges[h] = scaled(base->edges[h], bound->edges[h], margin);
    if (base->stored > 0)
        size->stored = scaled(base->stored, size->n[size->hops], margin);
}

/* The next array: it begins at the result, and *end moves behind it. */
static uint64_t append(uint64_t *end, int64_t count, size_t size)
{
    const uint64_t at = pst_align_up(*end, PST_CACHE_LINE);
    *end = at + (uint64_t)count * size;
    return at;
}

void pst_minibatch_layout_init(struct pst_minibatch_layout *layout, const struct pst_minibatch_size *size,
                               uint64_t stride_bytes)
{
    const int64_t rows = size->n[size->hops], stored = size->stored > 0 ? size->stored : rows,
                  requests = stride_bytes ? stored : 0;
    uint64_t end = sizeof(struct pst_minibatch);
    *layout = (struct pst_minibatch_layout){.size = *size, .stride_bytes = stride_bytes};
    layout->vertices_at = append(&end, rows, sizeof(int64_t));
    layout->labels_at = append(&end, size->n[0], sizeof(int32_t));
    for (int h = 0; h < size->hops; h++) {
        layout->indptr_at[h] = append(&end, size->n[h] + 1, sizeof(int32_t));
        layout->indices_at[h] = append(&end, size->edges[h], sizeof(int32_t));
        if (size->weights)
            layout->weights_at[h] = append(&end, size->edges[h], sizeof(float));
        if (size->relations)
            layout->relations_at[h] = append(&end, size->edges[h], sizeof(int32_t));
    }
    if (size->pairs > 0)
        layout->pairs_at = append(&end, 2 * size->pairs, sizeof(int32_t));
    if (size->stored > 0)
        layout->in_place_at = append(&end, rows, sizeof(int32_t));
    layout->requests_at = append(&end, requests, sizeof(struct pst_request));
    layout->missing_at = append(&end, requests, sizeof(int32_t));
    layout->features_bytes = pst_align_up((uint64_t)stored * stride_bytes, PST_PAGE);
    if (layout->features_bytes == 0)
        layout->features_bytes = PST_PAGE; /* a slot of cached rows cannot be empty */
    layout->features_at = pst_align_up(end, PST_PAGE);
    layout->bytes = layout->features_at + layout->features_bytes;
}

uint64_t pst_minibatch_features_at(uint64_t slot_bytes, uint64_t cached_slot_bytes)
{
    return cached_slot_bytes < slot_bytes ? slot_bytes - cached_slot_bytes : slot_bytes;
}

void pst_minibatch_place(struct pst_minibatch *mb, const struct pst_minibatch_layout *layout)
{
    mb->hops = (uint32_t)layout->size.hops;
    mb->stride_bytes = layout->stride_bytes;
    mb->bytes_used = layout->features_at;
    mb->vertices_at = layout->vertices_at;
    mb->labels_at = layout->labels_at;
    mb->requests_at = layout->requests_at;
    mb->missing_at = layout->missing_at;
    mb->features_at = layout->features_at;
    memcpy(mb->indptr_at, layout->indptr_at, sizeof mb->indptr_at);
    memcpy(mb->indices_at, layout->indices_at, sizeof mb->indices_at);
    memcpy(mb->weights_at, layout->weights_at, sizeof mb->weights_at);
    memcpy(mb->relations_at, layout->relations_at, sizeof mb->relations_at);
    mb->pairs_at = layout->pairs_at;
    mb->in_place_at = layout->in_place_at;
}

/* ---- reading -------------------------------------------------------------------------------------- */

#define WEIGHT_MAX 1.0001 /* a share of 1, rounded */
#define SPANS_MAX (7 + 4 * PST_HOPS_MAX)

/* One array of the slot. */
struct span {
    const char *name;
    int hop; /* -1: not of a hop */
    uint64_t at, bytes;
};

struct spans {
    struct span span[SPANS_MAX];
    int n;
};

static pst_rc refuse(const struct span *s, const char *what, uint64_t found, uint64_t limit)
{
    char name[48];
    size_t n = strlen(s->name);
    memcpy(name, s->name, n + 1);
    if (s->hop >= 0) {
        const char digits[4] = {'[', (char)('0' + s->hop), ']', '\0'};
        memcpy(name + n, digits, sizeof digits);
    }
    return pst_fail(PST_E_FORMAT, "not a minibatch: %s %s (found %llu, limit %llu)", name, what,
                    (unsigned long long)found, (unsigned long long)limit);
}

static pst_rc add_span(struct spans *list, const char *name, int hop, uint64_t at, uint64_t count,
                       uint64_t size, uint64_t align, uint64_t bytes)
{
    struct span s = {.name = name, .hop = hop, .at = at};
    if (at < sizeof(struct pst_minibatch) || at > bytes)
        return refuse(&s, "begins outside the slot", at, bytes);
    if (at % align != 0)
        return refuse(&s, "is not aligned", at, align);
    if (__builtin_mul_overflow(count, size, &s.bytes) || s.bytes > bytes - at)
        return refuse(&s, "does not fit the slot", count, (bytes - at) / (size ? size : 1));
    for (int i = 0; i < list->n; i++) {
        const struct span *o = &list->span[i];
        if (s.bytes > 0 && o->bytes > 0 && s.at < o->at + o->bytes && o->at < s.at + s.bytes)
            return refuse(&s, "overlaps another array", at, o->at);
    }
    list->span[list->n++] = s;
    return PST_OK;
}

static pst_rc check_header(const struct pst_minibatch *mb, uint64_t bytes)
{
    if (mb->magic != PST_MINIBATCH_MAGIC)
        return pst_fail(PST_E_FORMAT, "not a minibatch: the slot begins with %016llx, expected %016llx",
                        (unsigned long long)mb->magic, (unsigned long long)PST_MINIBATCH_MAGIC);
    if (mb->bytes_used > bytes || mb->bytes_used < sizeof *mb)
        return pst_fail(PST_E_FORMAT, "not a minibatch: bytes_used is %llu, but the slot has %llu bytes",
                        (unsigned long long)mb->bytes_used, (unsigned long long)bytes);
    if (mb->hops < 1 || mb->hops > PST_HOPS_MAX)
        return pst_fail(PST_E_FORMAT, "not a minibatch: the slot has %u hops, expected 1 to %d", mb->hops,
                        PST_HOPS_MAX);
    if (mb->last_micro > 1 || mb->batch_in_epoch >= mb->batches_in_epoch)
        return pst_fail(PST_E_FORMAT,
                        "not a minibatch: batch_in_epoch is %llu, batches_in_epoch is %llu and last_micro is "
                        "%u; expected batch_in_epoch below batches_in_epoch, and last_micro 0 or 1",
                        (unsigned long long)mb->batch_in_epoch, (unsigned long long)mb->batches_in_epoch,
                        mb->last_micro);
    if (mb->served > mb->requests)
        return pst_fail(PST_E_FORMAT,
                        "not a minibatch: its header counts %u feature rows as read (served), but only %u as "
                        "requested (requests)",
                        mb->served, mb->requests);
    for (uint32_t h = 0; h <= mb->hops; h++) {
        int64_t least = h == 0 ? 0 : mb->n[h - 1];
        if (mb->n[h] < least || mb->n[h] > INT32_MAX - 1)
            return pst_fail(PST_E_FORMAT,
                            "not a minibatch: n[%u], a number of vertices, is %lld; expected %lld or more", h,
                            (long long)mb->n[h], (long long)least);
    }
    if (mb->positives > mb->pairs || (mb->pairs_at == 0 && mb->pairs > 0) ||
        (mb->pairs_at > 0 && mb->positives > mb->batch_seeds))
        return pst_fail(PST_E_FORMAT,
                        "not a minibatch: the slot has %u pairs, of which %u are edges of a batch of %u; "
                        "expected at most as many edges as pairs, and as the batch has",
                        mb->pairs, mb->positives, mb->batch_seeds);
    if (mb->pairs_at == 0 && mb->n[0] > (int64_t)mb->batch_seeds)
        return pst_fail(
            PST_E_FORMAT,
            "not a minibatch: the slot has %lld seeds, but the header says that the whole batch has only %u",
            (long long)mb->n[0], mb->batch_seeds);
    if (mb->n[0] == 0 && mb->n[mb->hops] != 0)
        return pst_fail(PST_E_FORMAT, "not a minibatch: the slot has %lld vertices, but no seeds",
                        (long long)mb->n[mb->hops]);
    return PST_OK;
}

static pst_rc check_row(const struct pst_minibatch *mb)
{
    if (mb->feature_dim == 0 && mb->stride_bytes == 0)
        return PST_OK;
    if (mb->feature_dtype != PST_F32 && mb->feature_dtype != PST_F16 && mb->feature_dtype != PST_BF16)
        return pst_fail(PST_E_FORMAT,
                        "not a minibatch: feature_dtype is %u; expected float32, float16 or bfloat16",
                        mb->feature_dtype);
    uint64_t row = mb->feature_dim * (uint64_t)pst_dtype_bytes((enum pst_dtype)mb->feature_dtype);
    if (mb->stride_bytes < row)
        return pst_fail(PST_E_FORMAT,
                        "not a minibatch: a row of %u columns takes %llu bytes, but stride_bytes, the "
                        "distance of two rows, is only %llu",
                        mb->feature_dim, (unsigned long long)row, (unsigned long long)mb->stride_bytes);
    return PST_OK;
}

static pst_rc check_weights(const struct pst_minibatch *h, const struct pst_minibatch *slot, int hop,
                            int32_t edges, struct spans *spans)
{
    const pst_rc rc = add_span(spans, "weights", hop, h->weights_at[hop], (uint64_t)edges, sizeof(float),
                               sizeof(float), h->bytes_used);
    if (rc != PST_OK)
        return rc;
    const float *weights = pst_minibatch_at(slot, h->weights_at[hop]);
    bool bad = false;
    for (int32_t e = 0; e < edges; e++)
        bad |= !(weights[e] >= 0 && weights[e] <= (float)WEIGHT_MAX);
    return bad ? pst_fail(PST_E_FORMAT,
                          "not a minibatch: weights[%d] contains a number outside of the range 0 to 1", hop)
               : PST_OK;
}

static pst_rc check_relations(const struct pst_minibatch *h, const struct pst_minibatch *slot, int hop,
                              int32_t edges, struct spans *spans)
{
    const pst_rc rc = add_span(spans, "relations", hop, h->relations_at[hop], (uint64_t)edges,
                               sizeof(int32_t), sizeof(int32_t), h->bytes_used);
    if (rc != PST_OK)
        return rc;
    const int32_t *relations = pst_minibatch_at(slot, h->relations_at[hop]);
    int32_t lowest = 0;
    for (int32_t e = 0; e < edges; e++)
        lowest = relations[e] < lowest ? relations[e] : lowest;
    return lowest < 0
               ? pst_fail(
                     PST_E_FORMAT,
                     "not a minibatch: relations[%d] contains the number %d; expected numbers of at least 0",
                     hop, lowest)
               : PST_OK;
}

static pst_rc check_pairs(const struct pst_minibatch *h, const struct pst_minibatch *slot,
                          struct spans *spans)
{
    if (h->pairs_at == 0)
        return PST_OK;
    const pst_rc rc = add_span(spans, "pairs", -1, h->pairs_at, h->pairs, 2 * sizeof(int32_t),
                               sizeof(int32_t), h->bytes_used);
    if (rc != PST_OK)
        return rc;
    const int32_t *pairs = pst_minibatch_at(slot, h->pairs_at);
    uint32_t worst = 0;
    for (uint64_t i = 0; i < 2 * (uint64_t)h->pairs; i++)
        worst = (uint32_t)pairs[i] > worst ? (uint32_t)pairs[i] : worst;
    return h->pairs > 0 && worst >= h->n[0]
               ? pst_fail(PST_E_FORMAT,
                          "not a minibatch: a pair has an end at position %d, but there are only %lld seeds",
                          (int)worst, (long long)h->n[0])
               : PST_OK;
}

/* *stored gets the number of rows in features. */
static pst_rc check_in_place(const struct pst_minibatch *h, const struct pst_minibatch *slot,
                             struct spans *spans, uint64_t *stored)
{
    const int64_t rows = h->n[h->hops];
    *stored = (uint64_t)rows;
    if (h->in_place_at == 0)
        return PST_OK;
    const pst_rc rc = add_span(spans, "in_place", -1, h->in_place_at, (uint64_t)rows, sizeof(int32_t),
                               sizeof(int32_t), h->bytes_used);
    if (rc != PST_OK)
        return rc;
    const int32_t *row = pst_minibatch_at(slot, h->in_place_at);
    int32_t most = -1, lowest = 0;
    for (int64_t i = 0; i < rows; i++) {
        most = row[i] > most ? row[i] : most;
        lowest = row[i] < lowest ? row[i] : lowest;
    }
    *stored = (uint64_t)(-(int64_t)lowest);
    return most >= 0 && (uint64_t)most >= h->in_place_rows
               ? pst_fail(PST_E_FORMAT,
                          "not a minibatch: in_place contains row %d of the cache, which has %llu rows", most,
                          (unsigned long long)h->in_place_rows)
               : PST_OK;
}

/* The block of one hop. Its indptr has been found to lie in the slot. */
static pst_rc check_block(const struct pst_minibatch *h, const struct pst_minibatch *slot, int hop,
                          struct spans *spans)
{
    const int32_t *indptr = pst_minibatch_at(slot, h->indptr_at[hop]);
    int64_t dsts = h->n[hop], sources = h->n[hop + 1];
    uint32_t bad = (uint32_t)indptr[0];
    int32_t edges = 0;
    for (int64_t d = 1; d <= dsts; d++) {
        int32_t end = indptr[d];
        bad |= end < edges;
        edges = end;
    }
    if (bad != 0 || edges < 0)
        return pst_fail(PST_E_FORMAT, "not a minibatch: indptr[%d] does not begin at 0, or decreases", hop);
    pst_rc rc = add_span(spans, "indices", hop, h->indices_at[hop], (uint64_t)edges, sizeof(int32_t),
                         sizeof(int32_t), h->bytes_used);
    if (rc != PST_OK)
        return rc;
    const int32_t *indices = pst_minibatch_at(slot, h->indices_at[hop]);
    uint32_t worst = 0;
    for (int32_t e = 0; e < edges; e++)
        worst = (uint32_t)indices[e] > worst ? (uint32_t)indices[e] : worst;
    if (edges > 0 && worst >= sources)
        return pst_fail(
            PST_E_FORMAT,
            "not a minibatch: indices[%d] contains the position %d, but there are only %lld vertices", hop,
            (int)worst, (long long)sources);
    if (h->weights_at[hop] != 0)
        rc = check_weights(h, slot, hop, edges, spans);
    return rc == PST_OK && h->relations_at[hop] != 0 ? check_relations(h, slot, hop, edges, spans) : rc;
}

/* stored: the number of rows in features. */
static pst_rc check_values(const struct pst_minibatch *h, const struct pst_minibatch *slot, uint64_t stored)
{
    const int64_t *vertices = pst_minibatch_at(slot, h->vertices_at);
    const int32_t *labels = pst_minibatch_at(slot, h->labels_at);
    int64_t lowest = 0;
    for (int64_t i = 0; i < h->n[h->hops]; i++)
        lowest = pst_min_i64(lowest, vertices[i]);
    int32_t low_label = 0;
    for (int64_t i = 0; i < h->n[0]; i++)
        low_label = labels[i] < low_label ? labels[i] : low_label;
    if (lowest < 0 || low_label < -1)
        return pst_fail(PST_E_FORMAT,
                        "not a minibatch: the lowest vertex is %lld and the lowest label is %d; expected "
                        "vertices of at least 0 and labels of at least -1",
                        (long long)lowest, low_label);
    const int32_t *missing = pst_minibatch_at(slot, h->missing_at);
    uint32_t worst = 0;
    for (uint32_t i = 0; i < h->requests; i++)
        worst = (uint32_t)missing[i] > worst ? (uint32_t)missing[i] : worst;
    if (h->n[h->hops] > 0 && worst >= stored && h->requests > 0)
        return pst_fail(
            PST_E_FORMAT,
            "not a minibatch: the list of missing rows contains row %u, but the slot has only %llu rows",
            worst, (unsigned long long)stored);
    return PST_OK;
}

pst_rc pst_minibatch_read(const struct pst_minibatch *mb, uint64_t bytes, struct pst_minibatch *h)
{
    if (bytes < sizeof *mb)
        return pst_fail(PST_E_FORMAT, "not a minibatch: a slot of %llu bytes cannot hold its header",
                        (unsigned long long)bytes);
    memcpy(h, mb, sizeof *h);
    pst_rc rc = check_header(h, bytes);
    if (rc != PST_OK || (rc = check_row(h)) != PST_OK)
        return rc;
    struct spans spans = {.n = 0};
    uint64_t all = (uint64_t)h->n[h->hops], used = h->bytes_used, stored = 0;
    if ((rc =
             add_span(&spans, "vertices", -1, h->vertices_at, all, sizeof(int64_t), sizeof(int64_t), used)) ||
        (rc = add_span(&spans, "labels", -1, h->labels_at, (uint64_t)h->n[0], sizeof(int32_t),
                       sizeof(int32_t), used)) ||
        (rc = add_span(&spans, "requests", -1, h->requests_at, h->requests, sizeof(struct pst_request),
                       sizeof(uint64_t), used)) ||
        (rc = add_span(&spans, "missing", -1, h->missing_at, h->requests, sizeof(int32_t), sizeof(int32_t),
                       used)) ||
        (rc = check_in_place(h, mb, &spans, &stored)) ||
        (rc = add_span(&spans, "features", -1, h->features_at, stored, h->stride_bytes, PST_PAGE, used)))
        return rc;
    for (int hop = 0; hop < (int)h->hops; hop++) {
        rc = add_span(&spans, "indptr", hop, h->indptr_at[hop], (uint64_t)h->n[hop] + 1, sizeof(int32_t),
                      sizeof(int32_t), used);
        if (rc != PST_OK)
            return rc;
    }
    for (int hop = 0; hop < (int)h->hops; hop++) {
        rc = check_block(h, mb, hop, &spans);
        if (rc != PST_OK)
            return rc;
    }
    rc = check_pairs(h, mb, &spans);
    return rc == PST_OK ? check_values(h, mb, stored) : rc;
}

void pst_minibatch_serve(void *slot, uint64_t bytes, uint64_t n)
{
    struct pst_minibatch *mb = slot;
    if (bytes >= sizeof *mb && mb->magic == PST_MINIBATCH_MAGIC)
        mb->served += (uint32_t)n;
}

pst_rc pst_minibatch_check_served(const struct pst_minibatch *h)
{
    if (h->served == h->requests || h->n[h->hops] == 0)
        return PST_OK;
    return pst_fail(PST_E_PEER,
                    "%u of %u requested feature rows were never read: put a stage that reads them (for "
                    "example disk) before this one",
                    h->requests - h->served, h->requests);
}
