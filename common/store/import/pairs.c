/* pairs.c: writes pairs of vertices to an array of edges to predict. */
#include "common/store/import/pairs.h"

#include "common/error.h"

#define ROWS_UNKNOWN (INT64_MAX / 64) /* three ids a row fit 63 bits */
#define BLOCK 4096                    /* pairs that are gathered before they are written */

void pst_pairs_begin(struct pst_pairs *p, struct pst_build *b, enum pst_array_id id, int64_t vertices)
{
    *p = (struct pst_pairs){.build = b,
                            .id = id,
                            .w = {.fd = -1},
                            .narrow = pst_manifest_id_dtype(vertices) == PST_I32,
                            .columns = id >= PST_ARRAY_TRIPLES_TRAIN && id <= PST_ARRAY_TRIPLES_TEST ? 3 : 2};
}

union block {
    int32_t i32[3 * BLOCK];
    int64_t i64[3 * BLOCK];
};

static inline void put(const struct pst_pairs *p, union block *out, int64_t k, int64_t id)
{
    if (p->narrow)
        out->i32[k] = (int32_t)id;
    else
        out->i64[k] = id;
}

static pst_rc add_block(struct pst_pairs *p, const int64_t *source, const int64_t *target,
                        const int32_t *relation, int64_t n)
{
    union block out;
    int64_t k = 0;
    for (int64_t i = 0; i < n; i++) {
        put(p, &out, k++, source[i]);
        if (p->columns == 3 && relation != NULL)
            put(p, &out, k++, relation[i]);
        put(p, &out, k++, target[i]);
    }
    p->rows += n;
    return pst_array_write(&p->w, &out, (size_t)(n * p->columns) * pst_dtype_bytes(p->w.dtype));
}

pst_rc pst_pairs_add(void *pairs, const int64_t *source, const int64_t *target, const int32_t *relation,
                     int64_t n)
{
    struct pst_pairs *p = pairs;
    const int64_t shape[2] = {ROWS_UNKNOWN, p->columns};
    pst_rc rc = PST_OK;
    assert(p->columns == 2 || relation != NULL);
    if (!p->begun && n > 0) {
        rc = pst_build_array(p->build, p->id, p->narrow ? PST_I32 : PST_I64, 2, shape, &p->w);
        p->begun = rc == PST_OK;
    }
    for (int64_t i = 0; i < n && rc == PST_OK; i += BLOCK)
        rc = add_block(p, source + i, target + i, relation != NULL ? relation + i : NULL,
                       pst_min_i64(BLOCK, n - i));
    return rc;
}

pst_rc pst_pairs_end(struct pst_pairs *p)
{
    pst_rc rc = p->begun ? pst_array_writer_shrink(&p->w, p->rows) : PST_OK;
    return rc == PST_OK && p->begun ? pst_build_array_end(p->build, p->id, &p->w) : rc;
}

void pst_pairs_release(struct pst_pairs *p)
{
    if (p->begun)
        pst_array_writer_release(&p->w);
}

pst_rc pst_pairs_from(struct pst_build *b, enum pst_array_id id, int64_t vertices,
                      const struct pst_import_edge_array *e, struct pst_progress *progress)
{
    struct pst_pairs p;
    struct pst_problems problems = {.count = 0};
    pst_pairs_begin(&p, b, id, vertices);
    pst_progress_begin(progress, pst_array_id_name(id), (uint64_t)e->edges, false);
    pst_rc rc = pst_import_edge_array_read(e, pst_pairs_add, &p, &problems, progress);
    if (rc == PST_OK)
        rc = pst_problems_result(&problems, "cannot import");
    if (rc == PST_OK)
        rc = pst_pairs_end(&p);
    if (rc == PST_OK)
        pst_progress_end(progress);
    pst_pairs_release(&p);
    return rc;
}
