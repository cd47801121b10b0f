/* fake_libcublaslt.c: a libcublasLt.so.13 for tests of the search for one. Its functions only have the names.
 */
#define FAKE(name)                                                                                           \
    int name(void);                                                                                          \
    int name(void)                                                                                           \
    {                                                                                                        \
        return 0;                                                                                            \
    }

FAKE(cublasLtCreate)
FAKE(cublasLtDestroy)
FAKE(cublasLtMatmulDescCreate)
FAKE(cublasLtMatmulDescDestroy)
FAKE(cublasLtMatmulDescSetAttribute)
FAKE(cublasLtMatrixLayoutCreate)
FAKE(cublasLtMatrixLayoutDestroy)
FAKE(cublasLtMatrixLayoutSetAttribute)
FAKE(cublasLtMatmulPreferenceCreate)
FAKE(cublasLtMatmulPreferenceDestroy)
FAKE(cublasLtMatmulPreferenceSetAttribute)
FAKE(cublasLtMatmulAlgoGetHeuristic)
FAKE(cublasLtMatmulAlgoCheck)
FAKE(cublasLtMatmul)
