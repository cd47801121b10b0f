/* favour: a sampler built outside the tree: it draws in-neighbours with replacement, in favour of those
 * with a high degree (the better of two uniform draws). */
#include <penstock/stages/lib/sampling/sampling.h>

/* ---- the algorithm ------------------------------------------------------------------------------ */

static int64_t neighbour(const struct pst_csc *g, int64_t at)
{
    return g->index_bytes == 4 ? ((const int32_t *)g->indices)[at] : ((const int64_t *)g->indices)[at];
}

static pst_rc favour(void *user, const struct pst_csc *g, const struct pst_sample_key *key,
                     const int64_t *vertices, int64_t n, int fanout, int32_t *indptr, int64_t *out,
                     int64_t capacity)
{
    (void)user;
    int64_t used = 0;
    indptr[0] = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t begin = g->indptr[vertices[i]], degree = g->indptr[vertices[i] + 1] - begin;
        int64_t draws = degree == 0 ? 0 : fanout < 0 ? degree : fanout;
        if (used + draws > capacity)
            return PST_E_LIMIT;
        for (int64_t s = 0; s < draws; s++) {
            uint64_t mix = key->seed * 31 + key->epoch, step = key->batch * 64 + key->hop;
            uint64_t r = (mix ^ (uint64_t)vertices[i] * 0x9e3779b97f4a7c15u ^ (uint64_t)s << 40) + step;
            r = (r ^ r >> 31) * 0xbf58476d1ce4e5b9u;
            r = (r ^ r >> 29) * 0x94d049bb133111ebu;
            int64_t a = neighbour(g, begin + (int64_t)((r & 0xffffffff) % (uint64_t)degree));
            int64_t b = neighbour(g, begin + (int64_t)((r >> 32) % (uint64_t)degree));
            bool a_wins = g->indptr[a + 1] - g->indptr[a] >= g->indptr[b + 1] - g->indptr[b];
            out[used++] = a_wins ? a : b;
        }
        indptr[i + 1] = (int32_t)used;
    }
    return PST_OK;
}

/* ---- the rest of the stage ----------------------------------------------------------------------- */

static struct pst_sampling **sampling(struct pst_stage *self)
{
    return pst_state(self);
}

static pst_rc size(struct pst_stage *self)
{
    return pst_sampling_size(self, sampling(self), favour, NULL);
}

static pst_rc open(struct pst_stage *self)
{
    return pst_sampling_open(*sampling(self));
}

static pst_rc on_event(struct pst_stage *self, const struct pst_event *event)
{
    return pst_sampling_on_event(*sampling(self), event);
}

static void close(struct pst_stage *self)
{
    pst_sampling_close(*sampling(self));
}

static const struct pst_port_desc ports[] = {PST_SAMPLING_PORTS, {0}};
static const struct pst_param_desc params[] = {PST_SAMPLING_PARAMS, {0}};

const struct pst_stage_desc pst_stage = {.abi = PST_STAGE_ABI,
                                         .name = "favour",
                                         .help = "favours high degrees",
                                         .ports = ports,
                                         .params = params,
                                         .state_bytes = sizeof(void *),
                                         .size = size,
                                         .open = open,
                                         .on_event = on_event,
                                         .close = close};
