/* manifest_impl.h: functions shared by the files that read and write dataset.json. Owner: none. Threads: one.
 */
#ifndef PST_MANIFEST_IMPL_H
#define PST_MANIFEST_IMPL_H

#include "common/store/dataset/manifest.h"

void pst_manifest_check_keys(json_t *object, const char *where, const char *const *keys, size_t n,
                             struct pst_problems *problems);
int64_t pst_manifest_read_count(json_t *object, const char *key, int64_t max, struct pst_problems *problems);
bool pst_manifest_read_string(json_t *object, const char *where, const char *key, char *out, size_t room,
                              struct pst_problems *problems);

/* One entry of an array; where: its path in the file. stripe: it has "head", too. */
void pst_manifest_read_entry(json_t *object, const char *where, bool stripe, struct pst_array_entry *e,
                             struct pst_problems *problems);
json_t *pst_manifest_entry_json(const struct pst_array_entry *e);

/* Features of `rows` vertices: there or not, dtype, shape, stride. */
void pst_manifest_check_features(const struct pst_array_entry *e, const char *where, int64_t rows,
                                 int64_t dim, uint64_t stride_bytes, struct pst_problems *problems);

/* manifest_stripes.c: features in several files. Reading fills array[PST_ARRAY_FEATURES], too. */
void pst_manifest_read_stripes(struct pst_manifest *m, json_t *root, int64_t version,
                               struct pst_problems *problems);
void pst_manifest_check_stripes(const struct pst_manifest *m, struct pst_problems *problems);
json_t *pst_manifest_stripes_json(const struct pst_manifest *m);

/* manifest_types.c: types of vertices and edges. */
void pst_manifest_read_types(struct pst_manifest *m, json_t *root, struct pst_problems *problems);
void pst_manifest_check_types(const struct pst_manifest *m, struct pst_problems *problems);
void pst_manifest_write_types(const struct pst_manifest *m, json_t *root);

uint64_t pst_manifest_read_sum(json_t *object, const char *where, const char *key,
                               struct pst_problems *problems);

/* manifest_cut.c: a part of a cut dataset. */
void pst_manifest_read_cut(struct pst_manifest *m, json_t *root, struct pst_problems *problems);
void pst_manifest_check_cut(const struct pst_manifest *m, struct pst_problems *problems);
void pst_manifest_write_cut(const struct pst_manifest *m, json_t *root);
/* How many rows of features, and how many indices, there must be. */
int64_t pst_manifest_feature_rows(const struct pst_manifest *m);
int64_t pst_manifest_index_rows(const struct pst_manifest *m);

/* manifest_splits.c: several splits. */
void pst_manifest_read_splits(struct pst_manifest *m, json_t *root, struct pst_problems *problems);
void pst_manifest_check_splits(const struct pst_manifest *m, struct pst_problems *problems);
void pst_manifest_write_splits(const struct pst_manifest *m, json_t *root);

#endif
