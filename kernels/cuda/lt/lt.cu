/* lt.cu: finds and opens cuBLASLt (lt.cuh). */
#include "kernels/cuda/lt/lt.cuh"
#include "kernels/twin.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <glob.h>
#include <mutex>

namespace
{
#define TEXT_OF(number) #number
#define LIBRARY_OF(major) "libcublasLt.so." TEXT_OF(major)
#define LIBRARY LIBRARY_OF(CUBLAS_VER_MAJOR) /* another major version may have another interface */

/* Folders, relative to a root. An asterisk stands for any name. */
constexpr const char *TOOLKIT_FOLDERS[] = {"lib64", "lib", "targets/x86_64-linux/lib"};
constexpr const char *SYSTEM_TOOLKIT = "/usr/local/cuda";
constexpr const char *PYTHON_FOLDERS[] = {"lib/python3*/site-packages/nvidia/*/lib",
                                          "lib/python3*/dist-packages/nvidia/*/lib",
                                          "lib/python3/dist-packages/nvidia/*/lib"};
constexpr const char *PYTHON_ROOTS[] = {"/usr", "/usr/local", "/opt/*"};
constexpr const char *USER_FOLDERS[] = {".local/lib/python3*/site-packages/nvidia/*/lib"};

void *open_file(const char *path)
{
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

/* Opens the first file that matches before/folder/library and is a library. */
void *open_in(const char *root, const char *before, const char *folder, const char *library)
{
    char pattern[PST_PATH_MAX];
    void *object = NULL;
    glob_t found = {};
    if ((size_t)snprintf(pattern, sizeof pattern, "%s%s/%s/%s", root, before, folder, library) >=
        sizeof pattern)
        return NULL;
    if (glob(pattern, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc && !object; i++)
            object = open_file(found.gl_pathv[i]);
    globfree(&found);
    return object;
}

template <size_t N>
void *open_in_each(const char *root, const char *before, const char *const (&folders)[N], const char *library)
{
    void *object = NULL;
    for (size_t i = 0; i < N && !object; i++)
        object = open_in(root, before, folders[i], library);
    return object;
}

/* The folders of an installation that the user has chosen. */
template <size_t N>
void *open_in_chosen(const char *variable, const char *const (&folders)[N], const char *library)
{
    const char *chosen = getenv(variable);
    return chosen && *chosen ? open_in_each("", chosen, folders, library) : NULL;
}

void *search(const char *root, const char *library)
{
    void *object = *root ? NULL : open_file(library); /* a test must not find this machine's */
    object = object ? object : open_in_chosen("CUDA_HOME", TOOLKIT_FOLDERS, library);
    object = object ? object : open_in_each(root, SYSTEM_TOOLKIT, TOOLKIT_FOLDERS, library);
    object = object ? object : open_in_chosen("VIRTUAL_ENV", PYTHON_FOLDERS, library);
    object = object ? object : open_in_chosen("CONDA_PREFIX", PYTHON_FOLDERS, library);
    object = object ? object : open_in_chosen("HOME", USER_FOLDERS, library);
    for (const char *before : PYTHON_ROOTS)
        object = object ? object : open_in_each(root, before, PYTHON_FOLDERS, library);
    return object;
}

#ifdef PST_HOST_BUILD
const struct pst_cu_lt LINKED = {
#define PST_CU_LT_MEMBER(name) cublasLt##name,
    PST_CU_LT_CALLS(PST_CU_LT_MEMBER)
#undef PST_CU_LT_MEMBER
};
#endif
} // namespace

bool pst_cu_lt_load(const char *root, const struct pst_cu_lt_library *library, const char *const *names,
                    int n, void **functions, char *why)
{
    const char *given = library->given, *lacks = NULL;
    void *object = given ? open_file(given) : search(root, library->file);
    if (!object && given) {
        const char *reason = dlerror();
        (void)snprintf(why, PST_TWIN_WHY_BYTES, "%s names a file that cannot be opened: %s",
                       library->variable, reason ? reason : given);
    } else if (!object) {
        (void)snprintf(why, PST_TWIN_WHY_BYTES,
                       "cannot find %s on the loader's path, in the CUDA toolkit or in Python's packages; %s "
                       "this library: set %s to its path",
                       library->file, library->purpose, library->variable);
    }
    for (int i = 0; object && i < n && !lacks; i++) {
        functions[i] = dlsym(object, names[i]);
        lacks = functions[i] ? NULL : names[i];
    }
    if (!lacks)
        return object != NULL;
    (void)snprintf(why, PST_TWIN_WHY_BYTES, "%s is not %s, because it has no function %s",
                   given ? given : library->file, library->name, lacks);
    (void)dlclose(object);
    return false;
}

bool pst_cu_lt_find(const char *root, struct pst_cu_lt *out, char *why)
{
    const struct pst_cu_lt_library library = {"cuBLASLt", LIBRARY, "matrix products need",
                                              "PENSTOCK_CUBLASLT", getenv("PENSTOCK_CUBLASLT")};
    static const char *const NAMES[] = {
#define PST_CU_LT_MEMBER(name) "cublasLt" #name,
        PST_CU_LT_CALLS(PST_CU_LT_MEMBER)
#undef PST_CU_LT_MEMBER
    };
    constexpr int N = sizeof NAMES / sizeof *NAMES;
    static_assert(sizeof *out == sizeof(void *[N]));
    void *functions[N];
    const bool found = pst_cu_lt_load(root, &library, NAMES, N, functions, why);
    if (found)
        memcpy(out, functions, sizeof *out);
    return found;
}

const struct pst_cu_lt *pst_cu_lt_open(char *why)
{
#ifdef PST_HOST_BUILD
    (void)why;
    return &LINKED;
#else
    static std::mutex once;
    static struct pst_cu_lt table;
    static bool found;
    const std::lock_guard<std::mutex> lock(once);
    found = found || pst_cu_lt_find("", &table, why);
    return found ? &table : NULL;
#endif
}
