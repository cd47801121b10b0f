/* stuck.c: says who holds what if nothing moves any more. A stage that never releases a slot, or a program
 * that sends the wrong batch, leaves the others waiting for ever, and all of them are alive. It is a warning,
 * since a program may need that long. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/run/run_impl.h"

#define STILL_S 15.0          /* nobody works, or only programs do */
#define WORKING_STILL_S 120.0 /* a native stage works: an evaluation takes minutes */
#define WARNINGS_MAX 6        /* of one standstill, each after twice the time of the one before */
#define TEXT_MAX 8192

/* Changes whenever a frame, a slot or an item moves. */
static uint64_t movement(const struct pst_supervisor *sv)
{
    uint64_t sum = 0;
    for (int i = 0; i < sv->ninstances; i++) {
        const struct pst_page *page = pst_run_page_of(sv, i);
        const uint64_t counts[] = {atomic_load_explicit(&page->frames, memory_order_relaxed),
                                   atomic_load_explicit(&page->items, memory_order_relaxed),
                                   atomic_load_explicit(&page->bytes, memory_order_relaxed),
                                   atomic_load_explicit(&page->taken, memory_order_relaxed)};
        for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
            sum = sum * 31 + counts[k];
    }
    return sum;
}

static bool is_program(const struct pst_supervisor *sv, int i)
{
    return sv->pl->stages[sv->instances[i].stage].caps.foreign;
}

static bool native_works(const struct pst_supervisor *sv)
{
    for (int i = 0; i < sv->ninstances; i++) {
        struct pst_page_times t;
        pst_page_read(pst_run_page_of(sv, i), &t);
        if (t.lasts_ns > 0 && t.state == PST_PAGE_BUSY && !is_program(sv, i))
            return true;
    }
    return false;
}

struct text {
    char *at;
    size_t left;
};

static void PST_PRINTF(2, 3) add(struct text *text, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(text->at, text->left, fmt, ap);
    va_end(ap);
    const size_t used = n < 0 ? 0 : (size_t)n < text->left ? (size_t)n : text->left - 1;
    text->at += used;
    text->left -= used;
}

static void add_slots(const struct pst_supervisor *sv, struct text *text, int r, unsigned slots)
{
    const struct pst_route *route = &sv->graph->routes[r];
    const struct pst_pipeline_stage_spec *origin = &sv->pl->stages[route->stage];
    add(text, "%u of %d slots of %s.%s", slots, route->slots, origin->name,
        origin->caps.desc->ports[route->port].name);
}

static void add_instance(const struct pst_supervisor *sv, struct text *text, int i)
{
    static const char *const waits[] = {"works", "waits for input", "waits for a free slot",
                                        "waits for its disk"};
    const struct pst_page *page = pst_run_page_of(sv, i);
    struct pst_page_times t;
    pst_page_read(page, &t);
    if (t.lasts_ns == 0)
        return; /* it has not begun, or has ended */
    const bool program = is_program(sv, i) && t.state == PST_PAGE_BUSY;
    add(text, "\n%s %s", sv->instances[i].name, program ? "waits for its program" : waits[t.state]);
    if (t.state == PST_PAGE_BUSY && !program)
        add(text, " on batch %" PRIu64, atomic_load_explicit(&page->batch, memory_order_relaxed));
    const uint32_t early = atomic_load_explicit(&page->early, memory_order_relaxed);
    if (early > 0)
        add(text, "; %u frames arrived out of order, batch %" PRIu64 " is missing", early,
            atomic_load_explicit(&page->missing, memory_order_relaxed));
    for (int r = 0; r < sv->graph->nroutes; r++) {
        const unsigned held = atomic_load_explicit(&page->held[r], memory_order_relaxed);
        if (held > 0) {
            add(text, "; holds ");
            add_slots(sv, text, r, held);
        }
    }
}

/* Slots that are neither free nor held lie in a ring, or came before their turn. */
static void add_on_the_way(const struct pst_supervisor *sv, struct text *text, int r)
{
    const struct pst_pool *pool = pst_run_pool_of(sv, r);
    unsigned away = pool->slots < pool->nfree ? 0 : pool->slots - pool->nfree, held = 0;
    for (int i = 0; i < sv->ninstances; i++)
        held += atomic_load_explicit(&pst_run_page_of(sv, i)->held[r], memory_order_relaxed);
    if (held >= away)
        return;
    add(text, "\nin transit between stages: ");
    add_slots(sv, text, r, away - held);
}

static void warn(const struct pst_supervisor *sv, double still_s)
{
    char *whole = malloc(TEXT_MAX);
    struct text text = {whole, TEXT_MAX};
    if (!whole)
        return;
    add(&text, "no progress for %.0f s", still_s);
    for (int i = 0; i < sv->ninstances; i++)
        add_instance(sv, &text, i);
    for (int r = 0; r < sv->graph->nroutes; r++)
        add_on_the_way(sv, &text, r);
    pst_run_warn(sv, sv->pl->name, whole);
    free(whole);
}

void pst_watch_movement(struct pst_supervisor *sv, double now, bool paused)
{
    if (!sv->started || sv->stopping)
        return;
    const uint64_t moved = movement(sv);
    if (moved != sv->moved || sv->moved_at <= 0 || paused) {
        sv->moved = moved;
        sv->moved_at = now;
        sv->still_told = 0;
        return;
    }
    const double still = now - sv->moved_at;
    const double limit = native_works(sv) ? WORKING_STILL_S : STILL_S;
    if (sv->still_told == WARNINGS_MAX || still < limit * (double)(1 << sv->still_told))
        return;
    sv->still_told++;
    warn(sv, still);
}
