/* stage.h: the SDK. The one header that a stage's author reads.
 *
 * A stage is a shared object that exports `const struct pst_stage_desc pst_stage`. Its host
 * (penstock-stage) allocates desc->state_bytes of zeroed state, then calls, always on one thread:
 *
 *     size      parameters, dataset and one-shot inputs are known: say how large slots must be
 *     open      regions are mapped: allocate what the run needs (nothing allocates after this)
 *     on_event  a frame came, a credit was granted, an input ended, a descriptor or timer fired
 *     close     always called once if size was called, also after an error
 *
 * A slot is yours from the credit (or from the frame that carries it with PST_LAST_PART) until you send
 * it on (with PST_LAST_PART) or release it. You may keep several and finish them in any order. A stage
 * that returns anything but PST_OK, having called pst_fail, ends the run with that message.
 *
 * A stage that is placed on a GPU (pst_device_of) gets slots that its kernels can use at the same addresses.
 * What it gets is there; what its kernels write must be there before the frame that tells of it is sent, and
 * what they read they must have read before the slot is sent or released. To wait for neither, see
 * pst_stream. stages/README.md has the walk-through; stages/passthrough.c is the smallest example. */
#ifndef PST_STAGE_H
#define PST_STAGE_H

#include "common/base.h"
#include "common/error.h"

PST_BEGIN_DECLS

#define PST_STAGE_ABI 1

struct pst_stage; /* one running instance of a stage; owned by its host */

/* ---- what a stage says of itself ---------------------------------------------------------------- */

enum pst_dir { PST_IN, PST_OUT };

enum pst_port_flag {
    PST_PORT_ONESHOT = 1u << 0,  /* carries one path once, before the receivers are sized (a plan) */
    PST_PORT_OPTIONAL = 1u << 1, /* may be left unlinked */
    PST_PORT_ORDERED = 1u << 2,  /* IN: frames are delivered in (batch, micro, part) order */
    PST_PORT_WRITES = 1u << 3,   /* IN: this stage changes the slot's bytes */
    PST_PORT_RETURNS = 1u << 4,  /* OUT: slots come home changed; the credit tells version and dirty */
    PST_PORT_ASIDE = 1u << 5,    /* IN: but in a stream (pst_stream), it touches nothing of a slot but what
                                    frames have announced: others' kernels may be at work on the rest */
};

struct pst_port_desc {
    const char *name;
    enum pst_dir dir;
    const char *help;
    const char *type;       /* what a slot holds: "minibatch", "bytes", "plan", "any" ... */
    const char *dtype;      /* element type of its main array, "any" if several */
    int rank;               /* dimensions of that array; -1 any */
    const char *memory;     /* kinds it can live in, comma-separated. "cpu": host memory, of a stage on a CPU.
                               "pinned": the same where the stage is on a GPU: its host code and its kernels
                               use it. "cuda": such or the GPU's own, which only kernels use. A stage can be
                               placed on a GPU if each of its ports has one of these two; where that takes
                               values of parameters, "pinned if PARAM=VALUE|VALUE and PARAM=VALUE" */
    const char *forwards;   /* OUT: inputs whose slots leave through here, comma-separated; NULL: it
                               originates slots of its own */
    unsigned flags;         /* enum pst_port_flag */
    int hold;               /* slots an instance may keep at once; 0 means 1; the route needs as many */
    const char *hold_param; /* or: the parameter that says how many */
    const char *splits_if;  /* OUT: "param=value" under which batches may be split in micro-batches */
    const char *whole_if;   /* IN: "param=value" under which split batches cannot be accepted */
};

enum pst_param_type {
    PST_PARAM_BOOL,
    PST_PARAM_INT,
    PST_PARAM_REAL,
    PST_PARAM_STRING,
    PST_PARAM_ENUM,  /* choices: "a|b|c" */
    PST_PARAM_BYTES, /* 4096, "64KiB", "2GiB" */
    PST_PARAM_INTS,  /* [10, 5] */
};

struct pst_param_desc {
    const char *name;
    enum pst_param_type type;
    const char *def;     /* default as JSON text; NULL: the parameter is required */
    double min, max;     /* inclusive, for INT, REAL, BYTES and each of INTS; both 0: no range */
    const char *choices; /* ENUM */
    const char *help;
    bool fixed; /* it changes what an epoch is: a resumed run must have the same value */
};

struct pst_event;

struct pst_stage_desc {
    uint32_t abi; /* PST_STAGE_ABI */
    const char *name;
    const char *help;
    const struct pst_port_desc *ports; /* ended by name == NULL */
    const struct pst_param_desc *params;
    size_t state_bytes;
    pst_rc (*size)(struct pst_stage *self);
    pst_rc (*open)(struct pst_stage *self);
    pst_rc (*on_event)(struct pst_stage *self, const struct pst_event *event);
    void (*close)(struct pst_stage *self);
};

/* ---- frames, slots, events ---------------------------------------------------------------------- */

/* A slot of a route. Routes are numbered over the whole pipeline. */
struct pst_ref {
    uint32_t route;
    uint32_t slot;
};

enum pst_frame_flag {
    PST_LAST_PART = 1u << 0,  /* the slots are complete and change hands with this frame */
    PST_LAST_MICRO = 1u << 1, /* no further micro-batch of this batch follows */
    PST_END = 1u << 2,        /* the runtime's own: no further frame on this link */
};

/* batch counts over the whole run, from 0. On ordered links every batch number must come, if only as a
 * frame without slots. Parts announce what is known before the slot is complete. */
struct pst_frame {
    uint64_t batch;
    uint32_t micro; /* 0.. within the batch */
    uint32_t part;  /* 0.. within the micro-batch */
    uint32_t flags; /* enum pst_frame_flag */
    uint32_t nrefs;
    uint64_t arg[2]; /* the ports' own: what the part announces (see minibatch.h, request.h) */
    struct pst_ref refs[PST_REFS_MAX];
};

enum pst_event_kind {
    PST_EV_START,  /* once, when every stage of the pipeline is ready */
    PST_EV_FRAME,  /* port, frame */
    PST_EV_CREDIT, /* port, credit: fill this slot for this batch */
    PST_EV_END,    /* port: that input has ended and all of its frames were delivered */
    PST_EV_FD,     /* fd: readable */
    PST_EV_TIMER,  /* the timer of pst_timer */
    PST_EV_FINISH, /* the user asked to stop: write a checkpoint; no frames will come after this */
};

/* An instance that fills slots of several outputs is credited for the same batches and micro-batches in all,
 * in the same order. */
struct pst_credit {
    struct pst_ref ref;
    uint64_t batch;
    uint32_t micro;          /* >0: the next micro-batch of a batch of which one was sent */
    uint32_t dirty;          /* PST_PORT_RETURNS: a borrower changed the slot since it was last sent */
    uint64_t version;        /* how often the slot has come home dirty */
    uint64_t previous_batch; /* the batch it last carried; UINT64_MAX: none yet */
};

struct pst_event {
    enum pst_event_kind kind;
    int port; /* index into desc->ports */
    int fd;
    const struct pst_frame *frame; /* valid during the call */
    struct pst_credit credit;
};

/* ---- what a stage may ask and do ---------------------------------------------------------------- */

PST_API void *pst_state(struct pst_stage *self); /* desc->state_bytes, zeroed before size */

/* Parameters by name; asserts that the descriptor has one of that name and type. */
PST_API bool pst_param_bool(const struct pst_stage *self, const char *name);
PST_API int64_t pst_param_int(const struct pst_stage *self, const char *name); /* INT, BYTES */
PST_API double pst_param_real(const struct pst_stage *self, const char *name);
PST_API const char *pst_param_str(const struct pst_stage *self, const char *name); /* STRING, ENUM */
/* Copies at most max elements to out; returns how many the parameter has. */
PST_API size_t pst_param_ints(const struct pst_stage *self, const char *name, int64_t *out, size_t max);

/* The run. Strings live as long as self. */
PST_API const char *pst_name(const struct pst_stage *self);
PST_API const char *pst_dataset_dir(const struct pst_stage *self);
PST_API const char *pst_run_dir(const struct pst_stage *self);
PST_API const char *pst_resume_path(const struct pst_stage *self); /* checkpoint to go on from, or NULL */
/* What a checkpoint must keep of this run, as text: a run that resumes from it is compared with it. */
PST_API const char *pst_run_identity(const struct pst_stage *self);
PST_API uint64_t pst_seed(const struct pst_stage *self);
PST_API int64_t pst_epochs(const struct pst_stage *self);
PST_API int pst_instance(const struct pst_stage *self, int *instances); /* 0-based */
PST_API int pst_port(const struct pst_stage *self, const char *name);   /* index; asserts it exists */
PST_API bool pst_linked(const struct pst_stage *self, int port);
/* Where this stage computes: "cpu:0", "cuda:1"; its kind, and its number if `number` is not NULL. */
enum pst_device_kind { PST_DEVICE_CPU, PST_DEVICE_CUDA };
PST_API const char *pst_device(const struct pst_stage *self);
PST_API enum pst_device_kind pst_device_of(const struct pst_stage *self, int *number);
/* From open on: can this stage's host code read and write the slots that pass this port? Not where they lie
 * in a GPU's own memory, which is only so if all ports that they pass allow "cuda". */
PST_API bool pst_on_host(const struct pst_stage *self, int port);
/* The path that came over a one-shot input; NULL if the port is not linked. */
PST_API const char *pst_oneshot(const struct pst_stage *self, int port);

/* In size: a slot on this port's route must have at least bytes, aligned to align (a power of two). */
PST_API void pst_need(struct pst_stage *self, int port, uint64_t bytes, uint64_t align);

/* In open: this originating port carries `batches` batches in all, then ends by itself. */
PST_API void pst_total(struct pst_stage *self, int port, uint64_t batches);

/* The slot's bytes in this process, at an address that kernels of its device can use; *bytes, if not NULL,
 * gets its size. The slot must be held, or have been named by a part whose last part is yet to come. NULL
 * with pst_fail if it is not. */
PST_API void *pst_slot(struct pst_stage *self, struct pst_ref ref, uint64_t *bytes);
/* Only the first `bytes` of this held slot matter: what a copy between devices then moves. */
PST_API void pst_used(struct pst_stage *self, struct pst_ref ref, uint64_t bytes);
/* One past the highest slot number of the route that reaches this port (per-slot tables). */
PST_API uint32_t pst_slots(const struct pst_stage *self, int port);
/* From open on: how large each of them is; 0: no route reaches this port. */
PST_API uint64_t pst_slot_bytes(const struct pst_stage *self, int port);
/* The region's base address and bytes, for registering it with a drive once in open (with the stage's GPU it
 * is); index 0.. until it returns NULL. */
PST_API void *pst_region(struct pst_stage *self, int index, uint64_t *bytes);

/* Sends a frame to every stage linked to this output. With PST_LAST_PART its slots are given away; if the
 * stage originated them and PST_LAST_MICRO is not set, a credit for the batch's next micro-batch will come.
 */
PST_API PST_MUST_USE pst_rc pst_send(struct pst_stage *self, int port, const struct pst_frame *frame);

/* In open: from now on slots change hands in this stream of the stage's GPU (a cudaStream_t), not on the
 * host. What is put there after a slot has come begins when others' kernels are done with the slot; what was
 * put there before it is sent or released its next users wait for in the same way. Of a slot that has just
 * come, host code may touch what the slot's type promises (minibatch.h), or all of it after pst_slot_wait.
 * Where a stage on a CPU touches the slots, which the runtime knows from the pipeline, sending and releasing
 * wait for the stream instead. On a CPU: nothing. */
PST_API PST_MUST_USE pst_rc pst_stream(struct pst_stage *self, void *stream);
/* Sleeps until others' kernels are done with a slot that has come. */
PST_API PST_MUST_USE pst_rc pst_slot_wait(struct pst_stage *self, struct pst_ref ref);

/* Gives a held slot back: it goes home when every borrower has. dirty: its bytes were changed. */
PST_API PST_MUST_USE pst_rc pst_release(struct pst_stage *self, struct pst_ref ref, bool dirty);
/* Releases every slot of a frame and counts the batch's items (for the report and progress). */
PST_API PST_MUST_USE pst_rc pst_consume(struct pst_stage *self, const struct pst_frame *frame);
PST_API void pst_count(struct pst_stage *self, uint64_t items, uint64_t bytes);

/* Publishes the path of a one-shot output. */
PST_API PST_MUST_USE pst_rc pst_publish(struct pst_stage *self, int port, const char *path);

PST_API PST_MUST_USE pst_rc pst_watch(struct pst_stage *self, int fd); /* PST_EV_FD while readable */
PST_API void pst_timer(struct pst_stage *self, int64_t microseconds);  /* once; <0 disarms */

/* While work is in flight elsewhere, sleeping counts as waiting for the disk, not for input. */
PST_API void pst_in_flight(struct pst_stage *self, int64_t delta);
/* Subtracts a span that is not training (evaluation) from the stage's busy time and epoch clocks. */
PST_API double pst_now(void); /* monotonic seconds */
PST_API void pst_span(struct pst_stage *self, const char *name, double begin_s, double end_s); /* trace */

/* Adds a JSON object to the report. Section "epochs" appends a row; "result" merges into the top level;
 * any other ("io", "cache", ...) is summed over stages and instances, number by number. */
PST_API PST_MUST_USE pst_rc pst_report(struct pst_stage *self, const char *section, const char *fmt, ...)
    PST_PRINTF(3, 4);

/* Plain lines into the stage's log; a warning is also shown to the user. */
PST_API void pst_log(struct pst_stage *self, const char *fmt, ...) PST_PRINTF(2, 3);
PST_API void pst_warn(struct pst_stage *self, const char *fmt, ...) PST_PRINTF(2, 3);

PST_END_DECLS
#endif
