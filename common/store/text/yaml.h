/* yaml.h: reads small YAML files with libyaml. Errors name the line and the column.
 * Owner: load fills what the caller owns; close releases it (after a failed load, too). Threads: one. */
#ifndef PST_YAML_H
#define PST_YAML_H

#include "common/base.h"

PST_BEGIN_DECLS

#define PST_YAML_BRACKETS_MAX                                                                                \
    (16 << 10) /* several for each of 1024 types of edges; half a second, at the worst */
#define PST_YAML_BYTES_MAX (1 << 20) /* descriptions of datasets are a few kilobytes */
#define PST_YAML_KEYS_MAX 1024       /* of one map: they are compared with each other */

struct yaml_document_s;
struct yaml_node_s;
typedef const struct yaml_node_s *pst_yaml_node;

struct pst_yaml {
    char path[4096];
    struct yaml_document_s *document;
};

/* One document whose root is a map. Fails: PST_E_FORMAT with PATH:LINE:COLUMN, also for a key that is there
 * twice. */
PST_MUST_USE pst_rc pst_yaml_load(struct pst_yaml *y, const char *path);
void pst_yaml_close(struct pst_yaml *y);

pst_yaml_node pst_yaml_root(const struct pst_yaml *y);
/* NULL: the map lacks the key, its value is null, or map is NULL or not a map. */
pst_yaml_node pst_yaml_get(const struct pst_yaml *y, pst_yaml_node map, const char *key);
/* Of a list; 0 for anything else. */
int pst_yaml_count(pst_yaml_node list);
pst_yaml_node pst_yaml_at(const struct pst_yaml *y, pst_yaml_node list, int index);
/* The text of a plain value; NULL: it is a list, a map or nothing. */
const char *pst_yaml_scalar(pst_yaml_node node);

/* map's key as text of 1 to room - 1 bytes; "" where it is absent and not needed. */
PST_MUST_USE pst_rc pst_yaml_text(const struct pst_yaml *y, pst_yaml_node map, const char *key, bool needed,
                                  char *out, size_t room);
/* map's key as an integer of low or more; *out stays where it is absent and not needed. */
PST_MUST_USE pst_rc pst_yaml_int(const struct pst_yaml *y, pst_yaml_node map, const char *key, bool needed,
                                 int64_t low, int64_t *out);
/* Fails with PATH:LINE:COLUMN: message. */
pst_rc pst_yaml_fail(const struct pst_yaml *y, pst_yaml_node node, const char *fmt, ...) PST_PRINTF(3, 4);

PST_END_DECLS
#endif
