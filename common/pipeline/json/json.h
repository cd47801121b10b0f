/* json.h: a JSON file with its lines. jansson parses; a scanner of ours maps each value's path
 * ("stages.sampler.params.fanout[0]") to its line, and finds duplicate keys. Owner: the caller. */
#ifndef PST_JSON_H
#define PST_JSON_H

#include <jansson.h>

#include "common/base.h"
#include "common/pipeline/json/diag.h"

#define PST_JSON_MAX_BYTES (1u << 20) /* a pipeline is a page or two; this keeps hostile files cheap */
#define PST_JSON_VALUES_MAX 8192      /* bounds the search for duplicate keys */
#define PST_JSON_PATH_MAX 512

#define PST_JSON_LINE_SET (-1) /* in place of a line: the value came from --set */

struct pst_json_line {
    char *path;
    int line;
    size_t object; /* keys of one object have one number; 0: an element of a list */
};

struct pst_json {
    char *file; /* as shown to people */
    json_t *root;
    struct pst_json_line *lines;
    size_t nlines, cap;
};

/* Syntax errors are reported alone; duplicate keys are added to diag. False if there is no usable root. */
bool pst_json_load(struct pst_json *doc, const char *file, struct pst_diag *diag);
bool pst_json_parse(struct pst_json *doc, const char *name, const char *text, size_t bytes,
                    struct pst_diag *diag);
void pst_json_release(struct pst_json *doc);
/* Line of the value at path, or of its nearest ancestor that has one; 0 if unknown, PST_JSON_LINE_SET if it
 * came from --set. */
int pst_json_line(const struct pst_json *doc, const char *path);
/* Adds an error at path. */
void pst_json_error(const struct pst_json *doc, struct pst_diag *diag, const char *path, const char *fmt, ...)
    PST_PRINTF(4, 5);
/* Sets the value at a dotted path ("stages.sampler.params.fanout=[5,5]"); objects on the way are made.
 * The value is JSON, or a plain string if it does not parse. */
bool pst_json_set(struct pst_json *doc, const char *assignment, struct pst_diag *diag);
const char *pst_json_kind(const json_t *value); /* "a string", "a number", ... */

#endif
