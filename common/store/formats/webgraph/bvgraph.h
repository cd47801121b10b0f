/* bvgraph.h: reads WebGraph's BVGraph (Boldi and Vigna, "The WebGraph Framework I", WWW 2004): NAME.graph and
 * NAME.properties, node after node, without its offsets.
 * Owner: the caller; open and close pair. Threads: one per graph. */
#ifndef PST_BVGRAPH_H
#define PST_BVGRAPH_H

#include "common/base.h"

PST_BEGIN_DECLS

#define PST_BVGRAPH_WINDOW_MAX 1024 /* lists that are kept to copy from; WebGraph's default is 7 */

struct pst_bvgraph {
    char path[4096]; /* of NAME.graph */
    int64_t nodes, arcs, window, interval, zeta_k;
    int codes[5]; /* of outdegrees, blocks, residuals, references, block counts */
    int fd;
    unsigned char *buffer;
    uint64_t buffer_at; /* byte of the file where the buffer begins */
    size_t fill;
    uint64_t bit, bits; /* next bit, and how many the file has */
    bool past_end;
    int64_t node; /* that next gives */
    int64_t given;
    struct pst_bv_list {
        int64_t *id;
        int64_t n, room;
    } * list; /* window + 1, by node modulo that */
    struct pst_bv_list scratch;
    uint64_t memory_used, memory_bytes;
};

/* path: NAME, NAME.graph or NAME.properties. memory_bytes bounds the window's lists. */
PST_MUST_USE pst_rc pst_bvgraph_open(struct pst_bvgraph *g, const char *path, uint64_t memory_bytes);

/* The successors of the next node, ascending; valid until the next call. Fails: PST_E_FORMAT with node and
 * bit. */
PST_MUST_USE pst_rc pst_bvgraph_next(struct pst_bvgraph *g, const int64_t **successors, int64_t *n);
void pst_bvgraph_close(struct pst_bvgraph *g);

PST_END_DECLS
#endif
