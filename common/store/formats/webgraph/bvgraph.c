/* bvgraph.c: decodes a BVGraph, one list of successors after another. */
#include "common/store/formats/webgraph/bvgraph.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/util/file.h"

#define BUFFER_BYTES (1u << 20)
#define PROPERTIES_BYTES_MAX (1 << 20)
#define BITS_MAX 56 /* read at a time: a word that begins in any bit of a byte has as many */

enum { OUTDEGREES, BLOCKS, RESIDUALS, REFERENCES, BLOCK_COUNT };
enum { UNARY, GAMMA, DELTA, ZETA, NIBBLE, GOLOMB };

static pst_rc damaged(const struct pst_bvgraph *g, const char *what)
{
    return pst_fail(PST_E_FORMAT, "%s: node %" PRId64 ", bit %" PRIu64 " of %" PRIu64 ": %s", g->path,
                    g->node, g->bit, g->bits,
                    g->past_end ? "unexpected end of the graph: the file is truncated" : what);
}

/* ---- bits: most significant first ---- */

/* The buffer holds the 16 bytes from the present bit's on, with zeros after the file's end. */
static void fill_buffer(struct pst_bvgraph *g)
{
    uint64_t at = g->bit / 8;
    g->buffer_at = at;
    g->fill = 0;
    memset(g->buffer, 0, BUFFER_BYTES + 16);
    while (g->fill < BUFFER_BYTES) {
        ssize_t n = pread(g->fd, g->buffer + g->fill, BUFFER_BYTES - g->fill, (off_t)(at + g->fill));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        g->fill += (size_t)n;
    }
}

static inline uint64_t peek(struct pst_bvgraph *g)
{
    uint64_t at = g->bit / 8;
    if (g->bit >= g->bits) {
        g->past_end = true;
        return 0;
    }
    bool more = g->buffer_at + g->fill < (g->bits + 7) / 8;
    if (at < g->buffer_at || (at + 8 > g->buffer_at + g->fill && more))
        fill_buffer(g);
    if (at >= g->buffer_at + g->fill) { /* it shrank, or could not be read */
        g->past_end = true;
        return 0;
    }
    uint64_t word;
    memcpy(&word, g->buffer + (at - g->buffer_at), sizeof word);
    return __builtin_bswap64(word) << (g->bit % 8);
}

static inline uint64_t read_bits(struct pst_bvgraph *g, unsigned n)
{
    if (n == 0)
        return 0;
    if (n > BITS_MAX) {
        g->past_end = true; /* no code of a 48-bit id is as long: told as damage */
        return 0;
    }
    uint64_t value = peek(g) >> (64 - n);
    g->bit += n;
    g->past_end |= g->bit > g->bits;
    return value;
}

static inline uint64_t read_unary(struct pst_bvgraph *g)
{
    uint64_t zeros = 0;
    while (!g->past_end) {
        uint64_t word = peek(g) >> 8 << 8; /* the last bits may not be there yet */
        if (word != 0) {
            unsigned n = (unsigned)__builtin_clzll(word);
            g->bit += n + 1;
            g->past_end |= g->bit > g->bits;
            return zeros + n;
        }
        zeros += BITS_MAX;
        g->bit += BITS_MAX;
        g->past_end |= g->bit > g->bits;
    }
    return 0;
}

static inline uint64_t read_gamma(struct pst_bvgraph *g)
{
    unsigned n = (unsigned)read_unary(g);
    uint64_t low = read_bits(g, n);
    return g->past_end ? 0 : (UINT64_C(1) << n | low) - 1;
}

static uint64_t read_delta(struct pst_bvgraph *g)
{
    unsigned n = (unsigned)read_gamma(g);
    uint64_t low = read_bits(g, n);
    return g->past_end ? 0 : (UINT64_C(1) << n | low) - 1;
}

static uint64_t read_zeta(struct pst_bvgraph *g)
{
    unsigned k = (unsigned)g->zeta_k;
    uint64_t h = read_unary(g);
    if (h * k + k - 1 > BITS_MAX) {
        g->past_end = true;
        return 0;
    }
    uint64_t left = UINT64_C(1) << (h * k), m = read_bits(g, (unsigned)h * k + k - 1);
    return m < left ? m + left - 1 : (m << 1) + read_bits(g, 1) - 1;
}

/* Groups of four bits: whether it is the last, and three of the number. */
static uint64_t read_nibble(struct pst_bvgraph *g)
{
    uint64_t value = 0, group = 0;
    while (group < 8 && !g->past_end) {
        group = read_bits(g, 4);
        value = value << 3 | (group & 7);
        g->past_end |= value >> BITS_MAX != 0;
    }
    return g->past_end ? 0 : value;
}

/* With zetak as its modulus: a quotient in unary, a rest in minimal binary code. */
static uint64_t read_golomb(struct pst_bvgraph *g)
{
    uint64_t modulus = (uint64_t)g->zeta_k, quotient = read_unary(g);
    unsigned bits = 63 - (unsigned)__builtin_clzll(modulus);
    uint64_t m = (UINT64_C(2) << bits) - modulus, x = read_bits(g, bits);
    if (x >= m)
        x = (x << 1) + read_bits(g, 1) - m;
    return g->past_end ? 0 : quotient * modulus + x;
}

static inline uint64_t read_code(struct pst_bvgraph *g, int what)
{
    switch (g->codes[what]) {
    case UNARY: return read_unary(g);
    case GAMMA: return read_gamma(g);
    case DELTA: return read_delta(g);
    case NIBBLE: return read_nibble(g);
    case GOLOMB: return read_golomb(g);
    default: return read_zeta(g);
    }
}

static inline int64_t to_signed(uint64_t x)
{
    return (int64_t)(x >> 1) ^ -(int64_t)(x & 1);
}

/* ---- lists ---- */

static pst_rc reserve(struct pst_bvgraph *g, struct pst_bv_list *l, int64_t n)
{
    if (n <= l->room)
        return PST_OK;
    int64_t room = pst_max_i64(pst_max_i64(n, 1), l->room + l->room / 2);
    uint64_t extra = (uint64_t)(room - l->room) * sizeof *l->id;
    if (g->memory_used + extra > g->memory_bytes)
        return pst_fail(PST_E_LIMIT, "%s: node %" PRId64 " has %" PRId64 " successors: increase --memory",
                        g->path, g->node, n);
    int64_t *more = realloc(l->id, (size_t)room * sizeof *more);
    if (more == NULL)
        return pst_fail(PST_E_NOMEM, "%s: out of memory: cannot allocate %" PRId64 " successors", g->path, n);
    g->memory_used += extra;
    l->id = more;
    l->room = room;
    return PST_OK;
}

/* The part that is copied from an earlier list: blocks are copied and skipped in turn. */
static pst_rc read_copied(struct pst_bvgraph *g, int64_t degree, struct pst_bv_list *to)
{
    uint64_t back = read_code(g, REFERENCES);
    if (g->past_end || back > (uint64_t)g->window || (int64_t)back > g->node)
        return damaged(g, "a reference points outside the window");
    to->n = 0;
    if (back == 0)
        return PST_OK;
    const struct pst_bv_list *from = &g->list[(g->node - (int64_t)back) % (g->window + 1)];
    uint64_t blocks = read_code(g, BLOCK_COUNT);
    int64_t at = 0;
    if (blocks > (uint64_t)from->n + 1)
        return damaged(g, "there are more blocks than successors to copy");
    for (uint64_t i = 0; i <= blocks; i++) {
        uint64_t length = i == blocks ? (uint64_t)(from->n - at) : read_code(g, BLOCKS) + (i > 0);
        if (g->past_end || length > (uint64_t)(from->n - at))
            return damaged(g, "a block is longer than the list that it copies");
        if (i % 2 == 0) {
            if (to->n + (int64_t)length > degree)
                return damaged(g, "more successors are copied than the outdegree");
            if (length > 0) /* an empty list has no memory */
                memcpy(to->id + to->n, from->id + at, length * sizeof *to->id);
            to->n += (int64_t)length;
        }
        at += (int64_t)length;
    }
    return PST_OK;
}

/* Runs of consecutive ids. */
static pst_rc read_intervals(struct pst_bvgraph *g, int64_t degree, struct pst_bv_list *to)
{
    uint64_t count = read_gamma(g);
    int64_t next = 0;
    if (g->past_end || count > (uint64_t)degree)
        return damaged(g, "there are more intervals than the outdegree");
    for (uint64_t i = 0; i < count; i++) {
        uint64_t gap = read_gamma(g), length = read_gamma(g) + (uint64_t)g->interval;
        int64_t left = i == 0 ? g->node + to_signed(gap) : next + 1 + (int64_t)gap;
        if (g->past_end || length > (uint64_t)(degree - to->n) || gap > (uint64_t)g->nodes * 2 || left < 0 ||
            left + (int64_t)length > g->nodes)
            return damaged(g, "an interval is out of range");
        for (int64_t k = 0; k < (int64_t)length; k++)
            to->id[to->n++] = left + k;
        next = left + (int64_t)length;
    }
    return PST_OK;
}

static pst_rc read_residuals(struct pst_bvgraph *g, int64_t degree, struct pst_bv_list *to)
{
    int64_t last = g->node;
    for (bool first = true; to->n < degree; first = false) {
        uint64_t gap = read_code(g, RESIDUALS);
        if (g->past_end || gap > (uint64_t)g->nodes * 2)
            return damaged(g, "a residual is out of range");
        last += first ? to_signed(gap) : (int64_t)gap + 1;
        if (last < 0 || last >= g->nodes)
            return damaged(g, "a successor is out of range");
        to->id[to->n++] = last;
    }
    return PST_OK;
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Three ascending parts, one after the other, into one list. */
static void merge_parts(const struct pst_bv_list *from, int64_t copied, int64_t intervals,
                        struct pst_bv_list *to)
{
    int64_t at[3] = {0, copied, intervals};
    const int64_t end[3] = {copied, intervals, from->n};
    to->n = 0;
    while (to->n < from->n) {
        int best = -1;
        for (int i = 0; i < 3; i++)
            if (at[i] < end[i] && (best < 0 || from->id[at[i]] < from->id[at[best]]))
                best = i;
        to->id[to->n++] = from->id[at[best]++];
    }
}

static pst_rc read_node(struct pst_bvgraph *g, struct pst_bv_list *out)
{
    out->n = 0;
    uint64_t outdegree = read_code(g, OUTDEGREES);
    if (g->past_end || outdegree > (uint64_t)g->nodes)
        return damaged(g, "an outdegree is larger than the number of nodes");
    int64_t degree = (int64_t)outdegree;
    struct pst_bv_list *parts = &g->scratch;
    pst_rc rc = reserve(g, parts, degree);
    if (rc == PST_OK)
        rc = reserve(g, out, degree);
    if (rc != PST_OK || degree == 0)
        return rc;
    parts->n = 0;
    if (g->window > 0 && (rc = read_copied(g, degree, parts)) != PST_OK)
        return rc;
    int64_t copied = parts->n;
    if (parts->n < degree && g->interval > 0 && (rc = read_intervals(g, degree, parts)) != PST_OK)
        return rc;
    int64_t intervals = parts->n;
    if ((rc = read_residuals(g, degree, parts)) != PST_OK)
        return rc;
    merge_parts(parts, copied, intervals, out);
    for (int64_t i = 1; i < out->n; i++)
        if (compare(&out->id[i - 1], &out->id[i]) >= 0)
            return damaged(g, "a successor occurs twice");
    return PST_OK;
}

pst_rc pst_bvgraph_next(struct pst_bvgraph *g, const int64_t **successors, int64_t *n)
{
    assert(g->node < g->nodes);
    struct pst_bv_list *out = &g->list[g->node % (g->window + 1)];
    pst_rc rc = read_node(g, out);
    if (rc != PST_OK)
        return rc;
    *successors = out->id;
    *n = out->n;
    g->node++;
    g->given += out->n;
    if (g->node == g->nodes && g->given != g->arcs)
        return pst_fail(PST_E_FORMAT,
                        "%s: the .properties file announces %" PRId64 " arcs, but the graph has %" PRId64,
                        g->path, g->arcs, g->given);
    return PST_OK;
}

/* ---- properties ---- */

static pst_rc read_flags(struct pst_bvgraph *g, const char *path, char *text)
{
    static const struct {
        const char *name;
        int what, code;
    } known[] = {{"OUTDEGREES_GAMMA", OUTDEGREES, GAMMA},
                 {"OUTDEGREES_DELTA", OUTDEGREES, DELTA},
                 {"BLOCKS_GAMMA", BLOCKS, GAMMA},
                 {"BLOCKS_DELTA", BLOCKS, DELTA},
                 {"RESIDUALS_GAMMA", RESIDUALS, GAMMA},
                 {"RESIDUALS_DELTA", RESIDUALS, DELTA},
                 {"RESIDUALS_ZETA", RESIDUALS, ZETA},
                 {"RESIDUALS_NIBBLE", RESIDUALS, NIBBLE},
                 {"RESIDUALS_GOLOMB", RESIDUALS, GOLOMB},
                 {"REFERENCES_UNARY", REFERENCES, UNARY},
                 {"REFERENCES_GAMMA", REFERENCES, GAMMA},
                 {"REFERENCES_DELTA", REFERENCES, DELTA},
                 {"BLOCK_COUNT_UNARY", BLOCK_COUNT, UNARY},
                 {"BLOCK_COUNT_GAMMA", BLOCK_COUNT, GAMMA},
                 {"BLOCK_COUNT_DELTA", BLOCK_COUNT, DELTA},
                 {"OFFSETS_GAMMA", -1, 0},
                 {"OFFSETS_DELTA", -1, 0}};
    char *save = NULL;
    for (char *word = strtok_r(text, " |\t", &save); word != NULL; word = strtok_r(NULL, " |\t", &save)) {
        size_t k = 0, n = sizeof known / sizeof known[0];
        while (k < n && strcmp(word, known[k].name) != 0)
            k++;
        if (k == n)
            return pst_fail(PST_E_UNSUPPORTED, "%s: compressionflags: this version does not read '%.64s'",
                            path, word);
        if (known[k].what >= 0)
            g->codes[known[k].what] = known[k].code;
    }
    return PST_OK;
}

static pst_rc one_property(struct pst_bvgraph *g, const char *path, int line, char *key, char *value)
{
    const struct {
        const char *name;
        int64_t *out, low, high;
    } numbers[] = {{"nodes", &g->nodes, 0, INT64_C(1) << 47},
                   {"arcs", &g->arcs, 0, INT64_MAX / 64},
                   {"windowsize", &g->window, 0, PST_BVGRAPH_WINDOW_MAX},
                   {"minintervallength", &g->interval, 0, INT32_MAX},
                   {"zetak", &g->zeta_k, 1, 16}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        char *end;
        if (strcmp(key, numbers[i].name) != 0)
            continue;
        errno = 0;
        int64_t n = strtoll(value, &end, 10);
        if (errno != 0 || end == value || *end != '\0' || n < numbers[i].low || n > numbers[i].high)
            return pst_fail(PST_E_FORMAT,
                            "%s:%d: %s: expected an integer from %" PRId64 " to %" PRId64 ", found '%.64s'",
                            path, line, key, numbers[i].low, numbers[i].high, value);
        *numbers[i].out = n;
    }
    if (strcmp(key, "compressionflags") == 0)
        return read_flags(g, path, value);
    if (strcmp(key, "version") == 0 && strcmp(value, "0") != 0)
        return pst_fail(PST_E_UNSUPPORTED, "%s:%d: version: expected 0, found '%.64s'", path, line, value);
    if (strcmp(key, "graphclass") == 0 && strstr(value, "BVGraph") == NULL)
        return pst_fail(PST_E_UNSUPPORTED, "%s:%d: graphclass: expected BVGraph, found '%.64s'", path, line,
                        value);
    return PST_OK;
}

static char *trim(char *text)
{
    text += strspn(text, " \t");
    size_t n = strlen(text);
    while (n > 0 && strchr(" \t\r\n", text[n - 1]) != NULL)
        text[--n] = '\0';
    return text;
}

static pst_rc read_properties(struct pst_bvgraph *g, const char *path)
{
    uint64_t bytes;
    int fd;
    pst_rc rc = pst_file_open(path, &fd, &bytes);
    FILE *f = rc == PST_OK ? fdopen(fd, "r") : NULL;
    if (f == NULL)
        return rc == PST_OK ? pst_fail_errno("cannot read %s", path) : rc;
    char *text = NULL;
    size_t room = 0;
    g->nodes = g->arcs = -1;
    long read_bytes = 0;
    for (int line = 1; rc == PST_OK && getdelim(&text, &room, '\n', f) > 0; line++) {
        read_bytes += (long)strlen(text);
        if (read_bytes > PROPERTIES_BYTES_MAX)
            rc = pst_fail(PST_E_FORMAT, "%s: the file is too large: expected at most %d bytes", path,
                          PROPERTIES_BYTES_MAX);
        char *equals = strchr(text, '=');
        if (rc != PST_OK || text[0] == '#' || equals == NULL)
            continue;
        *equals = '\0';
        rc = one_property(g, path, line, trim(text), trim(equals + 1));
    }
    free(text);
    (void)fclose(f);
    if (rc == PST_OK && (g->nodes < 0 || g->arcs < 0))
        rc = pst_fail(PST_E_FORMAT, "%s: nodes= or arcs= is missing", path);
    return rc;
}

pst_rc pst_bvgraph_open(struct pst_bvgraph *g, const char *path, uint64_t memory_bytes)
{
    *g = (struct pst_bvgraph){.fd = -1,
                              .window = 7,
                              .interval = 4,
                              .zeta_k = 3,
                              .codes = {GAMMA, GAMMA, ZETA, UNARY, GAMMA},
                              .memory_bytes = memory_bytes};
    char base[4000], properties[4096];
    (void)snprintf(base, sizeof base, "%s", path);
    static const char *const ends[] = {".graph", ".properties"};
    for (int i = 0; i < 2; i++)
        if (strlen(base) > strlen(ends[i]) && strcmp(base + strlen(base) - strlen(ends[i]), ends[i]) == 0)
            base[strlen(base) - strlen(ends[i])] = '\0';
    (void)snprintf(g->path, sizeof g->path, "%s.graph", base);
    (void)snprintf(properties, sizeof properties, "%s.properties", base);
    pst_rc rc = read_properties(g, properties);
    if (rc != PST_OK)
        return rc;
    uint64_t bytes;
    if ((rc = pst_file_open(g->path, &g->fd, &bytes)) != PST_OK)
        return rc;
    (void)posix_fadvise(g->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    g->bits = bytes * 8;
    g->buffer = malloc(BUFFER_BYTES + 16);
    g->list = calloc((size_t)g->window + 1, sizeof *g->list);
    if (g->buffer == NULL || g->list == NULL)
        return pst_fail(PST_E_NOMEM, "%s: out of memory: cannot read it", g->path);
    return PST_OK;
}

void pst_bvgraph_close(struct pst_bvgraph *g)
{
    for (int64_t i = 0; g->list != NULL && i <= g->window; i++)
        free(g->list[i].id);
    free(g->list);
    free(g->scratch.id);
    free(g->buffer);
    if (g->fd >= 0)
        (void)close(g->fd);
    *g = (struct pst_bvgraph){.fd = -1};
}
