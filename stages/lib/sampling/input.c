/* input.c: reads the parameters that planner and samplers share, opens what they name, and sizes a sampler's
 * slots. */
#include "stages/lib/sampling/input.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/error.h"
#include "common/store/dataset/rows.h"
#include "stages/lib/sampling/sampling_impl.h"
#include "stages/lib/topology/topology.h"

static pst_rc copy_text(char *to, size_t bytes, const char *what, const char *from)
{
    return snprintf(to, bytes, "%s", from) < (int)bytes
               ? PST_OK
               : pst_fail(PST_E_LIMIT, "%s is too long: expected at most %zu bytes: %s", what, bytes - 1,
                          from);
}

/* The numbers of names, in the order of the dataset's relations. */
static pst_rc open_fanout(struct pst_sampling_input *in, const struct pst_named_ints *fanout)
{
    struct pst_plan_key *key = &in->key;
    const int64_t relations = in->ds.relations;
    size_t wrong;
    key->hops = (int)fanout->all.count;
    memcpy(key->fanout, fanout->all.value, fanout->all.count * sizeof *key->fanout);
    if (fanout->names == 0)
        return PST_OK;
    const size_t row = (size_t)key->hops * sizeof *in->fanout_by_relation, bytes = (size_t)relations * row;
    int32_t *chosen = malloc((size_t)relations * sizeof *chosen + 1);
    in->fanout_by_relation = malloc(bytes + 1);
    pst_rc rc = chosen != NULL && in->fanout_by_relation != NULL
                    ? pst_edge_type_match(&in->ds, fanout->name, fanout->names, chosen, &wrong)
                    : pst_fail(PST_E_NOMEM, "out of memory: cannot store the fanouts of %lld edge types",
                               (long long)relations);
    for (int64_t r = 0; r < relations && rc == PST_OK; r++)
        memcpy(in->fanout_by_relation + r * key->hops, fanout->value[chosen[r]], row);
    if (rc == PST_OK)
        (void)snprintf(key->fanouts, sizeof key->fanouts, "%016" PRIx64,
                       (uint64_t)XXH3_64bits(in->fanout_by_relation, bytes));
    free(chosen);
    return rc == PST_OK ? rc : pst_wrap(rc, "the parameter fanout");
}

/* shared_vertices: seeds are vertices, and all replicas have the same. */
static pst_rc open_algorithm(struct pst_sampling_input *in, const struct pst_sampling_input_params *params,
                             const struct pst_sampling_algorithm *own, void *own_state, bool shared_vertices)
{
    struct pst_plan_key *key = &in->key;
    const char *options = own != NULL ? "" : params->options;
    pst_rc rc = PST_OK;
    key->replace = own == NULL && params->replace;
    in->algorithm = (struct pst_sampling_opened){.algorithm = own, .state = own_state};
    if (own == NULL)
        rc = pst_sampling_algorithm_find(&in->algorithm, params->algorithm);
    const struct pst_sampling_setup setup = {.dataset = &in->ds,
                                             .graph = &in->graph,
                                             .hops = key->hops,
                                             .fanout = key->fanout,
                                             .fanout_by_relation = in->fanout_by_relation,
                                             .replace = key->replace,
                                             .batch = in->seeds.batch,
                                             .batches = in->seeds.batches,
                                             .seeds = shared_vertices ? in->seeds.ids : NULL,
                                             .nseeds = in->seeds.n,
                                             .seed = in->seeds.seed};
    if (rc == PST_OK && own_state == NULL)
        rc = pst_sampling_algorithm_open(&in->algorithm, options, &setup);
    if (rc == PST_OK && shared_vertices && in->algorithm.algorithm->states != NULL)
        pst_seeds_by_states(&in->seeds, in->algorithm.algorithm->states(in->algorithm.state));
    if (rc == PST_OK && in->fanout_by_relation != NULL &&
        (own != NULL || !pst_sampling_has(&in->algorithm, PST_SAMPLING_TYPED)))
        rc = pst_fail(
            PST_E_ARG,
            "fanout has numbers for each edge type, but the algorithm %s does not tell edge types apart: "
            "set algorithm to typed, or fanout to a list",
            in->algorithm.algorithm->name);
    if (rc == PST_OK)
        rc = copy_text(key->algorithm, sizeof key->algorithm, "the algorithm's name",
                       in->algorithm.algorithm->name);
    return rc == PST_OK ? copy_text(key->options, sizeof key->options, "options", options) : rc;
}

static pst_rc open_edges(struct pst_sampling_input *in, int64_t batch, const struct pst_sampling_order *order)
{
    const struct pst_array *edges = &in->ds.edges_split[PST_TRAIN];
    if (edges->map == NULL || edges->shape[0] < 1)
        return pst_fail(PST_E_ARG,
                        "seeds is edges, but the dataset %s has no edges_train: import a dataset for link "
                        "prediction, or set seeds to vertices",
                        in->ds.dir);
    return pst_seeds_init_edges(&in->seeds, edges->shape[0], batch, order->seed, order->shuffle);
}

pst_rc pst_sampling_input_open(struct pst_sampling_input *in, struct pst_stage *self,
                               const struct pst_sampling_input_params *params,
                               const struct pst_sampling_algorithm *own, void *own_state,
                               struct pst_sampling_order order)
{
    int part = PST_TRAIN;
    memset(in, 0, sizeof *in);
    pst_rc rc = pst_dataset_open_part(&in->ds, pst_dataset_dir(self));
    if (rc == PST_OK)
        rc = pst_rows_join_types(&in->ds);
    if (rc == PST_OK && in->ds.cut.lists && own == NULL)
        rc = pst_fail(PST_E_UNSUPPORTED,
                      "%s has only some lists of neighbours, and this stage needs all: use the stage "
                      "remote_sampler, without a planner",
                      in->ds.dir);
    if (rc == PST_OK)
        rc = open_fanout(in, &params->fanout);
    if (rc == PST_OK)
        rc = pst_dataset_choose_split(&in->ds, params->split, &part);
    if (rc == PST_OK)
        rc = order.edges ? open_edges(in, params->batch, &order)
                         : pst_seeds_init(&in->seeds, &in->ds, pst_dataset_part_name(part), params->batch,
                                          order.seed, order.shuffle);
    if (rc == PST_OK && order.own_part && in->ds.cut.parts > 0) {
        order.replica = in->ds.cut.part;
        order.replicas = in->ds.cut.parts;
    }
    if (rc == PST_OK && order.replicas > 0)
        rc = order.owner != NULL && order.vertices != in->ds.vertices
                 ? pst_fail(PST_E_ARG,
                            "the plan is of a graph with %lld vertices, but this one has %lld: make a new "
                            "plan",
                            (long long)order.vertices, (long long)in->ds.vertices)
                 : pst_seeds_divide(&in->seeds, order.replica, order.replicas, order.owner, &in->ds.cut);
    if (rc != PST_OK)
        return rc;
    in->graph = pst_topology_mapped(&in->ds);
    memcpy(in->key.dataset, in->ds.digest, sizeof in->key.dataset);
    in->key.batch = in->seeds.batch;
    rc = copy_text(in->key.split, sizeof in->key.split, "split", params->split);
    return rc == PST_OK ? open_algorithm(in, params, own, own_state, !order.edges && order.replicas == 0)
                        : rc;
}

void pst_sampling_input_close(struct pst_sampling_input *in)
{
    pst_sampling_algorithm_close(&in->algorithm);
    free(in->fanout_by_relation);
    pst_seeds_release(&in->seeds);
    pst_dataset_close(&in->ds);
}

void pst_sampling_input_bound(const struct pst_sampling_input *in, struct pst_minibatch_size *bound)
{
    pst_sampling_size_bound(bound, &in->algorithm, &in->graph, in->key.fanout, in->key.hops, in->key.batch);
}

/* ---- of a sampler ----------------------------------------------------------------------------------- */

pst_rc pst_sampling_read_plan(struct pst_sampling *s, const char **path)
{
    int port = pst_port(s->self, "plan");
    *path = pst_linked(s->self, port) ? pst_oneshot(s->self, port) : s->params->plan;
    if (*path == NULL || *path[0] == '\0')
        return PST_OK;
    if (pst_linked(s->self, port) && s->params->plan[0] != '\0')
        return pst_fail(PST_E_ARG,
                        "the parameter plan is \"%s\", but the port plan is linked too; use only one of them",
                        s->params->plan);
    const pst_rc rc = pst_plan_read(&s->plan, *path);
    s->planned = rc == PST_OK;
    return rc;
}

/* The rows of other parts are those of the stage remote. */
static void keep_own_rows(struct pst_sampling *s)
{
    const struct pst_array *own = &s->in.ds.features;
    if (s->in.ds.cut.parts > 0 && strcmp(s->plan.key.policy, PST_PLAN_ROWS_OF_ALL) == 0)
        pst_plan_keep(&s->plan.rows, own->first_row, own->first_row + own->shape[0], true);
}

pst_rc pst_sampling_check_plan(struct pst_sampling *s, const char *path)
{
    if (!s->planned)
        return PST_OK;
    keep_own_rows(s);
    if (strcmp(s->plan.key.hotness, "oracle") == 0 && s->params->shuffle != PST_SEEDS_GLOBAL &&
        s->plan.caches.replicas == 0)
        pst_warn(s->self,
                 "the plan's oracle counted the batches of the shuffle global, but shuffle is %s: the plan "
                 "does not know this run's batches",
                 s->params->shuffle == PST_SEEDS_LOCAL ? "local" : "none");
    if (pst_plan_match(&s->plan, &s->in.key, PST_PLAN_ALGORITHM, path) == PST_OK)
        return PST_OK;
    const pst_rc rc = pst_plan_match(&s->plan, &s->in.key, 0, path);
    s->other_plan = rc == PST_OK;
    if (s->other_plan)
        pst_log(s->self,
                "slots may be too small: the plan was made for the algorithm %s, but this stage uses %s",
                s->plan.key.algorithm, s->in.key.algorithm);
    return rc;
}

/* What depends on batches of vertices is refused. */
pst_rc pst_sampling_open_pairs(struct pst_sampling *s)
{
    const struct pst_sampling_params *p = s->params;
    const char *what = s->planned                              ? "a plan, which counts batches of vertices"
                       : p->input.topology == PST_TOPOLOGY_SSD ? "topology ssd"
                       : s->bare                               ? "the output sample"
                       : s->cached >= 0                        ? "the output cached"
                       : p->shuffle == PST_SEEDS_LOCAL         ? "the shuffle local"
                       : pst_sampling_has(&s->in.algorithm, PST_SAMPLING_WHOLE)
                           ? "an algorithm that samples whole batches"
                           : NULL;
    if (what != NULL)
        return pst_fail(PST_E_UNSUPPORTED,
                        "seeds is edges, which cannot be used together with %s: change one of them", what);
    s->filler.pairs = &s->pairs;
    return pst_sampling_pairs_init(&s->pairs, &s->in.ds.edges_split[PST_TRAIN], &s->in.graph,
                                   s->in.seeds.batch, p->negatives, p->leave_out);
}

static void bound_pairs(const struct pst_sampling *s, struct pst_minibatch_size *bound)
{
    const int64_t pairs = pst_sampling_pairs_of(&s->pairs, s->in.seeds.batch);
    pst_sampling_size_bound(bound, &s->in.algorithm, &s->in.graph, s->in.key.fanout, s->in.key.hops,
                            2 * pairs);
    bound->pairs = pairs;
}

/* How many rows that are not cached a slot of margin 1 holds, if the others stay in the cache; else 0. The
 * plan may have been made for other batches than this sampler's. Then a slot holds all rows. */
static int64_t stored_rows(const struct pst_sampling *s)
{
    const bool same = !s->other_plan && s->in.ds.cut.parts == 0 && s->params->shuffle == PST_SEEDS_GLOBAL;
    return !pst_sampling_keeps_in_place(s) ? 0 : same ? pst_plan_stored(&s->plan) : s->base.n[s->base.hops];
}

/* A single seed must fit, however few of its rows are cached: it cannot be split. */
static void hold_a_seed(const struct pst_sampling *s, struct pst_minibatch_size *size)
{
    struct pst_minibatch_size one;
    pst_sampling_size_bound(&one, &s->in.algorithm, &s->in.graph, s->in.key.fanout, s->in.key.hops, 1);
    if (size->stored > 0)
        size->stored = pst_min_i64(size->n[size->hops], pst_max_i64(size->stored, one.n[one.hops]));
}

void pst_sampling_size_slots(struct pst_sampling *s)
{
    const struct pst_dataset *ds = &s->in.ds;
    struct pst_filler *f = &s->filler;
    struct pst_minibatch_size bound, size;
    if (s->params->edges)
        bound_pairs(s, &bound);
    else
        pst_sampling_input_bound(&s->in, &bound);
    s->base = s->planned ? s->plan.max : bound;
    s->base.n[0] = bound.n[0];
    s->base.weights = bound.weights;
    s->base.relations = bound.relations;
    s->base.pairs = bound.pairs;
    s->base.stored = stored_rows(s);
    pst_minibatch_size_scale(&size, &s->base, &bound, s->params->margin);
    hold_a_seed(s, &size);
    pst_minibatch_layout_init(&f->layout, &size, !s->bare && ds->feature_dim > 0 ? ds->stride_bytes : 0);
    memcpy(f->fanout, s->in.key.fanout, sizeof f->fanout);
    f->labels = ds->labels.map;
    f->types = ds->vertex_types > 0 ? ds : NULL;
    f->feature_dim = s->bare ? 0 : ds->feature_dim;
    f->feature_dtype = (uint32_t)ds->features.dtype;
    f->row_bytes = (uint64_t)ds->feature_dim * pst_dtype_bytes(ds->features.dtype);
    pst_need(s->self, s->port, f->layout.bytes, PST_PAGE);
    if (s->cached >= 0)
        pst_need(s->self, s->cached, f->layout.features_bytes, PST_PAGE);
    pst_log(s->self, "slots of %llu bytes: %lld seeds, %lld vertices after %d hops; %s, margin %g",
            (unsigned long long)f->layout.bytes, (long long)size.n[0], (long long)size.n[size.hops],
            size.hops, s->planned ? "sized by the plan" : "no plan: sized for the worst case",
            s->params->margin);
}
