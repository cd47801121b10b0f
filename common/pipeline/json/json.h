/* json.h: a JSON file that remembers where each value came from: a line of the file, a line of an overlay, or
 * --set. jansson parses; a scanner of ours finds the lines and duplicate keys.
 * Owner: the caller, who releases it. Threads: one at a time. */
#ifndef PST_JSON_H
#define PST_JSON_H

#include <jansson.h>

#include "common/base.h"
#include "common/pipeline/json/diag.h"

#define PST_JSON_MAX_BYTES (1u << 20) /* a pipeline is a page or two; hostile files stay cheap */
#define PST_JSON_VALUES_MAX 8192      /* bounds the search for duplicate keys */
#define PST_JSON_PATH_MAX 512
#define PST_JSON_OVERLAYS_MAX 16

#define PST_JSON_SET (PST_JSON_OVERLAYS_MAX + 1) /* a source: --set */

/* A path is written "stages.sampler.params.fanout[0]". */
struct pst_json_line {
    char *path;
    int source; /* 0: the file; 1 to PST_JSON_OVERLAYS_MAX: an overlay; PST_JSON_SET */
    int line;
    size_t object; /* keys of one object have the same number; 0: an element of a list */
};

struct pst_json {
    char *file; /* as shown to people */
    char *overlay[PST_JSON_OVERLAYS_MAX];
    int noverlays;
    json_t *root;
    struct pst_json_line *lines;
    size_t nlines, cap;
};

/* Reads a file, or a text under a name. A syntax error is the only error that is reported then. Duplicate
 * keys are added to diag. False: there is no usable root. */
PST_API_TEST bool pst_json_load(struct pst_json *doc, const char *file, struct pst_diag *diag);
PST_API_TEST bool pst_json_parse(struct pst_json *doc, const char *name, const char *text, size_t bytes,
                                 struct pst_diag *diag);
PST_API_TEST void pst_json_release(struct pst_json *doc);

/* Merges an overlay file into the root: objects are merged, all other values are replaced. An object over a
 * list changes single elements: {"links": {"1": {"slots": 3}}}; but an object of lists over a list of numbers
 * replaces it. False, with diag filled: it is not possible. */
PST_API_TEST bool pst_json_overlay(struct pst_json *doc, const char *file, struct pst_diag *diag);

/* Sets the value at a path: "stages.sampler.params.fanout=[5,5]". Objects on the way are made; the index
 * behind the last element of a list adds one. The value is JSON, or else a string. */
PST_API_TEST bool pst_json_set(struct pst_json *doc, const char *assignment, struct pst_diag *diag);

/* Where the value at a path came from; if there is no value, where its nearest ancestor came from. */
struct pst_json_place {
    const char *file; /* lives as long as doc */
    int source;       /* as in struct pst_json_line: what comes later has a higher number */
    int line;         /* 0: not known, or --set */
};
PST_API_TEST struct pst_json_place pst_json_place(const struct pst_json *doc, const char *path);

/* Adds an error at a path. */
PST_API void pst_json_error(const struct pst_json *doc, struct pst_diag *diag, const char *path,
                            const char *fmt, ...) PST_PRINTF(4, 5);

const char *pst_json_kind(const json_t *value); /* "a string", "an integer", ... */

/* For the files of this room: notes where the value at a path came from. */
void pst_json_record(struct pst_json *doc, const char *path, struct pst_json_line line);

#endif
