/* gap.c: chooses gap_bytes if it is "auto": the largest gap that the drive reads in the time that another
 * request takes (stages/lib/curve/curve.h). */
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "common/error.h"
#include "common/util/file.h"
#include "common/util/utf8.h"
#include "stages/disk/disk.h"
#include "stages/lib/curve/curve.h"

#define GAP_DEFAULT 4096 /* of the parameter, and of "auto" if the drive cannot be measured */

/* The features; of a graph with vertex types, those of the type with the most rows. */
int pst_disk_stage_array(const struct pst_disk_config *c)
{
    int largest = PST_ARRAY_FEATURES;
    for (int k = 0; k < c->types; k++)
        if (c->arrays[PST_REQUEST_OF_TYPE(k)].rows > c->arrays[largest].rows)
            largest = PST_REQUEST_OF_TYPE(k);
    return largest;
}

/* One file for each drive and way of reading it. */
static pst_rc path_of(const struct pst_curve_files *files, char path[PST_PATH_MAX])
{
    char key[PST_CURVE_KEY_BYTES], name[64];
    const pst_rc rc = pst_curve_key(key, files);
    if (rc != PST_OK)
        return rc;
    (void)snprintf(name, sizeof name, "drive-%016llx.json",
                   (unsigned long long)XXH3_64bits(key, strlen(key)));
    pst_file_cached(name, path);
    return PST_OK;
}

/* What cannot be measured gets the parameter's default, and the log and the report say why. */
static void take_default(struct pst_stage *self, struct disk *d, const char *why)
{
    pst_disk_gap_set(d->engine, GAP_DEFAULT);
    (void)snprintf(d->gap_from, sizeof d->gap_from, "the default, because %.200s", why);
    /* it becomes a string of the report's JSON */
    d->gap_from[pst_utf8_valid(d->gap_from, strlen(d->gap_from))] = '\0';
    for (char *at = d->gap_from; *at != '\0'; at++)
        *at = *at == '"' || *at == '\\' || (unsigned char)*at < ' ' ? '\'' : *at;
    pst_log(self, "gap_bytes is \"auto\": %d, %s", GAP_DEFAULT, d->gap_from);
}

static void take_curve(struct pst_stage *self, struct disk *d, const struct pst_curve *c, uint64_t row_bytes,
                       const char *path)
{
    /* a row is read with the rest of its blocks; the smallest measured read is a block, or more */
    const uint64_t read_bytes = pst_align_up(row_bytes, c->point[0].bytes);
    const uint64_t gap = pst_curve_gap(c, read_bytes, d->config.coalesce_bytes);
    d->drive_iops = 1 / pst_curve_seconds(c, read_bytes);
    d->drive_bytes_per_s = pst_curve_rate(c);
    (void)snprintf(d->gap_from, sizeof d->gap_from,
                   "%s: a read of %llu bytes takes the time of %.0f bytes of large reads",
                   d->gap_measured_s > 0 ? "the drive was measured" : "the drive was measured before",
                   (unsigned long long)read_bytes, d->drive_bytes_per_s / d->drive_iops);
    pst_disk_gap_set(d->engine, gap);
    pst_log(self,
            "gap_bytes is \"auto\": %llu; %s (%.0f IOPS; %.0f MB/s); to measure the drive again, remove %s",
            (unsigned long long)gap, d->gap_from, d->drive_iops, d->drive_bytes_per_s * 1e-6, path);
}

pst_rc pst_disk_stage_gap(struct pst_stage *self, struct disk *d)
{
    const struct pst_disk_config *c = &d->config;
    const struct pst_request_array *a = &c->arrays[pst_disk_stage_array(c)];
    if (!pst_disk_gap_read(d->engine)) {
        (void)snprintf(d->gap_from, sizeof d->gap_from, "the backend %s reads no gaps",
                       pst_disk_backend(d->engine));
        return PST_OK;
    }
    if (!d->gap_auto) {
        (void)snprintf(d->gap_from, sizeof d->gap_from, "the parameter gap_bytes");
        return PST_OK;
    }
    if (a->rows == 0 || !pst_disk_direct(d->engine)) {
        take_default(self, d,
                     a->rows == 0 ? "the dataset has no features"
                                  : "reads go through the page cache, whose speed is not the drive's");
        return PST_OK;
    }
    const struct pst_curve_files files = {.backend = pst_disk_backend(d->engine),
                                          .paths = &c->paths[a->rows_in.first],
                                          .n = a->rows_in.over,
                                          .depth = pst_disk_depth(d->engine)->operations,
                                          .threads = c->threads};
    char path[PST_PATH_MAX];
    struct pst_curve curve;
    pst_rc rc = path_of(&files, path);
    if (rc == PST_OK)
        rc = pst_curve_find(&curve, &files, path, &d->gap_measured_s);
    if (rc == PST_OK)
        take_curve(self, d, &curve, a->rows_in.unit, path);
    else if (rc == PST_E_UNSUPPORTED)
        take_default(self, d, pst_error_text());
    return rc == PST_E_UNSUPPORTED ? PST_OK : pst_wrap(rc, "gap_bytes is \"auto\"");
}
