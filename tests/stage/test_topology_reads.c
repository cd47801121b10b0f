/* Scattered reads of the topology's arrays: the values are right, each sector is requested once a round, and
 * requests stay within the array and the slot. A copy of the file in memory stands in for the disk stage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/slots/request.h"
#include "common/util/rng.h"
#include "stages/lib/topology/reads.h"

#define ARRAY 3 /* any number: requests carry it */

static uint64_t seed = 1, drawn;

static int64_t below(int64_t n)
{
    const struct pst_rng_stream stream = pst_rng_stream_of(PST_RNG_SAMPLE, seed, 0, 0, 0);
    const struct pst_rng_block block = pst_rng_draw(&stream, drawn++, 0);
    return (int64_t)pst_rng_bounded(pst_rng_u64(&block, 0), (uint64_t)n);
}

/* Entry i of every array here. */
static int64_t value_of(int64_t i)
{
    return i * 7 + 3;
}

static void put_entries(char *file, const struct pst_topology_array *of)
{
    for (int64_t i = 0; i < of->entries; i++) {
        const int64_t wide = value_of(i);
        const int32_t narrow = (int32_t)wide;
        memcpy(file + of->data_at + (uint64_t)i * (uint64_t)of->entry_bytes,
               of->entry_bytes == 4 ? (const void *)&narrow : (const void *)&wide, (size_t)of->entry_bytes);
    }
}

/* Serves a round as the disk stage does. Fails if a request leaves array or slot, or if two share a sector.
 */
static void serve(const char *file, const struct pst_topology_array *of, char *slot, uint64_t slot_bytes,
                  int64_t requests)
{
    const uint64_t bytes = (uint64_t)of->entry_bytes;
    const struct pst_request *table = (const struct pst_request *)(const void *)slot;
    for (int64_t k = 0; k < requests; k++) {
        const struct pst_request r = table[k];
        const uint64_t at = of->data_at + r.row * bytes;
        assert_int_equal(r.array, ARRAY);
        assert_true(r.rows > 0 && r.row + r.rows <= (uint64_t)of->entries);
        assert_true(r.offset >= (uint64_t)requests * sizeof r && r.offset + r.rows * bytes <= slot_bytes);
        assert_int_equal(at / PST_TOPOLOGY_SECTOR, (at + r.rows * bytes - 1) / PST_TOPOLOGY_SECTOR);
        for (int64_t other = 0; other < k; other++)
            assert_true((of->data_at + table[other].row * bytes) / PST_TOPOLOGY_SECTOR !=
                        at / PST_TOPOLOGY_SECTOR);
        memcpy(slot + r.offset, file + at, r.rows * bytes);
    }
}

/* Reads n random entries in as many rounds as the slot makes of them. */
static void read_some(struct pst_topology_reads *r, const struct pst_topology_array *of, const char *file,
                      char *slot, uint64_t slot_bytes, int64_t n)
{
    int64_t *at = malloc((size_t)n * sizeof *at), *values = malloc((size_t)n * sizeof *values);
    assert_non_null(at);
    assert_non_null(values);
    for (int64_t i = 0; i < n; i++)
        at[i] = below(of->entries);
    for (int64_t done = 0; done < n;) {
        memset(slot, 0xEE, slot_bytes);
        const int64_t taken = pst_topology_reads_begin(r, of, at + done, n - done, slot);
        assert_true(taken >= 1 && taken <= n - done && r->count >= 1 && r->count <= r->sectors_max);
        serve(file, of, slot, slot_bytes, r->count);
        pst_topology_reads_end(r, at + done, slot, values + done);
        done += taken;
    }
    for (int64_t i = 0; i < n; i++)
        assert_int_equal(values[i], value_of(at[i]));
    free(at);
    free(values);
}

static void test_reads(void **state)
{
    (void)state;
    for (seed = 1; seed <= 300; seed++) {
        drawn = 0;
        const struct pst_topology_array of = {.array = ARRAY,
                                              .data_at = (uint64_t)(64 * below(70)),
                                              .entry_bytes = below(2) ? 4 : 8,
                                              .entries = 1 + below(5000)};
        const uint64_t file_bytes = of.data_at + (uint64_t)of.entries * 8;
        char *file = calloc(1, file_bytes);
        assert_non_null(file);
        put_entries(file, &of);
        const uint64_t slot_bytes = pst_topology_reads_slot_bytes(1 + below(40)) + (uint64_t)below(500);
        char *slot = aligned_alloc(PST_PAGE, pst_align_up(slot_bytes, PST_PAGE));
        assert_non_null(slot);
        const int64_t n = 1 + below(2000);
        struct pst_topology_reads r;
        assert_int_equal(pst_topology_reads_init(&r, slot_bytes, 1 + below(n)), PST_OK);
        read_some(&r, &of, file, slot, slot_bytes, n);
        read_some(&r, &of, file, slot, slot_bytes,
                  1 + below(n)); /* the same structure serves another array's reads */
        pst_topology_reads_release(&r);
        free(slot);
        free(file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
