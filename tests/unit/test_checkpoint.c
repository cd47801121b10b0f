/* Checkpoints: what was written comes back; what is torn, flipped or lies is refused. */
#include "common/store/checkpoint.h"
#include "common/error.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static char dir[64];

static int make_dir(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/pst-checkpoint-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

static float weights[6] = {1, -2, 3.5f, 4, 5, 1e-20f};
static double moment[3] = {0.1, 0.2, 0.3};

static const struct pst_tensor tensors[] = {
    {.name = "w", .dtype = PST_F32, .rank = 2, .shape = {2, 3}, .data = weights},
    {.name = "empty", .dtype = PST_I64, .rank = 1, .shape = {0, 1}, .data = weights},
    {.name = "m", .dtype = PST_F64, .rank = 1, .shape = {3, 1}, .data = moment},
};
static const struct pst_checkpoint_text texts[] = {
    {"next_batch", "18446744073709551615"}, {"loss", "0x1.8p-3"}, {"quote", "a \"checksum\":\"0000\" b"}};

static void write_it(const char *path)
{
    assert_int_equal(pst_checkpoint_write(path, tensors, 3, texts, 3), PST_OK);
}

static size_t read_file(const char *path, char *bytes, size_t max)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    const size_t n = fread(bytes, 1, max, f);
    fclose(f);
    return n;
}

static void write_file(const char *path, const char *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static pst_rc try_open(const char *path)
{
    struct pst_checkpoint ck;
    const pst_rc rc = pst_checkpoint_open(&ck, path);
    if (rc == PST_OK)
        pst_checkpoint_close(&ck);
    return rc;
}

static void test_round_trip(void **state)
{
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/round.safetensors", dir);
    write_it(path);
    struct pst_checkpoint ck;
    assert_int_equal(pst_checkpoint_open(&ck, path), PST_OK);
    float w[6];
    double m[3], loss;
    uint64_t next;
    assert_int_equal(pst_checkpoint_read(&ck, &tensors[0], w), PST_OK);
    assert_int_equal(pst_checkpoint_read(&ck, &tensors[1], NULL), PST_OK);
    assert_int_equal(pst_checkpoint_read(&ck, &tensors[2], m), PST_OK);
    assert_memory_equal(w, weights, sizeof w);
    assert_memory_equal(m, moment, sizeof m);
    assert_int_equal(pst_checkpoint_u64(&ck, "next_batch", &next), PST_OK);
    assert_true(next == UINT64_MAX);
    assert_int_equal(pst_checkpoint_real(&ck, "loss", &loss), PST_OK);
    assert_true(loss == 0.1875);
    assert_string_equal(pst_checkpoint_text(&ck, "quote"), texts[2].value);
    assert_null(pst_checkpoint_text(&ck, "nothing"));
    assert_int_equal(pst_checkpoint_u64(&ck, "loss", &next), PST_E_FORMAT);
    struct pst_tensor other = tensors[0];
    other.shape[0] = 3;
    assert_int_equal(pst_checkpoint_read(&ck, &other, w), PST_E_FORMAT);
    assert_non_null(strstr(pst_error_text(), "(2, 3)"));
    other = tensors[0];
    other.dtype = PST_I32;
    assert_int_equal(pst_checkpoint_read(&ck, &other, w), PST_E_FORMAT);
    snprintf(other.name, sizeof other.name, "nobody");
    assert_int_equal(pst_checkpoint_read(&ck, &other, w), PST_E_FORMAT);
    pst_checkpoint_close(&ck);
}

/* Written twice it is the same file, and no part of the writing is left beside it. */
static void test_rewrite(void **state)
{
    (void)state;
    char path[128], aside[160], a[4096], b[4096];
    snprintf(path, sizeof path, "%s/again.safetensors", dir);
    write_it(path);
    const size_t n = read_file(path, a, sizeof a);
    write_it(path);
    assert_int_equal(read_file(path, b, sizeof b), n);
    assert_memory_equal(a, b, n);
    snprintf(aside, sizeof aside, "%s.penstock-partial-%d", path, (int)getpid());
    assert_int_not_equal(access(aside, F_OK), 0);
    snprintf(path, sizeof path, "%s/not/there.safetensors", dir);
    assert_int_equal(pst_checkpoint_write(path, tensors, 3, texts, 3), PST_E_IO);
}

static void test_torn_and_flipped(void **state)
{
    (void)state;
    char path[128], bytes[4096];
    snprintf(path, sizeof path, "%s/whole.safetensors", dir);
    write_it(path);
    const size_t n = read_file(path, bytes, sizeof bytes);
    snprintf(path, sizeof path, "%s/damaged.safetensors", dir);
    for (size_t cut = 0; cut < n; cut++) {
        write_file(path, bytes, cut);
        assert_int_equal(try_open(path), PST_E_FORMAT);
    }
    for (size_t bit = 0; bit < 8 * n; bit++) {
        bytes[bit / 8] ^= (char)(1 << bit % 8);
        write_file(path, bytes, n);
        assert_int_equal(try_open(path), PST_E_FORMAT);
        bytes[bit / 8] ^= (char)(1 << bit % 8);
    }
    bytes[n] = 0;
    write_file(path, bytes, n + 1);
    assert_int_equal(try_open(path), PST_E_FORMAT);
    write_file(path, bytes, n);
    assert_int_equal(try_open(path), PST_OK);
}

static void try_header(const char *path, uint64_t length, const char *header, size_t data)
{
    char bytes[1024] = {0};
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, header, strlen(header));
    write_file(path, bytes, 8 + strlen(header) + data);
    assert_int_equal(try_open(path), PST_E_FORMAT);
}

static void test_lying_headers(void **state)
{
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/liar.safetensors", dir);
    static const char *const headers[] = {
        "",
        "[]",
        "{",
        "7",
        "{\"w\":7}",
        "{\"w\":{}}",
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"w\":{}}",
        "{\"w\":{\"dtype\":\"F31\",\"shape\":[1],\"data_offsets\":[0,4]}}",
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[1,1,1],\"data_offsets\":[0,4]}}",
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}",
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}",
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]}}",
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[4611686018427387905],\"data_offsets\":[0,4]}}",
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}",
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}",
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}",
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
        "{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", /* no checksum */
    };
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        try_header(path, strlen(headers[i]), headers[i], 4);
    try_header(path, UINT64_MAX, "{}", 4);
    try_header(path, 1u << 30, "{}", 4);
    try_header(path, 7, "{}", 4);
    assert_int_equal(try_open(dir), PST_E_FORMAT); /* a directory */
    snprintf(path, sizeof path, "%s/absent.safetensors", dir);
    assert_int_equal(try_open(path), PST_E_IO);
}

static void test_latest(void **state)
{
    (void)state;
    char sub[96], path[160], found[160], skipped[2048];
    snprintf(sub, sizeof sub, "%s/latest", dir);
    assert_int_equal(pst_checkpoint_latest(sub, found, sizeof found, NULL, 0), PST_E_STATE);
    assert_int_equal(mkdir(sub, 0777), 0);
    assert_int_equal(pst_checkpoint_latest(sub, found, sizeof found, skipped, sizeof skipped), PST_E_STATE);
    const uint64_t numbers[] = {9, 10, 123456789, 2};
    for (size_t i = 0; i < 4; i++) {
        pst_checkpoint_path(sub, numbers[i], path, sizeof path);
        write_it(path);
    }
    snprintf(path, sizeof path, "%s/best.safetensors", sub);
    write_it(path);
    snprintf(path, sizeof path, "%s/99999999999.safetensors.penstock-partial-7", sub);
    write_file(path, "half", 4);
    uint64_t listed[8];
    assert_int_equal(pst_checkpoint_list(sub, listed, 8), 4);
    assert_int_equal(listed[0], 2);
    assert_int_equal(listed[3], 123456789);
    assert_int_equal(pst_checkpoint_list(sub, listed, 2), 2);
    assert_int_equal(listed[0], 10);
    assert_int_equal(pst_checkpoint_latest(sub, found, sizeof found, skipped, sizeof skipped), PST_OK);
    pst_checkpoint_path(sub, 123456789, path, sizeof path);
    assert_string_equal(found, path);
    assert_string_equal(skipped, "");
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(pst_checkpoint_latest(sub, found, sizeof found, skipped, sizeof skipped), PST_OK);
    assert_non_null(strstr(skipped, "123456789"));
    pst_checkpoint_path(sub, 10, path, sizeof path);
    assert_string_equal(found, path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),       cmocka_unit_test(test_rewrite),
        cmocka_unit_test(test_torn_and_flipped), cmocka_unit_test(test_lying_headers),
        cmocka_unit_test(test_latest),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
