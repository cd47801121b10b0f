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

/* Opens a library of NVIDIA's by its file's name. The order is: the loader's path, the CUDA toolkit's folders
 * ($CUDA_HOME, /usr/local/cuda), and Python's packages (nvidia/PACKAGE/lib in the site-packages of
 * $VIRTUAL_ENV, of $CONDA_PREFIX, of the user and of the system). root: precedes the system's paths, ""
 * outside of tests. The caller owns what dlopen has returned. NULL: it was not found. */
void *pst_cu_lt_search(const char *root, const char *library);

/* The search for cuBLASLt. $PENSTOCK_CUBLASLT names the only file that is tried; without this variable, it is
 * pst_cu_lt_search. True: all functions are in *out. */
bool pst_cu_lt_find(const char *root, struct pst_cu_lt *out, char *why);

#endif
