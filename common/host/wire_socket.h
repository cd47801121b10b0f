/* wire_socket.h: the bridge's end of the wire protocol: one socket, and the one program at its other end.
 * Nobody else is heard, whoever connects: over ipc the program is known by its process, over tcp by its CURVE
 * key. Owner: the caller. Threads: one; over tcp one more, which only answers whose key is the right one. */
#ifndef PST_WIRE_SOCKET_H
#define PST_WIRE_SOCKET_H

#include <pthread.h>
#include <sys/types.h>
#include <zmq.h>

#include "common/base.h"

#define PST_WIRE_MAX_BYTES (1 << 20) /* one message; slots travel by reference */
/* ZeroMQ drops a connection without a word over a message of more. It must be far above what is told. */
#define PST_WIRE_DROP_BYTES (1 << 30)
#define PST_WIRE_KEY_MAX 41 /* a CURVE key as Z85 text */

struct pst_wire_socket {
    void *socket, *monitor;          /* both wake who polls them */
    char endpoint[256];              /* what the program connects to */
    char keys[3 * PST_WIRE_KEY_MAX]; /* tcp: "SERVER PUBLIC SECRET", the server's public key and the program's
                                        two */
    bool curve, known;
    char peer[256]; /* its ZeroMQ identity, once known */
    size_t peer_bytes;
    pid_t pid;      /* its process, once known; over tcp 0 */
    int connection; /* the descriptor of its connection, once known; -1: libzmq does not tell */
    bool closed;
    void *zap;
    pthread_t zap_thread;
    bool zap_runs;
    char zap_key[PST_WIRE_KEY_MAX];
};

/* Listens at `endpoint`: ipc://..., for processes of this user only; or tcp://..., for who has the keys only.
 */
PST_MUST_USE pst_rc pst_wire_open(struct pst_wire_socket *wire, void *zmq, const char *endpoint);
void pst_wire_close(struct pst_wire_socket *wire, void *zmq);

/* False, with errno, if it cannot be sent. */
bool pst_wire_send(struct pst_wire_socket *wire, const void *bytes, size_t n);
/* The program's next message, if there is one; the caller closes it. Until the program is known, only a
 * message from `program` or a descendant of it counts, and makes its sender known. */
bool pst_wire_recv(struct pst_wire_socket *wire, pid_t program, zmq_msg_t *out);
/* Has the program closed its connection? What it sent before can still be received. A new connection of it is
 * not heard: what was on the way at the time is lost. */
bool pst_wire_is_closed(struct pst_wire_socket *wire);

#endif
