/* input.c: reads the parameters that planner and samplers share, and opens what they name. */
#include "stages/lib/sampling/input.h"

#include <stdio.h>
#include <string.h>

#include "common/error.h"
#include "stages/lib/topology/topology.h"

static pst_rc read_fanout(const struct pst_stage *self, struct pst_plan_key *key)
{
    const size_t n = pst_param_ints(self, "fanout", key->fanout, PST_HOPS_MAX);
    key->hops = (int)n;
    return n >= 1 && n <= PST_HOPS_MAX
               ? PST_OK
               : pst_fail(PST_E_ARG, "fanout has %zu hops; expected 1 to %d, for example [10, 5]", n,
                          PST_HOPS_MAX);
}

static pst_rc copy_text(char *to, size_t bytes, const char *what, const char *from)
{
    return snprintf(to, bytes, "%s", from) < (int)bytes
               ? PST_OK
               : pst_fail(PST_E_LIMIT, "%s is longer than %zu bytes: %s", what, bytes - 1, from);
}

static pst_rc open_algorithm(struct pst_sampling_input *in, const struct pst_stage *self,
                             const struct pst_sampling_algorithm *own, void *own_state)
{
    struct pst_plan_key *key = &in->key;
    const char *options = own != NULL ? "" : pst_param_str(self, "options");
    pst_rc rc = PST_OK;
    key->replace = own == NULL && pst_param_bool(self, "replace");
    in->algorithm = (struct pst_sampling_opened){.algorithm = own, .state = own_state};
    if (own == NULL)
        rc = pst_sampling_algorithm_find(&in->algorithm, pst_param_str(self, "algorithm"));
    const struct pst_sampling_setup setup = {.dataset = &in->ds,
                                             .graph = &in->graph,
                                             .hops = key->hops,
                                             .fanout = key->fanout,
                                             .replace = key->replace};
    if (rc == PST_OK && own_state == NULL)
        rc = pst_sampling_algorithm_open(&in->algorithm, options, &setup);
    if (rc == PST_OK)
        rc = copy_text(key->algorithm, sizeof key->algorithm, "the algorithm's name",
                       in->algorithm.algorithm->name);
    return rc == PST_OK ? copy_text(key->options, sizeof key->options, "options", options) : rc;
}

pst_rc pst_sampling_input_open(struct pst_sampling_input *in, struct pst_stage *self,
                               const struct pst_sampling_algorithm *own, void *own_state,
                               struct pst_sampling_order order)
{
    const char *split = pst_param_str(self, "split");
    int part = PST_TRAIN;
    memset(in, 0, sizeof *in);
    in->gpu_topology_bytes = (uint64_t)pst_param_int(self, "gpu_topology");
    pst_rc rc = read_fanout(self, &in->key);
    if (rc == PST_OK)
        rc = pst_dataset_open(&in->ds, pst_dataset_dir(self));
    if (rc == PST_OK)
        rc = pst_dataset_choose_split(&in->ds, split, &part);
    if (rc == PST_OK)
        rc = pst_seeds_init(&in->seeds, &in->ds, pst_dataset_part_name(part), pst_param_int(self, "batch"),
                            order.seed, order.shuffle);
    if (rc != PST_OK)
        return rc;
    in->graph = pst_topology_mapped(&in->ds);
    memcpy(in->key.dataset, in->ds.digest, sizeof in->key.dataset);
    in->key.batch = in->seeds.batch;
    rc = copy_text(in->key.split, sizeof in->key.split, "split", split);
    return rc == PST_OK ? open_algorithm(in, self, own, own_state) : rc;
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
