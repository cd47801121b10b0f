/* log_streams.h: many streams of bytes in one file. Each is written once from start to end, and then read the
 * same way, by blocks with checksums. Numbers in a stream take as few bytes as they need. Owner: the caller;
 * make or load pairs with close. Each stream that is written or read has one block in memory. Threads: one
 * for each stream; any number of streams at a time. */
#ifndef PST_LOG_STREAMS_H
#define PST_LOG_STREAMS_H

#include <jansson.h>
#include <string.h>

#include "common/base.h"

PST_BEGIN_DECLS

#define PST_LOG_STREAM_BLOCK_MIN 512u
#define PST_LOG_STREAM_BLOCK_MAX (64u << 10)
#define PST_LOG_STREAM_CHECK 8   /* bytes of a block that are its checksum */
#define PST_LOG_STREAM_EXTENT 16 /* blocks of one stream that are side by side */
#define PST_NAMES_PACK_IDS 512   /* numbers that are packed together */

struct pst_log_stream {
    uint64_t blocks; /* that are full, and written */
    uint64_t *extent;
    uint64_t extents;
    unsigned char *block; /* what is not; NULL: nothing */
    uint32_t fill;
};

struct pst_log_streams {
    int fd;
    char path[4096]; /* "": the file has no name */
    int n;
    struct pst_log_stream *stream;
    uint32_t block_bytes;
    uint64_t extents; /* that were given out */
};

/* Streams without anything, in DIR/temp-edges.NAME; name NULL: in a file without a name. Fails: PST_E_IO,
 * PST_E_NOMEM. */
PST_MUST_USE pst_rc pst_log_streams_make(struct pst_log_streams *s, const char *dir, const char *name, int n,
                                         uint32_t block_bytes);

PST_MUST_USE pst_rc pst_log_stream_put_more(struct pst_log_streams *s, int i, const void *data, size_t bytes);

/* Appends. Fails: PST_E_IO (a full disk says so), PST_E_NOMEM. */
static inline PST_MUST_USE pst_rc pst_log_stream_put(struct pst_log_streams *s, int i, const void *data,
                                                     size_t bytes)
{
    struct pst_log_stream *st = &s->stream[i];
    if (st->block == NULL || bytes >= s->block_bytes - PST_LOG_STREAM_CHECK - st->fill)
        return pst_log_stream_put_more(s, i, data, bytes);
    memcpy(st->block + PST_LOG_STREAM_CHECK + st->fill, data, bytes);
    st->fill += (uint32_t)bytes;
    return PST_OK;
}

/* Writes what its last block has and lets the block go: nothing more is put, and it can be read. */
PST_MUST_USE pst_rc pst_log_stream_end(struct pst_log_streams *s, int i);
PST_MUST_USE pst_rc pst_log_streams_end(struct pst_log_streams *s); /* all of them */
void pst_log_stream_forget(struct pst_log_streams *s, int i);       /* what was put: it begins anew */

/* Writes what the last blocks have; more can be put. Then: what was written is on the disk. */
PST_MUST_USE pst_rc pst_log_streams_flush(struct pst_log_streams *s);
PST_MUST_USE pst_rc pst_log_streams_sync(const struct pst_log_streams *s);

/* What is where, of the streams that keep(ctx, i) says (all when it is NULL); and streams of which that was
 * kept: what was put after is forgotten. Fails: PST_E_FORMAT, PST_E_IO, PST_E_NOMEM. */
json_t *pst_log_streams_state(const struct pst_log_streams *s, bool (*keep)(const void *ctx, int i),
                              const void *ctx);
PST_MUST_USE pst_rc pst_log_streams_load(struct pst_log_streams *s, const char *dir, const char *name,
                                         const json_t *state);

/* keep false: the file is removed. */
void pst_log_streams_close(struct pst_log_streams *s, bool keep);

struct pst_log_stream_reader {
    const struct pst_log_streams *s;
    int stream;
    uint64_t block, left; /* the next block; bytes from there on */
    unsigned char *buffer;
    size_t room, at, end; /* what is ahead: buffer + at up to buffer + end, and 8 bytes that may be read */
};

/* From the begin of a stream that was ended. Allocates with the first byte. */
void pst_log_stream_read(struct pst_log_stream_reader *r, const struct pst_log_streams *s, int i);
PST_MUST_USE pst_rc pst_log_stream_read_more(struct pst_log_stream_reader *r, size_t need);

/* At least so many bytes are ahead, or all that there are. Fails: PST_E_IO, PST_E_FORMAT when what is read is
 * not what was written, PST_E_NOMEM. */
static inline PST_MUST_USE pst_rc pst_log_stream_ahead(struct pst_log_stream_reader *r, size_t need)
{
    return r->end - r->at >= need || r->left == 0 ? PST_OK : pst_log_stream_read_more(r, need);
}
void pst_log_stream_reader_release(struct pst_log_stream_reader *r);

/* Numbers on their way to a stream. */
struct pst_ids_writer {
    struct pst_log_streams *s;
    int stream;
    unsigned n;
    uint64_t any; /* of their bits */
    uint64_t id[PST_NAMES_PACK_IDS];
};

PST_MUST_USE pst_rc pst_ids_flush(struct pst_ids_writer *w);
static inline PST_MUST_USE pst_rc pst_ids_put(struct pst_ids_writer *w, uint64_t id)
{
    w->any |= id;
    w->id[w->n++] = id;
    return w->n == PST_NAMES_PACK_IDS ? pst_ids_flush(w) : PST_OK;
}

struct pst_ids_reader {
    struct pst_log_stream_reader r;
    unsigned n, at;
    uint64_t id[PST_NAMES_PACK_IDS];
};

PST_MUST_USE pst_rc pst_ids_more(struct pst_ids_reader *r);
/* Fails: PST_E_FORMAT after the last, and as pst_log_stream_ahead. */
static inline PST_MUST_USE pst_rc pst_ids_next(struct pst_ids_reader *r, int64_t *id)
{
    pst_rc rc = r->at == r->n ? pst_ids_more(r) : PST_OK;
    if (rc == PST_OK)
        *id = (int64_t)r->id[r->at++];
    return rc;
}

PST_END_DECLS
#endif
