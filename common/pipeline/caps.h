/* caps.h: what stages are installed, and what each says of itself. A native stage is a shared object whose
 * symbol `pst_stage` is its description; a foreign one is an executable that prints the same as JSON when
 * called with --describe (the answer is cached by path, size and time of change).
 * Owner: the caller, who releases. Descriptions live as long as the caps they came from. */
#ifndef PST_CAPS_H
#define PST_CAPS_H

#include <jansson.h>

#include "common/stage.h"

struct pst_caps {
    char *run;  /* as the pipeline names it */
    char *file; /* the shared object or executable; NULL for a stage built into the runtime */
    bool foreign;
    const struct pst_stage_desc *desc;
    void *handle;      /* of dlopen */
    json_t *described; /* foreign: the strings that desc points into */
};

/* `run` is an installed stage's name or a path (to the current directory, else to base_dir). */
PST_MUST_USE pst_rc pst_caps_load(struct pst_caps *caps, const char *run, const char *base_dir);
void pst_caps_release(struct pst_caps *caps);

/* Names of installed native stages, sorted; the caller frees each and the array. */
PST_MUST_USE pst_rc pst_caps_list(char ***names, size_t *n);

/* The description as JSON (new reference): what `penstock stages NAME --json` prints and a foreign stage
 * answers. */
json_t *pst_caps_json(const struct pst_stage_desc *desc);

int pst_desc_port(const struct pst_stage_desc *desc, const char *name); /* -1: no such port */
int pst_desc_ports(const struct pst_stage_desc *desc);
const struct pst_param_desc *pst_desc_param(const struct pst_stage_desc *desc, const char *name);
bool pst_caps_port_forwards(const struct pst_port_desc *out, const char *in); /* is `in` in out->forwards? */

/* Checks a value against its description; on success *out (new reference) is the value in its normal form
 * (BYTES become integers). Else false, and why is filled. */
bool pst_caps_param_normal(const struct pst_param_desc *desc, const json_t *value, json_t **out,
                           char why[256]);
const char *pst_caps_param_type_name(enum pst_param_type type);

#endif
