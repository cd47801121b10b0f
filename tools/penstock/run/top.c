/* top: where the time of a running pipeline goes, live. */
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

#define SAMPLES 8 /* counters of one page that top shows */

struct sample {
    uint64_t at[SAMPLES];
};

static struct sample take(const struct pst_page *p)
{
    return (struct sample){{atomic_load(&p->busy_ns), atomic_load(&p->wait_input_ns),
                            atomic_load(&p->wait_credit_ns), atomic_load(&p->wait_disk_ns),
                            atomic_load(&p->items), atomic_load(&p->bytes), atomic_load(&p->batch),
                            atomic_load(&p->frames)}};
}

static void show(const struct pst_live *live, struct sample *before, double seconds)
{
    printf("%-18s %6s %6s %7s %6s %11s %10s %10s\n", "stage", "busy", "input", "credit", "disk", "items/s",
           "MiB/s", "batch");
    for (int i = 0; i < live->n; i++) {
        struct sample now = take(pst_live_page(live, i));
        double share[4], all = 0;
        for (int k = 0; k < 4; k++) {
            share[k] = (double)(now.at[k] - before[i].at[k]) * 1e-9;
            all += share[k];
        }
        /* waiting is booked when it ends: what is not booked yet is the state that lasts */
        double scale = all > 0 ? 100 / (all > seconds ? all : seconds) : 0;
        printf("%-18s %5.0f%% %5.0f%% %6.0f%% %5.0f%% %11.0f %10.1f %10llu\n", live->names[i],
               share[0] * scale, share[1] * scale, share[2] * scale, share[3] * scale,
               (double)(now.at[4] - before[i].at[4]) / seconds,
               (double)(now.at[5] - before[i].at[5]) / seconds / 1048576, (unsigned long long)now.at[6]);
        before[i] = now;
    }
    (void)fflush(stdout);
}

/* The directory of the run that began last, of those under runs/ that have a live.json. */
static bool newest_run(char out[4096])
{
    DIR *d = opendir("runs");
    time_t best = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[600];
        struct stat st;
        (void)snprintf(path, sizeof path, "runs/%s/live.json", e->d_name);
        if (stat(path, &st) == 0 && st.st_mtime >= best) {
            best = st.st_mtime;
            (void)snprintf(out, 4096, "runs/%s", e->d_name);
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
        "Shows, every second, where each stage of the run in directory RUN (default: the newest under "
        "runs/)\n"
        "spends its time: busy, waiting for input, for credit (a free slot), for the disk.\n"
        "  --once   one second's figures, then end\n";
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
    char dir[4096];
    if (optind < argc)
        (void)snprintf(dir, sizeof dir, "%s", argv[optind]);
    else if (!newest_run(dir)) {
        fprintf(stderr, "penstock top: there is no run under runs/; name its directory\n");
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
    char alive[4200];
    (void)snprintf(alive, sizeof alive, "%s/live.json", dir); /* the supervisor removes it at the end */
    do {
        (void)sleep(1);
        double now = pst_now();
        if (isatty(STDOUT_FILENO) && !once)
            printf("\033[H\033[J%s\n", dir);
        show(&live, before, now - since);
        since = now;
    } while (!once && access(alive, F_OK) == 0);
    pst_live_close(&live);
    return 0;
}
