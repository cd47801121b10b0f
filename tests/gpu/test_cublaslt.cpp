/* Where cuBLASLt is searched for (kernels/cuda/lt), with a library that has its names in place of the real
 * one. */
#include "kernels/cuda/lt/lt.cu"

#include "tests/gpu/library_search.h"

namespace
{
const char LIBRARY_FILE[] = "libcublasLt.so.13";

std::string put(const std::string &folder)
{
    return ::put(LIBRARY_FILE, folder);
}

/* The file of the library that the search finds; with a "!", why there is none. */
std::string found()
{
    struct pst_cu_lt lt = {};
    char why[PST_TWIN_WHY_BYTES] = "";
    return pst_cu_lt_find(root.c_str(), &lt, why) ? file_of((void *)lt.Matmul) : std::string("!") + why;
}

void nowhere(void **)
{
    const std::string why = found();
    for (const char *part : {"!cannot find libcublasLt.so.13", "PENSTOCK_CUBLASLT"})
        assert_non_null(strstr(why.c_str(), part));
}

void in_pythons_packages(void **)
{
    const std::string at = put("/usr/local/lib/python3.12/dist-packages/nvidia/cu13/lib");
    assert_string_equal(found().c_str(), at.c_str());
    const std::string mine = put("/venv/lib/python3.11/site-packages/nvidia/cublas/lib");
    setenv("VIRTUAL_ENV", (root + "/venv").c_str(), 1);
    assert_string_equal(found().c_str(), mine.c_str());
}

void the_toolkit_comes_first(void **)
{
    (void)put("/usr/lib/python3/dist-packages/nvidia/cu13/lib");
    const std::string at = put("/usr/local/cuda/lib64");
    assert_string_equal(found().c_str(), at.c_str());
    const std::string chosen = put("/toolkit/targets/x86_64-linux/lib");
    setenv("CUDA_HOME", (root + "/toolkit").c_str(), 1);
    assert_string_equal(found().c_str(), chosen.c_str());
}

void a_broken_file_is_passed_over(void **)
{
    const std::string broken = put("/usr/local/cuda/lib64"), at = put("/usr/local/cuda/lib");
    assert_int_equal(truncate(broken.c_str(), 100), 0);
    assert_string_equal(found().c_str(), at.c_str());
}

void only_what_the_user_names(void **)
{
    (void)put("/usr/local/cuda/lib64");
    setenv("PENSTOCK_CUBLASLT", (root + "/missing.so").c_str(), 1);
    std::string why = found();
    assert_non_null(strstr(why.c_str(), "!PENSTOCK_CUBLASLT names a file that cannot be opened"));
    assert_non_null(strstr(why.c_str(), "missing.so"));
    setenv("PENSTOCK_CUBLASLT", "libm.so.6", 1);
    why = found();
    assert_non_null(strstr(why.c_str(), "!libm.so.6 is not cuBLASLt, because it has no function cublasLt"));
    const std::string at = put("/elsewhere");
    setenv("PENSTOCK_CUBLASLT", at.c_str(), 1);
    assert_string_equal(found().c_str(), at.c_str());
}
} // namespace

int main()
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nowhere, begin, end),
        cmocka_unit_test_setup_teardown(in_pythons_packages, begin, end),
        cmocka_unit_test_setup_teardown(the_toolkit_comes_first, begin, end),
        cmocka_unit_test_setup_teardown(a_broken_file_is_passed_over, begin, end),
        cmocka_unit_test_setup_teardown(only_what_the_user_names, begin, end),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
