/* problems.c: text is appended until the list is full; later problems are only counted. */
#include "common/util/problems.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/error.h"

void pst_problem(struct pst_problems *list, const char *fmt, ...)
{
    list->count++;
    size_t room = sizeof list->text - list->used;
    va_list ap;
    va_start(ap, fmt);
    char line[1024];
    int n = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    if (n < 0 || strlen(line) + 4 >= room)
        return; /* counted; the result says how many are not shown */
    list->used += (size_t)snprintf(list->text + list->used, room, "\n  %s", line);
}

void pst_problem_from_error(struct pst_problems *list)
{
    pst_problem(list, "%s", pst_error_text());
}

static int lines_of(const struct pst_problems *list)
{
    int lines = 0;
    for (size_t i = 0; i + 2 < list->used; i++)
        lines += list->text[i] == '\n' && list->text[i + 1] == ' ' && list->text[i + 2] == ' ';
    return lines;
}

pst_rc pst_problems_result(const struct pst_problems *list, const char *what)
{
    if (list->count == 0)
        return PST_OK;
    int shown = lines_of(list);
    if (shown < list->count)
        return pst_fail(PST_E_FORMAT, "%s: %d problems:%s\n  and %d more", what, list->count, list->text,
                        list->count - shown);
    return pst_fail(PST_E_FORMAT, "%s: %d problem%s:%s", what, list->count, list->count == 1 ? "" : "s",
                    list->text);
}
