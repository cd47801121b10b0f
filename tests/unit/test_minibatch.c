/* A slot's writer and its readers agree about the layout; a good minibatch passes the check; each of many
 * small corruptions is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/store/store.h"
#include "common/error.h"
#include "common/slots/minibatch.h"
#include "common/slots/request.h"

#define SLOT_BYTES 32768
#define IN_PLACE_AT 3072

struct slot {
    _Alignas(PST_PAGE) char bytes[SLOT_BYTES];
};

/* Two seeds, three vertices after hop 0, five after hop 1. */
static struct pst_minibatch *make(struct slot *slot)
{
    static const int64_t vertices[] = {9, 4, 7, 1, 0};
    static const int32_t labels[] = {2, -1};
    static const int32_t indptr0[] = {0, 1, 3}, indices0[] = {1, 2, 0};
    static const int32_t indptr1[] = {0, 2, 2, 4}, indices1[] = {3, 4, 0, 2};
    static const int32_t missing[] = {4, 0, 1, 2, 3}, in_place[] = {-2, 0, -5, 6, -1};
    memset(slot, 0, sizeof *slot);
    struct pst_minibatch *mb = (struct pst_minibatch *)(void *)slot->bytes;
    *mb = (struct pst_minibatch){.magic = PST_MINIBATCH_MAGIC,
                                 .bytes_used = 4096 + 5 * 512,
                                 .hops = 2,
                                 .batch = 3,
                                 .batch_in_epoch = 3,
                                 .batches_in_epoch = 4,
                                 .last_micro = 1,
                                 .batch_seeds = 2,
                                 .feature_dim = 100,
                                 .feature_dtype = PST_F32,
                                 .requests = 5,
                                 .stride_bytes = 512,
                                 .n = {2, 3, 5},
                                 .vertices_at = 1024,
                                 .labels_at = 1088,
                                 .indptr_at = {1152, 1216},
                                 .indices_at = {1280, 1344},
                                 .requests_at = 2048,
                                 .missing_at = 1408,
                                 .features_at = 4096,
                                 .in_place_at = IN_PLACE_AT,
                                 .in_place_rows = 7};
    memcpy(pst_minibatch_at(mb, 1024), vertices, sizeof vertices);
    memcpy(pst_minibatch_at(mb, 1088), labels, sizeof labels);
    memcpy(pst_minibatch_at(mb, 1152), indptr0, sizeof indptr0);
    memcpy(pst_minibatch_at(mb, 1216), indptr1, sizeof indptr1);
    memcpy(pst_minibatch_at(mb, 1280), indices0, sizeof indices0);
    memcpy(pst_minibatch_at(mb, 1344), indices1, sizeof indices1);
    memcpy(pst_minibatch_at(mb, 1408), missing, sizeof missing);
    memcpy(pst_minibatch_at(mb, IN_PLACE_AT), in_place, sizeof in_place);
    return mb;
}

static void a_good_one_passes(void **state)
{
    (void)state;
    static struct slot slot;
    struct pst_minibatch *mb = make(&slot);
    pst_rc rc = pst_minibatch_check(mb, SLOT_BYTES);
    if (rc != PST_OK)
        fail_msg("%s", pst_error_text());
    assert_int_equal(pst_minibatch_check(mb, mb->bytes_used), PST_OK);
    mb->in_place_at = mb->in_place_rows = 0; /* all rows are in the slot */
    assert_int_equal(pst_minibatch_check(mb, SLOT_BYTES), PST_OK);
    mb->feature_dim = 0; /* without features */
    mb->stride_bytes = 0;
    mb->requests = 0;
    assert_int_equal(pst_minibatch_check(mb, SLOT_BYTES), PST_OK);
}

static void a_void_one_passes(void **state)
{
    (void)state;
    static struct slot slot;
    struct pst_minibatch *mb = make(&slot);
    memset(mb->n, 0, sizeof mb->n);
    assert_int_equal(pst_minibatch_check(mb, SLOT_BYTES), PST_OK);
}

static void served_requests_are_counted(void **state)
{
    (void)state;
    static struct slot slot;
    struct pst_minibatch *mb = make(&slot);
    assert_int_equal(pst_minibatch_check_served(mb), PST_E_PEER);
    assert_non_null(strstr(pst_error_text(), "5 of 5 requested feature rows were never read: put"));
    pst_minibatch_serve(mb, SLOT_BYTES, 2);
    pst_minibatch_serve(mb, sizeof *mb - 1, 2); /* too small for a minibatch */
    assert_int_equal(pst_minibatch_check_served(mb), PST_E_PEER);
    assert_non_null(strstr(pst_error_text(), "3 of 5"));
    pst_minibatch_serve(mb, SLOT_BYTES, 3);
    assert_int_equal(pst_minibatch_check_served(mb), PST_OK);
    mb->served = 0;
    memset(mb->n, 0, sizeof mb->n); /* an empty one has no rows */
    assert_int_equal(pst_minibatch_check_served(mb), PST_OK);
    mb->magic ^= 1;
    pst_minibatch_serve(mb, SLOT_BYTES, 2);
    assert_int_equal(mb->served, 0);
}

#define CORRUPTIONS(X)                                                                                       \
    X(mb->magic ^= 1)                                                                                        \
    X(mb->bytes_used = SLOT_BYTES + 1)                                                                       \
    X(mb->bytes_used = UINT64_MAX)                                                                           \
    X(mb->bytes_used = 8)                                                                                    \
    X(mb->bytes_used -= 1)                                                                                   \
    X(mb->hops = 0)                                                                                          \
    X(mb->hops = PST_HOPS_MAX + 1)                                                                           \
    X(mb->hops = UINT32_MAX)                                                                                 \
    X(mb->last_micro = 2)                                                                                    \
    X(mb->batch_in_epoch = 4)                                                                                \
    X(mb->batches_in_epoch = 0)                                                                              \
    X(mb->n[0] = -1)                                                                                         \
    X(mb->n[0] = 0)                                                                                          \
    X(mb->n[1] = 1)                                                                                          \
    X(mb->n[2] = 2)                                                                                          \
    X(mb->n[2] = INT64_MAX)                                                                                  \
    X(mb->n[2] = INT32_MAX)                                                                                  \
    X(mb->batch_seeds = 1)                                                                                   \
    X(mb->feature_dtype = PST_I64)                                                                           \
    X(mb->feature_dtype = 77)                                                                                \
    X(mb->feature_dim = 129)                                                                                 \
    X(mb->feature_dim = UINT32_MAX)                                                                          \
    X(mb->stride_bytes = 0)                                                                                  \
    X(mb->stride_bytes = UINT64_MAX / 2)                                                                     \
    X(mb->stride_bytes = 4096)                                                                               \
    X(mb->requests = 65)                                                                                     \
    X(mb->requests = UINT32_MAX)                                                                             \
    X(mb->served = 6)                                                                                        \
    X(mb->requests_at = UINT64_MAX - 7)                                                                      \
    X(mb->requests_at += 4)                                                                                  \
    X(mb->missing_at = 0)                                                                                    \
    X(mb->missing_at += 2)                                                                                   \
    X(mb->missing_at = mb->features_at)                                                                      \
    X(((int32_t *)pst_minibatch_at(mb, mb->missing_at))[4] = 5)                                              \
    X(((int32_t *)pst_minibatch_at(mb, mb->missing_at))[0] = -1)                                             \
    X(mb->vertices_at = 0)                                                                                   \
    X(mb->vertices_at += 4)                                                                                  \
    X(mb->vertices_at = UINT64_MAX)                                                                          \
    X(mb->labels_at += 2)                                                                                    \
    X(mb->labels_at = mb->vertices_at)                                                                       \
    X(mb->features_at += 512)                                                                                \
    X(mb->features_at = 0)                                                                                   \
    X(mb->features_at = 8192)                                                                                \
    X(mb->indptr_at[0] = SLOT_BYTES)                                                                         \
    X(mb->indptr_at[1] += 1)                                                                                 \
    X(mb->indptr_at[1] = mb->indptr_at[0] + 8)                                                               \
    X(mb->indices_at[0] = mb->indices_at[1] + 4)                                                             \
    X(mb->indices_at[1] = mb->features_at)                                                                   \
    X(mb->indices_at[1] = UINT64_MAX - 3)                                                                    \
    X(((int32_t *)pst_minibatch_at(mb, mb->indptr_at[0]))[0] = 1)                                            \
    X(((int32_t *)pst_minibatch_at(mb, mb->indptr_at[0]))[0] = -1)                                           \
    X(((int32_t *)pst_minibatch_at(mb, mb->indptr_at[0]))[1] = -1)                                           \
    X(((int32_t *)pst_minibatch_at(mb, mb->indptr_at[0]))[1] = 4)                                            \
    X(((int32_t *)pst_minibatch_at(mb, mb->indptr_at[1]))[3] = INT32_MAX)                                    \
    X(((int32_t *)pst_minibatch_at(mb, mb->indices_at[0]))[2] = 3)                                           \
    X(((int32_t *)pst_minibatch_at(mb, mb->indices_at[1]))[0] = 5)                                           \
    X(((int32_t *)pst_minibatch_at(mb, mb->indices_at[1]))[3] = -1)                                          \
    X(((int64_t *)pst_minibatch_at(mb, mb->vertices_at))[4] = -1)                                            \
    X(((int32_t *)pst_minibatch_at(mb, mb->labels_at))[1] = -2)                                              \
    X(mb->in_place_at = 8)                                                                                   \
    X(mb->in_place_at += 2)                                                                                  \
    X(mb->in_place_at = UINT64_MAX - 3)                                                                      \
    X(mb->in_place_at = mb->features_at - 4)                                                                 \
    X(mb->in_place_at = mb->labels_at + 4)                                                                   \
    X(mb->in_place_rows = 6)                                                                                 \
    X(((int32_t *)pst_minibatch_at(mb, IN_PLACE_AT))[2] = -4) /* then `missing` has a row too many */        \
    X(((int32_t *)pst_minibatch_at(mb, IN_PLACE_AT))[2] = -6)                                                \
    X(((int32_t *)pst_minibatch_at(mb, IN_PLACE_AT))[4] = 7)                                                 \
    X(((int32_t *)pst_minibatch_at(mb, IN_PLACE_AT))[4] = INT32_MIN)                                         \
    X(((int32_t *)pst_minibatch_at(mb, IN_PLACE_AT))[0] = 7)

#define CORRUPT(change)                                                                                      \
    case __COUNTER__: change; return #change;

/* Does the i-th corruption and returns what it was; NULL past the last. */
static const char *corrupt(struct pst_minibatch *mb, int i)
{
    switch (i) {
        CORRUPTIONS(CORRUPT)
    default: return NULL;
    }
}

static void corruptions_are_refused(void **state)
{
    (void)state;
    static struct slot slot;
    int i = 0;
    for (;; i++) {
        struct pst_minibatch *mb = make(&slot);
        const char *what = corrupt(mb, i);
        if (what == NULL)
            break;
        if (pst_minibatch_check(mb, SLOT_BYTES) != PST_E_FORMAT)
            fail_msg("accepted: %s", what);
        if (strstr(pst_error_text(), "not a minibatch") == NULL)
            fail_msg("%s: said only \"%s\"", what, pst_error_text());
    }
    assert_true(i >= 50);
}

/* Whatever the bytes are, it says yes or no. */
static void rubbish_is_survived(void **state)
{
    (void)state;
    static struct slot slot;
    uint64_t random = 1;
    int accepted = 0;
    for (int round = 0; round < 20000; round++) {
        struct pst_minibatch *mb = make(&slot);
        for (int k = 0; k < 3; k++) {
            random = random * 6364136223846793005ull + 1442695040888963407ull;
            size_t at = (random >> 33) % (round % 2 ? sizeof *mb : 1430);
            slot.bytes[at] = (char)(random >> 56);
        }
        accepted += pst_minibatch_check(mb, SLOT_BYTES) == PST_OK;
    }
    assert_in_range(accepted, 1, 19999); /* some bytes do not matter */
    for (uint64_t bytes = 0; bytes < sizeof(struct pst_minibatch); bytes++)
        assert_int_equal(pst_minibatch_check(make(&slot), bytes), PST_E_FORMAT);
}

/* ---- size and layout ------------------------------------------------------------------------------ */

static uint64_t random_state = 7;

static int64_t below(int64_t bound)
{
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return (int64_t)((random_state >> 33) % (uint64_t)bound);
}

static struct pst_minibatch_size random_size(void)
{
    struct pst_minibatch_size size = {.hops = 1 + (int)below(PST_HOPS_MAX), .relations = below(2) == 1};
    size.n[0] = 1 + below(20);
    for (int h = 0; h < size.hops; h++) {
        size.edges[h] = 1 + below(3 * size.n[h]);
        size.n[h + 1] = size.n[h] + below(1 + size.edges[h]);
    }
    size.stored = below(2) == 1 ? 1 + below(size.n[size.hops]) : 0;
    return size;
}

/* The rows that features holds. */
static int64_t stored_rows(const struct pst_minibatch_size *size)
{
    return size->stored > 0 ? size->stored : size->n[size->hops];
}

/* The fullest minibatch that the layout promises to hold, as a sampler writes it. */
static struct pst_minibatch *full(const struct pst_minibatch_layout *l, char *slot)
{
    struct pst_minibatch *mb = (struct pst_minibatch *)(void *)slot;
    const int64_t rows = l->size.n[l->size.hops], stored = stored_rows(&l->size);
    *mb = (struct pst_minibatch){.magic = PST_MINIBATCH_MAGIC,
                                 .batches_in_epoch = 1,
                                 .last_micro = 1,
                                 .batch_seeds = (uint32_t)l->size.n[0],
                                 .feature_dim = (uint32_t)(l->stride_bytes / sizeof(float)),
                                 .feature_dtype = PST_F32,
                                 .requests = l->stride_bytes ? (uint32_t)stored : 0};
    pst_minibatch_place(mb, l);
    memcpy(mb->n, l->size.n, sizeof mb->n);
    mb->bytes_used = l->features_at + (uint64_t)stored * l->stride_bytes;
    memset(pst_minibatch_at(mb, l->vertices_at), 0, (size_t)rows * sizeof(int64_t));
    memset(pst_minibatch_at(mb, l->labels_at), 0, (size_t)l->size.n[0] * sizeof(int32_t));
    memset(pst_minibatch_at(mb, l->missing_at), 0, mb->requests * sizeof(int32_t));
    int32_t *in_place = pst_minibatch_at(mb, l->in_place_at);
    for (int64_t i = 0; l->size.stored > 0 && i < rows; i++)
        in_place[i] = (int32_t)(-1 - i % stored);
    for (int h = 0; h < l->size.hops; h++) {
        int32_t *indptr = pst_minibatch_at(mb, l->indptr_at[h]);
        for (int64_t d = 0; d < l->size.n[h]; d++)
            indptr[d] = 0;
        indptr[l->size.n[h]] = (int32_t)l->size.edges[h];
        memset(pst_minibatch_at(mb, l->indices_at[h]), 0, (size_t)l->size.edges[h] * sizeof(int32_t));
        if (l->size.weights)
            memset(pst_minibatch_at(mb, l->weights_at[h]), 0, (size_t)l->size.edges[h] * sizeof(float));
        if (l->size.relations)
            memset(pst_minibatch_at(mb, l->relations_at[h]), 0, (size_t)l->size.edges[h] * sizeof(int32_t));
    }
    return mb;
}

/* The reader's check (offsets, sizes, overlaps), the size of a slot of cached rows, and what a trainer makes
 * of the sizes of both slots. */
static void all_agree_about_the_layout(void **state)
{
    (void)state;
    for (int round = 0; round < 2000; round++) {
        const struct pst_minibatch_size size = random_size();
        const uint64_t strides[] = {0, 4, 400, 512, PST_PAGE, PST_PAGE + 4 * (uint64_t)below(1000)};
        struct pst_minibatch_layout l;
        pst_minibatch_layout_init(&l, &size, strides[below(6)]);
        const uint64_t rows_bytes = (uint64_t)stored_rows(&size) * l.stride_bytes;
        assert_int_equal(l.features_at % PST_PAGE, 0);
        assert_int_equal(l.bytes, l.features_at + l.features_bytes);
        assert_true(l.features_bytes >= rows_bytes && l.features_bytes < rows_bytes + PST_PAGE + 1);
        assert_int_equal(pst_minibatch_features_at(l.bytes, l.features_bytes), l.features_at);
        assert_int_equal(pst_minibatch_features_at(l.bytes, 0), l.bytes);
        char *slot = aligned_alloc(PST_PAGE, l.bytes);
        assert_non_null(slot);
        struct pst_minibatch header;
        if (pst_minibatch_read(full(&l, slot), l.bytes, &header) != PST_OK)
            fail_msg("round %d: %s", round, pst_error_text());
        for (uint32_t h = 0; h < header.hops;
             h++) /* what a trainer brings to a GPU lies before the features */
            assert_true(header.indices_at[h] + (uint64_t)size.edges[h] * sizeof(int32_t) <=
                        header.features_at);
        assert_true(header.missing_at + header.requests * sizeof(int32_t) <= header.features_at);
        free(slot);
    }
}

static void sizes_are_scaled_within_bounds(void **state)
{
    (void)state;
    const struct pst_minibatch_size base = {.hops = 1, .n = {10, 100}, .edges = {90}},
                                    bound = {.hops = 1, .n = {10, 120}, .edges = {200}};
    struct pst_minibatch_size size;
    pst_minibatch_size_scale(&size, &base, &bound, 1.5);
    assert_int_equal(size.n[0], 10);
    assert_int_equal(size.n[1], 120);
    assert_int_equal(size.edges[0], 135);
    pst_minibatch_size_scale(&size, &base, &bound, 0.25);
    assert_int_equal(size.n[0], 3);
    assert_int_equal(size.n[1], 25);
    assert_int_equal(size.edges[0], 23);
    pst_minibatch_size_scale(&size, &base, &bound, 0.001);
    assert_int_equal(size.n[0], 1);
    assert_int_equal(size.edges[0], 1);
}

/* README.md promises these to stages in other languages. */
static void the_header_lies_as_documented(void **state)
{
    (void)state;
    static const struct {
        size_t at, documented;
    } fields[] = {
#define FIELD(name, offset) {offsetof(struct pst_minibatch, name), offset}
        FIELD(magic, 0),
        FIELD(bytes_used, 8),
        FIELD(seed, 16),
        FIELD(epoch, 24),
        FIELD(hops, 28),
        FIELD(batch, 32),
        FIELD(batch_in_epoch, 40),
        FIELD(batches_in_epoch, 48),
        FIELD(micro, 56),
        FIELD(last_micro, 60),
        FIELD(batch_seeds, 64),
        FIELD(feature_dim, 68),
        FIELD(feature_dtype, 72),
        FIELD(requests, 76),
        FIELD(served, 80),
        FIELD(grain, 84),
        FIELD(stride_bytes, 88),
        FIELD(digest, 96),
        FIELD(n, 104),
        FIELD(vertices_at, 176),
        FIELD(labels_at, 184),
        FIELD(features_at, 192),
        FIELD(requests_at, 200),
        FIELD(missing_at, 208),
        FIELD(indptr_at, 216),
        FIELD(indices_at, 280),
        FIELD(weights_at, 344),
        FIELD(relations_at, 408),
        FIELD(pairs_at, 472),
        FIELD(pairs, 480),
        FIELD(positives, 484),
        FIELD(in_place_at, 488),
        FIELD(in_place_rows, 496),
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        assert_int_equal(fields[i].at, fields[i].documented);
    assert_int_equal(sizeof(struct pst_minibatch), 504);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_agree_about_the_layout),
        cmocka_unit_test(sizes_are_scaled_within_bounds),
        cmocka_unit_test(the_header_lies_as_documented),
        cmocka_unit_test(a_good_one_passes),
        cmocka_unit_test(a_void_one_passes),
        cmocka_unit_test(served_requests_are_counted),
        cmocka_unit_test(corruptions_are_refused),
        cmocka_unit_test(rubbish_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
