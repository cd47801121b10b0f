/* server.c: sessions with clients, and the threads that serve their queues. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "common/nvme/emulated/emulated_impl.h"
#include "common/util/clock.h"
#include "common/nvme/emulated/emulated_wire.h"
#include "common/error.h"

#define ACTIVE_NS 1000000u /* a worker does not sleep while its queues were used within this time */
#define NAP_NS 50000       /* sleep between later polls; a changed register is noticed after this time */
#define IDLE_NAP_NS 2000000
#define STRANGERS_MAX 16 /* connections that have not yet named their SSD */

/* ---- holding an SSD ------------------------------------------------------------------------------- */

void pst_emu_hold(struct pst_emu_ssd *ssd)
{
    for (uint32_t i = 0; i <= ssd->emu->config.workers; i++) {
        atomic_store(&ssd->parts[i].wanted, true);
        (void)pthread_mutex_lock(&ssd->parts[i].lock);
    }
}

void pst_emu_let_go(struct pst_emu_ssd *ssd)
{
    for (uint32_t i = 0; i <= ssd->emu->config.workers; i++) {
        atomic_store(&ssd->parts[i].wanted, false);
        (void)pthread_mutex_unlock(&ssd->parts[i].lock);
    }
}

/* ---- workers -------------------------------------------------------------------------------------- */

static void nap(long ns)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

struct worker {
    struct pst_emu *emu;
    uint32_t number;
};

static bool turn_all(const struct worker *w, uint64_t *next)
{
    bool any = false;
    for (uint32_t i = 0; i < w->emu->config.ssds; i++) {
        struct pst_emu_part *part = &w->emu->ssds[i].parts[w->number];
        /* a mutex is not fair: leave the lock to the main thread */
        if (atomic_load_explicit(&part->wanted, memory_order_relaxed))
            continue;
        (void)pthread_mutex_lock(&part->lock);
        if (part->nsqs > 0)
            any = pst_emu_turn(part, next) || any;
        (void)pthread_mutex_unlock(&part->lock);
    }
    return any;
}

static void *work(void *argument)
{
    const struct worker w = *(struct worker *)argument;
    free(argument);
    uint64_t active = 0;
    (void)prctl(PR_SET_TIMERSLACK, 1000ul);
    while (!atomic_load(&w.emu->stop)) {
        uint64_t next = UINT64_MAX;
        if (turn_all(&w, &next)) {
            active = pst_clock_ns();
            continue;
        }
        const uint64_t now = pst_clock_ns();
        if (next < now + 2 * NAP_NS)
            continue; /* wait without sleeping, because the thread might wake up too late */
        if (now - active < ACTIVE_NS)
            (void)sched_yield();
        else
            nap(atomic_load(&w.emu->enabled) > 0 ? NAP_NS : IDLE_NAP_NS);
    }
    return NULL;
}

/* ---- sessions ------------------------------------------------------------------------------------- */

static void end_session(struct pst_emu_ssd *ssd)
{
    pst_emu_hold(ssd);
    pst_emu_disable(ssd);
    pst_emu_unmap_all(ssd);
    pst_emu_registers_init(ssd);
    pst_emu_let_go(ssd);
    (void)close(ssd->session);
    ssd->session = -1;
}

static size_t registers_bytes(const struct pst_emu_config *c)
{
    return pst_align_up(PST_NVME_DOORBELLS + 2 * (c->queues + 1) * ((size_t)4 << c->dstrd), PST_PAGE);
}

static pst_rc same_user(int socket)
{
    struct ucred peer;
    socklen_t bytes = sizeof peer;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == geteuid())
        return PST_OK;
    return pst_fail(PST_E_ARG, "a process of another user asked to connect; only processes of the same user "
                               "may use an emulated controller");
}

/* Handles the first message of a connection. */
static pst_rc welcome(struct pst_emu *emu, int socket, const struct pst_emu_message *m)
{
    pst_rc rc = same_user(socket);
    if (rc != PST_OK)
        return rc;
    if (m->op != PST_EMU_CONNECT || m->arg[0] >= emu->config.ssds)
        return pst_fail(PST_E_ARG,
                        "a client asked for emulated SSD %llu, which does not exist; expected 0 to %u",
                        (unsigned long long)m->arg[0], emu->config.ssds - 1);
    struct pst_emu_ssd *ssd = &emu->ssds[m->arg[0]];
    if (ssd->session >= 0)
        return pst_fail(PST_E_STATE, "emulated SSD %u already has a client", ssd->number);
    const size_t bytes = registers_bytes(&emu->config);
    const struct pst_emu_message answer = {.op = m->op, .arg = {bytes, bytes + PST_PAGE}};
    rc = pst_emu_send(socket, &answer, ssd->shared_fd);
    if (rc == PST_OK)
        ssd->session = socket;
    return rc;
}

static void serve_session(struct pst_emu_ssd *ssd)
{
    struct pst_emu_message m;
    int fd;
    pst_rc rc = pst_emu_receive(ssd->session, &m, &fd);
    if (rc != PST_OK) {
        end_session(ssd);
        return;
    }
    struct pst_emu_message answer = {.op = m.op};
    if (m.op == PST_EMU_MAP)
        rc = pst_emu_map(ssd, fd, m.arg[0], m.arg[1], &answer.arg[0]);
    else if (m.op == PST_EMU_UNMAP)
        rc = pst_emu_unmap(ssd, m.arg[0]);
    else
        rc = pst_fail(PST_E_ARG,
                      "the client sent an unknown message (%u): install penstock-nvme and penstock-stage "
                      "from the same build",
                      m.op);
    if (fd >= 0)
        (void)close(fd);
    answer.rc = rc;
    if (rc != PST_OK)
        (void)snprintf(answer.text, sizeof answer.text, "%s", pst_error_text());
    if (pst_emu_send(ssd->session, &answer, -1) != PST_OK)
        end_session(ssd);
}

/* Handles a new connection that has sent something. True: it is a session now. */
static bool serve_stranger(struct pst_emu *emu, int socket)
{
    struct pst_emu_message m;
    int fd;
    if (pst_emu_receive(socket, &m, &fd) != PST_OK)
        return false;
    if (fd >= 0)
        (void)close(fd);
    pst_rc rc = welcome(emu, socket, &m);
    if (rc == PST_OK)
        return true;
    struct pst_emu_message answer = {.op = m.op, .rc = rc};
    (void)snprintf(answer.text, sizeof answer.text, "%s", pst_error_text());
    if (pst_emu_send(socket, &answer, -1) != PST_OK)
        fprintf(stderr, "penstock-nvme: %s\n", pst_error_text());
    return false;
}

struct watched {
    struct pollfd fds[1 + PST_NVME_EMULATED_SSDS_MAX + STRANGERS_MAX];
    int strangers[STRANGERS_MAX];
    int nstrangers;
};

static void accept_one(struct pst_emu *emu, struct watched *w)
{
    const int socket = accept4(emu->listener, NULL, NULL, SOCK_CLOEXEC);
    if (socket < 0)
        return;
    if (w->nstrangers == STRANGERS_MAX)
        (void)close(socket);
    else
        w->strangers[w->nstrangers++] = socket;
}

static void serve_sockets(struct pst_emu *emu, struct watched *w, bool busy)
{
    const int ssds = (int)emu->config.ssds, strangers = w->nstrangers;
    w->fds[0] = (struct pollfd){.fd = emu->listener, .events = POLLIN};
    for (int i = 0; i < ssds; i++)
        w->fds[1 + i] = (struct pollfd){.fd = emu->ssds[i].session, .events = POLLIN};
    for (int i = 0; i < strangers; i++)
        w->fds[1 + ssds + i] = (struct pollfd){.fd = w->strangers[i], .events = POLLIN};
    const struct timespec wait = {.tv_nsec = busy ? NAP_NS : IDLE_NAP_NS};
    if (ppoll(w->fds, 1 + (nfds_t)ssds + (nfds_t)strangers, &wait, NULL) <= 0)
        return;
    for (int i = 0; i < ssds; i++) {
        if (w->fds[1 + i].revents != 0)
            serve_session(&emu->ssds[i]);
    }
    int kept = 0;
    for (int i = 0; i < strangers; i++) {
        if (w->fds[1 + ssds + i].revents == 0)
            w->strangers[kept++] = w->strangers[i];
        else if (!serve_stranger(emu, w->strangers[i]))
            (void)close(w->strangers[i]);
    }
    w->nstrangers = kept;
    if (w->fds[0].revents != 0)
        accept_one(emu, w);
}

/* ---- start and end -------------------------------------------------------------------------------- */

static pst_rc make_ssd(struct pst_emu *emu, uint32_t number)
{
    struct pst_emu_ssd *ssd = &emu->ssds[number];
    const struct pst_emu_config *c = &emu->config;
    const size_t registers = registers_bytes(c);
    ssd->shared_fd = memfd_create("penstock-nvme", MFD_CLOEXEC);
    if (ssd->shared_fd < 0 || ftruncate(ssd->shared_fd, (off_t)(registers + PST_PAGE)) != 0)
        return pst_fail_errno("cannot create shared memory for an SSD's registers");
    void *shared = mmap(NULL, registers + PST_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, ssd->shared_fd, 0);
    if (shared == MAP_FAILED)
        return pst_fail_errno("cannot map an SSD's registers");
    ssd->shared = shared;
    ssd->stats = (struct pst_nvme_emulated_stats *)(void *)(ssd->shared + registers);
    for (uint32_t i = 0; i < c->nnamespaces; i++) {
        if (c->namespaces[i].kind != PST_EMU_RAM)
            continue;
        void *ram = mmap(NULL, c->namespaces[i].bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (ram == MAP_FAILED)
            return pst_fail_errno("namespaces[%u]: cannot allocate %llu bytes", i,
                                  (unsigned long long)c->namespaces[i].bytes);
        ssd->ram[i] = ram;
        for (uint64_t at = 0; c->namespaces[i].filled && at < c->namespaces[i].bytes; at += 8) {
            const uint64_t word = pst_nvme_emulated_pattern(number, i + 1, at);
            memcpy(ssd->ram[i] + at, &word, sizeof word);
        }
    }
    return PST_OK;
}

static bool has_files(const struct pst_emu_config *c)
{
    for (uint32_t i = 0; i < c->nnamespaces; i++) {
        if (c->namespaces[i].kind == PST_EMU_FILE)
            return true;
    }
    return false;
}

/* The kernel's threads that read and write files stay on the cores of this process. An old kernel lets them
 * use all cores. */
static void keep_to_cores(struct io_uring *ring)
{
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof cores, &cores) == 0)
        (void)io_uring_register_iowq_aff(ring, sizeof cores, &cores);
}

static pst_rc make_parts(struct pst_emu *emu, struct pst_emu_ssd *ssd)
{
    for (uint32_t i = 0; i <= emu->config.workers; i++) {
        struct pst_emu_part *part = &ssd->parts[i];
        part->ssd = ssd;
        part->random = (emu->config.faults.seed * 0x9e3779b97f4a7c15u + ssd->number * 64u + i) | 1;
        (void)pthread_mutex_init(&part->lock, NULL);
        if (i == emu->config.workers || !has_files(&emu->config))
            continue;
        const int rc = io_uring_queue_init(PST_EMU_FILE_IO_MAX, &part->ring, 0);
        if (rc != 0)
            return pst_fail(PST_E_UNSUPPORTED,
                            "a namespace of kind \"file\" needs io_uring, which cannot be used here: %s%s",
                            strerror(-rc), rc == -ENOMEM ? "; expected more locked memory (ulimit -l)" : "");
        part->ring_made = true;
        keep_to_cores(&part->ring);
    }
    return PST_OK;
}

static pst_rc start(struct pst_emu *emu)
{
    for (uint32_t i = 0; i < emu->config.ssds; i++)
        emu->ssds[i].session = -1; /* of all, because the caller ends the sessions after a failure, too */
    for (uint32_t i = 0; i < emu->config.ssds; i++) {
        struct pst_emu_ssd *ssd = &emu->ssds[i];
        ssd->emu = emu;
        ssd->number = i;
        pst_rc rc = make_ssd(emu, i);
        rc = rc == PST_OK ? make_parts(emu, ssd) : rc;
        if (rc != PST_OK)
            return rc;
        pst_emu_registers_init(ssd);
    }
    for (uint32_t i = 0; i < emu->config.workers; i++) {
        struct worker *w = malloc(sizeof *w);
        if (w == NULL)
            return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate a worker");
        *w = (struct worker){emu, i};
        const int rc = pthread_create(&emu->threads[i], NULL, work, w);
        if (rc != 0) {
            free(w);
            return pst_fail(PST_E_NOMEM, "cannot start a worker thread: %s", strerror(rc));
        }
        emu->nthreads++;
    }
    return PST_OK;
}

static void stop_workers(struct pst_emu *emu)
{
    atomic_store(&emu->stop, true);
    for (uint32_t i = 0; i < emu->nthreads; i++)
        (void)pthread_join(emu->threads[i], NULL);
}

pst_rc pst_emu_new(struct pst_emu **emu, const char *json)
{
    *emu = calloc(1, sizeof **emu); /* large, but most of it is never touched */
    if (*emu == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate emulated controllers");
    pst_rc rc = pst_emu_configure(&(*emu)->config, json);
    if (rc != PST_OK) {
        free(*emu);
        *emu = NULL;
    }
    return rc;
}

void pst_emu_free(struct pst_emu *emu)
{
    if (emu != NULL)
        pst_emu_config_release(&emu->config);
    free(emu);
}

void pst_emu_stop(struct pst_emu *emu)
{
    atomic_store(&emu->stop, true);
}

pst_rc pst_emu_serve(struct pst_emu *emu, int listener, int ready)
{
    emu->listener = listener;
    pst_emu_model_init(emu);
    pst_rc rc = start(emu);
    if (rc == PST_OK && ready >= 0 && write(ready, "ok", 2) != 2)
        rc = pst_fail_errno("cannot report that the controllers are ready");
    struct watched w = {.nstrangers = 0};
    while (rc == PST_OK && !atomic_load(&emu->stop)) {
        bool sessions = false;
        for (uint32_t i = 0; i < emu->config.ssds; i++) {
            if (emu->ssds[i].session < 0)
                continue;
            sessions = true;
            pst_emu_registers(&emu->ssds[i]);
        }
        serve_sockets(emu, &w, sessions);
    }
    stop_workers(emu);
    for (uint32_t i = 0; i < emu->config.ssds; i++) {
        if (emu->ssds[i].session >= 0)
            end_session(&emu->ssds[i]);
    }
    return rc;
}
