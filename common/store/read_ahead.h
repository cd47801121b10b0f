/* read_ahead.h: reads pieces of a file, in any order. A thread reads the next piece while the caller uses
 * this one. Reads are direct, so they do not use the page cache. A file system without direct reads gives
 * them through the page cache, which then drops them.
 *
 * Owner: pst_read_ahead_close releases what ..._open allocated. Threads: one uses it. */
#ifndef PST_READ_AHEAD_H
#define PST_READ_AHEAD_H

#include "common/base.h"

PST_BEGIN_DECLS

struct pst_read_ahead;

/* most: bytes of the largest piece; memory holds two pieces. PST_E_IO, PST_E_NOMEM. */
PST_API PST_MUST_USE pst_rc pst_read_ahead_open(struct pst_read_ahead **a, const char *path, uint64_t most);
PST_API void pst_read_ahead_close(struct pst_read_ahead *a); /* accepts NULL */

/* Begins to read `bytes` bytes of the file from byte `at` on. Take this piece before you ask for another. */
PST_API void pst_read_ahead_ask(struct pst_read_ahead *a, uint64_t at, uint64_t bytes);

/* Waits for the piece that was asked for. It stays in memory until the next piece is taken. *bytes: of it;
 * fewer than were asked for if the file ends before. PST_E_IO. */
PST_API PST_MUST_USE pst_rc pst_read_ahead_take(struct pst_read_ahead *a, const char **piece,
                                                uint64_t *bytes);

PST_END_DECLS
#endif
