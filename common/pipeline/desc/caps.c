/* caps.c: installed stages, and the descriptions of shared objects. */
#include "common/pipeline/desc/caps.h"

#include <dirent.h>
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/pipeline/desc/builtin.h"
#include "common/pipeline/desc/caps_impl.h"
#include "common/pipeline/desc/desc.h"
#include "common/util/install.h"
#include "common/util/subprocess.h"

#define LOAD_DEADLINE_MS 10000 /* large libraries on a cold disk */
#define LISTED_MAX ((size_t)PST_STAGES_MAX * 4)

/* ---- what is installed ----------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_object(const char *file)
{
    const size_t n = strlen(file);
    return n > 3 && strcmp(file + n - 3, ".so") == 0;
}

/* The bytes of a file's name without its extension; 0: a stage has no such name. */
static size_t stem_bytes(const char *file)
{
    const char *dot = strrchr(file, '.');
    return dot == file ? 0 : dot ? (size_t)(dot - file) : strlen(file);
}

/* Is it the shared object or the program of a stage? */
static bool is_stage_file(const char *dir, const char *file)
{
    char path[PST_PATH_MAX];
    struct stat st;
    if (stem_bytes(file) == 0 || snprintf(path, sizeof path, "%s/%s", dir, file) >= (int)sizeof path)
        return false;
    return is_object(file) || (stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0);
}

static bool is_listed(char *const *list, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i], name) == 0)
            return true;
    return false;
}

/* Adds the names of the stages in a directory to a list of n. */
static pst_rc list_dir(const char *dir, char **list, size_t *n)
{
    DIR *d = opendir(dir);
    if (!d)
        return pst_fail_errno("cannot list the installed stages in %s", dir);
    for (struct dirent *e; *n < LISTED_MAX && (e = readdir(d));) {
        char *name = is_stage_file(dir, e->d_name) ? strndup(e->d_name, stem_bytes(e->d_name)) : NULL;
        if (name && !is_listed(list, *n, name))
            list[(*n)++] = name;
        else
            free(name);
    }
    (void)closedir(d);
    return PST_OK;
}

pst_rc pst_caps_list(char ***names, size_t *n)
{
    char dir[PST_PATH_MAX];
    *names = NULL;
    *n = 0;
    char **list = calloc(LISTED_MAX, sizeof *list);
    if (!list)
        return pst_fail(PST_E_NOMEM, "out of memory");
    pst_rc rc = PST_OK;
    for (int i = 0; rc == PST_OK && (rc = pst_install_stage_dir(i, dir)) == PST_OK && dir[0]; i++)
        rc = list_dir(dir, list, n);
    if (rc != PST_OK) {
        for (size_t i = 0; i < *n; i++)
            free(list[i]);
        free(list);
        return rc;
    }
    qsort(list, *n, sizeof *list, by_name);
    *names = list;
    return PST_OK;
}

/* Finds the file of a stage in a directory: NAME.so, or else the first program NAME or NAME.extension. */
static bool find_in_dir(const char *dir, const char *name, char out[PST_PATH_MAX])
{
    const size_t bytes = strlen(name);
    char best[NAME_MAX + 1] = "";
    if (snprintf(out, PST_PATH_MAX, "%s/%s.so", dir, name) >= PST_PATH_MAX)
        return false;
    if (access(out, F_OK) == 0)
        return true;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));)
        if (stem_bytes(e->d_name) == bytes && memcmp(e->d_name, name, bytes) == 0 &&
            is_stage_file(dir, e->d_name) && (!best[0] || strcmp(e->d_name, best) < 0))
            (void)snprintf(best, sizeof best, "%s", e->d_name);
    if (d)
        (void)closedir(d);
    return best[0] && snprintf(out, PST_PATH_MAX, "%s/%s", dir, best) < PST_PATH_MAX;
}

/* ---- loading --------------------------------------------------------------------------------- */

/* The dynamic loader maps what the program headers say and trusts that the file is as long: with a file that
 * was cut off it would die of SIGBUS. */
static pst_rc check_elf(const char *file)
{
    Elf64_Ehdr eh = {0};
    Elf64_Phdr ph = {0};
    struct stat st;
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe is not waited for */
    if (fd < 0)
        return pst_fail_errno("cannot open stage %s", file);
    pst_rc rc = PST_OK;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || pread(fd, &eh, sizeof eh, 0) != (ssize_t)sizeof eh ||
        memcmp(eh.e_ident, ELFMAG, SELFMAG) != 0 || eh.e_ident[EI_CLASS] != ELFCLASS64 ||
        eh.e_type != ET_DYN || eh.e_phentsize != sizeof ph)
        rc = pst_fail(PST_E_FORMAT, "%s: expected a shared object (.so), found another kind of file", file);
    for (int i = 0; rc == PST_OK && i < eh.e_phnum; i++)
        if (eh.e_phoff > INT64_MAX / 2 ||
            pread(fd, &ph, sizeof ph, (off_t)(eh.e_phoff + (uint64_t)i * sizeof ph)) != (ssize_t)sizeof ph ||
            ph.p_offset > (uint64_t)st.st_size ||
            (ph.p_type == PT_LOAD && ph.p_filesz > (uint64_t)st.st_size - ph.p_offset))
            rc = pst_fail(PST_E_FORMAT, "%s: the shared object is truncated: the file has only %lld bytes",
                          file, (long long)st.st_size);
    (void)close(fd);
    return rc;
}

/* A shared object gets its parameters only by PST_INTO. One that has a single choice need not be stored. */
static pst_rc check_stored(const struct pst_stage_desc *desc, const char *file)
{
    for (const struct pst_param_desc *p = desc->params; p && p->name; p++)
        if (p->into.kind == PST_INTO_NOTHING && !(p->type == PST_PARAM_ENUM && !strchr(p->choices, '|')))
            return pst_fail(PST_E_FORMAT,
                            "%s: parameter %s is not stored in the stage's state: add .into = PST_INTO(...)",
                            file, p->name);
    return PST_OK;
}

static void load_and_forget(const char *file)
{
    (void)dlopen(file, RTLD_NOW | RTLD_LOCAL); /* if it fails, load_native fails too and says why */
}

/* Loading runs constructors, which may hang, crash or exit: does it in another process first. */
static pst_rc try_load(const char *file)
{
    void *loaded = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    if (loaded)
        return PST_OK;
    return pst_subprocess_try("loading", load_and_forget, file, LOAD_DEADLINE_MS);
}

static pst_rc load_native(struct pst_caps *caps, bool tried)
{
    pst_rc rc = check_elf(caps->file);
    if (rc == PST_OK && !tried)
        rc = try_load(caps->file);
    if (rc != PST_OK)
        return rc;
    /* never closed: libraries that stages pull in (OpenMP) do not survive being unmapped */
    caps->handle = dlopen(caps->file, RTLD_NOW | RTLD_LOCAL);
    if (!caps->handle)
        return pst_fail(PST_E_FORMAT, "cannot load stage: %s", dlerror());
    caps->desc = dlsym(caps->handle, "pst_stage");
    if (!caps->desc)
        return pst_fail(PST_E_FORMAT, "%s is not a stage: the symbol pst_stage is missing", caps->file);
    const struct pst_stage_desc *d = caps->desc;
    if (d->abi == PST_STAGE_ABI && !d->on_event)
        return pst_fail(PST_E_FORMAT, "%s is not a stage: its description lacks the function on_event",
                        caps->file);
    rc = pst_desc_check(d, caps->file);
    return rc == PST_OK ? check_stored(d, caps->file) : rc;
}

static pst_rc find_file(struct pst_caps *caps, const char *base_dir, char out[PST_PATH_MAX])
{
    if (!strchr(caps->run, '/')) {
        char dir[PST_PATH_MAX];
        pst_rc rc = PST_OK;
        for (int i = 0; (rc = pst_install_stage_dir(i, dir)) == PST_OK && dir[0]; i++)
            if (find_in_dir(dir, caps->run, out))
                return PST_OK;
        return rc == PST_OK ? pst_fail(PST_E_ARG, "no stage with this name is installed") : rc;
    }
    (void)snprintf(out, PST_PATH_MAX, "%s", caps->run);
    if (access(out, F_OK) == 0 || caps->run[0] == '/' || !base_dir || strcmp(base_dir, ".") == 0)
        return PST_OK;
    const char *name = caps->run;
    while (strncmp(name, "./", 2) == 0)
        name += 2;
    (void)snprintf(out, PST_PATH_MAX, "%s/%s", base_dir, name);
    return PST_OK;
}

static pst_rc load(struct pst_caps *caps, const char *run, const char *base_dir, bool tried)
{
    memset(caps, 0, sizeof *caps);
    caps->run = strdup(run);
    if (!caps->run)
        return pst_fail(PST_E_NOMEM, "out of memory");
    caps->desc = pst_builtin(run);
    if (caps->desc)
        return PST_OK;
    char file[PST_PATH_MAX];
    pst_rc rc = find_file(caps, base_dir, file);
    if (rc != PST_OK)
        return rc;
    caps->file = realpath(file, NULL);
    if (!caps->file)
        return pst_fail_errno("cannot open stage %s", file);
    if (is_object(caps->file))
        return load_native(caps, tried);
    if (access(caps->file, X_OK) != 0)
        return pst_fail_errno("stage %s is neither a shared object (.so) nor executable", caps->file);
    return pst_caps_load_foreign(caps);
}

pst_rc pst_caps_load(struct pst_caps *caps, const char *run, const char *base_dir)
{
    return load(caps, run, base_dir, false);
}

pst_rc pst_caps_load_tried(struct pst_caps *caps, const char *run, const char *base_dir)
{
    return load(caps, run, base_dir, true);
}

void pst_caps_release(struct pst_caps *caps)
{
    if (caps->foreign)
        pst_desc_free(caps->desc);
    json_decref(caps->described);
    free(caps->run);
    free(caps->file);
    memset(caps, 0, sizeof *caps);
}
