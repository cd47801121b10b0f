#include "caps.h"

#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "builtin.h"

#define DESCRIBE_DEADLINE_MS 10000 /* a Python interpreter on a cold disk */
#define DESCRIBE_MAX_BYTES (1u << 18)

/* ---- where things are --------------------------------------------------------------------------- */

pst_rc pst_program_path(const char *name, char out[4096])
{
    char self[4096];
    const char *dir = getenv("PENSTOCK_BIN");
    if (dir) {
        (void)snprintf(self, sizeof self, "%s/x", dir);
    } else {
        ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
        if (n < 0)
            return pst_fail_errno("cannot read /proc/self/exe");
        self[n] = '\0';
    }
    char *slash = strrchr(self, '/');
    if (slash)
        *slash = '\0';
    if (snprintf(out, 4096, "%s/%s", self, name) >= 4096)
        return pst_fail(PST_E_LIMIT, "the path of the program directory is too long: %s", self);
    return PST_OK;
}

pst_rc pst_stage_dir(char out[4096])
{
    const char *dir = getenv("PENSTOCK_STAGES");
    if (dir) {
        if (snprintf(out, 4096, "%s", dir) >= 4096)
            return pst_fail(PST_E_LIMIT, "PENSTOCK_STAGES is too long");
        return PST_OK;
    }
    return pst_program_path("../lib/penstock/stages", out);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

pst_rc pst_caps_list(char ***names, size_t *n)
{
    *names = NULL;
    *n = 0;
    char dir[4096];
    pst_rc rc = pst_stage_dir(dir);
    if (rc != PST_OK)
        return rc;
    DIR *d = opendir(dir);
    if (!d)
        return pst_fail_errno("cannot list the installed stages in %s", dir);
    char **list = calloc(PST_STAGES_MAX * 4, sizeof *list);
    for (struct dirent *e; list && *n < (size_t)PST_STAGES_MAX * 4 && (e = readdir(d));) {
        size_t len = strlen(e->d_name);
        if (len > 3 && strcmp(e->d_name + len - 3, ".so") == 0) {
            char *name = strndup(e->d_name, len - 3);
            if (name)
                list[(*n)++] = name;
        }
    }
    (void)closedir(d);
    if (!list)
        return pst_fail(PST_E_NOMEM, "out of memory");
    qsort(list, *n, sizeof *list, by_name);
    *names = list;
    return PST_OK;
}

/* ---- descriptions -------------------------------------------------------------------------------- */

int pst_desc_ports(const struct pst_stage_desc *desc)
{
    int n = 0;
    while (desc->ports && desc->ports[n].name)
        n++;
    return n;
}

int pst_desc_port(const struct pst_stage_desc *desc, const char *name)
{
    for (int i = 0; desc->ports && desc->ports[i].name; i++)
        if (strcmp(desc->ports[i].name, name) == 0)
            return i;
    return -1;
}

const struct pst_param_desc *pst_desc_param(const struct pst_stage_desc *desc, const char *name)
{
    for (int i = 0; desc->params && desc->params[i].name; i++)
        if (strcmp(desc->params[i].name, name) == 0)
            return &desc->params[i];
    return NULL;
}

bool pst_port_forwards(const struct pst_port_desc *out, const char *in)
{
    size_t len = strlen(in);
    for (const char *at = out->forwards; at && *at;) {
        size_t part = strcspn(at, ",");
        if (part == len && strncmp(at, in, len) == 0)
            return true;
        at += part + (at[part] == ',');
    }
    return false;
}

static bool good_name(const char *name)
{
    size_t n = name ? strlen(name) : 0;
    if (n == 0 || n >= PST_NAME_MAX)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)name[i]) && name[i] != '_' && name[i] != '-')
            return false;
    return true;
}

static pst_rc check_ports(const struct pst_stage_desc *desc, const char *file)
{
    int n = pst_desc_ports(desc);
    if (n > PST_PORTS_MAX)
        return pst_fail(PST_E_LIMIT, "%s: %d ports, at most %d are allowed", file, n, PST_PORTS_MAX);
    for (int i = 0; i < n; i++) {
        const struct pst_port_desc *port = &desc->ports[i];
        if (!good_name(port->name) || pst_desc_port(desc, port->name) != i)
            return pst_fail(PST_E_FORMAT, "%s: port %d has a bad or repeated name", file, i);
        if (!port->type || !port->help || !port->memory)
            return pst_fail(PST_E_FORMAT, "%s: port %s needs type, memory and help", file, port->name);
        if (port->forwards && port->dir == PST_IN)
            return pst_fail(PST_E_FORMAT, "%s: input %s cannot forward", file, port->name);
        for (const char *at = port->forwards; at && *at;) {
            size_t part = strcspn(at, ",");
            char in[PST_NAME_MAX];
            (void)snprintf(in, sizeof in, "%.*s", (int)part, at);
            int k = pst_desc_port(desc, in);
            if (k < 0 || desc->ports[k].dir != PST_IN)
                return pst_fail(PST_E_FORMAT, "%s: output %s forwards %s, which is no input", file,
                                port->name, in);
            at += part + (at[part] == ',');
        }
    }
    return PST_OK;
}

static pst_rc check_desc(const struct pst_stage_desc *desc, const char *file)
{
    if (desc->abi != PST_STAGE_ABI)
        return pst_fail(PST_E_UNSUPPORTED, "%s: built for stage interface %u, this is %d: rebuild it", file,
                        desc->abi, PST_STAGE_ABI);
    if (!good_name(desc->name) || !desc->help)
        return pst_fail(PST_E_FORMAT, "%s: its description needs a name and help", file);
    for (int i = 0; desc->params && desc->params[i].name; i++) {
        const struct pst_param_desc *param = &desc->params[i];
        char why[256];
        if (i >= PST_PARAMS_MAX)
            return pst_fail(PST_E_LIMIT, "%s: more than %d parameters", file, PST_PARAMS_MAX);
        if (!good_name(param->name) || pst_desc_param(desc, param->name) != param || !param->help)
            return pst_fail(PST_E_FORMAT, "%s: parameter %d: bad or repeated name, or no help", file, i);
        if (!param->def)
            continue;
        json_t *def = json_loads(param->def, JSON_DECODE_ANY, NULL), *normal = NULL;
        bool ok = def && pst_param_normal(param, def, &normal, why);
        json_decref(def);
        json_decref(normal);
        if (!ok)
            return pst_fail(PST_E_FORMAT, "%s: the default of parameter %s is not valid", file, param->name);
    }
    return check_ports(desc, file);
}

const char *pst_param_type_name(enum pst_param_type type)
{
    static const char *const names[] = {"bool", "int", "real", "string", "enum", "bytes", "ints"};
    return names[type];
}

/* ---- values -------------------------------------------------------------------------------------- */

static bool parse_bytes(const char *text, double *out)
{
    static const struct {
        const char *suffix;
        double factor;
    } units[] = {{"", 1},
                 {"B", 1},
                 {"KiB", 1024.0},
                 {"MiB", 1048576.0},
                 {"GiB", 1073741824.0},
                 {"TiB", 1099511627776.0},
                 {"kB", 1e3},
                 {"MB", 1e6},
                 {"GB", 1e9},
                 {"TB", 1e12}};
    char *end;
    errno = 0;
    double value = strtod(text, &end);
    if (end == text || errno || !(value >= 0) || value > 1e18)
        return false;
    while (*end == ' ')
        end++;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strcmp(end, units[i].suffix) == 0) {
            *out = value * units[i].factor;
            return *out <= 9e18;
        }
    return false;
}

static bool in_range(const struct pst_param_desc *desc, double value, char why[256])
{
    bool ranged = desc->min != 0 || desc->max != 0;
    if (!isfinite(value) || (ranged && (value < desc->min || value > desc->max))) {
        (void)snprintf(why, 256, "expected %s from %.15g to %.15g, found %.15g",
                       pst_param_type_name(desc->type), desc->min, desc->max, value);
        return false;
    }
    return true;
}

static bool choice_known(const char *choices, const char *value)
{
    size_t len = strlen(value);
    for (const char *at = choices; at && *at;) {
        size_t part = strcspn(at, "|");
        if (part == len && strncmp(at, value, len) == 0)
            return true;
        at += part + (at[part] == '|');
    }
    return false;
}

static bool normal_bytes(const struct pst_param_desc *desc, const json_t *value, json_t **out, char why[256])
{
    double bytes;
    if (json_is_integer(value))
        bytes = (double)json_integer_value(value);
    else if (!json_is_string(value) || !parse_bytes(json_string_value(value), &bytes)) {
        (void)snprintf(why, 256, "expected a size, as in 4096 or \"64MiB\", found %s",
                       json_is_string(value) ? json_string_value(value) : pst_param_type_name(desc->type));
        return false;
    }
    if (bytes < 0 || !in_range(desc, bytes, why)) {
        if (bytes < 0)
            (void)snprintf(why, 256, "expected a size, found %.15g", bytes);
        return false;
    }
    *out = json_integer((json_int_t)bytes);
    return *out != NULL;
}

static bool normal_ints(const struct pst_param_desc *desc, const json_t *value, char why[256])
{
    if (!json_is_array(value)) {
        (void)snprintf(why, 256, "expected a list of integers, as in [10, 5]");
        return false;
    }
    size_t i;
    json_t *item;
    json_array_foreach(value, i, item)
    {
        if (!json_is_integer(item)) {
            (void)snprintf(why, 256, "element %zu: expected an integer", i);
            return false;
        }
        if (!in_range(desc, (double)json_integer_value(item), why))
            return false;
    }
    return true;
}

bool pst_param_normal(const struct pst_param_desc *desc, const json_t *value, json_t **out, char why[256])
{
    const char *type = pst_param_type_name(desc->type);
    bool ok = false;
    *out = NULL;
    why[0] = '\0';
    switch (desc->type) {
    case PST_PARAM_BOOL: ok = json_is_boolean(value); break;
    case PST_PARAM_INT:
        ok = json_is_integer(value);
        if (ok && !in_range(desc, (double)json_integer_value(value), why))
            return false;
        break;
    case PST_PARAM_REAL:
        ok = json_is_number(value);
        if (ok && !in_range(desc, json_number_value(value), why))
            return false;
        break;
    case PST_PARAM_STRING: ok = json_is_string(value); break;
    case PST_PARAM_ENUM:
        ok = json_is_string(value) && choice_known(desc->choices, json_string_value(value));
        if (!ok) {
            (void)snprintf(why, 256, "expected one of %s, found %s", desc->choices,
                           json_is_string(value) ? json_string_value(value) : "something else");
            return false;
        }
        break;
    case PST_PARAM_BYTES: return normal_bytes(desc, value, out, why);
    case PST_PARAM_INTS:
        if (!normal_ints(desc, value, why))
            return false;
        ok = true;
        break;
    }
    if (!ok) {
        char *text = json_dumps(value, JSON_ENCODE_ANY);
        (void)snprintf(why, 256, "expected %s, found %.100s", type, text ? text : "?");
        free(text);
        return false;
    }
    *out = json_deep_copy(value);
    return *out != NULL;
}

/* ---- JSON descriptions --------------------------------------------------------------------------- */

static const struct {
    const char *name;
    unsigned flag;
} flag_names[] = {{"oneshot", PST_PORT_ONESHOT},
                  {"optional", PST_PORT_OPTIONAL},
                  {"ordered", PST_PORT_ORDERED},
                  {"writes", PST_PORT_WRITES},
                  {"returns", PST_PORT_RETURNS}};
#define FLAG_NAMES (sizeof flag_names / sizeof flag_names[0])

json_t *pst_caps_json(const struct pst_stage_desc *desc)
{
    json_t *ports = json_array(), *params = json_array();
    for (int i = 0; i < pst_desc_ports(desc); i++) {
        const struct pst_port_desc *p = &desc->ports[i];
        json_t *flags = json_array();
        for (size_t f = 0; f < FLAG_NAMES; f++)
            if (p->flags & flag_names[f].flag)
                (void)json_array_append_new(flags, json_string(flag_names[f].name));
        (void)json_array_append_new(
            ports, json_pack("{ss ss ss ss ss* si ss ss* so si ss* ss* ss*}", "name", p->name, "dir",
                             p->dir == PST_IN ? "in" : "out", "help", p->help, "type", p->type, "dtype",
                             p->dtype, "rank", p->rank, "memory", p->memory, "forwards", p->forwards, "flags",
                             flags, "hold", p->hold > 0 ? p->hold : 1, "hold_param", p->hold_param,
                             "splits_if", p->splits_if, "whole_if", p->whole_if));
    }
    for (int i = 0; desc->params && desc->params[i].name; i++) {
        const struct pst_param_desc *p = &desc->params[i];
        json_t *def = p->def ? json_loads(p->def, JSON_DECODE_ANY, NULL) : NULL;
        (void)json_array_append_new(params,
                                    json_pack("{ss ss so* sf sf ss* ss}", "name", p->name, "type",
                                              pst_param_type_name(p->type), "default", def, "min", p->min,
                                              "max", p->max, "choices", p->choices, "help", p->help));
    }
    return json_pack("{si ss ss so so}", "abi", (int)desc->abi, "name", desc->name, "help", desc->help,
                     "ports", ports, "params", params);
}

/* Every string of a foreign description lives in `described`, which the caps keep. */
static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static void port_from_json(struct pst_port_desc *port, const json_t *j)
{
    const char *dir = text_of(j, "dir");
    *port = (struct pst_port_desc){
        .name = text_of(j, "name"),
        .dir = dir && strcmp(dir, "out") == 0 ? PST_OUT : PST_IN,
        .help = text_of(j, "help"),
        .type = text_of(j, "type"),
        .dtype = text_of(j, "dtype") ? text_of(j, "dtype") : "any",
        .rank = json_is_integer(json_object_get(j, "rank"))
                    ? (int)json_integer_value(json_object_get(j, "rank"))
                    : -1,
        .memory = text_of(j, "memory") ? text_of(j, "memory") : "cpu",
        .forwards = text_of(j, "forwards"),
        .hold = (int)json_integer_value(json_object_get(j, "hold")),
        .hold_param = text_of(j, "hold_param"),
        .splits_if = text_of(j, "splits_if"),
        .whole_if = text_of(j, "whole_if"),
    };
    size_t i;
    json_t *flag;
    json_array_foreach(json_object_get(j, "flags"), i,
                       flag) for (size_t f = 0; f < FLAG_NAMES;
                                  f++) if (json_is_string(flag) &&
                                           strcmp(json_string_value(flag), flag_names[f].name) == 0)
        port->flags |= flag_names[f].flag;
}

static bool param_from_json(struct pst_param_desc *param, json_t *j)
{
    const char *type = text_of(j, "type");
    int kind = -1;
    for (int t = PST_PARAM_BOOL; t <= PST_PARAM_INTS; t++)
        if (type && strcmp(type, pst_param_type_name((enum pst_param_type)t)) == 0)
            kind = t;
    if (kind < 0)
        return false;
    json_t *def = json_object_get(j, "default");
    if (def) { /* kept as text beside the description, where its lifetime is that of the caps */
        char *text = json_dumps(def, JSON_ENCODE_ANY);
        (void)json_object_set_new(j, "default_text", text ? json_string(text) : NULL);
        free(text);
    }
    *param = (struct pst_param_desc){
        .name = text_of(j, "name"),
        .type = (enum pst_param_type)kind,
        .def = text_of(j, "default_text"),
        .min = json_number_value(json_object_get(j, "min")),
        .max = json_number_value(json_object_get(j, "max")),
        .choices = text_of(j, "choices"),
        .help = text_of(j, "help"),
    };
    return kind != PST_PARAM_ENUM || param->choices;
}

static pst_rc desc_from_json(struct pst_caps *caps, json_t *j)
{
    json_t *ports = json_object_get(j, "ports"), *params = json_object_get(j, "params");
    size_t nports = json_array_size(ports), nparams = json_array_size(params);
    if (nports > PST_PORTS_MAX || nparams > PST_PARAMS_MAX)
        return pst_fail(PST_E_LIMIT, "%s --describe: too many ports or parameters", caps->file);
    struct pst_stage_desc *desc = calloc(1, sizeof *desc);
    struct pst_port_desc *p = calloc(nports + 1, sizeof *p);
    struct pst_param_desc *q = calloc(nparams + 1, sizeof *q);
    caps->desc = desc;
    if (!desc || !p || !q) {
        free(p);
        free(q);
        return pst_fail(PST_E_NOMEM, "out of memory");
    }
    desc->abi = (uint32_t)json_integer_value(json_object_get(j, "abi"));
    desc->name = text_of(j, "name");
    desc->help = text_of(j, "help");
    desc->ports = p;
    desc->params = q;
    for (size_t i = 0; i < nports; i++) {
        port_from_json(&p[i], json_array_get(ports, i));
        if (!p[i].name)
            return pst_fail(PST_E_FORMAT, "%s --describe: port %zu has no name", caps->file, i);
    }
    for (size_t i = 0; i < nparams; i++)
        if (!param_from_json(&q[i], json_array_get(params, i)) || !q[i].name)
            return pst_fail(PST_E_FORMAT, "%s --describe: parameter %zu: name, type or choices missing",
                            caps->file, i);
    return check_desc(desc, caps->file);
}

/* ---- foreign stages ------------------------------------------------------------------------------ */

static pst_rc read_deadline(int fd, char *text, size_t cap, size_t *len, const char *file)
{
    *len = 0;
    struct timespec t0;
    (void)clock_gettime(CLOCK_MONOTONIC, &t0);
    for (;;) {
        struct timespec t;
        (void)clock_gettime(CLOCK_MONOTONIC, &t);
        int64_t left =
            DESCRIBE_DEADLINE_MS - ((t.tv_sec - t0.tv_sec) * 1000 + (t.tv_nsec - t0.tv_nsec) / 1000000);
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (left <= 0 || poll(&p, 1, (int)left) == 0)
            return pst_fail(PST_E_TIMEOUT, "%s --describe: no answer in %d s", file,
                            DESCRIBE_DEADLINE_MS / 1000);
        ssize_t n = read(fd, text + *len, cap - *len);
        if (n == 0)
            return PST_OK;
        if (n < 0 && errno != EINTR)
            return pst_fail_errno("%s --describe", file);
        *len += n > 0 ? (size_t)n : 0;
        if (*len == cap)
            return pst_fail(PST_E_LIMIT, "%s --describe: more than %zu bytes", file, cap);
    }
}

static pst_rc run_describe(const char *file, char *text, size_t cap, size_t *len)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0)
        return pst_fail_errno("pipe");
    pid_t pid = fork();
    if (pid == 0) {
        (void)dup2(fds[1], STDOUT_FILENO);
        execl(file, file, "--describe", (char *)NULL);
        _exit(127);
    }
    (void)close(fds[1]);
    pst_rc rc = pid < 0 ? pst_fail_errno("fork") : read_deadline(fds[0], text, cap, len, file);
    (void)close(fds[0]);
    if (pid < 0)
        return rc;
    if (rc != PST_OK)
        (void)kill(pid, SIGKILL);
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (rc == PST_OK && (!WIFEXITED(status) || WEXITSTATUS(status) != 0))
        rc = pst_fail(PST_E_PEER, "%s --describe ended with status %d", file,
                      WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
    return rc;
}

static void cache_path(const char *file, const struct stat *st, char out[4096])
{
    char key[4352];
    (void)snprintf(key, sizeof key, "%.4000s %lld %lld.%ld", file, (long long)st->st_size,
                   (long long)st->st_mtim.tv_sec, st->st_mtim.tv_nsec);
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char dir[3000];
    (void)snprintf(dir, sizeof dir, "%.2900s%s",
                   base   ? base
                   : home ? home
                          : "/nonexistent",
                   base ? "" : "/.cache");
    (void)mkdir(dir, 0700);
    (void)snprintf(out, 4096, "%s/penstock", dir);
    (void)mkdir(out, 0700);
    (void)snprintf(out, 4096, "%s/penstock/describe-%016llx.json", dir,
                   (unsigned long long)XXH3_64bits(key, strlen(key)));
}

static pst_rc load_foreign(struct pst_caps *caps)
{
    struct stat st;
    if (stat(caps->file, &st) != 0)
        return pst_fail_errno("cannot open stage %s", caps->file);
    char cache[4096];
    cache_path(caps->file, &st, cache);
    caps->foreign = true;
    caps->described = json_load_file(cache, 0, NULL);
    if (!caps->described) {
        char *text = malloc(DESCRIBE_MAX_BYTES);
        size_t len = 0;
        if (!text)
            return pst_fail(PST_E_NOMEM, "out of memory");
        pst_rc rc = run_describe(caps->file, text, DESCRIBE_MAX_BYTES, &len);
        json_error_t error;
        if (rc == PST_OK)
            caps->described = json_loadb(text, len, 0, &error);
        free(text);
        if (rc != PST_OK)
            return rc;
        if (!caps->described)
            return pst_fail(PST_E_FORMAT, "%s --describe: not JSON: line %d: %s", caps->file, error.line,
                            error.text);
        char aside[4200];
        (void)snprintf(aside, sizeof aside, "%s.%d", cache, (int)getpid());
        if (json_dump_file(caps->described, aside, 0) == 0) /* a cache: doing without it is fine */
            (void)rename(aside, cache);
    }
    return desc_from_json(caps, caps->described);
}

/* ---- loading ------------------------------------------------------------------------------------- */

static pst_rc load_native(struct pst_caps *caps)
{
    /* never closed: libraries that stages pull in (OpenMP) do not survive being unmapped */
    caps->handle = dlopen(caps->file, RTLD_NOW | RTLD_LOCAL);
    if (!caps->handle)
        return pst_fail(PST_E_FORMAT, "cannot load stage: %s", dlerror());
    caps->desc = dlsym(caps->handle, "pst_stage");
    if (!caps->desc)
        return pst_fail(PST_E_FORMAT, "%s: exports no pst_stage, so it is not a stage", caps->file);
    const struct pst_stage_desc *d = caps->desc;
    if (d->abi == PST_STAGE_ABI && !d->on_event)
        return pst_fail(PST_E_FORMAT, "%s: has no on_event", caps->file);
    return check_desc(d, caps->file);
}

static pst_rc find_file(struct pst_caps *caps, const char *base_dir, char out[4096])
{
    if (!strchr(caps->run, '/')) {
        pst_rc rc = pst_stage_dir(out);
        if (rc != PST_OK)
            return rc;
        size_t n = strlen(out);
        (void)snprintf(out + n, 4096 - n, "/%s.so", caps->run);
        return PST_OK;
    }
    (void)snprintf(out, 4096, "%s", caps->run);
    if (access(out, F_OK) != 0 && caps->run[0] != '/' && base_dir)
        (void)snprintf(out, 4096, "%s/%s", base_dir, caps->run);
    return PST_OK;
}

pst_rc pst_caps_load(struct pst_caps *caps, const char *run, const char *base_dir)
{
    memset(caps, 0, sizeof *caps);
    caps->run = strdup(run);
    if (!caps->run)
        return pst_fail(PST_E_NOMEM, "out of memory");
    caps->desc = pst_builtin(run);
    if (caps->desc)
        return PST_OK;
    char file[4096];
    pst_rc rc = find_file(caps, base_dir, file);
    if (rc != PST_OK)
        return rc;
    caps->file = realpath(file, NULL);
    if (!caps->file)
        return strchr(run, '/') ? pst_fail_errno("cannot open stage %s", file)
                                : pst_fail(PST_E_ARG, "no stage of this name is installed");
    size_t len = strlen(caps->file);
    if (len > 3 && strcmp(caps->file + len - 3, ".so") == 0)
        return load_native(caps);
    if (access(caps->file, X_OK) != 0)
        return pst_fail_errno("stage %s is neither a shared object (.so) nor executable", caps->file);
    return load_foreign(caps);
}

void pst_caps_release(struct pst_caps *caps)
{
    if (caps->foreign && caps->desc) {
        free((void *)(uintptr_t)caps->desc->ports);
        free((void *)(uintptr_t)caps->desc->params);
        free((void *)(uintptr_t)caps->desc);
    }
    json_decref(caps->described);
    free(caps->run);
    free(caps->file);
    memset(caps, 0, sizeof *caps);
}
