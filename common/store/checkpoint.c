/* checkpoint.c: see checkpoint.h. */
#include "common/store/checkpoint.h"
#include "common/error.h"
#include "common/util/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define CHECKSUM_KEY "\"checksum\":\""
#define CRC32_KEY "\"crc32\":\""     /* of a checkpoint that a foreign stage's program wrote */
#define CRC32_POLYNOMIAL 0xEDB88320u /* reflected, as in zlib, gzip and PNG */
enum {
    CHECKSUM_DIGITS = 16,
    CRC32_DIGITS = 8,
    HEADER_ALIGN = 64,    /* tensors begin on a cache line */
    READ_BYTES = 1 << 18, /* at a time, for the checksum */
    LIST_MAX = 4096,      /* checkpoints looked at in one directory; `keep` keeps far fewer */
};
static const char ZERO_DIGITS[] = "0000000000000000";

/* safetensors' names of our types, by enum pst_dtype. */
static const char *const DTYPES[] = {"F32", "F16", "BF16", "F64", "I32", "I64", "U8"};
enum { DTYPE_COUNT = sizeof DTYPES / sizeof *DTYPES };

static const size_t DTYPE_BYTES[DTYPE_COUNT] = {4, 2, 2, 8, 4, 8, 1};

/* ---- writing ------------------------------------------------------------------------------------ */

static uint64_t tensor_bytes(const struct pst_tensor *t)
{
    assert(t->rank == 1 || t->rank == 2);
    assert((unsigned)t->dtype < DTYPE_COUNT && t->shape[0] >= 0 && (t->rank == 1 || t->shape[1] >= 0));
    return (uint64_t)t->shape[0] * (uint64_t)(t->rank == 2 ? t->shape[1] : 1) * DTYPE_BYTES[t->dtype];
}

static json_t *tensor_json(const struct pst_tensor *t, uint64_t at)
{
    const uint64_t end = at + tensor_bytes(t);
    json_t *shape = json_array();
    for (int d = 0; d < t->rank; d++)
        json_array_append_new(shape, json_integer(t->shape[d]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", DTYPES[t->dtype], "shape", shape, "data_offsets",
                     (json_int_t)at, (json_int_t)end);
}

/* The header's text, padded with spaces to *bytes; the caller frees it. NULL: no memory, or a bad string. */
static char *header_text(const struct pst_tensor *tensors, size_t n, const struct pst_checkpoint_text *texts,
                         size_t ntexts, size_t *bytes)
{
    char *compact = NULL, *padded = NULL;
    json_t *root = json_object(), *meta = json_object();
    int bad = json_object_set_new(root, "__metadata__", meta);
    for (size_t i = 0; i < ntexts; i++)
        bad |= json_object_set_new(meta, texts[i].key, json_string(texts[i].value));
    bad |= json_object_set_new(meta, "checksum", json_string(ZERO_DIGITS));
    uint64_t at = 0;
    for (size_t i = 0; i < n; at += tensor_bytes(&tensors[i++]))
        bad |= json_object_set_new(root, tensors[i].name, tensor_json(&tensors[i], at));
    if (!bad)
        compact = json_dumps(root, JSON_COMPACT);
    if (compact) {
        const size_t length = strlen(compact);
        *bytes = pst_align_up(8 + length, HEADER_ALIGN) - 8;
        padded = malloc(*bytes + 1);
        if (padded)
            snprintf(padded, *bytes + 1, "%-*s", (int)*bytes, compact);
    }
    free(compact);
    json_decref(root);
    return padded;
}

static void print_digits(XXH3_state_t *state, char digits[CHECKSUM_DIGITS + 1])
{
    snprintf(digits, CHECKSUM_DIGITS + 1, "%016llx", (unsigned long long)XXH3_64bits_digest(state));
}

/* Puts the checksum of the header and the tensors into the header, over the zeros that are there. */
static pst_rc seal(char *header, size_t bytes, const struct pst_tensor *tensors, size_t n)
{
    XXH3_state_t *state = XXH3_createState();
    if (!state)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the checksum of a checkpoint");
    XXH3_64bits_reset(state);
    XXH3_64bits_update(state, header, bytes);
    for (size_t i = 0; i < n; i++)
        if (tensor_bytes(&tensors[i]) > 0)
            XXH3_64bits_update(state, tensors[i].data, tensor_bytes(&tensors[i]));
    char digits[CHECKSUM_DIGITS + 1];
    print_digits(state, digits);
    XXH3_freeState(state);
    char *place = strstr(header, CHECKSUM_KEY);
    assert(place);
    memcpy(place + strlen(CHECKSUM_KEY), digits, CHECKSUM_DIGITS);
    return PST_OK;
}

static pst_rc write_file(const char *path, const char *header, size_t header_bytes,
                         const struct pst_tensor *tensors, size_t n)
{
    struct pst_file_new f;
    const uint64_t length = header_bytes;
    uint64_t at = sizeof length + length;
    pst_rc rc = pst_file_new_begin(&f, path);
    if (rc == PST_OK)
        rc = pst_file_write_at(f.fd, &length, sizeof length, 0, path);
    if (rc == PST_OK)
        rc = pst_file_write_at(f.fd, header, header_bytes, sizeof length, path);
    for (size_t i = 0; i < n && rc == PST_OK; at += tensor_bytes(&tensors[i++]))
        rc = pst_file_write_at(f.fd, tensors[i].data, tensor_bytes(&tensors[i]), at, path);
    if (rc == PST_OK)
        return pst_file_new_commit(&f);
    pst_file_new_abandon(&f);
    return rc;
}

pst_rc pst_checkpoint_write(const char *path, const struct pst_tensor *tensors, size_t n,
                            const struct pst_checkpoint_text *texts, size_t ntexts)
{
    assert(n <= PST_CHECKPOINT_TENSORS_MAX);
    size_t bytes = 0;
    char *header = header_text(tensors, n, texts, ntexts, &bytes);
    if (!header)
        return pst_fail(PST_E_NOMEM,
                        "cannot write the header of %s: out of memory, or a string is not valid UTF-8", path);
    pst_rc rc;
    if (bytes > PST_CHECKPOINT_HEADER_MAX) {
        rc = pst_fail(PST_E_LIMIT, "the header of %s would have %zu bytes; at most %u are allowed", path,
                      bytes, PST_CHECKPOINT_HEADER_MAX);
        goto out;
    }
    rc = seal(header, bytes, tensors, n);
    if (rc == PST_OK)
        rc = write_file(path, header, bytes, tensors, n);
out:
    free(header);
    return rc;
}

/* ---- reading ------------------------------------------------------------------------------------ */

static pst_rc read_at(const struct pst_checkpoint *ck, uint64_t at, void *out, uint64_t bytes)
{
    char *to = out;
    while (bytes > 0) {
        const ssize_t got = pread(ck->fd, to, bytes, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return pst_fail_errno("cannot read %s at byte %llu", ck->path, (unsigned long long)at);
        if (got == 0)
            return pst_fail(PST_E_FORMAT,
                            "%s ends at byte %llu, earlier than expected: the file is truncated", ck->path,
                            (unsigned long long)at);
        to += got;
        at += (uint64_t)got;
        bytes -= (uint64_t)got;
    }
    return PST_OK;
}

/* The header's length, checked against the file's. */
static pst_rc read_length(struct pst_checkpoint *ck, uint64_t *header_bytes)
{
    struct stat st;
    if (fstat(ck->fd, &st) != 0)
        return pst_fail_errno("cannot stat %s", ck->path);
    if (!S_ISREG(st.st_mode) || st.st_size < 8)
        return pst_fail(PST_E_FORMAT, "%s is not a checkpoint: the header is missing", ck->path);
    const pst_rc rc = read_at(ck, 0, header_bytes, sizeof *header_bytes);
    if (rc != PST_OK)
        return rc;
    const uint64_t rest = (uint64_t)st.st_size - 8;
    if (*header_bytes > rest || *header_bytes > PST_CHECKPOINT_HEADER_MAX || *header_bytes < 2)
        return pst_fail(
            PST_E_FORMAT, "%s: bytes 0-7 give a header length of %llu bytes; expected 2 to %llu", ck->path,
            (unsigned long long)*header_bytes,
            (unsigned long long)(rest < PST_CHECKPOINT_HEADER_MAX ? rest : PST_CHECKPOINT_HEADER_MAX));
    ck->data_at = 8 + *header_bytes;
    ck->data_bytes = rest - *header_bytes;
    return PST_OK;
}

/* One header entry as a tensor with its place. */
static pst_rc parse_tensor(const struct pst_checkpoint *ck, const char *name, const json_t *entry,
                           struct pst_tensor *t, uint64_t *begin, uint64_t *end)
{
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    const json_t *shape = json_object_get(entry, "shape"), *offsets = json_object_get(entry, "data_offsets");
    if (!dtype || !json_is_array(shape) || json_array_size(offsets) != 2)
        return pst_fail(PST_E_FORMAT, "%s: tensor \"%s\" lacks a dtype, a shape or two data_offsets",
                        ck->path, name);
    *t = (struct pst_tensor){.rank = (int)json_array_size(shape), .shape = {1, 1}};
    snprintf(t->name, sizeof t->name, "%s", name);
    int type = 0;
    while (type < DTYPE_COUNT && strcmp(dtype, DTYPES[type]) != 0)
        type++;
    t->dtype = (enum pst_dtype)type;
    if (type == DTYPE_COUNT || t->rank < 1 || t->rank > 2)
        return pst_fail(PST_E_FORMAT,
                        "%s: tensor \"%s\" has dtype %s and %d dimensions; expected a dtype that Penstock "
                        "writes, and 1 or 2 dimensions",
                        ck->path, name, dtype, t->rank);
    uint64_t bytes = DTYPE_BYTES[type];
    for (int d = 0; d < t->rank; d++) {
        t->shape[d] = json_integer_value(json_array_get(shape, (size_t)d));
        if (!json_is_integer(json_array_get(shape, (size_t)d)) || t->shape[d] < 0 ||
            __builtin_mul_overflow(bytes, (uint64_t)t->shape[d], &bytes))
            return pst_fail(
                PST_E_FORMAT,
                "%s: tensor \"%s\": expected a shape of integers of at least 0 whose product fits 64 bits",
                ck->path, name);
    }
    const json_t *from = json_array_get(offsets, 0), *to = json_array_get(offsets, 1);
    *begin = (uint64_t)json_integer_value(from);
    *end = (uint64_t)json_integer_value(to);
    if (!json_is_integer(from) || !json_is_integer(to) || *begin > *end || *end > ck->data_bytes ||
        *end - *begin != bytes)
        return pst_fail(PST_E_FORMAT,
                        "%s: tensor \"%s\" claims bytes %llu to %llu, but its shape needs %llu bytes; the "
                        "file has %llu bytes of data",
                        ck->path, name, (unsigned long long)*begin, (unsigned long long)*end,
                        (unsigned long long)bytes, (unsigned long long)ck->data_bytes);
    return PST_OK;
}

/* Every tensor is sound, and together they are all of the data. */
static pst_rc check_tensors(const struct pst_checkpoint *ck)
{
    const char *name;
    json_t *entry;
    uint64_t total = 0;
    json_object_foreach((json_t *)ck->header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0)
            continue;
        struct pst_tensor t;
        uint64_t begin = 0, end = 0;
        const pst_rc rc = parse_tensor(ck, name, entry, &t, &begin, &end);
        if (rc != PST_OK)
            return rc;
        if (begin != total)
            return pst_fail(PST_E_FORMAT, "%s: tensor \"%s\" begins at byte %llu of the data; expected %llu",
                            ck->path, name, (unsigned long long)begin, (unsigned long long)total);
        total = end;
    }
    if (total != ck->data_bytes)
        return pst_fail(PST_E_FORMAT,
                        "%s has %llu bytes of data, but its tensors take %llu: the file is incomplete",
                        ck->path, (unsigned long long)ck->data_bytes, (unsigned long long)total);
    return PST_OK;
}

/* A running checksum of either kind. */
struct sum {
    XXH3_state_t *xxh3; /* NULL: CRC-32 */
    uint32_t table[256], crc;
};

/* False: out of memory. */
static bool sum_begin(struct sum *s, bool crc32)
{
    *s = (struct sum){.xxh3 = crc32 ? NULL : XXH3_createState(), .crc = UINT32_MAX};
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; bit++)
            value = (value & 1) ? CRC32_POLYNOMIAL ^ value >> 1 : value >> 1;
        s->table[i] = value;
    }
    if (s->xxh3)
        XXH3_64bits_reset(s->xxh3);
    return crc32 || s->xxh3;
}

static void sum_add(struct sum *s, const void *bytes, size_t n)
{
    if (s->xxh3)
        XXH3_64bits_update(s->xxh3, bytes, n);
    else
        for (size_t i = 0; i < n; i++)
            s->crc = s->table[(s->crc ^ ((const uint8_t *)bytes)[i]) & 255] ^ s->crc >> 8;
}

static void sum_print(const struct sum *s, char digits[CHECKSUM_DIGITS + 1])
{
    if (s->xxh3)
        print_digits(s->xxh3, digits);
    else
        snprintf(digits, CHECKSUM_DIGITS + 1, "%08x", ~s->crc);
}

static pst_rc sum_data(const struct pst_checkpoint *ck, struct sum *s)
{
    char *buffer = malloc(READ_BYTES);
    if (!buffer)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot verify %s", ck->path);
    pst_rc rc = PST_OK;
    for (uint64_t at = 0; at < ck->data_bytes && rc == PST_OK; at += READ_BYTES) {
        const uint64_t bytes = ck->data_bytes - at < READ_BYTES ? ck->data_bytes - at : READ_BYTES;
        rc = read_at(ck, ck->data_at + at, buffer, bytes);
        if (rc == PST_OK)
            sum_add(s, buffer, bytes);
    }
    free(buffer);
    return rc;
}

/* The digits of this key in the header's text; NULL: they are not there. *said: the same in the parsed one.
 */
static char *find_digits(const struct pst_checkpoint *ck, char *text, const char *name, const char *key,
                         size_t digits, const char **said)
{
    char *place = strstr(text, key);
    *said = json_string_value(json_object_get(json_object_get(ck->header, "__metadata__"), name));
    if (!*said || strlen(*said) != digits || !place || strncmp(place + strlen(key), *said, digits) != 0)
        return NULL;
    return place + strlen(key);
}

/* text: the header's bytes, terminated; its checksum digits are overwritten. */
static pst_rc check_sum(const struct pst_checkpoint *ck, char *text, size_t bytes)
{
    struct sum sum;
    const char *said;
    char *xxh3 = find_digits(ck, text, "checksum", CHECKSUM_KEY, CHECKSUM_DIGITS, &said);
    char *place = xxh3 ? xxh3 : find_digits(ck, text, "crc32", CRC32_KEY, CRC32_DIGITS, &said);
    if (!place)
        return pst_fail(PST_E_FORMAT, "%s has no checksum: it was not written by Penstock", ck->path);
    memcpy(place, ZERO_DIGITS, xxh3 ? CHECKSUM_DIGITS : CRC32_DIGITS);
    if (!sum_begin(&sum, !xxh3))
        return pst_fail(PST_E_NOMEM, "out of memory: cannot verify %s", ck->path);
    sum_add(&sum, text, bytes);
    const pst_rc rc = sum_data(ck, &sum);
    char found[CHECKSUM_DIGITS + 1];
    sum_print(&sum, found);
    XXH3_freeState(sum.xxh3);
    if (rc != PST_OK)
        return rc;
    if (strcmp(found, said) != 0)
        return pst_fail(PST_E_FORMAT, "%s is damaged: expected checksum %s, found %s", ck->path, said, found);
    return PST_OK;
}

static pst_rc read_header(struct pst_checkpoint *ck)
{
    uint64_t bytes = 0;
    pst_rc rc = read_length(ck, &bytes);
    if (rc != PST_OK)
        return rc;
    char *text = malloc(bytes + 1);
    if (!text)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the header of %s", ck->path);
    rc = read_at(ck, 8, text, bytes);
    text[bytes] = '\0';
    if (rc != PST_OK)
        goto out;
    json_error_t error;
    ck->header = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object((json_t *)ck->header)) {
        const char *why = ck->header ? "found another kind of value" : error.text;
        rc = pst_fail(PST_E_FORMAT,
                      "%s is not a checkpoint: expected a JSON object as its header: %s at byte %d", ck->path,
                      why, 8 + (ck->header ? 0 : error.position));
        goto out;
    }
    rc = check_tensors(ck);
    if (rc == PST_OK)
        rc = check_sum(ck, text, bytes);
out:
    free(text);
    return rc;
}

pst_rc pst_checkpoint_open(struct pst_checkpoint *ck, const char *path)
{
    memset(ck, 0, sizeof *ck);
    ck->fd = -1;
    if ((size_t)snprintf(ck->path, sizeof ck->path, "%s", path) >= sizeof ck->path)
        return pst_fail(PST_E_ARG, "the path of a checkpoint is too long: %s", path);
    ck->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe is not waited for */
    if (ck->fd < 0)
        return pst_fail_errno("cannot open %s", path);
    const pst_rc rc = read_header(ck);
    if (rc != PST_OK)
        pst_checkpoint_close(ck);
    return rc;
}

void pst_checkpoint_close(struct pst_checkpoint *ck)
{
    if (ck->fd >= 0)
        close(ck->fd);
    json_decref(ck->header);
    ck->header = NULL;
    ck->fd = -1;
}

const char *pst_checkpoint_text(const struct pst_checkpoint *ck, const char *key)
{
    const char *value = json_string_value(json_object_get(json_object_get(ck->header, "__metadata__"), key));
    if (!value)
        (void)pst_fail(PST_E_FORMAT, "the checkpoint %s has no metadata called \"%s\"", ck->path, key);
    return value;
}

pst_rc pst_checkpoint_u64(const struct pst_checkpoint *ck, const char *key, uint64_t *out)
{
    const char *text = pst_checkpoint_text(ck, key);
    if (!text)
        return PST_E_FORMAT;
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    if (errno || end == text || *end || *text == '-')
        return pst_fail(PST_E_FORMAT, "%s: \"%s\" is \"%s\": expected a whole number", ck->path, key, text);
    return PST_OK;
}

pst_rc pst_checkpoint_real(const struct pst_checkpoint *ck, const char *key, double *out)
{
    const char *text = pst_checkpoint_text(ck, key);
    if (!text)
        return PST_E_FORMAT;
    char *end;
    *out = strtod(text, &end);
    if (end == text || *end)
        return pst_fail(PST_E_FORMAT, "%s: \"%s\" is \"%s\": expected a number", ck->path, key, text);
    return PST_OK;
}

static pst_rc find(const struct pst_checkpoint *ck, const char *name, struct pst_tensor *out, uint64_t *begin,
                   uint64_t *end)
{
    const json_t *entry = json_object_get(ck->header, name);
    if (!entry)
        return pst_fail(PST_E_FORMAT, "the checkpoint %s has no tensor \"%s\"", ck->path, name);
    return parse_tensor(ck, name, entry, out, begin, end);
}

pst_rc pst_checkpoint_find(const struct pst_checkpoint *ck, const char *name, struct pst_tensor *out,
                           uint64_t *at)
{
    uint64_t begin = 0, end = 0;
    *out = (struct pst_tensor){0};
    const pst_rc rc = find(ck, name, out, &begin, &end);
    *at = ck->data_at + begin;
    return rc;
}

pst_rc pst_checkpoint_read(const struct pst_checkpoint *ck, const struct pst_tensor *like, void *out)
{
    struct pst_tensor t;
    uint64_t begin = 0, end = 0;
    const pst_rc rc = find(ck, like->name, &t, &begin, &end);
    if (rc != PST_OK)
        return rc;
    if (t.dtype != like->dtype || t.rank != like->rank || t.shape[0] != like->shape[0] ||
        (t.rank == 2 && t.shape[1] != like->shape[1]))
        return pst_fail(PST_E_FORMAT,
                        "%s: tensor \"%s\" is %s of shape (%lld, %lld), expected %s of shape (%lld, %lld)",
                        ck->path, like->name, DTYPES[t.dtype], (long long)t.shape[0], (long long)t.shape[1],
                        DTYPES[like->dtype], (long long)like->shape[0],
                        (long long)(like->rank == 2 ? like->shape[1] : 1));
    return read_at(ck, ck->data_at + begin, out, end - begin);
}

/* ---- directories -------------------------------------------------------------------------------- */

void pst_checkpoint_path(const char *dir, uint64_t number, char *path, size_t size)
{
    snprintf(path, size, "%s/%08llu" PST_CHECKPOINT_SUFFIX, dir, (unsigned long long)number);
}

static bool parse_name(const char *name, uint64_t *number)
{
    char *end;
    errno = 0;
    *number = strtoull(name, &end, 10);
    return name[0] >= '0' && name[0] <= '9' && errno == 0 && strcmp(end, PST_CHECKPOINT_SUFFIX) == 0;
}

size_t pst_checkpoint_list(const char *dir, uint64_t *numbers, size_t max)
{
    DIR *entries = opendir(dir);
    if (!entries)
        return 0;
    size_t n = 0;
    const struct dirent *entry;
    while (max > 0 && (entry = readdir(entries))) {
        uint64_t number;
        if (!parse_name(entry->d_name, &number) || (n == max && number < numbers[0]))
            continue;
        if (n == max) /* the lowest makes room */
            memmove(numbers, numbers + 1, --n * sizeof *numbers);
        size_t at = n++;
        for (; at > 0 && numbers[at - 1] > number; at--)
            numbers[at] = numbers[at - 1];
        numbers[at] = number;
    }
    closedir(entries);
    return n;
}

static void append_line(char *text, size_t size, const char *line)
{
    const size_t used = strlen(text);
    if (used + 1 < size)
        snprintf(text + used, size - used, "%s%s", used ? "\n" : "", line);
}

pst_rc pst_checkpoint_latest(const char *dir, char *path, size_t size, char *skipped, size_t skipped_size)
{
    if (skipped && skipped_size)
        skipped[0] = '\0';
    uint64_t *numbers = malloc(LIST_MAX * sizeof *numbers);
    if (!numbers)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot list %s", dir);
    size_t n = pst_checkpoint_list(dir, numbers, LIST_MAX);
    pst_rc rc = PST_E_STATE;
    while (n-- > 0 && rc != PST_OK) {
        struct pst_checkpoint ck;
        pst_checkpoint_path(dir, numbers[n], path, size);
        rc = pst_checkpoint_open(&ck, path);
        if (rc == PST_OK)
            pst_checkpoint_close(&ck);
        else if (skipped && skipped_size)
            append_line(skipped, skipped_size, pst_error_text());
    }
    free(numbers);
    return rc == PST_OK
               ? PST_OK
               : pst_fail(PST_E_STATE,
                          "%s contains no checkpoint that can be read: train again, or name another run",
                          dir);
}
