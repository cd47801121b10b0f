/* inputs.h: the trainer's two inputs. A batch's frame comes through the disk; on a GPU the slot of its cached
 * rows may come by itself, from the sampler, and has room for the missing ones. Frames are paired here, and
 * what a step reads of slots is brought to the GPU. Owner: the trainer, which borrows its device. Threads:
 * one. */
#ifndef PST_INPUTS_H
#define PST_INPUTS_H

#include "common/slots/minibatch.h"
#include "common/stage.h"
#include "stages/lib/gnn/model.h"

enum pst_trainer_input { PST_INPUTS_BATCH, PST_INPUTS_CACHED, PST_INPUTS };

/* Frames that wait for those of the other input: a ring, as large as the route has slots. */
struct pst_inputs_waiting {
    struct pst_frame *frame;
    uint32_t room, first, n;
};

struct pst_inputs {
    struct pst_stage *self;
    struct pst_device *device;
    int port[PST_INPUTS];
    bool cached; /* that input is linked */
    struct pst_inputs_waiting waiting[PST_INPUTS];
    int ended;
    char *staging; /* on a GPU: what is brought of a slot, at the slot's offsets; NULL on a CPU */
    uint64_t staging_bytes;
    uint64_t rows_brought, rows_cached; /* from slots in the host's memory; already there */
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
/* On a GPU, once the device has its queue. */
PST_MUST_USE pst_rc pst_inputs_stage(struct pst_inputs *in);
void pst_inputs_close(struct pst_inputs *in);

/* Notes a frame with its last part. PST_E_PEER: more than there are slots. */
PST_MUST_USE pst_rc pst_inputs_note(struct pst_inputs *in, const struct pst_event *event);
/* The next for which all has come, in frame and cached: *any. PST_E_PEER: the two are not of one micro-batch.
 */
PST_MUST_USE pst_rc pst_inputs_next(struct pst_inputs *in, struct pst_inputs_given *given, bool *any);
/* An input has ended; true: the last one. */
bool pst_inputs_end(struct pst_inputs *in);

/* Points the arrays of given->batch at the slot. On a GPU: at the staging, to which it copies them first.
 * PST_E_PEER: an array lies behind the staging, or there are more rows than their slot holds. */
PST_MUST_USE pst_rc pst_inputs_bring(struct pst_inputs *in, struct pst_inputs_given *given);

#endif
