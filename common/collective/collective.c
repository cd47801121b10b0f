/* collective.c: what is made of exchanges, whoever carries them out. */
#include "common/collective/collective.h"

static bool is_power_of_two(int n)
{
    return n > 0 && (n & (n - 1)) == 0;
}

pst_rc pst_collective_sum(struct pst_collective *c, float *sum, float *theirs, int64_t n)
{
    pst_rc rc = PST_OK;
    assert(is_power_of_two(c->members));
    for (int apart = 1; apart < c->members && rc == PST_OK; apart *= 2) {
        rc = pst_collective_exchange(c, c->rank ^ apart, sum, theirs, (uint64_t)n * sizeof *sum);
        for (int64_t i = 0; i < n && rc == PST_OK; i++)
            sum[i] += theirs[i];
    }
    return rc;
}

pst_rc pst_collective_gather(struct pst_collective *c, void *all, uint64_t bytes)
{
    pst_rc rc = PST_OK;
    char *parts = all;
    assert(is_power_of_two(c->members));
    for (int apart = 1; apart < c->members && rc == PST_OK; apart *= 2) {
        const int first = c->rank & ~(apart - 1), other = first ^ apart; /* of the ranges that are known */
        rc = pst_collective_exchange(c, c->rank ^ apart, parts + (uint64_t)first * bytes,
                                     parts + (uint64_t)other * bytes, (uint64_t)apart * bytes);
    }
    return rc;
}
