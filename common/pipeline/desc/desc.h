/* desc.h: descriptions of stages (struct pst_stage_desc): looking things up in them, checking them, and
 * checking values of parameters. Threads: any. */
#ifndef PST_DESC_H
#define PST_DESC_H

#include <jansson.h>

#include "common/stage.h"

#define PST_DESC_RANK_MAX 8  /* dimensions of a port: more than any tensor here has */
#define PST_DESC_WHY_MAX 256 /* bytes of a reason */
#define PST_DESC_CONDITION_MAX 512
#define PST_DESC_DEVICE "device" /* in choice_if: not a parameter, but where the stage runs */

/* ---- looking up ------------------------------------------------------------------------------ */

int pst_desc_port(const struct pst_stage_desc *desc, const char *name); /* its index; -1: there is none */
PST_API int pst_desc_ports(const struct pst_stage_desc *desc);
const struct pst_param_desc *pst_desc_param(const struct pst_stage_desc *desc, const char *name);
/* Does this output forward the slots of the input `in`? */
PST_API_TEST bool pst_desc_forwards(const struct pst_port_desc *out, const char *in);
/* Is `word` in a list that this character separates? The list may be NULL. */
bool pst_desc_list_has(const char *list, char separator, const char *word);
/* Copies the first word of a list to `word` and returns what follows it; NULL when the list is empty or NULL.
 */
PST_API const char *pst_desc_list_next(const char *list, char separator, char word[PST_NAME_MAX]);

/* Copies choice `index` of an ENUM parameter to `word`. False: there is none. */
bool pst_desc_choice(const struct pst_param_desc *param, int index, char word[PST_NAME_MAX]);
/* Reads the part of choice_if at *at, which begins as choice_if: the choice, and the condition, as long as a
 * PST_DESC_CONDITION_MAX - 1. Moves *at to the next part. False: there is none, or it is malformed, or it
 * names none of the choices. */
bool pst_desc_choice_if(const struct pst_param_desc *param, const char **at, char choice[PST_NAME_MAX],
                        char condition[PST_DESC_CONDITION_MAX]);

/* "STAGE needs what `equals` of a parameter says" in parts: the input, the other parameter, and whether the
 * number of its elements is meant. mine and theirs, unless empty: the parameters need not be equal, but if
 * one of them has this value, so must the other. False: malformed. */
struct pst_desc_equals {
    char port[PST_NAME_MAX], param[PST_NAME_MAX], mine[PST_NAME_MAX], theirs[PST_NAME_MAX];
    bool count;
};
bool pst_desc_equals(const struct pst_param_desc *param, struct pst_desc_equals *equals);

/* `at_most` of a parameter in parts: it is at most `whole` less `part`. If the
 * condition `unless` is true, it may have any value; empty: there is none. False: malformed. */
struct pst_desc_at_most {
    char whole[PST_NAME_MAX], part[PST_NAME_MAX], unless[PST_DESC_CONDITION_MAX];
};
bool pst_desc_at_most(const struct pst_param_desc *param, struct pst_desc_at_most *most);

/* ---- checking -------------------------------------------------------------------------------- */

/* Can Penstock use this description? The error names `file`. */
PST_API_TEST PST_MUST_USE pst_rc pst_desc_check(const struct pst_stage_desc *desc, const char *file);

bool pst_desc_is_auto(const json_t *value); /* the word "auto" */

/* Checks a value of a parameter. If it is valid, *out (a new reference) is the value in its normal form: a
 * size becomes a number. Else the result is false, and why says what was expected and what was found. */
PST_API_TEST bool pst_desc_value(const struct pst_param_desc *param, const json_t *value, json_t **out,
                                 char why[PST_DESC_WHY_MAX]);

/* Stores the values of parameters, in their normal form, in the state of a stage (struct pst_param_desc,
 * into). Strings live in `params`. */
PST_API_TEST void pst_desc_bind(const struct pst_stage_desc *desc, const json_t *params, void *state);

/* "int", "bytes", ...: as descriptions in JSON name the type. */
PST_API const char *pst_desc_type_name(enum pst_param_type type);

/* ---- JSON ------------------------------------------------------------------------------------ */

/* The description as JSON (a new reference; NULL: out of memory). */
PST_API json_t *pst_desc_json(const struct pst_stage_desc *desc);

/* The description that JSON gives, checked. Its strings live in `json`, which must outlive it and which it
 * adds to. The caller frees it with pst_desc_free. The error names `file`. */
PST_MUST_USE pst_rc pst_desc_from_json(const struct pst_stage_desc **out, json_t *json, const char *file);
void pst_desc_free(const struct pst_stage_desc *desc); /* NULL: does nothing */

#endif
