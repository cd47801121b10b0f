/* sampling_impl.h: the state of a sampler stage, which sampling.c and lists.c share. Owner: sampling.c.
 * Threads: the stage's own. */
#ifndef PST_SAMPLING_IMPL_H
#define PST_SAMPLING_IMPL_H

#include "stages/lib/cache/cache_rows.h"
#include "stages/lib/sampling/draft.h"
#include "stages/lib/sampling/fill_device.h"
#include "stages/lib/sampling/sampling.h"
#include "stages/lib/sampling/cut.h"
#include "stages/lib/topology/lists.h"

/* A batch of which some seeds are still to be sampled. */
struct pst_sampling_pending {
    bool used;
    bool overflowed; /* some sample of it did not fit */
    uint64_t batch;
    uint32_t micro;      /* the next */
    int64_t n, n_of_all; /* of its seeds; of those of all replicas */
    int64_t *seeds;
    struct pst_splits pieces;
};

/* A slot that is being filled. */
struct pst_sampling_filled {
    struct pst_sampling *sampling;
    struct pst_credit credit;
    struct pst_credit credit_cached; /* of the slot for its cached rows, if these have a port */
    bool last_micro;                 /* it gets the last piece of its batch */
};

/* A batch that a GPU samples. */
struct pst_sampling_flight {
    struct pst_sampling_pending *of; /* NULL: none */
    struct pst_sampling_filled filled;
    bool empty; /* other replicas have all seeds, so nothing is sampled */
    struct pst_fill_device_flight work;
};

/* The batches that a GPU samples (ahead.c). */
struct pst_sampling_ahead {
    int depth; /* at most so many at a time */
    struct pst_sampling_flight flight[PST_EXPAND_DEVICE_LANES];
    struct pst_credit credit[PST_EXPAND_DEVICE_LANES], credit_cached[PST_EXPAND_DEVICE_LANES];
    int ncredits, ncredits_cached; /* that wait for the other port's */
    bool idle;                     /* no credit has come since the timer fired */
};

struct pst_sampling {
    struct pst_stage *self;
    const struct pst_sampling_params *params;
    int port;   /* batch, or sample */
    bool bare;  /* it is sample: slots have no rows */
    int trace;  /* the file of ids; -1: none */
    int cached; /* the port of cached rows; -1: they go to the batch's slots */
    struct pst_sampling_input in;
    struct pst_splits_share share; /* of the seeds of a batch, that this replica samples */
    int64_t grain;                 /* the number of its first grain, among those of all replicas */
    bool planned;
    bool other_plan; /* the plan was made for another algorithm */
    struct pst_plan plan;
    struct pst_minibatch_size base; /* the size at margin 1 */
    struct pst_filler filler;
    struct pst_sampling_pairs pairs; /* if seeds are edges */
    struct pst_cache_rows cache;
    struct pst_topology_lists cached_lists; /* if lists are read from drives */
    struct pst_sampling_resident resident;  /* of a clique, if the plan has shared caches; else members 0 */
    struct pst_sampling_draft *resident_draft;           /* on a CPU: the micro-batch that is made with it */
    struct pst_sampling_resident_device resident_device; /* on a GPU: its memory */
    struct pst_sampling_draft_counts resident_counts;
    bool cache_owner; /* false: another instance has loaded rows and lists, and reports them */
    struct pst_device device;
    struct pst_filler_device device_filler; /* on a GPU */
    bool topology_in_place;
    void *topology_memory; /* topology "memory": the copy of the graph */
    uint32_t npending;     /* one for each slot of the route */
    struct pst_sampling_pending *pending;
    int64_t *seed_memory, *end_memory;
    struct pst_sampling_filled now; /* the slot that a CPU fills, unless lists are read from drives */
    struct pst_sampling_ahead ahead;
    struct pst_sampling_lists *lists; /* reads the topology from drives; NULL: it is in memory */
    bool early; /* announce rows hop by hop: the last batch fitted, so this one probably does */
    bool warned;
    int measured;         /* batches that did not fit */
    double margin_needed; /* by the largest of them; 0: not known */
    struct {
        uint64_t batches, micro_batches, empty, samples, overflows, hits, gpu_hits, in_place, lookups;
        double seeds_s; /* time spent ordering them */
    } count;
};

/* What sampling.c does for all ways to fill a slot. The batch of a credit, which may begin with it.
 * PST_E_STATE: the stage did not ask for it. */
PST_MUST_USE pst_rc pst_sampling_batch_of(struct pst_sampling *s, const struct pst_credit *credit,
                                          struct pst_sampling_pending **of);
/* The address of a credit's slot, which must have `want` bytes. */
PST_MUST_USE pst_rc pst_sampling_slot_of(struct pst_sampling *s, const struct pst_credit *credit,
                                         uint64_t want, void **slot);
/* Ends a batch of which other replicas have all seeds, by an empty slot. */
PST_MUST_USE pst_rc pst_sampling_send_empty(struct pst_sampling *s, struct pst_sampling_pending *p,
                                            struct pst_sampling_filled *filled);
/* The next piece of the batch, as a job. */
struct pst_fill_job pst_sampling_next_job(const struct pst_sampling *s, const struct pst_sampling_pending *p);
/* Sends a part of a slot. `to` is its struct pst_sampling_filled. */
pst_rc pst_sampling_send_part(void *to, uint32_t part, uint64_t first_at, uint64_t count, bool last);
/* A piece was sampled. *again: it did not fit, nothing was announced, and the slot is free for a smaller
 * piece. Otherwise the slot was sent, and the batch goes on with its next piece in another slot. */
PST_MUST_USE pst_rc pst_sampling_end_piece(struct pst_sampling *s, struct pst_sampling_pending *p,
                                           const struct pst_fill_job *job, struct pst_sampling_filled *filled,
                                           const struct pst_fill_result *result, bool *again);

/* input.c: reads the plan, if there is one; then, when s->in is open, checks that the plan is for these
 * inputs. *path: of the plan. */
PST_MUST_USE pst_rc pst_sampling_read_plan(struct pst_sampling *s, const char **path);
PST_MUST_USE pst_rc pst_sampling_check_plan(struct pst_sampling *s, const char *path);
/* input.c: opens s->pairs, if seeds are edges. PST_E_UNSUPPORTED: together with another setting. PST_E_LIMIT,
 * PST_E_NOMEM. */
PST_MUST_USE pst_rc pst_sampling_open_pairs(struct pst_sampling *s);
/* input.c: the layout of a slot, and the rest of the filler that depends on the dataset. Says so in the log.
 */
void pst_sampling_size_slots(struct pst_sampling *s);

/* ahead.c: how a sampler on a GPU fills slots. The first is called when the ports are open. */
void pst_sampling_ahead_open(struct pst_sampling *s);
PST_MUST_USE pst_rc pst_sampling_ahead_event(struct pst_sampling *s, const struct pst_event *event);

/* load_tiers.c: the rows and lists that the plan caches. The first says in `size` how much memory several
 * instances share. The second loads rows and, in a thread at the same time, lists. If another instance has
 * loaded them, it maps them. It releases the plan. */
PST_MUST_USE pst_rc pst_sampling_tiers_share(struct pst_sampling *s);
bool pst_sampling_keeps_in_place(const struct pst_sampling *s); /* do cached rows stay in the cache? */
PST_MUST_USE pst_rc pst_sampling_tiers_load(struct pst_sampling *s);
/* load_tiers.c, with the caches of a clique. The first is called when the filler is ready. The second makes a
 * micro-batch like pst_sampling_fill. */
PST_MUST_USE pst_rc pst_sampling_clique_open(struct pst_sampling *s);
PST_MUST_USE pst_rc pst_sampling_clique_fill(struct pst_sampling *s, const struct pst_fill_job *job,
                                             void *slot, struct pst_fill_result *result);

/* lists.c: slots whose lists are read from drives. There are as many drafts as slots of the route `batch`. */
PST_MUST_USE pst_rc pst_sampling_lists_size(struct pst_sampling *s);
PST_MUST_USE pst_rc pst_sampling_lists_open(struct pst_sampling *s);
/* A slot was granted for the next piece of a batch. */
PST_MUST_USE pst_rc pst_sampling_lists_fill(struct pst_sampling *s, struct pst_sampling_pending *p,
                                            const struct pst_credit *credit, void *slot);
/* A slot for lists was granted, or came back with what it asked for. */
PST_MUST_USE pst_rc pst_sampling_lists_event(struct pst_sampling *s, const struct pst_event *event);
bool pst_sampling_lists_has_port(const struct pst_sampling *s, int port);
PST_MUST_USE pst_rc pst_sampling_lists_report(const struct pst_sampling *s);
void pst_sampling_lists_close(struct pst_sampling *s);

/* report.c: adds the counts and times to the report. A failure goes to the log. */
void pst_sampling_report(struct pst_sampling *s);

#endif
