/* report.c: what a sampler adds to the report. */
#include "common/error.h"
#include "stages/lib/sampling/algorithms/states.h"
#include "stages/lib/sampling/sampling_impl.h"

/* On a GPU the kernels are not timed one by one: there is one time for all. */
static pst_rc report_times(struct pst_sampling *s)
{
    const struct pst_filler *f = &s->filler;
    if (pst_device_is_cuda(&s->device))
        return pst_report(s->self, "sampler",
                          "{\"seeds_s\": %.6f, \"device_s\": %.6f, \"digest_s\": %.6f, \"device\": \"%s\", "
                          "\"device_bytes\": %llu, \"topology\": \"%s\"}",
                          s->count.seeds_s, s->device_filler.device_s, f->digest_s, s->device.name,
                          (unsigned long long)s->device.device_bytes,
                          s->topology_in_place ? "pinned" : "device");
    return pst_report(s->self, "sampler",
                      "{\"seeds_s\": %.6f, \"sample_s\": %.6f, \"dedup_s\": %.6f, \"gather_s\": %.6f, "
                      "\"lookup_s\": %.6f, \"digest_s\": %.6f}",
                      s->count.seeds_s, f->expander.sample_s, f->expander.dedup_s, f->gather_s, f->lookup_s,
                      f->digest_s);
}

/* What an epoch takes if partitions pass through a buffer. Every sampler has the same. */
static pst_rc report_states(struct pst_sampling *s)
{
    const struct pst_sampling_states *states = s->in.seeds.states;
    if (states == NULL || pst_instance(s->self, NULL) > 0 || pst_replica(s->self, NULL) > 0)
        return PST_OK;
    return pst_report(s->self, "partition_buffer",
                      "{\"partitions\": %d, \"buffer\": %d, \"states\": %lld, \"batches\": %llu, "
                      "\"loads\": %lld, \"partition_bytes\": %llu}",
                      states->partitions, states->buffer, (long long)states->n,
                      (unsigned long long)states->batches, (long long)states->loads,
                      (unsigned long long)states->rows * s->in.ds.stride_bytes);
}

void pst_sampling_report(struct pst_sampling *s)
{
    pst_rc rc = pst_report(
        s->self, "cache",
        "{\"hits\": %llu, \"gpu_hits\": %llu, \"lookups\": %llu, \"rows\": %lld, \"gpu_rows\": %lld}",
        (unsigned long long)s->count.hits, (unsigned long long)s->count.gpu_hits,
        (unsigned long long)s->count.lookups, (long long)(s->cache_owner ? s->cache.n : 0),
        (long long)(s->cache_owner ? s->cache.gpu_n : 0));
    if (rc == PST_OK)
        rc = pst_report(s->self, "sampler",
                        "{\"batches\": %llu, \"micro_batches\": %llu, \"overflows\": %llu, "
                        "\"empty_slots\": %llu, \"slot_bytes\": %llu, \"rows_in_place\": %llu}",
                        pst_replica(s->self, NULL) > 0
                            ? 0ull
                            : (unsigned long long)s->count.batches, /* all sample each */
                        (unsigned long long)s->count.micro_batches, (unsigned long long)s->count.overflows,
                        (unsigned long long)s->count.empty, (unsigned long long)s->filler.layout.bytes,
                        (unsigned long long)s->count.in_place);
    if (rc == PST_OK && s->params->edges)
        rc = pst_report(s->self, "sampler", "{\"edges_left_out\": %llu}",
                        (unsigned long long)s->pairs.left_out);
    if (rc == PST_OK)
        rc = report_times(s);
    if (rc == PST_OK)
        rc = report_states(s);
    if (rc == PST_OK && s->lists != NULL)
        rc = pst_sampling_lists_report(s);
    if (rc == PST_OK && s->resident.members > 0)
        rc = pst_sampling_resident_report(&s->resident, s->self, s->in.ds.stride_bytes);
    if (rc != PST_OK)
        pst_log(s->self, "cannot report the counts of this sampler: %s", pst_error_text());
}
