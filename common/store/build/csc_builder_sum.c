/* csc_builder_sum.c: sums the weights of duplicate edges. */
#include "common/store/build/csc_builder_sum.h"

#include <string.h>

static double weight_of(int32_t bits)
{
    float weight;
    memcpy(&weight, &bits, sizeof weight);
    return (double)weight;
}

bool pst_csc_builder_sum_add(struct pst_csc_builder_sum *s, int64_t target, int64_t source, int32_t bits)
{
    if (!s->open || s->target != target || s->source != source)
        return false;
    s->weight += weight_of(bits);
    return true;
}

void pst_csc_builder_sum_open(struct pst_csc_builder_sum *s, int64_t target, int64_t source, int32_t bits)
{
    *s = (struct pst_csc_builder_sum){true, target, source, weight_of(bits)};
}

void pst_csc_builder_sum_save(const struct pst_csc_builder_sum *s, json_t *o)
{
    int64_t bits;
    memcpy(&bits, &s->weight, sizeof bits);
    if (s->open)
        (void)json_object_set_new(
            o, "sum", json_pack("[I, I, I]", (json_int_t)s->target, (json_int_t)s->source, (json_int_t)bits));
}

void pst_csc_builder_sum_load(struct pst_csc_builder_sum *s, const json_t *o)
{
    const json_t *sum = json_object_get(o, "sum");
    const int64_t bits = json_integer_value(json_array_get(sum, 2));
    *s = (struct pst_csc_builder_sum){sum != NULL, json_integer_value(json_array_get(sum, 0)),
                                      json_integer_value(json_array_get(sum, 1)), 0};
    memcpy(&s->weight, &bits, sizeof bits);
}
