/* bind.c: values of parameters go to the state of a stage. */
#include <string.h>

#include "common/pipeline/desc/desc.h"
#include "common/pipeline/desc/desc_impl.h"

/* By enum pst_into_kind. */
static const size_t kind_bytes[] = {
    0,
    sizeof(bool),
    sizeof(int32_t),
    sizeof(uint32_t),
    sizeof(int64_t),
    sizeof(uint64_t),
    sizeof(double),
    sizeof(const char *),
    sizeof(struct pst_ints),
    sizeof(struct pst_named_ints),
};

/* ---- checking ------------------------------------------------------------------------------------ */

/* Are the limits of a number such that all of its values fit? */
static bool limits_fit(const struct pst_param_desc *param)
{
    switch (param->into.kind) {
    case PST_INTO_I32: return param->min >= INT32_MIN && param->max <= INT32_MAX && param->min < param->max;
    case PST_INTO_U32: return param->min >= 0 && param->max <= UINT32_MAX && param->min < param->max;
    case PST_INTO_U64: return param->min >= 0 && (param->type == PST_PARAM_BYTES || param->max > 0);
    default: return param->into.kind == PST_INTO_I64;
    }
}

static int count_choices(const char *choices)
{
    char word[PST_NAME_MAX];
    int n = 0;
    for (const char *at = choices; (at = pst_desc_list_next(at, '|', word));)
        n++;
    return n;
}

static bool kind_fits(const struct pst_param_desc *param)
{
    const enum pst_into_kind kind = param->into.kind;
    switch (param->type) {
    case PST_PARAM_BOOL: return kind == PST_INTO_BOOL;
    case PST_PARAM_INT:
    case PST_PARAM_BYTES: return limits_fit(param);
    case PST_PARAM_REAL: return kind == PST_INTO_F64;
    case PST_PARAM_STRING: return kind == PST_INTO_TEXT;
    case PST_PARAM_ENUM:
        return kind == PST_INTO_TEXT || kind == PST_INTO_I32 || kind == PST_INTO_U32 ||
               (kind == PST_INTO_BOOL && count_choices(param->choices) == 2);
    case PST_PARAM_INTS:
        return kind == PST_INTO_INTS && param->count_max >= 1 && param->count_max <= PST_INTS_MAX;
    case PST_PARAM_NAMED_INTS:
        return kind == PST_INTO_NAMED_INTS && param->count_max >= 1 && param->count_max <= PST_INTS_MAX;
    }
    return false;
}

pst_rc pst_desc_check_into(const struct pst_stage_desc *desc, const char *file,
                           const struct pst_param_desc *param)
{
    const struct pst_into *into = &param->into;
    if (into->kind == PST_INTO_NOTHING)
        return PST_OK;
    if ((unsigned)into->kind > PST_INTO_NAMED_INTS || !kind_fits(param))
        return pst_fail(PST_E_FORMAT,
                        "%s: parameter %s: the struct member that stores this parameter has another type, or "
                        "is too small for the parameter's range",
                        file, param->name);
    if (into->at > desc->state_bytes || kind_bytes[into->kind] > desc->state_bytes - into->at)
        return pst_fail(PST_E_FORMAT,
                        "%s: parameter %s would be stored outside the stage's state, which has %zu bytes",
                        file, param->name, desc->state_bytes);
    return PST_OK;
}

/* ---- storing ------------------------------------------------------------------------------------- */

/* The number of a choice in "a|b|c". */
static int64_t choice_of(const char *choices, const char *value)
{
    char word[PST_NAME_MAX];
    int64_t n = 0;
    for (const char *at = choices; (at = pst_desc_list_next(at, '|', word)) && strcmp(word, value) != 0;)
        n++;
    return n;
}

static int64_t number_of(const struct pst_param_desc *param, const json_t *value)
{
    if (param->automatic && pst_desc_is_auto(value))
        return PST_AUTO;
    return param->type == PST_PARAM_ENUM ? choice_of(param->choices, json_string_value(value))
                                         : json_integer_value(value);
}

static struct pst_ints ints_of(const json_t *list)
{
    struct pst_ints ints = {.count = json_array_size(list)};
    for (size_t i = 0; i < ints.count; i++)
        ints.value[i] = json_integer_value(json_array_get(list, i));
    return ints;
}

/* Is the number larger, where a negative one is the largest? */
static bool is_larger(int64_t a, int64_t b)
{
    return b >= 0 && (a < 0 || a > b);
}

static void store_named(struct pst_named_ints *to, const json_t *value)
{
    const char *name;
    json_t *list;
    memset(to, 0, sizeof *to);
    if (json_is_array(value)) {
        to->all = ints_of(value);
        return;
    }
    json_object_foreach((json_t *)(uintptr_t)value, name, list)
    {
        const struct pst_ints ints = ints_of(list);
        for (size_t i = 0; i < ints.count; i++)
            if (to->names == 0 || is_larger(ints.value[i], to->all.value[i]))
                to->all.value[i] = ints.value[i];
        to->all.count = ints.count;
        memcpy(to->value[to->names], ints.value, sizeof ints.value);
        to->name[to->names++] = name;
    }
}

static void store(const struct pst_param_desc *param, const json_t *value, void *to)
{
    switch (param->into.kind) {
    case PST_INTO_BOOL:
        *(bool *)to = json_is_string(value) ? number_of(param, value) != 0 : json_is_true(value);
        break;
    case PST_INTO_I32: *(int32_t *)to = (int32_t)number_of(param, value); break;
    case PST_INTO_U32: *(uint32_t *)to = (uint32_t)number_of(param, value); break;
    case PST_INTO_I64: *(int64_t *)to = number_of(param, value); break;
    case PST_INTO_U64: *(uint64_t *)to = (uint64_t)number_of(param, value); break;
    case PST_INTO_F64: *(double *)to = json_number_value(value); break;
    case PST_INTO_TEXT: *(const char **)to = json_string_value(value); break;
    case PST_INTO_INTS: *(struct pst_ints *)to = ints_of(value); break;
    case PST_INTO_NAMED_INTS: store_named(to, value); break;
    case PST_INTO_NOTHING: break;
    }
}

void pst_desc_bind(const struct pst_stage_desc *desc, const json_t *params, void *state)
{
    for (const struct pst_param_desc *p = desc->params; p && p->name; p++)
        if (p->into.kind != PST_INTO_NOTHING)
            store(p, json_object_get(params, p->name), (char *)state + p->into.at);
}
