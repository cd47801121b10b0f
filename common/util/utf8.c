/* utf8.c: text of unknown origin, checked and made harmless. */
#include "common/util/utf8.h"

#include <string.h>

#define INDENT 4

size_t pst_utf8_valid(const char *text, size_t bytes)
{
    const unsigned char *p = (const unsigned char *)text;
    for (size_t i = 0; i < bytes;) {
        unsigned char c = p[i];
        unsigned more = c < 0x80                ? 0
                        : c >= 0xc2 && c < 0xe0 ? 1
                        : c >= 0xe0 && c < 0xf0 ? 2
                        : c >= 0xf0 && c < 0xf5 ? 3
                                                : 9;
        if (more == 9 || i + more >= bytes + (more == 0))
            return i;
        for (unsigned k = 1; k <= more; k++)
            if ((p[i + k] & 0xc0) != 0x80)
                return i;
        if ((c == 0xe0 && p[i + 1] < 0xa0) || (c == 0xed && p[i + 1] > 0x9f) ||
            (c == 0xf0 && p[i + 1] < 0x90) || (c == 0xf4 && p[i + 1] > 0x8f))
            return i;
        i += more + 1;
    }
    return bytes;
}

/* C1 controls are U+0080 to U+009F: the bytes c2 80 to c2 9f. */
static bool is_control(const char *p, size_t bytes)
{
    const unsigned char c = (unsigned char)p[0];
    return bytes == 1 ? (c < 0x20 && c != '\t') || c == 0x7f : c == 0xc2 && (unsigned char)p[1] < 0xa0;
}

/* Of valid UTF-8. */
static size_t character_bytes(const char *p)
{
    const unsigned char c = (unsigned char)p[0];
    return c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
}

void pst_utf8_printable(const char *text, char *out, size_t cap)
{
    const size_t all = strlen(text);
    size_t valid = pst_utf8_valid(text, all), n = 0;
    for (size_t i = 0; i < all;) {
        const bool bad = i == valid;
        const size_t bytes = bad ? 1 : character_bytes(text + i);
        const bool ends_line = !bad && text[i] == '\n';
        const bool replaced = bad || (!ends_line && is_control(text + i, bytes));
        if (n + bytes + (ends_line ? INDENT : 0) >= cap)
            break;
        if (replaced)
            out[n++] = '?';
        else
            (void)memcpy(out + n, text + i, bytes);
        n += replaced ? 0 : bytes;
        for (int k = 0; ends_line && k < INDENT; k++)
            out[n++] = ' ';
        i += bytes;
        if (bad)
            valid = i + pst_utf8_valid(text + i, all - i);
    }
    out[n] = '\0';
}
