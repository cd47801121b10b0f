/* metric.c: macro F1, ROC AUC and average precision. */
#include "stages/lib/learning/metric.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"

const char *pst_metric_name(enum pst_metric_kind kind)
{
    static const char *const names[] = {
        "auto", "accuracy", "micro_f1", "macro_f1", "roc_auc", "average_precision", "mse", "mae", "r2"};
    return names[kind];
}

/* Adds a vertex's labels to the counts of each class: vertices in it, and vertices of which that is known. */
static bool count_support(const struct pst_metric_labels *l, int64_t id, int64_t *in, int64_t *known)
{
    bool labelled = false;
    if (l->one) {
        const int32_t label = l->one[id];
        labelled = label >= 0 && label < l->classes;
        if (labelled)
            in[label]++;
        return labelled;
    }
    for (int64_t c = 0; c < l->classes; c++) {
        const uint8_t label = l->several[id * l->classes + c];
        if (label == PST_LABEL_IGNORED)
            continue;
        labelled = true;
        known[c]++;
        in[c] += label;
    }
    return labelled;
}

pst_rc pst_metric_supported(const struct pst_metric_labels *l, int64_t vertices, const int64_t *ids,
                            int64_t n, struct pst_metric_support *s)
{
    int64_t *in = calloc(2 * (size_t)l->classes, sizeof *in), *known = in + l->classes;
    *s = (struct pst_metric_support){.first = -1};
    if (!in)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot count the vertices of %lld classes",
                        (long long)l->classes);
    for (int64_t i = 0; i < n; i++)
        s->labelled += ids[i] >= 0 && ids[i] < vertices && count_support(l, ids[i], in, known);
    for (int64_t c = 0; c < l->classes; c++) {
        const int64_t all = l->one ? s->labelled : known[c];
        if (in[c] > 0 && in[c] < all)
            continue;
        s->first = s->undefined == 0 ? c : s->first;
        s->undefined++;
    }
    free(in);
    return PST_OK;
}

static int ascending(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

pst_rc pst_metric_open(struct pst_metric *m, enum pst_metric_kind kind,
                       const struct pst_metric_labels *labels, const int64_t *ids, int64_t n)
{
    *m = (struct pst_metric){.kind = kind, .labels = *labels, .n = n};
    m->columns = labels->one && labels->classes == 2 ? 1 : labels->classes;
    m->ids = malloc((size_t)n * sizeof *ids + 1);
    if (!m->ids)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the ids of %lld evaluated vertices",
                        (long long)n);
    if (n > 0) {
        memcpy(m->ids, ids, (size_t)n * sizeof *ids);
        qsort(m->ids, (size_t)n, sizeof *ids, ascending);
    }
    return PST_OK;
}

void pst_metric_close(struct pst_metric *m)
{
    free(m->ids);
    *m = (struct pst_metric){.kind = PST_METRIC_NONE};
}

size_t pst_metric_score_bytes(const struct pst_metric *m)
{
    return pst_metric_ranks(m->kind) ? (size_t)m->n * (size_t)m->columns * sizeof *m->score : 0;
}

/* ---- scores -------------------------------------------------------------------------------------- */

/* log(sum of exp) of a row. */
static double log_sum(const pst_real *row, int64_t classes)
{
    double most = (double)row[0], sum = 0;
    for (int64_t c = 1; c < classes; c++)
        most = (double)row[c] > most ? (double)row[c] : most;
    for (int64_t c = 0; c < classes; c++)
        sum += exp((double)row[c] - most);
    return log(sum) + most;
}

static void note_row(const struct pst_metric *m, const pst_real *row, int64_t at)
{
    if (m->labels.one && m->columns == 1) {
        m->score[at] = (float)((double)row[1] - (double)row[0]);
        return;
    }
    const double all = m->labels.one ? log_sum(row, m->columns) : 0;
    for (int64_t c = 0; c < m->columns; c++)
        m->score[c * m->n + at] = (float)((double)row[c] - all);
}

/* The position of the first id that is not below this one. */
static int64_t find(const struct pst_metric *m, int64_t id)
{
    int64_t low = 0, high = m->n;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (m->ids[middle] < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void pst_metric_note(struct pst_metric *m, const pst_real *logits, int64_t ld, int64_t first, int64_t n)
{
    for (int64_t at = find(m, first); at < m->n && m->ids[at] < first + n; at++)
        note_row(m, logits + (m->ids[at] - first) * ld, at);
}

/* ---- ranks --------------------------------------------------------------------------------------- */

/* A vertex to be ranked: its score, as a number of the same order, and in the lowest bit whether it is of the
 * class. */
static uint64_t key_of(float score, bool in)
{
    const float value = score + 0.0f; /* -0 is 0 */
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits = bits >> 31 ? ~bits : bits | 0x80000000u;
    return (uint64_t)bits << 1 | in;
}

enum { DIGIT_BITS = 11, DIGITS = 3, BUCKETS = 1 << DIGIT_BITS }; /* 33 bits are a key */

/* Sorts keys(n) up. Keys and room change places; returns where the sorted ones are. */
static const uint64_t *sort_keys(uint64_t *keys, uint64_t *room, int64_t n)
{
    for (int digit = 0; digit < DIGITS; digit++) {
        int64_t begin[BUCKETS + 1] = {0};
        const int shift = digit * DIGIT_BITS;
        for (int64_t i = 0; i < n; i++)
            begin[(keys[i] >> shift) % BUCKETS + 1]++;
        for (int b = 0; b < BUCKETS; b++)
            begin[b + 1] += begin[b];
        for (int64_t i = 0; i < n; i++)
            room[begin[(keys[i] >> shift) % BUCKETS]++] = keys[i];
        uint64_t *other = keys;
        keys = room;
        room = other;
    }
    return keys;
}

/* Is this vertex of the column's class? -1: it is not known. */
static int is_in(const struct pst_metric *m, int64_t id, int64_t column)
{
    const struct pst_metric_labels *l = &m->labels;
    if (!l->one) {
        const uint8_t label = l->several[id * l->classes + column];
        return label == PST_LABEL_IGNORED ? -1 : label;
    }
    return l->one[id] < 0 ? -1 : l->one[id] == (m->columns == 1 ? 1 : column);
}

/* Keys from high to low, in groups of equal scores. in, out: how many are of the class, and how many are not.
 */
static double roc_auc(const uint64_t *keys, int64_t n, uint64_t in, uint64_t out)
{
    uint64_t twice = 0, above = 0; /* pairs in the right order, counted twice; vertices of the class so far */
    for (int64_t i = n; i > 0;) {
        const uint64_t score = keys[i - 1] >> 1;
        uint64_t here = 0, others = 0;
        for (; i > 0 && keys[i - 1] >> 1 == score; i--) {
            here += keys[i - 1] & 1;
            others += !(keys[i - 1] & 1);
        }
        twice += others * (2 * above + here);
        above += here;
    }
    return (double)twice / 2 / ((double)in * (double)out);
}

static double average_precision(const uint64_t *keys, int64_t n, uint64_t in)
{
    double sum = 0;
    uint64_t hits = 0;
    for (int64_t i = n; i > 0;) {
        const uint64_t score = keys[i - 1] >> 1;
        uint64_t here = 0;
        for (; i > 0 && keys[i - 1] >> 1 == score; i--)
            here += keys[i - 1] & 1;
        hits += here;
        sum += (double)here / (double)in * ((double)hits / (double)(n - i));
    }
    return sum;
}

size_t pst_metric_scratch_bytes(const struct pst_metric *m)
{
    return pst_metric_ranks(m->kind) ? 2 * (size_t)m->n * sizeof(uint64_t) : 0;
}

void pst_metric_rank(const struct pst_metric *m, int64_t column, void *scratch, double *figure)
{
    uint64_t *keys = scratch, *room = keys + m->n, in = 0;
    int64_t n = 0;
    for (int64_t i = 0; i < m->n; i++) {
        const int is = is_in(m, m->ids[i], column);
        if (is < 0)
            continue;
        keys[n++] = key_of(m->score[column * m->n + i], is);
        in += (uint64_t)is;
    }
    const uint64_t out = (uint64_t)n - in;
    const uint64_t *sorted = sort_keys(keys, room, n);
    *figure = in == 0 || out == 0             ? -1
              : m->kind == PST_METRIC_ROC_AUC ? roc_auc(sorted, n, in, out)
                                              : average_precision(sorted, n, in);
}

double pst_metric_mean(const double *figures, int64_t n)
{
    double sum = 0;
    int64_t there = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += figures[i] < 0 ? 0 : figures[i];
        there += figures[i] >= 0;
    }
    return there ? sum / (double)there : -1;
}

/* ---- macro F1 ------------------------------------------------------------------------------------ */

struct counts {
    int64_t hits, predicted, labelled; /* TP, TP + FP, TP + FN */
};

static bool count(const struct pst_metric *m, const int32_t *one, const uint8_t *several, int64_t id,
                  struct counts *of)
{
    const struct pst_metric_labels *l = &m->labels;
    bool known = false;
    if (l->one) {
        if (l->one[id] < 0 || l->one[id] >= l->classes)
            return false;
        of[l->one[id]].labelled++;
        of[one[id]].predicted++;
        of[one[id]].hits += one[id] == l->one[id];
        return true;
    }
    for (int64_t c = 0; c < l->classes; c++) {
        const uint8_t label = l->several[id * l->classes + c], guess = several[id * l->classes + c];
        if (label == PST_LABEL_IGNORED)
            continue;
        known = true;
        of[c].labelled += label;
        of[c].predicted += guess;
        of[c].hits += label & guess;
    }
    return known;
}

pst_rc pst_metric_macro_f1(const struct pst_metric *m, const int32_t *one, const uint8_t *several,
                           double *figure)
{
    const int64_t classes = m->labels.classes;
    struct counts *of = calloc((size_t)classes, sizeof *of);
    int64_t known = 0, used = 0;
    double sum = 0;
    if (!of)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot count the predictions of %lld classes",
                        (long long)classes);
    for (int64_t i = 0; i < m->n; i++)
        known += count(m, one, several, m->ids[i], of);
    for (int64_t c = 0; c < classes; c++) {
        const int64_t all = of[c].predicted + of[c].labelled;
        sum += all ? 2 * (double)of[c].hits / (double)all : 0;
        used += all || !m->labels.one;
    }
    free(of);
    *figure = known ? sum / (double)used : -1;
    return PST_OK;
}
