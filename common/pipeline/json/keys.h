/* keys.h: reads the values of an object whose keys are listed in a table, and reports what is wrong with
 * them. Owner: none; texts and objects that are read belong to the document. Threads: one at a time. */
#ifndef PST_KEYS_H
#define PST_KEYS_H

#include "common/pipeline/json/json.h"

#define PST_JSON_KEYS_MAX 16 /* of one table */

enum pst_json_key_kind {
    PST_JSON_NUMBER, /* double: above 0, or at least 0 */
    PST_JSON_COUNT,  /* int: from 0 or 1 to most */
    PST_JSON_TEXT,   /* const char * */
    PST_JSON_OBJECT, /* json_t * */
    PST_JSON_ARRAY,  /* json_t * */
};

struct pst_json_key {
    const char *name;
    enum pst_json_key_kind kind;
    bool needed;
    bool zero; /* a number may be 0 */
    int most;  /* of a COUNT */
    void *to;  /* where a valid value goes; otherwise it is not changed */
};

/* Reads the keys of the object at `path`. Reports wrong values, keys that are missing, and unknown keys. */
void pst_json_keys(const struct pst_json *doc, struct pst_diag *diag, const json_t *object, const char *path,
                   const struct pst_json_key *keys, size_t n);

/* "path.key", or "key" if path is "". */
void pst_json_join(char out[PST_JSON_PATH_MAX], const char *path, const char *key);

#endif
