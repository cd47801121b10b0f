/* top.c: penstock top: where the stages of a running pipeline spend their time. */
#include <dirent.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/run/live.h"
#include "common/stage.h"
#include "common/util/progress.h"
#include "tools/penstock/cli/commands.h"
#include "tools/penstock/run/run_dir.h"

#define TABLE_COLUMNS 86 /* with the widths of show(), without the bar */
#define BAR_COLUMNS 24

struct sample {
    struct pst_page_times times;
    uint64_t items, bytes, batch, lookups, hits, bus_ns;
    uint32_t in_flight;
};

/* What the output can show. */
struct look {
    bool colours, bar;
};

static const char *const states[PST_PAGE_STATES] = {"busy", "input", "slot", "disk"};
static const char bar_marks[PST_PAGE_STATES] = {'#', '.', '-', '='};
static const char *const bar_colours[PST_PAGE_STATES] = {"\033[34m", "\033[2m", "\033[2m", "\033[33m"};
/* from left to right: what the stage needs itself, then what it waits for others */
static const enum pst_page_state bar_order[PST_PAGE_STATES] = {PST_PAGE_BUSY, PST_PAGE_WAITS_DISK,
                                                               PST_PAGE_WAITS_CREDIT, PST_PAGE_WAITS_INPUT};

static struct sample take(const struct pst_page *p)
{
    struct sample s = {.items = atomic_load(&p->items),
                       .bytes = atomic_load(&p->bytes),
                       .batch = atomic_load(&p->batch),
                       .lookups = atomic_load(&p->lookups),
                       .hits = atomic_load(&p->hits),
                       .bus_ns = atomic_load(&p->bus_ns),
                       .in_flight = atomic_load(&p->in_flight)};
    pst_page_read(p, &s.times);
    return s;
}

/* Time goes on between two looks: no state took more than all of it. */
static double passed(const struct sample *now, const struct sample *before, enum pst_page_state state,
                     double seconds)
{
    const double s = (double)(int64_t)(now->times.ns[state] - before->times.ns[state]) * 1e-9;
    return s < 0 ? 0 : s > seconds ? seconds : s;
}

static struct look look_of(int fd)
{
    struct winsize size = {0};
    const bool terminal = isatty(fd) == 1;
    if (!terminal || ioctl(fd, TIOCGWINSZ, &size) != 0)
        size.ws_col = 0;
    return (struct look){.colours = pst_progress_colours(fd),
                         .bar = size.ws_col >= TABLE_COLUMNS + BAR_COLUMNS};
}

static void paint(const struct look *look, const char *code)
{
    if (look->colours)
        fputs(code, stdout);
}

/* The states of one stage, as parts of a bar. */
static void show_bar(const struct look *look, const double spent_s[PST_PAGE_STATES], double seconds)
{
    double at = 0;
    int shown = 0;
    fputs("  ", stdout);
    for (int k = 0; k < PST_PAGE_STATES; k++) {
        const enum pst_page_state state = bar_order[k];
        at += spent_s[state];
        const int until = (int)lround(fmin(1, at / seconds) * (BAR_COLUMNS - 2));
        paint(look, bar_colours[state]);
        for (; shown < until; shown++)
            putchar(bar_marks[state]);
        paint(look, "\033[0m");
    }
}

/* The epoch at hand, the last loss, and the hits of all caches since the last look. */
static void show_training(const struct pst_live *live, uint64_t lookups, uint64_t hits)
{
    const struct pst_board *board = pst_live_board(live);
    const uint64_t ended = atomic_load(&board->epochs_ended), epochs = board->epochs;
    const double loss = atomic_load(&board->loss);
    printf("epoch %llu of %llu", (unsigned long long)(ended < epochs ? ended + 1 : epochs),
           (unsigned long long)epochs);
    if (ended > 0 && isfinite(loss))
        printf(", loss %.4f", loss);
    if (lookups > 0)
        printf(", cache hits %.1f %%", 100 * (double)hits / (double)lookups);
    for (int i = 0; i < live->n; i++) {
        const uint32_t activity = atomic_load(&pst_live_page(live, i)->activity);
        if (activity == PST_DOES_PLANNING || activity == PST_DOES_EVALUATION)
            printf(", %s %s", live->names[i], activity == PST_DOES_PLANNING ? "plans" : "evaluates");
    }
    putchar('\n');
}

static void show_stage(const char *name, const struct sample *now, const struct sample *before,
                       const double spent_s[PST_PAGE_STATES], double seconds)
{
    const double percent = 100 / seconds;
    printf("%-18s %5.0f%% %5.0f%% %6.0f%% %5.0f%% %9.0f %9.1f %6u %10llu", name,
           spent_s[PST_PAGE_BUSY] * percent, spent_s[PST_PAGE_WAITS_INPUT] * percent,
           spent_s[PST_PAGE_WAITS_CREDIT] * percent, spent_s[PST_PAGE_WAITS_DISK] * percent,
           (double)(now->items - before->items) / seconds,
           (double)(now->bytes - before->bytes) / seconds / 1048576, now->in_flight,
           (unsigned long long)now->batch);
}

/* before and bus_s: of the last look; they become those of this one. */
static void show(struct pst_live *live, struct sample *before, double *bus_s, double seconds,
                 const struct look *look)
{
    char bound[PST_NAME_MAX + 16];
    struct sample now[PST_STAGES_MAX];
    double s[PST_STAGES_MAX][PST_PAGE_STATES];
    uint64_t lookups = 0, hits = 0;
    for (int i = 0; i < live->n; i++) {
        now[i] = take(pst_live_page(live, i));
        lookups += now[i].lookups - before[i].lookups;
        hits += now[i].hits - before[i].hits;
        for (int k = 0; k < PST_PAGE_STATES; k++)
            s[i][k] = passed(&now[i], &before[i], k, seconds);
        live->parts[i].busy_s = s[i][PST_PAGE_BUSY];
        live->parts[i].disk_s = s[i][PST_PAGE_WAITS_DISK];
        live->parts[i].bus_s = (double)(now[i].bus_ns - before[i].bus_ns) * 1e-9;
    }
    const double moved_s = pst_bus_busy_s(&pst_live_board(live)->bus, live->bus_bytes_per_s);
    const bool found = pst_run_bound(live->parts, live->n, seconds, moved_s - *bus_s, bound);
    *bus_s = moved_s;
    show_training(live, lookups, hits);
    printf("%-18s %6s %6s %7s %6s %9s %9s %6s %10s\n", "stage", states[PST_PAGE_BUSY],
           states[PST_PAGE_WAITS_INPUT], states[PST_PAGE_WAITS_CREDIT], states[PST_PAGE_WAITS_DISK],
           "items/s", "MiB/s", "depth", "batch");
    for (int i = 0; i < live->n; i++) {
        const size_t n = strlen(live->parts[i].stage);
        const bool is_bound = found && strncmp(bound, live->parts[i].stage, n) == 0 && bound[n] == ' ';
        paint(look, is_bound ? "\033[1m" : "");
        show_stage(live->names[i], &now[i], &before[i], s[i], seconds);
        paint(look, is_bound ? "\033[0m" : "");
        if (look->bar)
            show_bar(look, s[i], seconds);
        putchar('\n');
        before[i] = now[i];
    }
    if (found) {
        paint(look, "\033[1m");
        printf("bound by %s", bound);
        paint(look, "\033[0m");
        putchar('\n');
    }
    (void)fflush(stdout);
}

/* The directory of the run under runs/ that began last and is still going. */
static bool newest_run(char out[PST_PATH_MAX])
{
    DIR *d = opendir("runs");
    time_t best = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[600];
        struct stat st;
        (void)snprintf(path, sizeof path, "runs/%s/live.json", e->d_name);
        if (stat(path, &st) != 0 || st.st_mtime < best)
            continue;
        (void)snprintf(path, sizeof path, "runs/%s", e->d_name);
        if (run_dir_is_held(path)) { /* a killed run leaves its live.json */
            best = st.st_mtime;
            (void)snprintf(out, PST_PATH_MAX, "%s", path);
        }
    }
    if (d)
        (void)closedir(d);
    return best > 0;
}

int cmd_top(int argc, char **argv)
{
    static const char usage[] =
        "usage: penstock top [--once] [RUN]\n"
        "Shows once a second where each stage of a run spends its time, and which stage limits the run.\n"
        "RUN is the directory of the run (default: the newest run under runs/ that is still going).\n"
        "  busy     computing\n"
        "  input    waiting for a batch\n"
        "  slot     waiting for a free slot\n"
        "  disk     waiting for the disk\n"
        "  depth    disk operations in flight\n"
        "Wide terminals get a bar: # busy, = disk, - slot, . input. If NO_COLOR is set, there are no "
        "colours.\n\n"
        "  --once   show one second, then end\n";
    static const struct option options[] = {
        {"once", no_argument, NULL, 'o'}, {"help", no_argument, NULL, 'h'}, {0}};
    bool once = false;
    int c;
    optind = 1;
    while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (c != 'o') {
            fprintf(c == 'h' ? stdout : stderr, "%s", usage);
            return c == 'h' ? 0 : 2;
        }
        once = true;
    }
    char dir[PST_PATH_MAX];
    if (optind < argc)
        (void)snprintf(dir, sizeof dir, "%s", argv[optind]);
    else if (!newest_run(dir)) {
        fprintf(stderr, "penstock top: no run is active under runs/: give the directory of a run\n");
        return 2;
    }
    struct pst_live live;
    if (pst_live_open(&live, dir) != PST_OK) {
        fprintf(stderr, "penstock top: %s\n", pst_error_text());
        return 2;
    }
    struct sample before[PST_STAGES_MAX];
    for (int i = 0; i < live.n; i++)
        before[i] = take(pst_live_page(&live, i));
    const struct look look = look_of(STDOUT_FILENO);
    double since = pst_now(), bus_s = pst_bus_busy_s(&pst_live_board(&live)->bus, live.bus_bytes_per_s);
    do {
        (void)sleep(1);
        double now = pst_now();
        if (isatty(STDOUT_FILENO) && !once)
            printf("\033[H\033[J%s\n", dir);
        show(&live, before, &bus_s, now - since, &look);
        since = now;
    } while (!once && run_dir_is_held(dir));
    pst_live_close(&live);
    return 0;
}
