/* reorder_args.h: the options that `penstock reorder` and `penstock inspect --reorder` share.
 * Owner: reorder_args_release frees what reorder_args_parse made, also after an error. Threads: one. */
#ifndef PST_REORDER_ARGS_H
#define PST_REORDER_ARGS_H

#include "stages/lib/plan/plan.h"
#include "stages/lib/reorder/epoch_reads.h"
#include "stages/lib/reorder/renumber.h"

struct reorder_args {
    const char *dataset, *out; /* out: NULL for inspect */
    bool order[PST_RENUMBER_ORDERS];
    bool pack, force, quiet, json, help;
    struct pst_hoods_spec spec;
    const char *plan_path;
    struct pst_plan plan; /* of plan_path: its settings are in spec, its cached rows here */
    bool planned;
    uint64_t cache_bytes, memory_bytes;
    struct pst_reads_disk disk; /* block 0: that of the features' file system */
};

/* inspect: for `penstock inspect`, else for `penstock reorder`. PST_E_ARG: the message says what is wrong. */
PST_MUST_USE pst_rc reorder_args_parse(struct reorder_args *a, int argc, char **argv, bool inspect);
void reorder_args_release(struct reorder_args *a);

#endif
