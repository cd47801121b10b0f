/* cublaslt.cpp: the product of cublasLt.h, as a plain loop. */
#include "kernels/cuda/host/cublasLt.h"
#include "kernels/cuda/host/counts.h"

struct pst_cu_host_lt {
    int unused;
};

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    *handle = new pst_cu_host_lt();
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t type, cudaDataType_t)
{
    *desc = new pst_cu_host_desc{type, {CUBLAS_OP_N, CUBLAS_OP_N}};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    delete desc;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t which,
                                              const void *value, size_t bytes)
{
    if (bytes != sizeof *desc->op)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&desc->op[which - CUBLASLT_MATMUL_DESC_TRANSA], value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType_t, uint64_t rows,
                                          uint64_t cols, int64_t ld)
{
    if (ld < (int64_t)rows)
        return CUBLAS_STATUS_INVALID_VALUE;
    *layout = new pst_cu_host_layout{rows, cols, ld};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    delete layout;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t which, const void *value,
                                                size_t bytes)
{
    uint64_t *const at = which == CUBLASLT_MATRIX_LAYOUT_ROWS ? &layout->rows : &layout->cols;
    if (bytes != sizeof *at)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(at, value, bytes);
    return layout->ld < (int64_t)layout->rows ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    *preference = new pst_cu_host_preference{{256, 256, 256, 256}};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    delete preference;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t which,
                                                    const void *value, size_t bytes)
{
    if (which == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
        return bytes == sizeof(size_t) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
    if (bytes != sizeof *preference->alignment)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&preference->alignment[which - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

/* The shape of a product: rows, columns, and what is summed over. False: the matrices do not match. */
static bool shape_of(const pst_cu_host_desc *desc, const pst_cu_host_layout *a, const pst_cu_host_layout *b,
                     const pst_cu_host_layout *c, uint64_t shape[3])
{
    shape[0] = desc->op[0] == CUBLAS_OP_N ? a->rows : a->cols;
    shape[1] = desc->op[1] == CUBLAS_OP_N ? b->cols : b->rows;
    shape[2] = desc->op[0] == CUBLAS_OP_N ? a->cols : a->rows;
    return shape[2] == (desc->op[1] == CUBLAS_OP_N ? b->rows : b->cols) && shape[0] == c->rows &&
           shape[1] == c->cols;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t preference, int,
                                              cublasLtMatmulHeuristicResult_t *results, int *found)
{
    *found = 0;
    pst_cu_host_counts_add(PST_HOST_QUESTIONS);
    if (!shape_of(desc, a, b, c, results->algo.shape))
        return CUBLAS_STATUS_INVALID_VALUE;
    *found = 1;
    results->workspaceSize = 0;
    results->state = CUBLAS_STATUS_SUCCESS;
    memcpy(results->algo.alignment, preference->alignment, sizeof preference->alignment);
    return CUBLAS_STATUS_SUCCESS;
}

/* As on a GPU, an algorithm serves some other shapes, too. Here these are shapes that are not larger than the
 * one it was chosen for, and have at least half of its size. */
static bool serves(const cublasLtMatmulAlgo_t *algo, const uint64_t shape[3])
{
    for (int i = 0; i < 3; i++)
        if (shape[i] > algo->shape[i] || shape[i] < algo->shape[i] / 2)
            return false;
    return true;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                       cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *result)
{
    uint64_t shape[3];
    if (!shape_of(desc, a, b, c, shape))
        return CUBLAS_STATUS_INVALID_VALUE;
    *result = {*algo, 0, CUBLAS_STATUS_SUCCESS};
    return serves(algo, shape) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

/* Rounds away the lowest bits of the mantissa: none; 13 for TensorFloat-32; 16 for bfloat16. */
static double rounded(float value, unsigned bits_less)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t half = (1u << bits_less) >> 1;
    bits = (bits + half) & ~((1u << bits_less) - 1);
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
                              const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t *algo, void *, size_t,
                              cudaStream_t stream)
{
    const void *const given[] = {a, b, c, d};
    uint64_t shape[3];
    if (!shape_of(desc, a_layout, b_layout, c_layout, shape))
        return CUBLAS_STATUS_INVALID_VALUE;
    if (!serves(algo, shape))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    for (int i = 0; i < 4; i++)
        if ((uintptr_t)given[i] % algo->alignment[i] != 0)
            return CUBLAS_STATUS_INVALID_VALUE; /* less aligned than the caller promised */
    pst_cu_host_counts_add(PST_HOST_LIBRARY);
    const pst_cu_host_desc what = *desc;
    const pst_cu_host_layout la = *a_layout, lb = *b_layout, lc = *c_layout;
    const float scale = *static_cast<const float *>(alpha), keep = *static_cast<const float *>(beta);
    const float *left = static_cast<const float *>(a), *right = static_cast<const float *>(b);
    float *out = static_cast<float *>(d);
    const uint64_t inner = what.op[0] == CUBLAS_OP_N ? la.cols : la.rows;
    const unsigned less = what.type == CUBLAS_COMPUTE_32F_FAST_16BF   ? 16
                          : what.type == CUBLAS_COMPUTE_32F_FAST_TF32 ? 13
                                                                      : 0;
    pst_cu_host_enqueue(stream, [=] {
        for (int64_t j = 0; j < (int64_t)lc.cols; j++) {
            for (int64_t i = 0; i < (int64_t)lc.rows; i++) {
                double sum = 0;
                for (int64_t l = 0; l < (int64_t)inner; l++) {
                    const float x = left[what.op[0] == CUBLAS_OP_N ? l * la.ld + i : i * la.ld + l];
                    const float y = right[what.op[1] == CUBLAS_OP_N ? j * lb.ld + l : l * lb.ld + j];
                    sum += rounded(x, less) * rounded(y, less);
                }
                float *at = &out[j * lc.ld + i];
                *at = (float)((double)scale * sum + (keep == 0 ? 0 : (double)keep * (double)*at));
            }
        }
    });
    return CUBLAS_STATUS_SUCCESS;
}
