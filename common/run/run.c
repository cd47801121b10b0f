/* run.c: the supervisor's loop: messages, processes that end, signals, deadlines. */
#include "common/pipeline/desc/desc.h"
#include "common/run/run.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include "common/run/live.h"
#include "common/run/run_impl.h"
#include "common/util/clock.h"

#define TICK_MS 100
#define EARLY_DEADLINE_S 1.5    /* for an end before anything was trained */
#define FINISH_DEADLINE_S 120.0 /* for an orderly end with the largest checkpoint that a machine can hold */
#define ABORT_DEADLINE_S 0.7    /* after a failure */
#define DEATH_MS 50             /* from the moment when a killed process is missed to its end */
#define EXIT_DEADLINE_S 10.0    /* from a stage's "done" to the end of its process */
#define HEAR_MAX                                                                                             \
    1000 /* messages at a time: a flood of them must not keep the supervisor from its other work */

/* ---- ending -------------------------------------------------------------------------------------- */

void pst_run_begin_stop(struct pst_supervisor *sv, const char *how, double deadline_s)
{
    if (sv->board)
        atomic_store(&sv->board->stop, strcmp(how, "stop") == 0);
    if (sv->board && strcmp(how, "finish") == 0)
        atomic_store(&sv->board->finish, sv->enough ? PST_RUN_ENOUGH : (uint32_t)sv->signal);
    for (int i = 0; i < sv->ninstances; i++)
        if (sv->instances[i].life > PST_RUN_BORN && sv->instances[i].life < PST_RUN_DONE)
            pst_run_tell_type(sv, sv->instances[i].name, how);
    if (sv->ranks.greeted && strcmp(how, "stop") == 0)
        pst_run_tell_type(sv, "ranks", how);
    sv->stopping = true;
    sv->since = pst_clock_s() + deadline_s;
}

static void fail_told(struct pst_supervisor *sv, const char *name, const struct pst_proc *proc,
                      enum pst_run_log log, const char *text)
{
    const bool first = sv->end != PST_RUN_FAILED;
    pst_report_failure(sv->report, name, text);
    pst_run_show_error(sv, name, proc, log, text);
    sv->end = PST_RUN_FAILED;
    if (first)
        pst_run_begin_stop(sv, "stop", ABORT_DEADLINE_S);
}

void pst_run_fail(struct pst_supervisor *sv, const char *name, const struct pst_proc *proc, const char *fmt,
                  ...)
{
    char text[4096];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    fail_told(sv, name, proc, PST_RUN_LOG_TAIL, text);
}

static void fail_here(struct pst_supervisor *sv)
{
    pst_run_fail(sv, "supervisor", NULL, "%s", pst_error_text());
}

/* ---- what stages say ----------------------------------------------------------------------------- */

static void on_published(struct pst_supervisor *sv, const struct pst_run_instance *in, const json_t *m)
{
    const char *port = json_string_value(json_object_get(m, "port"));
    const char *path = json_string_value(json_object_get(m, "path"));
    const struct pst_stage_desc *desc = sv->pl->stages[in->stage].caps.desc;
    int p = port ? pst_desc_port(desc, port) : -1;
    for (int l = 0; l < sv->pl->nlinks && p >= 0 && path; l++) {
        const struct pst_link_spec *link = &sv->pl->links[l];
        if (link->from == in->stage && link->from_port == p)
            (void)json_object_set_new(sv->oneshots[link->to],
                                      sv->pl->stages[link->to].caps.desc->ports[link->to_port].name,
                                      json_string(path));
    }
}

/* For `penstock top`. */
static void tell_epoch(struct pst_supervisor *sv, const json_t *data)
{
    const json_t *epoch = json_object_get(data, "epoch"), *loss = json_object_get(data, "loss");
    if (!sv->board || !json_is_integer(epoch) || json_integer_value(epoch) < 0)
        return;
    atomic_store(&sv->board->loss, json_is_number(loss) ? json_number_value(loss) : NAN);
    atomic_store(&sv->board->epochs_ended, (uint64_t)json_integer_value(epoch) + 1);
}

static void on_report(struct pst_supervisor *sv, const struct pst_run_instance *in, const json_t *m)
{
    const char *section = json_string_value(json_object_get(m, "section"));
    const json_t *data = json_object_get(m, "data");
    if (!section || !json_is_object(data))
        return;
    const char *taken = pst_report_add(sv->report, in->name, section, data);
    if (taken && sv->end != PST_RUN_FAILED)
        pst_run_fail(
            sv, in->name, NULL,
            "the stage reported the section \"%s\", whose name is reserved for the runtime: use another name",
            taken);
    if (taken || strcmp(section, "epochs") != 0)
        return;
    tell_epoch(sv, data);
    if (pst_report_note_epoch(sv->opt->run_dir, data) != PST_OK && !sv->epochs_told) {
        sv->epochs_told = true;
        pst_run_warn(sv, "supervisor", pst_error_text());
    }
    pst_run_show_epoch(sv, data);
    if (sv->pl->stop_patience == 0)
        return;
    if (!sv->stopping && pst_run_stop_after(sv, data)) {
        sv->enough = true;
        pst_run_begin_stop(sv, "finish", FINISH_DEADLINE_S);
    } else if (!sv->stopping) {
        pst_run_tell_type(sv, in->name, "continue"); /* the stage waits for it */
    }
}

static void hear_all(struct pst_supervisor *sv);

static bool proc_is_done(const struct pst_supervisor *sv, int p)
{
    for (int i = 0; i < sv->ninstances; i++)
        if (sv->instances[i].proc == p && sv->instances[i].life < PST_RUN_DONE)
            return false;
    for (int h = 0; h < sv->nhosts; h++)
        if (sv->hosts[h].proc == p && !sv->stopping)
            return false;
    return p != sv->ranks.proc || sv->ranks.done;
}

/* After a failure the other processes may end in any way. After the user asked to stop, they must end in
 * order. */
static bool is_expected(const struct pst_supervisor *sv, int p)
{
    int status = sv->procs[p].status;
    bool orderly = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    return proc_is_done(sv, p) || sv->end == PST_RUN_FAILED ||
           (sv->stopping && (sv->enough || sv->end == PST_RUN_INTERRUPTED) && orderly);
}

/* The kernel ends a memory host first if memory runs out. */
static const char *perhaps(const struct pst_supervisor *sv, int p)
{
    const int status = sv->procs[p].status;
    for (int h = 0; h < sv->nhosts; h++)
        if (sv->hosts[h].proc == p && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
            return ": unless somebody killed it, memory ran out: use fewer slots or smaller batches";
    return "";
}

static void reap(struct pst_supervisor *sv)
{
    for (int p = 0; p < sv->nprocs; p++) {
        struct pst_proc *proc = &sv->procs[p];
        if (!pst_proc_reap(proc))
            continue;
        if (!WIFSIGNALED(proc->status))
            hear_all(sv); /* what it said before it ended. If it was killed, others may complain about that
                             first */
        char how[128];
        pst_proc_describe(proc, how);
        if (!is_expected(sv, p))
            pst_run_fail(sv, proc->name, proc, "%s%s", how, perhaps(sv, p));
        for (int i = 0; i < sv->ninstances; i++)
            if (sv->instances[i].proc == p)
                sv->instances[i].life = PST_RUN_DONE;
    }
}

/* Another stage may miss a killed process before its end can be waited for, and fail. The death is the cause:
 * it is told first. */
static void find_death(struct pst_supervisor *sv)
{
    for (int ms = 0; ms < DEATH_MS && sv->end != PST_RUN_FAILED; ms += DEATH_MS / 10) {
        for (int p = 0; p < sv->nprocs; p++)
            if (pst_proc_was_killed(&sv->procs[p])) {
                reap(sv);
                return;
            }
        (void)nanosleep(&(struct timespec){.tv_nsec = DEATH_MS / 10 * 1000000L}, NULL);
    }
}

static void on_done(struct pst_supervisor *sv, struct pst_run_instance *in)
{
    in->life = PST_RUN_DONE;
    if (in->early)
        sv->planned_at = pst_clock_s();
    if (!sv->stopping)
        pst_run_tell_type(sv, in->name, "stop");
    for (int i = 0; i < sv->ninstances; i++)
        if (sv->instances[i].life < PST_RUN_DONE)
            return;
    if (!sv->stopping)
        sv->since = pst_clock_s() + EXIT_DEADLINE_S;
    sv->stopping = true;
    if (sv->ranks.greeted)
        pst_run_tell_type(sv, "ranks", "end");
}

static void from_instance(struct pst_supervisor *sv, int i, const char *type, const json_t *m)
{
    struct pst_run_instance *in = &sv->instances[i];
    if (strcmp(type, "hello") == 0 && in->life == PST_RUN_BORN) {
        in->pid = (int)json_integer_value(json_object_get(m, "pid"));
        if (json_integer_value(json_object_get(m, "protocol")) != 1)
            pst_run_fail(
                sv, in->name, NULL,
                "penstock-stage and penstock have different versions: install both from the same build");
        in->life = PST_RUN_GREETED;
        pst_run_tell(sv, in->name, pst_run_configure_message(sv, i));
        if (sv->stopping)
            pst_run_tell_type(sv, in->name, "stop");
    } else if (strcmp(type, "sized") == 0 && in->life == PST_RUN_SIZING) {
        in->life = PST_RUN_SIZED;
        pst_run_add_needs(sv, i, json_object_get(m, "needs"));
    } else if (strcmp(type, "ready") == 0 && in->life == PST_RUN_OPENING) {
        in->life = PST_RUN_READY;
    } else if (strcmp(type, "published") == 0) {
        on_published(sv, in, m);
    } else if (strcmp(type, "report") == 0) {
        on_report(sv, in, m);
    } else if (strcmp(type, "warning") == 0) {
        const char *text = json_string_value(json_object_get(m, "text"));
        pst_run_warn(sv, in->name, text ? text : "");
    } else if (strcmp(type, "failed") == 0) {
        const char *text = json_string_value(json_object_get(m, "text"));
        in->life = PST_RUN_DONE;
        bool echo = sv->stopping && json_integer_value(json_object_get(m, "rc")) == PST_E_INTERRUPTED;
        if (!echo)
            find_death(sv);
        if (!echo)
            fail_told(sv, in->name, &sv->procs[in->proc],
                      json_is_true(json_object_get(m, "died")) ? PST_RUN_LOG_TAIL : PST_RUN_LOG_PATH,
                      text ? text : "the stage failed without a message");
        pst_run_tell_type(sv, in->name, "stop");
        on_done(sv, in);
    } else if (strcmp(type, "done") == 0) {
        on_done(sv, in);
    } else {
        pst_run_fail(sv, in->name, NULL, "the stage sent an unexpected message \"%.40s\"", type);
    }
}

/* Bytes per second of the run; 0: it has no modelled bus. */
static double bus_rate(const struct pst_supervisor *sv)
{
    return sv->pl->bus_bytes_per_s > 0 ? sv->pl->bus_bytes_per_s / sv->pl->bus_dilate : 0;
}

/* Writes down where the counters are, for `penstock top`. */
static pst_rc tell_where(const struct pst_supervisor *sv)
{
    const char *names[PST_STAGES_MAX];
    struct pst_run_part parts[PST_STAGES_MAX];
    pst_run_parts(sv, names, parts);
    return pst_live_write(sv->opt->run_dir, sv->blocks[0].path, sv->blocks[0].bytes, sv->pages_at, names,
                          parts, sv->ninstances, bus_rate(sv));
}

static void from_memory(struct pst_supervisor *sv, struct pst_run_memory_host *host, const char *type,
                        const json_t *m)
{
    if (strcmp(type, "hello") == 0) {
        if (!host->greeted && host == &sv->hosts[0])
            pst_run_ask_block(sv, 0);
        host->greeted = true;
    } else if (strcmp(type, "region") == 0) {
        json_int_t id = json_integer_value(json_object_get(m, "id"));
        const char *path = json_string_value(json_object_get(m, "path"));
        if (id < 0 || id >= pst_run_blocks(sv) || !path || sv->blocks[id].path[0] || sv->stopping)
            return;
        (void)snprintf(sv->blocks[id].path, sizeof sv->blocks[id].path, "%s", path);
        if (id == 0 && (pst_run_init_board(sv) != PST_OK || tell_where(sv) != PST_OK))
            fail_here(sv);
        else if (id == 0)
            pst_run_tell_ranks(sv);
    } else if (strcmp(type, "events") == 0) {
        pst_run_hear_events(sv, host->name, m);
    } else if (strcmp(type, "failed") == 0) {
        const char *text = json_string_value(json_object_get(m, "text"));
        pst_run_fail(sv, host->name, NULL, "%s", text ? text : "the process failed without a message");
    }
}

/* The process at the other end of the socket, as the kernel reports it; 0: unknown. */
static pid_t sender_of(zmq_msg_t *message)
{
    const char *address = zmq_msg_gets(message, "Peer-Address"); /* "localhost:UID:GID:PID" */
    const char *colon = address ? strrchr(address, ':') : NULL;
    return colon ? (pid_t)strtol(colon + 1, NULL, 10) : 0;
}

/* True: the sender is the process that was started under this name. Another process of the same user can do
 * no harm, unless it connected first: then ZeroMQ refuses the right one. */
static bool is_genuine(struct pst_supervisor *sv, const char *name, int proc, bool greeted, pid_t sender)
{
    if (sender == sv->procs[proc].known)
        return true;
    if (!greeted && !sv->stopping)
        pst_run_fail(sv, name, NULL,
                     "another process (%d) connected to the supervisor's socket in place of this one",
                     (int)sender);
    else if (!sv->stranger_told)
        fprintf(stderr, "warning: ignoring process %d, which claims to be %s\n", (int)sender, name);
    sv->stranger_told = true;
    return false;
}

static void heard(struct pst_supervisor *sv, zmq_msg_t *who, zmq_msg_t *what)
{
    char name[PST_NAME_MAX];
    (void)snprintf(name, sizeof name, "%.*s", (int)zmq_msg_size(who), (const char *)zmq_msg_data(who));
    json_t *m = json_loadb(zmq_msg_data(what), zmq_msg_size(what), 0, NULL);
    const char *type = json_string_value(json_object_get(m, "type"));
    pid_t sender = sender_of(what);
    for (int i = 0; i < sv->ninstances; i++)
        if (strcmp(sv->instances[i].name, name) == 0 &&
            is_genuine(sv, name, sv->instances[i].proc, sv->instances[i].life > PST_RUN_BORN, sender))
            from_instance(sv, i, type ? type : "", m);
    for (int h = 0; h < sv->nhosts; h++)
        if (strcmp(sv->hosts[h].name, name) == 0 &&
            is_genuine(sv, name, sv->hosts[h].proc, sv->hosts[h].greeted, sender))
            from_memory(sv, &sv->hosts[h], type ? type : "", m);
    if (strcmp("ranks", name) == 0 && sv->ranks.proc >= 0 &&
        is_genuine(sv, name, sv->ranks.proc, sv->ranks.greeted, sender))
        pst_run_hear_ranks(sv, type ? type : "", m);
    json_decref(m);
    pst_run_advance(sv);
}

/* One message of the control socket: identity, then JSON. Anything with more or fewer parts is ignored. */
static bool hear(struct pst_supervisor *sv)
{
    zmq_msg_t parts[2], part;
    int n = 0, more = 1;
    for (int i = 0; i < 2; i++)
        (void)zmq_msg_init(&parts[i]);
    (void)zmq_msg_init(&part);
    while (more && zmq_msg_recv(&part, sv->control, ZMQ_DONTWAIT) >= 0) {
        more = zmq_msg_more(&part);
        if (n < 2)
            (void)zmq_msg_move(&parts[n], &part);
        n++;
    }
    if (n == 2 && !more)
        heard(sv, &parts[0], &parts[1]);
    for (int i = 0; i < 2; i++)
        (void)zmq_msg_close(&parts[i]);
    (void)zmq_msg_close(&part);
    return n > 0;
}

static void hear_all(struct pst_supervisor *sv)
{
    for (int n = 0; n < HEAR_MAX && hear(sv); n++)
        ;
}

/* ---- processes, signals, time -------------------------------------------------------------------- */

static void on_signal(struct pst_supervisor *sv)
{
    struct signalfd_siginfo info;
    while (read(sv->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        int number = (int)info.ssi_signo;
        if (number == SIGCHLD)
            continue;
        pst_run_clear_line(sv);
        if (sv->signal == 0 && !sv->stopping) {
            fprintf(stderr, "%s: stopping after a checkpoint; repeat the signal to stop at once\n",
                    strsignal(number));
            sv->signal = number;
            sv->end = PST_RUN_INTERRUPTED;
            pst_run_begin_stop(sv, sv->started ? "finish" : "stop",
                               sv->started ? FINISH_DEADLINE_S : EARLY_DEADLINE_S);
        } else {
            sv->signal = sv->signal ? sv->signal : number;
            sv->end = sv->end == PST_RUN_OK ? PST_RUN_INTERRUPTED : sv->end;
            sv->hurried = true;
            pst_run_begin_stop(sv, "stop", 0);
        }
    }
}

static bool anything_alive(const struct pst_supervisor *sv)
{
    for (int p = 0; p < sv->nprocs; p++)
        if (sv->procs[p].pid)
            return true;
    return false;
}

/* Other ranks may work longer than this one, for example evaluate. */
static bool waits_for_ranks(const struct pst_supervisor *sv)
{
    return sv->started && sv->end != PST_RUN_FAILED && !sv->hurried;
}

/* A stop that takes too long ends by force. */
static void enforce(struct pst_supervisor *sv, double now)
{
    if (!sv->stopping)
        return;
    bool stages_alive = false;
    for (int i = 0; i < sv->ninstances; i++)
        stages_alive = stages_alive || sv->procs[sv->instances[i].proc].pid;
    if (!stages_alive) /* not before: nobody may have memory of a GPU open when its host frees it */
        for (int h = 0; h < sv->nhosts; h++)
            pst_run_tell_type(sv, sv->hosts[h].name, "stop");
    if (now < sv->since)
        return;
    for (int p = 0; p < sv->nprocs; p++)
        if (sv->procs[p].pid && (p != sv->ranks.proc || !waits_for_ranks(sv))) {
            if (sv->end == PST_RUN_OK)
                pst_run_fail(sv, sv->procs[p].name, &sv->procs[p],
                             "the process did not end within %.0f s and was killed",
                             sv->enough ? FINISH_DEADLINE_S : EXIT_DEADLINE_S);
            else if (sv->end == PST_RUN_INTERRUPTED && sv->started && !sv->hurried)
                fprintf(stderr,
                        "warning: %s did not end within %.0f s and was killed: the run can be resumed only "
                        "from an earlier checkpoint\n",
                        sv->procs[p].name, FINISH_DEADLINE_S);
            pst_proc_kill(&sv->procs[p]);
        }
}

static void supervise(struct pst_supervisor *sv)
{
    while (anything_alive(sv)) {
        zmq_pollitem_t items[2] = {{.socket = sv->control, .events = ZMQ_POLLIN},
                                   {.fd = sv->signals, .events = ZMQ_POLLIN}};
        (void)zmq_poll(items, 2, TICK_MS);
        on_signal(sv);
        reap(sv);
        hear_all(sv);
        double now = pst_clock_s();
        pst_watch_procs(sv, now);
        pst_watch_files(sv, now);
        pst_run_show_progress(sv, now);
        enforce(sv, now);
    }
    sv->files_at = 0;
    pst_watch_files(sv, pst_clock_s());
    pst_run_clear_line(sv);
}

/* ---- the whole ----------------------------------------------------------------------------------- */

static void finish_report(struct pst_supervisor *sv)
{
    static const char *const status[] = {"ok", "failed", "interrupted"};
    const char *names[PST_STAGES_MAX];
    struct pst_run_part parts[PST_STAGES_MAX];
    const double ended_at = pst_clock_s();
    (void)json_object_set_new(sv->report, "status", json_string(status[sv->end]));
    (void)json_object_set_new(sv->report, "pipeline", json_string(sv->pl->name));
    (void)json_object_set_new(sv->report, "seed", json_integer((json_int_t)sv->pl->seed));
    for (int i = 0; i < sv->ninstances && sv->board; i++)
        pst_report_stage(sv->report, sv->instances[i].name, sv->pl->stages[sv->instances[i].stage].device,
                         sv->pl->stages[sv->instances[i].stage].chosen, sv->instances[i].pid,
                         pst_run_page_of(sv, i));
    for (int p = 0; p < sv->nprocs; p++)
        if (sv->procs[p].exited)
            pst_report_process(sv->report, sv->procs[p].name, &sv->procs[p].used);
    pst_report_phases(sv->report, sv->launched_at, sv->planned_at, sv->started_at, ended_at);
    pst_run_parts(sv, names, parts);
    pst_report_bound(sv->report, names, parts, sv->ninstances,
                     sv->started_at > 0 ? ended_at - sv->started_at : 0,
                     sv->board != NULL ? pst_bus_busy_s(&sv->board->bus, bus_rate(sv)) : 0);
    if (sv->pl->bus_bytes_per_s > 0 && sv->board != NULL)
        pst_report_bus(sv->report, sv->pl->bus_bytes_per_s, sv->pl->bus_dilate,
                       atomic_load(&sv->board->bus.bytes), atomic_load(&sv->board->bus.drive_bytes));
    pst_run_tell_best(sv);
    pst_report_finish(sv->report);
    pst_run_stop_release(sv);
    pst_live_forget(sv->opt->run_dir);
}

static void release(struct pst_supervisor *sv)
{
    for (int p = 0; p < sv->nprocs; p++)
        pst_proc_kill(&sv->procs[p]);
    pst_mps_stop(&sv->mps);
    pst_proc_end_strays();
    pst_pulse_release(&sv->pulse);
    pst_region_unmap(&sv->board_map);
    pst_run_release_events(sv);
    for (int s = 0; s < sv->pl->nstages; s++)
        json_decref(sv->oneshots[s]);
    if (sv->control)
        (void)zmq_close(sv->control);
    if (sv->zmq)
        (void)zmq_ctx_term(sv->zmq);
    if (sv->signals >= 0)
        (void)close(sv->signals);
    free(sv->procs);
    free(sv);
}

enum pst_run_end pst_run(struct pst_pipeline *pl, const struct pst_graph *graph,
                         const struct pst_run_options *opt, json_t **report, int *signal_number)
{
    *report = pst_report_new();
    *signal_number = 0;
    struct pst_supervisor *sv = calloc(1, sizeof *sv);
    if (!sv) {
        pst_report_failure(*report, "supervisor", "out of memory");
        return PST_RUN_FAILED;
    }
    sv->pulse.fd = sv->ranks.proc = -1;
    sv->launched_at = pst_clock_s();
    sv->pl = pl;
    sv->graph = graph;
    sv->opt = opt;
    sv->report = *report;
    for (int s = 0; s < pl->nstages; s++)
        sv->oneshots[s] = json_object();
    sigset_t set, old;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGHUP);
    (void)sigaddset(&set, SIGCHLD);
    (void)sigprocmask(SIG_BLOCK, &set, &old); /* before ZeroMQ starts threads, which inherit it */
    pst_proc_adopt();
    sv->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (sv->signals < 0 || pst_run_starts(sv) != PST_OK || pst_run_launch(sv) != PST_OK) {
        if (sv->signals < 0)
            (void)pst_fail_errno("cannot receive signals");
        fail_here(sv);
    } else {
        pst_run_layout_board(sv);
        if (opt->debug)
            pst_run_show_debug(sv);
        supervise(sv);
    }
    finish_report(sv);
    enum pst_run_end end = sv->end;
    *signal_number = sv->signal;
    release(sv);
    (void)sigprocmask(SIG_SETMASK, &old, NULL);
    return end;
}
