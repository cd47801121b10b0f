/* hotness.c: scores from files and from counts, and what a cache gets. */
#include "stages/lib/plan/hotness.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/error.h"
#include "common/store/store.h"

const char *pst_hotness_source_name(enum pst_hotness_source source)
{
    static const char *const names[] = {"auto",   "analytic", "presample", "file",
                                        "oracle", "pagerank", "degree",    "random"};
    return names[source];
}

void pst_hotness_scale(float *row, int64_t vertices, double total, double most)
{
    double sum = 0;
    for (int64_t v = 0; v < vertices; v++)
        sum += (double)row[v];
    const double factor = sum > 0 ? total / sum : 0;
    for (int64_t v = 0; v < vertices; v++)
        row[v] = (double)row[v] * factor < most ? (float)((double)row[v] * factor) : (float)most;
}

/* ---- files --------------------------------------------------------------------------------------- */

static double value_at(const struct pst_array *array, int64_t i)
{
    if (array->dtype == PST_F32)
        return (double)((const float *)array->map)[i];
    if (array->dtype == PST_F64)
        return ((const double *)array->map)[i];
    return (double)pst_dtype_int_at(array->map, array->dtype, i);
}

static pst_rc check_shape(const struct pst_array *array, int hops, int64_t vertices)
{
    const bool one = array->rank == 1 && array->shape[0] == vertices;
    const bool all = array->rank == 2 && array->shape[0] == hops + 1 && array->shape[1] == vertices;
    char found[64];
    if (one || all)
        return PST_OK;
    if (array->rank == 1)
        (void)snprintf(found, sizeof found, "(%" PRId64 ",)", array->shape[0]);
    else
        (void)snprintf(found, sizeof found, "(%" PRId64 ", %" PRId64 ")", array->shape[0], array->shape[1]);
    return pst_fail(PST_E_ARG,
                    "%s has shape %s; expected (%d, %" PRId64 "), a row for each of %d hops and one for "
                    "features, or (%" PRId64 ",), a score for each vertex",
                    array->path, found, hops + 1, vertices, hops, vertices);
}

static pst_rc take(const struct pst_array *array, int hops, int64_t vertices, float *scores)
{
    const int64_t rows = array->rank == 1 ? 1 : hops + 1;
    for (int64_t i = 0; i < rows * vertices; i++) {
        const double value = value_at(array, i);
        scores[i] = (float)value + 0.0F; /* -0 becomes 0 */
        if (!(value >= 0) || !isfinite(scores[i]))
            return pst_fail(PST_E_ARG,
                            "%s: the score of vertex %" PRId64 " in row %" PRId64
                            " is %g; expected a number from 0 to 3e38",
                            array->path, i % vertices, i / vertices, value);
    }
    for (int64_t row = rows; row <= hops; row++)
        memcpy(scores + row * vertices, scores, (size_t)vertices * sizeof *scores);
    return PST_OK;
}

pst_rc pst_hotness_read(const char *path, int hops, int64_t vertices, float *scores,
                        char id[PST_HOTNESS_ID_BYTES])
{
    struct pst_array array;
    pst_rc rc = pst_array_open(&array, path);
    if (rc != PST_OK)
        return rc;
    rc = check_shape(&array, hops, vertices);
    if (rc == PST_OK && (array.dtype == PST_F16 || array.dtype == PST_BF16 || array.dtype == PST_BOOL))
        rc = pst_fail(PST_E_ARG, "%s has scores of type %s; expected float32, float64 or integers", path,
                      pst_dtype_name(array.dtype));
    if (rc == PST_OK)
        rc = pst_array_map(&array);
    if (rc == PST_OK)
        rc = take(&array, hops, vertices, scores);
    if (rc == PST_OK)
        (void)snprintf(id, PST_HOTNESS_ID_BYTES, "%016" PRIx64,
                       (uint64_t)XXH3_64bits(array.map, array.data_bytes));
    pst_array_close(&array);
    return rc;
}

/* ---- what a cache gets --------------------------------------------------------------------------- */

double pst_hotness_hit_rate(const float *scores, int64_t vertices, const int64_t *cache, int64_t cached)
{
    double all = 0, hits = 0;
    for (int64_t v = 0; v < vertices; v++)
        all += (double)scores[v];
    for (int64_t i = 0; i < cached; i++)
        hits += (double)scores[cache[i]];
    return all > 0 ? fmin(1, hits / all) : 0;
}

/* ---- counts --------------------------------------------------------------------------------------- */

float *pst_hotness_of_counts(uint32_t *counts, int64_t n, int64_t epochs)
{
    char *values = (char *)counts;
    for (int64_t i = 0; i < n; i++) {
        uint32_t count;
        memcpy(&count, values + i * (int64_t)sizeof count, sizeof count);
        const float score = (float)count / (float)epochs;
        memcpy(values + i * (int64_t)sizeof count, &score, sizeof score);
    }
    return (float *)(void *)values;
}

uint32_t *pst_hotness_to_counts(float *scores, int64_t n, int64_t epochs)
{
    char *values = (char *)scores;
    for (int64_t i = 0; i < n; i++) {
        float score;
        memcpy(&score, values + i * (int64_t)sizeof score, sizeof score);
        const uint32_t count = (uint32_t)lrintf(score * (float)epochs);
        memcpy(values + i * (int64_t)sizeof count, &count, sizeof count);
    }
    return (uint32_t *)(void *)values;
}
