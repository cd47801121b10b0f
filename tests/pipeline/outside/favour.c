/* favour.c: a sampling algorithm built outside the tree. It draws in-neighbours with replacement, and favours
 * those with a high degree: each draw is the better of two uniform ones.
 *
 * The object can be used in two ways. As the parameter `algorithm` of planner and sampler it is planned as
 * what it is. As a stage (`run`) it is a whole sampler, and the planner plans for whatever its own
 * parameter says. */
#include <penstock/stages/lib/sampling/sampling.h>

/* ---- the algorithm ------------------------------------------------------------------------------ */

struct favour {
    int64_t extra; /* draws of each vertex besides fanout */
};

static int64_t neighbour(const struct pst_csc *g, int64_t at)
{
    return g->index_bytes == 4 ? ((const int32_t *)g->indices)[at] : ((const int64_t *)g->indices)[at];
}

static struct pst_sampling_bound bound(const void *state, const struct pst_csc *graph, int hop,
                                       int64_t fanout, int64_t n)
{
    const struct favour *f = state;
    int64_t edges = fanout < 0 ? graph->edges : n * (fanout + f->extra);
    (void)hop;
    return (struct pst_sampling_bound){.edges = edges, .vertices = n + edges};
}

static pst_rc draw(void *state, const struct pst_sampling_hop *h)
{
    const struct favour *f = state;
    const struct pst_csc *g = h->graph;
    const struct pst_sample_key *key = h->key;
    int64_t used = 0;
    h->indptr[0] = 0;
    for (int64_t i = 0; i < h->n; i++) {
        int64_t v = h->vertices[i], begin = g->indptr[v], degree = g->indptr[v + 1] - begin;
        int64_t draws = degree == 0 ? 0 : h->fanout < 0 ? degree : h->fanout + f->extra;
        if (used + draws > h->capacity)
            return PST_E_LIMIT;
        for (int64_t s = 0; s < draws; s++) {
            uint64_t mix = key->seed * 31 + key->epoch, step = key->batch * 64 + key->hop;
            uint64_t r = (mix ^ (uint64_t)v * 0x9e3779b97f4a7c15u ^ (uint64_t)s << 40) + step;
            r = (r ^ r >> 31) * 0xbf58476d1ce4e5b9u;
            r = (r ^ r >> 29) * 0x94d049bb133111ebu;
            int64_t a = neighbour(g, begin + (int64_t)((r & 0xffffffff) % (uint64_t)degree));
            int64_t b = neighbour(g, begin + (int64_t)((r >> 32) % (uint64_t)degree));
            bool a_wins = g->indptr[a + 1] - g->indptr[a] >= g->indptr[b + 1] - g->indptr[b];
            h->out[used++] = a_wins ? a : b;
        }
        h->indptr[i + 1] = (int32_t)used;
    }
    return PST_OK;
}

static const struct pst_sampling_option options[] = {
    {.name = "extra",
     .type = PST_PARAM_INT,
     .max = 1000,
     .into = offsetof(struct favour, extra),
     .help = "draws of each vertex besides fanout"},
    {0},
};

const struct pst_sampling_algorithm pst_sampling_algorithm = {.abi = PST_SAMPLING_ABI,
                                                              .name = "favour",
                                                              .help = "favours neighbours of high degree",
                                                              .options = options,
                                                              .state_bytes = sizeof(struct favour),
                                                              .bound = bound,
                                                              .draw = draw};

/* ---- a stage of it ------------------------------------------------------------------------------- */

struct stage {
    struct pst_sampling_params params;
    struct pst_sampling *sampling;
};

static struct stage *state(struct pst_stage *self)
{
    return pst_state(self);
}

static pst_rc size(struct pst_stage *self)
{
    return pst_sampling_size(self, &state(self)->params, &state(self)->sampling, &pst_sampling_algorithm,
                             NULL);
}

static pst_rc open(struct pst_stage *self)
{
    return pst_sampling_open(state(self)->sampling);
}

static pst_rc on_event(struct pst_stage *self, const struct pst_event *event)
{
    return pst_sampling_on_event(state(self)->sampling, event);
}

static void close(struct pst_stage *self)
{
    pst_sampling_close(state(self)->sampling);
}

static const struct pst_port_desc ports[] = {PST_SAMPLING_PORTS, {0}};
static const struct pst_param_desc params[] = {PST_SAMPLING_PARAMS(struct stage, params), {0}};

const struct pst_stage_desc pst_stage = {.abi = PST_STAGE_ABI,
                                         .name = "favour",
                                         .help = "favours high degrees",
                                         .ports = ports,
                                         .params = params,
                                         .dataset = PST_SAMPLING_DATASET,
                                         .state_bytes = sizeof(struct stage),
                                         .size = size,
                                         .open = open,
                                         .on_event = on_event,
                                         .close = close};
