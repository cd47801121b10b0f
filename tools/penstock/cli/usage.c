/* usage.c: see usage.h. */
#include "tools/penstock/cli/usage.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define HELP_BYTES_MAX 65536 /* of one command */
#define GROUP_MAX 8          /* options that share a help: --a X --b X */

/* ---- the table ----------------------------------------------------------------------------------- */

static const struct command *commands;
static size_t ncommands;

void command_table_set(const struct command *table, size_t n)
{
    commands = table;
    ncommands = n;
}

const struct command *command_table(size_t *n)
{
    *n = ncommands;
    return commands;
}

const struct command *command_find(const char *name)
{
    for (size_t i = 0; i < ncommands; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

/* ---- the text ------------------------------------------------------------------------------------ */

/* In the child: the command prints its help into the pipe. */
static void print_help(const struct command *command, const char *kind, int to)
{
    static char option[] = "--help";
    char name[64], kind_word[64];
    (void)snprintf(name, sizeof name, "%s", command->name);
    (void)snprintf(kind_word, sizeof kind_word, "%s", kind ? kind : option);
    char *argv[] = {name, kind_word, kind ? option : NULL, NULL};
    if (dup2(to, STDOUT_FILENO) < 0 || setenv("COLUMNS", "100", 1) != 0) /* Python's help is wrapped */
        _exit(1);
    const int status = command->run(kind ? 3 : 2, argv);
    (void)fflush(stdout);
    _exit(status);
}

char *command_help(const struct command *command, const char *kind)
{
    int ends[2], status;
    char *text = calloc(1, HELP_BYTES_MAX + 1);
    if (text == NULL || pipe(ends) != 0) {
        free(text);
        return NULL;
    }
    (void)fflush(stdout);
    const pid_t pid = fork();
    if (pid == 0)
        print_help(command, kind, ends[1]);
    (void)close(ends[1]);
    size_t bytes = 0;
    ssize_t n = 0;
    while (pid > 0 && bytes < HELP_BYTES_MAX && (n = read(ends[0], text + bytes, HELP_BYTES_MAX - bytes)) > 0)
        bytes += (size_t)n;
    (void)close(ends[0]);
    if (pid > 0 && waitpid(pid, &status, 0) == pid && status == 0 && bytes > 0)
        return text;
    free(text);
    return NULL;
}

/* ---- its parts ----------------------------------------------------------------------------------- */

static size_t line_bytes(const char *at)
{
    return strcspn(at, "\n");
}

static const char *next_line(const char *at)
{
    at += line_bytes(at);
    return *at == '\n' ? at + 1 : at;
}

static bool is_option(const char *at)
{
    return at[0] == '-' && at[1] == '-' && islower((unsigned char)at[2]);
}

/* The lines of "usage:" and those that continue them. */
const char *usage_after_synopsis(const char *text)
{
    const char *at = next_line(text);
    while (strncmp(at, "       ", 7) == 0)
        at = next_line(at);
    return at;
}

/* A lower-case word, at least two blanks behind it, and text. */
static bool is_word(const char *at)
{
    const size_t n = strspn(at, "abcdefghijklmnopqrstuvwxyz0123456789_-");
    return n > 0 && islower((unsigned char)at[0]) && strncmp(at + n, "  ", 2) == 0;
}

bool usage_is_entry(const char *line)
{
    const size_t blanks = strspn(line, " ");
    const char *at = line + blanks;
    at += strncmp(at, "-h, ", 4) == 0 ? 4 : 0; /* of Python's help */
    return blanks >= 2 && blanks <= 4 && (is_option(at) || is_word(at));
}

static struct usage_entry *find(struct usage_entry *entries, size_t *n, size_t max, const char *name,
                                size_t bytes)
{
    for (size_t i = 0; i < *n; i++)
        if (strlen(entries[i].name) == bytes && memcmp(entries[i].name, name, bytes) == 0)
            return &entries[i];
    if (*n == max || bytes >= sizeof entries->name)
        return NULL;
    struct usage_entry *entry = &entries[(*n)++];
    *entry = (struct usage_entry){0};
    memcpy(entry->name, name, bytes);
    return entry;
}

/* The bytes of a value behind an option; 0: there is none. One blank is before a value, more are before help.
 */
static size_t value_bytes(const char *at)
{
    if (at[0] != ' ' || at[1] == ' ' || at[1] == '[' || at[1] == '|' || at[1] == '(' || at[1] == '-')
        return 0;
    size_t n = strcspn(at + 1, " \n])");
    while (n > 0 && strchr(",;:.", at[n]) != NULL &&
           at[n] != '\0') /* at[n]: its last byte; "DEVICE..." has more */
        n--;
    return n;
}

/* Reads an option and its value at *at, and moves behind them. */
static struct usage_entry *take_option(const char **at, struct usage_entry *entries, size_t *n, size_t max)
{
    const size_t bytes = 2 + strspn(*at + 2, "abcdefghijklmnopqrstuvwxyz0123456789-");
    struct usage_entry *entry = find(entries, n, max, *at, bytes);
    const size_t value = value_bytes(*at + bytes);
    if (entry != NULL && value > 0 && value < sizeof entry->value)
        (void)snprintf(entry->value, sizeof entry->value, "%.*s", (int)value, *at + bytes + 1);
    *at += bytes + (value > 0 ? value + 1 : 0);
    if (strncmp(*at, "[=", 2) == 0) /* a value that the next word never is */
        *at += strcspn(*at, "]\n") + 1;
    return entry;
}

const char *usage_entry_help(const char *line)
{
    struct usage_entry ignored;
    const char *at = line + strspn(line, " ");
    at += strncmp(at, "-h, ", 4) == 0 ? 4 : 0;
    if (!is_option(at))
        at += strcspn(at, " \n");
    while (is_option(at)) {
        size_t none = 0;
        (void)take_option(&at, &ignored, &none, 1);
        const char *more = at + strspn(at, ",. ");
        at = is_option(more) ? more : at;
    }
    return at + strspn(at, ",. ");
}

/* All options of one indented line: "--a X --b X   help   --c Y  help". */
static void take_line(const char *line, struct usage_entry *entries, size_t *n, size_t max)
{
    const char *at = line + strspn(line, " "), *end = line + line_bytes(line);
    at += strncmp(at, "-h, ", 4) == 0 ? 4 : 0;
    if (!is_option(at)) {
        struct usage_entry *word = find(entries, n, max, at, strcspn(at, " \n"));
        if (word != NULL)
            (void)snprintf(word->help, sizeof word->help, "%.*s", (int)(end - usage_entry_help(line)),
                           usage_entry_help(line));
        return;
    }
    while (at != NULL && at < end) {
        struct usage_entry *group[GROUP_MAX];
        size_t ngroup = 0;
        const char *help = usage_entry_help(at), *next = strstr(help, "  --");
        next = next != NULL && next < end ? next + 2 : NULL;
        const char *stop = next ? next - 2 : end;
        for (const char *name = at; is_option(name) && ngroup < GROUP_MAX; name += strspn(name, ",. ")) {
            group[ngroup] = take_option(&name, entries, n, max);
            ngroup += group[ngroup] != NULL;
        }
        while (stop > help && stop[-1] == ' ')
            stop--;
        for (size_t i = 0; i < ngroup; i++)
            (void)snprintf(group[i]->help, sizeof group[i]->help, "%.*s",
                           stop > help ? (int)(stop - help) : 0, help);
        at = next;
    }
}

size_t usage_entries(const char *text, struct usage_entry *entries, size_t max)
{
    const char *body = usage_after_synopsis(text);
    size_t n = 0;
    for (const char *at = strstr(text, "--"); at != NULL && at < body; at = strstr(at, "--")) {
        if (is_option(at))
            (void)take_option(&at, entries, &n, max);
        else
            at += 2;
    }
    for (const char *line = body; *line != '\0'; line = next_line(line))
        if (usage_is_entry(line))
            take_line(line, entries, &n, max);
    return n;
}

void usage_positionals(const char *text, char *out, size_t room)
{
    const char *end = text + line_bytes(text), *at = strstr(text, "penstock ");
    size_t used = 0;
    out[0] = '\0';
    for (int word = 0; at != NULL && at < end; word++) {
        if (at[0] == '(') { /* options of which one is needed */
            at += strcspn(at, ")\n");
            at += at[0] == ')';
            at += strspn(at, " ");
            continue;
        }
        const size_t bytes = strcspn(at, " \n");
        const bool in_option = strncmp(at, "--", 2) == 0, optional = at[0] == '[' && at[1] == '-';
        if (word >= 2 && !in_option && !optional && strncmp(at, "[OPTION]", 8) != 0 &&
            strncmp(at, "[options]", 9) != 0 && used + bytes + 2 < room)
            used += (size_t)snprintf(out + used, room - used, "%s%.*s", used ? " " : "", (int)bytes, at);
        at += bytes;
        if (optional && at[-1] != ']') /* the value of an option */
            at += strcspn(at, "]\n");
        else if (in_option && at < end)
            at += 1 + strcspn(at + 1, " \n");
        at += at[0] == ']';
        at += strspn(at, " ");
    }
}
