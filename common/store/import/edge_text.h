/* edge_text.h: lists of edges as text: SNAP's, CSV, TSV, and what looks like them.
 * Owner: the caller; init and release pair. Threads: one. */
#ifndef PST_EDGE_TEXT_H
#define PST_EDGE_TEXT_H

#include "common/store/build/csc_builder.h"
#include "common/store/names/names.h"
#include "common/store/text/text.h"

PST_BEGIN_DECLS

#define PST_EDGE_TEXT_COLUMNS_MAX 1024 /* of a line that holds an edge */

enum pst_edge_text_ids {
    PST_EDGE_TEXT_IDS_KEEP,    /* the vertices are 0 .. the largest id, or --vertices */
    PST_EDGE_TEXT_IDS_COMPACT, /* those that occur, in rising order: the ids that they had are kept beside */
    PST_EDGE_TEXT_IDS_STRINGS, /* any text, numbered as it comes: the names are kept beside */
};
enum pst_edge_text_separated {
    PST_EDGE_TEXT_BY_FORMAT, /* as the format has it: the format says which of the others */
    PST_EDGE_TEXT_BY_BLANKS, /* by any number of blanks and tabs */
    PST_EDGE_TEXT_BY_CHARACTER
};
enum pst_edge_text_header { PST_EDGE_TEXT_HEADER_AUTO, PST_EDGE_TEXT_HEADER_YES, PST_EDGE_TEXT_HEADER_NO };

struct pst_edge_text_spec {
    const char *path;
    enum pst_edge_text_separated by;
    char separator;                    /* if by is BY_CHARACTER */
    char comment;                      /* lines that begin with it are skipped; '\0': none */
    int64_t column[2];                 /* of the source and the target, from 0 */
    char column_name[2][PST_NAME_MAX]; /* or what the header calls them; "": column says which */
    bool weighted;                     /* lines have a weight: */
    int64_t weight_column;             /* in this column, */
    char weight_name[PST_NAME_MAX]; /* or in the one that the header calls so; "": weight_column says which */
    int64_t expect;                 /* edges that there must be; -1: any */
    enum pst_edge_text_ids ids;
    enum pst_edge_text_header header;
    uint64_t memory_bytes; /* for names, or for the set of ids */
    int name_hash_bits;    /* for tests (dict.h); 0: all */
};

struct pst_edge_text {
    struct pst_edge_text_spec spec;
    char separator; /* as fields.h wants it */
    struct pst_text text;
    struct pst_rank rank;
    bool ranked;                  /* which ids occur is known */
    struct pst_edge_names *names; /* NULL unless ids are STRINGS, and edges are still read */
    int64_t *source, *target;
    int32_t *weight; /* pst_csc_builder_weight */
    int64_t n;       /* edges in the block */
    int64_t edges, limit;
    int64_t comments, blank_lines, carriage_returns, more_columns, unused_ids;
    bool header_skipped, bom, begun; /* begun: a line that is no comment was read */
    uint64_t at;                     /* bytes of text that were read */
};

PST_MUST_USE pst_rc pst_edge_text_init(struct pst_edge_text *e, const struct pst_edge_text_spec *spec);

/* A pst_import_feed_fn. Fails with PATH:LINE: byte: expected, found. */
PST_MUST_USE pst_rc pst_edge_text_feed(void *ctx, struct pst_csc_builder *csc, int64_t *vertices,
                                       struct pst_progress *progress);

/* Writes ids where they were compacted; feed has written names. */
PST_MUST_USE pst_rc pst_edge_text_write(const struct pst_edge_text *e, struct pst_build *b);

/* What was repaired or left out, one per line. */
void pst_edge_text_tell(const struct pst_edge_text *e, struct pst_problems *warnings);
void pst_edge_text_release(struct pst_edge_text *e);

PST_END_DECLS
#endif
