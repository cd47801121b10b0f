/* emulated_wire.c: sends and receives messages with descriptors. */
#include "common/nvme/emulated/emulated_wire.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/error.h"

union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int))];
};

pst_rc pst_emu_send(int socket, const struct pst_emu_message *message, int fd)
{
    struct iovec iov = {(void *)(uintptr_t)message, sizeof *message};
    union control control = {0};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    if (fd >= 0) {
        msg.msg_control = control.bytes;
        msg.msg_controllen = sizeof control.bytes;
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    ssize_t n;
    do
        n = sendmsg(socket, &msg, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof *message
               ? PST_OK
               : pst_fail(PST_E_PEER, "cannot send a message to the emulated controller or its client: %s",
                          strerror(errno));
}

pst_rc pst_emu_receive(int socket, struct pst_emu_message *message, int *fd)
{
    struct iovec iov = {message, sizeof *message};
    union control control;
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.bytes,
                         .msg_controllen = sizeof control.bytes};
    *fd = -1;
    ssize_t n;
    do
        n = recvmsg(socket, &msg, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&msg) : NULL;
    if (c != NULL && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
        c->cmsg_len == CMSG_LEN(sizeof *fd))
        memcpy(fd, CMSG_DATA(c), sizeof *fd);
    if (n == (ssize_t)sizeof *message) {
        message->text[sizeof message->text - 1] = '\0';
        return PST_OK;
    }
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return pst_fail(PST_E_TIMEOUT, "the emulated controller or its client did not answer in time");
    return pst_fail(PST_E_PEER, "%s",
                    n < 0 ? strerror(errno) : "the emulated controller or its client closed the connection");
}
