/* shared_reads.h: which commands bring requests that are staged (kernels/nvme.h), found by going through them
 * one after the other. Used by test_twin_nvme_table.c and test_device_disk_reads.c. */
#ifndef SHARED_READS_H
#define SHARED_READS_H

#include <stdint.h>
#include <stdlib.h>

/* The bytes [at, end) of a drive that a request is for. */
struct wanted {
    uint32_t request, drive; /* drive: and namespace, as one number */
    uint64_t at, end;
    uint32_t read; /* set by share_reads: which command brings it */
};

static inline int by_place(const void *a, const void *b)
{
    const struct wanted *x = a, *y = b;
    if (x->drive != y->drive)
        return x->drive < y->drive ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* How many commands; bytes[0..) of them: what each moves. Of n requests, whose order changes; each and most:
 * staging_each and merge_bytes. */
static inline uint32_t share_reads(struct wanted *w, uint32_t n, uint64_t block, uint64_t each, uint64_t most,
                                   uint64_t *bytes)
{
    uint64_t window = block, begin = 0, end = 0;
    uint32_t reads = 0;
    while (2 * window - block + each <= most)
        window *= 2;
    qsort(w, n, sizeof *w, by_place);
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t first = w[i].at / block * block, last = (w[i].end + block - 1) / block * block;
        if (i == 0 || w[i].drive != w[i - 1].drive || first > end || first / window != begin / window) {
            begin = first;
            end = last;
            reads++;
        }
        end = last > end ? last : end;
        w[i].read = reads - 1;
        bytes[reads - 1] = end - begin;
    }
    return reads;
}

#endif
