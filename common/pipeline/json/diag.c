/* diag.c: collects errors, and finds the known name that is nearest to a wrong one. */
#include "common/pipeline/json/diag.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIAG_LINE_MAX 1024

void pst_diag_add(struct pst_diag *diag, const char *file, int line, const char *path, const char *fmt, ...)
{
    size_t at = diag->count++;
    if (at >= PST_DIAG_MAX)
        return; /* only counted */
    char text[DIAG_LINE_MAX];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    char *out = malloc(2 * DIAG_LINE_MAX);
    if (!out) {
        diag->line[at] = NULL;
        return;
    }
    int n = 0;
    if (file && line > 0)
        n = snprintf(out, 2 * DIAG_LINE_MAX, "%.300s:%d: ", file, line);
    else if (file)
        n = snprintf(out, 2 * DIAG_LINE_MAX, "%.300s: ", file);
    (void)snprintf(out + n, (size_t)(2 * DIAG_LINE_MAX - n), "%.400s%s%s", path ? path : "",
                   path && path[0] ? ": " : "", text);
    for (char *c = out; *c; c++) /* what the file's author wrote must not steer a terminal */
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    diag->line[at] = out;
    for (size_t i = 0; i < at; i++) /* a shared parameter, say, that is wrong for two stages: told once */
        if (diag->line[i] && strcmp(diag->line[i], out) == 0) {
            free(out);
            diag->line[at] = NULL;
            diag->count--;
            return;
        }
}

void pst_diag_print(const struct pst_diag *diag)
{
    for (size_t i = 0; i < diag->count && i < PST_DIAG_MAX; i++)
        fprintf(stderr, "%s\n", diag->line[i] ? diag->line[i] : "(out of memory)");
    if (diag->count > PST_DIAG_MAX)
        fprintf(stderr, "... and %zu more\n", diag->count - PST_DIAG_MAX);
}

void pst_diag_release(struct pst_diag *diag)
{
    for (size_t i = 0; i < diag->count && i < PST_DIAG_MAX; i++)
        free(diag->line[i]);
    diag->count = 0;
}

/* Levenshtein distance; names are at most PST_NAME_MAX long, longer ones are simply far away. */
static size_t distance(const char *a, const char *b)
{
    size_t la = strlen(a), lb = strlen(b);
    if (la >= PST_NAME_MAX || lb >= PST_NAME_MAX)
        return PST_NAME_MAX;
    size_t row[PST_NAME_MAX + 1];
    for (size_t j = 0; j <= lb; j++)
        row[j] = j;
    for (size_t i = 1; i <= la; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= lb; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[lb];
}

const char *pst_diag_nearest(const char *name, const char *const *names, size_t n)
{
    const char *best = NULL;
    size_t best_distance = strlen(name) / 2 + 1;
    if (best_distance > PST_NAME_MAX)
        best_distance = PST_NAME_MAX;
    for (size_t i = 0; i < n; i++) {
        size_t d = distance(name, names[i]);
        if (d < best_distance) {
            best_distance = d;
            best = names[i];
        }
    }
    return best;
}
