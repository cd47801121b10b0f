/* The block that says what a drive holds: what was encoded is decoded; what was not is refused; nothing
 * crashes. */
#include "tests/unit/store_fixture.h"

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

static struct pst_dataset dataset(void)
{
    struct pst_dataset ds = {.vertices = 1003, .stride_bytes = 512, .name = "papers", .dir = "data/papers"};
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
    expect_mismatch(&s, 1, 5, "is stripe 2 of 5; expected stripe 1 of 5");
    expect_mismatch(&s, 2, 4, "expected stripe 2 of 4");
    s.digest[0] = 'f';
    expect_mismatch(&s, 2, 5, "holds rows of papers, digest f123");
    s = example();
    s.row_bytes = 1024;
    expect_mismatch(&s, 2, 5, "rows of 1024 bytes; expected 512");
}

/* Every single bit flipped in what counts, and values that would overflow whoever trusted them. */
static void damaged_blocks_are_refused(void **state)
{
    (void)state;
    unsigned char block[PST_STRIPE_BLOCK];
    struct pst_stripe s = example(), out;
    bool ours;
    for (size_t bit = 0; bit < 8u * 160; bit++) {
        s = example();
        pst_stripe_encode(&s, block);
        block[bit / 8] ^= (unsigned char)(1u << bit % 8);
        const pst_rc rc = pst_stripe_decode(&out, block, "drive", &ours);
        assert_true(rc == PST_E_FORMAT || (rc == PST_OK && !ours));
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
        cmocka_unit_test(every_row_has_its_drive),
        cmocka_unit_test(only_the_right_stripe_matches),
        cmocka_unit_test(damaged_blocks_are_refused),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
