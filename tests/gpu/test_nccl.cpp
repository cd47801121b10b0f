/* Where NCCL is searched for (kernels/cuda/nccl), with a library that has its names in place of the real one,
 * and what is said if it cannot be had. */
#include "kernels/cuda/lt/lt.cu"
#include "kernels/cuda/nccl/nccl.cu"

#include "tests/gpu/library_search.h"

void pst_cu_refuse(struct pst_queue *, pst_rc, const char *, size_t, size_t)
{
    fail(); /* nothing is added up here */
}

namespace
{
const char LIBRARY_FILE[] = "libnccl.so.2";

/* The file of the library that the search finds; with a "!", why there is none. */
std::string found()
{
    struct pst_cu_nccl nccl = {};
    char why[PST_TWIN_WHY_BYTES] = "";
    return pst_cu_nccl_find(root.c_str(), &nccl, why) ? file_of((void *)nccl.AllReduce)
                                                      : std::string("!") + why;
}

void nowhere(void **)
{
    const std::string why = found();
    for (const char *part : {"!cannot find libnccl.so.2", "PENSTOCK_NCCL"})
        assert_non_null(strstr(why.c_str(), part));
}

void in_pythons_packages(void **)
{
    const std::string at = put(LIBRARY_FILE, "/usr/local/lib/python3.12/dist-packages/nvidia/nccl/lib");
    assert_string_equal(found().c_str(), at.c_str());
}

void only_what_the_user_names(void **)
{
    setenv("PENSTOCK_NCCL", (root + "/missing.so").c_str(), 1);
    std::string why = found();
    assert_non_null(strstr(why.c_str(), "!PENSTOCK_NCCL names a file that cannot be opened"));
    setenv("PENSTOCK_NCCL", "libm.so.6", 1);
    why = found();
    assert_non_null(strstr(why.c_str(), "!libm.so.6 is not NCCL, because it has no function nccl"));
    setenv("PENSTOCK_NCCL", fake(LIBRARY_FILE).c_str(), 1);
    assert_string_equal(found().c_str(), fake(LIBRARY_FILE).c_str());
}
} // namespace

int main()
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nowhere, begin, end),
        cmocka_unit_test_setup_teardown(in_pythons_packages, begin, end),
        cmocka_unit_test_setup_teardown(only_what_the_user_names, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
