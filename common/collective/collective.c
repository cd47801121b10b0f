/* collective.c: what is made of exchanges, whoever carries them out. */
#include "common/collective/collective.h"

#include <string.h>

static bool is_power_of_two(int n)
{
    return n > 0 && (n & (n - 1)) == 0;
}

/* Gives the first member's bytes to all that share memory with it, in a binary tree. other: room for them. */
static pst_rc tell_near(struct pst_collective *c, void *mine, void *other, uint64_t bytes)
{
    const int number = c->rank % c->near;
    pst_rc rc = PST_OK;
    for (int apart = c->near / 2; apart > 0 && rc == PST_OK; apart /= 2) {
        if (number % apart != 0)
            continue;
        rc = pst_collective_exchange(c, c->rank ^ apart, mine, other, bytes);
        if (rc == PST_OK && number % (2 * apart) != 0)
            memcpy(mine, other, bytes);
    }
    return rc;
}

pst_rc pst_collective_sum(struct pst_collective *c, float *sum, float *theirs, int64_t n)
{
    const uint64_t bytes = (uint64_t)n * sizeof *sum;
    pst_rc rc = PST_OK;
    assert(is_power_of_two(c->members) && is_power_of_two(c->near));
    for (int apart = 1; apart < c->members && rc == PST_OK; apart *= 2) {
        if (apart >= c->near && c->rank % c->near != 0)
            break; /* the first one does it */
        rc = pst_collective_exchange(c, c->rank ^ apart, sum, theirs, bytes);
        for (int64_t i = 0; i < n && rc == PST_OK; i++)
            sum[i] += theirs[i];
    }
    return rc == PST_OK && c->near < c->members ? tell_near(c, sum, theirs, bytes) : rc;
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
