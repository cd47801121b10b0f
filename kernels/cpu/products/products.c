/* products.c: opens libpenstock-onednn.so, which names oneDNN. */
#include "kernels/cpu/products/products.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base.h"

#define ONEDNN "libpenstock-onednn.so" /* beside this library */

/* The library is named by its full path: a sanitizer's dlopen does not know the paths of the library that
 * calls it. */
static void *open_beside(void)
{
    static const char own;
    Dl_info self;
    char path[PST_PATH_MAX];
    const char *slash = dladdr(&own, &self) ? strrchr(self.dli_fname, '/') : NULL;
    const int folder = slash ? (int)(slash - self.dli_fname + 1) : 0;
    if (snprintf(path, sizeof path, "%.*s%s", folder, slash ? self.dli_fname : "", ONEDNN) >=
        (int)sizeof path)
        return NULL;
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

void *pst_products_load(const char *symbol)
{
    void *library = open_beside();
    void *found = library ? dlsym(library, symbol) : NULL;
    if (found)
        return found;
    const char *why = dlerror();
    fprintf(stderr, "cannot load oneDNN, which multiplies matrices: %s\n",
            why ? why : "its path is too long");
    abort();
}
