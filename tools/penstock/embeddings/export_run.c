/* export_run.c: penstock export RUN OUT: the embeddings of a run as NumPy arrays. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/store/dataset/npy.h"
#include "common/util/file.h"
#include "common/util/progress.h"
#include "stages/lib/vectors/reader.h"
#include "tools/penstock/cli/commands.h"
#include "tools/penstock/cli/options.h"

static const char usage[] =
    "usage: penstock export RUN OUT [--checkpoint best|last] [--quiet]\n"
    "Writes the embeddings of RUN, the directory of a run that trains embeddings. They are those of the "
    "epoch "
    "with\n"
    "the best validation MRR, if epochs were evaluated, or with --checkpoint last of the newest checkpoint:\n"
    "OUT/vertices.npy (a row for each vertex of the dataset) and OUT/relations.npy (if the model has "
    "relations;\n"
    "the second half are inverse relations, if the run had them). Each file appears whole or not at all.\n"
    "`penstock export DATASET DIR --rows OUT/vertices.npy` names each row as the dataset's source did.\n";

static pst_rc begin(struct pst_file_new *f, const char *out, const char *name, int64_t rows, int64_t columns)
{
    char path[PST_PATH_MAX], head[PST_PAGE];
    const int64_t shape[2] = {rows, columns};
    if (snprintf(path, sizeof path, "%s/%s", out, name) >= (int)sizeof path)
        return pst_fail(PST_E_LIMIT, "the path is too long: %s", out);
    pst_rc rc = pst_file_make_parents(path);
    if (rc == PST_OK)
        rc = pst_file_room_for(out, (uint64_t)(rows * columns) * sizeof(float), path);
    if (rc == PST_OK)
        rc = pst_file_new_begin(f, path);
    if (rc != PST_OK)
        return rc;
    pst_npy_format(head, PST_F32, 2, shape);
    rc = pst_file_write_at(f->fd, head, sizeof head, 0, f->partial);
    if (rc != PST_OK)
        pst_file_new_abandon(f);
    return rc;
}

/* Rows of a partition are all over the file, so each is written by itself, but those that follow each other.
 */
static pst_rc write_block(const struct pst_vectors_reader *r, int64_t block, const char *rows, int64_t n,
                          int fd, const char *path)
{
    const uint64_t row = (uint64_t)r->dim * sizeof(float);
    pst_rc rc = PST_OK;
    for (int64_t i = 0, run; i < n && rc == PST_OK; i += run) {
        const int64_t vertex = pst_vectors_reader_vertex(r, block, i);
        for (run = 1; i + run < n && pst_vectors_reader_vertex(r, block, i + run) == vertex + run; run++)
            ;
        rc = pst_file_write_at(fd, rows + (uint64_t)i * row, (uint64_t)run * row,
                               PST_PAGE + (uint64_t)vertex * row, path);
    }
    return rc;
}

static pst_rc write_vertices(const struct pst_vectors_reader *r, const char *out, bool quiet)
{
    struct pst_progress progress;
    struct pst_file_new f;
    char *rows = malloc(pst_vectors_reader_room(r));
    if (!rows)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot read %llu bytes of embeddings at a time",
                        (unsigned long long)pst_vectors_reader_room(r));
    pst_rc rc = begin(&f, out, "vertices.npy", r->vertices, r->dim);
    if (rc != PST_OK) {
        free(rows);
        return rc;
    }
    pst_progress_init(&progress, quiet);
    pst_progress_begin(&progress, "embeddings", (uint64_t)r->vertices, false);
    for (int64_t b = 0; b < pst_vectors_reader_blocks(r) && rc == PST_OK; b++) {
        int64_t n = 0;
        rc = pst_vectors_reader_read(r, b, rows, &n);
        if (rc == PST_OK)
            rc = write_block(r, b, rows, n, f.fd, f.partial);
        if (rc == PST_OK)
            rc = pst_progress_add(&progress, (uint64_t)n);
    }
    pst_progress_end(&progress);
    free(rows);
    if (rc == PST_OK)
        return pst_file_new_commit(&f);
    pst_file_new_abandon(&f);
    return rc;
}

static pst_rc write_relations(const struct pst_vectors_reader *r, const char *out)
{
    struct pst_file_new f;
    const uint64_t bytes = (uint64_t)(r->relations * r->relation_dim) * sizeof(float);
    if (bytes == 0)
        return PST_OK;
    void *rows = malloc(bytes);
    if (!rows)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot read %llu bytes of relations",
                        (unsigned long long)bytes);
    pst_rc rc = pst_vectors_reader_relations(r, rows);
    if (rc == PST_OK)
        rc = begin(&f, out, "relations.npy", r->relations, r->relation_dim);
    if (rc == PST_OK) {
        rc = pst_file_write_at(f.fd, rows, bytes, PST_PAGE, f.partial);
        if (rc == PST_OK)
            rc = pst_file_new_commit(&f);
        else
            pst_file_new_abandon(&f);
    }
    free(rows);
    return rc;
}

static pst_rc export_run(const char *run, bool last, const char *out, bool quiet)
{
    struct pst_vectors_reader r;
    pst_rc rc = pst_vectors_reader_open(&r, run, !last);
    if (rc != PST_OK)
        return rc;
    if (mkdir(out, 0777) != 0 && errno != EEXIST)
        rc = pst_fail_errno("cannot create %s", out);
    if (rc == PST_OK)
        rc = write_vertices(&r, out, quiet);
    if (rc == PST_OK)
        rc = write_relations(&r, out);
    if (rc == PST_OK && !quiet)
        printf("%s: %lld vertices x %lld, %lld relations x %lld, of the checkpoint before batch %llu\n", out,
               (long long)r.vertices, (long long)r.dim, (long long)r.relations, (long long)r.relation_dim,
               (unsigned long long)r.next_batch);
    pst_vectors_reader_close(&r);
    return rc;
}

int cmd_export_run(int argc, char **argv)
{
    static const struct option options[] = {{"quiet", no_argument, NULL, 'q'},
                                            {"checkpoint", required_argument, NULL, 'c'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    bool quiet = false, last = false;
    pst_rc rc = PST_OK;
    for (int c; rc == PST_OK && (c = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
        if (c == 'h') {
            (void)fputs(usage, stdout);
            return 0;
        }
        if (c == 'c')
            rc = option_checkpoint("--checkpoint", optarg, &last);
        else if (c == 'q')
            quiet = true;
        else
            return 2;
    }
    if (rc == PST_OK)
        rc = argc - optind == 2
                 ? export_run(argv[optind], last, argv[optind + 1], quiet)
                 : pst_fail(PST_E_ARG, "expected a run and a directory, found %d arguments", argc - optind);
    return command_result("export", rc);
}
