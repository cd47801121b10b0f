/* tpc_profile.h: what `penstock tpc` knows of a run: its verdict, and how many rows a cache of another size
 * would have. Owner: the caller; tpc_profile_release frees the caches' hits. Threads: one. */
#ifndef PST_TPC_PROFILE_H
#define PST_TPC_PROFILE_H

#include "common/base.h"
#include "common/tpc/search.h"

struct tpc_profile {
    char run_dir[PST_PATH_MAX];
    struct pst_tpc_profile model; /* without the GPU */
    char ssd_name[PST_NAME_MAX];  /* the preset of emulated drives; "": not known */
    int64_t batches;
    char pcie_unknown[256]; /* why there is no Th_pcie; "": there is one */
    /* caches: rows are `row_bytes` long; share_of[i]: of all look-ups, those of the i + 1 hottest rows */
    int64_t rows, row_bytes, cached;
    double lookups; /* of a batch */
    double missed;  /* of a batch: rows that no cache had; NAN: the report does not say */
    double *share_of;
    char shares_unknown[256]; /* why share_of is NULL */
};

/* Reads DIR/report.json and DIR/plan. PST_E_FORMAT, PST_E_STATE: the message says what is missing, and why.
 */
PST_MUST_USE pst_rc tpc_profile_read(struct tpc_profile *p, const char *dir);
void tpc_profile_release(struct tpc_profile *p);

/* The rows of a batch that a cache of the hottest `cached` rows would not have: what was measured for the
 * run's own cache; else by the hotness, so share_of must not be NULL. */
double tpc_profile_missed(const struct tpc_profile *p, int64_t cached);

/* The model with a cache of the hottest `cached` rows instead. Only if share_of is not NULL. */
struct pst_tpc_profile tpc_profile_with_cache(const struct tpc_profile *p, int64_t cached);

#endif
