/* say.c: what the supervisor prints on standard error: progress, epochs, warnings, errors. What stages say is
 * made printable first: no text of a stage can move the cursor or look like a line of ours. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <unistd.h>

#include "common/run/run_impl.h"
#include "common/util/progress.h"
#include "common/util/utf8.h"

#define TEXT_MAX 8192
#define TAIL_MAX 4096
#define HOST_MAX 64

void pst_run_clear_line(const struct pst_supervisor *sv)
{
    if (sv->opt->live)
        fprintf(stderr, "\r\033[K");
}

/* A word in a colour, if standard error shows colours. */
static void paint(const char *code, const char *word)
{
    if (pst_progress_colours(STDERR_FILENO))
        fprintf(stderr, "%s%s\033[0m", code, word);
    else
        fputs(word, stderr);
}

/* With several ranks, all of which write to one terminal: which one says it. */
static void show_rank(const struct pst_supervisor *sv)
{
    char host[HOST_MAX + 1] = "";
    if (sv->opt->ranks < 2)
        return;
    (void)gethostname(host, HOST_MAX);
    fprintf(stderr, " rank %d (%s):", sv->opt->rank, host);
}

void pst_run_warn(const struct pst_supervisor *sv, const char *name, const char *text)
{
    char shown[TEXT_MAX];
    pst_utf8_printable(text, shown, sizeof shown);
    pst_run_clear_line(sv);
    paint("\033[33m", "warning:");
    show_rank(sv);
    fprintf(stderr, " %s: %s\n", name, shown);
    pst_report_warning(sv->report, name, text);
}

/* The log has the error, too, if the stage itself has said it: that line is not shown again. */
static void show_tail(const struct pst_proc *proc, const char *error)
{
    char tail[TAIL_MAX], shown[TAIL_MAX];
    pst_proc_tail(proc, error, tail, sizeof tail);
    if (!tail[0])
        return;
    pst_utf8_printable(tail, shown, sizeof shown);
    fprintf(stderr, "  end of its log, %s:\n    %s\n", proc->log, shown);
}

void pst_run_show_error(const struct pst_supervisor *sv, const char *name, const struct pst_proc *proc,
                        enum pst_run_log log, const char *text)
{
    char shown[TEXT_MAX];
    pst_utf8_printable(text, shown, sizeof shown);
    pst_run_clear_line(sv);
    paint("\033[31m", "error:");
    show_rank(sv);
    fprintf(stderr, " %s: %s\n", name, shown);
    if (proc && log == PST_RUN_LOG_TAIL)
        show_tail(proc, text);
    else if (proc)
        fprintf(stderr, "  its log: %s\n", proc->log);
}

/* A number under either key. One that the stage did not report is '-'. */
static const char *either(char out[32], const json_t *data, const char *key, const char *other, int digits)
{
    const json_t *value = json_object_get(data, json_object_get(data, key) ? key : other);
    (void)snprintf(out, 32, "-");
    if (json_is_number(value))
        (void)snprintf(out, 32, "%.*f", digits, json_number_value(value));
    return out;
}

static const char *number(char out[32], const json_t *data, const char *key, int digits)
{
    return either(out, data, key, key, digits);
}

void pst_run_show_epoch(const struct pst_supervisor *sv, const json_t *data)
{
    char epoch[32], loss[32], train[32], val[32], seconds[32], rate[32];
    pst_run_clear_line(sv);
    if (json_object_get(data, "edges_per_second")) { /* of embeddings, which have no accuracy */
        fprintf(stderr, "epoch %3s  loss %s  val MRR %s  %s s  %s edges/s\n", number(epoch, data, "epoch", 0),
                number(loss, data, "loss", 4), number(val, data, "val_mrr", 4),
                number(seconds, data, "seconds", 2), number(rate, data, "edges_per_second", 0));
        return;
    }
    if (json_object_get(data, "val_mse")) { /* of a regression */
        fprintf(stderr, "epoch %3s  loss %s  val MSE %s  val MAE %s  %s s  %s seeds/s\n",
                number(epoch, data, "epoch", 0), number(loss, data, "loss", 4),
                number(val, data, "val_mse", 4), number(train, data, "val_mae", 4),
                number(seconds, data, "seconds", 2), number(rate, data, "seeds_per_second", 0));
        return;
    }
    if (json_object_get(data, "val_hits")) { /* of link prediction */
        fprintf(stderr, "epoch %3s  loss %s  train %s  val hits %s  %s s  %s edges/s\n",
                number(epoch, data, "epoch", 0), number(loss, data, "loss", 4),
                number(train, data, "train_accuracy", 4), number(val, data, "val_hits", 4),
                number(seconds, data, "seconds", 2), number(rate, data, "seeds_per_second", 0));
        return;
    }
    fprintf(stderr, "epoch %3s  loss %s  train %s  val %s  %s s  %s seeds/s\n",
            number(epoch, data, "epoch", 0), number(loss, data, "loss", 4),
            either(train, data, "train_accuracy", "train_micro_f1", 4),
            either(val, data, "val_accuracy", "val_micro_f1", 4), number(seconds, data, "seconds", 2),
            number(rate, data, "seeds_per_second", 0));
}

void pst_run_show_debug(const struct pst_supervisor *sv)
{
    fprintf(stderr, "--debug: processes can be stopped for any length of time. To attach a debugger:\n");
    for (int p = 0; p < sv->nprocs; p++)
        fprintf(stderr, "  gdb -p %-8d # %s, log: %s\n", (int)sv->procs[p].pid, sv->procs[p].name,
                sv->procs[p].log);
}

/* ---- progress ------------------------------------------------------------------------------------ */

/* How far the slowest sink is, of all batches: both 0 if not known. */
static void batches_done(const struct pst_supervisor *sv, uint64_t *done, uint64_t *total)
{
    *done = *total = 0;
    for (int r = 0; r < sv->graph->nroutes; r++) {
        const struct pst_route *route = &sv->graph->routes[r];
        const struct pst_pool *pool = pst_run_pool_of(sv, r);
        if (pool->total == UINT64_MAX || pool->total <= *total)
            continue;
        *total = pool->total;
        *done = 0;
        int sink = route->borrower_stage[route->borrowers - 1];
        for (int i = 0; i < sv->ninstances; i++)
            if (sv->instances[i].stage == sink) {
                uint64_t at = atomic_load_explicit(&pst_run_page_of(sv, i)->batch, memory_order_relaxed);
                *done = at > *done ? at : *done;
            }
    }
}

/* What the stages that wait for a disk have handled. False: there is no such stage. */
static bool disk_bytes(const struct pst_supervisor *sv, uint64_t *bytes)
{
    bool any = false;
    *bytes = 0;
    for (int i = 0; i < sv->ninstances; i++) {
        struct pst_page_times times;
        pst_page_read(pst_run_page_of(sv, i), &times);
        if (times.ns[PST_PAGE_WAITS_DISK] == 0)
            continue;
        *bytes += atomic_load_explicit(&pst_run_page_of(sv, i)->bytes, memory_order_relaxed);
        any = true;
    }
    return any;
}

/* The bytes that were read since the last line, and the loss of the last epoch. */
static void show_figures(struct pst_supervisor *sv, double seconds)
{
    const double loss = atomic_load(&sv->board->loss);
    uint64_t bytes;
    if (atomic_load(&sv->board->epochs_ended) > 0 && isfinite(loss))
        fprintf(stderr, "  loss %.4f", loss);
    if (disk_bytes(sv, &bytes) && seconds > 0 && bytes >= sv->progress_bytes)
        fprintf(stderr, "  %.1f MB/s", (double)(bytes - sv->progress_bytes) / seconds / 1e6);
    sv->progress_bytes = bytes;
}

/* What a stage does apart from batches, and for how long. PST_DOES_BATCHES: no stage does anything else. */
static enum pst_activity activity_of(const struct pst_supervisor *sv, double now, uint64_t *done,
                                     uint64_t *total, double *seconds)
{
    for (int i = 0; i < sv->ninstances; i++) {
        const struct pst_page *page = pst_run_page_of(sv, i);
        const uint32_t activity = atomic_load_explicit(&page->activity, memory_order_relaxed);
        if (activity == PST_DOES_BATCHES || activity > PST_DOES_EVALUATION)
            continue;
        *done = atomic_load_explicit(&page->steps, memory_order_relaxed);
        *total = atomic_load_explicit(&page->steps_total, memory_order_relaxed);
        *seconds = now - (double)atomic_load_explicit(&page->activity_ns, memory_order_relaxed) * 1e-9;
        return (enum pst_activity)activity;
    }
    return PST_DOES_BATCHES;
}

/* Before the first batch. */
static void show_start(const struct pst_supervisor *sv, double now)
{
    uint64_t done = 0, total = 0;
    double seconds = now - (sv->planned_at > 0 ? sv->planned_at : sv->launched_at);
    const bool plans = sv->board && activity_of(sv, now, &done, &total, &seconds) == PST_DOES_PLANNING;
    pst_run_clear_line(sv);
    fputs(plans ? "planning" : "starting", stderr);
    if (total > 0)
        fprintf(stderr, "  batch %" PRIu64 "/%" PRIu64, done, total);
    fprintf(stderr, "  %.0f s%s", seconds, sv->opt->live ? "" : "\n");
}

void pst_run_show_progress(struct pst_supervisor *sv, double now)
{
    const double since = sv->progress_at > 0 ? sv->progress_at : sv->launched_at;
    if (sv->opt->progress_s <= 0 || sv->stopping || now - since < sv->opt->progress_s)
        return;
    const double before = sv->progress_at > sv->started_at ? sv->progress_at : sv->started_at;
    sv->progress_at = now;
    if (!sv->started) {
        show_start(sv, now);
        return;
    }
    uint64_t done, total, steps, all;
    double seconds;
    batches_done(sv, &done, &total);
    if (total == 0 || done <= sv->opt->start_batch)
        return;
    double rate = (double)(done - sv->opt->start_batch) / (now - sv->started_at);
    const uint64_t ended = atomic_load(&sv->board->epochs_ended), epochs = sv->board->epochs;
    pst_run_clear_line(sv);
    fprintf(stderr, "epoch %" PRIu64 "/%" PRIu64 "  batch %" PRIu64 "/%" PRIu64,
            ended < epochs ? ended + 1 : epochs, epochs, done, total);
    show_figures(sv, now - before);
    if (activity_of(sv, now, &steps, &all, &seconds) == PST_DOES_EVALUATION)
        fprintf(stderr, "  evaluation  %.0f s", seconds);
    else
        fprintf(stderr, "  %.1f batches/s  %.0f s left", rate, (double)(total - done) / rate);
    fputs(sv->opt->live ? "" : "\n", stderr);
}
