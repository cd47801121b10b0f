/* table.h: reads a table in a text file (plain, gzip or zstd). A line is a row. Commas, tabs (.tsv) or bars
 * (.psv) separate the columns. The first line may name the columns. A field may be quoted, but cannot hold a
 * line end. Owner: the caller; open and close pair. Threads: one per table. */
#ifndef PST_TABLE_H
#define PST_TABLE_H

#include "common/store/text/text.h"

PST_BEGIN_DECLS

#define PST_TABLE_COLUMNS_MAX 65536

/* Whether the first line names the columns. AUTO: if one of its fields is a name that the caller knows. */
enum pst_table_header { PST_TABLE_HEADER_AUTO, PST_TABLE_HEADER_YES, PST_TABLE_HEADER_NO };

/* A field without its quotes. A number in it ends at text[bytes], which is no part of it. */
struct pst_table_field {
    const char *text;
    size_t bytes;
};

struct pst_table {
    struct pst_text text;
    char separator;
    bool header;
    int columns;                   /* of the first line: every line has as many */
    char **name;                   /* with a header: of each column */
    struct pst_table_field *field; /* of the present row */
    int64_t rows;                  /* that were read; the present one's number is rows - 1 */
    char *plain;                   /* fields that were quoted */
    const char *at, *end;          /* what is left of the block */
    const char *line;              /* the present row's */
    bool begun;                    /* a line was read: the next one has the next number */
    bool pending;                  /* the first line is a row, and is still to be given */
};

/* By its name's ending: .csv, .tsv or .psv, also with .gz or .zst after it. */
bool pst_table_is_one(const char *path);

/* known: names that a header may have (compared without case), a list that ends with NULL. Fails: as
 * pst_text_open; PST_E_FORMAT where the first line is neither a header that the caller knows nor all numbers.
 */
PST_API PST_MUST_USE pst_rc pst_table_open(struct pst_table *t, const char *path,
                                           enum pst_table_header header, const char *const *known);
/* The next row, in t->field; *more false: there are no more. Blank lines are skipped. Fails: PST_E_FORMAT
 * with PATH:LINE where a row has another number of columns than the first. */
PST_API PST_MUST_USE pst_rc pst_table_next(struct pst_table *t, bool *more);

/* The column of one of the names (a list that ends with NULL; compared without case), the first that is
 * there; -1: none, or the table has no header. */
int pst_table_column(const struct pst_table *t, const char *const *names);

/* Fails with PATH:LINE: column: expected WHAT, found the field. Returns PST_E_FORMAT. */
PST_API PST_MUST_USE pst_rc pst_table_fail(const struct pst_table *t, int column, const char *what);
/* The columns' names, with commas between, for messages. */
void pst_table_names(const struct pst_table *t, char *out, size_t room);
PST_API void pst_table_close(struct pst_table *t);

/* An integer that fills the field. */
bool pst_table_integer(const struct pst_table_field *f, int64_t *out);
/* A number that fills the field; nan and inf count as numbers. */
bool pst_table_real(const struct pst_table_field *f, double *out);

PST_END_DECLS
#endif
