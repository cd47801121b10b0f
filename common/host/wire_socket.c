/* wire_socket.c: the socket, and who may speak through it. */
#include "common/host/wire_socket.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/ipc/proc.h"

#define ZAP_ENDPOINT "inproc://zeromq.zap.01" /* where ZeroMQ asks (RFC 27) */
#define ZAP_PARTS 7                           /* version, id, domain, address, identity, mechanism, key */
#define KEY_BYTES 32
#define ANCESTORS_MAX 64
#define STRANGERS_MAX 1000 /* messages of others that are skipped at a time */

/* ---- who may connect over tcp -------------------------------------------------------------------- */

static void reply(void *zap, const char *id, size_t id_bytes, bool yes)
{
    (void)zmq_send(zap, "1.0", 3, ZMQ_SNDMORE);
    (void)zmq_send(zap, id, id_bytes, ZMQ_SNDMORE);
    (void)zmq_send(zap, yes ? "200" : "400", 3, ZMQ_SNDMORE);
    (void)zmq_send(zap, yes ? "OK" : "No", 2, ZMQ_SNDMORE);
    (void)zmq_send(zap, "", 0, ZMQ_SNDMORE);
    (void)zmq_send(zap, "", 0, 0);
}

/* Answers ZeroMQ's questions about clients until the context ends or the bridge sends an empty message. */
static void *authenticate(void *arg)
{
    struct pst_wire_socket *wire = arg;
    uint8_t right[KEY_BYTES];
    if (!zmq_z85_decode(right, wire->zap_key))
        return NULL;
    for (;;) {
        char part[ZAP_PARTS][256];
        int bytes[ZAP_PARTS] = {0}, n = 0, more = 1;
        while (more) {
            size_t more_bytes = sizeof more;
            int at = n < ZAP_PARTS ? n : ZAP_PARTS - 1;
            bytes[at] = zmq_recv(wire->zap, part[at], sizeof part[at], 0);
            if (bytes[at] < 0 && errno != EINTR)
                return NULL; /* ETERM */
            if (bytes[at] < 0)
                continue;
            n++;
            (void)zmq_getsockopt(wire->zap, ZMQ_RCVMORE, &more, &more_bytes);
        }
        bool yes = n == ZAP_PARTS && bytes[5] == 5 && memcmp(part[5], "CURVE", 5) == 0 &&
                   bytes[6] == KEY_BYTES && memcmp(part[6], right, KEY_BYTES) == 0;
        if (n < 2)
            return NULL;
        reply(wire->zap, part[1], (size_t)(bytes[1] < 256 ? bytes[1] : 0), yes);
    }
}

static pst_rc start_zap(struct pst_wire_socket *wire, void *zmq)
{
    int zero = 0;
    wire->zap = zmq_socket(zmq, ZMQ_REP);
    if (!wire->zap || zmq_setsockopt(wire->zap, ZMQ_LINGER, &zero, sizeof zero) != 0 ||
        zmq_bind(wire->zap, ZAP_ENDPOINT) != 0)
        return pst_fail_errno("cannot open a socket that checks the CURVE keys of external programs");
    if (pthread_create(&wire->zap_thread, NULL, authenticate, wire) != 0)
        return pst_fail(PST_E_NOMEM, "cannot start a thread that checks CURVE keys");
    wire->zap_runs = true;
    return PST_OK;
}

static void stop_zap(struct pst_wire_socket *wire, void *zmq)
{
    void *ask = wire->zap_runs ? zmq_socket(zmq, ZMQ_REQ) : NULL;
    int zero = 0;
    if (ask && zmq_setsockopt(ask, ZMQ_LINGER, &zero, sizeof zero) == 0 &&
        zmq_connect(ask, ZAP_ENDPOINT) == 0 && zmq_send(ask, "", 0, 0) == 0)
        (void)pthread_join(wire->zap_thread, NULL);
    if (ask)
        (void)zmq_close(ask);
    if (wire->zap)
        (void)zmq_close(wire->zap);
    wire->zap = NULL;
}

static pst_rc require_keys(struct pst_wire_socket *wire, void *zmq)
{
    char public[PST_WIRE_KEY_MAX], secret[PST_WIRE_KEY_MAX], program[PST_WIRE_KEY_MAX];
    int one = 1;
    if (zmq_curve_keypair(public, secret) != 0 || zmq_curve_keypair(wire->zap_key, program) != 0)
        return errno == ENOTSUP
                   ? pst_fail(PST_E_UNSUPPORTED,
                              "this libzmq was built without CURVE encryption, which a tcp endpoint needs")
                   : pst_fail_errno("cannot create CURVE keys for %s", wire->endpoint);
    (void)snprintf(wire->keys, sizeof wire->keys, "%s %s %s", public, wire->zap_key, program);
    wire->curve = true;
    pst_rc rc = start_zap(wire, zmq);
    if (rc == PST_OK && (zmq_setsockopt(wire->socket, ZMQ_CURVE_SERVER, &one, sizeof one) != 0 ||
                         zmq_setsockopt(wire->socket, ZMQ_CURVE_SECRETKEY, secret, PST_WIRE_KEY_MAX) != 0 ||
                         zmq_setsockopt(wire->socket, ZMQ_ZAP_DOMAIN, "penstock", 8) != 0))
        rc = pst_fail_errno("cannot require CURVE keys at %s", wire->endpoint);
    explicit_bzero(secret, sizeof secret);
    explicit_bzero(program, sizeof program);
    return rc;
}

/* ---- the socket ---------------------------------------------------------------------------------- */

/* ZeroMQ reports there which connections end. */
static pst_rc open_monitor(struct pst_wire_socket *wire, void *zmq)
{
    char name[64];
    int zero = 0;
    (void)snprintf(name, sizeof name, "inproc://wire-%p", (void *)wire);
    wire->connection = -1;
    if (zmq_socket_monitor(wire->socket, name, ZMQ_EVENT_DISCONNECTED) != 0)
        return pst_fail_errno("cannot monitor connections");
    wire->monitor = zmq_socket(zmq, ZMQ_PAIR);
    if (!wire->monitor || zmq_setsockopt(wire->monitor, ZMQ_LINGER, &zero, sizeof zero) != 0 ||
        zmq_connect(wire->monitor, name) != 0)
        return pst_fail_errno("cannot monitor connections");
    return PST_OK;
}

pst_rc pst_wire_open(struct pst_wire_socket *wire, void *zmq, const char *endpoint)
{
    int zero = 0, one = 1;
    int64_t most = PST_WIRE_DROP_BYTES;
    uid_t uid = geteuid();
    size_t bytes = sizeof wire->endpoint;
    (void)snprintf(wire->endpoint, sizeof wire->endpoint, "%s", endpoint);
    wire->socket = zmq_socket(zmq, ZMQ_ROUTER);
    if (!wire->socket || zmq_setsockopt(wire->socket, ZMQ_LINGER, &zero, sizeof zero) != 0 ||
        zmq_setsockopt(wire->socket, ZMQ_SNDHWM, &zero, sizeof zero) != 0 ||
        zmq_setsockopt(wire->socket, ZMQ_ROUTER_MANDATORY, &one, sizeof one) != 0 ||
        zmq_setsockopt(wire->socket, ZMQ_MAXMSGSIZE, &most, sizeof most) != 0)
        return pst_fail_errno("cannot create a socket for %s", endpoint);
    if (strncmp(endpoint, "tcp://", 6) == 0) {
        pst_rc rc = require_keys(wire, zmq);
        if (rc != PST_OK)
            return rc;
    } else if (zmq_setsockopt(wire->socket, ZMQ_IPC_FILTER_UID, &uid, sizeof uid) != 0) {
        return pst_fail_errno("cannot restrict %s to the current user", endpoint);
    }
    pst_rc rc = open_monitor(wire, zmq);
    if (rc == PST_OK && (zmq_bind(wire->socket, endpoint) != 0 ||
                         zmq_getsockopt(wire->socket, ZMQ_LAST_ENDPOINT, wire->endpoint, &bytes) != 0))
        rc = pst_fail_errno("cannot listen at %s", endpoint);
    return rc;
}

void pst_wire_close(struct pst_wire_socket *wire, void *zmq)
{
    if (wire->socket) {
        (void)zmq_socket_monitor(wire->socket, NULL, 0);
        (void)zmq_close(wire->socket);
    }
    if (wire->monitor)
        (void)zmq_close(wire->monitor);
    wire->socket = wire->monitor = NULL;
    stop_zap(wire, zmq);
    explicit_bzero(wire->keys, sizeof wire->keys);
}

bool pst_wire_send(struct pst_wire_socket *wire, const void *bytes, size_t n)
{
    if (!wire->known) {
        errno = EHOSTUNREACH;
        return false;
    }
    return zmq_send(wire->socket, wire->peer, wire->peer_bytes, ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0 &&
           zmq_send(wire->socket, bytes, n, ZMQ_DONTWAIT) >= 0;
}

static bool descends(pid_t pid, pid_t from)
{
    for (int i = 0; i < ANCESTORS_MAX && pid > 1; i++) {
        if (pid == from)
            return true;
        if (!pst_proc_state(pid, &pid))
            return false;
    }
    return false;
}

/* Is the message the program's? The first one makes its sender known. */
static bool admit(struct pst_wire_socket *wire, pid_t program, zmq_msg_t *who, zmq_msg_t *what)
{
    size_t n = zmq_msg_size(who);
    if (wire->known)
        return n == wire->peer_bytes && memcmp(zmq_msg_data(who), wire->peer, n) == 0;
    if (n > sizeof wire->peer)
        return false;
    if (!wire->curve) {
        const char *address = zmq_msg_gets(what, "Peer-Address"); /* "localhost:UID:GID:PID" */
        const char *colon = address ? strrchr(address, ':') : NULL;
        pid_t pid = colon ? (pid_t)strtol(colon + 1, NULL, 10) : 0;
        if (!descends(pid, program))
            return false;
        wire->pid = pid;
    }
    wire->connection = zmq_msg_get(what, ZMQ_SRCFD);
    memcpy(wire->peer, zmq_msg_data(who), n);
    wire->peer_bytes = n;
    wire->known = true;
    return true;
}

bool pst_wire_recv(struct pst_wire_socket *wire, pid_t program, zmq_msg_t *out)
{
    for (int i = 0; i < STRANGERS_MAX; i++) {
        zmq_msg_t who, part;
        int n = 0, more = 1;
        (void)zmq_msg_init(&who);
        (void)zmq_msg_init(&part);
        (void)zmq_msg_init(out);
        while (more && zmq_msg_recv(n == 0 ? &who : n == 1 ? out : &part, wire->socket, ZMQ_DONTWAIT) >= 0) {
            more = zmq_msg_more(n == 0 ? &who : n == 1 ? out : &part);
            n++;
        }
        bool got = n == 2 && !more && admit(wire, program, &who, out);
        (void)zmq_msg_close(&who);
        (void)zmq_msg_close(&part);
        if (got)
            return true;
        (void)zmq_msg_close(out);
        if (n == 0)
            return false;
    }
    return false;
}

/* An event is two parts: u16 what, u32 which descriptor; and the endpoint. */
bool pst_wire_is_closed(struct pst_wire_socket *wire)
{
    for (int i = 0; i < STRANGERS_MAX; i++) {
        unsigned char event[6];
        char endpoint[256];
        int descriptor;
        if (zmq_recv(wire->monitor, event, sizeof event, ZMQ_DONTWAIT) < 0)
            break;
        (void)zmq_recv(wire->monitor, endpoint, sizeof endpoint, ZMQ_DONTWAIT);
        memcpy(&descriptor, event + 2, sizeof descriptor);
        wire->closed = wire->closed || (wire->known && descriptor == wire->connection);
    }
    return wire->closed;
}
