/* text_array.h: writes the numbers in lines of text to an array file, in one pass.
 * Owner: none. Threads: one call per file. */
#ifndef PST_TEXT_ARRAY_H
#define PST_TEXT_ARRAY_H

#include "common/store/dataset/array.h"
#include "common/util/progress.h"

PST_BEGIN_DECLS

#define PST_TEXT_COLUMNS_MAX 65536 /* of a line that holds a row of features */

struct pst_text_array_spec {
    const char *path; /* of the text: plain, gzip or zstd; columns separated by commas or blanks */
    const char *to;   /* of the array, which must not exist */
    bool integers; /* int64 ids from 0 to limit - 1; else float32, or float64 where NaN may stand for none */
    bool may_be_nan;
    int64_t limit;
    bool may_be_empty;     /* no line at all; columns are then said */
    int64_t rows, columns; /* that there must be; -1: any, as many in each line as in the first */
};

/* Fails: PST_E_FORMAT with PATH:LINE: byte: expected, found. rows: how many there were; may be NULL. */
PST_MUST_USE pst_rc pst_text_array(const struct pst_text_array_spec *spec, int64_t *rows,
                                   struct pst_progress *progress);

PST_END_DECLS
#endif
