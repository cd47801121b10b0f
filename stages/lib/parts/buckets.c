/* buckets.c: sorts edges by bucket in two passes: one counts, one puts each edge into its place of a
 * temporary file. The checkpoint's writer then makes the file of it, with its checksum. */
#include "stages/lib/parts/buckets.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/error.h"
#include "common/store/checkpoint.h"
#include "common/util/file.h"
#include "common/util/progress.h"

#define FORMAT "1"
#define BUFFER_BYTES_MIN 512 /* of a bucket: writes of fewer bytes would be too many */
#define BUFFER_BYTES_MAX (1u << 20)
#define PROGRESS_EDGES 65536

struct sort {
    const struct pst_array *edges;
    const struct pst_parts *parts;
    int64_t relations, buckets;
    uint64_t edge_bytes, buffer_bytes;
    int64_t *at;      /* buckets + 1: first the counts, then where a bucket begins */
    int64_t *next;    /* where the next edge of a bucket goes */
    char *buffer;     /* of each bucket */
    uint32_t *filled; /* bytes of a bucket's buffer */
    struct pst_file_new file;
};

/* ---- edges --------------------------------------------------------------------------------------------- */

static int64_t value(const struct sort *s, int64_t edge, int64_t column)
{
    const int64_t at = edge * s->edges->shape[1] + column;
    return s->edges->dtype == PST_I32 ? ((const int32_t *)s->edges->map)[at]
                                      : ((const int64_t *)s->edges->map)[at];
}

static pst_rc bucket_of(const struct sort *s, int64_t edge, int64_t *bucket)
{
    const int64_t columns = s->edges->shape[1], source = value(s, edge, 0),
                  destination = value(s, edge, columns - 1);
    const int64_t relation = columns == 3 ? value(s, edge, 1) : 0;
    const int64_t wrong = source < 0 || source >= s->parts->vertices ? source : destination;
    if (wrong < 0 || wrong >= s->parts->vertices)
        return pst_fail(PST_E_FORMAT,
                        "%s: edge %" PRId64 " has the vertex %" PRId64 "; expected 0 to %" PRId64,
                        s->edges->path, edge, wrong, s->parts->vertices - 1);
    if (columns == 3 && (relation < 0 || relation >= s->relations))
        return pst_fail(PST_E_FORMAT,
                        "%s: edge %" PRId64 " has the relation %" PRId64 "; expected 0 to %" PRId64,
                        s->edges->path, edge, relation, s->relations - 1);
    *bucket =
        (int64_t)pst_parts_of(s->parts, source) * s->parts->partitions + pst_parts_of(s->parts, destination);
    return PST_OK;
}

/* ---- the passes ---------------------------------------------------------------------------------------- */

static pst_rc flush(struct sort *s, int64_t bucket)
{
    const uint64_t bytes = s->filled[bucket];
    const pst_rc rc = pst_file_write_at(s->file.fd, s->buffer + (uint64_t)bucket * s->buffer_bytes, bytes,
                                        (uint64_t)s->next[bucket] * s->edge_bytes, s->file.partial);
    s->next[bucket] += (int64_t)(bytes / s->edge_bytes);
    s->filled[bucket] = 0;
    return rc;
}

static pst_rc put(struct sort *s, int64_t edge, int64_t bucket)
{
    char *buffer = s->buffer + (uint64_t)bucket * s->buffer_bytes;
    memcpy(buffer + s->filled[bucket], (const char *)s->edges->map + (uint64_t)edge * s->edge_bytes,
           s->edge_bytes);
    s->filled[bucket] += (uint32_t)s->edge_bytes;
    return s->filled[bucket] + s->edge_bytes > s->buffer_bytes ? flush(s, bucket) : PST_OK;
}

/* One pass: the first counts, the second puts. */
static pst_rc pass(struct sort *s, bool second, struct pst_progress *progress)
{
    const int64_t n = s->edges->shape[0];
    pst_rc rc = PST_OK;
    int64_t bucket = 0;
    pst_progress_begin(progress, second ? "sorting edges" : "counting edges", (uint64_t)n, false);
    for (int64_t i = 0; i < n && rc == PST_OK; i++) {
        rc = bucket_of(s, i, &bucket);
        if (rc == PST_OK && second)
            rc = put(s, i, bucket);
        else if (rc == PST_OK)
            s->at[bucket + 1]++;
        if (rc == PST_OK && (i + 1) % PROGRESS_EDGES == 0)
            rc = pst_progress_add(progress, PROGRESS_EDGES);
    }
    for (bucket = 0; second && bucket < s->buckets && rc == PST_OK; bucket++)
        rc = flush(s, bucket);
    if (rc == PST_OK)
        rc = pst_progress_add(progress, (uint64_t)(n % PROGRESS_EDGES));
    pst_progress_end(progress);
    return rc;
}

static pst_rc sort_edges(struct sort *s, struct pst_progress *progress)
{
    pst_rc rc = pass(s, false, progress);
    for (int64_t b = 0; b < s->buckets; b++) {
        s->at[b + 1] += s->at[b];
        s->next[b] = s->at[b];
    }
    return rc == PST_OK ? pass(s, true, progress) : rc;
}

/* ---- the file ------------------------------------------------------------------------------------------ */

static pst_rc write_file(const struct sort *s, const struct pst_dataset *ds, const char *path)
{
    const uint64_t bytes = (uint64_t)s->edges->shape[0] * s->edge_bytes;
    void *sorted = mmap(NULL, bytes, PROT_READ, MAP_SHARED, s->file.fd, 0);
    if (sorted == MAP_FAILED)
        return pst_fail_errno("cannot map %s", s->file.partial);
    char vertices[24], relations[24], partitions[24], seed[24];
    (void)snprintf(vertices, sizeof vertices, "%" PRId64, s->parts->vertices);
    (void)snprintf(relations, sizeof relations, "%" PRId64, s->relations);
    (void)snprintf(partitions, sizeof partitions, "%d", s->parts->partitions);
    (void)snprintf(seed, sizeof seed, "%" PRIu64, s->parts->seed);
    const struct pst_tensor tensors[] = {
        {"bucket_at", PST_I64, 1, {s->buckets + 1}, s->at}, /* first: its numbers are then aligned */
        {"edges", s->edges->dtype, 2, {s->edges->shape[0], s->edges->shape[1]}, sorted},
    };
    const struct pst_checkpoint_text texts[] = {{"penstock_buckets", FORMAT},
                                                {"dataset", ds->digest},
                                                {"vertices", vertices},
                                                {"relations", relations},
                                                {"partitions", partitions},
                                                {"assign", pst_parts_assign_name(s->parts->assign)},
                                                {"seed", seed}};
    const pst_rc rc = pst_checkpoint_write(path, tensors, 2, texts, sizeof texts / sizeof *texts);
    (void)munmap(sorted, bytes);
    return rc;
}

static pst_rc find_edges(struct sort *s, const struct pst_dataset *ds)
{
    const struct pst_array *triples = &ds->triples[PST_TRAIN], *pairs = &ds->edges_split[PST_TRAIN];
    s->edges = triples->map ? triples : pairs;
    s->relations = triples->map ? ds->relations : 1;
    if (s->edges->map == NULL || s->edges->shape[0] < 1)
        return pst_fail(PST_E_ARG,
                        "the dataset %s has no training edges: expected triples_train.npy (`penstock import "
                        "triples` makes it "
                        "from a knowledge graph) or edges_train.npy",
                        ds->dir);
    s->edge_bytes = s->edges->data_bytes / (uint64_t)s->edges->shape[0];
    return PST_OK;
}

static pst_rc allocate(struct sort *s, uint64_t memory_bytes)
{
    const uint64_t n = (uint64_t)s->buckets, each = sizeof *s->at + sizeof *s->next + sizeof *s->filled,
                   least = n * (each + BUFFER_BYTES_MIN);
    if (memory_bytes < least)
        return pst_fail(PST_E_LIMIT,
                        "sorting the edges into %" PRIu64 " buckets needs %" PRIu64
                        " bytes of memory, but the limit is %" PRIu64
                        ": use fewer partitions, or allow more memory",
                        n, least, memory_bytes);
    const uint64_t room = memory_bytes / n - each, wanted = (uint64_t)s->edges->shape[0] * s->edge_bytes;
    s->buffer_bytes = room < BUFFER_BYTES_MAX ? room : BUFFER_BYTES_MAX;
    if (s->buffer_bytes > wanted && wanted >= BUFFER_BYTES_MIN)
        s->buffer_bytes = wanted;
    s->at = calloc(n + 1, sizeof *s->at);
    s->next = calloc(n, sizeof *s->next);
    s->filled = calloc(n, sizeof *s->filled);
    s->buffer = malloc(n * s->buffer_bytes);
    if (s->at == NULL || s->next == NULL || s->filled == NULL || s->buffer == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate buffers for %" PRIu64 " buckets", n);
    return PST_OK;
}

pst_rc pst_buckets_write(const struct pst_dataset *ds, const struct pst_parts *parts, const char *path,
                         uint64_t memory_bytes, struct pst_progress *progress)
{
    struct sort s = {.parts = parts, .buckets = (int64_t)parts->partitions * parts->partitions};
    char beside[PST_PATH_MAX];
    pst_rc rc = find_edges(&s, ds);
    if (rc == PST_OK && snprintf(beside, sizeof beside, "%s.edges", path) >= (int)sizeof beside)
        rc = pst_fail(PST_E_ARG, "the path is too long: %s", path);
    if (rc == PST_OK)
        rc = allocate(&s, memory_bytes);
    if (rc == PST_OK)
        rc = pst_file_new_begin(&s.file, beside);
    if (rc == PST_OK) {
        /* the sorted edges, and then the file that they are copied to */
        rc = pst_file_room_for(s.file.partial, 2 * (uint64_t)s.edges->shape[0] * s.edge_bytes,
                               "the sorted edges");
        if (rc == PST_OK)
            rc = sort_edges(&s, progress);
        if (rc == PST_OK)
            rc = write_file(&s, ds, path);
        pst_file_new_abandon(&s.file);
    }
    free(s.at);
    free(s.next);
    free(s.filled);
    free(s.buffer);
    return rc;
}

pst_rc pst_buckets_count(const struct pst_dataset *ds, const struct pst_parts *parts, int64_t *counts,
                         struct pst_progress *progress)
{
    struct sort s = {.parts = parts, .buckets = (int64_t)parts->partitions * parts->partitions};
    pst_rc rc = find_edges(&s, ds);
    if (rc != PST_OK)
        return rc;
    s.at = calloc((size_t)s.buckets + 1, sizeof *s.at);
    if (s.at == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot count the edges of %" PRId64 " buckets",
                        s.buckets);
    rc = pass(&s, false, progress);
    memcpy(counts, s.at + 1, (size_t)s.buckets * sizeof *counts);
    free(s.at);
    return rc;
}

/* ---- reading ------------------------------------------------------------------------------------------- */

static pst_rc read_parts(struct pst_buckets *b, const struct pst_checkpoint *ck)
{
    uint64_t vertices = 0, relations = 0, partitions = 0, seed = 0;
    const char *format = pst_checkpoint_text(ck, "penstock_buckets");
    if (format == NULL || strcmp(format, FORMAT) != 0)
        return pst_fail(PST_E_FORMAT,
                        "%s was not written by this version of `penstock partition`: make the file again",
                        ck->path);
    const char *digest = pst_checkpoint_text(ck, "dataset"), *assign = pst_checkpoint_text(ck, "assign");
    pst_rc rc = pst_checkpoint_u64(ck, "vertices", &vertices);
    if (rc == PST_OK)
        rc = pst_checkpoint_u64(ck, "relations", &relations);
    if (rc == PST_OK)
        rc = pst_checkpoint_u64(ck, "partitions", &partitions);
    if (rc == PST_OK)
        rc = pst_checkpoint_u64(ck, "seed", &seed);
    if (rc != PST_OK)
        return rc;
    const int how = assign != NULL ? pst_parts_assign_of(assign) : -1;
    if (digest == NULL || strlen(digest) != sizeof b->digest - 1 || how < 0 ||
        vertices > PST_PARTS_VERTICES_MAX || partitions > PST_PARTS_MAX || relations > INT32_MAX)
        return pst_fail(PST_E_FORMAT,
                        "%s: the metadata are damaged; make the file again with `penstock partition`",
                        ck->path);
    memcpy(b->digest, digest, sizeof b->digest);
    b->relations = (int64_t)relations;
    rc = pst_parts_init(&b->parts, (int64_t)vertices, (int)partitions, (enum pst_parts_assign)how, seed);
    return rc == PST_OK ? PST_OK : pst_wrap(rc, ck->path);
}

static pst_rc map_tensors(struct pst_buckets *b, const struct pst_checkpoint *ck)
{
    struct pst_tensor edges, at;
    uint64_t edges_at = 0, at_at = 0;
    const int64_t buckets = (int64_t)b->parts.partitions * b->parts.partitions;
    pst_rc rc = pst_checkpoint_find(ck, "edges", &edges, &edges_at);
    if (rc == PST_OK)
        rc = pst_checkpoint_find(ck, "bucket_at", &at, &at_at);
    if (rc != PST_OK)
        return rc;
    if ((edges.dtype != PST_I32 && edges.dtype != PST_I64) || edges.rank != 2 || edges.shape[1] < 2 ||
        edges.shape[1] > 3 || at.dtype != PST_I64 || at.rank != 1 || at.shape[0] != buckets + 1 ||
        at_at % sizeof(int64_t) != 0 || edges_at % sizeof(int64_t) != 0)
        return pst_fail(PST_E_FORMAT,
                        "%s: the sizes of the arrays do not fit %d partitions; make the file again with "
                        "`penstock partition`",
                        ck->path, b->parts.partitions);
    b->bytes = ck->data_at + ck->data_bytes;
    b->map = mmap(NULL, b->bytes, PROT_READ, MAP_SHARED, ck->fd, 0);
    if (b->map == MAP_FAILED) {
        b->map = NULL;
        return pst_fail_errno("cannot map %s", ck->path);
    }
    b->edge = (const char *)b->map + edges_at;
    b->at = (const int64_t *)(const void *)((const char *)b->map + at_at);
    b->edges = edges.shape[0];
    b->columns = (int)edges.shape[1];
    b->dtype = edges.dtype;
    for (int64_t i = 0; i < buckets; i++)
        if (b->at[0] != 0 || b->at[i] > b->at[i + 1] || b->at[buckets] != b->edges)
            return pst_fail(PST_E_FORMAT,
                            "%s: bucket %" PRId64 " goes from edge %" PRId64 " to %" PRId64 " of %" PRId64
                            ": the file is damaged; make it again with `penstock partition`",
                            ck->path, i, b->at[i], b->at[i + 1], b->edges);
    return PST_OK;
}

pst_rc pst_buckets_open(struct pst_buckets *b, const char *path)
{
    struct pst_checkpoint ck;
    *b = (struct pst_buckets){0};
    pst_rc rc = pst_checkpoint_open(&ck, path);
    if (rc != PST_OK)
        return rc;
    rc = read_parts(b, &ck);
    if (rc == PST_OK)
        rc = map_tensors(b, &ck);
    pst_checkpoint_close(&ck);
    if (rc != PST_OK)
        pst_buckets_close(b);
    return rc;
}

void pst_buckets_close(struct pst_buckets *b)
{
    if (b->map != NULL)
        (void)munmap(b->map, b->bytes);
    b->map = NULL;
}
