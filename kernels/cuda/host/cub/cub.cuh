/* cub.cuh of the host build: the device-wide functions of CUB that the kernels call, as plain loops that
 * run when the stream gets there. A scan reads a whole tile, and one tile ahead, before it writes. */
#ifndef PST_HOST_CUB_H
#define PST_HOST_CUB_H

#include "kernels/cuda/host/counts.h"
#include "kernels/cuda/host/cuda_runtime.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace cub
{
enum { HOST_TEMP_BYTES = 256, HOST_TILE = 29 };

struct DeviceScan {
    template <class In, class Out, class Op>
    static cudaError_t InclusiveScan(void *temp, size_t &bytes, In in, Out out, Op op, int64_t n,
                                     cudaStream_t stream = nullptr)
    {
        using value = typename In::value_type;
        if (!temp) {
            bytes = HOST_TEMP_BYTES;
            return cudaSuccess;
        }
        if (bytes < HOST_TEMP_BYTES)
            return cudaErrorInvalidValue;
        pst_cu_host_counts_add(PST_HOST_LIBRARY);
        pst_cu_host_enqueue(stream, [=] {
            std::vector<value> tile, next;
            value sum{};
            for (int64_t at = -HOST_TILE; at < n; at += HOST_TILE) {
                next.clear();
                for (int64_t i = at + HOST_TILE; i < std::min(n, at + 2 * HOST_TILE); i++)
                    next.push_back(in[i]);
                for (size_t i = 0; i < tile.size(); i++) {
                    sum = at == 0 && i == 0 ? tile[i] : op(sum, tile[i]);
                    out[at + (int64_t)i] = sum;
                }
                tile.swap(next);
            }
        });
        return cudaSuccess;
    }
};

struct DeviceRadixSort {
    /* Stable, by bits [begin, end) of the keys. */
    template <class K, class V>
    static cudaError_t SortPairs(void *temp, size_t &bytes, const K *keys, K *keys_out, const V *values,
                                 V *values_out, int64_t n, int begin = 0, int end = (int)sizeof(K) * 8,
                                 cudaStream_t stream = nullptr)
    {
        if (!temp) {
            bytes = HOST_TEMP_BYTES;
            return cudaSuccess;
        }
        if (bytes < HOST_TEMP_BYTES)
            return cudaErrorInvalidValue;
        pst_cu_host_counts_add(PST_HOST_LIBRARY);
        pst_cu_host_enqueue(stream, [=] {
            std::vector<int64_t> order((size_t)n);
            std::iota(order.begin(), order.end(), (int64_t)0);
            const auto digits = [=](int64_t i) {
                return ((uint64_t)keys[i] << (64 - end)) >> (64 - end + begin);
            };
            std::stable_sort(order.begin(), order.end(),
                             [&](int64_t a, int64_t b) { return digits(a) < digits(b); });
            for (int64_t i = 0; i < n; i++) {
                keys_out[i] = keys[order[(size_t)i]];
                values_out[i] = values[order[(size_t)i]];
            }
        });
        return cudaSuccess;
    }
};
} // namespace cub

#endif
