/* The curve of a drive: the gap that follows, what is measured, and what is kept. */
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "stages/lib/curve/curve.h"
#include "stages/lib/io/backend.h"
#include "tests/unit/store_fixture.h"

enum { MOST = 128 << 10 };

/* t(b) = overhead + b / rate, or, of a drive with two limits, max(1 / iops, b / rate). */
static struct pst_curve drive(double overhead_s, double iops, double rate)
{
    struct pst_curve c = {0};
    for (uint64_t bytes = 512; bytes <= MOST; bytes *= 4)
        assert_true(pst_curve_add(
            &c, bytes, iops > 0 ? fmax(1 / iops, (double)bytes / rate) : overhead_s + (double)bytes / rate));
    return c;
}

/* A drive with two limits: in the time of a read of 4 KiB at 65,000 IOPS, 1.3 GB/s are 20,000 bytes. */
static void the_gap_of_two_limits(void **state)
{
    (void)state;
    const struct pst_curve c = drive(0, 65000, 1.3e9);
    assert_int_equal(pst_curve_gap(&c, 4096, MOST), (20000 - 4096) / 512 * 512);
    assert_int_equal(pst_curve_gap(&c, 512, MOST), (20000 - 512) / 512 * 512);
    /* a drive that is as fast for small reads reads no gap */
    const struct pst_curve even = drive(0, 1e9, 1e9);
    assert_int_equal(pst_curve_gap(&even, 4096, MOST), 0);
}

/* With a fixed cost for each read, the gap is overhead x rate, whatever the size of rows. At the gap, one
 * read takes no longer than two, and with one sector more it does. */
static void the_gap_is_where_both_ways_cost_the_same(void **state)
{
    (void)state;
    const double overhead_s = 16384 / 1e9, rate = 1e9;
    for (uint64_t bytes = 512; bytes <= 8192; bytes *= 2) {
        struct pst_curve c = drive(overhead_s, 0, rate);
        assert_true(pst_curve_add(&c, 1ull << 30, overhead_s + (double)(1ull << 30) / rate));
        const uint64_t gap = pst_curve_gap(&c, bytes, MOST);
        assert_int_equal(gap, 16384);
        assert_true(pst_curve_seconds(&c, 2 * bytes + gap) <= 2 * pst_curve_seconds(&c, bytes) * (1 + 1e-6));
        assert_true(pst_curve_seconds(&c, 2 * bytes + gap + 512) > 2 * pst_curve_seconds(&c, bytes));
    }
}

static void a_gap_fits_into_a_read(void **state)
{
    (void)state;
    const struct pst_curve c = drive(0, 100, 1e9); /* a disk that turns: 10 MB in the time of a seek */
    assert_int_equal(pst_curve_gap(&c, 4096, MOST), MOST - 2 * 4096);
    assert_int_equal(pst_curve_gap(&c, 4096, 8192), 0);
    assert_int_equal(pst_curve_gap(&c, 1 << 20, MOST), 0);
    assert_int_equal(pst_curve_gap(&c, 4096, 4096), 0);
}

static void points_ascend(void **state)
{
    (void)state;
    struct pst_curve c = {0};
    assert_true(pst_curve_add(&c, 4096, 2e-5));
    assert_false(pst_curve_add(&c, 4096, 3e-5));
    assert_false(pst_curve_add(&c, 8192, 0));
    assert_false(pst_curve_add(&c, 8192, NAN));
    assert_false(pst_curve_add(&c, 8192, INFINITY));
    assert_true(pst_curve_add(&c, 8192, 1e-5)); /* noise: a larger read is not faster */
    assert_true(c.n == 2 && c.point[1].seconds == 2e-5);
    assert_true(fabs(pst_curve_rate(&c) - 8192 / 2e-5) < 1);
    assert_true(fabs(pst_curve_seconds(&c, 16384) - 4e-5) < 1e-9);
    for (uint64_t i = 2; i < PST_CURVE_POINTS_MAX; i++)
        assert_true(pst_curve_add(&c, 8192 * i, 1e-4));
    assert_false(pst_curve_add(&c, 1 << 20, 1e-3));
}

/* ---- measuring and keeping ------------------------------------------------------------------------ */

static void make_file(char path[PST_PATH_MAX], size_t bytes)
{
    const char *dir = getenv("TMPDIR"); /* /tmp is often a tmpfs, which has no direct I/O on older kernels */
    (void)snprintf(path, PST_PATH_MAX, "%s/test_curve_XXXXXX", dir != NULL ? dir : "/var/tmp");
    const int fd = mkstemp(path);
    char *data = malloc(bytes);
    assert_true(fd >= 0 && data != NULL);
    memset(data, 7, bytes);
    assert_int_equal(write(fd, data, bytes), (ssize_t)bytes);
    assert_int_equal(fsync(fd), 0);
    (void)close(fd);
    free(data);
}

static bool can_be_direct(const char *path)
{
    struct pst_io_file file;
    char note[PST_IO_NOTE_BYTES];
    const bool direct = pst_io_file_open(&file, path, true, false, note) == PST_OK && file.direct >= 0;
    pst_io_file_close(&file);
    if (!direct)
        print_message("skipped: %s\n", note);
    return direct;
}

static void drives_are_measured_once(void **state)
{
    (void)state;
    char path[PST_PATH_MAX], kept[PST_PATH_MAX + 8];
    make_file(path, 2 << 20);
    (void)snprintf(kept, sizeof kept, "%s.json", path);
    if (!can_be_direct(path)) {
        (void)unlink(path);
        skip();
    }
    const char *const paths[] = {path, path};
    struct pst_curve_files files = {.backend = "pread", .paths = paths, .n = 1, .depth = 4, .threads = 2};
    struct pst_curve c, again;
    double took_s = 0;
    assert_int_equal(pst_curve_find(&c, &files, kept, &took_s), PST_OK);
    assert_true(took_s > 0 && c.n >= 3 && c.span == 2 << 20 && c.point[c.n - 1].bytes == MOST);
    for (int i = 0; i < c.n; i++)
        assert_true(c.point[i].seconds > 1e-8 && c.point[i].seconds < 10);
    assert_int_equal(pst_curve_find(&again, &files, kept, &took_s), PST_OK);
    assert_true(took_s == 0 && again.n == c.n && again.span == c.span);
    for (int i = 0; i < c.n; i++)
        assert_true(again.point[i].bytes == c.point[i].bytes &&
                    fabs(again.point[i].seconds / c.point[i].seconds - 1) < 1e-12);
    /* what is kept was measured in another way, over fewer bytes, or is not whole */
    files.depth = 2;
    assert_int_equal(pst_curve_find(&again, &files, kept, &took_s), PST_OK);
    assert_true(took_s > 0);
    files.n = 2;
    assert_int_equal(pst_curve_find(&again, &files, kept, &took_s), PST_OK);
    assert_true(took_s > 0 && again.span == 4 << 20);
    assert_int_equal(truncate(kept, 100), 0);
    assert_int_equal(pst_curve_find(&again, &files, kept, &took_s), PST_OK);
    assert_true(took_s > 0);
    /* without a place to keep it (root can make a folder in any folder), it is measured */
    assert_int_equal(pst_curve_find(&again, &files, "/dev/null/curve.json", &took_s), PST_OK);
    assert_true(took_s > 0);
    (void)unlink(kept);
    (void)unlink(path);
}

static void what_cannot_be_measured(void **state)
{
    (void)state;
    char path[PST_PATH_MAX], kept[PST_PATH_MAX + 8];
    make_file(path, 100000);
    (void)snprintf(kept, sizeof kept, "%s.json", path);
    const char *const paths[] = {path};
    const struct pst_curve_files files = {
        .backend = "pread", .paths = paths, .n = 1, .depth = 4, .threads = 2};
    struct pst_curve c;
    double took_s = 0;
    const bool direct = can_be_direct(path);
    assert_int_equal(pst_curve_find(&c, &files, kept, &took_s), PST_E_UNSUPPORTED);
    assert_non_null(strstr(pst_error_text(), direct ? "100000 bytes, which is too few" : "page cache"));
    assert_int_equal(access(kept, F_OK), -1);
    (void)unlink(path);
    assert_int_equal(pst_curve_find(&c, &files, kept, &took_s), PST_E_IO);
    assert_non_null(strstr(pst_error_text(), path));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_gap_of_two_limits),
        cmocka_unit_test(the_gap_is_where_both_ways_cost_the_same),
        cmocka_unit_test(a_gap_fits_into_a_read),
        cmocka_unit_test(points_ascend),
        cmocka_unit_test(drives_are_measured_once),
        cmocka_unit_test(what_cannot_be_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
