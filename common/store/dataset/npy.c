/* npy.c: parses and writes the header of a .npy file. */
#include "common/store/dataset/npy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/error.h"

/* The header's text: a Python dict literal of three keys. */
struct scan {
    const char *text;
    size_t at, end;
    size_t origin; /* of text in the file, for messages */
};

static pst_rc unexpected(const struct scan *s, const char *expected)
{
    if (s->at >= s->end)
        return pst_fail(PST_E_FORMAT, "byte %zu: expected %s, found the end of the header", s->origin + s->at,
                        expected);
    unsigned char c = (unsigned char)s->text[s->at];
    if (c < 0x20 || c > 0x7e)
        return pst_fail(PST_E_FORMAT, "byte %zu: expected %s, found byte 0x%02x", s->origin + s->at, expected,
                        c);
    return pst_fail(PST_E_FORMAT, "byte %zu: expected %s, found '%c'", s->origin + s->at, expected, c);
}

static void skip_space(struct scan *s)
{
    while (s->at < s->end && (s->text[s->at] == ' ' || s->text[s->at] == '\t'))
        s->at++;
}

static bool accept(struct scan *s, char c)
{
    skip_space(s);
    if (s->at >= s->end || s->text[s->at] != c)
        return false;
    s->at++;
    return true;
}

static bool accept_word(struct scan *s, const char *word)
{
    skip_space(s);
    size_t n = strlen(word);
    if (s->end - s->at < n || memcmp(s->text + s->at, word, n) != 0)
        return false;
    s->at += n;
    return true;
}

static pst_rc scan_string(struct scan *s, const char *what, char *out, size_t room)
{
    skip_space(s);
    char quote = s->at < s->end ? s->text[s->at] : '\0';
    if (quote != '\'' && quote != '"')
        return unexpected(s, what);
    size_t from = ++s->at;
    while (s->at < s->end && s->text[s->at] != quote) {
        if ((unsigned char)s->text[s->at] < 0x20 || s->text[s->at] == '\\')
            return unexpected(s, "a plain character");
        s->at++;
    }
    if (s->at >= s->end)
        return unexpected(s, "a closing quote");
    if (s->at - from >= room) {
        s->at = from;
        return pst_fail(PST_E_FORMAT, "byte %zu: %s is longer than %zu bytes", s->origin + from, what,
                        room - 1);
    }
    memcpy(out, s->text + from, s->at - from);
    out[s->at - from] = '\0';
    s->at++;
    return PST_OK;
}

static pst_rc scan_size(struct scan *s, int64_t *out)
{
    skip_space(s);
    size_t from = s->at;
    int64_t value = 0;
    while (s->at < s->end && s->text[s->at] >= '0' && s->text[s->at] <= '9') {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (int64_t)(s->text[s->at] - '0'), &value))
            return pst_fail(PST_E_FORMAT, "byte %zu: a size in 'shape' does not fit 63 bits",
                            s->origin + from);
        s->at++;
    }
    if (s->at == from)
        return unexpected(s, "a size in 'shape'");
    if (s->at < s->end && s->text[s->at] == 'L')
        s->at++; /* NumPy on Python 2 wrote (3L,) */
    *out = value;
    return PST_OK;
}

static pst_rc scan_shape(struct scan *s, struct pst_npy *out)
{
    size_t from = s->at;
    if (!accept(s, '('))
        return unexpected(s, "'(' of 'shape'");
    int rank = 0;
    bool comma = false;
    while (!accept(s, ')')) {
        if (rank > 0 && !comma)
            return unexpected(s, "',' or ')' in 'shape'");
        int64_t size = 0;
        pst_rc rc = scan_size(s, &size);
        if (rc != PST_OK)
            return rc;
        if (rank < 2)
            out->shape[rank] = size;
        rank++;
        comma = accept(s, ',');
    }
    if (rank == 1 && !comma)
        return pst_fail(PST_E_FORMAT, "byte %zu: 'shape' is not a tuple: expected (n,)", s->origin + from);
    if (rank < 1 || rank > 2)
        return pst_fail(PST_E_FORMAT, "byte %zu: 'shape': expected 1 or 2 dimensions, found %d",
                        s->origin + from, rank);
    if (rank == 1)
        out->shape[1] = 1;
    out->rank = rank;
    return PST_OK;
}

static pst_rc scan_descr(struct scan *s, struct pst_npy *out)
{
    skip_space(s);
    if (s->at < s->end && s->text[s->at] == '[')
        return pst_fail(PST_E_FORMAT, "byte %zu: 'descr' is a structure; expected plain numbers",
                        s->origin + s->at);
    size_t from = s->at;
    char descr[16] = "";
    pst_rc rc = scan_string(s, "'descr' as a string", descr, sizeof descr);
    if (rc != PST_OK)
        return rc;
    return pst_wrap(pst_npy_dtype(descr, &out->dtype), "byte %zu", s->origin + from);
}

static pst_rc scan_order(struct scan *s, struct pst_npy *out)
{
    out->fortran = accept_word(s, "True");
    return out->fortran || accept_word(s, "False") ? PST_OK : unexpected(s, "True or False");
}

static pst_rc scan_entry(struct scan *s, unsigned *seen, struct pst_npy *out)
{
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    skip_space(s);
    size_t from = s->at;
    char key[32];
    pst_rc rc = scan_string(s, "a key", key, sizeof key);
    if (rc != PST_OK)
        return rc;
    unsigned k = 0;
    while (k < 3 && strcmp(key, keys[k]) != 0)
        k++;
    if (k == 3)
        return pst_fail(PST_E_FORMAT,
                        "byte %zu: expected the keys 'descr', 'fortran_order' and 'shape', found '%s'",
                        s->origin + from, key);
    if (*seen & 1u << k)
        return pst_fail(PST_E_FORMAT, "byte %zu: '%s' occurs twice", s->origin + from, key);
    *seen |= 1u << k;
    if (!accept(s, ':'))
        return unexpected(s, "':'");
    return k == 0 ? scan_descr(s, out) : k == 1 ? scan_order(s, out) : scan_shape(s, out);
}

static pst_rc scan_dict(struct scan *s, struct pst_npy *out)
{
    if (!accept(s, '{'))
        return unexpected(s, "'{'");
    unsigned seen = 0;
    while (!accept(s, '}')) {
        pst_rc rc = scan_entry(s, &seen, out);
        if (rc != PST_OK)
            return rc;
        if (!accept(s, ',')) {
            if (!accept(s, '}'))
                return unexpected(s, "',' or '}'");
            break;
        }
    }
    const char *lacks = !(seen & 1) ? "'descr'" : !(seen & 2) ? "'fortran_order'" : "'shape'";
    if (seen != 7)
        return pst_fail(PST_E_FORMAT, "the header lacks the key %s", lacks);
    skip_space(s);
    if (s->at + 1 != s->end || s->text[s->at] != '\n')
        return unexpected(s, "spaces and one newline at the header's end");
    return PST_OK;
}

/* Finds the dict's place from the magic, the version and the length field. */
static pst_rc find_dict(const unsigned char *head, size_t bytes, uint64_t file_bytes, struct scan *s)
{
    static const unsigned char magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};
    if (bytes < 10)
        return pst_fail(PST_E_FORMAT, "byte 0: expected a .npy header, found only %zu bytes", bytes);
    if (memcmp(head, magic, sizeof magic) != 0)
        return pst_fail(PST_E_FORMAT, "byte 0: expected the signature of a .npy file, found something else");
    if (head[6] < 1 || head[6] > 3 || head[7] != 0)
        return pst_fail(PST_E_FORMAT, "byte 6: expected .npy version 1.0, 2.0 or 3.0, found %u.%u", head[6],
                        head[7]);
    uint64_t length = head[8] | (uint64_t)head[9] << 8;
    s->origin = 10;
    if (head[6] > 1) {
        if (bytes < 12)
            return pst_fail(PST_E_FORMAT,
                            "byte 8: expected the header's length (4 bytes), found the end of the file");
        length |= (uint64_t)head[10] << 16 | (uint64_t)head[11] << 24;
        s->origin = 12;
    }
    if (length > PST_NPY_HEADER_MAX)
        return pst_fail(PST_E_FORMAT, "byte 8: the header claims %" PRIu64 " bytes; at most %d are allowed",
                        length, PST_NPY_HEADER_MAX);
    if (s->origin + length > file_bytes || s->origin + length > bytes)
        return pst_fail(PST_E_FORMAT,
                        "byte 8: the header claims %" PRIu64 " bytes, but the file has only %" PRIu64, length,
                        file_bytes);
    s->text = (const char *)head + s->origin;
    s->at = 0;
    s->end = (size_t)length;
    return PST_OK;
}

pst_rc pst_npy_parse(const void *head, size_t bytes, uint64_t file_bytes, struct pst_npy *out)
{
    struct scan s = {.at = 0};
    *out = (struct pst_npy){.rank = 0};
    pst_rc rc = find_dict(head, bytes, file_bytes, &s);
    if (rc == PST_OK)
        rc = scan_dict(&s, out);
    if (rc != PST_OK)
        return rc;
    out->data_at = s.origin + s.end;
    out->fortran &= out->rank == 2 && out->shape[0] != 1 && out->shape[1] != 1;
    uint64_t items;
    if (__builtin_mul_overflow((uint64_t)out->shape[0], (uint64_t)out->shape[1], &items) ||
        __builtin_mul_overflow(items, pst_dtype_bytes(out->dtype), &out->data_bytes) ||
        out->data_bytes > INT64_MAX)
        return pst_fail(PST_E_FORMAT,
                        "'shape' (%" PRId64 ", %" PRId64
                        ") is too large: the size in bytes does not fit 63 bits",
                        out->shape[0], out->shape[1]);
    uint64_t found = file_bytes - out->data_at;
    if (found != out->data_bytes)
        return pst_fail(PST_E_FORMAT,
                        "byte %" PRIu64 ": expected %" PRIu64 " bytes of data (%s, shape %" PRId64
                        " x %" PRId64 "), found %" PRIu64 "%s",
                        out->data_at, out->data_bytes, pst_dtype_name(out->dtype), out->shape[0],
                        out->shape[1], found, found < out->data_bytes ? ": the file is truncated" : "");
    return PST_OK;
}

void pst_npy_format(char head[PST_PAGE], enum pst_dtype dtype, int rank, const int64_t shape[2])
{
    assert(rank == 1 || rank == 2);
    static const unsigned char start[8] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0};
    unsigned length = PST_PAGE - 10;
    memset(head, ' ', PST_PAGE);
    memcpy(head, start, sizeof start);
    head[8] = (char)(length & 0xff);
    head[9] = (char)(length >> 8);
    char second[24] = "";
    if (rank == 2)
        (void)snprintf(second, sizeof second, " %" PRId64, shape[1]);
    char dict[128];
    int n =
        snprintf(dict, sizeof dict, "{'descr': '%s', 'fortran_order': False, 'shape': (%" PRId64 ",%s), }",
                 pst_npy_descr(dtype), shape[0], second);
    assert(n > 0 && (size_t)n < sizeof dict);
    for (int i = 0; i < n; i++)
        head[10 + i] = dict[i];
    head[PST_PAGE - 1] = '\n';
}

/* How NumPy names each type; bfloat16 as ml_dtypes saves it. */
static const char *const descrs[] = {
    [PST_F32] = "<f4", [PST_F16] = "<f2", [PST_BF16] = "<V2", [PST_F64] = "<f8",
    [PST_I32] = "<i4", [PST_I64] = "<i8", [PST_U8] = "|u1",   [PST_BOOL] = "|b1",
    [PST_I8] = "|i1",  [PST_I16] = "<i2", [PST_U16] = "<u2",  [PST_U32] = "<u4",
};
enum { DTYPES = sizeof descrs / sizeof descrs[0] };

const char *pst_npy_descr(enum pst_dtype dtype)
{
    assert((unsigned)dtype < DTYPES);
    return descrs[dtype];
}

pst_rc pst_npy_dtype(const char *descr, enum pst_dtype *out)
{
    for (unsigned i = 0; i < DTYPES; i++) {
        bool anyorder = pst_dtype_bytes((enum pst_dtype)i) == 1 || i == PST_BF16;
        if (strcmp(descr, descrs[i]) == 0 ||
            (anyorder && (descr[0] == '<' || descr[0] == '|') && strcmp(descr + 1, descrs[i] + 1) == 0)) {
            *out = (enum pst_dtype)i;
            return PST_OK;
        }
    }
    if (descr[0] == '>')
        return pst_fail(PST_E_FORMAT,
                        "'descr': expected a little-endian type, found the big-endian type '%s'", descr);
    if (descr[0] != '\0' && descr[1] == 'O')
        return pst_fail(PST_E_FORMAT, "'descr': '%s' holds Python objects, which Penstock never reads",
                        descr);
    return pst_fail(PST_E_FORMAT,
                    "'descr': expected floats ('<f2', '<f4', '<f8', '<V2' for bfloat16), integers ('|i1' to "
                    "'<i8', '|u1' to "
                    "'<u4') or '|b1', found '%s'",
                    descr);
}
