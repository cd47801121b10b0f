/* usage.h: the table of subcommands, and what the --help of one says, in parts. Manual pages and completion
 * are made of these, so that they say what --help says. Owner: the caller frees what it gets. Threads: one.
 */
#ifndef PST_USAGE_H
#define PST_USAGE_H

#include "common/base.h"

struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help; /* NULL: for programs; not listed */
};

/* main.c sets the table before it calls a subcommand. */
void command_table_set(const struct command *table, size_t n);
const struct command *command_table(size_t *n);
const struct command *command_find(const char *name); /* NULL: there is none */

/* What `penstock NAME [KIND] --help` prints (kind may be NULL). NULL: out of memory, or it prints nothing. */
char *command_help(const struct command *command, const char *kind);

/* One thing that a help text explains: an option with its value, or a word. */
struct usage_entry {
    char name[64];  /* "--seed" or "rmat" */
    char value[64]; /* "N", "a|b"; empty: it takes none */
    char help[320]; /* its first words; empty: only the usage line names it */
};

/* Finds the entries of a help text: options in the lines that begin with "usage:", and, below, options and
 * words that begin an indented line. Returns how many there are, at most max. */
size_t usage_entries(const char *text, struct usage_entry *entries, size_t max);

/* Copies the positional arguments of the first usage line, with blanks between them: "FORMAT SRC DIR". */
void usage_positionals(const char *text, char *out, size_t room);

/* Parts of a help text, for pages. */
bool usage_is_entry(const char *line);              /* does it begin an entry? */
const char *usage_after_synopsis(const char *text); /* what follows the lines of "usage:" */
const char *usage_entry_help(const char *line);     /* the words of an entry, behind its names and values */

#endif
