/* python.c: runs a module of the Python package in a separate process, for files such as pickles. */
#include "common/store/text/python.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/error.h"

#define TOLD_BYTES 2048 /* of what the program says when it fails */
enum { SELF_BYTES = 3800 };
enum { ARGS_MAX = 64 }; /* of a process that a module replaces */

static pst_rc find_program(char self[SELF_BYTES])
{
    const ssize_t n = readlink("/proc/self/exe", self, SELF_BYTES - 1);
    if (n <= 0)
        return pst_fail_errno("cannot find the path of this program");
    self[n] = '\0';
    return PST_OK;
}

/* The package is beside this program: in the source tree, where make install puts it, or where a wheel has
 * it. */
static pst_rc find_package(const char *module, char out[4096])
{
    static const char *const places[] = {"../../tools/python", "../share/penstock/python", "../../.."};
    char self[SELF_BYTES];
    const pst_rc rc = find_program(self);
    if (rc != PST_OK)
        return rc;
    *strrchr(self, '/') = '\0';
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        char file[4096 + 64];
        (void)snprintf(out, 4096, "%s/%s", self, places[i]);
        (void)snprintf(file, sizeof file, "%s/penstock/%s.py", out, module);
        if (access(file, R_OK) == 0)
            return PST_OK;
    }
    return pst_fail(PST_E_UNSUPPORTED,
                    "Penstock's Python package is missing: it is neither in %s/%s nor in %s/%s", self,
                    places[0], self, places[1]);
}

static const char *interpreter(void)
{
    const char *program = getenv("PENSTOCK_PYTHON");
    return program != NULL && program[0] != '\0' ? program : "python3";
}

/* What the module's process needs of this one. Ctrl-C is for it, too. */
static void prepare(const char *package)
{
    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)setenv("PYTHONPATH", package, 1);
    (void)setenv("PYTHONDONTWRITEBYTECODE", "1", 1);
}

static pst_rc wait_for(pid_t child, const char *program, const char *said)
{
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return pst_fail_errno("cannot wait for %s", program);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return PST_OK;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        return pst_fail(
            PST_E_UNSUPPORTED,
            "cannot start %s: this format needs Python 3 (set PENSTOCK_PYTHON to use another interpreter)",
            program);
    if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGINT || WTERMSIG(status) == SIGTERM))
        return pst_fail(PST_E_INTERRUPTED, "interrupted while %s was running", program);
    if (WIFSIGNALED(status))
        return pst_fail(PST_E_PEER, "%s was killed by signal %d", program, WTERMSIG(status));
    return pst_fail(PST_E_FORMAT, "%s", said[0] != '\0' ? said : "Python could not read the files");
}

pst_rc pst_python_run(const char *module, const char *from, const char *out)
{
    char package[4096], name[128];
    pst_rc rc = find_package(module, package);
    if (rc != PST_OK)
        return rc;
    (void)snprintf(name, sizeof name, "penstock.%s", module);
    const char *program = interpreter();
    char said[TOLD_BYTES] = "";
    int ends[2];
    if (pipe(ends) != 0)
        return pst_fail_errno("cannot create a pipe");
    pid_t child = fork();
    if (child == 0) {
        (void)dup2(ends[1], STDERR_FILENO);
        (void)close(ends[0]);
        (void)close(ends[1]);
        prepare(package);
        (void)execlp(program, program, "-m", name, from, out, (char *)NULL);
        _exit(127);
    }
    (void)close(ends[1]);
    size_t used = 0;
    for (ssize_t n = 1; child > 0 && n > 0;) {
        char more[512];
        n = read(ends[0], more, sizeof more);
        for (ssize_t i = 0; i < n; i++) { /* the end is what tells */
            if (used == sizeof said - 1)
                memmove(said, said + 1, --used);
            said[used++] = more[i];
        }
    }
    (void)close(ends[0]);
    while (used > 0 && said[used - 1] == '\n')
        used--;
    said[used] = '\0';
    return child > 0 ? wait_for(child, program, said) : pst_fail_errno("cannot start %s", program);
}

pst_rc pst_python_become(const char *module, char *const args[])
{
    char package[4096], name[128], self[SELF_BYTES], flag[] = "-m", *argv[ARGS_MAX + 5];
    const char *program = interpreter();
    pst_rc rc = find_package(module, package);
    if (rc == PST_OK)
        rc = find_program(self);
    if (rc != PST_OK)
        return rc;
    int n = 0, given = 0;
    (void)snprintf(name, sizeof name, "penstock.%s", module);
    argv[n++] = (char *)(uintptr_t)program;
    argv[n++] = flag;
    argv[n++] = name;
    argv[n++] = self;
    for (; args[given] != NULL && given < ARGS_MAX; given++)
        argv[n++] = args[given];
    if (args[given] != NULL)
        return pst_fail(PST_E_ARG, "too many arguments: expected at most %d", ARGS_MAX);
    argv[n] = NULL;
    prepare(package);
    (void)execvp(program, argv);
    return pst_fail(
        PST_E_UNSUPPORTED,
        "cannot start %s: %s; this needs Python 3 (set PENSTOCK_PYTHON to use another interpreter)", program,
        strerror(errno));
}
