/* checkpoint.h: tensors and a few strings in one safetensors file that is either whole or refused.
 *
 * The file is the safetensors format: u64 header bytes, a JSON header, then the tensors' bytes without
 * gaps. Strings are in the header's __metadata__; one of them, "checksum", is the XXH3-64 of the header
 * (with that checksum's digits as zeros) and of all tensor bytes. Any safetensors reader can load it.
 * A file from the program of a foreign stage may have "crc32" instead: the CRC-32 of the same bytes, as eight
 * hexadecimal digits.
 *
 * Owner: pst_checkpoint_open fills what the caller owns; pst_checkpoint_close releases it. Threads: one at
 * a time for each open checkpoint; different ones are independent. */
#ifndef PST_CHECKPOINT_H
#define PST_CHECKPOINT_H

#include "common/base.h"
#include "common/store/store.h"

PST_BEGIN_DECLS

#define PST_CHECKPOINT_TENSORS_MAX 512       /* weights and two moments of the deepest model, thrice */
#define PST_CHECKPOINT_HEADER_MAX (4u << 20) /* far above what so many tensors and strings take */
#define PST_CHECKPOINT_SUFFIX ".safetensors"
#define PST_CHECKPOINT_RUN "run" /* the string that pst_run_identity gives (stage.h) */

struct pst_tensor {
    char name[PST_NAME_MAX];
    enum pst_dtype dtype;
    int rank; /* 1 or 2 */
    int64_t shape[2];
    const void *data; /* shape[0] (* shape[1]) elements */
};

struct pst_checkpoint_text {
    const char *key, *value; /* UTF-8 */
};

/* Replaces path whole or not at all (pst_file_new): a crash leaves the old file or the new one. */
PST_API PST_MUST_USE pst_rc pst_checkpoint_write(const char *path, const struct pst_tensor *tensors, size_t n,
                                                 const struct pst_checkpoint_text *texts, size_t ntexts);

struct pst_checkpoint {
    char path[4096];
    int fd;
    void *header; /* the parsed JSON */
    uint64_t data_at, data_bytes;
};

/* Opens, checks every size and offset, and reads the whole file once for its checksum. PST_E_FORMAT: it is
 * torn, damaged or something else; the text says which. */
PST_API PST_MUST_USE pst_rc pst_checkpoint_open(struct pst_checkpoint *ck, const char *path);
PST_API void pst_checkpoint_close(struct pst_checkpoint *ck);

/* The string under key, valid until close; NULL with pst_fail if there is none. */
PST_API const char *pst_checkpoint_text(const struct pst_checkpoint *ck, const char *key);
PST_API PST_MUST_USE pst_rc pst_checkpoint_u64(const struct pst_checkpoint *ck, const char *key,
                                               uint64_t *out);
PST_API PST_MUST_USE pst_rc pst_checkpoint_real(const struct pst_checkpoint *ck, const char *key,
                                                double *out);

/* Finds a tensor by name: its dtype and shape (data stays NULL), and the byte of the file where it begins,
 * for those who map the file. */
PST_API PST_MUST_USE pst_rc pst_checkpoint_find(const struct pst_checkpoint *ck, const char *name,
                                                struct pst_tensor *out, uint64_t *at);

/* Reads the tensor of this name, which must have this dtype and shape, to out. */
PST_API PST_MUST_USE pst_rc pst_checkpoint_read(const struct pst_checkpoint *ck,
                                                const struct pst_tensor *like, void *out);

/* The path of checkpoint `number` in dir: DIR/00000042.safetensors. */
PST_API void pst_checkpoint_path(const char *dir, uint64_t number, char *path, size_t size);

/* The numbers of the files in dir that are named like checkpoints, ascending; at most max of the highest.
 * Returns how many; 0 if dir is not there. */
PST_API size_t pst_checkpoint_list(const char *dir, uint64_t *numbers, size_t max);

/* The path of the newest checkpoint in dir that verifies. skipped (if not NULL) gets a line for each newer
 * one that does not, and why. PST_E_STATE: there is none. */
PST_API PST_MUST_USE pst_rc pst_checkpoint_latest(const char *dir, char *path, size_t size, char *skipped,
                                                  size_t skipped_size);

PST_END_DECLS
#endif
