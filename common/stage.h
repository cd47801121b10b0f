/* stage.h: the stage SDK. This is the only header that most stages need.
 *
 * A stage is a shared object that defines one symbol, `pst_stage`: a description of its ports, its parameters
 * and four callbacks. The program penstock-stage loads it, allocates `state_bytes` of zeroed memory, stores
 * the parameters in it, and then calls, always on the same thread:
 *
 *     - size: The parameters, the dataset and one-shot inputs are known. Set the size of the slots.
 *     - open: The slots exist. Allocate everything else that the run needs. Do not allocate later.
 *     - on_event: A frame came, a credit was granted, an input ended, a descriptor or the timer fired.
 *     - close: The run is over. It is called once if size was called, also after an error.
 *
 * Any of the four may be NULL, except on_event. A callback that fails calls pst_fail (error.h) and returns
 * its result. The run then ends with that message.
 *
 * Data travels in slots: pieces of shared memory of a fixed size. Messages about slots are called frames. A
 * slot is yours from the credit that grants it, or from the last frame (PST_LAST_PART) that brings it, until
 * you send it on (with PST_LAST_PART) or release it. You may keep several slots and finish them in any order.
 *
 * stages/README.md explains how to write a stage. stages/passthrough.c is the smallest one. */
#ifndef PST_STAGE_H
#define PST_STAGE_H

#include "common/base.h"
#include "common/error.h"

PST_BEGIN_DECLS

#define PST_STAGE_ABI 7
#define PST_REPLICAS_MAX 16 /* of one stage: as many as a pipeline can name devices of a kind */

struct pst_stage; /* one running instance of a stage; its host owns it */

/* ---- the description: ports ------------------------------------------------------------------ */

enum pst_dir { PST_IN, PST_OUT };

enum pst_port_flag {
    PST_PORT_ONESHOT =
        1u << 0, /* carries one path, once, before the receivers are sized (a plan, for example) */
    PST_PORT_OPTIONAL = 1u << 1, /* need not be linked */
    PST_PORT_ORDERED = 1u << 2,  /* IN: frames come in the order of (batch, micro, part) */
    PST_PORT_WRITES = 1u << 3,   /* IN: this stage changes the bytes of the slots */
    PST_PORT_RETURNS =
        1u << 4, /* OUT: a credit says whether its slot came home changed (dirty, version). With n
                    slots, batch b gets the slot of batch b - n, and each batch has one slot */
    PST_PORT_ASIDE =
        1u << 5, /* IN: outside a stream (pst_stream), the stage accesses only the bytes of a slot that frames
                    have announced. Kernels of other stages may still use the rest */
    PST_PORT_NEEDED_ON_GPU = 1u << 6, /* with PST_PORT_OPTIONAL: a stage on a GPU needs the link. If only the
                                         pipeline's device or "auto" put it there, it moves to cpu:0 */
    PST_PORT_IN_PLACE =
        1u
        << 7, /* IN: some of a slot's data may stay in the memory that the stage shares which fills the
                 slots (pst_in_place): this stage does not read them, or reads them there (pst_shared_from) */
};

/* A slot can carry requests for data that the disk stage must still read (slots/request.h). `penstock check`
 * follows requests from port to port. It refuses a pipeline in which unserved requests reach a port that
 * needs the data. */
enum pst_requests {
    PST_REQUESTS_PASS = 0, /* the stage does not look at requests */
    PST_REQUESTS_MAKES,    /* OUT: slots leave this port with new requests */
    PST_REQUESTS_COPIES,   /* OUT: slots carry copies of what the stage's inputs carry, requests included */
    PST_REQUESTS_SERVES,   /* IN: the stage serves all requests of the slots that come here */
    PST_REQUESTS_NEEDS,    /* IN: the stage uses the requested data, so all requests must be served before */
};

struct pst_port_desc {
    const char *name; /* letters, digits, _ and - */
    enum pst_dir dir;
    const char *help;
    const char *type;  /* what a slot holds: "minibatch", "rows", "plan", ... or "any" */
    const char *dtype; /* element type of the main array, or "any" */
    int rank;          /* number of dimensions of that array; -1: any */

    /* The kinds of memory that the slots can lie in, separated by commas:
     *   "cpu"     host memory, for a stage on a CPU
     *   "pinned"  host memory that kernels can use, too, for a stage on a GPU
     *   "cuda"    pinned memory, or a GPU's own memory, which only kernels can use
     * A stage can be placed on a GPU if each of its ports has "pinned" or "cuda". Write "pinned if
     * PARAM=VALUE|VALUE and PARAM=VALUE" if this depends on parameters. */
    const char *memory;

    const char *forwards; /* OUT: the inputs whose slots leave here, separated by commas; NULL: new slots */
    enum pst_requests requests;
    unsigned flags;          /* enum pst_port_flag */
    int hold;                /* the largest number of slots that an instance keeps at a time; 0: one */
    const char *hold_param;  /* an INT parameter that is added to `hold`, which then may be 0 */
    const char *splits_if;   /* OUT: "PARAM=VALUE": if true, batches may be split into micro-batches */
    const char *whole_if;    /* IN: "PARAM=VALUE": if true, split batches are refused */
    const char *in_place_if; /* IN: "PARAM=VALUE|VALUE": unless true, PST_PORT_IN_PLACE does not count */
    const char *near_if; /* OUT, one-shot: "PARAM=VALUE|VALUE": if true, the copies of a stage that gets it
                            read each other's memory, so all are on one machine */
};

/* ---- the description: parameters ------------------------------------------------------------- */

enum pst_param_type {
    PST_PARAM_BOOL,
    PST_PARAM_INT,
    PST_PARAM_REAL,
    PST_PARAM_STRING,
    PST_PARAM_ENUM,  /* one of `choices` */
    PST_PARAM_BYTES, /* 4096, "64KiB" or "2GiB" */
    PST_PARAM_INTS,  /* a list: [10, 5] */
    /* A list; or lists of equal length by name, as {"a": [10, 5], "b": [2, 0]} or [{"a": 10, "b": 2}, {"a":
     * 5, "b": 0}]. The normal form is the first. */
    PST_PARAM_NAMED_INTS,
};

/* Values of parameters are stored in the stage's state before `size` is called:
 *
 *     struct state { int64_t depth; const char *backend; };
 *     {.name = "depth", .type = PST_PARAM_INT, .into = PST_INTO(struct state, depth), ...}
 *
 * The member's type must fit the type of the parameter:
 *     BOOL     bool
 *     INT      int, unsigned, int64_t or uint64_t, with limits that fit
 *     REAL     double
 *     STRING   const char *, which lives as long as the stage
 *     ENUM     const char *; or an enum, int or unsigned: the number of the choice, from 0; or, for two
 *              choices, bool: true is the second
 *     BYTES    uint64_t or int64_t
 *     INTS     struct pst_ints
 *     NAMED_INTS  struct pst_named_ints */
#define PST_INTS_MAX 16 /* more than there are hops */
struct pst_ints {
    size_t count;
    int64_t value[PST_INTS_MAX];
};

#define PST_NAMED_INTS_MAX 64
struct pst_named_ints {
    struct pst_ints
        all;      /* the list; with names, the largest number of each place: a negative one is largest */
    size_t names; /* 0: the value is a list */
    const char *name[PST_NAMED_INTS_MAX]; /* they live as long as the stage */
    int64_t value[PST_NAMED_INTS_MAX][PST_INTS_MAX];
};

enum pst_into_kind {
    PST_INTO_NOTHING = 0,
    PST_INTO_BOOL,
    PST_INTO_I32,
    PST_INTO_U32,
    PST_INTO_I64,
    PST_INTO_U64,
    PST_INTO_F64,
    PST_INTO_TEXT,
    PST_INTO_INTS,
    PST_INTO_NAMED_INTS,
};

struct pst_into {
    size_t at; /* byte offset in the state */
    enum pst_into_kind kind;
};
#define PST_INTO(struct_, member_)                                                                           \
    {                                                                                                        \
        offsetof(struct_, member_), PST_INTO_KIND(struct_, member_)                                          \
    }

#define PST_AUTO (-1) /* the stored value of "auto"; an unsigned member has all bits set */

/* What the text of a parameter names. If it is a relative path, it starts at the directory in which
 * `penstock` was started; the pipeline file that a run writes has the absolute path. */
enum pst_param_path {
    PST_PATH_NONE = 0,
    PST_PATH_FILE,    /* a file */
    PST_PATH_FILES,   /* files or PCI addresses, separated by commas */
    PST_PATH_OR_NAME, /* a file, if the text has a '/'; else a name */
    PST_PATH_MACHINE, /* a machine file, which `penstock check` reads; "": none */
};

struct pst_param_desc {
    const char *name; /* letters, digits, _ and - */
    enum pst_param_type type;
    struct pst_into into;        /* PST_INTO: where the value is stored */
    const char *def;             /* the default as JSON text; NULL: the pipeline must give a value */
    double min, max;             /* INT, REAL, BYTES, each of (NAMED_)INTS: inclusive limits; both 0: none */
    size_t count_min, count_max; /* (NAMED_)INTS: inclusive limits of a list's length; both 0: none */
    const char *choices;         /* ENUM: "a|b|c" */

    /* The value that this parameter must be equal to, in the stage that the slots (or the path) of an input
     * come from:
     *   "PORT.PARAM"          the parameter PARAM of that stage
     *   "count(PORT.PARAM)"   the number of its elements
     *   "PORT.PARAM:A=B"      no such value; but this parameter, an ENUM, is A if, and only if, PARAM is B
     * It is not checked if the port is not linked, if that stage does not have the parameter, or
     * if PORT is an output. So both stages can use the same list of parameters. */
    const char *equals;
    const char *needed_if; /* STRING: "PARAM=VALUE": if true, the string must not be empty */
    const char *only_if;   /* "PARAM=VALUE|VALUE": unless true, the default; of NAMED_INTS, a list (README) */
    /* ENUM: "CHOICE if PARAM=VALUE|VALUE, CHOICE if ...": unless true, another choice (README) */
    const char *choice_if;
    const char *below; /* INT: "PARAM": it counts some of what the INT parameter PARAM counts, so it is
                          smaller, unless PARAM is 1 */
    /* INT: "PARAM-PARAM", which are INT parameters: it is at most this number; the same with
     * " unless PARAM=VALUE|VALUE" behind it: if true, any value */
    const char *at_most;
    const char *even_if; /* INT: "PARAM=VALUE|VALUE": if true, an even number */
    const char *help;
    bool automatic; /* INT, BYTES: the value can also be "auto"; then the stage chooses */
    bool fixed;     /* it changes the contents of an epoch, so a resumed run must have the same value */
    bool divided;   /* INT: a power of two that the replicas of the stage divide, so it is a multiple of their
                       number */
    unsigned char path; /* STRING: enum pst_param_path */
    bool alone; /* STRING with needed_if: while the condition is true, only one process can use what the text
                   names (each part between commas), so no other stage or copy may name it */
    unsigned char counted; /* ENUM, fixed: 1 + the index of the choice with which an epoch depends on the
                              number of replicas, so a resumed run must have as many; 0: there is none */
};

/* ---- the description: the stage -------------------------------------------------------------- */

/* What "replicas" of a pipeline may do with a stage. */
enum pst_replicas {
    PST_REPLICAS_NONE = 0, /* nothing: the stage cannot be replicated */
    PST_REPLICAS_EACH,     /* each replica works for itself */
    PST_REPLICAS_MEET,     /* the replicas work together (pst_meet). The stage has one instance */
};

struct pst_event;

struct pst_stage_desc {
    uint32_t abi; /* PST_STAGE_ABI */
    const char *name;
    const char *help;
    const struct pst_port_desc *ports;   /* ends with an entry whose name is NULL */
    const struct pst_param_desc *params; /* the same; NULL: no parameters */
    int instances_max;                   /* 0: as many as Penstock allows */
    enum pst_replicas replicas;

    /* The parts of the dataset that the stage needs, separated by commas:
     *   "features"     feature rows
     *   "labels"       labels of at least two classes, or several labels a vertex
     *   "targets"      numbers of each vertex, for regression
     *   "edges"        edges to predict: edges_train
     *   "triples"      edges to train embeddings on: triples_train or edges_train
     *   "features:PARAM=VALUE", and so with labels, targets and edges  the same, only if the parameter has
     * this value
     *   "types"        not a need: the stage can use a dataset whose vertices have types
     *   "parts"        not a need: the stage can use a part of a cut dataset (common/store/parted)
     *   "lists"        not a need: such a part may also have only some lists of neighbours
     *   "lists:PARAM"  the same, if the value of PARAM (INT) is 0
     *   "split:PARAM"  vertices in the split that the parameter PARAM names
     *   "split:PARAM:OTHER=VALUE"  the same, only if the parameter OTHER has this value
     *   "vertices:PARAM"  at least as many vertices as the value of PARAM (INT)
     *   "evaluated:PARAM"  a split whose name is the value of PARAM; it may be empty
     *   "relations:PARAM"  the edge types that the value of PARAM (NAMED_INTS) names: each, once. "*" names
     * all that no other name is for */
    const char *dataset;

    size_t state_bytes; /* of pst_state */
    pst_rc (*size)(struct pst_stage *self);
    pst_rc (*open)(struct pst_stage *self);
    pst_rc (*on_event)(struct pst_stage *self, const struct pst_event *event);
    void (*close)(struct pst_stage *self);
};

/* The one symbol that a stage's shared object defines. */
extern PST_API const struct pst_stage_desc pst_stage;

/* ---- frames, slots, events ------------------------------------------------------------------- */

/* A slot. The slots that begin at one output and travel together are called a route. */
struct pst_ref {
    uint32_t route; /* counts over the whole pipeline */
    uint32_t slot;  /* counts within the route */
};

enum pst_frame_flag {
    PST_LAST_PART = 1u << 0,  /* the slots are complete, and change hands with this frame */
    PST_LAST_MICRO = 1u << 1, /* the last micro-batch of its batch */
    PST_END = 1u << 2,        /* used by the runtime: no more frames on this link */
};

/* A message about slots. Frames before the last part announce parts of a slot before it is complete. */
struct pst_frame {
    uint64_t batch; /* counts over the whole run, from 0. An ordered link must carry every batch, if necessary
                       as a frame without slots */
    uint32_t micro; /* counts the micro-batches of a batch, from 0 */
    uint32_t part;  /* counts the parts of a micro-batch, from 0 */
    uint32_t flags; /* enum pst_frame_flag */
    uint32_t nrefs;
    uint64_t arg[2]; /* what this part announces; the type of the port defines it (slots/request.h) */
    struct pst_ref refs[PST_REFS_MAX];
};

enum pst_event_kind {
    PST_EV_START,  /* every stage of the pipeline is ready; comes once, first */
    PST_EV_FRAME,  /* a frame came: port, frame */
    PST_EV_CREDIT, /* fill this slot for this batch: port, credit */
    PST_EV_END,    /* an input has ended, and all of its frames were delivered: port */
    PST_EV_FD,     /* a watched descriptor is readable: fd */
    PST_EV_TIMER,  /* the time of pst_timer has come */
    PST_EV_FINISH, /* the user stopped the run: write a checkpoint. No frames follow */
    PST_EV_RETURN, /* PST_PORT_RETURNS: a slot came home after the last batch: port, credit. It can be read
                      during the call, and must not be sent */
};

/* The right to fill one slot. An instance that fills slots of several outputs gets credits for the same
 * batches and micro-batches on all of them: in the same order, unless it fills several slots of an output at
 * a time (pst_fill_ahead). */
struct pst_credit {
    struct pst_ref ref;
    uint64_t batch;          /* PST_EV_RETURN: UINT64_MAX */
    uint32_t micro;          /* above 0: the next micro-batch of a batch whose earlier ones were sent */
    uint32_t dirty;          /* PST_PORT_RETURNS: another stage changed the slot since it was sent */
    uint64_t version;        /* how often the slot has come home dirty */
    uint64_t previous_batch; /* the batch that the slot carried last; UINT64_MAX: none */
};

struct pst_event {
    enum pst_event_kind kind;
    int port; /* index into desc->ports */
    int fd;
    const struct pst_frame *frame; /* valid during the call */
    struct pst_credit credit;
};

/* ---- information about the run --------------------------------------------------------------- */

/* All strings below live as long as the stage. */

PST_API void *pst_state(struct pst_stage *self); /* desc->state_bytes; zeroed before size */

PST_API const char *pst_stage_name(const struct pst_stage *self); /* of this instance, in the pipeline */
PST_API const char *pst_dataset_dir(const struct pst_stage *self);
PST_API const char *pst_run_dir(const struct pst_stage *self);
/* The checkpoint to continue from; NULL: none. */
PST_API const char *pst_resume_path(const struct pst_stage *self);
/* Text that a checkpoint of this run must keep. A run that resumes from the checkpoint is compared with it.
 */
PST_API const char *pst_run_identity(const struct pst_stage *self);
PST_API uint64_t pst_seed(const struct pst_stage *self);
PST_API int64_t pst_epochs(const struct pst_stage *self);
/* The pipeline's "overlap". False: stages work one after the other. Then routes have one slot, and a stage
 * that computes keeps its input until it has finished. */
PST_API bool pst_overlap(const struct pst_stage *self);
/* Waits until so many bytes have passed the pipeline's bus, or the run stops. Without a bus it returns at
 * once. Call it only after open has begun. */
PST_API void pst_bus_pass(struct pst_stage *self, uint64_t bytes);
/* Books the transfer of a drive's bytes on the bus, without waiting. Returns the time when they have passed,
 * in ns of CLOCK_MONOTONIC, as is now_ns. There must be a bus. */
PST_API uint64_t pst_bus_book_drive(struct pst_stage *self, uint64_t bytes, uint64_t now_ns);
/* Where the pipeline's bus is, for a process of this stage that passes it, too (common/ipc/bus.h). */
struct pst_bus_place {
    const char *path;   /* a file that the run shares; NULL: there is no bus */
    uint64_t at;        /* byte of the file at which a struct pst_bus begins */
    double bytes_per_s; /* of the run, slower than the modelled bus if the pipeline is dilated */
};
PST_API struct pst_bus_place pst_bus_place(const struct pst_stage *self);
/* The number of this instance, from 0. *instances gets the number of instances. */
PST_API int pst_instance(const struct pst_stage *self, int *instances);
/* The number of this replica of the stage, from 0. *replicas (unless NULL) gets the number of replicas; 1:
 * the pipeline does not replicate the stage. */
PST_API int pst_replica(const struct pst_stage *self, int *replicas);

PST_API int pst_port(const struct pst_stage *self, const char *name); /* its index; the port must exist */
PST_API bool pst_linked(const struct pst_stage *self, int port);
/* The path that came through a one-shot input; NULL: the port is not linked. */
PST_API const char *pst_oneshot(const struct pst_stage *self, int port);

enum pst_device_kind { PST_DEVICE_CPU, PST_DEVICE_CUDA };
/* The device that the stage is placed on: "cpu:0", "cuda:1". */
PST_API const char *pst_device_name(const struct pst_stage *self);
/* The same as a kind and a number. `number` may be NULL. */
PST_API enum pst_device_kind pst_device_of(const struct pst_stage *self, int *number);

/* The monotonic clock, in seconds. */
PST_API double pst_now(void);

/* ---- slots ----------------------------------------------------------------------------------- */

/* Call it in size. Slots that pass this port must have at least `bytes` bytes, aligned to `align` (a power of
 * two). */
PST_API void pst_need(struct pst_stage *self, int port, uint64_t bytes, uint64_t align);

/* Call it in open, for an output without `forwards`. The output carries `batches` batches in total and then
 * ends automatically. */
PST_API void pst_total(struct pst_stage *self, int port, uint64_t batches);

/* Call it in open, for an output without `forwards`. This instance then gets credits for all slots that are
 * free, and not one after the other. It must be able to finish each slot without another slot of this output.
 */
PST_API void pst_fill_many(struct pst_stage *self, int port);

/* The same, but for at most so many slots at a time: the others are for the other instances. */
PST_API void pst_fill_ahead(struct pst_stage *self, int port, uint32_t slots);

/* The number of slots in the route that passes this port. Slot numbers are below it, so it is the size of a
 * table of slots. */
PST_API uint32_t pst_slots(const struct pst_stage *self, int port);
/* From open on: the size of each of them; 0: the port is not linked. */
PST_API uint64_t pst_slot_bytes(const struct pst_stage *self, int port);
/* From open on: whether host code can read and write the slots that pass this port. It cannot if the slots
 * lie in a GPU's own memory, which requires that every port of the route allows "cuda". */
PST_API bool pst_on_host(const struct pst_stage *self, int port);

/* The address of a slot in this process; *bytes (unless NULL) gets its size. Kernels of the stage's device
 * can use the same address. You must hold the slot, or a part must have announced it. Otherwise it returns
 * NULL and calls pst_fail. */
PST_API void *pst_slot(struct pst_stage *self, struct pst_ref ref, uint64_t *bytes);

/* Declares that only the first `bytes` bytes of this slot are in use. Copies between devices move no more.
 * You must hold the slot. */
PST_API void pst_used(struct pst_stage *self, struct pst_ref ref, uint64_t bytes);

/* Call it in open, to register slots with a drive. It returns the memory regions of the slots, one for each
 * index from 0 on, and then NULL. They are already registered with the stage's GPU. */
PST_API void *pst_slot_region(struct pst_stage *self, int index, uint64_t *bytes);

/* Sends a frame to every stage that is linked to this output. With PST_LAST_PART, the receivers own its
 * slots. If this stage filled them and PST_LAST_MICRO is not set, a credit for the next micro-batch of the
 * batch follows. */
PST_API PST_MUST_USE pst_rc pst_send(struct pst_stage *self, int port, const struct pst_frame *frame);

/* Releases a slot that you hold. It returns to its originator when every stage that got it has released it.
 * dirty: you changed its bytes. */
PST_API PST_MUST_USE pst_rc pst_release(struct pst_stage *self, struct pst_ref ref, bool dirty);

/* Releases every slot of a frame, and counts the batch for the report and the progress line. */
PST_API PST_MUST_USE pst_rc pst_consume(struct pst_stage *self, const struct pst_frame *frame);

/* Publishes the path of a one-shot output. */
PST_API PST_MUST_USE pst_rc pst_publish(struct pst_stage *self, int port, const char *path);

/* ---- GPUs ------------------------------------------------------------------------------------ */

/* A stage on a GPU may use the data of a frame as soon as the frame comes. Before the stage sends a frame,
 * its kernels must have written the data that the frame announces. Before the stage sends or releases a slot,
 * its kernels must have finished with the slot.
 *
 * If the stage calls pst_stream in open, it need not wait on the host for any of this. It passes a stream of
 * its GPU (a cudaStream_t). Work that it puts into the stream after a slot has come starts when the kernels
 * of other stages have finished with the slot. Work that it put there before it sends or releases the slot
 * finishes before the next stage's work starts. Host code may touch only those bytes of a new slot that the
 * slot's type promises (slots/minibatch.h), or all of them after pst_slot_wait. If a stage on a CPU uses the
 * same slots, sending and releasing wait for the stream. On a CPU, pst_stream does nothing. */
PST_API PST_MUST_USE pst_rc pst_stream(struct pst_stage *self, void *stream);

/* Says that the stream has all of the stage's work on a slot that it will send or release. Work that it puts
 * into the stream after this call, for other slots, then does not delay the next stage. */
PST_API PST_MUST_USE pst_rc pst_slot_queued(struct pst_stage *self, struct pst_ref ref);

/* Sleeps until the kernels of other stages have finished with a slot that has come. */
PST_API PST_MUST_USE pst_rc pst_slot_wait(struct pst_stage *self, struct pst_ref ref);

/* ---- memory that all instances of the stage share --------------------------------------------------- */

/* Asks for `bytes` of host memory, once for all instances of this stage. Only in `size`. The kernels of a
 * stage on a GPU can use it, too. */
PST_API void pst_share(struct pst_stage *self, uint64_t bytes);

/* This memory, from `open` on: zeroed, at the start of a page. Instance 0 fills it in `open`. When the
 * pipeline starts, all instances have returned from `open`, and the memory becomes read-only. It is the
 * runtime's, and disappears with the run. NULL: pst_share was not called. */
PST_API void *pst_shared(struct pst_stage *self);

/* The same memory of another replica of this stage, which this replica may only read: "resident" memory,
 * which lies with the replica's device for the whole run. The address is known from `open` on. The contents
 * are there when the pipeline starts. NULL: that replica did not call pst_share, or belongs to another rank.
 */
PST_API const void *pst_shared_of(const struct pst_stage *self, int replica);

/* May slots of this output name data in the memory of pst_share, and not have them themselves? True if all
 * stages that these slots come to have PST_PORT_IN_PLACE, and all are on CPUs. From `size` on. */
PST_API bool pst_in_place(const struct pst_stage *self, int port);
/* The memory that the stage shares which fills the slots of this input, if it may keep data in place. It can
 * only be read. The address is known from `open` on; the contents are there when the pipeline starts. *bytes
 * gets its size. NULL: it shares none, or a stage on the way reads all data in the slots. */
PST_API const void *pst_shared_from(const struct pst_stage *self, int port, uint64_t *bytes);

/* The same in the memory of the stage's GPU: only in `size`, and on a GPU. The memory is not zeroed. When
 * the pipeline starts, kernels must not write to it any more, but nothing prevents it. */
PST_API void pst_share_gpu(struct pst_stage *self, uint64_t bytes);
PST_API void *pst_shared_gpu(struct pst_stage *self);
/* Only in `open`: *at gets the memory of another replica, for this stage's kernels. PST_E_STATE: that replica
 * did not call pst_share_gpu, is on a GPU that this one does not reach, or belongs to another rank. PST_E_IO.
 */
PST_API PST_MUST_USE pst_rc pst_shared_gpu_of(struct pst_stage *self, int replica, const void **at);

/* ---- replicas that work together -------------------------------------------------------------------- */

/* What a one-shot output's receivers are: the first linked stage that has replicas, or else the first linked
 * stage. Returns how many replicas it has on this machine; 1: it has none; 0: the output is not linked. */
PST_API int pst_receivers(const struct pst_stage *self, int port);
/* The device of one of them, "cpu:1"; replica: from 0 to their number - 1. */
PST_API const char *pst_receiver_device(const struct pst_stage *self, int port, int replica);
/* Can the first of two of them read the other's memory? On CPUs: yes. On GPUs: if CUDA says so. */
PST_API bool pst_receiver_reaches(const struct pst_stage *self, int port, int replica, int other);
/* Is a stage of this kind among all receivers of the output? kind: the name in its description, "remote". */
PST_API bool pst_receiver_is(const struct pst_stage *self, int port, const char *kind);
/* May slots of their outputs leave out data that stays in memory which they share (pst_in_place)? */
PST_API bool pst_receiver_in_place(const struct pst_stage *self, int port);
/* The value of a parameter of theirs: an ENUM's text, 0 or 1 of a BOOL; the fallback, if they have no such
 * parameter of this type. pst_reached_int: of the nearest of all stages that the output leads to. */
PST_API const char *pst_receiver_text(const struct pst_stage *self, int port, const char *param,
                                      const char *fallback);
PST_API int64_t pst_receiver_int(const struct pst_stage *self, int port, const char *param, int64_t fallback);
PST_API int64_t pst_reached_int(const struct pst_stage *self, int port, const char *param, int64_t fallback);

/* Call it in open, if the description says PST_REPLICAS_MEET. *out gets this replica's member of a collective
 * of all replicas (common/collective/collective.h), or NULL if there is only one. The runtime closes it. */
struct pst_collective;
PST_API PST_MUST_USE pst_rc pst_meet(struct pst_stage *self, struct pst_collective **out);

/* ---- descriptors, time ----------------------------------------------------------------------- */

/* From now on, PST_EV_FD comes whenever this descriptor is readable. */
PST_API PST_MUST_USE pst_rc pst_watch(struct pst_stage *self, int fd);

/* PST_EV_TIMER comes once, after this time. Negative: cancels it. */
PST_API void pst_timer(struct pst_stage *self, int64_t microseconds);

/* ---- reports and logs ------------------------------------------------------------------------ */

/* Counts items (batches, usually) and bytes, for the report and the progress line. */
PST_API void pst_count(struct pst_stage *self, uint64_t items, uint64_t bytes);

/* Counts look-ups in a cache and those that found a row, for `penstock top`. */
PST_API void pst_count_lookups(struct pst_stage *self, uint64_t lookups, uint64_t hits);

/* What a stage does apart from its batches. */
enum pst_activity { PST_DOES_BATCHES, PST_DOES_PLANNING, PST_DOES_EVALUATION };

/* Says what the stage does from now on, and how many of its `total` steps are done (total 0: not known), for
 * the progress line and `penstock top`. PST_DOES_BATCHES ends it. */
PST_API void pst_doing(struct pst_stage *self, enum pst_activity activity, uint64_t done, uint64_t total);

/* Adds `delta` to the number of disk operations in flight. While there are any, time that the stage sleeps
 * counts as waiting for the disk, not for input. */
PST_API void pst_in_flight(struct pst_stage *self, int64_t delta);

/* Adds `delta` to the number of jobs that other threads of this stage work on. While there are any, time that
 * the stage sleeps counts as work, and the stage does not end. */
PST_API void pst_working(struct pst_stage *self, int64_t delta);

/* Adds `delta` to the number of slots that this stage sent and that will come back by a link with "back". The
 * stage does not end while there are any. */
PST_API void pst_expect(struct pst_stage *self, int64_t delta);

/* Adds a span to the trace. Times are from pst_now. */
PST_API void pst_span(struct pst_stage *self, const char *name, double begin_s, double end_s);
/* Adds a span of one batch. Its name becomes "NAME BATCH" or, if hop is not negative, "NAME BATCH.HOP", and
 * its args have both numbers. name: a literal. */
PST_API void pst_span_of(struct pst_stage *self, const char *name, uint64_t batch, int hop, double begin_s,
                         double end_s);

/* Adds a JSON object to the report of the run. Section "epochs" appends a row. Section "result" adds its
 * members to the top level. Numbers in any other section ("io", "cache", ...) are added up over stages and
 * instances. */
PST_API PST_MUST_USE pst_rc pst_report(struct pst_stage *self, const char *section, const char *fmt, ...)
    PST_PRINTF(3, 4);

/* Writes a line to the stage's log. A warning is also shown to the user. */
PST_API void pst_log(struct pst_stage *self, const char *fmt, ...) PST_PRINTF(2, 3);
PST_API void pst_warn(struct pst_stage *self, const char *fmt, ...) PST_PRINTF(2, 3);

/* ---- how PST_INTO finds the kind of a member ----------------------------------------------------- */

#ifdef __cplusplus
extern "C++" {
template <class T> struct pst_into_kind_of {
    static_assert(__is_enum(T) && sizeof(T) == 4, "no parameter can be stored in a member of this type");
    static constexpr pst_into_kind kind = PST_INTO_U32;
};
#define PST_INTO_TYPE(type_, kind_)                                                                          \
    template <> struct pst_into_kind_of<type_> {                                                             \
        static constexpr pst_into_kind kind = kind_;                                                         \
    }
PST_INTO_TYPE(bool, PST_INTO_BOOL);
PST_INTO_TYPE(int, PST_INTO_I32);
PST_INTO_TYPE(unsigned, PST_INTO_U32);
PST_INTO_TYPE(int64_t, PST_INTO_I64);
PST_INTO_TYPE(uint64_t, PST_INTO_U64);
PST_INTO_TYPE(double, PST_INTO_F64);
PST_INTO_TYPE(const char *, PST_INTO_TEXT);
PST_INTO_TYPE(pst_ints, PST_INTO_INTS);
PST_INTO_TYPE(pst_named_ints, PST_INTO_NAMED_INTS);
#undef PST_INTO_TYPE
}
#define PST_INTO_KIND(struct_, member_) pst_into_kind_of<decltype(((struct_ *)0)->member_)>::kind
#else
#define PST_INTO_KIND(struct_, member_)                                                                      \
    _Generic(((struct_ *)0)->member_,                                                                        \
        bool: PST_INTO_BOOL,                                                                                 \
        int: PST_INTO_I32,                                                                                   \
        unsigned: PST_INTO_U32,                                                                              \
        int64_t: PST_INTO_I64,                                                                               \
        uint64_t: PST_INTO_U64,                                                                              \
        double: PST_INTO_F64,                                                                                \
        const char *: PST_INTO_TEXT,                                                                         \
        struct pst_ints: PST_INTO_INTS,                                                                      \
        struct pst_named_ints: PST_INTO_NAMED_INTS)
#endif

PST_END_DECLS
#endif
