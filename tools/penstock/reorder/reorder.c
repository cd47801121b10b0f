/* reorder.c: penstock reorder: a dataset whose vertices have numbers with which batches read less. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/error.h"
#include "common/store/reorder/permute.h"
#include "common/util/memory.h"
#include "tools/penstock/cli/commands.h"
#include "tools/penstock/cli/options.h"
#include "tools/penstock/reorder/predict.h"

static const char usage[] =
    "usage: penstock reorder DATASET DIR --by access|hotness|degree|bfs|metis [--pack] [OPTION]...\n"
    "Makes the dataset DIR from DATASET with new numbers of the vertices, so that feature rows that batches "
    "read\n"
    "together share blocks of the drive. Edges, features, labels, splits and all other arrays come with "
    "their\n"
    "vertices. DIR keeps the old number of each vertex (the array old_ids). `penstock export --format csv` "
    "writes\n"
    "it, as does `penstock export --rows` for the results of `penstock infer`.\n"
    "`penstock inspect DATASET --reorder all` predicts what each order would save; `penstock verify DIR\n"
    "--same-as DATASET` proves that both have the same graph.\n\n"
    "  --by access        rows by what sampled batches need: hot rows first; then rows that are needed for "
    "the\n"
    "                     same seeds, together\n"
    "  --by hotness       cached rows side by side, and cached lists of neighbours, too; then the others, "
    "hottest\n"
    "                     first. With --plan, later runs fill their caches faster\n"
    "  --by degree        rows by the number of lists of neighbours that have the vertex, largest first\n"
    "  --by bfs           breadth first from the training vertices, along the lists of neighbours\n"
    "  --by metis         parts of METIS with few edges between them, each breadth first\n"
    "  --pack             store rows so that none crosses a border of 512 bytes that it need not cross: rows "
    "of less\n"
    "                     than 512 bytes at the next power of two, others at a multiple of 512. Without it, "
    "rows\n"
    "                     keep their stride\n"
    "  --plan FILE        a plan.json: sample as this plan, and count its cached rows as not read. It stands "
    "in for\n"
    "                     the options from --fanout to --cache\n"
    "  --fanout LIST      neighbours drawn in each hop (default 10,5); -1: all\n"
    "  --batch N          seeds of a batch (default 512)\n"
    "  --split NAME       the seeds (default train)\n"
    "  --algorithm NAME   the sampling algorithm (default uniform)\n"
    "  --options TEXT     the algorithm's own parameters\n"
    "  --replace          draw with replacement\n"
    "  --seed N           of shuffles and samples (default 1)\n"
    "  --cache BYTES      memory of the run's cache, whose rows are not read, with K, M, G or T (default 0)\n"
    "  --block N          bytes of a block of the drive (default: that of the features' file system)\n"
    "  --gap-bytes N      the disk stage's gap_bytes (default 4K)\n"
    "  --coalesce-bytes N the disk stage's coalesce_bytes (default 128K)\n"
    "  --memory BYTES     use at most so much memory (default: half of what is free)\n"
    "  --force            replace DIR if it is a dataset\n"
    "  --quiet            show no progress line\n\n"
    "Exit codes: 0 done; 1 failed; 2 the input is wrong.\n";

/* The dataset is read while DIR is written. */
static pst_rc check_other(const struct reorder_args *a)
{
    struct stat from, to;
    if (stat(a->dataset, &from) == 0 && stat(a->out, &to) == 0 && from.st_dev == to.st_dev &&
        from.st_ino == to.st_ino)
        return pst_fail(PST_E_ARG, "DATASET and DIR are the same directory, %s: give another DIR", a->out);
    return PST_OK;
}

static void say(const struct reorder_job *j, const struct pst_build *b, enum pst_renumber_by by,
                const struct pst_reads r[2])
{
    char now[32], then[32];
    (void)printf("%s: %" PRId64 " vertices, %" PRId64
                 " edges, by %s; at most %.0f MiB of memory with mapped files\n",
                 b->dir, b->manifest.vertices, b->manifest.edges, pst_renumber_name(by),
                 (double)pst_memory_peak() / 1048576);
    if (j->draws)
        (void)printf("an epoch reads about %s instead of %s (%.1f %%), in %" PRIu64
                     " reads instead of %" PRIu64 ", with %" PRId64 " rows cached\n",
                     pst_bytes_text((double)r[1].bytes, then), pst_bytes_text((double)r[0].bytes, now),
                     r[0].bytes > 0 ? 100.0 * (double)r[1].bytes / (double)r[0].bytes : 100.0, r[1].reads,
                     r[0].reads, j->cached_rows);
    if (j->draws && r[1].bytes > r[0].bytes && j->disk.gap_bytes > 0)
        (void)printf("rows lie closer together, so fewer reads take more bytes between them: "
                     "`--set stages.disk.params.gap_bytes=0` leaves these out, and `penstock inspect %s "
                     "--reorder %s --gap-bytes 0` predicts that\n",
                     j->args->dataset, pst_renumber_name(by));
    if (!j->draws)
        (void)printf("no prediction of what an epoch reads, because there are no %s\n",
                     j->hoods.spec.split == NULL ? "training vertices" : "features");
}

static pst_rc make(struct reorder_job *j, struct pst_build *b, enum pst_renumber_by by,
                   struct pst_progress *progress)
{
    const struct pst_dataset *ds = &j->hoods.ds;
    const size_t bytes = (size_t)ds->vertices * sizeof(int64_t) + 1;
    int64_t *old_of = malloc(bytes), *new_of = malloc(bytes);
    struct pst_reads r[2] = {{.batches = 0}};
    pst_rc rc = old_of != NULL && new_of != NULL
                    ? reorder_find(j, by, old_of, progress)
                    : pst_fail(PST_E_NOMEM, "out of memory: cannot order %" PRId64 " vertices", ds->vertices);
    if (rc == PST_OK)
        rc = pst_permute_invert(ds, old_of, new_of);
    if (rc == PST_OK && j->draws)
        rc = reorder_predict(j, new_of, r, progress);
    const struct pst_permute_spec spec = {
        .old_of = old_of, .new_of = new_of, .pack = j->args->pack, .memory_bytes = j->memory_bytes};
    b->stripes = ds->stripes;
    if (rc == PST_OK)
        rc =
            pst_permute_note(ds, b, json_pack("{ss sb}", "by", pst_renumber_name(by), "pack", j->args->pack));
    if (rc == PST_OK)
        rc = pst_permute(ds, b, &spec, progress);
    if (rc == PST_OK)
        rc = pst_build_commit(b);
    if (rc == PST_OK)
        say(j, b, by, r);
    free(old_of);
    free(new_of);
    return rc;
}

static pst_rc reorder(const struct reorder_args *a)
{
    struct reorder_job job;
    struct pst_build b;
    struct pst_progress progress;
    enum pst_renumber_by by = PST_RENUMBER_ACCESS;
    while (!a->order[by])
        by++;
    pst_progress_init(&progress, a->quiet);
    pst_rc rc = check_other(a);
    if (rc != PST_OK)
        return rc;
    rc = pst_build_begin(&b, a->out, a->force); /* first: an existing DIR is told before the work */
    if (rc != PST_OK)
        return rc;
    rc = reorder_open(&job, a, &progress);
    if (rc == PST_OK)
        rc = make(&job, &b, by, &progress);
    reorder_close(&job);
    pst_build_release(&b);
    return rc;
}

int cmd_reorder(int argc, char **argv)
{
    struct reorder_args args;
    pst_rc rc = reorder_args_parse(&args, argc, argv, false);
    if (rc == PST_OK && args.help)
        (void)fputs(usage, stdout);
    else if (rc == PST_OK)
        rc = reorder(&args);
    reorder_args_release(&args);
    return command_result("reorder", rc);
}
