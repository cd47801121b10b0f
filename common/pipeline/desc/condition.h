/* condition.h: conditions on the parameters of a stage, as descriptions write them (stage.h):
 *
 *     PARAM=VALUE|VALUE and PARAM=VALUE
 *
 * Each clause holds if the parameter has one of the values. The condition holds if every clause does.
 * Threads: any. */
#ifndef PST_CONDITION_H
#define PST_CONDITION_H

#include <jansson.h>

#include "common/stage.h"

/* Is the condition true for these parameters? False if it is NULL or empty, or names a parameter that is not
 * there. */
PST_API_TEST bool pst_condition_holds(const char *condition, const json_t *params);

/* Copies the first clause that is false to `clause`. Returns false if there is none. */
bool pst_condition_missed(const char *condition, const json_t *params, char *clause, size_t bytes);

/* Reads the clause at *at: the parameter, and its values as in "VALUE|VALUE". Moves *at to the next one.
 * False: there is none. */
#define PST_CONDITION_VALUES_MAX 256
bool pst_condition_next(const char **at, char name[PST_NAME_MAX], char values[PST_CONDITION_VALUES_MAX]);

/* Checks a condition against the description of its stage. False, with the reason in why, if it is malformed
 * or can never be true. */
bool pst_condition_check(const char *condition, const struct pst_stage_desc *desc, char why[200]);

#endif
