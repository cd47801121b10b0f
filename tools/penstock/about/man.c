/* man.c: penstock man: manual pages, made of what --help prints. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/error.h"
#include "common/util/file.h"
#include "tools/penstock/cli/commands.h"
#include "tools/penstock/cli/options.h"
#include "tools/penstock/cli/usage.h"

/* ---- roff ---------------------------------------------------------------------------------------- */

/* Text of one line: what roff would take for commands is escaped. */
static void put_text(FILE *out, const char *text, size_t bytes)
{
    if (bytes > 0 && (text[0] == '.' || text[0] == '\''))
        (void)fputs("\\&", out);
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '\\')
            (void)fputs("\\e", out);
        else if (text[i] == '-')
            (void)fputs("\\-", out);
        else
            (void)fputc(text[i], out);
    }
}

static void put_line(FILE *out, const char *text, size_t bytes)
{
    put_text(out, text, bytes);
    (void)fputc('\n', out);
}

static void put_head(FILE *out, const char *page, const char *help)
{
    char name[64];
    (void)snprintf(name, sizeof name, "%s", page);
    for (char *c = name; *c; c++)
        *c = (char)(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c);
    fprintf(out, ".TH \"%s\" 1 \"\" \"penstock %s\" \"Penstock\"\n.SH NAME\n", name, command_version());
    put_text(out, page, strlen(page));
    (void)fputs(" \\- ", out);
    put_line(out, help, strlen(help));
}

/* ---- a command ----------------------------------------------------------------------------------- */

static void put_synopsis(FILE *out, const char *text, const char *end)
{
    (void)fputs(".SH SYNOPSIS\n.nf\n", out);
    for (const char *line = text; line < end;) {
        const size_t n = strcspn(line, "\n"), skip = strlen("usage: ");
        put_line(out, line + (n > skip ? skip : 0), n > skip ? n - skip : n);
        line += n + (line[n] == '\n');
    }
    (void)fputs(".fi\n", out);
}

/* An entry begins a tagged paragraph, which the lines go on that are indented more. Other indented lines are
 * a table or an example, and stay as they are. */
static void put_body(FILE *out, const char *text)
{
    enum { PLAIN, ENTRY, TABLE } in = PLAIN;
    bool gap = false; /* the next text begins a paragraph */
    for (const char *line = text; *line != '\0';) {
        const size_t n = strcspn(line, "\n"), blanks = strspn(line, " ");
        const bool entry = usage_is_entry(line), table = !entry && blanks >= 2 && blanks < 6 && n > 0;
        if (in == TABLE && !table)
            (void)fputs(".fi\n.RE\n", out);
        if (entry) {
            const char *help = usage_entry_help(line);
            size_t names = (size_t)(help - line) < n ? (size_t)(help - line) : n;
            while (names > blanks && line[names - 1] == ' ')
                names--;
            (void)fputs(".TP\n.B ", out);
            put_line(out, line + blanks, names - blanks);
            if (help < line + n)
                put_line(out, help, (size_t)(line + n - help));
            in = ENTRY;
        } else if (table) {
            if (in != TABLE)
                (void)fputs(".RS\n.nf\n", out);
            put_line(out, line, n);
            in = TABLE;
        } else if (n == blanks) {
            gap = gap || line != text;
            in = PLAIN;
        } else {
            if (gap || (in != PLAIN && blanks == 0))
                (void)fputs(".PP\n", out);
            in = blanks == 0 || in == TABLE ? PLAIN : in;
            gap = false;
            put_line(out, line + blanks, n - blanks);
        }
        gap = gap && in == PLAIN;
        line += n + (line[n] == '\n');
    }
    if (in == TABLE)
        (void)fputs(".fi\n.RE\n", out);
}

/* Kinds have a help of their own: penstock gen rmat --help. */
static const char *const kinds[][2] = {{"gen", "community"}, {"gen", "rmat"}, {"gen", "typed"}};

static void put_command(FILE *out, const struct command *command)
{
    char page[80];
    char *text = command_help(command, NULL);
    (void)snprintf(page, sizeof page, "penstock-%s", command->name);
    put_head(out, page, command->help);
    if (text == NULL) { /* of a command in Python, where Python is missing */
        fprintf(stderr, "warning: penstock %s --help printed nothing: its page has no options\n",
                command->name);
        fprintf(out, ".SH SYNOPSIS\npenstock %s \\-\\-help\n", command->name);
        return;
    }
    const char *body = usage_after_synopsis(text);
    put_synopsis(out, text, body);
    (void)fputs(".SH DESCRIPTION\n", out);
    put_body(out, body);
    free(text);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i][0], command->name) != 0)
            continue;
        if ((text = command_help(command, kinds[i][1])) == NULL)
            continue;
        fprintf(out, ".SH \"PENSTOCK %s %s\"\n", command->name, kinds[i][1]);
        put_body(out, usage_after_synopsis(text));
        free(text);
    }
    (void)fputs(".SH SEE ALSO\n.BR penstock (1)\n", out);
}

/* The page of the command as a whole. */
static void put_main(FILE *out)
{
    size_t n;
    const struct command *table = command_table(&n);
    put_head(out, "penstock", "out-of-core training of graph neural networks and graph embeddings");
    (void)fputs(".SH SYNOPSIS\n.nf\npenstock COMMAND [ARGUMENT]...\n.fi\n.SH DESCRIPTION\n"
                "Runs pipelines of stages that train from SSDs, and makes and inspects their datasets.\n"
                "Each command has a page of its own, and an option \\-\\-help.\n.SH COMMANDS\n",
                out);
    for (size_t i = 0; i < n; i++) {
        if (table[i].help == NULL)
            continue;
        fprintf(out, ".TP\n.BR penstock\\-%s (1)\n", table[i].name);
        put_line(out, table[i].help, strlen(table[i].help));
    }
    (void)fputs(
        ".SH OPTIONS\n.TP\n.B \\-\\-version\nprint the version\n.TP\n.B \\-\\-help\nlist the commands\n",
        out);
}

/* Those that a user may want to set; tools/README.md has all. */
static const char *const variables[][2] = {
    {"PENSTOCK_STAGES", "directories of installed stages, separated by colons; an empty name stands for the "
                        "directory of the installation, which is the default"},
    {"PENSTOCK_PYTHON", "the Python that import, page, compare and experiment start"},
    {"PENSTOCK_CUDA", "the library of CUDA kernels"},
    {"PENSTOCK_CUBLASLT", "the path of NVIDIA's library cuBLASLt"},
    {"PENSTOCK_NCCL", "the path of NVIDIA's library NCCL"},
    {"PENSTOCK_GPU_WAIT_S", "the longest wait for a kernel, in seconds (300)"},
    {"PENSTOCK_CHART_JS", "the file chart.min.js that page writes into its pages"},
    {"NO_COLOR", "if it is set, the output has no colours"},
};

static void put_variables(FILE *out)
{
    (void)fputs(".SH ENVIRONMENT\n", out);
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        fprintf(out, ".TP\n.B %s\n", variables[i][0]);
        put_line(out, variables[i][1], strlen(variables[i][1]));
    }
}

/* ---- files --------------------------------------------------------------------------------------- */

static pst_rc write_page(const char *dir, const struct command *command)
{
    char path[PST_PATH_MAX + 96], *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (out == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory");
    if (command != NULL)
        put_command(out, command);
    if (command == NULL) {
        put_main(out);
        put_variables(out);
    }
    (void)fclose(out);
    (void)snprintf(path, sizeof path, "%s/penstock%s%s.1", dir, command ? "-" : "",
                   command ? command->name : "");
    const pst_rc rc = pst_file_replace(path, text, bytes);
    free(text);
    return rc;
}

int cmd_man(int argc, char **argv)
{
    static const char usage[] =
        "usage: penstock man DIR\n"
        "Writes the manual pages to the directory DIR: penstock.1, and one for each command. They "
        "say what\n--help says. `make install` does this.\n";
    static const struct option options[] = {{"help", no_argument, NULL, 'h'}, {0}};
    struct stat st;
    optind = 1;
    const int c = getopt_long(argc, argv, "h", options, NULL);
    if (c != -1 || optind != argc - 1) {
        fprintf(c == 'h' ? stdout : stderr, "%s", usage);
        return c == 'h' ? 0 : 2;
    }
    const char *dir = argv[optind];
    if (stat(dir, &st) != 0 || !S_ISDIR(st.st_mode))
        return command_result("man", pst_fail(PST_E_ARG, "%s: expected a directory", dir));
    size_t n;
    const struct command *table = command_table(&n);
    pst_rc rc = write_page(dir, NULL);
    for (size_t i = 0; i < n && rc == PST_OK; i++)
        if (table[i].help != NULL)
            rc = write_page(dir, &table[i]);
    return command_result("man", rc);
}
