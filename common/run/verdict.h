/* verdict.h: what bounds a run's batches: the report's section `verdict`, made of what stages counted, by the
 * model of common/tpc. README.md lists the fields. Owner: the caller. Threads: one. */
#ifndef PST_VERDICT_H
#define PST_VERDICT_H

#include <jansson.h>
#include <stdio.h>

#include "common/base.h"

/* The section for a report whose stages have reported. A value that was not measured is null, and `why` says
 * the reason. The caller releases it. */
PST_MUST_USE json_t *pst_verdict_of(const json_t *report);

/* Prints it as two lines of the report's table. */
void pst_verdict_print(const json_t *verdict, FILE *out);

#endif
