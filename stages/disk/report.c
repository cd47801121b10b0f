/* report.c: what the disk stage says about itself at the end. */
#include <string.h>

#include "stages/disk/disk.h"

/* The drives that we drive ourselves, and what each is modelled on if it is emulated. */
static pst_rc report_drives(struct pst_stage *self, const struct disk *d, const struct pst_io_driven *n)
{
    const struct pst_io_nvme_config *c = &d->config.nvme;
    const pst_rc rc = pst_report(self, "io", "{\"drives\": %u}", n->drives);
    if (rc != PST_OK || strcmp(pst_disk_backend(d->engine), pst_io_emulated_ops.name) != 0)
        return rc;
    return pst_report(self, "io",
                      "{\"model\": {\"preset\": \"%s\", \"dilate\": %.9g, \"iops\": %.9g, "
                      "\"bytes_per_s\": %.9g, \"latency_us\": %.9g}}",
                      c->preset, c->dilate, n->iops, n->bytes_per_s, n->latency_s * 1e6);
}

/* What the run did, without the probe before it. */
static struct pst_disk_stats run_stats(const struct disk *d)
{
    struct pst_disk_stats s = *pst_disk_stats(d->engine);
    const struct pst_disk_stats *before = &d->before;
    s.requests -= before->requests;
    s.bytes -= before->bytes;
    s.rows -= before->rows;
    s.row_bytes_wanted -= before->row_bytes_wanted;
    s.copied_bytes -= before->copied_bytes;
    s.retries -= before->retries;
    s.handed -= before->handed;
    s.merged -= before->merged;
    s.active_s -= before->active_s;
    s.in_flight_s -= before->in_flight_s;
    s.starved_s -= before->starved_s;
    return s;
}

static pst_rc report_gap(struct pst_stage *self, const struct disk *d)
{
    return pst_report(self, "io",
                      "{\"gap_bytes\": %llu, \"gap_from\": \"%s\", \"drive_iops\": %.9g, "
                      "\"drive_bytes_per_s\": %.9g, \"gap_measured_s\": %.6f}",
                      (unsigned long long)pst_disk_gap(d->engine), d->gap_from, d->drive_iops,
                      d->drive_bytes_per_s, d->gap_measured_s);
}

static pst_rc report_gate(struct pst_stage *self, const struct disk *d)
{
    return pst_report(
        self, "io",
        "{\"accumulate\": \"%s\", \"accesses_wanted\": %llu, \"bursts\": %llu, \"hurried\": %llu, "
        "\"burst\": {\"from\": \"%s\", \"iop_peak\": %.9g, \"overhead_us\": %.9g, "
        "\"probe_s\": %.6f}}",
        d->accumulate, (unsigned long long)(d->gate.kind == PST_GATE_ACCESSES ? d->gate.want : 0),
        (unsigned long long)d->bursts, (unsigned long long)d->hurried, d->burst_from, d->burst.iop_peak,
        d->burst.overhead_s * 1e6, d->probe_s);
}

void pst_disk_stage_report(struct pst_stage *self, const struct disk *d)
{
    const struct pst_disk_stats stats = run_stats(d), *s = &stats;
    const struct pst_disk_depth *depth = pst_disk_depth(d->engine);
    struct rusage usage;
    (void)getrusage(RUSAGE_THREAD, &usage);
    pst_rc rc =
        pst_report(self, "io",
                   "{\"backend\": \"%s\", \"direct\": \"%s\", \"requests\": %llu, \"bytes\": %llu, "
                   "\"rows\": %llu, \"row_bytes_wanted\": %llu, \"copied_bytes\": %llu, "
                   "\"retries\": %llu, \"merged\": %llu, \"active_s\": %.6f, \"in_flight_s\": %.6f, "
                   "\"starved_s\": %.6f, \"major_faults\": %ld, \"minor_faults\": %ld, "
                   "\"depth\": %d, \"depth_needed\": %u, \"depth_from\": \"%s\"}",
                   pst_disk_backend(d->engine), pst_disk_direct(d->engine) ? "yes" : "no",
                   (unsigned long long)s->requests, (unsigned long long)s->bytes, (unsigned long long)s->rows,
                   (unsigned long long)s->row_bytes_wanted, (unsigned long long)s->copied_bytes,
                   (unsigned long long)s->retries, (unsigned long long)s->merged, s->active_s, s->in_flight_s,
                   s->starved_s, usage.ru_majflt - d->faults.ru_majflt, usage.ru_minflt - d->faults.ru_minflt,
                   depth->operations, depth->needed, depth->why);
    if (rc == PST_OK)
        rc = report_gap(self, d);
    if (rc == PST_OK)
        rc = report_gate(self, d);
    struct pst_io_driven n;
    if (rc == PST_OK && pst_disk_driven(d->engine, &n))
        rc = pst_report(
            self, "io",
            "{\"submitted_by\": \"%s\", \"gpu_commands\": %llu, \"cpu_commands\": %llu, "
            "\"handed_to_cpu\": %llu, \"turns\": %llu, \"queues\": %llu, \"waves\": %llu, "
            "\"sq_doorbells\": %llu, \"cq_doorbells\": %llu, \"driver_retries\": %llu, \"aborts\": %llu, "
            "\"resets\": %llu, \"lane_s\": %.6f}",
            pst_device_of(self, NULL) == PST_DEVICE_CUDA ? "gpu" : "cpu", (unsigned long long)n.gpu_commands,
            (unsigned long long)n.cpu_commands, (unsigned long long)s->handed, (unsigned long long)n.turns,
            (unsigned long long)n.queues, (unsigned long long)n.waves, (unsigned long long)n.sq_doorbells,
            (unsigned long long)n.cq_doorbells, (unsigned long long)n.retries, (unsigned long long)n.aborts,
            (unsigned long long)n.resets, n.lane_s);
    if (rc == PST_OK && n.drives > 0)
        rc = report_drives(self, d, &n);
    if (rc != PST_OK)
        pst_log(self, "cannot report the disk's counts: %s", pst_error_text());
}
