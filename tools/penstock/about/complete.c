/* complete.c: penstock complete: what can stand at the end of a command line. The scripts for bash, zsh and
 * fish call it. It prints a line for each word: WORD, a tab, help. A line ":files" or ":directories" asks for
 * names of these. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/pipeline/desc/caps.h"
#include "tools/penstock/about/settings.h"
#include "tools/penstock/cli/commands.h"
#include "tools/penstock/cli/usage.h"

#define ENTRIES_MAX 128 /* options and words of a help text */

/* A command line that is not finished. */
struct line {
    char **word; /* behind the command; the last is the one to complete */
    int n;
    const char *current;
    struct usage_entry entry[ENTRIES_MAX];
    size_t entries;
    char positionals[512];
};

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static void offer(const char *before, const char *word, const char *help, const char *current)
{
    if (begins(word, current))
        printf("%s%s\t%s\n", before, word, help);
}

/* "float32|float16": each of these words. */
static void offer_choices(const char *before, const char *choices, const char *current)
{
    char list[128], *save = NULL;
    (void)snprintf(list, sizeof list, "%s", choices);
    for (char *word = strtok_r(list, "|", &save); word != NULL; word = strtok_r(NULL, "|", &save))
        offer(before, word, "", current);
}

static void offer_stages(const char *current)
{
    char **names;
    size_t n;
    if (pst_caps_list(&names, &n) != PST_OK)
        return;
    for (size_t i = 0; i < n; i++) {
        offer("", names[i], "an installed stage", current);
        free(names[i]);
    }
    free(names);
}

static const struct usage_entry *entry_of(const struct line *line, const char *name, size_t bytes)
{
    for (size_t i = 0; i < line->entries; i++)
        if (strlen(line->entry[i].name) == bytes && memcmp(line->entry[i].name, name, bytes) == 0)
            return &line->entry[i];
    return NULL;
}

/* Does the option that this word names take the next word? */
static bool takes_next(const struct line *line, const char *word)
{
    const struct usage_entry *entry = begins(word, "--") ? entry_of(line, word, strlen(word)) : NULL;
    return entry != NULL && entry->value[0] != '\0';
}

/* The n-th positional argument before the last word; NULL: there are not as many. */
static const char *positional(const struct line *line, int n)
{
    for (int i = 0; i + 1 < line->n; i++) {
        if (line->word[i][0] != '-' && n-- == 0)
            return line->word[i];
        if (takes_next(line, line->word[i]))
            i++;
    }
    return NULL;
}

/* The values of a place that the help calls `what`. `before` was typed before the value: "--with=". */
static void offer_values(const struct line *line, const char *what, const char *before, const char *current)
{
    const char *dirs[] = {"DIR", "DATASET", "RUN", "OUT", "SRC"};
    if (begins(what, "PATH=VALUE")) {
        const char *file = positional(line, 0);
        if (file != NULL)
            settings_offer(file, line->word, line->n - 1, before, current);
        return;
    }
    if (begins(what, "DEVICE") && !begins(what, "DEVICE...")) {
        offer_choices(before, "auto|cpu:0|cpu:1|cuda:0|cuda:1", current);
        return;
    }
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++)
        if (begins(what, dirs[i])) {
            printf(":%s\n", strcmp(dirs[i], "SRC") == 0 ? "files" : "directories");
            return;
        }
    if (strstr(what, "FILE") != NULL || begins(what, "PATH") || begins(what, "PIPELINE") ||
        begins(what, "TRACE") || begins(what, "TRIPLES") || begins(what, "DEVICE..."))
        printf(":files\n");
    else if (what[0] >= 'a' && what[0] <= 'z')
        offer_choices(before, what, current);
}

/* The positional argument that the last word is; the last one of the usage line may be repeated. */
static void offer_positional(const struct line *line)
{
    int index = 0;
    while (positional(line, index) != NULL)
        index++;
    char list[sizeof line->positionals], *save = NULL, *last = NULL;
    (void)snprintf(list, sizeof list, "%s", line->positionals);
    char *name = strtok_r(list, " ", &save);
    for (int i = 0; i < index && name != NULL; i++) {
        last = name;
        name = strtok_r(NULL, " ", &save);
    }
    if (name == NULL && last != NULL && strstr(last, "...") != NULL)
        name = last;
    if (name == NULL)
        return;
    name += name[0] == '[';
    name[strcspn(name, "]")] = '\0';
    if (strcmp(name, "NAME|PATH") == 0) {
        offer_stages(line->current);
        printf(":files\n");
    } else if (strcmp(name, "FORMAT") == 0 || strchr(name, '|') != NULL) {
        for (size_t i = 0; i < line->entries; i++)
            if (line->entry[i].name[0] != '-')
                offer("", line->entry[i].name, line->entry[i].help, line->current);
    } else {
        offer_values(line, name, "", line->current);
    }
}

static void offer_options(const struct line *line)
{
    for (size_t i = 0; i < line->entries; i++)
        if (line->entry[i].name[0] == '-')
            offer("", line->entry[i].name, line->entry[i].help, line->current);
    if (entry_of(line, "--help", strlen("--help")) == NULL)
        offer("", "--help", "list the options", line->current);
}

/* Reads the help of the command, or of the kind that its first word names. */
static bool read_help(struct line *line, const struct command *command, const char *kind)
{
    char *text = command_help(command, kind);
    if (text == NULL)
        return false;
    line->entries = usage_entries(text, line->entry, ENTRIES_MAX);
    usage_positionals(text, line->positionals, sizeof line->positionals);
    free(text);
    return true;
}

static void complete_arguments(const struct command *command, char **word, int n)
{
    struct line *line = calloc(1, sizeof *line);
    if (line == NULL || !read_help(line, command, NULL)) {
        free(line);
        return;
    }
    line->word = word;
    line->n = n;
    line->current = word[n - 1];
    if (n > 1 && strcmp(command->name, "gen") == 0 && entry_of(line, word[0], strlen(word[0])) != NULL)
        (void)read_help(line, command, word[0]);
    const char *equals = strchr(line->current, '=');
    const size_t bytes = equals != NULL ? (size_t)(equals - line->current) : 0;
    const struct usage_entry *own =
        begins(line->current, "--") && equals ? entry_of(line, line->current, bytes) : NULL;
    if (n > 1 && takes_next(line, word[n - 2])) {
        offer_values(line, entry_of(line, word[n - 2], strlen(word[n - 2]))->value, "", line->current);
    } else if (own != NULL && own->value[0] != '\0') {
        char before[80];
        (void)snprintf(before, sizeof before, "%.*s=", (int)bytes, line->current);
        offer_values(line, own->value, before, equals + 1);
    } else if (line->current[0] == '-') {
        offer_options(line);
    } else {
        offer_positional(line);
    }
    free(line);
}

int cmd_complete(int argc, char **argv)
{
    size_t n;
    const struct command *table = command_table(&n);
    if (argc < 3 || strcmp(argv[1], "--") != 0) {
        fprintf(stderr,
                "usage: penstock complete -- [WORD]...\n"
                "Prints what the last WORD of a command line can be: for the completion of shells.\n");
        return 2;
    }
    if (argc > 3) {
        const struct command *command = command_find(argv[2]);
        if (command != NULL && command->help != NULL)
            complete_arguments(command, argv + 3, argc - 3);
        return 0;
    }
    for (size_t i = 0; i < n; i++)
        if (table[i].help != NULL)
            offer("", table[i].name, table[i].help, argv[2]);
    offer("", "--help", "list the commands", argv[2]);
    offer("", "--version", "print the version", argv[2]);
    return 0;
}
