/* watch.c: are the processes of a run alive, and are its files unchanged? A busy stage shows its pulse. A
 * stopped one does not, and the run would wait for it for ever. A stage whose event never returns shows its
 * pulse, too: it cannot be told from one that has much to do (stuck.c warns of it). */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/run/run_impl.h"

#define STALL_DEADLINE_S 5.0  /* of a process that is stopped: fifty beats */
#define STARVED_S 60.0        /* of any other process: a machine with too much to do may not let it run */
#define HELLO_DEADLINE_S 60.0 /* to load a shared object from a cold disk */
#define FILES_S 0.5           /* between looks at the dataset's files */
#define PAUSE_S 1.0           /* ten ticks late: the supervisor itself was stopped, or the machine was */

/* silent_s: since its last beat. */
static void judge_silence(struct pst_supervisor *sv, struct pst_proc *proc, double silent_s)
{
    char state = pst_proc_state(proc->pid, NULL);
    if (state == 'T' || state == 't')
        pst_run_fail(sv, proc->name, proc,
                     "the process is stopped (by %s) and has sent no heartbeat for %.0f s",
                     state == 'T' ? "SIGSTOP or SIGTSTP" : "a debugger", STALL_DEADLINE_S);
    else if (silent_s > STARVED_S)
        pst_run_fail(sv, proc->name, proc,
                     "the process has sent no heartbeat for %.0f s: it hangs, or the machine is overloaded",
                     STARVED_S);
}

/* Before its first beat a process is being loaded, unless its state says that it is stopped. */
static bool shows_life(const struct pst_proc *proc, uint64_t beat)
{
    if (beat > 0)
        return beat != proc->last_beat;
    char state = pst_proc_state(proc->pid, NULL);
    return state != 'T' && state != 't';
}

static void check_beats(struct pst_supervisor *sv, double now, bool paused)
{
    for (int p = 0; p < sv->nprocs && sv->end != PST_RUN_FAILED; p++) {
        struct pst_proc *proc = &sv->procs[p];
        uint64_t beat = pst_pulse_of(&sv->pulse, p);
        if (proc->pid == 0 || paused || shows_life(proc, beat)) {
            proc->last_beat = beat;
            proc->beat_at = now;
        } else if (now - proc->beat_at > STALL_DEADLINE_S) {
            judge_silence(sv, proc, now - proc->beat_at);
        }
    }
}

static void check_hellos(struct pst_supervisor *sv, double now)
{
    if (now - sv->launched_at <= HELLO_DEADLINE_S)
        return;
    for (int i = 0; i < sv->ninstances && !sv->stopping; i++)
        if (sv->instances[i].life == PST_RUN_BORN)
            pst_run_fail(sv, sv->instances[i].name, &sv->procs[sv->instances[i].proc],
                         "the process did not start within %.0f s", HELLO_DEADLINE_S);
    for (int h = 0; h < sv->nhosts && !sv->stopping; h++)
        if (!sv->hosts[h].greeted)
            pst_run_fail(sv, sv->hosts[h].name, &sv->procs[sv->hosts[h].proc],
                         "the process did not start within %.0f s", HELLO_DEADLINE_S);
}

void pst_watch_procs(struct pst_supervisor *sv, double now)
{
    bool paused = now - sv->looked_at > PAUSE_S;
    sv->looked_at = now;
    if (sv->stopping && sv->end == PST_RUN_OK)
        return; /* all is done: a process that is about to end has no pulse */
    if (!sv->opt->debug) {
        check_beats(sv, now, paused);
        check_hellos(sv, now);
    }
    pst_watch_movement(sv, now, paused);
}

/* ---- files ---------------------------------------------------------------------------------------- */

static bool look_at(const char *path, int64_t *bytes, int64_t *mtime_ns)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return false;
    *bytes = st.st_size;
    *mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    return true;
}

pst_rc pst_run_note_file(struct pst_run_options *opt, const char *path)
{
    if (!path[0])
        return PST_OK;
    assert(opt->nfiles < PST_RUN_FILES_MAX);
    struct pst_run_file *file = &opt->files[opt->nfiles];
    (void)snprintf(file->path, sizeof file->path, "%s", path);
    if (!look_at(path, &file->bytes, &file->mtime_ns))
        return pst_fail_errno("cannot get the size of %s", path);
    opt->nfiles++;
    return PST_OK;
}

/* No stage would notice it: a mapped file that was cut within a page reads as zeros there, and one that was
 * written to reads as its new bytes. */
void pst_watch_files(struct pst_supervisor *sv, double now)
{
    if (now - sv->files_at < FILES_S || sv->end == PST_RUN_FAILED)
        return;
    sv->files_at = now;
    for (int i = 0; i < sv->opt->nfiles; i++) {
        const struct pst_run_file *file = &sv->opt->files[i];
        int64_t bytes = 0, mtime_ns = 0;
        if (!look_at(file->path, &bytes, &mtime_ns))
            pst_run_fail(sv, "dataset", NULL, "%s was removed while the run was reading it: %s", file->path,
                         strerror(errno));
        else if (bytes != file->bytes)
            pst_run_fail(sv, "dataset", NULL,
                         "%s changed while the run was reading it: it had %lld bytes and now has %lld; the "
                         "weights trained since then may be wrong",
                         file->path, (long long)file->bytes, (long long)bytes);
        else if (mtime_ns != file->mtime_ns)
            pst_run_fail(
                sv, "dataset", NULL,
                "%s was written while the run was reading it; the weights trained since then may be wrong",
                file->path);
        else
            continue;
        return;
    }
}

/* ---- shared memory ------------------------------------------------------------------------------- */

struct pst_page *pst_run_page_of(const struct pst_supervisor *sv, int i)
{
    return (struct pst_page *)(void *)((char *)sv->board_map.base + sv->pages_at + (uint64_t)i * PST_PAGE);
}

const struct pst_pool *pst_run_pool_of(const struct pst_supervisor *sv, int route)
{
    return (const struct pst_pool *)(const void *)((char *)sv->board_map.base + sv->pools_at[route]);
}
