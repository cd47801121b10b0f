/* The block that says what a drive holds: what was encoded is decoded; what was not is refused; nothing
 * crashes. */
#include "tests/unit/store_fixture.h"

#include <xxhash.h>

#include "common/slots/extent.h"
#include "common/store/dataset/stripe.h"

static struct pst_stripe example(void)
{
    return (struct pst_stripe){.stripe = 2,
                               .stripes = 5,
                               .group = 4,
                               .data_at = PST_STRIPE_DATA_AT,
                               .row_bytes = 512,
                               .vertices = 1003,
                               .checksum = 77,
                               .name = "papers",
                               .digest = "0123456789abcdef"};
}

enum { EDGES = 50021, INDICES_BYTES = EDGES * 4 };

static struct pst_stripe example_with_topology(uint32_t block)
{
    struct pst_stripe s = example();
    assert_int_equal(pst_stripe_place_topology(&s, INDICES_BYTES, block), PST_OK);
    s.topology[PST_STRIPE_INDPTR].checksum = 78;
    s.topology[PST_STRIPE_INDICES].checksum = 79;
    return s;
}

static struct pst_dataset dataset(void)
{
    struct pst_dataset ds = {.vertices = 1003,
                             .edges = EDGES,
                             .indices = {.dtype = PST_I32},
                             .stride_bytes = 512,
                             .name = "papers",
                             .dir = "data/papers"};
    memcpy(ds.digest, "0123456789abcdef", 17);
    return ds;
}

static void encoded_and_decoded(void **state)
{
    (void)state;
    unsigned char block[PST_STRIPE_BLOCK];
    const struct pst_stripe in = example();
    struct pst_stripe out;
    bool ours = false;
    pst_stripe_encode(&in, block);
    assert_int_equal(pst_stripe_decode(&out, block, "drive", &ours), PST_OK);
    assert_true(ours);
    assert_int_equal(out.stripe, 2);
    assert_int_equal(out.stripes, 5);
    assert_int_equal(out.vertices, 1003);
    assert_int_equal(out.checksum, 77);
    assert_string_equal(out.name, "papers");
    assert_string_equal(out.digest, "0123456789abcdef");
    assert_int_equal(out.group, 4);
}

static uint32_t version_of(const unsigned char *block)
{
    uint32_t version;
    memcpy(&version, block + 16, sizeof version);
    return version;
}

static void topology_is_encoded_and_decoded(void **state)
{
    (void)state;
    unsigned char block[PST_STRIPE_BLOCK];
    struct pst_stripe in = example_with_topology(512), out;
    bool ours = false;
    pst_stripe_encode(&in, block);
    assert_int_equal(version_of(block), 3);
    assert_int_equal(pst_stripe_decode(&out, block, "drive", &ours), PST_OK);
    assert_true(ours);
    assert_int_equal(out.unit, PST_PAGE);
    assert_int_equal(out.checksum, 77);
    for (int k = 0; k < PST_STRIPE_AREAS; k++) {
        assert_int_equal(out.topology[k].bytes, in.topology[k].bytes);
        assert_int_equal(out.topology[k].at, in.topology[k].at);
        assert_int_equal(out.topology[k].checksum, 78 + k);
    }
    assert_int_equal(out.topology[PST_STRIPE_INDPTR].bytes, 1004 * 8);
    assert_int_equal(out.topology[PST_STRIPE_INDICES].bytes, INDICES_BYTES);
}

/* A drive without topology is written as ever: an older Penstock reads it, and what that wrote is read here.
 */
static void a_block_without_topology_is_of_version_2(void **state)
{
    (void)state;
    unsigned char old[PST_STRIPE_BLOCK] = "Penstock stripe", block[PST_STRIPE_BLOCK];
    const uint32_t numbers[] = {2, 2, 5, 4};
    const uint64_t sizes[] = {PST_STRIPE_DATA_AT, 512, 1003, 77};
    memcpy(old + 16, numbers, sizeof numbers);
    memcpy(old + 32, sizes, sizeof sizes);
    memcpy(old + 64, "papers", 7);
    memcpy(old + 128, "0123456789abcdef", 17);
    const uint64_t checksum = XXH3_64bits(old, 152);
    memcpy(old + 152, &checksum, sizeof checksum);
    const struct pst_stripe s = example();
    pst_stripe_encode(&s, block);
    assert_memory_equal(block, old, sizeof block);
    const struct pst_dataset ds = dataset();
    struct pst_stripe out;
    assert_int_equal(pst_stripe_match(old, &ds, 2, 5, "drive 7", &out), PST_OK);
    assert_int_equal(out.unit, 0);
    assert_int_equal(pst_stripe_need_topology(&out, &ds, "drive 7"), PST_E_STATE);
    assert_non_null(strstr(pst_error_text(), "drive 7: holds the features of papers, but not its topology"));
    assert_non_null(strstr(pst_error_text(), "penstock store data/papers --topology --to"));
}

/* Areas do not overlap on any drive, and a reader's extent finds each unit where the share of its drive has
 * it.
 */
static void every_unit_has_its_place(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 6; n++) {
        for (uint32_t block = 512; block <= 65536; block *= 8) {
            struct pst_stripe s = example();
            s.stripes = n;
            assert_int_equal(pst_stripe_place_topology(&s, INDICES_BYTES, block), PST_OK);
            assert_int_equal(s.unit, block < PST_PAGE ? PST_PAGE : block);
            for (int k = 0; k < PST_STRIPE_AREAS; k++) {
                const struct pst_stripe_area *a = &s.topology[k];
                const struct pst_extent extent = {
                    .from = PST_PAGE, .unit = s.unit, .base = a->at, .over = n, .nsid = 1};
                uint64_t end[6] = {0}, sum = 0;
                assert_int_equal(a->at % 65536, 0);
                for (uint64_t at = 0; at < a->bytes; at += 512) {
                    const uint64_t bytes = a->bytes - at < 512 ? a->bytes - at : 512;
                    struct pst_extent_place place = {0};
                    assert_true(pst_extent_find(&extent, PST_PAGE + at, &place));
                    assert_int_equal(place.place, at / s.unit % n);
                    assert_true(place.run >= bytes || n > 1);
                    if (end[place.place] > 0) /* each drive's share has no holes */
                        assert_int_equal(place.at, end[place.place]);
                    else
                        assert_int_equal(place.at, a->at);
                    end[place.place] = place.at + bytes;
                }
                for (uint32_t i = 0; i < n; i++) {
                    const uint64_t share = pst_stripe_share(a->bytes, s.unit, i, n);
                    sum += share;
                    assert_int_equal(end[i] == 0 ? 0 : end[i] - a->at, share);
                    const uint64_t rows_end =
                        s.data_at + pst_stripe_rows(s.vertices, s.group, i, n) * s.row_bytes;
                    assert_true(rows_end <= s.topology[0].at);
                    if (k == 0)
                        assert_true(a->at + share <= s.topology[1].at);
                }
                assert_int_equal(sum, a->bytes);
            }
        }
    }
}

static void drives_of_different_commands_are_told(void **state)
{
    (void)state;
    const struct pst_dataset ds = dataset();
    const struct pst_stripe a = example_with_topology(512), b = example_with_topology(8192), none = example();
    struct pst_stripe other = example_with_topology(512);
    other.group = 8;
    assert_int_equal(pst_stripe_agree(&a, "drive 2", &a, "drive 1", &ds), PST_OK);
    assert_int_equal(pst_stripe_agree(&none, "drive 2", &none, "drive 1", &ds), PST_OK);
    const struct pst_stripe *const differ[] = {&b, &none, &other};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(pst_stripe_agree(differ[i], "drive 2", &a, "drive 1", &ds), PST_E_STATE);
        assert_non_null(strstr(pst_error_text(), "drive 1 and drive 2 were written by different commands"));
        assert_non_null(strstr(pst_error_text(), "penstock store data/papers --topology --to"));
    }
}

static void every_row_has_its_drive(void **state)
{
    (void)state;
    assert_int_equal(pst_stripe_group(512, 512), 1);
    assert_int_equal(pst_stripe_group(4096, 512), 1);
    assert_int_equal(pst_stripe_group(400, 512), 32); /* 25 blocks */
    assert_int_equal(pst_stripe_group(512, 4096), 8);
    assert_int_equal(pst_stripe_group(7, 512), 512);
    for (uint32_t group = 1; group <= 32; group *= 2) {
        for (uint32_t n = 1; n <= 6; n++) {
            uint64_t rows[6] = {0};
            for (uint64_t v = 0; v < 1003; v++)
                rows[v / group % n]++;
            for (uint32_t i = 0; i < n; i++)
                assert_int_equal(pst_stripe_rows(1003, group, i, n), rows[i]);
        }
    }
}

static void expect_mismatch(const struct pst_stripe *s, uint32_t stripe, uint32_t stripes, const char *why)
{
    unsigned char block[PST_STRIPE_BLOCK];
    const struct pst_dataset ds = dataset();
    struct pst_stripe out;
    pst_stripe_encode(s, block);
    assert_int_not_equal(pst_stripe_match(block, &ds, stripe, stripes, "drive 7", &out), PST_OK);
    assert_non_null(strstr(pst_error_text(), why));
    assert_non_null(strstr(pst_error_text(), "drive 7"));
}

static void only_the_right_stripe_matches(void **state)
{
    (void)state;
    unsigned char block[PST_STRIPE_BLOCK] = {0};
    const struct pst_dataset ds = dataset();
    struct pst_stripe s = example(), out;
    assert_int_equal(pst_stripe_match(block, &ds, 2, 5, "drive 7", &out), PST_E_STATE);
    assert_non_null(strstr(pst_error_text(), "does not hold rows of a dataset (`penstock store"));
    pst_stripe_encode(&s, block);
    assert_int_equal(pst_stripe_match(block, &ds, 2, 5, "drive 7", &out), PST_OK);
    expect_mismatch(&s, 1, 5, "is drive 2 of 5 of its dataset; expected drive 1 of 5");
    expect_mismatch(&s, 2, 4, "expected drive 2 of 4");
    s.digest[0] = 'f';
    expect_mismatch(&s, 2, 5, "holds rows of papers, digest f123");
    s = example();
    s.row_bytes = 1024;
    expect_mismatch(&s, 2, 5, "rows of 1024 bytes; expected 512");
    s = example_with_topology(512);
    pst_stripe_encode(&s, block);
    assert_int_equal(pst_stripe_match(block, &ds, 2, 5, "drive 7", &out), PST_OK);
    assert_int_equal(pst_stripe_need_topology(&out, &ds, "drive 7"), PST_OK);
    assert_int_equal(pst_stripe_place_topology(&s, INDICES_BYTES * 2, 512), PST_OK);
    expect_mismatch(&s, 2, 5,
                    "has 8032 bytes of indptr and 400168 bytes of indices; expected 8032 and 200084");
}

/* Every single bit flipped in what counts, and values that would overflow whoever trusted them. */
static void damaged_blocks_are_refused(void **state)
{
    (void)state;
    unsigned char block[PST_STRIPE_BLOCK];
    struct pst_stripe s = example(), out;
    bool ours;
    for (int k = 0; k < 2; k++) {
        s = k == 0 ? example() : example_with_topology(512);
        for (size_t bit = 0; bit < 8u * (k == 0 ? 160 : 216); bit++) {
            pst_stripe_encode(&s, block);
            block[bit / 8] ^= (unsigned char)(1u << bit % 8);
            const pst_rc rc = pst_stripe_decode(&out, block, "drive", &ours);
            assert_true(rc == PST_E_FORMAT || (rc == PST_OK && !ours));
        }
    }
    struct pst_stripe wrong[6];
    for (size_t i = 0; i < 6; i++)
        wrong[i] = example_with_topology(512);
    wrong[0].unit = 512;
    wrong[1].unit = 12288;
    wrong[2].topology[PST_STRIPE_INDPTR].bytes++;
    wrong[3].topology[PST_STRIPE_INDPTR].at += 512;
    wrong[4].topology[PST_STRIPE_INDICES].at = 0;
    wrong[5].topology[PST_STRIPE_INDICES].bytes = UINT64_MAX;
    for (size_t i = 0; i < 6; i++) {
        pst_stripe_encode(&wrong[i], block);
        assert_int_equal(pst_stripe_decode(&out, block, "drive", &ours), PST_E_FORMAT);
        assert_int_equal(out.stripes, 0); /* nothing that a caller could use by mistake */
    }
    struct pst_stripe bad[9];
    for (size_t i = 0; i < 9; i++)
        bad[i] = example();
    bad[0].stripes = 0;
    bad[1].stripes = UINT32_MAX;
    bad[2].stripe = 5;
    bad[3].row_bytes = 0;
    bad[4].row_bytes = UINT64_MAX;
    bad[5].vertices = UINT64_MAX;
    bad[6].data_at = 512;
    bad[7].data_at = UINT64_MAX - 4095;
    bad[8].group = 0;
    for (size_t i = 0; i < 9; i++) {
        pst_stripe_encode(&bad[i], block);
        assert_int_equal(pst_stripe_decode(&out, block, "drive", &ours), PST_E_FORMAT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encoded_and_decoded),
        cmocka_unit_test(topology_is_encoded_and_decoded),
        cmocka_unit_test(a_block_without_topology_is_of_version_2),
        cmocka_unit_test(every_unit_has_its_place),
        cmocka_unit_test(drives_of_different_commands_are_told),
        cmocka_unit_test(every_row_has_its_drive),
        cmocka_unit_test(only_the_right_stripe_matches),
        cmocka_unit_test(damaged_blocks_are_refused),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
