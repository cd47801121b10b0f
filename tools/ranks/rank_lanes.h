/* rank_lanes.h: the threads of penstock-ranks that carry what the replicas of this rank give to replicas of
 * other ranks, and what they get from there (common/collective/carried.h). A lane is the thread of one
 * replica.
 *
 * Owner: the program, which has one struct ranks. Threads: a lane belongs to its thread. Any thread may call
 * MPI while it holds the mutex `mpi`, with calls that do not wait. */
#ifndef PST_RANKS_RANK_LANES_H
#define PST_RANKS_RANK_LANES_H

#include <jansson.h>
#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>

#include "common/collective/carried.h"
#include "common/ipc/board.h"
#include "common/ipc/region.h"
#include "common/stage.h"
#include "common/util/memory.h"

#define LANES_MAX (2 * PST_REPLICAS_MAX)
#define ALARM LANES_MAX         /* the tag of the message that a rank has failed */
#define FACTS_BYTES (64 * 1024) /* of a rank, as JSON */

enum kind { DATA = 1, LEFT };

#define HEAD_BYTES 16
struct message {
    uint32_t kind, reason; /* of LEFT: enum pst_run_reason, or a signal; 0: the end of the run */
    uint64_t bytes;        /* of data */
    char data[PST_COLLECTIVE_BOX];
};
static_assert(offsetof(struct message, data) == HEAD_BYTES, "no gaps");

struct ranks;
struct lane {
    struct ranks *all;
    struct pst_collective *member; /* NULL: it has left */
    pthread_t thread;
    int number, tag; /* of its replica in the meeting; of its messages, and its communicator */
    struct message in, out;
    uint64_t give[PST_REPLICAS_MAX], take[PST_REPLICAS_MAX]; /* items for each rank, and from it */
    struct pst_memory_buffer sends, gets;                    /* these items */
    bool counted_out;            /* a replica has said in `give` that it has left */
    char why[512];               /* it failed */
    bool left[PST_REPLICAS_MAX]; /* ranks that have said so */
    uint64_t messages, sent_bytes;
    uint64_t tree_bytes, item_bytes; /* parts of sent_bytes: exchanges of two; items */
};

struct ranks {
    void *zmq, *control;
    int rank, ranks;
    bool joined;                /* all ranks run the same */
    char (*facts)[FACTS_BYTES]; /* of all ranks */
    struct pst_region map;
    struct pst_board *board;
    const char *names[2 * PST_REPLICAS_MAX];
    json_t *carry; /* has the names */
    struct lane *lanes[LANES_MAX];
    MPI_Comm comm[LANES_MAX]; /* of each lane */
    int nlanes, ncomms, members;
    pthread_mutex_t mpi;
    _Atomic int running;
    _Atomic(struct lane *) failed; /* its `why` says why; NULL: none has */
    _Atomic uint32_t reason;       /* why another rank has left early; 0: none has */
    _Atomic int who;
};

/* Has the supervisor told all stages of this rank to end at once? */
bool lanes_must_end(const struct ranks *r);

/* Starts the lanes of all replicas: {"board": path, "bytes", "members", "meetings": [{"at", "names"}]}. r has
 * joined the other ranks, and has as many communicators as there are replicas that meet. PST_E_PEER,
 * PST_E_NOMEM, PST_E_LIMIT. */
pst_rc lanes_start(struct ranks *r, json_t *message);

#endif
