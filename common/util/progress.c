/* progress.c: the rate is the average since the beginning; a log gets a line every ten seconds. */
#include "common/util/progress.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/util/clock.h"

#define TERMINAL_SECONDS 0.2 /* between redraws: smooth, and cheap */
#define LOG_SECONDS 10.0     /* between lines in a log */
#define WORTH_TELLING_SECONDS 1.0

const char *pst_bytes_text(double bytes, char out[32])
{
    static const char *const unit[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    unsigned i = 0;
    while (bytes >= 1000 && i + 1 < sizeof unit / sizeof unit[0]) {
        bytes /= 1000;
        i++;
    }
    (void)snprintf(out, 32, i == 0 ? "%.0f %s" : "%.2f %s", bytes, unit[i]);
    return out;
}

bool pst_progress_colours(int fd)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(fd) == 1 && (!no || !no[0]) && (!term || strcmp(term, "dumb") != 0);
}

void pst_progress_init(struct pst_progress *p, bool quiet)
{
    *p = (struct pst_progress){.quiet = quiet, .terminal = isatty(STDERR_FILENO) == 1};
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGHUP);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
}

void pst_progress_begin(struct pst_progress *p, const char *what, uint64_t total, bool bytes)
{
    if (p == NULL)
        return;
    p->what = what;
    p->total = total;
    p->done = 0;
    p->bytes = bytes;
    p->began = p->shown = pst_clock_s();
}

static void show(struct pst_progress *p, double at, bool last)
{
    double seconds = at - p->began, rate = seconds > 0 ? (double)p->done / seconds : 0;
    char amount[32], speed[32], left[48] = "";
    if (p->bytes) {
        (void)pst_bytes_text((double)p->done, amount);
        (void)pst_bytes_text(rate, speed);
    } else {
        (void)snprintf(amount, sizeof amount, "%llu", (unsigned long long)p->done);
        (void)snprintf(speed, sizeof speed, "%.3g", rate);
    }
    if (last)
        (void)snprintf(left, sizeof left, "in %.1f s", seconds);
    else if (rate > 0)
        (void)snprintf(left, sizeof left, "%.0f s left", (double)(p->total - p->done) / rate);
    (void)fprintf(stderr, "%s%-22s %3.0f %%  %s  %s/s  %s%s", p->terminal ? "\r\033[K" : "", p->what,
                  p->total > 0 ? 100.0 * (double)p->done / (double)p->total : 100.0, amount, speed, left,
                  p->terminal && !last ? "" : "\n");
    p->shown = at;
}

pst_rc pst_progress_add(struct pst_progress *p, uint64_t n)
{
    if (p == NULL)
        return PST_OK;
    p->done += n;
    sigset_t pending;
    if (sigpending(&pending) == 0 &&
        (sigismember(&pending, SIGINT) == 1 || sigismember(&pending, SIGTERM) == 1 ||
         sigismember(&pending, SIGHUP) == 1))
        return pst_fail(PST_E_INTERRUPTED, "interrupted while: %s", p->what);
    if (p->quiet)
        return PST_OK;
    double at = pst_clock_s();
    if (at - p->shown >= (p->terminal ? TERMINAL_SECONDS : LOG_SECONDS))
        show(p, at, false);
    return PST_OK;
}

void pst_progress_end(struct pst_progress *p)
{
    if (p == NULL || p->quiet)
        return;
    double at = pst_clock_s();
    if (p->shown > p->began || at - p->began >= WORTH_TELLING_SECONDS)
        show(p, at, true);
}
