/* penstock-nvme.c: serves emulated NVMe controllers, at a socket or to the process that started it.
 *
 *   penstock-nvme --socket NAME CONFIG            serve at the abstract socket NAME until a signal comes
 *   penstock-nvme --listen FD --ready FD CONFIG   as common/nvme/emulated/client.c starts it
 *
 * CONFIG is JSON text, or the path of a file with it; common/nvme/emulated/README.md has its keys. */
#include <errno.h>
#include <getopt.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/error.h"
#include "common/nvme/emulated/server.h"
#include "common/util/file.h"

#define CONFIG_BYTES_MAX (1u << 20)

/* A buffer that is freed stays with the process, so that the next one costs no page faults: these took as
 * long as the copies. As large as the buffers that may be in use, and as glibc allows for one of them. */
#define KEPT_BYTES (64 << 20)
#define BUFFER_BYTES (32 << 20)

static struct pst_emu *running; /* what a signal stops */

static void on_signal(int signal)
{
    (void)signal;
    pst_emu_stop(running);
}

static pst_rc serve_at(const char *socket_name, int *listener)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    const size_t n = strlen(socket_name);
    if (n == 0 || n > sizeof name.sun_path - 1)
        return pst_fail(PST_E_ARG, "expected a socket name of 1 to %zu bytes", sizeof name.sun_path - 1);
    memcpy(name.sun_path + 1, socket_name, n);
    *listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (*listener < 0 ||
        bind(*listener, (struct sockaddr *)&name,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n)) != 0 ||
        listen(*listener, 64) != 0)
        return pst_fail_errno("cannot listen at \"%s\"", socket_name);
    return PST_OK;
}

/* Text that begins with a brace is JSON; other text is a path. */
static pst_rc read_config(const char *argument, char **text)
{
    *text = argument[0] == '{' ? strdup(argument) : calloc(1, CONFIG_BYTES_MAX);
    if (*text == NULL)
        return pst_fail(PST_E_NOMEM, "out of memory: cannot allocate the configuration");
    if (argument[0] == '{')
        return PST_OK;
    FILE *f = fopen(argument, "re");
    if (f == NULL)
        return pst_fail_errno("cannot open %s", argument);
    const size_t n = fread(*text, 1, CONFIG_BYTES_MAX - 1, f);
    const bool bad = ferror(f) != 0 || n == CONFIG_BYTES_MAX - 1;
    (void)fclose(f);
    return bad ? pst_fail(PST_E_IO, "cannot read the configuration file %s, or it is too long", argument)
               : PST_OK;
}

static pst_rc run(const char *argument, const char *socket_name, int listener, int ready)
{
    char *text = NULL;
    (void)mallopt(M_TRIM_THRESHOLD, KEPT_BYTES);
    (void)mallopt(M_MMAP_THRESHOLD, BUFFER_BYTES);
    pst_rc rc = read_config(argument, &text);
    rc = rc == PST_OK ? pst_emu_new(&running, text) : rc;
    if (rc == PST_OK && socket_name != NULL)
        rc = serve_at(socket_name, &listener);
    if (rc == PST_OK) {
        struct sigaction action = {.sa_handler = on_signal};
        (void)sigaction(SIGTERM, &action, NULL);
        (void)sigaction(SIGINT, &action, NULL);
        rc = pst_emu_serve(running, listener, ready);
    }
    pst_emu_free(running);
    free(text);
    return rc;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"socket", required_argument, NULL, 's'},
                                            {"listen", required_argument, NULL, 'l'},
                                            {"ready", required_argument, NULL, 'r'},
                                            {0}};
    const char *socket_name = NULL;
    int listener = -1, ready = -1, c;
    pst_file_open_std();
    while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0) {
        if (c == 's')
            socket_name = optarg;
        else if (c == 'l')
            listener = (int)strtol(optarg, NULL, 10);
        else if (c == 'r')
            ready = (int)strtol(optarg, NULL, 10);
        else
            return 2;
    }
    if (optind + 1 != argc || (socket_name == NULL) == (listener < 0)) {
        fprintf(stderr, "usage: penstock-nvme --socket NAME CONFIG\n");
        return 2;
    }
    pst_rc rc = run(argv[optind], socket_name, listener, ready);
    if (rc == PST_OK)
        return 0;
    if (ready < 0 || write(ready, pst_error_text(), strlen(pst_error_text())) < 0)
        fprintf(stderr, "penstock-nvme: %s\n", pst_error_text());
    return 1;
}
