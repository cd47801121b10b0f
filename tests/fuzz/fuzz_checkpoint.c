/* Checkpoints. The checksum is put right first, so that what lies behind it is reached, too. */
#include <string.h>
#include <xxhash.h>

#include "common/store/checkpoint.h"
#include "tests/fuzz/fuzz.h"

#define KEY "\"checksum\":\""
#define DIGITS 16

static struct fuzz_file file;

static void seal(uint8_t *data, size_t bytes)
{
    uint8_t *at = bytes > 8 ? memmem(data + 8, bytes - 8, KEY, strlen(KEY)) : NULL;
    if (!at || bytes - (size_t)(at - data) < strlen(KEY) + DIGITS)
        return;
    char digits[DIGITS + 1];
    at += strlen(KEY);
    memset(at, '0', DIGITS);
    (void)snprintf(digits, sizeof digits, "%016llx", (unsigned long long)XXH3_64bits(data + 8, bytes - 8));
    memcpy(at, digits, DIGITS);
}

static void use(const struct pst_checkpoint *ck)
{
    static const char *const keys[] = {"dataset", "seed", "next_batch", "checksum", "a"};
    static float out[64];
    uint64_t whole;
    double real;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        (void)pst_checkpoint_text(ck, keys[i]);
        pst_rc a = pst_checkpoint_u64(ck, keys[i], &whole), b = pst_checkpoint_real(ck, keys[i], &real);
        fuzz_check(a <= PST_OK && b <= PST_OK);
    }
    for (int rank = 1; rank <= 2; rank++) {
        struct pst_tensor like = {
            .name = "w", .dtype = PST_F32, .rank = rank, .shape = {4, rank == 2 ? 3 : 1}};
        fuzz_check(pst_checkpoint_read(ck, &like, out) <= PST_OK);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    uint8_t *copy = malloc(bytes + 1);
    fuzz_check(copy);
    memcpy(copy, data, bytes);
    seal(copy, bytes);
    fuzz_fill(&file, copy, bytes);
    struct pst_checkpoint ck;
    if (pst_checkpoint_open(&ck, file.path) == PST_OK) {
        use(&ck);
        pst_checkpoint_close(&ck);
    }
    free(copy);
    return 0;
}
