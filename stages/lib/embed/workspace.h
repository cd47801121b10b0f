/* workspace.h: the memory and the threads of steps and ranks. Buffers grow and keep what they have; their
 * contents last for one call. Owner, threads: embed.h. */
#ifndef PST_EMBED_WORKSPACE_H
#define PST_EMBED_WORKSPACE_H

#include "stages/lib/embed/embed.h"
#include "common/util/team.h"

struct buffer {
    void *at;
    size_t bytes;
};

struct scratch { /* of a worker */
    struct buffer x, xt, scores, g, q, dq, anchor, keep, f, tops, sums, first;
};

struct pst_embed_workspace {
    struct pst_team *team;
    struct scratch scratch[PST_TEAM_MAX];
    struct buffer vertex_entries, relation_entries; /* gradients */
    struct buffer start, entry, row, losses;
};

/* Room for count items, and at least one. False: out of memory. */
bool pst_embed_grow(struct buffer *b, int64_t count, size_t size);

#endif
