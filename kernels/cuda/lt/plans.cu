/* plans.cu: asks cuBLASLt how to compute products, and keeps the answers (plans.cuh). */
#include "kernels/cuda/lt/plans.cuh"

#include <new>

namespace
{
enum {
    STEP_LEAST = 128, /* rows: no tile of an algorithm is larger than twice as much */
    STEPS = 16,       /* the most to which numbers of rows are rounded, within a power of two */
};
} // namespace

struct pst_cu_lt_plans {
    struct kept {
        pst_cu_lt_product of; /* for which the algorithm was chosen */
        pst_cu_lt_plan plan;
        int64_t rows;  /* of A, in the layouts, which the algorithm was checked for; 0: none */
        uint64_t used; /* the turn of the last use */
    };
    const struct pst_cu_lt *lt;
    cublasLtHandle_t handle;
    pst_twin_precision precision;
    size_t workspace_bytes;
    uint64_t turns;
    int n;
    kept at[PST_CU_LT_PLANS_MOST];
};

namespace
{
using kept = pst_cu_lt_plans::kept;

int64_t &rows_of(pst_cu_lt_product *p)
{
    return p->ta ? p->k : p->m;
}

int64_t rounded(int64_t rows)
{
    int64_t step = STEP_LEAST;
    while (rows > step * STEPS)
        step *= 2;
    return (rows + step - 1) / step * step;
}

bool same(const pst_cu_lt_product &x, const pst_cu_lt_product &y)
{
    return x.m == y.m && x.n == y.n && x.k == y.k && x.ta == y.ta && x.tb == y.tb && x.lda == y.lda &&
           x.ldb == y.ldb && x.ldc == y.ldc && x.aligned_a == y.aligned_a && x.aligned_b == y.aligned_b &&
           x.aligned_c == y.aligned_c;
}

void release(const struct pst_cu_lt *lt, pst_cu_lt_plan *plan)
{
    if (plan->what)
        (void)lt->MatmulDescDestroy(plan->what);
    for (cublasLtMatrixLayout_t layout : {plan->a, plan->b, plan->c})
        if (layout)
            (void)lt->MatrixLayoutDestroy(layout);
    *plan = {};
}

/* Stops at the first call of cuBLASLt that fails. */
cublasStatus_t describe(const pst_cu_lt_plans *plans, const pst_cu_lt_product &p, pst_cu_lt_plan *plan)
{
    const cublasOperation_t op_a = p.tb ? CUBLAS_OP_T : CUBLAS_OP_N, op_b = p.ta ? CUBLAS_OP_T : CUBLAS_OP_N;
    static const cublasComputeType_t types[] = {CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32,
                                                CUBLAS_COMPUTE_32F_FAST_16BF};
    const cublasComputeType_t type = types[plans->precision];
    const struct pst_cu_lt *lt = plans->lt;
    cublasStatus_t s = lt->MatmulDescCreate(&plan->what, type, CUDA_R_32F);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = lt->MatmulDescSetAttribute(plan->what, CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof op_a);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = lt->MatmulDescSetAttribute(plan->what, CUBLASLT_MATMUL_DESC_TRANSB, &op_b, sizeof op_b);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = lt->MatrixLayoutCreate(&plan->a, CUDA_R_32F, (uint64_t)(p.tb ? p.k : p.n),
                                   (uint64_t)(p.tb ? p.n : p.k), p.ldb);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = lt->MatrixLayoutCreate(&plan->b, CUDA_R_32F, (uint64_t)(p.ta ? p.m : p.k),
                                   (uint64_t)(p.ta ? p.k : p.m), p.lda);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = lt->MatrixLayoutCreate(&plan->c, CUDA_R_32F, (uint64_t)p.n, (uint64_t)p.m, p.ldc);
    return s;
}

/* Rows of a slot can begin at any address; cuBLASLt assumes aligned ones unless told. */
cublasStatus_t ask_with(const pst_cu_lt_plans *plans, const pst_cu_lt_product &p, pst_cu_lt_plan *plan,
                        cublasLtMatmulPreference_t preference)
{
    const struct {
        cublasLtMatmulPreferenceAttributes_t which;
        uint32_t bytes;
    } aligned[] = {{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, p.aligned_b},
                   {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, p.aligned_a},
                   {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, p.aligned_c},
                   {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, p.aligned_c}};
    cublasLtMatmulHeuristicResult_t best = {};
    int found = 0;
    cublasStatus_t s =
        plans->lt->MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                &plans->workspace_bytes, sizeof plans->workspace_bytes);
    for (const auto &a : aligned)
        if (s == CUBLAS_STATUS_SUCCESS)
            s = plans->lt->MatmulPreferenceSetAttribute(preference, a.which, &a.bytes, sizeof a.bytes);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = plans->lt->MatmulAlgoGetHeuristic(plans->handle, plan->what, plan->a, plan->b, plan->c, plan->c,
                                              preference, 1, &best, &found);
    plan->algo = best.algo;
    return s == CUBLAS_STATUS_SUCCESS && !found ? CUBLAS_STATUS_NOT_SUPPORTED : s;
}

/* Fills a plan. If it fails, nothing is left of it. */
cublasStatus_t make(const pst_cu_lt_plans *plans, const pst_cu_lt_product &p, pst_cu_lt_plan *plan)
{
    cublasLtMatmulPreference_t preference = nullptr;
    *plan = {};
    cublasStatus_t s = describe(plans, p, plan);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = plans->lt->MatmulPreferenceCreate(&preference);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = ask_with(plans, p, plan, preference);
    if (preference)
        (void)plans->lt->MatmulPreferenceDestroy(preference);
    if (s != CUBLAS_STATUS_SUCCESS)
        release(plans->lt, plan);
    return s;
}

/* The place of a further plan. */
kept *place_for(pst_cu_lt_plans *plans)
{
    if (plans->n < PST_CU_LT_PLANS_MOST)
        return &plans->at[plans->n++];
    kept *oldest = plans->at;
    for (kept &k : plans->at)
        if (k.used < oldest->used)
            oldest = &k;
    release(plans->lt, &oldest->plan);
    return oldest;
}

cublasStatus_t find(pst_cu_lt_plans *plans, pst_cu_lt_product p, kept **out)
{
    for (int i = 0; i < plans->n; i++) {
        if (!same(plans->at[i].of, p))
            continue;
        *out = &plans->at[i];
        return CUBLAS_STATUS_SUCCESS;
    }
    pst_cu_lt_plan plan;
    const cublasStatus_t s = make(plans, p, &plan);
    if (s != CUBLAS_STATUS_SUCCESS)
        return s;
    *out = place_for(plans);
    **out = {p, plan, rows_of(&p), 0};
    return s;
}

/* Makes the plan one of a product with so many rows of A. If its algorithm is not for them, it is left
 * without rows. */
cublasStatus_t fit(const pst_cu_lt_plans *plans, kept *k, int64_t rows)
{
    if (k->rows == rows)
        return CUBLAS_STATUS_SUCCESS;
    const uint64_t cols = (uint64_t)rows; /* by columns, rows are columns */
    const cublasLtMatrixLayout_t other = k->of.ta ? k->plan.a : k->plan.c;
    cublasLtMatmulHeuristicResult_t result = {};
    k->rows = 0;
    for (cublasLtMatrixLayout_t layout : {k->plan.b, other}) {
        const cublasStatus_t s =
            plans->lt->MatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_COLS, &cols, sizeof cols);
        if (s != CUBLAS_STATUS_SUCCESS)
            return s;
    }
    const cublasStatus_t s = plans->lt->MatmulAlgoCheck(plans->handle, k->plan.what, k->plan.a, k->plan.b,
                                                        k->plan.c, k->plan.c, &k->plan.algo, &result);
    if (s != CUBLAS_STATUS_SUCCESS)
        return s;
    if (result.workspaceSize > plans->workspace_bytes)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    k->rows = rows;
    return s;
}
} // namespace

struct pst_cu_lt_plans *pst_cu_lt_plans_new(const struct pst_cu_lt *lt, cublasLtHandle_t handle,
                                            enum pst_twin_precision precision, size_t workspace_bytes)
{
    pst_cu_lt_plans *plans = new (std::nothrow) pst_cu_lt_plans();
    if (plans) {
        plans->lt = lt;
        plans->handle = handle;
        plans->precision = precision;
        plans->workspace_bytes = workspace_bytes;
    }
    return plans;
}

void pst_cu_lt_plans_free(struct pst_cu_lt_plans *plans)
{
    for (int i = 0; plans && i < plans->n; i++)
        release(plans->lt, &plans->at[i].plan);
    delete plans;
}

cublasStatus_t pst_cu_lt_plan_of(struct pst_cu_lt_plans *plans, const struct pst_cu_lt_product *product,
                                 const struct pst_cu_lt_plan **plan)
{
    pst_cu_lt_product asked = *product;
    const int64_t rows = rows_of(&asked);
    kept *k = nullptr;
    if (!(product->ta && product->tb)) /* then rows of A are columns of B, and B may have no room for more */
        rows_of(&asked) = rounded(rows);
    cublasStatus_t s = find(plans, asked, &k);
    if (s == CUBLAS_STATUS_SUCCESS)
        s = fit(plans, k, rows);
    if (s != CUBLAS_STATUS_SUCCESS && !same(asked, *product)) { /* a choice of its own */
        s = find(plans, *product, &k);
        if (s == CUBLAS_STATUS_SUCCESS)
            s = fit(plans, k, rows);
    }
    if (s != CUBLAS_STATUS_SUCCESS)
        return s;
    k->used = ++plans->turns;
    *plan = &k->plan;
    return s;
}
