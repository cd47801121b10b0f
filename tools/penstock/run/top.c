/* top.c: penstock top: where the stages of a running pipeline spend their time. */
#include <dirent.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/run/live.h"
#include "common/stage.h"
#include "tools/penstock/cli/commands.h"
#include "tools/penstock/run/run_dir.h"

struct sample {
    struct pst_page_times times;
    uint64_t items, bytes, batch;
};

static struct sample take(const struct pst_page *p)
{
    struct sample s = {
        .items = atomic_load(&p->items), .bytes = atomic_load(&p->bytes), .batch = atomic_load(&p->batch)};
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

static void show(struct pst_live *live, struct sample *before, double seconds)
{
    char bound[PST_NAME_MAX + 16];
    printf("%-18s %6s %6s %7s %6s %11s %10s %10s\n", "stage", "busy", "input", "credit", "disk", "items/s",
           "MiB/s", "batch");
    for (int i = 0; i < live->n; i++) {
        const struct sample now = take(pst_live_page(live, i));
        double s[PST_PAGE_STATES];
        for (int k = 0; k < PST_PAGE_STATES; k++)
            s[k] = passed(&now, &before[i], k, seconds);
        live->parts[i].busy_s = s[PST_PAGE_BUSY];
        live->parts[i].disk_s = s[PST_PAGE_WAITS_DISK];
        const double percent = 100 / seconds;
        printf("%-18s %5.0f%% %5.0f%% %6.0f%% %5.0f%% %11.0f %10.1f %10llu\n", live->names[i],
               s[PST_PAGE_BUSY] * percent, s[PST_PAGE_WAITS_INPUT] * percent,
               s[PST_PAGE_WAITS_CREDIT] * percent, s[PST_PAGE_WAITS_DISK] * percent,
               (double)(now.items - before[i].items) / seconds,
               (double)(now.bytes - before[i].bytes) / seconds / 1048576, (unsigned long long)now.batch);
        before[i] = now;
    }
    if (pst_run_bound(live->parts, live->n, seconds, bound))
        printf("bound by %s\n", bound);
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
        "  credit   waiting for a free slot\n"
        "  disk     waiting for the disk\n\n"
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
    double since = pst_now();
    do {
        (void)sleep(1);
        double now = pst_now();
        if (isatty(STDOUT_FILENO) && !once)
            printf("\033[H\033[J%s\n", dir);
        show(&live, before, now - since);
        since = now;
    } while (!once && run_dir_is_held(dir));
    pst_live_close(&live);
    return 0;
}
