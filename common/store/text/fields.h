/* fields.h: fields of one line of text, which ends with '\n', or with "\r\n". Owner: none. Threads: pure
 * functions. */
#ifndef PST_FIELDS_H
#define PST_FIELDS_H

#include <stdbool.h>
#include <stddef.h>

#define PST_TEXT_BLANKS '\0' /* in place of a separator: fields are between any number of blanks and tabs */

/* Where the next character is that is no blank. */
static inline const char *pst_text_skip_blanks(const char *p)
{
    while (*p == ' ' || *p == '\t')
        p++;
    return p;
}

static inline bool pst_text_at_end(const char *p)
{
    return *p == '\n' || (*p == '\r' && p[1] == '\n');
}

/* The end of a field that begins at p; a quoted one ends after its closing quote, and "" in it is one quote.
 * NULL: the quote is not closed. Between blanks, quotes are plain characters. */
static inline const char *pst_text_field_end(const char *p, char separator)
{
    if (*p == '"' && separator != PST_TEXT_BLANKS) {
        for (p++; *p != '\n'; p++) {
            if (*p == '"' && p[1] != '"')
                return p + 1;
            p += *p == '"';
        }
        return NULL;
    }
    while (!pst_text_at_end(p) && *p != '\n' &&
           (separator != PST_TEXT_BLANKS ? *p != separator : *p != ' ' && *p != '\t'))
        p++;
    return p;
}

/* Past the separator after a field that ends at p; NULL: something else is there, or the line has ended. */
static inline const char *pst_text_next_field(const char *p, char separator)
{
    if (separator == PST_TEXT_BLANKS)
        return *p == ' ' || *p == '\t' ? pst_text_skip_blanks(p) : NULL;
    if (separator != '\t')
        p = pst_text_skip_blanks(p);
    return *p == separator ? p + 1 : NULL;
}

/* Takes the quotes off a field from begin to end: `out` has room for its bytes. Returns how many bytes are
 * left. */
static inline size_t pst_text_unquote(const char *begin, const char *end, char *out)
{
    size_t n = 0;
    for (const char *p = begin + 1; p < end - 1; p++) {
        out[n++] = *p;
        p += *p == '"';
    }
    return n;
}

#endif
