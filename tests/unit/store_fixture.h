/* store_fixture.h: scratch directories and files for the store's tests. Included once by each test program.
 */
#ifndef STORE_FIXTURE_H
#define STORE_FIXTURE_H

/* cmocka.h wants these first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/store/dataset/array.h"
#include "common/store/build/build.h"

static char scratch[256];

static inline int scratch_setup(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    (void)snprintf(scratch, sizeof scratch, "%.200s/penstock-test-XXXXXX", base != NULL ? base : "/tmp");
    return mkdtemp(scratch) == NULL;
}

static inline int scratch_remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st;
    (void)kind;
    (void)ftw;
    return remove(path);
}

static inline int scratch_teardown(void **state)
{
    (void)state;
    return nftw(scratch, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* A path in the scratch directory; valid until the eighth call after it. */
static inline const char *in_scratch(const char *name)
{
    static char path[8][1024];
    static unsigned next;
    char *out = path[next++ % 8];
    (void)snprintf(out, sizeof path[0], "%s/%s", scratch, name);
    return out;
}

static inline void put_file(const char *path, const void *data, size_t bytes)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

static inline char *get_file(const char *path, size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    long n = ftell(f);
    assert_true(n >= 0);
    rewind(f);
    char *text = calloc(1, (size_t)n + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)n, f), n);
    (void)fclose(f);
    *bytes = (size_t)n;
    return text;
}

static inline void put_array(const char *path, enum pst_dtype dtype, int rank, int64_t rows, int64_t columns,
                             const void *data)
{
    (void)remove(path);
    struct pst_array_writer w;
    const int64_t shape[2] = {rows, columns};
    uint64_t sum;
    assert_int_equal(pst_array_writer_init(&w, path, dtype, rank, shape), PST_OK);
    assert_int_equal(pst_array_write(&w, data, (size_t)(rows * columns) * pst_dtype_bytes(dtype)), PST_OK);
    assert_int_equal(pst_array_writer_finish(&w, &sum), PST_OK);
    pst_array_writer_release(&w);
}

/* How many names a directory holds beside . and .. */
static inline int names_in(const char *dir)
{
    DIR *d = opendir(dir);
    if (d == NULL)
        return -1;
    int n = 0;
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d))
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    (void)closedir(d);
    return n;
}

static inline void assert_error_has(const char *part)
{
    if (strstr(pst_error_text(), part) == NULL)
        fail_msg("expected '%s' in: %s", part, pst_error_text());
}

/* A small dataset of every array, without a generator: 4 vertices, 0 -> 1 -> 2 -> 3, 3 features. */
static inline pst_rc make_small(const char *dir, bool force)
{
    static const int64_t indptr[5] = {0, 0, 1, 2, 3}, train[2] = {0, 1}, val[1] = {2}, test[1] = {3};
    static const int32_t indices[3] = {0, 1, 2}, labels[4] = {0, 1, -1, 1};
    static const float features[16] = {1, 2, 3, 0, 4, 5, 6, 0, 7, 8, 9, 0, 10, 11, 12, 0};
    const int64_t shape[2] = {4, 4};
    struct pst_build b;
    pst_rc rc = pst_build_begin(&b, dir, force);
    if (rc != PST_OK)
        return rc;
    struct pst_array_writer w;
    (void)snprintf(b.manifest.name, sizeof b.manifest.name, "small");
    b.manifest.vertices = 4;
    b.manifest.edges = 3;
    b.manifest.classes = 2;
    b.manifest.feature_dim = 3;
    b.manifest.stride_bytes = 16;
    assert_int_equal(pst_build_array_from(&b, PST_ARRAY_INDPTR, PST_I64, 5, indptr), PST_OK);
    assert_int_equal(pst_build_array_from(&b, PST_ARRAY_INDICES, PST_I32, 3, indices), PST_OK);
    assert_int_equal(pst_build_array_from(&b, PST_ARRAY_LABELS, PST_I32, 4, labels), PST_OK);
    assert_int_equal(pst_build_array_from(&b, PST_ARRAY_TRAIN, PST_I64, 2, train), PST_OK);
    assert_int_equal(pst_build_array_from(&b, PST_ARRAY_VAL, PST_I64, 1, val), PST_OK);
    assert_int_equal(pst_build_array_from(&b, PST_ARRAY_TEST, PST_I64, 1, test), PST_OK);
    assert_int_equal(pst_build_array(&b, PST_ARRAY_FEATURES, PST_F32, 2, shape, &w), PST_OK);
    assert_int_equal(pst_array_write(&w, features, sizeof features), PST_OK);
    assert_int_equal(pst_build_array_end(&b, PST_ARRAY_FEATURES, &w), PST_OK);
    pst_array_writer_release(&w);
    rc = pst_build_commit(&b);
    pst_build_release(&b);
    return rc;
}

#endif
