/* counts.cpp: the counts of counts.h. */
#include "kernels/cuda/host/counts.h"
#include "kernels/cuda/host/fiber.h"
#include "kernels/cuda/host/virtual.h"

#include <atomic>

namespace
{
constexpr size_t STAGED_MOST = 64 << 10; /* CUDA copies as much from pageable memory without waiting */
constexpr uintptr_t BUS_LINE = 128; /* bytes of the largest access of a warp, and of a line of its cache */
std::atomic<uint64_t> counts[PST_HOST_COUNTS];
thread_local uint64_t *diverted;

void add(enum pst_cu_host_count which, uint64_t more)
{
    if (diverted)
        diverted[which] += more;
    else
        counts[which].fetch_add(more, std::memory_order_relaxed);
}
} // namespace

void pst_cu_host_counts_add(enum pst_cu_host_count which)
{
    add(which, 1);
}

void pst_cu_host_counts_divert(uint64_t *to)
{
    diverted = to;
}

void pst_cu_host_counts_add_all(const uint64_t of[PST_HOST_COUNTS])
{
    for (int i = 0; i < PST_HOST_COUNTS; i++)
        add((enum pst_cu_host_count)i, of[i]);
}

void pst_cu_host_counts_raise(enum pst_cu_host_count which, uint64_t to)
{
    uint64_t now = counts[which].load(std::memory_order_relaxed);
    while (now < to && !counts[which].compare_exchange_weak(now, to)) {
    }
}

void pst_cu_host_counts_bus(const void *at, size_t bytes)
{
    const uintptr_t first = reinterpret_cast<uintptr_t>(at) / BUS_LINE,
                    last = (reinterpret_cast<uintptr_t>(at) + bytes - 1) / BUS_LINE;
    if (bytes > 0 && !pst_cu_host_on_gpu(at))
        add(PST_HOST_BUS, last - first + 1);
}

void pst_cu_host_counts_copy(const void *a, const void *b, size_t bytes)
{
    const std::lock_guard<std::recursive_mutex> guard(pst_cu_host_lock());
    pst_cu_host_counts_add(PST_HOST_COPIES);
    pst_cu_host_counts_bus(a, bytes);
    pst_cu_host_counts_bus(b, bytes);
    if (bytes > STAGED_MOST && (pst_cu_host_pageable(a) || pst_cu_host_pageable(b)))
        pst_cu_host_counts_add(PST_HOST_PAGEABLE);
}

extern "C" __attribute__((visibility("default"))) void pst_cu_host_counts(uint64_t out[PST_HOST_COUNTS])
{
    for (int i = 0; i < PST_HOST_COUNTS; i++)
        out[i] = counts[i].exchange(0, std::memory_order_relaxed);
}
