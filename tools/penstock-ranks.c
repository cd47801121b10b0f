/* penstock-ranks: the process of a rank that uses MPI. `mpirun -n K penstock run PIPELINE` starts a
 * supervisor for each rank, and each supervisor starts one of these. usage: penstock-ranks --control ENDPOINT
 * --pulse INDEX (started by `penstock run`)
 *
 * First, the ranks compare what they are about to run. If something differs, all ranks refuse to start. Then
 * the process carries what the replicas of this rank give to replicas of other ranks
 * (common/collective/carried.h): a thread, called a lane, for each replica (tools/ranks). A rank that fails
 * tells all others at once, even if their replicas do not wait for it.
 *
 * Threads: the main thread talks to the supervisor, and a lane to one replica. One mutex guards MPI. No call
 * of MPI waits while it is held. */
#include <errno.h>
#include <jansson.h>
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include "common/error.h"
#include "common/host/host.h"
#include "common/ipc/board.h"
#include "common/ipc/proc.h"
#include "common/ipc/pulse.h"
#include "common/ipc/region.h"
#include "common/run/run.h"
#include "common/util/clock.h"
#include "common/util/file.h"
#include "tools/ranks/rank_lanes.h"

#define NAME "ranks" /* of this process, for the supervisor */
#define TOLD_MAX 8   /* differences in one message */
#define TICK_MS 20
#define FAREWELL_S 0.2 /* for messages that say that this rank has failed */

/* ---- the supervisor ------------------------------------------------------------------------------ */

static pst_rc say(struct ranks *r, json_t *message)
{
    char *text = message ? json_dumps(message, JSON_COMPACT) : NULL;
    json_decref(message);
    if (!text)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate a message");
    const int sent = zmq_send(r->control, text, strlen(text), 0);
    free(text);
    return sent >= 0 ? PST_OK : pst_fail_errno("cannot reach the supervisor");
}

/* The next message, after at most ms milliseconds (-1: any time); NULL: there is none. */
static json_t *hear(struct ranks *r, int ms)
{
    zmq_pollitem_t item = {.socket = r->control, .events = ZMQ_POLLIN};
    zmq_msg_t msg;
    json_t *j = NULL;
    if (zmq_poll(&item, 1, ms) <= 0)
        return NULL;
    (void)zmq_msg_init(&msg);
    if (zmq_msg_recv(&msg, r->control, ZMQ_DONTWAIT) >= 0)
        j = json_loadb(zmq_msg_data(&msg), zmq_msg_size(&msg), 0, NULL);
    (void)zmq_msg_close(&msg);
    return j;
}

static bool is(const json_t *message, const char *type)
{
    const char *text = json_string_value(json_object_get(message, "type"));
    return text && strcmp(text, type) == 0;
}

/* ---- joining ------------------------------------------------------------------------------------- */

static const char *host_of(const json_t *facts)
{
    const char *host = json_string_value(json_object_get(facts, "host"));
    return host ? host : "?";
}

static void show(const json_t *value, char *out, size_t bytes)
{
    char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    (void)snprintf(out, bytes, "%s", text ? text : "not set");
    free(text);
}

/* Adds what `rank` has otherwise than rank 0. only_missing: only what rank 0 has and `rank` has not. */
static void add_differences(char *text, size_t cap, json_t *first, json_t *other, int rank, int *told,
                            bool only_missing)
{
    const char *name;
    json_t *value;
    json_object_foreach(only_missing ? first : other, name, value)
    {
        const json_t *a = json_object_get(first, name), *b = json_object_get(other, name);
        char shown_a[200], shown_b[200];
        if (strcmp(name, "host") == 0 || (only_missing ? b != NULL : a && json_equal(a, b)) ||
            ++*told > TOLD_MAX)
            continue;
        show(a, shown_a, sizeof shown_a);
        show(b, shown_b, sizeof shown_b);
        const size_t n = strlen(text);
        (void)snprintf(text + n, cap - n, "%s%s is %s on rank 0 (%s), but %s on rank %d (%s)",
                       n > 0 ? "; " : "", name, shown_a, host_of(first), shown_b, rank, host_of(other));
    }
}

/* Every rank finds the same differences, so all of them refuse. */
static pst_rc compare(const struct ranks *r)
{
    char text[4096] = "";
    int told = 0;
    json_t *first = json_loads(r->facts[0], 0, NULL);
    for (int k = 1; k < r->ranks; k++) {
        json_t *other = json_loads(r->facts[k], 0, NULL);
        add_differences(text, sizeof text, first, other, k, &told, false);
        add_differences(text, sizeof text, first, other, k, &told, true);
        json_decref(other);
    }
    json_decref(first);
    return told == 0
               ? PST_OK
               : pst_fail(PST_E_ARG,
                          "the ranks would not train the same model, so nothing was started: %s%s: give "
                          "all ranks the same pipeline, options, dataset and checkpoint",
                          text, told > TOLD_MAX ? "; and more" : "");
}

/* Meets the other ranks. */
static pst_rc join(struct ranks *r, const json_t *message)
{
    int provided, rank, ranks;
    char host[256] = "";
    json_t *facts = json_object_get(message, "facts");
    r->rank = (int)json_integer_value(json_object_get(message, "rank"));
    r->ranks = (int)json_integer_value(json_object_get(message, "ranks"));
    (void)gethostname(host, sizeof host - 1);
    (void)json_object_set_new(facts, "host", json_string(host));
    char *mine = json_dumps(facts, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENSURE_ASCII);
    if (!mine || strlen(mine) >= FACTS_BYTES)
        return pst_fail(PST_E_LIMIT,
                        "the parameters of the pipeline take %zu bytes, but ranks can compare only %d bytes: "
                        "use shorter values",
                        mine ? strlen(mine) : 0, FACTS_BYTES - 1);
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS ||
        MPI_Comm_rank(MPI_COMM_WORLD, &rank) != MPI_SUCCESS ||
        MPI_Comm_size(MPI_COMM_WORLD, &ranks) != MPI_SUCCESS)
        return pst_fail(PST_E_PEER, "MPI does not start");
    if (provided < MPI_THREAD_SERIALIZED)
        return pst_fail(PST_E_PEER,
                        "this MPI can be called by one thread only: expected MPI_THREAD_SERIALIZED");
    if (rank != r->rank || ranks != r->ranks)
        return pst_fail(PST_E_PEER,
                        "MPI says that this is rank %d of %d, but the environment says rank %d of %d: start "
                        "penstock with the mpirun of the MPI that it was built with",
                        rank, ranks, r->rank, r->ranks);
    r->facts = calloc((size_t)ranks + 1, FACTS_BYTES);
    if (!r->facts)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot compare %d ranks", ranks);
    char *own = r->facts[ranks];
    (void)snprintf(own, FACTS_BYTES, "%s", mine);
    free(mine);
    if (MPI_Allgather(own, FACTS_BYTES, MPI_CHAR, r->facts, FACTS_BYTES, MPI_CHAR, MPI_COMM_WORLD) !=
        MPI_SUCCESS)
        return pst_fail(PST_E_PEER, "the ranks cannot exchange messages");
    return compare(r);
}

/* Each lane has a communicator of its own, so that collective calls of different lanes do not meet. All ranks
 * have as many lanes, and make these here in the same order. */
static pst_rc make_communicators(struct ranks *r, int lanes)
{
    if (lanes < 0 || lanes > LANES_MAX)
        return pst_fail(PST_E_PEER, "the supervisor's message \"join\" is wrong: install penstock and "
                                    "penstock-ranks from the same build");
    for (; r->ncomms < lanes; r->ncomms++)
        if (MPI_Comm_dup(MPI_COMM_WORLD, &r->comm[r->ncomms]) != MPI_SUCCESS)
            return pst_fail(PST_E_PEER, "the ranks cannot exchange messages");
    return PST_OK;
}

/* ---- the run -------------------------------------------------------------------------------------- */

static pst_rc report(struct ranks *r)
{
    json_int_t messages = 0, sent = 0, tree = 0, items = 0;
    for (int l = 0; l < r->nlanes; l++) {
        messages += (json_int_t)r->lanes[l]->messages;
        sent += (json_int_t)r->lanes[l]->sent_bytes;
        tree += (json_int_t)r->lanes[l]->tree_bytes;
        items += (json_int_t)r->lanes[l]->item_bytes;
    }
    return say(r, json_pack("{ss ss s{si si sI sI sI sI}}", "type", "report", "section", "mpi", "data",
                            "rank", r->rank, "ranks", r->ranks, "messages", messages, "sent_bytes", sent,
                            "tree_bytes", tree, "item_bytes", items));
}

/* Tells the supervisor that another rank has left early. told: the last reason that it was told. */
static pst_rc tell_left(struct ranks *r, uint32_t *told)
{
    const uint32_t reason = atomic_load(&r->reason);
    if (reason == *told)
        return PST_OK;
    *told = reason;
    const int who = atomic_load(&r->who);
    json_t *facts = json_loads(r->facts[who], 0, NULL);
    const pst_rc rc = say(r, json_pack("{ss si si ss}", "type", "left", "reason", (int)reason, "rank", who,
                                       "host", host_of(facts)));
    json_decref(facts);
    return rc;
}

/* Has another rank failed? */
static void look_for_alarm(struct ranks *r)
{
    int found = 0;
    char byte;
    MPI_Status from;
    (void)pthread_mutex_lock(&r->mpi);
    (void)MPI_Iprobe(MPI_ANY_SOURCE, ALARM, MPI_COMM_WORLD, &found, &from);
    if (found)
        (void)MPI_Recv(&byte, 1, MPI_BYTE, from.MPI_SOURCE, ALARM, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    (void)pthread_mutex_unlock(&r->mpi);
    if (found) {
        atomic_store(&r->who, from.MPI_SOURCE);
        atomic_store(&r->reason, PST_RUN_RANK_FAILED);
    }
}

/* This rank has failed: tells all others, which then fail, too. */
static void raise_alarm(struct ranks *r)
{
    static const char byte = 1;
    MPI_Request sent[PST_REPLICAS_MAX];
    const double begin = pst_clock_s();
    int n = 0, done = 0;
    (void)pthread_mutex_lock(&r->mpi);
    for (int k = 0; k < r->ranks; k++)
        if (k != r->rank)
            (void)MPI_Isend(&byte, 1, MPI_BYTE, k, ALARM, MPI_COMM_WORLD, &sent[n++]);
    while (!done && pst_clock_s() - begin < FAREWELL_S)
        (void)MPI_Testall(n, sent, &done, MPI_STATUSES_IGNORE);
    (void)pthread_mutex_unlock(&r->mpi);
}

/* Until all lanes, and the stages of this rank, have ended: the launcher may end all ranks as soon as one
 * has. */
static pst_rc serve(struct ranks *r)
{
    bool carrying = false, ended = false;
    uint32_t told = 0;
    pst_rc rc = PST_OK;
    while (rc == PST_OK && !atomic_load(&r->failed) && !(ended && atomic_load(&r->running) == 0)) {
        json_t *message = hear(r, TICK_MS);
        if (is(message, "carry") && !carrying) {
            carrying = true;
            rc = lanes_start(r, message);
        } else if (is(message, "stop") && !carrying) {
            rc = pst_fail(PST_E_INTERRUPTED, "the run is ending");
        } else if (is(message, "stop") || is(message, "end")) {
            ended = true;
        }
        json_decref(message);
        look_for_alarm(r);
        if (rc == PST_OK)
            rc = tell_left(r, &told);
    }
    if (rc == PST_OK && atomic_load(&r->failed))
        rc = pst_fail(PST_E_PEER, "%s", atomic_load(&r->failed)->why);
    for (int l = 0; l < r->nlanes && rc == PST_OK; l++)
        (void)pthread_join(r->lanes[l]->thread, NULL);
    return rc == PST_OK ? tell_left(r, &told) : rc;
}

/* ---- the whole ----------------------------------------------------------------------------------- */

static pst_rc work(struct ranks *r, const char *endpoint)
{
    int linger = 1000;
    r->zmq = zmq_ctx_new();
    r->control = r->zmq ? zmq_socket(r->zmq, ZMQ_DEALER) : NULL;
    if (!r->control || zmq_setsockopt(r->control, ZMQ_ROUTING_ID, NAME, strlen(NAME)) != 0 ||
        zmq_setsockopt(r->control, ZMQ_LINGER, &linger, sizeof linger) != 0 ||
        zmq_connect(r->control, endpoint) != 0)
        return pst_fail_errno("cannot reach the supervisor at %s", endpoint);
    pst_rc rc =
        say(r, json_pack("{ss si si}", "type", "hello", "pid", (int)getpid(), "protocol", PST_WIRE_PROTOCOL));
    json_t *message = rc == PST_OK ? hear(r, -1) : NULL;
    if (rc == PST_OK && !is(message, "join"))
        rc = pst_fail(PST_E_INTERRUPTED, "the run is ending");
    if (rc == PST_OK)
        rc = join(r, message);
    if (rc == PST_OK)
        rc = make_communicators(r, (int)json_integer_value(json_object_get(message, "lanes")));
    json_decref(message);
    r->joined = rc == PST_OK;
    if (rc == PST_OK)
        rc = say(r, json_pack("{ss}", "type", "joined"));
    return rc == PST_OK ? serve(r) : rc;
}

int main(int argc, char **argv)
{
    static struct ranks ranks = {.mpi = PTHREAD_MUTEX_INITIALIZER};
    const int others[] = {SIGINT, SIGTERM, SIGHUP}; /* the supervisor's matter */
    struct pst_heart heart;
    pst_file_open_std();
    if (argc != 5 || strcmp(argv[1], "--control") != 0 || strcmp(argv[3], "--pulse") != 0) {
        fprintf(stderr, "usage: penstock-ranks --control ENDPOINT --pulse INDEX\nTalks to the other ranks of "
                        "a run, by MPI. `penstock run` starts it.\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        (void)signal(others[i], SIG_IGN);
    if (pst_heart_start(&heart, argv[4]) != PST_OK || pst_proc_check_threads() != PST_OK) {
        fprintf(stderr, "penstock-ranks: %s\n", pst_error_text());
        return 1;
    }
    pst_rc rc = work(&ranks, argv[2]);
    const bool failed = rc != PST_OK || (ranks.board && lanes_must_end(&ranks));
    if (rc != PST_OK && rc != PST_E_INTERRUPTED) {
        fprintf(stderr, "penstock-ranks: %s\n", pst_error_text());
        (void)say(&ranks, json_pack("{ss ss}", "type", "failed", "text", pst_error_text()));
    }
    /* After a failure it waits for its end: the launcher ends all ranks at once when a process of MPI ends,
     * and the supervisor has not written its report yet. */
    if (failed && ranks.joined)
        raise_alarm(&ranks);
    if (failed)
        for (;;)
            (void)pause();
    rc = report(&ranks);
    if (rc == PST_OK)
        rc = say(&ranks, json_pack("{ss}", "type", "done"));
    (void)MPI_Finalize();
    (void)zmq_close(ranks.control);
    (void)zmq_ctx_term(ranks.zmq);
    pst_heart_stop(&heart);
    (void)fflush(NULL);
    _exit(rc == PST_OK ? 0 : 1); /* MPI keeps memory, which a check for leaks would report */
}
