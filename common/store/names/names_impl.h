/* names_impl.h: the state of a set of names, shared by its files. Owner: names.c. Threads: stated at each
 * member. */
#ifndef PST_NAMES_IMPL_H
#define PST_NAMES_IMPL_H

#include "common/error.h"
#include "common/store/names/names.h"
#include "common/store/names/log_streams.h"

#define NAMES_BATCH 256 /* mentions that are looked up together */
#define NAMES_WORKERS_MAX 16
#define IN_MEMORY 255 /* the byte of a mention whose number was known */

/* Streams of the log. */
enum { LOG_PARTS, LOG_KNOWN, LOG_NAMES, LOG_STREAMS }; /* a byte each; numbers; names that were in memory */
enum names_file { FILE_LOG, FILE_MENTIONS, FILE_FOUND, FILE_ASSIGNED, FILE_NUMBERS, NAMES_FILES };

/* Streams of what was found. */
static inline int found_ids(int part) /* for each mention: which name of the stream it is */
{
    return 2 * part;
}

static inline int found_names(int part) /* mentions since the last new name, length, name */
{
    return 2 * part + 1;
}

/* The state of one stream. Threads: the one that works on it. Once done (atomic) is set, the rest does not
 * change. */
struct names_part {
    uint64_t mentions, names, text_bytes;
    bool done; /* of the present step */
};

struct pst_names {
    struct pst_names_spec spec;
    enum pst_names_step step;
    struct pst_dict dict;
    bool aside, replaying; /* replaying: names come again that were in memory before a kill */
    int parts, workers;
    uint32_t block_bytes;
    int64_t resident; /* names in memory when it was full; before: 0 */
    uint64_t resident_bytes;
    uint64_t mentions_aside;
    struct pst_log_streams file[NAMES_FILES];
    struct names_part part[PST_NAMES_PARTS_MAX];
    struct pst_ids_writer known;
    /* giving */
    struct pst_log_stream_reader log;
    struct pst_ids_reader *number; /* of each stream, and of those that were known */
    uint64_t worked;               /* mentions, by all workers; atomic */
    bool stop;                     /* atomic */
};

/* names.c */
PST_MUST_USE pst_rc pst_names_open(struct pst_names *n, enum names_file file, int streams);
const char *pst_names_file_name(const struct pst_names *n, enum names_file file);
bool pst_names_stopped(const struct pst_names *n);

/* find.c: fn of every stream that is not done, by several threads where names are parted for the first
 * time. */
typedef pst_rc (*pst_names_part_fn)(struct pst_names *n, int part, uint64_t memory_bytes);
PST_MUST_USE pst_rc pst_names_run_parts(struct pst_names *n, pst_names_part_fn fn, const char *what);
void pst_names_begin_step(struct pst_names *n, enum pst_names_step step);
PST_MUST_USE pst_rc pst_names_note(struct pst_names *n); /* what is done, for sure */
/* As many names as are ahead, a batch at most, which stay valid until more is; bytes: of their records. */
PST_MUST_USE pst_rc pst_names_take(struct pst_log_stream_reader *r, struct pst_name name[NAMES_BATCH],
                                   size_t *count, size_t *bytes);

static inline pst_rc damaged(void)
{
    return pst_fail(
        PST_E_FORMAT,
        "the temporary file of names is damaged: the disk may be faulty; import again without --resume");
}

static inline size_t put_varint(unsigned char *to, uint64_t value)
{
    size_t bytes = 0;
    for (; value >= 0x80; value >>= 7)
        to[bytes++] = (unsigned char)(value | 0x80);
    to[bytes++] = (unsigned char)value;
    return bytes;
}

#define VARINT_MAX 10

/* From what is ahead of a reader; false: it ends within. */
static inline bool get_varint(const unsigned char **p, const unsigned char *end, uint64_t *value)
{
    *value = 0;
    for (unsigned shift = 0; *p < end && shift < 64; shift += 7) {
        const unsigned char byte = *(*p)++;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return true;
    }
    return false;
}

static inline PST_MUST_USE pst_rc put_name(struct pst_log_streams *s, int stream, struct pst_name name)
{
    unsigned char head[VARINT_MAX];
    assert(name.text != NULL);
    pst_rc rc = pst_log_stream_put(s, stream, head, put_varint(head, name.bytes));
    return rc == PST_OK ? pst_log_stream_put(s, stream, name.text, name.bytes) : rc;
}

/* The name at the reader, which stays valid until the next ahead; bytes of the record to *record; 0: it is
 * not all ahead. */
static inline struct pst_name name_ahead(const struct pst_log_stream_reader *r, size_t from, size_t *record)
{
    const unsigned char *p = r->buffer + r->at + from, *begin = p, *end = r->buffer + r->end;
    uint64_t bytes = 0;
    *record = 0;
    if (r->at + from >= r->end || !get_varint(&p, end, &bytes) || bytes > (uint64_t)(end - p) ||
        bytes > PST_NAMES_BYTES_MAX)
        return (struct pst_name){NULL, 0};
    *record = (size_t)(p - begin) + bytes;
    return (struct pst_name){(const char *)p, (uint32_t)bytes};
}

#endif
