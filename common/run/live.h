/* live.h: RUN/live.json, which says where a running pipeline's counters are. The supervisor writes it once
 * there is a board, and `penstock top` reads it. Owner: the caller. Threads: one. */
#ifndef PST_LIVE_H
#define PST_LIVE_H

#include "common/ipc/board.h"
#include "common/ipc/region.h"
#include "common/run/bound.h"

struct pst_live {
    struct pst_region map;
    uint64_t pages_at;
    double bus_bytes_per_s; /* 0: no modelled bus */
    int n;
    char names[PST_STAGES_MAX][PST_NAME_MAX];
    struct pst_run_part parts[PST_STAGES_MAX]; /* without the times */
};

/* names and parts: n instances, in the order of their pages. bus_bytes_per_s: of the run; 0: no bus. */
PST_MUST_USE pst_rc pst_live_write(const char *run_dir, const char *board_path, uint64_t board_bytes,
                                   uint64_t pages_at, const char *const *names,
                                   const struct pst_run_part *parts, int n, double bus_bytes_per_s);
void pst_live_forget(const char *run_dir); /* the run has ended */
/* Maps the board of the run in run_dir. PST_E_STATE: no run is going there, or its memory is gone. */
PST_API PST_MUST_USE pst_rc pst_live_open(struct pst_live *live, const char *run_dir);
PST_API const struct pst_board *pst_live_board(const struct pst_live *live);
PST_API void pst_live_close(struct pst_live *live);
PST_API const struct pst_page *pst_live_page(const struct pst_live *live, int i);

#endif
