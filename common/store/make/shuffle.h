/* shuffle.h: random permutations without a table. Owner: the caller; plain memory. Threads: pure functions.
 */
#ifndef PST_SHUFFLE_H
#define PST_SHUFFLE_H

#include "common/base.h"

#define PST_SHUFFLE_ROUNDS 6 /* four are enough to look random; six to be sure */

/* A random permutation of 0..n-1 without a table: a Feistel network over the smallest even number of bits
 * that holds n, walked until it falls inside (Black and Rogaway, CT-RSA 2002). */
struct pst_shuffle {
    uint64_t n;
    int half; /* bits of each side */
    uint64_t key[PST_SHUFFLE_ROUNDS];
};
PST_API void pst_shuffle_init(struct pst_shuffle *s, int64_t n, uint64_t seed, int stream);
PST_API int64_t pst_shuffle_at(const struct pst_shuffle *s, int64_t i);

#endif
