/* edge_names.h: gives edges between names to the topology. Edges pass through memory while all names fit;
 * then they are put aside (names.h) until all are read. Owner: edge_text.c. Threads: one. */
#ifndef PST_EDGE_NAMES_H
#define PST_EDGE_NAMES_H

#include <stdio.h>

#include "common/store/build/csc_builder.h"
#include "common/store/names/names.h"

#define PST_EDGE_NAMES_BATCH 4096 /* of a block: their names stay in the cache */
#define PST_EDGE_NAMES_PLAIN_BYTES                                                                           \
    (4 * (PST_NAMES_BYTES_MAX + 1)) /* room for names of a block that are not as the file has them */

struct pst_edge_names_spec {
    struct pst_csc_builder *csc;
    struct pst_progress *progress;
    uint64_t memory_bytes;
    int hash_bits;
    bool swapped;                /* a line has the target before the source */
    json_t *(*state)(void *ctx); /* of who reads the edges; this one's is added to it as "names" */
    void *ctx;
    const char *path; /* for messages */
};

struct pst_edge_names {
    struct pst_edge_names_spec spec;
    struct pst_names *names;
    bool replaying;  /* edges come again that were read before a kill; those in the topology are not added
                        again */
    bool text_again; /* a replay is needed */
    int64_t joined;  /* edges put aside that the topology has */
    FILE *weights;   /* of edges that were put aside, in their order; NULL: there are none */
    size_t n;        /* of the block: mentions */
    size_t plain_fill;
    struct pst_name
        mention[2 * PST_EDGE_NAMES_BATCH]; /* as a line has them; they point to the text, or to plain */
    int64_t id[2 * PST_EDGE_NAMES_BATCH], source[PST_EDGE_NAMES_BATCH], target[PST_EDGE_NAMES_BATCH];
    char plain[PST_EDGE_NAMES_PLAIN_BYTES];
};

/* Goes on from the state of spec->csc where it has names; then text_again says whether the edges before it
 * have to come again (until pst_edge_names_replayed, or up to that place). */
PST_MUST_USE pst_rc pst_edge_names_new(struct pst_edge_names **out, const struct pst_edge_names_spec *spec);

static inline bool pst_edge_names_full(const struct pst_edge_names *e)
{
    return e->n == 2 * PST_EDGE_NAMES_BATCH ||
           e->plain_fill > PST_EDGE_NAMES_PLAIN_BYTES - 2 * PST_NAMES_BYTES_MAX;
}

static inline void pst_edge_names_put(struct pst_edge_names *e, const char *text, size_t bytes)
{
    assert(e->n < 2 * PST_EDGE_NAMES_BATCH);
    e->mention[e->n++] = (struct pst_name){text, (uint32_t)bytes};
}

/* The block's edges to the topology, or aside; before the text that mentions point to is gone. */
/* weight: of each edge (pst_csc_builder_weight); NULL: they have none. An import with weights cannot be
 * resumed: weights that were put aside are not noted. */
PST_MUST_USE pst_rc pst_edge_names_flush(struct pst_edge_names *e, const int32_t *weight);
bool pst_edge_names_replayed(const struct pst_edge_names *e);
bool pst_edge_names_read(const struct pst_edge_names *e); /* all edges were read before a kill */
/* The replay is over. Fails: PST_E_STATE when it did not bring the names that were there. */
PST_MUST_USE pst_rc pst_edge_names_go_on(struct pst_edge_names *e);

PST_MUST_USE pst_rc pst_edge_names_checkpoint(struct pst_edge_names *e, enum pst_csc_builder_when when);

/* All edges were read: writes the arrays of names, and gives the topology what was put aside. *vertices: -1,
 * or what there must be, else it fails (PST_E_FORMAT); out, how many names there are. */
PST_MUST_USE pst_rc pst_edge_names_finish(struct pst_edge_names *e, int64_t *vertices);
/* The arrays of names were finished before a kill, and all edges were in the topology: how many names there
 * are. Fails: PST_E_STATE when an array is not what the journal says. */
PST_MUST_USE pst_rc pst_edge_names_had(struct pst_build *b, int64_t *vertices);
void pst_edge_names_free(struct pst_edge_names *e);

#endif
