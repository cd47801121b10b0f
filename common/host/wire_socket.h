/* wire_socket.h: the bridge's end of the wire protocol: one socket, and one program at its other end.
 * Messages of others are ignored. Over ipc the program is known by its process, over tcp by its CURVE key.
 * Owner: the caller. Threads: one; over tcp one more, which only checks keys. */
#ifndef PST_WIRE_SOCKET_H
#define PST_WIRE_SOCKET_H

#include <pthread.h>
#include <sys/types.h>
#include <zmq.h>

#include "common/base.h"

#define PST_WIRE_MAX_BYTES (1 << 20) /* one message; slots travel by reference */
/* ZeroMQ closes a connection silently if a message is larger than this. It is far above PST_WIRE_MAX_BYTES,
 * so that the bridge sees a message that is too large, and says so. */
#define PST_WIRE_DROP_BYTES (1 << 30)
#define PST_WIRE_KEY_MAX 41 /* a CURVE key as Z85 text */

struct pst_wire_socket {
    void *socket, *monitor;          /* both wake who polls them */
    char endpoint[256];              /* what the program connects to */
    char keys[3 * PST_WIRE_KEY_MAX]; /* tcp: "SERVER PUBLIC SECRET": the server's public key, and the
                                        program's two keys */
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

/* Listens at `endpoint`: ipc://... accepts only processes of this user, tcp://... only clients that have the
 * keys.
 */
PST_MUST_USE pst_rc pst_wire_open(struct pst_wire_socket *wire, void *zmq, const char *endpoint);
void pst_wire_close(struct pst_wire_socket *wire, void *zmq);

/* False, with errno: it cannot be sent. */
bool pst_wire_send(struct pst_wire_socket *wire, const void *bytes, size_t n);
/* The program's next message, if there is one; the caller closes it. As long as the program is not known,
 * only a message of the process `program` or of its descendants counts. From then on only its sender is
 * heard. */
bool pst_wire_recv(struct pst_wire_socket *wire, pid_t program, zmq_msg_t *out);
/* Has the program closed its connection? What it sent before can still be received. It cannot connect again,
 * because messages that were on their way are lost. */
bool pst_wire_is_closed(struct pst_wire_socket *wire);

#endif
