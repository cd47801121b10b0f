/* Numbers for more names than memory holds, against a table in memory: any bound, any number of threads,
 * names of any length, equal hashes; gone on with from every step; a disk that is full, and one that lies. */
#include "tests/unit/store_fixture.h"

#include <signal.h>
#include <sys/resource.h>

#include "common/store/names/names.h"
#include "common/store/make/gen_random.h"

#define MENTIONS 20000
#define DISTINCT_MAX 25600
#define TEXT_BYTES (2 * PST_NAMES_BYTES_MAX + 30 * DISTINCT_MAX)

static struct pst_name mention[MENTIONS];
static int64_t expected[MENTIONS];
static struct pst_dict whole; /* every name, in memory */
static char text[TEXT_BYTES];

/* Names of 0 to 30 bytes, some often, and two of the longest, seldom. Any bytes. */
static void make_mentions(uint32_t seed, uint32_t distinct)
{
    static struct pst_name made[DISTINCT_MAX];
    size_t fill = 0;
    assert_true(distinct <= DISTINCT_MAX);
    pst_dict_release(&whole);
    pst_dict_init(&whole, 64u << 20);
    for (uint32_t k = 0; k < distinct; k++) {
        const struct pst_rng_block d = pst_gen_draw(seed + 1, PST_GEN_EDGE, k, 0);
        const bool longest = distinct >= 800 && k + 2 >= distinct;
        const uint32_t bytes = longest ? PST_NAMES_BYTES_MAX : k == 0 ? 0 : 4 + d.word[0] % 27;
        memset(text + fill, (int)(d.word[1] & 0xff), bytes);
        memcpy(text + fill, &k, bytes >= sizeof k ? sizeof k : 0);
        made[k] = (struct pst_name){text + fill, bytes};
        fill += bytes;
    }
    for (uint32_t i = 0; i < MENTIONS; i++) {
        const struct pst_rng_block d = pst_gen_draw(seed, PST_GEN_EDGE, i, 0);
        mention[i] = made[d.word[1] % (d.word[0] % 3 == 0 ? 1 + distinct / 50 : distinct)];
        assert_int_equal(pst_dict_add(&whole, mention[i].text, mention[i].bytes, &expected[i]), PST_OK);
    }
}

struct ordered {
    uint64_t at; /* of the table in memory: the next name */
    int64_t names;
};

static pst_rc take_in_order(void *ctx, int64_t at, struct pst_name name)
{
    struct ordered *o = ctx;
    (void)at;
    const struct pst_name expect = pst_dict_name(&whole, &o->at);
    assert_int_equal(name.bytes, expect.bytes);
    assert_memory_equal(name.text, expect.text, name.bytes);
    o->names++;
    return PST_OK;
}

/* Adds from mention `from` on, in pieces; how many of them all were numbered at once. */
static pst_rc add_all(struct pst_names *n, size_t from, size_t to, size_t *at_once)
{
    int64_t id[1000];
    pst_rc rc = PST_OK;
    for (size_t at = from; rc == PST_OK && at < to;) {
        size_t known, count = to - at < 1000 ? to - at : 1000;
        rc = pst_names_add(n, mention + at, count, id, &known);
        for (size_t i = 0; rc == PST_OK && i < known; i++)
            assert_int_equal(id[i], expected[at + i]);
        if (rc == PST_OK)
            *at_once += known;
        at += count;
    }
    return rc;
}

static pst_rc give_all(struct pst_names *n, size_t from)
{
    int64_t id[777];
    size_t at = from, count = 1;
    pst_rc rc = PST_OK;
    while (rc == PST_OK && count > 0) {
        rc = pst_names_next(n, id, 777, &count);
        for (size_t i = 0; rc == PST_OK && i < count; i++)
            assert_int_equal(id[i], expected[at + i]);
        at += count;
    }
    if (rc == PST_OK)
        assert_int_equal(at, MENTIONS);
    return rc;
}

/* What is left to do after adding. */
static pst_rc finish(struct pst_names *n)
{
    struct ordered o = {.at = 0};
    uint64_t bytes;
    pst_rc rc = PST_OK;
    if (pst_names_step(n) <= PST_NAMES_FINDING) {
        rc = pst_names_find(n);
        if (rc == PST_OK) {
            assert_int_equal(pst_names_count(n, &bytes), whole.n);
            assert_int_equal(bytes, whole.text_bytes);
            rc = pst_names_order(n, take_in_order, &o);
        }
        if (rc == PST_OK)
            assert_int_equal(o.names, whole.n);
    }
    return rc == PST_OK && pst_names_step(n) < PST_NAMES_GIVING ? pst_names_number(n) : rc;
}

/* aside: whether they must be put aside, must not (0), or may (-1). */
static void check(struct pst_names_spec spec, int aside)
{
    struct pst_names *n;
    size_t at_once = 0;
    uint64_t bytes;
    spec.dir = scratch;
    assert_int_equal(pst_names_new(&n, &spec), PST_OK);
    assert_int_equal(add_all(n, 0, MENTIONS, &at_once), PST_OK);
    if (aside >= 0)
        assert_int_equal(pst_names_aside(n), aside);
    if (pst_names_aside(n)) {
        assert_int_equal(at_once % (size_t)spec.row, 0);
        assert_int_equal(pst_names_mentions_aside(n), MENTIONS - at_once);
        if (finish(n) != PST_OK || give_all(n, at_once) != PST_OK)
            fail_msg("%s", pst_error_text());
    } else {
        assert_int_equal(at_once, MENTIONS);
        assert_int_equal(pst_names_count(n, &bytes), whole.n);
    }
    pst_names_free(n);
    assert_int_equal(names_in(scratch), 0); /* nothing is left */
}

static void test_any_memory(void **state)
{
    (void)state;
    static const uint64_t memory[] = {PST_NAMES_MEMORY_MIN, 50000, 200000, 16u << 20};
    for (uint32_t trial = 0; trial < 8; trial++) {
        make_mentions(trial, 100u << trial);
        for (size_t m = 0; m < 4; m++)
            check((struct pst_names_spec){.memory_bytes = memory[m],
                                          .threads = 1 + (int)((trial + m) % 4),
                                          .row = 1 + (int)(trial % 2)},
                  whole.used + 8 * (uint64_t)whole.n > memory[m]          ? 1
                  : 2 * (whole.used + 20 * (uint64_t)whole.n) < memory[m] ? 0
                                                                          : -1);
    }
}

static void test_equal_hashes(void **state)
{
    (void)state;
    make_mentions(3, 3000);
    for (int bits = 1; bits < 8; bits += 3) /* names share 2, 16, 128 hashes, and stay apart */
        check((struct pst_names_spec){.memory_bytes = 60000, .threads = 2, .row = 2, .hash_bits = bits}, 1);
    make_mentions(3, 500);
    check((struct pst_names_spec){.memory_bytes = 1u << 20, .threads = 1, .row = 2, .hash_bits = -1}, 0);
    make_mentions(3, 20000); /* no hash parts them: more than every depth holds is refused */
    struct pst_names *n;
    size_t at_once = 0;
    const struct pst_names_spec spec = {
        .dir = scratch, .memory_bytes = PST_NAMES_MEMORY_MIN, .threads = 2, .row = 1, .hash_bits = -1};
    assert_int_equal(pst_names_new(&n, &spec), PST_OK);
    assert_int_equal(add_all(n, 0, MENTIONS, &at_once), PST_OK);
    assert_int_equal(finish(n), PST_E_LIMIT);
    assert_error_has("increase --memory");
    pst_names_free(n);
}

/* ---- gone on with ---- */

struct notes {
    struct pst_names *n;
    int left; /* notes until it is truncated */
    json_t *state;
};

static pst_rc cut_off(void *ctx, bool must)
{
    struct notes *k = ctx;
    if (!must && k->left > 1)
        return PST_OK;
    json_decref(k->state);
    k->state = NULL;
    if (pst_names_state(k->n, &k->state) != PST_OK)
        return PST_E_IO;
    return --k->left == 0 ? pst_fail(PST_E_INTERRUPTED, "truncated") : PST_OK;
}

/* Those before the first that was put aside, and after it those that no state has. */
static void go_on_adding(struct pst_names *n, size_t from)
{
    size_t at_once = 0;
    int64_t id[1000];
    for (size_t at = 0; at < MENTIONS && !pst_names_ready(n); at += 1000) {
        size_t known;
        assert_int_equal(pst_names_add(n, mention + at, 1000, id, &known), PST_OK);
        for (size_t i = 0; i < known; i++)
            assert_int_equal(id[i], expected[at + i]);
    }
    assert_true(pst_names_ready(n));
    if (pst_names_step(n) == PST_NAMES_ADDING)
        assert_int_equal(add_all(n, from, MENTIONS, &at_once), PST_OK);
    assert_int_equal(at_once, 0);
}

static void test_gone_on_with(void **state)
{
    (void)state;
    make_mentions(11, 9000);
    for (int round = 0; round < 8; round++) {
        const bool again = round % 2 != 0, adding = round / 2 == 0;
        struct notes k = {.left = round / 2};
        struct pst_names_spec spec = {.dir = scratch,
                                      .named = true,
                                      .memory_bytes = 90000,
                                      .threads = 2,
                                      .row = 2,
                                      .note = cut_off,
                                      .ctx = &k};
        size_t at_once = 0;
        assert_int_equal(pst_names_new(&k.n, &spec), PST_OK);
        assert_int_equal(add_all(k.n, 0, adding ? 15000 : MENTIONS, &at_once), PST_OK);
        if (adding) { /* and what is added after the note is forgotten */
            size_t more = 0;
            assert_int_equal(pst_names_state(k.n, &k.state), PST_OK);
            assert_int_equal(add_all(k.n, 15000, 18000, &more), PST_OK);
        } else {
            assert_int_equal(finish(k.n), PST_E_INTERRUPTED);
        }
        pst_names_free(k.n);
        spec.note = NULL;
        spec.memory_bytes = round > 4 ? 60000 : 90000;
        assert_non_null(k.state);
        if (pst_names_load(&k.n, &spec, k.state, again) != PST_OK)
            fail_msg("round %d: %s", round, pst_error_text());
        assert_int_equal(pst_names_ready(k.n), !adding && !again);
        go_on_adding(k.n, 15000);
        if (finish(k.n) != PST_OK || give_all(k.n, at_once) != PST_OK)
            fail_msg("round %d: %s", round, pst_error_text());
        pst_names_free(k.n);
        json_decref(k.state);
    }
}

/* ---- the disk ---- */

static void test_damage(void **state)
{
    (void)state;
    static const char *const files[] = {"temp-edges.names-mentions", "temp-edges.names-log"};
    make_mentions(5, 9000);
    for (int round = 0; round < 4; round++) {
        struct pst_names *n;
        size_t at_once = 0, bytes;
        const struct pst_names_spec spec = {
            .dir = scratch, .named = true, .memory_bytes = 90000, .threads = 2, .row = 2};
        const char *path = in_scratch(files[round % 2]);
        assert_int_equal(pst_names_new(&n, &spec), PST_OK);
        assert_int_equal(add_all(n, 0, MENTIONS, &at_once), PST_OK);
        char *data = get_file(path, &bytes);
        if (round < 2) { /* what was there is no more, but for its length */
            memset(data, 0x55, bytes);
            int fd = open(path, O_WRONLY | O_CLOEXEC);
            assert_int_equal(write(fd, data, bytes), bytes);
            (void)close(fd);
        } else {
            assert_int_equal(truncate(path, 1000), 0);
        }
        free(data);
        const pst_rc rc = finish(n);
        assert_int_equal(rc, PST_E_FORMAT);
        assert_error_has(files[round % 2]);
        if (strstr(pst_error_text(), "the file was truncated while it was in use") ==
            NULL) /* or zeros, where more was written behind */
            assert_error_has("differs from what was written");
        pst_names_free(n);
    }
}

static void test_no_room_on_disk(void **state)
{
    (void)state;
    const struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    make_mentions(6, 9000);
    (void)signal(SIGXFSZ, SIG_IGN);
    for (rlim_t limit = 100; limit < 1000000; limit *= 10) {
        struct pst_names *n;
        size_t at_once = 0;
        const struct rlimit bytes = {limit, RLIM_INFINITY};
        const struct pst_names_spec spec = {.dir = scratch, .memory_bytes = 90000, .threads = 2, .row = 2};
        assert_int_equal(pst_names_new(&n, &spec), PST_OK);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &bytes), 0);
        pst_rc rc = add_all(n, 0, MENTIONS, &at_once);
        if (rc == PST_OK)
            rc = finish(n);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &all), 0);
        assert_int_equal(rc, PST_E_IO);
        assert_error_has("cannot write");
        pst_names_free(n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_any_memory, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_equal_hashes, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_gone_on_with, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_damage, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(test_no_room_on_disk, scratch_setup, scratch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
