/* exchange.c: which partition is where, and when it moves. */
#include "stages/lib/vectors/exchange.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/store/array_id.h"
#include "common/util/file.h"
#include "stages/lib/vectors/initial.h"

enum { COPY_BYTES = 1 << 20 };

/* ---- the array ------------------------------------------------------------------------------------- */

/* Pieces of a partition. */
static uint64_t pieces(const struct pst_vectors_exchange *x)
{
    return pst_vectors_bytes(x->vectors) / x->vectors->unit;
}

static uint64_t row_at(const struct pst_vectors_exchange *x, int partition, int64_t extent)
{
    return ((uint64_t)extent * (uint64_t)x->partitions + (uint64_t)partition) * pieces(x);
}

/* Room is taken now, because a run that finds the disk full after hours has wasted them. */
static pst_rc take_room(const struct pst_vectors_exchange *x, int fd, uint64_t bytes)
{
    struct stat st;
    if (fstat(fd, &st) == 0 && (uint64_t)st.st_size >= bytes)
        return PST_OK;
    const int failed = posix_fallocate(fd, 0, (off_t)bytes);
    if (failed == 0)
        return PST_OK;
    errno = failed;
    return pst_fail_errno("cannot make %s with %" PRIu64 " bytes, that is, %s versions of %d partitions",
                          x->path, bytes, x->keeps_best ? "three" : "two", x->partitions);
}

pst_rc pst_vectors_exchange_make(struct pst_vectors_exchange *x, const char *run_dir)
{
    if (snprintf(x->path, sizeof x->path, "%s/arrays/embeddings", run_dir) >= (int)sizeof x->path)
        return pst_fail(PST_E_LIMIT, "the path of the run directory is too long: %s", run_dir);
    char *name = strrchr(x->path, '/');
    *name = '\0';
    if (mkdir(x->path, 0777) != 0 && errno != EEXIST)
        return pst_fail_errno("cannot create %s", x->path);
    *name = '/';
    x->fd = open(x->path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (x->fd < 0)
        return pst_fail_errno("cannot create %s", x->path);
    x->open = true;
    return take_room(x, x->fd, row_at(x, 0, x->keeps_best ? 3 : 2) * x->vectors->unit);
}

/* Where the kernel cannot copy: between file systems, for example. */
static pst_rc copy_by_hand(const struct pst_vectors_exchange *x, int from, const char *path, uint64_t in,
                           uint64_t out, uint64_t bytes)
{
    char *block = malloc(COPY_BYTES);
    pst_rc rc = block ? PST_OK : pst_fail(PST_E_NOMEM, "out of memory: cannot copy partitions");
    for (uint64_t done = 0, n; rc == PST_OK && done < bytes; done += n) {
        n = bytes - done < COPY_BYTES ? bytes - done : COPY_BYTES;
        rc = pst_file_read_at(from, block, n, in + done, path);
        if (rc == PST_OK)
            rc = pst_file_write_at(x->fd, block, n, out + done, x->path);
    }
    free(block);
    return rc;
}

static pst_rc copy_partition(struct pst_vectors_exchange *x, int from, const char *path, int partition)
{
    off_t in = (off_t)(row_at(x, partition, x->table.extent[partition]) * x->vectors->unit);
    off_t out = (off_t)(row_at(x, partition, 0) * x->vectors->unit);
    x->table.extent[partition] = 0;
    for (uint64_t left = pieces(x) * x->vectors->unit; left > 0;) {
        const ssize_t n = copy_file_range(from, &in, x->fd, &out, left, 0);
        if (n < 0 && (errno == EXDEV || errno == EINVAL || errno == EOPNOTSUPP || errno == ENOSYS))
            return pst_wrap(copy_by_hand(x, from, path, (uint64_t)in, (uint64_t)out, left), "partition %d",
                            partition);
        if (n <= 0)
            return n < 0
                       ? pst_fail_errno("cannot copy partition %d from %s to %s", partition, path, x->path)
                       : pst_fail(PST_E_FORMAT,
                                  "cannot copy partition %d from %s: the file is too short, so it is damaged",
                                  partition, path);
        left -= (uint64_t)n;
    }
    return PST_OK;
}

pst_rc pst_vectors_exchange_copy(struct pst_vectors_exchange *x, const char *checkpoint)
{
    char run[PST_PATH_MAX], path[PST_PATH_MAX];
    struct stat here, there;
    (void)snprintf(run, sizeof run, "%s", checkpoint);
    for (int up = 0; up < 2 && strrchr(run, '/'); up++) /* RUN/checkpoints/NUMBER */
        *strrchr(run, '/') = '\0';
    (void)snprintf(path, sizeof path, "%.4000s/arrays/embeddings", run);
    const int from = open(path, O_RDONLY | O_CLOEXEC);
    if (from < 0)
        return pst_fail_errno("cannot open %s, which has the embeddings of the checkpoint", path);
    pst_rc rc = PST_OK;
    const bool same = fstat(from, &there) == 0 && fstat(x->fd, &here) == 0 && here.st_dev == there.st_dev &&
                      here.st_ino == there.st_ino;
    for (int p = 0; p < x->partitions && rc == PST_OK && !same; p++)
        rc = x->table.extent[p] >= 0 ? copy_partition(x, from, path, p) : PST_OK;
    (void)close(from);
    return rc;
}

pst_rc pst_vectors_exchange_sync(struct pst_vectors_exchange *x)
{
    return fdatasync(x->fd) == 0 ? PST_OK : pst_fail_errno("cannot write %s to the disk", x->path);
}

static pst_rc check_sum(const struct pst_vectors_exchange *x, int partition, uint64_t sum)
{
    if ((uint64_t)x->table.sum[partition] == sum)
        return PST_OK;
    return pst_fail(
        PST_E_FORMAT,
        "partition %d of %s is damaged: from byte %" PRIu64 " on, %" PRIu64 " bytes have the checksum "
        "%016" PRIx64 ", expected %016" PRIx64 "; the drive lost or changed data, so start the run again",
        partition, x->path, row_at(x, partition, x->table.extent[partition]) * x->vectors->unit,
        x->vectors->block_bytes, sum, (uint64_t)x->table.sum[partition]);
}

pst_rc pst_vectors_exchange_read(struct pst_vectors_exchange *x, int partition, int block)
{
    struct pst_vectors *v = x->vectors;
    char *to = pst_vectors_image(v, block);
    const uint64_t begin = row_at(x, partition, x->table.extent[partition]) * v->unit;
    for (uint64_t done = 0; done < v->block_bytes;) {
        const ssize_t n = pread(x->fd, to + done, v->block_bytes - done, (off_t)(begin + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? pst_fail_errno("cannot read partition %d of %s", partition, x->path)
                         : pst_fail(PST_E_IO,
                                    "the file %s became shorter while the run used it: start the run again",
                                    x->path);
        done += (uint64_t)n;
    }
    (void)posix_fadvise(x->fd, (off_t)begin, (off_t)v->block_bytes, POSIX_FADV_DONTNEED);
    for (int p = 0; p < x->partitions; p++)
        if (v->block_of[p] == block)
            v->block_of[p] = -1;
    v->block_of[partition] = block;
    const pst_rc rc = check_sum(x, partition, XXH3_64bits(to, v->block_bytes));
    return rc == PST_OK ? pst_vectors_put_image(v, block, partition) : rc;
}

/* ---- exchanges --------------------------------------------------------------------------------------- */

/* The partition in a place of the buffer, after an exchange. */
static int partition_in(const struct pst_vectors_exchange *x, int64_t exchange, int place)
{
    return x->training.epochs.number[x->training.order.state[exchange * x->buffer + place]];
}

static int64_t exchanges(const struct pst_vectors_exchange *x)
{
    return x->training.order.exchanges;
}

/* The partition that an exchange brings, or the one that it takes out. One place of the buffer differs before
 * and after. */
static int brought(const struct pst_vectors_exchange *x, int64_t exchange, bool in)
{
    int place = 0;
    while (place + 1 < x->buffer && partition_in(x, exchange - 1, place) == partition_in(x, exchange, place))
        place++;
    return partition_in(x, in ? exchange : exchange - 1, place);
}

/* One that belongs neither to the last commit nor to the best epoch. */
static int64_t free_extent(const struct pst_vectors_exchange *x, int partition)
{
    int64_t extent = 0;
    while (extent == x->committed.extent[partition] || extent == x->best.extent[partition])
        extent++;
    return extent;
}

static pst_rc write_out(struct pst_vectors_exchange *x, int partition, int block)
{
    const int64_t extent = free_extent(x, partition);
    x->table.extent[partition] = extent;
    x->writing[partition] = x->sending[block] = true;
    return pst_vectors_mover_add(&x->mover, PST_REQUEST_WRITE, partition, row_at(x, partition, extent),
                                 pieces(x), block);
}

static pst_rc load(struct pst_vectors_exchange *x, int partition, int block)
{
    x->occupant[block] = partition;
    if (x->table.extent[partition] < 0) {
        pst_vectors_init(x->vectors, block, partition, x->seed, x->scale);
        const pst_rc rc =
            x->initial ? pst_vectors_initial_part(x->initial, x->vectors, block, partition) : PST_OK;
        x->vectors->block_of[partition] = block;
        return rc == PST_OK ? pst_vectors_put_image(x->vectors, block, partition) : rc;
    }
    return pst_vectors_mover_add(&x->mover, PST_REQUEST_READ, partition,
                                 row_at(x, partition, x->table.extent[partition]), pieces(x), block);
}

/* The partitions that came by now. */
static void look(struct pst_vectors_exchange *x)
{
    const int *block_of = x->vectors->block_of;
    bool filled = true;
    for (int place = 0; place < x->buffer && x->finished < 0; place++)
        filled = filled && block_of[partition_in(x, x->begun, place)] >= 0;
    if (x->finished < 0 && filled)
        x->finished = x->begun;
    while (x->finished >= 0 && x->finished < x->loaded && block_of[brought(x, x->finished + 1, true)] >= 0)
        x->finished++;
}

/* A block for this partition; -1: it must wait. What is read comes after what was sent from the same block,
 * but a partition is generated at once. */
static int block_for(const struct pst_vectors_exchange *x, int partition)
{
    int found = -1;
    for (int b = 0; b < x->vectors->blocks; b++) {
        if (x->occupant[b] == partition)
            return -1; /* it has not left yet */
        if (x->occupant[b] < 0 && found < 0 && (x->table.extent[partition] >= 0 || !x->sending[b]))
            found = b;
    }
    return x->writing[partition] ? -1 : found;
}

/* Whether nothing needs the partition any more that the next exchange takes out. */
static bool may_leave(const struct pst_vectors_exchange *x)
{
    const struct pst_parts_epochs *e = &x->training.epochs;
    if (x->left == exchanges(x) || x->finished < x->left)
        return false;
    return pst_parts_epochs_commits(e, x->left)
               ? x->saved == x->left
               : x->home >= e->first_batch[x->epoch] + e->group_batch[2 * x->left + 1];
}

/* A partition that a commit has just written is not written again. */
static pst_rc leave(struct pst_vectors_exchange *x)
{
    pst_rc rc = PST_OK;
    while (rc == PST_OK && may_leave(x)) {
        const bool written = x->saved == x->left;
        const int partition = brought(x, x->left + 1, false), block = x->vectors->block_of[partition];
        rc = x->settle ? x->settle(x->settle_arg, partition) : PST_OK;
        if (rc != PST_OK)
            return rc;
        x->left++;
        x->vectors->block_of[partition] = x->occupant[block] = -1;
        x->swaps++;
        rc = written ? PST_OK : write_out(x, partition, block);
    }
    return rc;
}

static pst_rc come(struct pst_vectors_exchange *x)
{
    pst_rc rc = PST_OK;
    while (rc == PST_OK && x->loaded < exchanges(x) && x->loaded < x->left + x->ahead) {
        const int partition = brought(x, x->loaded + 1, true), block = block_for(x, partition);
        if (block < 0)
            break;
        x->loaded++;
        rc = load(x, partition, block);
    }
    look(x);
    return rc;
}

/* Writes what is in memory after an exchange. */
static pst_rc write_all(struct pst_vectors_exchange *x, int64_t exchange)
{
    pst_rc rc = PST_OK;
    for (int place = 0; place < x->buffer && rc == PST_OK; place++) {
        const int partition = partition_in(x, exchange, place);
        rc = write_out(x, partition, x->vectors->block_of[partition]);
    }
    return rc;
}

/* Writes what is in memory, if the epoch ends or a commit is to be made, and if the exchanges are done. */
static pst_rc write_if_due(struct pst_vectors_exchange *x)
{
    const int64_t due = x->ending ? exchanges(x) : x->to_save;
    if (due < 0 || x->left != due || x->finished < due)
        return PST_OK;
    *(x->ending ? &x->closing : &x->saving) = true;
    x->ending = false;
    return write_all(x, due);
}

/* Begins what may begin. The last exchanges can have no batch that waits for them. */
static pst_rc advance(struct pst_vectors_exchange *x)
{
    pst_rc rc = PST_OK;
    int64_t before = -1;
    if (x->epoch < 0 || x->closing || x->saving)
        return PST_OK;
    look(x);
    while (rc == PST_OK && x->left + x->loaded != before) {
        before = x->left + x->loaded;
        rc = leave(x);
        rc = rc == PST_OK ? come(x) : rc;
    }
    return rc == PST_OK ? write_if_due(x) : rc;
}

static pst_rc moved(void *arg, const struct pst_vectors_move *move, uint64_t sum)
{
    struct pst_vectors_exchange *x = arg;
    pst_rc rc = PST_OK;
    const int block = move->block;
    if (move->op == PST_REQUEST_WRITE) {
        x->table.sum[move->partition] = (int64_t)sum;
        x->writing[move->partition] = x->sending[block] = false;
    } else {
        rc = check_sum(x, move->partition, sum);
        x->vectors->block_of[move->partition] = block;
    }
    return rc == PST_OK ? advance(x) : rc;
}

/* ---- epochs -------------------------------------------------------------------------------------------- */

/* first: its first batch in this run. */
static pst_rc begin_epoch(struct pst_vectors_exchange *x, const struct pst_parts_batch *first)
{
    pst_rc rc = PST_OK;
    x->epoch = first->epoch;
    x->closing = false;
    x->begun = x->left = x->loaded = pst_parts_epochs_begin(&x->training.epochs, first->at);
    x->saved = x->begun > 0 ? x->begun : -1;
    x->finished = -1;
    for (int p = 0; p < x->partitions; p++)
        x->vectors->block_of[p] = -1;
    for (int b = 0; b < x->vectors->blocks; b++)
        x->occupant[b] = -1;
    for (int place = 0; place < x->buffer && rc == PST_OK; place++)
        rc = load(x, partition_in(x, x->begun, place), place);
    return rc == PST_OK ? advance(x) : rc;
}

pst_rc pst_vectors_exchange_ready(struct pst_vectors_exchange *x, uint64_t batch, bool *ready)
{
    struct pst_parts_epochs *e = &x->training.epochs;
    pst_rc rc = PST_OK;
    *ready = false;
    if (x->epoch < 0 || (pst_vectors_exchange_closed(x) && batch >= e->first_batch[x->epoch + 1])) {
        struct pst_parts_batch first;
        pst_parts_epochs_find(e, batch, &first);
        rc = begin_epoch(x, &first);
    }
    if (rc != PST_OK || batch >= e->first_batch[x->epoch + 1])
        return rc;
    struct pst_parts_batch b;
    pst_parts_epochs_find(e, batch, &b);
    const bool waits = !x->prefetch && !pst_vectors_mover_idle(&x->mover);
    *ready = b.edges == 0 || (x->finished >= pst_parts_needs(b.group) && !waits);
    return PST_OK;
}

pst_rc pst_vectors_exchange_home(struct pst_vectors_exchange *x, uint64_t batch)
{
    x->home = batch + 1;
    return advance(x);
}

pst_rc pst_vectors_exchange_close_epoch(struct pst_vectors_exchange *x)
{
    x->ending = true;
    return advance(x);
}

bool pst_vectors_exchange_closed(const struct pst_vectors_exchange *x)
{
    return x->closing && pst_vectors_mover_idle(&x->mover);
}

pst_rc pst_vectors_exchange_save(struct pst_vectors_exchange *x, int64_t exchange)
{
    x->to_save = exchange;
    return advance(x);
}

bool pst_vectors_exchange_saved(const struct pst_vectors_exchange *x)
{
    return x->saving && pst_vectors_mover_idle(&x->mover);
}

pst_rc pst_vectors_exchange_committed(struct pst_vectors_exchange *x)
{
    x->committed = x->table;
    if (!x->saving)
        return PST_OK;
    x->saving = false;
    x->saved = x->to_save;
    x->to_save = -1;
    return advance(x);
}

/* ---- opening ------------------------------------------------------------------------------------------- */

pst_rc pst_vectors_exchange_open(struct pst_vectors_exchange *x, struct pst_stage *stage, int port,
                                 const char *buckets, const char *digest, enum pst_order_kind kind)
{
    pst_rc rc = pst_parts_training_open(&x->training, buckets, digest, x->partitions, x->buffer, kind);
    x->committed = x->table;
    x->epoch = x->finished = x->to_save = x->saved = -1;
    x->vectors->parts = &x->training.buckets.parts;
    x->mover = (struct pst_vectors_mover){.stage = stage,
                                          .port = port,
                                          .array = PST_ARRAY_COUNT, /* the first array of the run */
                                          .piece = x->vectors->unit,
                                          .vectors = x->vectors,
                                          .done = moved,
                                          .arg = x};
    return rc == PST_OK ? pst_vectors_mover_open(&x->mover) : rc;
}

void pst_vectors_exchange_close(struct pst_vectors_exchange *x)
{
    pst_vectors_mover_close(&x->mover);
    pst_parts_training_close(&x->training);
    if (x->open)
        (void)close(x->fd);
    x->open = false;
}

/* Commits of an epoch before an exchange. */
static int64_t commits_until(const struct pst_parts_epochs *e, int64_t exchange)
{
    return e->commit_swaps > 0 && exchange > 0 ? (exchange - 1) / e->commit_swaps : 0;
}

uint64_t pst_vectors_exchange_pieces(struct pst_vectors_exchange *x, uint64_t batch)
{
    const struct pst_parts_epochs *e = &x->training.epochs;
    struct pst_parts_batch at;
    if (batch >= pst_parts_epochs_total(e))
        return 0; /* the run was complete before it was resumed */
    pst_parts_epochs_find(&x->training.epochs, batch, &at);
    struct pst_order_counts counts;
    pst_order_count(&x->training.order, &counts);
    const int64_t begun = pst_parts_epochs_begin(e, at.at), epochs = e->epochs - at.epoch;
    /* A commit writes the buffer, but then an exchange writes nothing. */
    const int64_t commits = epochs * commits_until(e, exchanges(x)) - commits_until(e, begun + 1);
    int64_t moves = 2 * (epochs * counts.loads - begun) + commits * (x->buffer - 1) - (begun > 0);
    for (int p = 0; p < x->partitions; p++)
        moves -= x->table.extent[p] < 0; /* it is generated */
    return (uint64_t)moves * pieces(x);
}
