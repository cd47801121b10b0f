#include "common/pipeline/caps.h"

#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/pipeline/builtin.h"
#include "common/pipeline/caps_impl.h"
#include "common/util/install.h"

/* ---- what is installed --------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

pst_rc pst_caps_list(char ***names, size_t *n)
{
    *names = NULL;
    *n = 0;
    char dir[4096];
    pst_rc rc = pst_install_stage_dir(dir);
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

bool pst_caps_port_forwards(const struct pst_port_desc *out, const char *in)
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
        const struct pst_param_desc *held = port->hold_param ? pst_desc_param(desc, port->hold_param) : NULL;
        if (port->hold_param && (!held || held->type != PST_PARAM_INT))
            return pst_fail(PST_E_FORMAT,
                            "%s: port %s keeps as many slots as parameter %s says, which is none", file,
                            port->name, port->hold_param);
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

pst_rc pst_caps_check(const struct pst_stage_desc *desc, const char *file)
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
        if (param->type < PST_PARAM_BOOL || param->type > PST_PARAM_INTS ||
            (param->type == PST_PARAM_ENUM && !param->choices))
            return pst_fail(PST_E_FORMAT, "%s: parameter %s: bad type, or no choices", file, param->name);
        if (!param->def)
            continue;
        json_t *def = json_loads(param->def, JSON_DECODE_ANY, NULL), *normal = NULL;
        bool ok = def && pst_caps_param_normal(param, def, &normal, why);
        json_decref(def);
        json_decref(normal);
        if (!ok)
            return pst_fail(PST_E_FORMAT, "%s: the default of parameter %s is not valid", file, param->name);
    }
    return check_ports(desc, file);
}

const char *pst_caps_param_type_name(enum pst_param_type type)
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
                       pst_caps_param_type_name(desc->type), desc->min, desc->max, value);
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
                       json_is_string(value) ? json_string_value(value)
                                             : pst_caps_param_type_name(desc->type));
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

bool pst_caps_param_normal(const struct pst_param_desc *desc, const json_t *value, json_t **out,
                           char why[256])
{
    const char *type = pst_caps_param_type_name(desc->type);
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

/* ---- loading ------------------------------------------------------------------------------------- */

/* The dynamic loader maps what the program headers say and trusts that the file is as long: with a file that
 * was cut off it would die of SIGBUS. */
static pst_rc check_elf(const char *file)
{
    Elf64_Ehdr eh = {0};
    Elf64_Phdr ph = {0};
    struct stat st;
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return pst_fail_errno("cannot open stage %s", file);
    pst_rc rc = PST_OK;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || pread(fd, &eh, sizeof eh, 0) != (ssize_t)sizeof eh ||
        memcmp(eh.e_ident, ELFMAG, SELFMAG) != 0 || eh.e_ident[EI_CLASS] != ELFCLASS64 ||
        eh.e_type != ET_DYN || eh.e_phentsize != sizeof ph)
        rc = pst_fail(PST_E_FORMAT, "%s: not a shared object", file);
    for (int i = 0; rc == PST_OK && i < eh.e_phnum; i++)
        if (eh.e_phoff > INT64_MAX / 2 ||
            pread(fd, &ph, sizeof ph, (off_t)(eh.e_phoff + (uint64_t)i * sizeof ph)) != (ssize_t)sizeof ph ||
            ph.p_offset > (uint64_t)st.st_size ||
            (ph.p_type == PT_LOAD && ph.p_filesz > (uint64_t)st.st_size - ph.p_offset))
            rc = pst_fail(PST_E_FORMAT, "%s: a shared object that was cut off: its file has only %lld bytes",
                          file, (long long)st.st_size);
    (void)close(fd);
    return rc;
}

static pst_rc load_native(struct pst_caps *caps)
{
    pst_rc rc = check_elf(caps->file);
    if (rc != PST_OK)
        return rc;
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
    return pst_caps_check(d, caps->file);
}

static pst_rc find_file(struct pst_caps *caps, const char *base_dir, char out[4096])
{
    if (!strchr(caps->run, '/')) {
        pst_rc rc = pst_install_stage_dir(out);
        if (rc != PST_OK)
            return rc;
        size_t n = strlen(out);
        (void)snprintf(out + n, 4096 - n, "/%s.so", caps->run);
        return PST_OK;
    }
    (void)snprintf(out, 4096, "%s", caps->run);
    if (access(out, F_OK) == 0 || caps->run[0] == '/' || !base_dir || strcmp(base_dir, ".") == 0)
        return PST_OK;
    const char *name = caps->run;
    while (strncmp(name, "./", 2) == 0)
        name += 2;
    (void)snprintf(out, 4096, "%s/%s", base_dir, name);
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
    return pst_caps_load_foreign(caps);
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
