/* bf16.h: a product of bfloat16 matrices with sums in float32, for bf16.c. libpenstock-onednn.so
 * exports it. Owner: none. Threads: any; each thread keeps its own primitives. */
#ifndef PST_ONEDNN_BF16_H
#define PST_ONEDNN_BF16_H

#include <stdint.h>

#include "common/base.h"

/* The shape of C(m,n) = A(m,k) B(k,n), or of C += A B if it adds. A is stored by rows, and if ta, as its
 * transpose; the same for B and tb. The matrices A and B have no gaps; the rows of C are ldc floats apart. */
struct pst_onednn_shape {
    int64_t m, n, k, ldc;
    int ta, tb, adds; /* 0 or 1 */
    int blocked;      /* 1: B is stored in blocks; tb is then 0. It is slow unless ldc is n */
};

/* The form in which AMX and AVX512_BF16 multiply by B. oneDNN copies a B of another form into this one at
 * each product. B is divided into blocks of PST_ONEDNN_ROWS rows by PST_ONEDNN_COLUMNS columns. Its last
 * blocks are filled up with zeros. First come all blocks of the first columns, from top to bottom. In a
 * block, each two rows follow each other, and their elements alternate: (0,0) (1,0) (0,1) (1,1) ... */
#define PST_ONEDNN_ROWS 32
#define PST_ONEDNN_COLUMNS 64

/* On one thread. Returns oneDNN's status: 0 is success; 3 means that this CPU has no such product. */
typedef int (*pst_onednn_bf16_fn)(const struct pst_onednn_shape *shape, const uint16_t *a, const uint16_t *b,
                                  float *c);
PST_API int pst_onednn_bf16(const struct pst_onednn_shape *shape, const uint16_t *a, const uint16_t *b,
                            float *c);
#define PST_ONEDNN_BF16_SYMBOL "pst_onednn_bf16"

/* 1: this oneDNN multiplies fast by a B in blocks on this CPU. 0: it does not, so B must be stored by rows.
 */
typedef int (*pst_onednn_blocks_fn)(void);
PST_API int pst_onednn_blocks(void);
#define PST_ONEDNN_BLOCKS_SYMBOL "pst_onednn_blocks"

#endif
