/* load_impl.h: what the files that read a pipeline share. */
#ifndef PST_LOAD_IMPL_H
#define PST_LOAD_IMPL_H

#include "common/pipeline/pipeline.h"

#define PST_PIPELINE_EPOCHS_MAX 1000000
#define PST_PIPELINE_BUS_DILATE_MAX 1e6
#define PST_PIPELINE_LINK_RATE 12e9 /* between two GPUs, at least: PCIe 3.0 with 16 lanes */
#define PST_PIPELINE_LINK_RATE_MIN 1e6
#define PST_PIPELINE_LINK_RATE_MAX 1e13
#define PST_PIPELINE_HINT_MAX 128 /* bytes of "; did you mean NAME?" */

struct pst_pipeline_loading {
    struct pst_pipeline *pl;
    struct pst_diag *diag;
    bool group_all;
};

/* Adds an error at a path of the file. */
void pst_pipeline_error(struct pst_pipeline_loading *ld, const char *path, const char *fmt, ...)
    PST_PRINTF(3, 4);

/* "; did you mean NAME?" if one of n names is near, else "". */
const char *pst_pipeline_hint(const char *name, const char *const *names, size_t n,
                              char out[PST_PIPELINE_HINT_MAX]);

/* Reports keys of an object that are not among n names. */
void pst_pipeline_check_keys(struct pst_pipeline_loading *ld, const json_t *object, const char *path,
                             const char *const *names, size_t n);

/* Copies the string at `key` of the object at path `base`. False if there is none, or it is not a string
 * (which is reported). Too long a string is reported and cut. */
bool pst_pipeline_get_string(struct pst_pipeline_loading *ld, const json_t *object, const char *base,
                             const char *key, char *out, size_t cap);

/* The integer at `key`; `def` if there is none, or it is wrong (which is reported). */
int64_t pst_pipeline_get_int(struct pst_pipeline_loading *ld, const json_t *object, const char *base,
                             const char *key, int64_t def, int64_t min, int64_t max);

/* 1 to max letters, digits, _ or -: safe in the names of files, sockets and processes. */
bool pst_pipeline_good_name(const char *name, size_t max);

/* load_stages.c, load_links.c */
void pst_pipeline_load_stages(struct pst_pipeline_loading *ld);
void pst_pipeline_load_links(struct pst_pipeline_loading *ld);

/* replicas.c. The first reads the member "replicas", after the stages: a stage that it names gets the number
 * of replicas and the first place. The second, in a pipeline without errors, makes a stage and links of each
 * replica. */
void pst_pipeline_load_replicas(struct pst_pipeline_loading *ld);
/* Once all stages have devices: choices of parameters that are not possible there. */
void pst_pipeline_check_devices(struct pst_pipeline_loading *ld);
void pst_pipeline_replicate(struct pst_pipeline_loading *ld);

#endif
