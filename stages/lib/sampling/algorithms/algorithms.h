/* algorithms.h: sampling algorithms. The planner and the sampler find an algorithm by name and both draw with
 * it, so the plan's slots and cache fit the algorithm that runs.
 *
 * To add an algorithm here, write a file beside uniform.c that defines `pst_sampling_NAME`, and add its name
 * to PST_SAMPLING_ALGORITHMS. To add one outside the tree, build a shared object that exports `const struct
 * pst_sampling_algorithm pst_sampling_algorithm`, and pass its path as the parameter `algorithm`.
 *
 * Owner: algorithms are constants. pst_sampling_algorithm_open allocates a state, which ..._close frees.
 * Threads: one state is used by one thread. */
#ifndef PST_SAMPLING_ALGORITHMS_H
#define PST_SAMPLING_ALGORITHMS_H

#include "common/slots/minibatch.h"
#include "common/stage.h"
#include "kernels/twin.h"

PST_BEGIN_DECLS

#define PST_SAMPLING_ALGORITHMS(X) X(uniform) X(labor) X(ladies) X(weighted) X(typed) X(temporal) X(buffered)

#define PST_SAMPLING_ABI 8 /* version of struct pst_sampling_algorithm and of the structures that it uses */

struct pst_dataset;
struct pst_device;
struct pst_sampling_states; /* states.h */

/* The inputs of an algorithm. They stay valid until the algorithm is closed. */
struct pst_sampling_setup {
    const struct pst_dataset *dataset;
    const struct pst_csc *graph;
    int hops;
    const int64_t *fanout; /* one number a hop; -1: all neighbours, 0: none */
    /* (relations, hops): the fanout of each relation in each hop. Then `fanout` has the largest of each hop,
     * where -1 is largest. NULL: all relations have the same. Only PST_SAMPLING_TYPED gets it. */
    const int64_t *fanout_by_relation;
    bool replace;     /* may a vertex get one neighbour several times? */
    int64_t batch;    /* seeds of the largest batch */
    uint64_t batches; /* of an epoch, unless the algorithm has states */
    /* The seeds of an epoch, in no particular order; NULL: they are not vertices, or each replica has its own
     */
    const int64_t *seeds;
    int64_t nseeds;
    uint64_t seed; /* of the orders of seeds */
};

/* What an algorithm does besides drawing neighbours. */
enum pst_sampling_traits {
    PST_SAMPLING_WEIGHS = 1, /* its edges have weights */
    /* A vertex's neighbours depend on all destinations of the hop. A batch that is too large for its slot is
     * sampled whole, and then cut (cut.h). So equal (key, destinations) must give equal neighbours. */
    PST_SAMPLING_WHOLE = 2,
    PST_SAMPLING_TYPED = 4, /* its edges have relations; it is not PST_SAMPLING_WHOLE */
    /* What draw_on_device puts on the queue depends on the key only by the random numbers of the kernels that
     * draws_at is for (twin.h), of the stream (PST_RNG_SAMPLE, seed, epoch, batch, hop). So it can be put
     * there once, as a graph, and run for each batch. */
    PST_SAMPLING_REPLAYS = 8,
};

/* One hop, drawn on the CPU. The algorithm writes indptr[0..n] and the ids of the drawn in-neighbours: those
 * of vertices[i] are out[indptr[i]..indptr[i+1]). */
struct pst_sampling_hop {
    const struct pst_csc *graph;
    const struct pst_sample_key *key; /* key->hop is the number of the hop */
    int fanout;                       /* of this hop; not 0 */
    const int64_t *vertices;          /* all destinations of the hop; each is a valid id */
    int64_t n;
    int32_t *indptr;
    int64_t *out;
    int64_t capacity; /* of out */
    /* PST_SAMPLING_WEIGHS: gets the weight of each drawn edge, which is at least 0, on any scale: the caller
     * divides the weights of a destination by their sum. Else NULL. */
    float *weight;
    /* PST_SAMPLING_TYPED: gets the relation of each drawn edge. NULL: the caller does not need them. */
    int32_t *relation;
};

/* The same hop without the graph, whose lists are read from drives afterwards. The algorithm writes
 * indptr[0..n] and the positions of the drawn neighbours in each list: those of vertices[i] are
 * positions[indptr[i]..indptr[i+1]), each below degrees[i]. */
struct pst_sampling_pick {
    const struct pst_sample_key *key;
    int fanout; /* not 0 */
    const int64_t *vertices, *degrees;
    int64_t n;
    int32_t *indptr;
    int64_t *positions;
    int64_t capacity; /* of positions */
};

/* The same on a GPU. All arrays are in its memory, and the work goes to device->q. */
struct pst_sampling_device_hop {
    const struct pst_device *device;
    const struct pst_csc *graph;
    const struct pst_sample_key *key;
    int fanout;
    const int64_t *vertices;
    struct pst_twin_n n; /* the number of vertices, known when the queue reaches this call */
    int32_t *indptr;
    int64_t *out;
    int64_t capacity;
    int64_t *total;    /* gets indptr[n] */
    float *weight;     /* as above */
    int32_t *relation; /* as above */
};

/* An upper bound of the result of one hop from n vertices. */
struct pst_sampling_bound {
    int64_t edges;
    int64_t vertices; /* after the hop, including the n */
};

/* A parameter of an algorithm: a number in its state. The stage parameter `options` sets it. */
struct pst_sampling_option {
    const char *name;
    /* BOOL, INT, REAL: a bool, an int64_t or a double at `into`. INTS: a struct pst_ints, written as
     * "512:256"; none is the default, and min and max hold for each number. ENUM: an int, the index of the
     * value among `choices`, "one|another"; def is an index, too. */
    enum pst_param_type type;
    const char *choices;
    double def, min, max;
    size_t into; /* offsetof() in the state */
    const char *help;
};

struct pst_sampling_algorithm {
    uint32_t abi; /* PST_SAMPLING_ABI */
    const char *name;
    const char *help;
    const struct pst_sampling_option *options; /* ended by name == NULL; NULL: none */
    size_t state_bytes;
    /* Optional. The state is zeroed, and then its options are set, before the call. */
    pst_rc (*open)(void *state, const struct pst_sampling_setup *setup);
    void (*close)(void *state); /* optional; also called after a failed open */
    /* Optional. A sum of enum pst_sampling_traits, which depends on the options alone. */
    int (*traits)(const void *state);
    /* Optional. The states of a buffer of partitions, which decide the batches: the caller takes the seeds of
     * each batch from them (pst_seeds_by_states). They belong to the algorithm. */
    struct pst_sampling_states *(*states)(void *state);
    /* Optional; without it a vertex gets at most `fanout` neighbours, or all if fanout is -1. */
    struct pst_sampling_bound (*bound)(const void *state, const struct pst_csc *graph, int hop,
                                       int64_t fanout, int64_t n);
    /* Equal (key, vertex) must give equal neighbours, for any other vertices in the hop, because a batch may
     * be split and several samplers may share the work (but see PST_SAMPLING_WHOLE). PST_E_LIMIT: the
     * neighbours exceed capacity. Report other failures with pst_fail. For random numbers see
     * common/util/rng.h. */
    pst_rc (*draw)(void *state, const struct pst_sampling_hop *hop);
    /* NULL: the algorithm must see the lists, so it cannot be used with `topology` "ssd". It must choose the
     * neighbours that `draw` chooses. The same errors. */
    pst_rc (*pick)(void *state, const struct pst_sampling_pick *hop);
    /* Optional. Takes what draw_on_device needs of the device's memory, until the device is closed. It may be
     * called several times for one device. */
    pst_rc (*place)(void *state, struct pst_device *device);
    /* NULL: the algorithm runs only on CPUs. It must draw the same neighbours as `draw`. */
    pst_rc (*draw_on_device)(void *state, const struct pst_sampling_device_hop *hop);
    /* Optional. The probability that a draw of `fanout` (-1: all, never 0) of a vertex's `degree` entries has
     * one of `copies` given entries (1 to degree; a neighbour may be in a list several times). With it the
     * planner computes how hot vertices are (stages/lib/plan/hotness.h); without it, it counts in sampled
     * batches. Another thread calls it while the planner draws batches with the same state. */
    double (*keep_probability)(const void *state, int64_t degree, int64_t copies, int64_t fanout);
};

/* The symbol that the shared object of an algorithm exports. */
extern PST_API const struct pst_sampling_algorithm pst_sampling_algorithm;

#define PST_SAMPLING_DECLARE(name) extern const struct pst_sampling_algorithm pst_sampling_##name;
PST_SAMPLING_ALGORITHMS(PST_SAMPLING_DECLARE)
#undef PST_SAMPLING_DECLARE

/* An algorithm with its state. */
struct pst_sampling_opened {
    const struct pst_sampling_algorithm *algorithm;
    void *state;
    bool owned;    /* the state was allocated and opened here */
    void *library; /* the shared object that it came from; NULL: none */
};

static inline bool pst_sampling_has(const struct pst_sampling_opened *opened, enum pst_sampling_traits trait)
{
    return opened->algorithm->traits != NULL && (opened->algorithm->traits(opened->state) & (int)trait) != 0;
}

/* Finds an algorithm: by its name in the table, or by the path of a shared object (with a `/`), which is
 * loaded. PST_E_ARG: there is no such algorithm; the message lists the existing ones. */
PST_API PST_MUST_USE pst_rc pst_sampling_algorithm_find(struct pst_sampling_opened *opened, const char *name);
/* Makes the state of opened->algorithm. options: "NAME=VALUE, NAME=VALUE", the algorithm's parameters.
 * PST_E_ARG: the algorithm does not have the option, or the value is out of range. */
PST_API PST_MUST_USE pst_rc pst_sampling_algorithm_open(struct pst_sampling_opened *opened,
                                                        const char *options,
                                                        const struct pst_sampling_setup *setup);
/* Accepts a struct that is zeroed, or for which only pst_sampling_algorithm_find was called. */
PST_API void pst_sampling_algorithm_close(struct pst_sampling_opened *opened);

/* Computes an upper bound of the size of any batch of `batch` seeds. */
PST_API void pst_sampling_size_bound(struct pst_minibatch_size *size,
                                     const struct pst_sampling_opened *opened, const struct pst_csc *graph,
                                     const int64_t *fanout, int hops, int64_t batch);

PST_END_DECLS
#endif
