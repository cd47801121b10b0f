/* inputs.h: the trainer's two inputs. A batch's frame comes through the disk stage. On a GPU, the slot of
 * its cached rows can come by itself, from the sampler or the cache, and has room for the missing rows.
 * Frames are paired here, and what a step reads is brought to the GPU.
 *
 * Owner: the trainer, which lends its device. Threads: one. */
#ifndef PST_INPUTS_H
#define PST_INPUTS_H

#include "common/slots/minibatch.h"
#include "common/stage.h"
#include "stages/lib/gnn/model.h"

enum pst_trainer_input { PST_INPUTS_BATCH, PST_INPUTS_CACHED, PST_INPUTS };

/* Frames that wait for the other input's: a ring, as large as the route has slots. */
struct pst_inputs_waiting {
    struct pst_frame *frame;
    uint32_t room, first, n;
};

struct pst_inputs {
    struct pst_stage *self;
    struct pst_device *device;
    int port[PST_INPUTS];
    bool cached;       /* the input `cached` is linked */
    const void *cache; /* where rows may have stayed (minibatch.h: in_place); NULL: nowhere */
    uint64_t cache_bytes;
    struct pst_inputs_waiting waiting[PST_INPUTS];
    int ended;
    char *staging; /* on a GPU: copies of a slot's arrays, at the slot's offsets; NULL on a CPU */
    uint64_t staging_bytes;
    uint64_t rows_brought,
        rows_cached; /* rows copied from slots in host memory; rows that were already on the GPU */
};

/* A micro-batch that has come: its frame and slot, and those of its cached rows if that input is linked. */
struct pst_inputs_given {
    struct pst_frame frame, cached;
    const void *slot;
    char *rows; /* the slot of cached rows; NULL: all rows are in `slot` */
    uint64_t rows_bytes;
    struct pst_gnn_batch batch; /* mb: a checked copy of the slot's header. The rest: pst_inputs_bring */
};

PST_MUST_USE pst_rc pst_inputs_open(struct pst_inputs *in, struct pst_stage *self, struct pst_device *device);
/* How many bytes of staging there will be: a whole slot, but without the features if they have a slot of
 * their own. */
uint64_t pst_inputs_staged(const struct pst_inputs *in);
/* Takes the staging. On a GPU, after the device has its queue. */
PST_MUST_USE pst_rc pst_inputs_stage(struct pst_inputs *in);
void pst_inputs_close(struct pst_inputs *in);

/* Keeps a frame that has its last part. PST_E_PEER: more frames than the route has slots. */
PST_MUST_USE pst_rc pst_inputs_note(struct pst_inputs *in, const struct pst_event *event);
/* *any: both inputs have a frame; the oldest two go to given->frame and given->cached. PST_E_PEER: they
 * are not of the same micro-batch. */
PST_MUST_USE pst_rc pst_inputs_next(struct pst_inputs *in, struct pst_inputs_given *given, bool *any);
/* Frees the slots of a batch that is done. With overlap, the step has freed the batch's own already. */
PST_MUST_USE pst_rc pst_inputs_let_go(struct pst_inputs *in, const struct pst_inputs_given *given);
/* Call when an input has ended. True: it was the last one. */
bool pst_inputs_end(struct pst_inputs *in);

/* Points the arrays of given->batch at the slot, and at the cache that rows have stayed in. On a GPU, copies
 * them to the staging first and points there. PST_E_PEER: an array lies behind the staging, or there are more
 * rows than their slot holds. */
PST_MUST_USE pst_rc pst_inputs_bring(struct pst_inputs *in, struct pst_inputs_given *given);

#endif
