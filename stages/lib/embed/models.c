/* models.c: the table of models. kernels/cpu/embed_query.c has their queries and the gradients of these. */
#include "kernels/cpu/embed_rows.h"
#include "stages/lib/embed/embed.h"

#include <string.h>

static const struct pst_embed_model MODELS[] = {
    [PST_K_EMBED_DOT] = {"dot", PST_K_EMBED_PRODUCT, false, 0, 0, pst_cpu_embed_dot, pst_cpu_embed_dot_grad},
    [PST_K_EMBED_DISTMULT] = {"distmult", PST_K_EMBED_PRODUCT, false, 1, 0, pst_cpu_embed_distmult,
                              pst_cpu_embed_distmult_grad},
    [PST_K_EMBED_COMPLEX] = {"complex", PST_K_EMBED_PRODUCT, true, 1, 0, pst_cpu_embed_complex,
                             pst_cpu_embed_complex_grad},
    [PST_K_EMBED_TRANSE_L1] = {"transe-l1", PST_K_EMBED_L1, false, 1, 0, pst_cpu_embed_transe,
                               pst_cpu_embed_transe_grad},
    [PST_K_EMBED_TRANSE_L2] = {"transe-l2", PST_K_EMBED_L2, false, 1, 0, pst_cpu_embed_transe,
                               pst_cpu_embed_transe_grad},
    [PST_K_EMBED_ROTATE] = {"rotate", PST_K_EMBED_MODULI, true, 2, (pst_real)3.14159265358979323846,
                            pst_cpu_embed_rotate, pst_cpu_embed_rotate_grad},
};

const struct pst_embed_model *pst_embed_model_named(const char *name)
{
    for (size_t i = 0; i < sizeof MODELS / sizeof *MODELS; i++)
        if (strcmp(MODELS[i].name, name) == 0)
            return &MODELS[i];
    return NULL;
}

int pst_embed_model_kernel(const struct pst_embed_model *model)
{
    for (int i = 0; i < PST_K_EMBED_MODELS; i++)
        if (model == &MODELS[i])
            return i;
    return -1;
}

const char *pst_embed_models(void)
{
    return "dot, distmult, complex, transe-l1, transe-l2 or rotate";
}
