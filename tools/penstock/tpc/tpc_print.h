/* tpc_print.h: what `penstock tpc` prints, as text or as JSON. Owner: the caller. Threads: one. */
#ifndef PST_TPC_PRINT_H
#define PST_TPC_PRINT_H

#include <stdio.h>

#include "tools/penstock/tpc/tpc_profile.h"

struct tpc_answer {
    const struct pst_tpc_prices *prices;
    const struct tpc_profile *profile;
    struct pst_tpc_limits limits;
    struct pst_tpc_option now;
    struct pst_tpc_option more; /* the best number of today's SSDs, with today's GPU; set if found_more */
    struct pst_tpc_option best; /* of all parts; set if found */
    bool found_more, found;
};

void tpc_print_text(const struct tpc_answer *answer, FILE *out);
void tpc_print_json(const struct tpc_answer *answer, FILE *out);

/* The systems that the prices name, and what each costs. */
void tpc_print_systems(const struct pst_tpc_prices *prices, FILE *out);

#endif
