/* twin.c: finds and opens CUDA's table of kernels (twin.h). */
#include "kernels/twin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The path of another file in this library's folder. */
static bool beside(const char *file, char *path, size_t bytes)
{
    Dl_info info;
    if (dladdr((const void *)pst_twin_open, &info) == 0 || info.dli_fname == NULL)
        return false;
    const char *slash = strrchr(info.dli_fname, '/');
    const int folder = slash ? (int)(slash - info.dli_fname) : 1;
    return (size_t)snprintf(path, bytes, "%.*s/%s", folder, slash ? info.dli_fname : ".", file) < bytes;
}

const struct pst_twin *pst_twin_open(const char *path, char *why)
{
    char own[PST_PATH_MAX];
    if (path == NULL)
        path = getenv("PENSTOCK_CUDA");
    if (path == NULL) {
        if (!beside("libpenstock-cuda.so", own, sizeof own)) {
            (void)snprintf(why, PST_TWIN_WHY_BYTES, "cannot find the directory of Penstock's libraries");
            return NULL;
        }
        path = own;
    }
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (object == NULL) {
        (void)snprintf(why, PST_TWIN_WHY_BYTES, "%s", dlerror());
        return NULL;
    }
    pst_twin_fn table;
    *(void **)&table = dlsym(object, PST_TWIN_SYMBOL);
    if (table && table()->bytes == sizeof(struct pst_twin))
        return table();
    (void)snprintf(why, PST_TWIN_WHY_BYTES,
                   "%.*s was built together with another version of Penstock: build it again",
                   PST_TWIN_WHY_BYTES - 80, path);
    (void)dlclose(object);
    return NULL;
}
