/* journal.h: a file that records how far a long build is, so that a killed build can go on. The file is
 * replaced by a rename and holds its own checksum. So a reader finds the old one or the new one, never a part
 * of one. Owner: the caller; open or begin, then release. A journal without a root records nothing. Threads:
 * one. */
#ifndef PST_JOURNAL_H
#define PST_JOURNAL_H

#include <jansson.h>

#include "common/base.h"

PST_BEGIN_DECLS

#define PST_JOURNAL_FILE "temp-journal.json"
#define PST_JOURNAL_SECONDS 10 /* of work that a kill costs at most, about */

struct pst_journal {
    char dir[4096];
    json_t *root; /* an object; NULL: nothing is recorded */
    double every_s, saved_at;
    bool held; /* save does nothing: what belongs together is not noted yet */
};

/* Of a build that begins: key says what it is made from. Takes key. */
PST_MUST_USE pst_rc pst_journal_begin(struct pst_journal *j, const char *dir, json_t *key);

/* Reads the one in dir; root stays NULL when there is none or it is damaged. */
void pst_journal_open(struct pst_journal *j, const char *dir);
PST_MUST_USE pst_rc pst_journal_save(struct pst_journal *j);
bool pst_journal_due(const struct pst_journal *j); /* enough time has passed since the last save */
void pst_journal_release(struct pst_journal *j);

/* Adds the identity of a file, or of every file below a directory, to sources (path: identity). Fails:
 * PST_E_LIMIT past 100,000 files. */
PST_API PST_MUST_USE pst_rc pst_journal_sources_add(json_t *sources, const char *path);

/* One short text of the paths, sizes and times of all sources: it changes when they do. */
#define PST_JOURNAL_IDENTITY_BYTES 17
PST_API void pst_journal_sources_identity(const json_t *sources, char out[PST_JOURNAL_IDENTITY_BYTES]);

PST_END_DECLS
#endif
