/* inspection.c: see inspection.h. */
#include "tools/penstock/data/inspection.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/store/dataset/rows.h"

static pst_rc count_labels(struct inspection *in)
{
    const struct pst_dataset *ds = &in->ds;
    const int32_t *label = ds->labels.map;
    int64_t odd = 0;
    if (ds->classes == 0)
        return PST_OK;
    in->label = calloc((size_t)ds->classes, sizeof *in->label);
    if (in->label == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %" PRId64 " classes", ds->classes);
    for (int64_t v = 0; v < ds->vertices; v++) {
        if (label[v] >= 0 && label[v] < ds->classes)
            in->label[label[v]]++;
        else if (label[v] == -1)
            in->unlabelled++;
        else
            odd++;
    }
    return odd == 0 ? PST_OK
                    : pst_fail(PST_E_FORMAT,
                               "%s: %" PRId64 " labels out of range (`penstock verify` shows details)",
                               ds->labels.path, odd);
}

static void count_multilabels(struct inspection *in)
{
    const struct pst_array *a = &in->ds.multilabels;
    const uint8_t *bit = a->map;
    for (uint64_t i = 0; bit != NULL && i < a->data_bytes; i++)
        in->multilabels[bit[i] > 1 ? 2 : bit[i]]++;
}

static void count_targets(struct inspection *in)
{
    const struct pst_array *a = &in->ds.targets;
    const float *x = a->map;
    in->target_least = INFINITY;
    in->target_most = -INFINITY;
    for (uint64_t i = 0; x != NULL && i < a->data_bytes / sizeof *x; i++) {
        in->unknown_targets += isnan(x[i]);
        in->target_least = fmin(in->target_least, (double)x[i]); /* a NaN is passed over */
        in->target_most = fmax(in->target_most, (double)x[i]);
    }
}

static pst_rc read_features(struct inspection *in, bool whole, struct pst_progress *progress)
{
    const struct pst_dataset *ds = &in->ds;
    pst_rc rc = PST_OK;
    if (ds->feature_dim > 0)
        rc = pst_describe_features(pst_feature_file(ds, 0), pst_feature_files(ds), ds->vertices,
                                   ds->feature_dim, ds->stride_bytes, whole, &in->features[0], progress);
    for (int k = 0; k < ds->vertex_types && rc == PST_OK; k++) {
        const struct pst_vertex_type *t = &ds->vertex_type[k];
        if (t->feature_dim > 0)
            rc = pst_describe_features(&t->features, 1, t->vertices, t->feature_dim, t->stride_bytes, whole,
                                       &in->features[1 + k], progress);
    }
    return rc;
}

pst_rc inspect(struct inspection *in, const char *dir, bool whole, struct pst_progress *progress)
{
    memset(in, 0, sizeof *in);
    pst_rc rc = pst_dataset_open(&in->ds, dir);
    if (rc != PST_OK)
        return rc;
    in->open = true;
    rc = pst_describe_degrees(&in->ds, &in->degrees);
    if (rc == PST_OK)
        rc = pst_describe_hotness(&in->ds, &in->hot, progress);
    if (rc == PST_OK)
        rc = count_labels(in);
    if (rc == PST_OK)
        rc = read_features(in, whole, progress);
    count_multilabels(in);
    count_targets(in);
    return rc;
}

void inspection_release(struct inspection *in)
{
    free(in->label);
    if (in->open)
        pst_dataset_close(&in->ds);
}

/* ---- as JSON ---- */

static json_t *arrays(struct pst_dataset *ds)
{
    json_t *all = json_object();
    for (unsigned i = 0; i < PST_ARRAY_COUNT; i++) {
        const struct pst_array *a = pst_manifest_dataset_array(ds, i);
        if (a->path[0] == '\0')
            continue;
        json_t *shape = a->rank == 2 ? json_pack("[I, I]", (json_int_t)a->shape[0], (json_int_t)a->shape[1])
                                     : json_pack("[I]", (json_int_t)a->shape[0]);
        (void)json_object_set_new(all, pst_array_id_name(i),
                                  json_pack("{ss so sI}", "dtype", pst_dtype_name(a->dtype), "shape", shape,
                                            "bytes", (json_int_t)a->data_at + (json_int_t)a->data_bytes));
    }
    return all;
}

static json_t *degrees(const struct pst_describe_degrees *d)
{
    json_t *buckets = json_array();
    for (int k = 0; k < PST_DEGREE_BUCKETS; k++)
        if (d->bucket[k] > 0)
            (void)json_array_append_new(
                buckets, json_pack("{sI sI sI}", "from", (json_int_t)(k > 0 ? (int64_t)1 << (k - 1) : 0),
                                   "to", (json_int_t)(k > 0 ? (((int64_t)1 << (k - 1)) - 1) * 2 + 1 : 0),
                                   "vertices", (json_int_t)d->bucket[k]));
    return json_pack("{sI sf sf sI so}", "min", (json_int_t)d->least, "median", d->median, "mean", d->mean,
                     "max", (json_int_t)d->most, "histogram", buckets);
}

static json_t *caches(const struct inspection *in)
{
    const double bytes = (double)in->ds.vertices * (double)in->ds.stride_bytes;
    json_t *all = json_array();
    for (int k = 0; k < PST_HOT_SHARES; k++)
        (void)json_array_append_new(all, json_pack("{sf sf sf}", "rows", pst_hot_shares[k], "bytes",
                                                   bytes * pst_hot_shares[k], "served", in->hot.served[k]));
    for (int k = 0; k < PST_HOT_TARGETS; k++)
        (void)json_array_append_new(all,
                                    json_pack("{sf sf sf}", "rows", in->hot.rows_for[k], "bytes",
                                              bytes * in->hot.rows_for[k], "served", pst_hot_targets[k]));
    return all;
}

static json_t *stats(const struct pst_feature_stats *s)
{
    if (s->rows == 0)
        return json_null();
    return json_pack("{sI sb sf sf sf sf sI}", "rows_read", (json_int_t)s->rows, "whole", s->whole, "min",
                     s->min, "max", s->max, "mean", s->mean, "zeros", (double)s->zeros / (double)s->values,
                     "not_finite", (json_int_t)s->not_finite);
}

static json_t *types(const struct inspection *in)
{
    json_t *all = json_array();
    for (int k = 0; k < in->ds.vertex_types; k++) {
        const struct pst_vertex_type *t = &in->ds.vertex_type[k];
        (void)json_array_append_new(all, json_pack("{ss sI sI so}", "name", t->name, "vertices",
                                                   (json_int_t)t->vertices, "feature_dim",
                                                   (json_int_t)t->feature_dim, "features",
                                                   stats(&in->features[1 + k])));
    }
    return all;
}

static json_t *labels(const struct inspection *in)
{
    json_t *counts = json_array();
    for (int64_t k = 0; k < in->ds.classes; k++)
        (void)json_array_append_new(counts, json_integer(in->label[k]));
    return json_pack("{sI so sI}", "classes", (json_int_t)in->ds.classes, "vertices", counts, "without",
                     (json_int_t)(in->ds.classes > 0 ? in->unlabelled : in->ds.vertices));
}

static json_t *parts(const struct pst_array part[3])
{
    return json_pack("{sI sI sI}", "train", (json_int_t)part[PST_TRAIN].shape[0], "val",
                     (json_int_t)part[PST_VAL].shape[0], "test", (json_int_t)part[PST_TEST].shape[0]);
}

static json_t *named_splits(const struct pst_dataset *ds)
{
    json_t *all = json_array();
    for (int k = 0; k < ds->splits; k++) {
        json_t *one = parts(k == ds->chosen ? ds->split : ds->named_split[k].ids);
        (void)json_object_set_new(one, "name", json_string(ds->named_split[k].name));
        (void)json_array_append_new(all, one);
    }
    return all;
}

pst_rc inspection_json(struct inspection *in)
{
    const struct pst_dataset *ds = &in->ds;
    json_t *all =
        json_pack("{ss ss ss sI sI sI sI so so so so sI so so so so so so}", "name", ds->name, "dir", ds->dir,
                  "digest", ds->digest, "vertices", (json_int_t)ds->vertices, "edges", (json_int_t)ds->edges,
                  "feature_dim", (json_int_t)ds->feature_dim, "stride_bytes", (json_int_t)ds->stride_bytes,
                  "arrays", arrays(&in->ds), "splits", parts(ds->split), "named_splits", named_splits(ds),
                  "triples", parts(ds->triples), "relations", (json_int_t)ds->relations, "in_degree",
                  degrees(&in->degrees), "out_degree", degrees(&in->hot.out), "caches", caches(in),
                  "features", stats(&in->features[0]), "vertex_types", types(in), "labels", labels(in));
    if (all == NULL || json_dumpf(all, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) != 0 ||
        putchar('\n') == EOF) {
        json_decref(all);
        return pst_fail(PST_E_IO, "cannot write JSON");
    }
    json_decref(all);
    return PST_OK;
}
