/* store.c: penstock store: writes the feature rows of a dataset to raw NVMe namespaces or plain files, row v
 * to drive v mod n, and, if asked for, its topology (stripe.h). */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/error.h"
#include "common/util/progress.h"
#include "common/store/dataset/rows.h"
#include "common/store/dataset/stripe.h"
#include "common/store/dataset/verify.h"
#include "tools/penstock/cli/commands.h"
#include "tools/penstock/cli/options.h"

#define CHUNK_BYTES (1u << 20) /* written at once to each drive */
#define SERIAL_BYTES 128

static const char help[] =
    "usage: penstock store DATASET --to DEVICE... [--topology] [--force] [--quiet]\n"
    "Writes the feature rows of DATASET to whole NVMe namespaces (for example /dev/nvme0n1), for the backend "
    "nvme\n"
    "of the disk stage. Row v goes to drive v mod n, in the order given; small rows go in groups that fill "
    "a\n"
    "block. A DEVICE can also be a plain file, which the backend emulated serves as a drive.\n"
    "What the drives held before is lost. A drive that holds rows of another dataset, or topology that would "
    "be\n"
    "lost, is only written with --force. For a drive that Penstock has not written, you must also type its "
    "serial\n"
    "number when asked (for a plain file: its name).\n\n"
    "  --to DEVICE...  the drives to write\n"
    "  --topology      write the graph's topology (indptr and indices), too: a pipeline with topology "
    "\"ssd\"\n"
    "                  reads it from these drives\n"
    "  --force         write drives that hold something else\n"
    "  --quiet         show no progress line\n";

struct drive {
    const char *path;
    int fd;
    bool block_device, empty;
    uint64_t bytes; /* of the device or file, before it is written */
    int block;      /* its logical block */
    char serial[SERIAL_BYTES];
    struct pst_stripe stripe;
    unsigned char *chunk;
    size_t fill;
    uint64_t area, written; /* where the rows, or an array, begin, and how many bytes of them are written */
    uint64_t bytes_of_rows, bytes_of_topology;
    XXH3_state_t *hash;
};

struct store {
    struct pst_dataset ds;
    struct drive drive[PST_STRIPE_MAX];
    uint32_t n;
    uint32_t group; /* rows that stay together */
    uint32_t block; /* the largest of the drives' */
    bool force, topology;
    XXH3_state_t *source[PST_DATASET_FEATURE_FILES_MAX]; /* of the features' files, as dataset.json has their
                                                            checksums */
    uint64_t source_checksum[PST_DATASET_FEATURE_FILES_MAX];
    uint64_t topology_checksum[PST_STRIPE_AREAS]; /* as dataset.json has them */
};

/* ---- is it ours to write? -------------------------------------------------------------------------------
 */

/* sysfs has the serial number of a whole disk, but none of a partition. */
static pst_rc read_serial(struct drive *d)
{
    char link[512], path[PST_PATH_MAX];
    struct stat st;
    (void)stat(d->path, &st);
    (void)snprintf(link, sizeof link, "/sys/dev/block/%u:%u/partition", (unsigned)(st.st_rdev >> 8),
                   (unsigned)(st.st_rdev & 0xff));
    if (access(link, F_OK) == 0)
        return pst_fail(PST_E_ARG,
                        "%s is a partition: expected a whole NVMe namespace, because the backend nvme uses "
                        "only whole namespaces",
                        d->path);
    (void)snprintf(path, sizeof path, "/sys/dev/block/%u:%u/device/serial", (unsigned)(st.st_rdev >> 8),
                   (unsigned)(st.st_rdev & 0xff));
    FILE *file = fopen(path, "re");
    if (file == NULL || fgets(d->serial, sizeof d->serial, file) == NULL)
        d->serial[0] = '\0';
    if (file != NULL)
        (void)fclose(file);
    for (size_t n = strcspn(d->serial, "\n"); d->serial[n] = '\0', n > 0 && d->serial[n - 1] == ' ';)
        n--;
    return PST_OK;
}

static pst_rc open_drive(struct drive *d)
{
    struct stat st;
    const bool there = stat(d->path, &st) == 0;
    if (there && !S_ISBLK(st.st_mode) && !S_ISREG(st.st_mode))
        return pst_fail(PST_E_ARG, "%s: expected a block device or a plain file", d->path);
    d->block_device = there && S_ISBLK(st.st_mode);
    /* exclusive use of a block device is refused while it is mounted, or part of a RAID */
    d->fd = open(d->path, O_RDWR | O_CLOEXEC | (d->block_device ? O_EXCL : O_CREAT), 0666);
    if (d->fd < 0 && errno == EBUSY)
        return pst_fail(PST_E_STATE, "%s is in use (`lsblk %s` shows what uses it)", d->path, d->path);
    if (d->fd < 0)
        return pst_fail_errno("opening %s", d->path);
    if (!d->block_device) {
        const char *slash = strrchr(d->path, '/');
        (void)snprintf(d->serial, sizeof d->serial, "%s", slash != NULL ? slash + 1 : d->path);
        d->empty = !there || st.st_size == 0;
        d->bytes = there ? (uint64_t)st.st_size : 0;
        d->block = PST_SECTOR;
        return PST_OK;
    }
    if (ioctl(d->fd, BLKGETSIZE64, &d->bytes) != 0 || ioctl(d->fd, BLKSSZGET, &d->block) != 0)
        return pst_fail_errno("cannot get the size of %s", d->path);
    return read_serial(d);
}

static pst_rc ask_for_serial(const struct drive *d)
{
    char line[SERIAL_BYTES + 2], bytes[32];
    if (d->serial[0] == '\0')
        return pst_fail(PST_E_STATE,
                        "%s was not written by Penstock, and has no serial number by which you could confirm "
                        "that it may be overwritten",
                        d->path);
    (void)fprintf(stderr, "%s (%s) was not written by Penstock. Everything on it will be lost.\n", d->path,
                  pst_bytes_text((double)d->bytes, bytes));
    (void)fprintf(stderr, "Type its serial number to continue: ");
    if (fgets(line, sizeof line, stdin) == NULL)
        line[0] = '\0';
    line[strcspn(line, "\n")] = '\0';
    return strcmp(line, d->serial) == 0
               ? PST_OK
               : pst_fail(PST_E_STATE,
                          "%s: what was typed is not the serial number of this drive; nothing was written",
                          d->path);
}

static pst_rc may_write(const struct store *s, struct drive *d)
{
    unsigned char block[PST_STRIPE_BLOCK] = {0};
    struct pst_stripe there;
    bool ours;
    if (d->empty)
        return PST_OK;
    if (pread(d->fd, block, sizeof block, 0) < 0)
        return pst_fail_errno("reading %s", d->path);
    pst_rc rc = pst_stripe_decode(&there, block, d->path, &ours);
    if (ours && rc == PST_OK && !s->force && there.unit > 0 && !s->topology)
        return pst_fail(PST_E_STATE,
                        "%s also contains the topology of %s: give --topology to write the topology again, "
                        "or --force to delete it",
                        d->path, there.name);
    if (ours && (s->force || (rc == PST_OK && strcmp(there.digest, s->ds.digest) == 0)))
        return PST_OK;
    if (rc != PST_OK)
        return pst_wrap(rc, "without --force");
    if (ours)
        return pst_fail(PST_E_STATE, "%s holds rows of %s (digest %s): give --force to overwrite them",
                        d->path, there.name, there.digest);
    if (!s->force)
        return pst_fail(PST_E_STATE,
                        "%s was not written by Penstock: to overwrite it, give --force and type its serial "
                        "number when asked",
                        d->path);
    return ask_for_serial(d);
}

static pst_rc open_one(struct store *s, uint32_t i)
{
    struct drive *d = &s->drive[i];
    for (uint32_t k = 0; k < i; k++) {
        struct stat a, b;
        if (fstat(s->drive[k].fd, &a) == 0 && stat(d->path, &b) == 0 && a.st_dev == b.st_dev &&
            a.st_ino == b.st_ino)
            return pst_fail(PST_E_ARG, "%s and %s are the same drive", s->drive[k].path, d->path);
    }
    pst_rc rc = open_drive(d);
    if (rc == PST_OK)
        rc = may_write(s, d);
    if (rc == PST_OK) {
        const uint32_t group = pst_stripe_group(s->ds.stride_bytes, (uint32_t)d->block);
        s->group = group > s->group ? group : s->group;
        s->block = (uint32_t)d->block > s->block ? (uint32_t)d->block : s->block;
    }
    return rc;
}

static pst_rc prepare(struct store *s, uint32_t i)
{
    struct drive *d = &s->drive[i];
    d->stripe = (struct pst_stripe){.stripe = i,
                                    .stripes = s->n,
                                    .group = s->group,
                                    .data_at = PST_STRIPE_DATA_AT,
                                    .row_bytes = s->ds.stride_bytes,
                                    .vertices = (uint64_t)s->ds.vertices};
    memcpy(d->stripe.name, s->ds.name, sizeof d->stripe.name);
    memcpy(d->stripe.digest, s->ds.digest, sizeof d->stripe.digest);
    d->area = d->stripe.data_at;
    const uint64_t rows = pst_stripe_rows(d->stripe.vertices, s->group, i, s->n);
    uint64_t need = pst_align_up(d->stripe.data_at + rows * d->stripe.row_bytes, PST_PAGE);
    if (s->topology) {
        const pst_rc rc = pst_stripe_place_topology(&d->stripe, s->ds.indices.data_bytes, s->block);
        if (rc != PST_OK)
            return rc;
        const struct pst_stripe_area *last = &d->stripe.topology[PST_STRIPE_INDICES];
        need = last->at + pst_align_up(pst_stripe_share(last->bytes, d->stripe.unit, i, s->n), PST_PAGE);
    }
    const char *more = s->topology ? " and its share of the topology" : "";
    if (d->block_device && d->bytes < need)
        return pst_fail(PST_E_LIMIT,
                        "%s has only %" PRIu64 " bytes, but its %" PRIu64 " rows%s need %" PRIu64
                        ": use more or larger drives",
                        d->path, d->bytes, rows, more, need);
    d->chunk = malloc(CHUNK_BYTES);
    d->hash = XXH3_createState();
    if (d->chunk == NULL || d->hash == NULL || XXH3_64bits_reset(d->hash) != XXH_OK)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate %s", d->path);
    return PST_OK;
}

/* ---- writing
 * ------------------------------------------------------------------------------------------------ */

static pst_rc write_at(const struct drive *d, const void *data, size_t bytes, uint64_t at)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = pwrite(d->fd, (const char *)data + done, bytes - done, (off_t)(at + done));
        if (n <= 0 && errno != EINTR)
            return pst_fail_errno("cannot write byte %" PRIu64 " of %s", at + done, d->path);
        done += n > 0 ? (size_t)n : 0;
    }
    return PST_OK;
}

static pst_rc sync_drive(const struct drive *d)
{
    return fsync(d->fd) == 0 ? PST_OK : pst_fail_errno("writing %s", d->path);
}

static pst_rc flush_chunk(struct drive *d)
{
    pst_rc rc = write_at(d, d->chunk, d->fill, d->area + d->written);
    d->written += d->fill;
    d->fill = 0;
    return rc;
}

static pst_rc add_bytes(struct drive *d, const char *data, size_t bytes)
{
    pst_rc rc = PST_OK;
    if (XXH3_64bits_update(d->hash, data, bytes) != XXH_OK)
        return pst_fail(PST_E_NOMEM, "cannot compute the checksum of what was written to %s", d->path);
    while (bytes > 0 && rc == PST_OK) {
        const size_t room = CHUNK_BYTES - d->fill, n = bytes < room ? bytes : room;
        memcpy(d->chunk + d->fill, data, n);
        d->fill += n;
        data += n;
        bytes -= n;
        if (d->fill == CHUNK_BYTES)
            rc = flush_chunk(d);
    }
    return rc;
}

static pst_rc write_rows(struct store *s, struct pst_progress *progress)
{
    const uint64_t row = s->ds.stride_bytes;
    const uint64_t files = (uint64_t)pst_feature_files(&s->ds);
    pst_rc rc = PST_OK;
    assert(s->n > 0 && s->group > 0);
    for (int k = 0; k < pst_feature_files(&s->ds); k++) {
        const struct pst_array *a = pst_feature_file(&s->ds, k);
        (void)XXH3_64bits_update(s->source[k], a->map_base, a->data_at);
    }
    pst_progress_begin(progress, "rows", (uint64_t)s->ds.vertices * row, true);
    for (uint64_t v = 0; v < (uint64_t)s->ds.vertices && rc == PST_OK; v++) {
        const void *from = pst_feature_row(&s->ds, (int64_t)v);
        (void)XXH3_64bits_update(s->source[v % files], from, row);
        rc = add_bytes(&s->drive[v / s->group % s->n], from, row);
        if (rc == PST_OK)
            rc = pst_progress_add(progress, row);
    }
    if (rc == PST_OK)
        pst_progress_end(progress);
    for (int k = 0; k < pst_feature_files(&s->ds) && rc == PST_OK; k++)
        if (XXH3_64bits_digest(s->source[k]) != s->source_checksum[k])
            rc = pst_fail(PST_E_FORMAT,
                          "the features in %s do not have the checksum of dataset.json. The drives were not "
                          "marked as complete. `penstock verify %s` shows details",
                          pst_feature_file(&s->ds, k)->path, s->ds.dir);
    return rc;
}

/* Ends the rows, or an array, on a drive. The last page is padded, since a drive is read in whole blocks. */
static pst_rc finish_area(struct drive *d, uint64_t *checksum)
{
    const uint64_t end = d->written + d->fill, pad = pst_align_up(end, PST_PAGE) - end;
    memset(d->chunk + d->fill, 0, pad); /* a chunk is whole pages, and not full */
    d->fill += pad;
    pst_rc rc = flush_chunk(d);
    *checksum = XXH3_64bits_digest(d->hash);
    return rc == PST_OK ? sync_drive(d) : rc;
}

static void begin_area(struct drive *d, uint64_t at)
{
    d->area = at;
    d->written = d->fill = 0;
    (void)XXH3_64bits_reset(d->hash);
}

static pst_rc check_array(const struct store *s, const struct pst_array *array, const XXH3_state_t *hash,
                          uint64_t checksum)
{
    return XXH3_64bits_digest(hash) == checksum
               ? PST_OK
               : pst_fail(PST_E_FORMAT,
                          "%s does not have the checksum of dataset.json. The drives were not marked as "
                          "complete. `penstock verify %s` shows details",
                          array->path, s->ds.dir);
}

/* Writes an array of the topology, which is mapped, unit by unit. */
static pst_rc write_array(struct store *s, int k, struct pst_progress *progress)
{
    const struct pst_array *array = k == PST_STRIPE_INDPTR ? &s->ds.indptr : &s->ds.indices;
    const uint64_t unit = s->drive[0].stripe.unit;
    XXH3_state_t *hash = XXH3_createState();
    assert(s->n > 0 && unit > 0);
    if (hash == NULL || XXH3_64bits_reset(hash) != XXH_OK) {
        (void)XXH3_freeState(hash);
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate a checksum");
    }
    for (uint32_t i = 0; i < s->n; i++)
        begin_area(&s->drive[i], s->drive[i].stripe.topology[k].at);
    (void)XXH3_64bits_update(hash, array->map_base, array->data_at);
    pst_rc rc = PST_OK;
    for (uint64_t at = 0, bytes; at < array->data_bytes && rc == PST_OK; at += bytes) {
        const char *from = (const char *)array->map + at;
        bytes = array->data_bytes - at < unit ? array->data_bytes - at : unit;
        (void)XXH3_64bits_update(hash, from, bytes);
        rc = add_bytes(&s->drive[at / unit % s->n], from, bytes);
        if (rc == PST_OK)
            rc = pst_progress_add(progress, bytes);
    }
    for (uint32_t i = 0; i < s->n && rc == PST_OK; i++) {
        struct drive *d = &s->drive[i];
        rc = finish_area(d, &d->stripe.topology[k].checksum);
        d->bytes_of_topology += d->written;
    }
    if (rc == PST_OK)
        rc = check_array(s, array, hash, s->topology_checksum[k]);
    (void)XXH3_freeState(hash);
    return rc;
}

static pst_rc write_topology(struct store *s, struct pst_progress *progress)
{
    pst_rc rc = PST_OK;
    pst_progress_begin(progress, "topology", s->ds.indptr.data_bytes + s->ds.indices.data_bytes, true);
    for (int k = 0; k < PST_STRIPE_AREAS && rc == PST_OK; k++)
        rc = write_array(s, k, progress);
    if (rc == PST_OK)
        pst_progress_end(progress);
    return rc;
}

/* The signature is erased first and written last, so that half-written drives have none. */
static pst_rc write_all(struct store *s, struct pst_progress *progress)
{
    static const unsigned char none[PST_STRIPE_BLOCK];
    unsigned char block[PST_STRIPE_BLOCK];
    pst_rc rc = PST_OK;
    for (uint32_t i = 0; i < s->n && rc == PST_OK; i++) {
        if (!s->drive[i].block_device && ftruncate(s->drive[i].fd, 0) != 0)
            rc = pst_fail_errno("emptying %s", s->drive[i].path);
        if (rc == PST_OK)
            rc = write_at(&s->drive[i], none, sizeof none, 0);
        if (rc == PST_OK)
            rc = sync_drive(&s->drive[i]);
    }
    if (rc == PST_OK)
        rc = write_rows(s, progress);
    for (uint32_t i = 0; i < s->n && rc == PST_OK; i++) {
        rc = finish_area(&s->drive[i], &s->drive[i].stripe.checksum);
        s->drive[i].bytes_of_rows = s->drive[i].written;
    }
    if (rc == PST_OK && s->topology)
        rc = write_topology(s, progress);
    for (uint32_t i = 0; i < s->n && rc == PST_OK; i++) {
        pst_stripe_encode(&s->drive[i].stripe, block);
        rc = write_at(&s->drive[i], block, sizeof block, 0);
        if (rc == PST_OK)
            rc = sync_drive(&s->drive[i]);
    }
    return rc;
}

static pst_rc open_source(struct store *s, const char *dir)
{
    struct pst_problems problems = {.count = 0};
    struct pst_manifest manifest;
    pst_manifest_read(&manifest, dir, &problems);
    for (int k = 0; k < pst_feature_files(&s->ds); k++) {
        s->source_checksum[k] =
            manifest.stripes > 0 ? manifest.stripe[k].checksum : manifest.array[PST_ARRAY_FEATURES].checksum;
        s->source[k] = XXH3_createState();
        if (s->source[k] == NULL || XXH3_64bits_reset(s->source[k]) != XXH_OK) {
            pst_manifest_release(&manifest);
            return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate a checksum");
        }
    }
    s->topology_checksum[PST_STRIPE_INDPTR] = manifest.array[PST_ARRAY_INDPTR].checksum;
    s->topology_checksum[PST_STRIPE_INDICES] = manifest.array[PST_ARRAY_INDICES].checksum;
    pst_manifest_release(&manifest);
    if (s->ds.feature_dim == 0)
        return pst_fail(PST_E_ARG, "%s has no features", dir);
    return pst_rows_map_features(&s->ds);
}

static void print_drives(const struct store *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        const struct drive *d = &s->drive[i];
        char bytes[32];
        (void)printf("%s: stripe %u of %u, %" PRIu64 " rows, %s", d->path, i, s->n,
                     pst_stripe_rows((uint64_t)s->ds.vertices, s->group, i, s->n),
                     pst_bytes_text((double)d->bytes_of_rows, bytes));
        if (s->topology)
            (void)printf(", and %s of topology", pst_bytes_text((double)d->bytes_of_topology, bytes));
        (void)printf("\n");
    }
}

static pst_rc store(struct store *s, const char *dir, struct pst_progress *progress)
{
    pst_rc rc = pst_dataset_open(&s->ds, dir);
    if (rc != PST_OK)
        return rc;
    rc = open_source(s, dir);
    for (uint32_t i = 0; i < s->n && rc == PST_OK; i++)
        rc = open_one(s, i);
    for (uint32_t i = 0; i < s->n && rc == PST_OK; i++)
        rc = prepare(s, i);
    if (rc == PST_OK)
        rc = write_all(s, progress);
    if (rc == PST_OK)
        print_drives(s);
    for (uint32_t i = 0; i < s->n; i++) {
        struct drive *d = &s->drive[i];
        if (d->fd >= 0 && close(d->fd) != 0 && rc == PST_OK)
            rc = pst_fail_errno("writing %s", d->path);
        free(d->chunk);
        (void)XXH3_freeState(d->hash);
    }
    for (int k = 0; k < PST_DATASET_FEATURE_FILES_MAX; k++)
        (void)XXH3_freeState(s->source[k]);
    pst_dataset_close(&s->ds);
    return rc;
}

static pst_rc add_drive(struct store *s, const char *path)
{
    if (s->n == PST_STRIPE_MAX)
        return pst_fail(PST_E_LIMIT, "a dataset can be written to at most %d drives", PST_STRIPE_MAX);
    s->drive[s->n++] = (struct drive){.path = path, .fd = -1};
    return PST_OK;
}

int cmd_store(int argc, char **argv)
{
    static const struct option options[] = {
        {"to", required_argument, NULL, 't'}, {"topology", no_argument, NULL, 'y'},
        {"force", no_argument, NULL, 'f'},    {"quiet", no_argument, NULL, 'q'},
        {"help", no_argument, NULL, 'h'},     {NULL, 0, NULL, 0}};
    static struct store s;
    bool quiet = false;
    pst_rc rc = PST_OK;
    int opt;
    optind = 1;
    while (rc == PST_OK && (opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (opt) {
        case 't': rc = add_drive(&s, optarg); break;
        case 'y': s.topology = true; break;
        case 'f': s.force = true; break;
        case 'q': quiet = true; break;
        case 'h': (void)fputs(help, stdout); return 0;
        default: rc = pst_fail(PST_E_ARG, "invalid option: `penstock store --help` lists the options");
        }
    }
    /* --to takes the first drive, and those after it follow the dataset among the plain arguments */
    for (int i = optind + 1; i < argc && rc == PST_OK; i++)
        rc = add_drive(&s, argv[i]);
    if (rc == PST_OK && (optind == argc || s.n == 0))
        rc = pst_fail(PST_E_ARG, "expected the arguments DATASET --to DEVICE...; --help lists the options");
    struct pst_progress progress;
    pst_progress_init(&progress, quiet);
    return command_result("store", rc == PST_OK ? store(&s, argv[optind], &progress) : rc);
}
