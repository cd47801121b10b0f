/* parts.c: the permutation is a Feistel network on the smallest power of two that holds the ids. A value
 * outside the ids goes through the network again until it is inside (cycle walking: Black and Rogaway,
 * "Ciphers with arbitrary finite domains", CT-RSA 2002, section 4), on average fewer than two times. */
#include "stages/lib/parts/parts.h"

#include <string.h>

#include "common/error.h"
#include "common/util/rng.h"
#include "kernels/cpu/clones.h"

enum { TOGETHER = 256 }; /* values that go through the network together, in the first-level cache */

static const char *const names[] = {"random", "id"};

const char *pst_parts_assign_name(enum pst_parts_assign assign)
{
    return names[assign];
}

int pst_parts_assign_of(const char *name)
{
    for (int i = 0; i < 2; i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    return -1;
}

pst_rc pst_parts_init(struct pst_parts *p, int64_t vertices, int partitions, enum pst_parts_assign assign,
                      uint64_t seed)
{
    if (vertices > PST_PARTS_VERTICES_MAX)
        return pst_fail(PST_E_LIMIT, "cannot partition %lld vertices; expected at most 2^48",
                        (long long)vertices);
    if (partitions < 1 || partitions > PST_PARTS_MAX || partitions > vertices)
        return pst_fail(PST_E_ARG,
                        "cannot make %d partitions of %lld vertices; expected 1 to %lld partitions",
                        partitions, (long long)vertices,
                        (long long)(vertices < PST_PARTS_MAX ? vertices : PST_PARTS_MAX));
    *p = (struct pst_parts){.vertices = vertices, .partitions = partitions, .assign = assign, .seed = seed};
    p->rows = (vertices + partitions - 1) / partitions;
    int bits = 2;
    while ((INT64_C(1) << bits) < vertices)
        bits++;
    p->bits[0] = bits / 2;
    p->bits[1] = bits - bits / 2;
    const struct pst_rng_stream stream = pst_rng_stream_of(PST_RNG_PARTITION, seed, 0, 0, 0);
    for (uint64_t round = 0; round < PST_PARTS_ROUNDS; round++) {
        const struct pst_rng_block block = pst_rng_draw(&stream, round, 0);
        p->key[round] = pst_rng_u64(&block, 0);
    }
    return PST_OK;
}

/* The finalizer of splitmix64 (Steele, Lea and Flood, OOPSLA 2014), of a value and a round's key. */
PST_CPU_INLINE uint64_t mix(uint64_t value, uint64_t key)
{
    uint64_t z = value * UINT64_C(0x9E3779B97F4A7C15) + key;
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* Each round changes one half by a function of the other, so the same rounds in reverse order undo it. */
static uint64_t network(const struct pst_parts *p, uint64_t x, bool back)
{
    const uint64_t mask[2] = {(UINT64_C(1) << p->bits[0]) - 1, (UINT64_C(1) << p->bits[1]) - 1};
    uint64_t half[2] = {x & mask[0], x >> p->bits[0]};
    for (int i = 0; i < PST_PARTS_ROUNDS; i++) {
        const int round = back ? PST_PARTS_ROUNDS - 1 - i : i;
        const int changed = round & 1;
        half[changed] ^= mix(half[1 - changed], p->key[round]) & mask[changed];
    }
    return half[0] | half[1] << p->bits[0];
}

static int64_t walk(const struct pst_parts *p, int64_t from, bool back)
{
    if (p->assign == PST_PARTS_BY_ID)
        return from;
    uint64_t x = (uint64_t)from;
    do
        x = network(p, x, back);
    while (x >= (uint64_t)p->vertices); /* ends: the cycle through `from` has a value below vertices */
    return (int64_t)x;
}

/* changed[i] by a function of by[i]. */
PST_CPU_CLONES static void pass_round(uint64_t *restrict changed, const uint64_t *restrict by, uint64_t key,
                                      uint64_t mask, int n)
{
    for (int i = 0; i < n; i++)
        changed[i] ^= mix(by[i], key) & mask;
}

static void networks(const struct pst_parts *p, uint64_t *x, int n)
{
    const uint64_t mask[2] = {(UINT64_C(1) << p->bits[0]) - 1, (UINT64_C(1) << p->bits[1]) - 1};
    uint64_t half[2][TOGETHER];
    for (int i = 0; i < n; i++) {
        half[0][i] = x[i] & mask[0];
        half[1][i] = x[i] >> p->bits[0];
    }
    for (int round = 0; round < PST_PARTS_ROUNDS; round++) {
        const int changed = round & 1;
        pass_round(half[changed], half[1 - changed], p->key[round], mask[changed], n);
    }
    for (int i = 0; i < n; i++)
        x[i] = half[0][i] | half[1][i] << p->bits[0];
}

/* At most TOGETHER. Those that are not inside yet go on together. */
static void walk_together(const struct pst_parts *p, const int64_t *v, int n, int64_t *places)
{
    uint64_t x[TOGETHER];
    int at[TOGETHER];
    for (int i = 0; i < n; i++) {
        x[i] = (uint64_t)v[i];
        at[i] = i;
    }
    for (int left = n, kept; left > 0; left = kept) {
        networks(p, x, left);
        kept = 0;
        for (int i = 0; i < left; i++) {
            const uint64_t place = x[i];
            const int to = at[i];
            places[to] = (int64_t)place; /* the last one counts */
            x[kept] = place;
            at[kept] = to;
            kept += place >= (uint64_t)p->vertices;
        }
    }
}

void pst_parts_places(const struct pst_parts *p, const int64_t *v, int64_t n, int64_t *places)
{
    if (p->assign == PST_PARTS_BY_ID) {
        memcpy(places, v, (size_t)n * sizeof *v);
        return;
    }
    for (int64_t i = 0; i < n; i += TOGETHER)
        walk_together(p, v + i, (int)pst_min_i64(TOGETHER, n - i), places + i);
}

int64_t pst_parts_place(const struct pst_parts *p, int64_t v)
{
    assert(v >= 0 && v < p->vertices);
    return walk(p, v, false);
}

int64_t pst_parts_vertex(const struct pst_parts *p, int64_t place)
{
    assert(place >= 0 && place < p->vertices);
    return walk(p, place, true);
}
