/* gate.c: how many accesses keep the drives busy, and whether they are together. */
#include "stages/lib/accumulate/gate.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"

#define ITERATIONS_MAX 4096 /* more than a route has slots */

static double busy_accesses(const struct pst_burst *b)
{
    return b->iop_peak * b->ssds * b->overhead_s;
}

double pst_burst_accesses(const struct pst_burst *b, double share)
{
    assert(share > 0 && share < 1);
    return share / (1 - share) * busy_accesses(b);
}

double pst_burst_share(const struct pst_burst *b, double accesses)
{
    return accesses > 0 ? accesses / (accesses + busy_accesses(b)) : 0;
}

bool pst_burst_fit(struct pst_burst *b, double few, double few_s, double many, double many_s)
{
    if (!(many > few && many_s > few_s))
        return false;
    const double peak = (many - few) / (many_s - few_s), overhead_s = few_s - few / peak;
    b->iop_peak = peak / b->ssds;
    b->overhead_s = overhead_s > 0 ? overhead_s : 0;
    return true;
}

bool pst_gate_opens(const struct pst_gate *g, bool full)
{
    if (g->waiting == 0)
        return false;
    switch (g->kind) {
    case PST_GATE_NONE: return true;
    case PST_GATE_OFF: return g->flying == 0;
    case PST_GATE_ITERATIONS: return full || g->flying + g->waiting >= g->want;
    case PST_GATE_ACCESSES: return full || g->flying_accesses + g->waiting_accesses >= g->want;
    }
    return true;
}

pst_rc pst_gate_parse(struct pst_gate *g, const char *text, bool *automatic)
{
    char *end = NULL;
    errno = 0;
    const long n = strtol(text, &end, 10);
    const bool number = *text >= '0' && *text <= '9' && *end == '\0' && errno == 0;
    *automatic = strcmp(text, "auto") == 0;
    *g = (struct pst_gate){.kind = strcmp(text, "none") == 0  ? PST_GATE_NONE
                                   : strcmp(text, "off") == 0 ? PST_GATE_OFF
                                   : *automatic               ? PST_GATE_ACCESSES
                                                              : PST_GATE_ITERATIONS};
    if (g->kind != PST_GATE_ITERATIONS)
        return PST_OK;
    if (!number || n < 1 || n > ITERATIONS_MAX)
        return pst_fail(
            PST_E_ARG,
            "accumulate is \"%s\"; expected \"none\", \"off\", \"auto\", or a number of iterations from "
            "1 to %d",
            text, ITERATIONS_MAX);
    g->want = (uint64_t)n;
    return PST_OK;
}
