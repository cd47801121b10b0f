/* input.c: reads the parameters that planner and samplers share, and opens what they name. */
#include "stages/lib/sampling/input.h"

#include <stdio.h>
#include <string.h>

#include "common/error.h"
#include "common/store/dataset/rows.h"
#include "stages/lib/topology/topology.h"

static pst_rc copy_text(char *to, size_t bytes, const char *what, const char *from)
{
    return snprintf(to, bytes, "%s", from) < (int)bytes
               ? PST_OK
               : pst_fail(PST_E_LIMIT, "%s is too long: expected at most %zu bytes: %s", what, bytes - 1,
                          from);
}

static pst_rc open_algorithm(struct pst_sampling_input *in, const struct pst_sampling_input_params *params,
                             const struct pst_sampling_algorithm *own, void *own_state)
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
                                             .replace = key->replace,
                                             .batch = in->seeds.batch,
                                             .batches = in->seeds.batches};
    if (rc == PST_OK && own_state == NULL)
        rc = pst_sampling_algorithm_open(&in->algorithm, options, &setup);
    if (rc == PST_OK)
        rc = copy_text(key->algorithm, sizeof key->algorithm, "the algorithm's name",
                       in->algorithm.algorithm->name);
    return rc == PST_OK ? copy_text(key->options, sizeof key->options, "options", options) : rc;
}

pst_rc pst_sampling_input_open(struct pst_sampling_input *in, struct pst_stage *self,
                               const struct pst_sampling_input_params *params,
                               const struct pst_sampling_algorithm *own, void *own_state,
                               struct pst_sampling_order order)
{
    int part = PST_TRAIN;
    memset(in, 0, sizeof *in);
    in->key.hops = (int)params->fanout.count;
    memcpy(in->key.fanout, params->fanout.value, params->fanout.count * sizeof *in->key.fanout);
    pst_rc rc = pst_dataset_open(&in->ds, pst_dataset_dir(self));
    if (rc == PST_OK)
        rc = pst_rows_join_types(&in->ds);
    if (rc == PST_OK)
        rc = pst_dataset_choose_split(&in->ds, params->split, &part);
    if (rc == PST_OK)
        rc = pst_seeds_init(&in->seeds, &in->ds, pst_dataset_part_name(part), params->batch, order.seed,
                            order.shuffle);
    if (rc == PST_OK && order.replicas > 0)
        rc = pst_seeds_divide(&in->seeds, order.replica, order.replicas);
    if (rc != PST_OK)
        return rc;
    in->graph = pst_topology_mapped(&in->ds);
    memcpy(in->key.dataset, in->ds.digest, sizeof in->key.dataset);
    in->key.batch = in->seeds.batch;
    rc = copy_text(in->key.split, sizeof in->key.split, "split", params->split);
    return rc == PST_OK ? open_algorithm(in, params, own, own_state) : rc;
}

void pst_sampling_input_close(struct pst_sampling_input *in)
{
    pst_sampling_algorithm_close(&in->algorithm);
    pst_seeds_release(&in->seeds);
    pst_dataset_close(&in->ds);
}

void pst_sampling_input_bound(const struct pst_sampling_input *in, struct pst_minibatch_size *bound)
{
    pst_sampling_size_bound(bound, &in->algorithm, &in->graph, in->key.fanout, in->key.hops, in->key.batch);
}
