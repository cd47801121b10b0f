/* hotness_edges.c: moves the window over the edges. */
#include "stages/lib/plan/hotness_edges.h"

#include <inttypes.h>

#include "common/error.h"
#include "common/store/read_ahead.h"
#include "common/store/store.h"

/* Begins to read the window from entry `at` on. */
static void ask(struct pst_hotness_edges *e, int64_t at)
{
    const uint64_t size = (uint64_t)e->entry_bytes, left = (uint64_t)(e->all - at) * size;
    e->asked = at;
    pst_read_ahead_ask(e->reader, e->file->data_at + (uint64_t)at * size,
                       left < e->window_bytes ? left : e->window_bytes);
}

/* Waits for the window that was asked for, and uses it. */
static pst_rc take(struct pst_hotness_edges *e)
{
    const char *entries;
    uint64_t bytes;
    const pst_rc rc = pst_read_ahead_take(e->reader, &entries, &bytes);
    if (rc == PST_OK) {
        e->entries = entries;
        e->first = e->asked;
        e->end = e->first + (int64_t)(bytes / (uint64_t)e->entry_bytes);
    }
    e->asked = -1;
    return rc == PST_OK ? rc : pst_wrap(rc, "the edges");
}

pst_rc pst_hotness_edges_move(struct pst_hotness_edges *e, int64_t at)
{
    const int64_t entries = (int64_t)(e->window_bytes / (uint64_t)e->entry_bytes);
    const bool other = e->asked >= 0 && (at < e->asked || at >= e->asked + entries);
    pst_rc rc = other ? take(e) : PST_OK;
    if (rc == PST_OK && e->asked < 0)
        ask(e, at);
    if (rc == PST_OK)
        rc = take(e);
    if (rc != PST_OK)
        return rc;
    if (at >= e->end)
        return pst_fail(PST_E_IO,
                        "%s ends before edge %" PRId64 " of %" PRId64
                        ": the file became shorter while it was being read",
                        e->file->path, at, e->all);
    if (e->end < e->all)
        ask(e, e->end);
    return PST_OK;
}

pst_rc pst_hotness_edges_open(struct pst_hotness_edges *e, const struct pst_csc *graph,
                              const struct pst_array *file, uint64_t window_bytes)
{
    *e = (struct pst_hotness_edges){.file = file, .entry_bytes = graph->index_bytes, .all = graph->edges};
    if (file == NULL) {
        e->entries = graph->indices;
        e->end = e->all;
        return PST_OK;
    }
    e->asked = -1;
    e->window_bytes = pst_align_up(window_bytes, PST_PAGE);
    return pst_read_ahead_open(&e->reader, file->path, e->window_bytes);
}

void pst_hotness_edges_close(struct pst_hotness_edges *e)
{
    pst_read_ahead_close(e->reader);
    *e = (struct pst_hotness_edges){0};
}
