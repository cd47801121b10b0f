/* caps_foreign.c: descriptions as JSON: what `penstock stages --json` prints and what a foreign stage
 * answers to --describe. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/util/subprocess.h"
#include "common/pipeline/caps_impl.h"

#define DESCRIBE_DEADLINE_MS 10000 /* a Python interpreter on a cold disk */
#define DESCRIBE_MAX_BYTES (1u << 18)

/* ---- JSON descriptions --------------------------------------------------------------------------- */

static const struct {
    const char *name;
    unsigned flag;
} flag_names[] = {{"oneshot", PST_PORT_ONESHOT}, {"optional", PST_PORT_OPTIONAL},
                  {"ordered", PST_PORT_ORDERED}, {"writes", PST_PORT_WRITES},
                  {"returns", PST_PORT_RETURNS}, {"aside", PST_PORT_ASIDE}};
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
        (void)json_array_append_new(params, json_pack("{ss ss so* sf sf ss* ss sb}", "name", p->name, "type",
                                                      pst_caps_param_type_name(p->type), "default", def,
                                                      "min", p->min, "max", p->max, "choices", p->choices,
                                                      "help", p->help, "fixed", (int)p->fixed));
    }
    return json_pack("{si ss ss so so}", "abi", (int)desc->abi, "name", desc->name, "help", desc->help,
                     "ports", ports, "params", params);
}

/* Every string of a foreign description lives in `described`, which the caps keep. */
static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

/* A string, or absent. */
static bool text_or_none(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return !value || json_is_string(value);
}

static bool flags_from_json(const json_t *list, unsigned *flags)
{
    size_t i;
    json_t *flag;
    if (list && !json_is_array(list))
        return false;
    json_array_foreach(list, i, flag)
    {
        size_t f = 0;
        while (f < FLAG_NAMES &&
               (!json_is_string(flag) || strcmp(json_string_value(flag), flag_names[f].name) != 0))
            f++;
        if (f == FLAG_NAMES)
            return false;
        *flags |= flag_names[f].flag;
    }
    return true;
}

/* False: a member has a type or value that makes no sense. */
static bool port_from_json(struct pst_port_desc *port, const json_t *j)
{
    static const char *const texts[] = {"dtype", "memory", "forwards", "hold_param", "splits_if", "whole_if"};
    const char *dir = text_of(j, "dir");
    const json_t *rank = json_object_get(j, "rank"), *hold = json_object_get(j, "hold");
    json_int_t slots = json_integer_value(hold), dims = rank ? json_integer_value(rank) : -1;
    bool ok = dir && (strcmp(dir, "in") == 0 || strcmp(dir, "out") == 0);
    ok = ok && (!rank || json_is_integer(rank)) && dims >= -1 && dims <= PST_CAPS_RANK_MAX;
    ok = ok && (!hold || json_is_integer(hold)) && slots >= 0 && slots <= PST_SLOTS_MAX;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        ok = ok && text_or_none(j, texts[i]);
    if (!ok)
        return false;
    *port = (struct pst_port_desc){
        .name = text_of(j, "name"),
        .dir = strcmp(dir, "out") == 0 ? PST_OUT : PST_IN,
        .help = text_of(j, "help"),
        .type = text_of(j, "type"),
        .dtype = text_of(j, "dtype") ? text_of(j, "dtype") : "any",
        .rank = (int)dims,
        .memory = text_of(j, "memory") ? text_of(j, "memory") : "cpu",
        .forwards = text_of(j, "forwards"),
        .hold = (int)slots,
        .hold_param = text_of(j, "hold_param"),
        .splits_if = text_of(j, "splits_if"),
        .whole_if = text_of(j, "whole_if"),
    };
    return port->name && flags_from_json(json_object_get(j, "flags"), &port->flags);
}

static bool param_from_json(struct pst_param_desc *param, json_t *j)
{
    const char *type = text_of(j, "type");
    int kind = -1;
    for (int t = PST_PARAM_BOOL; t <= PST_PARAM_INTS; t++)
        if (type && strcmp(type, pst_caps_param_type_name((enum pst_param_type)t)) == 0)
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
        .fixed = json_is_true(json_object_get(j, "fixed")),
    };
    return kind != PST_PARAM_ENUM || param->choices;
}

static pst_rc desc_from_json(struct pst_caps *caps, json_t *j)
{
    json_t *ports = json_object_get(j, "ports"), *params = json_object_get(j, "params");
    if (!json_is_object(j) || (ports && !json_is_array(ports)) || (params && !json_is_array(params)))
        return pst_fail(PST_E_FORMAT, "%s --describe: expected an object with lists of ports and params",
                        caps->file);
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
        if (!port_from_json(&p[i], json_array_get(ports, i)))
            return pst_fail(PST_E_FORMAT, "%s --describe: ports[%zu]: name, dir, rank, flags or hold are bad",
                            caps->file, i);
    }
    for (size_t i = 0; i < nparams; i++)
        if (!param_from_json(&q[i], json_array_get(params, i)) || !q[i].name)
            return pst_fail(PST_E_FORMAT, "%s --describe: params[%zu]: name, type or choices are missing",
                            caps->file, i);
    return pst_caps_check(desc, caps->file);
}

/* ---- foreign stages ------------------------------------------------------------------------------ */

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

static pst_rc describe(struct pst_caps *caps)
{
    char *text = malloc(DESCRIBE_MAX_BYTES);
    size_t len = 0;
    if (!text)
        return pst_fail(PST_E_NOMEM, "out of memory");
    json_error_t error;
    pst_rc rc =
        pst_subprocess_read(caps->file, "--describe", DESCRIBE_DEADLINE_MS, text, DESCRIBE_MAX_BYTES, &len);
    if (rc == PST_OK && !(caps->described = json_loadb(text, len, 0, &error)))
        rc = pst_fail(PST_E_FORMAT, "%s --describe: not JSON: line %d: %s", caps->file, error.line,
                      error.text);
    free(text);
    return rc;
}

pst_rc pst_caps_load_foreign(struct pst_caps *caps)
{
    struct stat st;
    if (stat(caps->file, &st) != 0)
        return pst_fail_errno("cannot open stage %s", caps->file);
    if (!S_ISREG(st.st_mode))
        return pst_fail(PST_E_ARG, "stage %s is not a file", caps->file);
    char cache[4096], aside[4200];
    cache_path(caps->file, &st, cache);
    caps->foreign = true;
    caps->described = json_load_file(cache, 0, NULL);
    bool cached = caps->described != NULL;
    pst_rc rc = cached ? PST_OK : describe(caps);
    if (rc == PST_OK)
        rc = desc_from_json(caps, caps->described);
    if (rc != PST_OK || cached)
        return rc;
    (void)snprintf(aside, sizeof aside, "%s.%d", cache, (int)getpid());
    if (json_dump_file(caps->described, aside, 0) == 0) /* a cache: doing without it is fine */
        (void)rename(aside, cache);
    return PST_OK;
}
