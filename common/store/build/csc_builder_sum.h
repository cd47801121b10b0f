/* csc_builder_sum.h: the sum of the weights of an edge and of its duplicates, which come one after the other
 * from the sorter, the smallest weight first. So the sum does not depend on the order of the source, and in
 * double precision it is exact to float32. Owner: csc_builder.c. Threads: one. */
#ifndef PST_CSC_BUILDER_SUM_H
#define PST_CSC_BUILDER_SUM_H

#include <jansson.h>

#include "common/base.h"

struct pst_csc_builder_sum {
    bool open; /* else there is no edge, and the rest means nothing */
    int64_t target, source;
    double weight;
};

/* Adds a weight's bits (pst_csc_builder_weight). False: the open edge is another, or there is none. */
bool pst_csc_builder_sum_add(struct pst_csc_builder_sum *s, int64_t target, int64_t source, int32_t bits);
void pst_csc_builder_sum_open(struct pst_csc_builder_sum *s, int64_t target, int64_t source, int32_t bits);

/* To and from the members of a journal's object, to the last bit. */
void pst_csc_builder_sum_save(const struct pst_csc_builder_sum *s, json_t *o);
void pst_csc_builder_sum_load(struct pst_csc_builder_sum *s, const json_t *o);

#endif
