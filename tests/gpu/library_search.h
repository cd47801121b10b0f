/* library_search.h: for tests of the search for a library of NVIDIA's: a folder in place of the system's
 * root, and a library there that has the names of the real one's functions. */
#ifndef PST_TEST_LIBRARY_SEARCH_H
#define PST_TEST_LIBRARY_SEARCH_H

#include <csetjmp>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
extern "C" {
#include <cmocka.h>
}

static std::string root;

static std::string fake(const char *library)
{
    const char *build = getenv("BUILD");
    return std::string(build ? build : "build") + "/tests/gpu/fake/" + library;
}

/* A copy in root/folder. The loader would take a link for the file that it links to. */
static std::string put(const char *library, const std::string &folder)
{
    const std::string to = root + folder;
    const std::string command = "mkdir -p '" + to + "' && cp '" + fake(library) + "' '" + to + "/'";
    assert_int_equal(system(command.c_str()), 0);
    return to + "/" + library;
}

/* The file that has this function. */
static std::string file_of(void *function)
{
    Dl_info info;
    assert_int_not_equal(dladdr(function, &info), 0);
    return info.dli_fname;
}

static int begin(void **)
{
    char name[] = "/tmp/penstock-search-XXXXXX";
    root = mkdtemp(name) ? name : "";
    for (const char *variable :
         {"PENSTOCK_CUBLASLT", "PENSTOCK_NCCL", "CUDA_HOME", "VIRTUAL_ENV", "CONDA_PREFIX", "HOME"})
        unsetenv(variable);
    return root.empty();
}

static int end(void **)
{
    return system(("rm -rf '" + root + "'").c_str());
}

#endif
