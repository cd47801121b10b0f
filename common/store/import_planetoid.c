/* Planetoid's pickles: the Python package reads them, with a list of what they may name, in a process of its
 * own. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../error.h"
#include "formats.h"
#include "import_parts.h"

#define TOLD_BYTES 2048 /* of what the program says when it fails */

/* The package is beside this program: in the source tree, or where make install puts it. */
static pst_rc find_package(char out[4096])
{
    static const char *const places[] = {"../../tools/python", "../share/penstock/python"};
    char self[3800];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0)
        return pst_fail_errno("cannot tell where this program is");
    self[n] = '\0';
    *strrchr(self, '/') = '\0';
    for (int i = 0; i < 2; i++) {
        char module[4096 + 64];
        (void)snprintf(out, 4096, "%s/%s", self, places[i]);
        (void)snprintf(module, sizeof module, "%s/penstock/planetoid.py", out);
        if (access(module, R_OK) == 0)
            return PST_OK;
    }
    return pst_fail(PST_E_UNSUPPORTED, "Penstock's Python package is neither in %s/%s nor in %s/%s", self,
                    places[0], self, places[1]);
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
        return pst_fail(PST_E_UNSUPPORTED,
                        "cannot start %s: planetoid needs Python 3 (PENSTOCK_PYTHON names another)", program);
    if (WIFSIGNALED(status))
        return pst_fail(PST_E_PEER, "%s was ended by signal %d", program, WTERMSIG(status));
    return pst_fail(PST_E_FORMAT, "%s", said[0] != '\0' ? said : "planetoid: the files could not be read");
}

static pst_rc run_python(const char *package, const char *prefix, const char *out)
{
    const char *program = getenv("PENSTOCK_PYTHON");
    char said[TOLD_BYTES] = "";
    int ends[2];
    program = program != NULL && program[0] != '\0' ? program : "python3";
    if (pipe(ends) != 0)
        return pst_fail_errno("cannot make a pipe");
    pid_t child = fork();
    if (child == 0) {
        (void)dup2(ends[1], STDERR_FILENO);
        (void)close(ends[0]);
        (void)close(ends[1]);
        (void)setenv("PYTHONPATH", package, 1);
        (void)setenv("PYTHONDONTWRITEBYTECODE", "1", 1);
        (void)execlp(program, program, "-m", "penstock.planetoid", prefix, out, (char *)NULL);
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

/* The columns that the matrices have, where the last of them may be empty. */
static pst_rc read_shape(struct pst_import_job *job, const char *prefix)
{
    char path[4096 + 32];
    struct pst_array shape;
    (void)snprintf(path, sizeof path, "%sshape.npy", prefix);
    pst_rc rc = pst_array_open(&shape, path);
    if (rc == PST_OK)
        rc = pst_array_map(&shape);
    if (rc == PST_OK) {
        job->spec.vertices = pst_int_at(&shape, 0);
        job->spec.feature_dim = pst_int_at(&shape, 1);
    }
    pst_array_close(&shape);
    return rc;
}

pst_rc pst_import_planetoid(struct pst_import_job *job)
{
    static const char *const files[PST_SOURCES] = {[PST_SRC_EDGES] = "edges",
                                                   [PST_SRC_FEAT_INDPTR] = "feat_indptr",
                                                   [PST_SRC_FEAT_INDICES] = "feat_indices",
                                                   [PST_SRC_FEAT_DATA] = "feat_data",
                                                   [PST_SRC_LABELS] = "labels",
                                                   [PST_SRC_TRAIN] = "train_idx",
                                                   [PST_SRC_VAL] = "val_idx",
                                                   [PST_SRC_TEST] = "test_idx"};
    char package[4096], temp[4096];
    const char *dot = strrchr(job->from, '.');
    if (job->spec.name[0] == '\0' && dot != NULL && strchr(dot, '/') == NULL && dot[1] != '\0')
        (void)snprintf(job->spec.name, sizeof job->spec.name, "%s", dot + 1);
    pst_import_name(&job->spec, job->from);
    pst_build_temp(job->build, "", temp);
    temp[strlen(temp) - strlen(".npy")] = '\0';
    pst_rc rc = find_package(package);
    if (rc == PST_OK)
        rc = run_python(package, job->from, temp);
    if (rc == PST_OK)
        rc = read_shape(job, temp);
    for (unsigned i = 0; i < PST_SOURCES && rc == PST_OK; i++) {
        if (files[i] == NULL || job->spec.source[i][0] != '\0' || job->skip[i])
            continue;
        if ((size_t)snprintf(job->spec.source[i], sizeof job->spec.source[i], "%s%s.npy", temp, files[i]) >=
            sizeof job->spec.source[i])
            rc = pst_fail(PST_E_LIMIT, "%s: the path is too long", temp);
    }
    return rc == PST_OK ? pst_import(&job->spec, job->build, job->result, job->progress) : rc;
}
