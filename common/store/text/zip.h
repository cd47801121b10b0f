/* zip.h: unpacks members of a zip archive (NumPy's .npz): stored or deflated, also zip64.
 * Owner: the caller; open and close pair. Threads: one. */
#ifndef PST_ZIP_H
#define PST_ZIP_H

#include "common/util/progress.h"

PST_BEGIN_DECLS

#define PST_ZIP_MEMBERS_MAX 4096         /* arrays of one .npz */
#define PST_ZIP_DIRECTORY_MAX (4u << 20) /* bytes of the list of members */

struct pst_zip_member {
    char name[256];
    uint64_t at, packed, bytes; /* of its local header; sizes */
    uint32_t crc;
    int method;
};

struct pst_zip {
    char path[4096];
    int fd;
    uint64_t file_bytes;
    struct pst_zip_member *member;
    int members;
};

PST_MUST_USE pst_rc pst_zip_open(struct pst_zip *z, const char *path);
/* NULL: there is none. */
const struct pst_zip_member *pst_zip_find(const struct pst_zip *z, const char *name);
/* Writes the member to a new file and checks its size and CRC. */
PST_MUST_USE pst_rc pst_zip_extract(const struct pst_zip *z, const struct pst_zip_member *m, const char *to,
                                    struct pst_progress *progress);
void pst_zip_close(struct pst_zip *z);

PST_END_DECLS
#endif
