/* client.c: starts emulated controllers, and is a transport to one. */
#include "common/nvme/emulated/emulated.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/util/install.h"
#include "common/ipc/region.h"
#include "common/nvme/emulated/emulated_wire.h"
#include "common/error.h"

#define START_MS 10000 /* enough: at the start no RAM is touched, and files are only opened */
#define ANSWER_S 30    /* enough: unmapping waits for operations on files */
#define BACKLOG 64

/* ---- the process ---------------------------------------------------------------------------------- */

/* Makes a listening socket with a name that the kernel chooses. */
static pst_rc listen_somewhere(struct pst_nvme_emulated *e, int *fd)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    socklen_t bytes = sizeof name;
    *fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (*fd < 0 || bind(*fd, (struct sockaddr *)&name, sizeof name.sun_family) != 0 ||
        listen(*fd, BACKLOG) != 0 || getsockname(*fd, (struct sockaddr *)&name, &bytes) != 0)
        return pst_fail_errno("cannot create a socket for emulated controllers");
    const size_t n = bytes - offsetof(struct sockaddr_un, sun_path) - 1;
    memcpy(e->socket, name.sun_path + 1, n);
    e->socket[n] = '\0';
    return PST_OK;
}

static void run_child(const char *program, const char *json, int listener, int ready, pid_t parent)
{
    char listen_at[16], ready_at[16];
    (void)snprintf(listen_at, sizeof listen_at, "%d", listener);
    (void)snprintf(ready_at, sizeof ready_at, "%d", ready);
    char *const argv[] = {(char *)(uintptr_t)program, "--listen", listen_at, "--ready", ready_at,
                          (char *)(uintptr_t)json,    NULL};
    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
        _exit(126);
    if (fcntl(listener, F_SETFD, 0) != 0 || fcntl(ready, F_SETFD, 0) != 0)
        _exit(126);
    execv(program, argv);
    _exit(127);
}

/* Waits for "ok" or for an error message. */
static pst_rc await_ready(int fd, const char *program)
{
    char text[1024];
    size_t n = 0;
    struct pollfd pfd = {.fd = fd, .events = POLLIN};
    while (n < sizeof text - 1) {
        if (poll(&pfd, 1, START_MS) <= 0)
            return pst_fail(PST_E_TIMEOUT, "%s, which emulates NVMe controllers, was not ready within %d ms",
                            program, START_MS);
        const ssize_t got = read(fd, text + n, sizeof text - 1 - n);
        if (got <= 0)
            break;
        n += (size_t)got;
        if (n == 2 && memcmp(text, "ok", 2) == 0)
            return PST_OK;
    }
    text[n] = '\0';
    return n > 0 ? pst_fail(PST_E_ARG, "%s", text)
                 : pst_fail(PST_E_IO, "%s, which emulates NVMe controllers, ended before it was ready",
                            program);
}

pst_rc pst_nvme_emulated_start(struct pst_nvme_emulated *e, const char *json)
{
    char program[PST_PATH_MAX];
    int listener = -1, ready[2] = {-1, -1};
    memset(e, 0, sizeof *e);
    pst_rc rc = pst_install_program_path("penstock-nvme", program);
    rc = rc == PST_OK ? listen_somewhere(e, &listener) : rc;
    if (rc == PST_OK && pipe2(ready, O_CLOEXEC) != 0)
        rc = pst_fail_errno("cannot create a pipe");
    if (rc != PST_OK)
        goto out;
    const pid_t parent = getpid();
    e->pid = fork();
    if (e->pid == 0)
        run_child(program, json, listener, ready[1], parent);
    (void)close(ready[1]);
    ready[1] = -1;
    rc = e->pid < 0 ? pst_fail_errno("starting %s", program) : await_ready(ready[0], program);
    if (rc != PST_OK)
        pst_nvme_emulated_stop(e);
out:
    for (int i = 0; i < 2; i++) {
        if (ready[i] >= 0)
            (void)close(ready[i]);
    }
    if (listener >= 0)
        (void)close(listener);
    return rc;
}

void pst_nvme_emulated_stop(struct pst_nvme_emulated *e)
{
    if (e->pid > 0) {
        (void)kill(e->pid, SIGKILL);
        while (waitpid(e->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    memset(e, 0, sizeof *e);
}

/* ---- the transport -------------------------------------------------------------------------------- */

struct client {
    int socket;
    void *shared;
    size_t bytes;
};

static pst_rc ask(struct client *c, struct pst_emu_message *m, int fd, int *got)
{
    const uint32_t op = m->op;
    int received = -1;
    pst_rc rc = pst_emu_send(c->socket, m, fd);
    if (rc == PST_OK)
        rc = pst_emu_receive(c->socket, m, &received);
    if (rc == PST_OK && m->op != op)
        rc = pst_fail(PST_E_PEER, "the emulated controller answered another request than the one that was "
                                  "sent: install penstock-nvme and penstock-stage from the same build");
    if (rc == PST_OK && m->rc != PST_OK)
        rc = pst_fail((pst_rc)m->rc, "%s", m->text);
    if (got != NULL && rc == PST_OK)
        *got = received;
    else if (received >= 0)
        (void)close(received);
    return rc;
}

static pst_rc map(struct pst_nvme_transport *t, void *addr, uint64_t bytes, uint64_t *iova)
{
    int fd;
    uint64_t offset;
    pst_rc rc = pst_region_find(addr, bytes, &fd, &offset);
    if (rc != PST_OK)
        return pst_wrap(rc, "%s", t->what);
    struct pst_emu_message m = {.op = PST_EMU_MAP, .arg = {offset, bytes}};
    rc = ask(t->impl, &m, fd, NULL);
    *iova = m.arg[0];
    return pst_wrap(rc, "%s: cannot map memory", t->what);
}

/* Whether the emulating process has ended; then its side of the socket is closed. */
static bool gone(const struct pst_nvme_transport *t)
{
    struct pollfd socket = {.fd = ((const struct client *)t->impl)->socket, .events = POLLRDHUP};
    return poll(&socket, 1, 0) == 1;
}

static pst_rc unmap(struct pst_nvme_transport *t, uint64_t iova)
{
    if (gone(t))
        return PST_OK;
    struct pst_emu_message m = {.op = PST_EMU_UNMAP, .arg = {iova}};
    return pst_wrap(ask(t->impl, &m, -1, NULL), "%s: cannot unmap memory", t->what);
}

static void hang_up(struct pst_nvme_transport *t)
{
    struct client *c = t->impl;
    if (c == NULL)
        return;
    if (c->shared != NULL)
        (void)munmap(c->shared, c->bytes);
    (void)close(c->socket);
    free(c);
    t->impl = NULL;
    t->regs = NULL;
}

static const struct pst_nvme_transport_ops ops = {
    .name = "emulated", .dma_map = map, .dma_unmap = unmap, .gone = gone, .close = hang_up};

static pst_rc call(struct client *c, const char *socket_name)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    const size_t n = strlen(socket_name);
    if (n == 0 || n > sizeof name.sun_path - 1)
        return pst_fail(PST_E_ARG, "\"%s\" is not a valid socket name: expected 1 to %zu bytes", socket_name,
                        sizeof name.sun_path - 1);
    memcpy(name.sun_path + 1, socket_name, n);
    c->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    const struct timeval wait = {.tv_sec = ANSWER_S};
    if (c->socket < 0 || setsockopt(c->socket, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait) != 0 ||
        connect(c->socket, (struct sockaddr *)&name,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n)) != 0)
        return pst_fail_errno("cannot connect to emulated controllers at socket \"%s\"", socket_name);
    return PST_OK;
}

static pst_rc take_registers(struct pst_nvme_transport *t, struct client *c, uint32_t ssd)
{
    struct pst_emu_message m = {.op = PST_EMU_CONNECT, .arg = {ssd}};
    int fd = -1;
    struct stat st;
    pst_rc rc = ask(c, &m, -1, &fd);
    if (rc != PST_OK)
        return rc;
    if (fd < 0 || fstat(fd, &st) != 0 || (uint64_t)st.st_size != m.arg[1] || m.arg[0] >= m.arg[1]) {
        rc = pst_fail(PST_E_PEER,
                      "the shared memory of the emulated controller's registers does not have the size that "
                      "the controller reports: install penstock-nvme and penstock-stage from the same build");
        goto out;
    }
    c->shared = mmap(NULL, m.arg[1], PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (c->shared == MAP_FAILED) {
        c->shared = NULL;
        rc = pst_fail_errno("cannot map the controller's registers");
        goto out;
    }
    c->bytes = m.arg[1];
    t->regs = c->shared;
    t->regs_bytes = m.arg[0];
out:
    if (fd >= 0)
        (void)close(fd);
    return rc;
}

pst_rc pst_nvme_emulated_connect(struct pst_nvme_transport *t, const struct pst_nvme_emulated *e,
                                 uint32_t ssd)
{
    memset(t, 0, sizeof *t);
    struct client *c = calloc(1, sizeof *c);
    if (c == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate a transport");
    c->socket = -1;
    t->ops = &ops;
    t->impl = c;
    (void)snprintf(t->what, sizeof t->what, "emulated SSD %u", ssd);
    pst_rc rc = call(c, e->socket);
    rc = rc == PST_OK ? take_registers(t, c, ssd) : rc;
    if (rc == PST_OK)
        return PST_OK;
    rc = pst_wrap(rc, "%s", t->what);
    if (c->socket >= 0)
        (void)close(c->socket);
    free(c);
    memset(t, 0, sizeof *t);
    return rc;
}

const struct pst_nvme_emulated_stats *pst_nvme_emulated_stats(const struct pst_nvme_transport *t)
{
    assert(t->ops == &ops);
    const struct client *c = t->impl;
    return (const struct pst_nvme_emulated_stats *)(void *)((char *)c->shared + t->regs_bytes);
}
