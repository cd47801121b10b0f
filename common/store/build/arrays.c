/* arrays.c: array files of the directory being made: begin, end, note, go on after a kill. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/store/build/build_impl.h"

static void path_of(const struct pst_build *b, const char *file, char path[4096 + PST_NAME_MAX])
{
    (void)snprintf(path, 4096 + PST_NAME_MAX, "%s/%s", b->partial, file);
}

/* far: where the file is to be, with a link to it; "": in the directory itself. */
static pst_rc begin_file(const struct pst_build *b, const char *file, const char *far, enum pst_dtype dtype,
                         int rank, const int64_t shape[2], struct pst_array_writer *w)
{
    char path[4096 + PST_NAME_MAX];
    path_of(b, file, path);
    if (b->resumed) { /* one that was begun and cannot go on */
        (void)json_object_del(json_object_get(b->journal.root, "arrays"), file);
        pst_build_stripe_link_remove(AT_FDCWD, path);
        (void)unlink(path);
    }
    if (far[0] != '\0' && symlink(far, path) != 0) /* the link first: what is killed is found by it */
        return pst_fail_errno("cannot create the link %s", path);
    return pst_array_writer_init(w, far[0] != '\0' ? far : path, dtype, rank, shape);
}

/* An array in the journal: all of it when it has a checksum. */
static void note_file(struct pst_build *b, const char *file, const struct pst_array_writer *w,
                      const uint64_t *checksum)
{
    json_t *o =
        json_pack("{s:s, s:i, s:[I, I], s:I}", "dtype", pst_dtype_name(w->dtype), "rank", w->rank, "shape",
                  (json_int_t)w->shape[0], (json_int_t)w->shape[1], "written", (json_int_t)w->written);
    char text[17];
    if (checksum != NULL) {
        (void)snprintf(text, sizeof text, "%016" PRIx64, *checksum);
        (void)json_object_set_new(o, "xxh3", json_string(text));
    }
    (void)json_object_set_new(json_object_get(b->journal.root, "arrays"), file, o);
}

/* How many bytes of a file the journal has, of this dtype and shape; finished: an entry to fill. */
static uint64_t noted(const struct pst_build *b, const char *file, struct pst_array_entry *e, bool *finished)
{
    json_t *o = json_object_get(json_object_get(b->journal.root, "arrays"), file),
           *shape = json_object_get(o, "shape");
    const char *dtype = json_string_value(json_object_get(o, "dtype"));
    const char *sum = json_string_value(json_object_get(o, "xxh3"));
    *finished = false;
    if (!b->resumed || dtype == NULL || pst_dtype_parse(dtype, &e->dtype) != PST_OK)
        return 0;
    e->rank = (int)json_integer_value(json_object_get(o, "rank"));
    e->shape[0] = json_integer_value(json_array_get(shape, 0));
    e->shape[1] = json_integer_value(json_array_get(shape, 1));
    e->checksum = sum != NULL ? strtoull(sum, NULL, 16) : 0;
    e->present = *finished = sum != NULL;
    (void)snprintf(e->file, sizeof e->file, "%s", file);
    return (uint64_t)json_integer_value(json_object_get(o, "written"));
}

pst_rc pst_build_file_end(struct pst_build *b, struct pst_array_entry *e, const char *file,
                          struct pst_array_writer *w)
{
    pst_rc rc = pst_array_writer_finish(w, &e->checksum);
    if (rc != PST_OK)
        return rc;
    e->present = true;
    (void)snprintf(e->file, sizeof e->file, "%s", file);
    e->dtype = w->dtype;
    e->rank = w->rank;
    e->shape[0] = w->shape[0];
    e->shape[1] = w->shape[1];
    if (b->journal.root != NULL)
        note_file(b, file, w, &e->checksum);
    return pst_journal_save(&b->journal);
}

static void array_file(enum pst_array_id id, char name[PST_NAME_MAX])
{
    (void)snprintf(name, PST_NAME_MAX, "%s.npy", pst_array_id_name(id));
}

pst_rc pst_build_array(struct pst_build *b, enum pst_array_id id, enum pst_dtype dtype, int rank,
                       const int64_t shape[2], struct pst_array_writer *w)
{
    char name[PST_NAME_MAX];
    array_file(id, name);
    return begin_file(b, name, "", dtype, rank, shape, w);
}

pst_rc pst_build_array_end(struct pst_build *b, enum pst_array_id id, struct pst_array_writer *w)
{
    char name[PST_NAME_MAX];
    array_file(id, name);
    return pst_build_file_end(b, &b->manifest.array[id], name, w);
}

pst_rc pst_build_split(struct pst_build *b, int k, int part, int64_t rows, struct pst_array_writer *w)
{
    char name[PST_NAME_MAX];
    const int64_t shape[2] = {rows, 1};
    pst_build_split_name(k, part, name);
    return begin_file(b, name, "", PST_I64, 1, shape, w);
}

pst_rc pst_build_split_end(struct pst_build *b, int k, int part, struct pst_array_writer *w)
{
    char name[PST_NAME_MAX];
    pst_build_split_name(k, part, name);
    return pst_build_file_end(
        b, k == 0 ? &b->manifest.array[PST_ARRAY_TRAIN + part] : &b->manifest.split[k].ids[part], name, w);
}

pst_rc pst_build_file_go_on(struct pst_build *b, const char *name, const char *far, enum pst_dtype dtype,
                            int rank, const int64_t shape[2], struct pst_array_writer *w)
{
    char path[4096 + PST_NAME_MAX];
    struct pst_array_entry e = {.present = false};
    bool finished;
    path_of(b, name, path);
    uint64_t written = noted(b, name, &e, &finished);
    if (written > 0 && e.dtype == dtype && e.rank == rank && e.shape[0] == shape[0] &&
        (rank == 1 || e.shape[1] == shape[1]))
        return pst_array_writer_reopen(w, path, dtype, rank, shape, written);
    return begin_file(b, name, far, dtype, rank, shape, w);
}

pst_rc pst_build_go_on(struct pst_build *b, enum pst_array_id id, enum pst_dtype dtype, int rank,
                       const int64_t shape[2], struct pst_array_writer *w)
{
    char name[PST_NAME_MAX];
    array_file(id, name);
    return pst_build_file_go_on(b, name, "", dtype, rank, shape, w);
}

pst_rc pst_build_file_note(struct pst_build *b, const char *name, struct pst_array_writer *w)
{
    pst_rc rc = pst_array_writer_sync(w);
    if (rc == PST_OK)
        note_file(b, name, w, NULL);
    return rc;
}

pst_rc pst_build_note(struct pst_build *b, enum pst_array_id id, struct pst_array_writer *w)
{
    char name[PST_NAME_MAX];
    array_file(id, name);
    return pst_build_file_note(b, name, w);
}

bool pst_build_had(struct pst_build *b, enum pst_array_id id)
{
    char name[PST_NAME_MAX], path[4096 + PST_NAME_MAX];
    struct pst_array_entry e = {.present = false};
    struct pst_array a;
    bool finished;
    array_file(id, name);
    path_of(b, name, path);
    (void)noted(b, name, &e, &finished);
    if (!finished || pst_array_open(&a, path) != PST_OK)
        return false;
    bool same =
        a.dtype == e.dtype && a.rank == e.rank && a.shape[0] == e.shape[0] && a.shape[1] == e.shape[1];
    pst_array_close(&a);
    if (same)
        b->manifest.array[id] = e;
    return same;
}

pst_rc pst_build_array_from(struct pst_build *b, enum pst_array_id id, enum pst_dtype dtype, int64_t rows,
                            const void *data)
{
    struct pst_array_writer w;
    const int64_t shape[2] = {rows, 1};
    pst_rc rc = pst_build_array(b, id, dtype, 1, shape, &w);
    if (rc == PST_OK)
        rc = pst_array_write(&w, data, (size_t)rows * pst_dtype_bytes(dtype));
    if (rc == PST_OK)
        rc = pst_build_array_end(b, id, &w);
    pst_array_writer_release(&w);
    return rc;
}
