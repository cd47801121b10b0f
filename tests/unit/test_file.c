/* Files that are replaced whole or not at all, reads of whole files, and pieces that are read ahead. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/error.h"
#include "common/store/read_ahead.h"
#include "common/util/file.h"

static char dir[] = "/tmp/test_file_XXXXXX";

static const char *path_of(const char *name)
{
    static char path[4][256];
    static int next;
    char *out = path[next++ % 4];
    (void)snprintf(out, 256, "%s/%s", dir, name);
    return out;
}

static int files_in(const char *of)
{
    char command[512], line[32] = "";
    (void)snprintf(command, sizeof command, "ls -A %s | wc -l", of);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    assert_int_equal(pclose(f), 0);
    return atoi(line);
}

static void must_hold(const char *path, const char *text)
{
    char *data;
    size_t bytes;
    assert_int_equal(pst_file_read(path, 100, &data, &bytes), PST_OK);
    assert_int_equal(bytes, strlen(text));
    assert_string_equal(data, text);
    free(data);
}

static void a_file_is_replaced_whole(void **state)
{
    (void)state;
    const char *path = path_of("a");
    assert_int_equal(pst_file_replace(path, "old", 3), PST_OK);
    must_hold(path, "old");
    assert_int_equal(pst_file_replace(path, "new text", 8), PST_OK);
    must_hold(path, "new text");
    assert_int_equal(files_in(dir), 1);
}

static void the_old_file_stays_until_the_commit(void **state)
{
    (void)state;
    const char *path = path_of("b");
    struct pst_file_new f;
    assert_int_equal(pst_file_replace(path, "old", 3), PST_OK);
    assert_int_equal(pst_file_new_begin(&f, path), PST_OK);
    assert_int_equal(pst_file_write_at(f.fd, "new", 3, 0, path), PST_OK);
    must_hold(path, "old");
    pst_file_new_abandon(&f);
    pst_file_new_abandon(&f);
    must_hold(path, "old");
    assert_int_equal(access(f.partial, F_OK), -1);
}

static void what_cannot_take_its_place_is_removed(void **state)
{
    (void)state;
    const char *path = path_of("occupied");
    assert_int_equal(mkdir(path, 0700), 0);
    const int before = files_in(dir);
    assert_int_equal(pst_file_replace(path, "x", 1), PST_E_IO);
    assert_non_null(strstr(pst_error_text(), path));
    assert_int_equal(files_in(dir), before);
    assert_int_equal(pst_file_replace(path_of("no/such/dir"), "x", 1), PST_E_IO);
    assert_non_null(strstr(pst_error_text(), "No such file or directory"));
}

static void reads_are_bounded(void **state)
{
    (void)state;
    char *data;
    size_t bytes;
    const char *path = path_of("long");
    assert_int_equal(pst_file_replace(path, "12345678", 8), PST_OK);
    assert_int_equal(pst_file_read(path, 7, &data, &bytes), PST_E_LIMIT);
    assert_null(data);
    assert_non_null(strstr(pst_error_text(), "8 bytes; expected at most 7"));
    assert_int_equal(pst_file_read(path, 8, &data, &bytes), PST_OK);
    free(data);
    assert_int_equal(pst_file_read(dir, 8, &data, &bytes), PST_E_FORMAT);
    assert_int_equal(pst_file_read(path_of("none"), 8, &data, &bytes), PST_E_IO);
}

static void a_changed_file_has_another_identity(void **state)
{
    (void)state;
    char one[PST_FILE_IDENTITY_BYTES], two[PST_FILE_IDENTITY_BYTES];
    const char *path = path_of("identity");
    pst_file_identity(path, one);
    assert_string_equal(one, "");
    assert_int_equal(pst_file_replace(path, "a", 1), PST_OK);
    pst_file_identity(path, one);
    assert_int_equal(pst_file_replace(path, "b", 1), PST_OK);
    pst_file_identity(path, two);
    assert_string_not_equal(one, two);
}

static unsigned char byte_at(uint64_t at)
{
    return (unsigned char)(at * 7 + at / 251);
}

/* Pieces in any order, which begin and end anywhere, also beyond the end of the file. A piece stays where it
 * is while the next one is read. */
static void pieces_are_read_ahead(void **state)
{
    (void)state;
    enum { BYTES = 3 * PST_PAGE + 100, MOST = PST_PAGE + 1 };
    static char content[BYTES];
    static const struct {
        uint64_t at, bytes, has;
    } pieces[] = {{0, MOST, MOST},    {4095, 2, 2},           {9000, 0, 0},  {PST_PAGE, PST_PAGE, PST_PAGE},
                  {8191, MOST, MOST}, {BYTES - 10, MOST, 10}, {BYTES, 8, 0}, {BYTES + 3 * PST_PAGE, 8, 0},
                  {1, 1, 1}};
    enum { N = sizeof pieces / sizeof *pieces };
    for (uint64_t i = 0; i < BYTES; i++)
        content[i] = (char)byte_at(i);
    const char *path = path_of("pieces");
    assert_int_equal(pst_file_replace(path, content, BYTES), PST_OK);
    struct pst_read_ahead *a;
    assert_int_equal(pst_read_ahead_open(&a, path, MOST), PST_OK);
    pst_read_ahead_ask(a, pieces[0].at, pieces[0].bytes);
    for (int i = 0; i < N; i++) {
        const char *piece;
        uint64_t bytes;
        assert_int_equal(pst_read_ahead_take(a, &piece, &bytes), PST_OK);
        if (i + 1 < N)
            pst_read_ahead_ask(a, pieces[i + 1].at, pieces[i + 1].bytes);
        assert_int_equal(bytes, pieces[i].has);
        for (uint64_t k = 0; k < bytes; k++)
            assert_int_equal((unsigned char)piece[k], byte_at(pieces[i].at + k));
    }
    pst_read_ahead_ask(a, 5, 6); /* nobody takes it */
    pst_read_ahead_close(a);
    pst_read_ahead_close(NULL);
    assert_int_equal(pst_read_ahead_open(&a, path_of("missing"), MOST), PST_E_IO);
    assert_non_null(strstr(pst_error_text(), "missing"));
    assert_null(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_replaced_whole),
        cmocka_unit_test(the_old_file_stays_until_the_commit),
        cmocka_unit_test(what_cannot_take_its_place_is_removed),
        cmocka_unit_test(reads_are_bounded),
        cmocka_unit_test(a_changed_file_has_another_identity),
        cmocka_unit_test(pieces_are_read_ahead),
    };
    assert(mkdtemp(dir) != NULL);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char command[64];
    (void)snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command) == 0 ? failed : 1;
}
