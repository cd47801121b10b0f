/* page.c: how an instance books its time, so that a reader in another process sees it whole at any moment. */
#include "common/ipc/page.h"

#include <string.h>

#include "common/util/clock.h"

#define TRIES 1000 /* a writer that was killed while it wrote leaves `turn` odd for ever */

/* A reader that sees one of the release stores below also sees that `turn` is odd. */
static enum pst_page_state book(struct pst_page *page, bool runs, enum pst_page_state state)
{
    const uint64_t now = pst_clock_ns();
    const uint64_t since = atomic_load_explicit(&page->since_ns, memory_order_relaxed);
    const uint32_t turn = atomic_load_explicit(&page->turn, memory_order_relaxed);
    const enum pst_page_state old =
        atomic_load_explicit(&page->state, memory_order_relaxed) % PST_PAGE_STATES;
    atomic_store_explicit(&page->turn, turn + 1, memory_order_relaxed);
    if (since > 0)
        atomic_fetch_add_explicit(&page->spent_ns[old], now - since, memory_order_release);
    atomic_store_explicit(&page->state, state, memory_order_release);
    atomic_store_explicit(&page->since_ns, runs ? now : 0, memory_order_release);
    atomic_store_explicit(&page->turn, turn + 2, memory_order_release);
    return old;
}

enum pst_page_state pst_page_enter(struct pst_page *page, enum pst_page_state state)
{
    return book(page, true, state);
}

void pst_page_leave(struct pst_page *page)
{
    (void)book(page, false, PST_PAGE_BUSY);
}

void pst_page_read(const struct pst_page *page, struct pst_page_times *times)
{
    uint64_t since = 0;
    memset(times, 0, sizeof *times);
    for (int i = 0; i < TRIES; i++) {
        const uint32_t turn = atomic_load_explicit(&page->turn, memory_order_acquire);
        for (int s = 0; s < PST_PAGE_STATES; s++)
            times->ns[s] = atomic_load_explicit(&page->spent_ns[s], memory_order_acquire);
        times->state = atomic_load_explicit(&page->state, memory_order_acquire) % PST_PAGE_STATES;
        since = atomic_load_explicit(&page->since_ns, memory_order_acquire);
        if (turn % 2 == 0 && atomic_load_explicit(&page->turn, memory_order_relaxed) == turn)
            break;
    }
    const uint64_t now = pst_clock_ns();
    if (since == 0 || since >= now)
        return;
    times->lasts_ns = now - since;
    times->ns[times->state] += times->lasts_ns;
}
