/* utf8.h: text of unknown origin. Owner: the caller. Threads: any. */
#ifndef PST_UTF8_H
#define PST_UTF8_H

#include "common/base.h"

PST_BEGIN_DECLS

/* How many of the bytes from p on are valid UTF-8. */
PST_API size_t pst_utf8_valid(const char *p, size_t bytes);

/* Copies text so that a terminal can show it and JSON can carry it: control characters (except tabs) and
 * invalid bytes become '?', and each line after the first is indented by four blanks. Cuts what does not fit
 * in cap bytes. */
void pst_utf8_printable(const char *text, char *out, size_t cap);

PST_END_DECLS
#endif
