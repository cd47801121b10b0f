/* name_map.h: reads files of "NAME NUMBER" lines.
 * Owner: none. Threads: one call per file. */
#ifndef PST_NAME_MAP_H
#define PST_NAME_MAP_H

#include "common/store/names/dict.h"

PST_BEGIN_DECLS

#define PST_NAME_MAP_MAX INT32_MAX /* names of one file */

struct pst_name_map_spec {
    const char *path;              /* text: plain, gzip or zstd */
    char separator;                /* ',': the last of a line; '\t': the first */
    bool counted;                  /* the first line is how many there are */
    int64_t n;                     /* that there must be, unless counted */
    struct pst_problems *warnings; /* what was repaired */
};

/* Names in the order of their numbers, each of 0 to n - 1 once; out is a dictionary without names, whose
 * memory bound holds twice. Fails: PST_E_FORMAT with PATH:LINE: byte, PST_E_LIMIT. */
PST_MUST_USE pst_rc pst_name_map_read(const struct pst_name_map_spec *spec, struct pst_dict *out);

/* The same where every name is an integer of 0 or more, to an array of n; *integers false: some name is
 * none. */
PST_MUST_USE pst_rc pst_name_map_read_ids(const struct pst_name_map_spec *spec, int64_t *ids, bool *integers);

PST_END_DECLS
#endif
