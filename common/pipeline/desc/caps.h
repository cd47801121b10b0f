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

/* `run` is an installed stage's name or a path (to the current directory, else to base_dir). A stage NAME is
 * installed if a directory of pst_install_stage_dir has NAME.so, or a program NAME or NAME.py, for example. A
 * shared object is first loaded in a process that is thrown away, since loading runs its constructors: one
 * that hangs, crashes or exits is an error here. */
PST_API PST_MUST_USE pst_rc pst_caps_load(struct pst_caps *caps, const char *run, const char *base_dir);

/* The same without that process: for a stage's host, whose supervisor has called pst_caps_load. */
PST_MUST_USE pst_rc pst_caps_load_tried(struct pst_caps *caps, const char *run, const char *base_dir);

PST_API void pst_caps_release(struct pst_caps *caps);

/* Names of installed stages, sorted; the caller frees each and the array. */
PST_API PST_MUST_USE pst_rc pst_caps_list(char ***names, size_t *n);

#endif
