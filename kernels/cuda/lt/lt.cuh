/* lt.cuh: cuBLASLt's functions. The library is large (half a gigabyte), and only products of matrices need
 * it. So nothing is linked to it: it is opened when a process makes the first queue with products. Owner: the
 * table is never freed. Threads: any. */
#ifndef PST_LT_CUH
#define PST_LT_CUH

#include <cublasLt.h>

/* The functions that gemm.cu, queue.cu and plans.cu call: cublasLtCreate and so on. */
#define PST_CU_LT_CALLS(CALL)                                                                                \
    CALL(Create)                                                                                             \
    CALL(Destroy)                                                                                            \
    CALL(MatmulDescCreate)                                                                                   \
    CALL(MatmulDescDestroy)                                                                                  \
    CALL(MatmulDescSetAttribute)                                                                             \
    CALL(MatrixLayoutCreate)                                                                                 \
    CALL(MatrixLayoutDestroy)                                                                                \
    CALL(MatrixLayoutSetAttribute)                                                                           \
    CALL(MatmulPreferenceCreate)                                                                             \
    CALL(MatmulPreferenceDestroy)                                                                            \
    CALL(MatmulPreferenceSetAttribute)                                                                       \
    CALL(MatmulAlgoGetHeuristic)                                                                             \
    CALL(MatmulAlgoCheck)                                                                                    \
    CALL(Matmul)

struct pst_cu_lt {
#define PST_CU_LT_MEMBER(name) decltype(&cublasLt##name) name;
    PST_CU_LT_CALLS(PST_CU_LT_MEMBER)
#undef PST_CU_LT_MEMBER
};

/* The table. NULL: the library was not found or is no cuBLASLt; the reason is in why (PST_TWIN_WHY_BYTES),
 * and the next call searches again. */
const struct pst_cu_lt *pst_cu_lt_open(char *why);

/* A library of NVIDIA's that is opened at run time. */
struct pst_cu_lt_library {
    const char *name, *file; /* as messages call it; the file's name */
    const char *purpose;     /* "matrix products need": what cannot be done without it */
    const char *variable; /* of the environment, and its value: the only file that is tried. NULL: a search */
    const char *given;
};

/* Opens the library and finds its functions, by name. Without $variable, the order is: the loader's path, the
 * CUDA toolkit's folders ($CUDA_HOME, /usr/local/cuda), and Python's packages (nvidia/PACKAGE/lib in the
 * site-packages of $VIRTUAL_ENV, of $CONDA_PREFIX, of the user and of the system). root: precedes the
 * system's paths, "" outside of tests. True: all functions are in *out, n of them, and the library stays
 * open. False: why (PST_TWIN_WHY_BYTES) has the reason. */
bool pst_cu_lt_load(const char *root, const struct pst_cu_lt_library *library, const char *const *names,
                    int n, void **functions, char *why);

/* The same for cuBLASLt and $PENSTOCK_CUBLASLT. */
bool pst_cu_lt_find(const char *root, struct pst_cu_lt *out, char *why);

#endif
