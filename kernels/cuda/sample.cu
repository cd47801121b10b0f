/* sample.cu: uniform in-neighbour sampling, with the CPU's draws and Floyd's algorithm as there.
 *
 * For small fanouts one kernel does everything. A thread draws for one vertex, so no work is done twice. It
 * leaves the edges in shared memory, side by side, and the block then reads and writes the neighbours in
 * rows. Where they go follows from the number that each tile of vertices gets (pst_cu_tiles), which the block
 * tells before it draws.
 *
 * Otherwise a scan over how many neighbours each vertex gets makes indptr. Then a warp works on each vertex.
 * If it draws, each lane has one draw. A draw can meet the draws before it, so they are settled one after the
 * other; only their numbers go round, by shuffles.
 *
 * The topology may be in pinned host memory. A neighbour is read once, and only if it is taken. */
#include "kernels/cuda/queue.cuh"

#include <cub/cub.cuh>

namespace
{
enum {
    FEW = 32,   /* draws that one thread holds */
    TILE = 128, /* vertices of a block: FEW edges of each of them fit in its shared memory */
    AT_ONCE = 4 /* neighbours that a thread reads side by side */
};

struct sampling {
    struct pst_csc graph;
    const int64_t *degrees; /* positions in lists of these lengths are wanted; NULL: ids of neighbours */
    struct pst_cu_stream stream;
    const int64_t *vertices;
    struct pst_twin_n n;
    int fanout;
    bool replace;
    int32_t *indptr;
    int64_t *out;
    int64_t limit, *total;
    int32_t *status;
};

struct row {
    int64_t vertex, begin, degree, taken;
};

/* False: it is not a vertex of the graph, or its offsets are out of range. */
__device__ bool row_of(const sampling &s, int64_t i, struct row *r)
{
    int64_t begin = 0, end;
    r->vertex = s.vertices[i];
    r->begin = r->degree = r->taken = 0;
    if (s.degrees) {
        end = s.degrees[i];
    } else {
        if (r->vertex < 0 || r->vertex >= s.graph.vertices)
            return false;
        begin = s.graph.indptr[r->vertex];
        end = s.graph.indptr[r->vertex + 1];
    }
    if (begin < 0 || begin > end || (!s.degrees && end > s.graph.edges))
        return false;
    const int64_t degree = end - begin;
    const bool all = s.fanout < 0 || degree == 0 || (!s.replace && degree <= s.fanout);
    *r = {r->vertex, begin, degree, all ? degree : s.fanout};
    return true;
}

struct taken { /* of vertex i, as far as it matters */
    using value = uint32_t;
    sampling s;
    __device__ uint32_t operator()(int64_t i) const
    {
        struct row r;
        if (i >= pst_cu_value(s.n))
            return 0;
        if (!row_of(s, i, &r))
            pst_cu_fault(s.status, PST_E_FORMAT);
        return (uint32_t)min(r.taken, s.limit + 1);
    }
};

struct sum_to { /* limit + 1 means "too many" */
    uint32_t most;
    __host__ __device__ uint32_t operator()(uint32_t a, uint32_t b) const
    {
        const uint64_t sum = (uint64_t)a + b;
        return sum < most ? (uint32_t)sum : most;
    }
};

struct put_row {
    sampling s;
    __device__ void operator()(int64_t i, uint32_t sum) const
    {
        if (i >= pst_cu_value(s.n))
            return;
        if (sum > s.limit)
            pst_cu_fault(s.status, PST_E_LIMIT);
        s.indptr[i + 1] = (int32_t)min((int64_t)sum, s.limit);
    }
};

__device__ __forceinline__ void check_neighbour(const sampling &s, int64_t id)
{
    if (id < 0 || id >= s.graph.vertices)
        pst_cu_fault(s.status, PST_E_FORMAT);
}

__device__ __forceinline__ void emit(const sampling &s, int64_t to, int64_t edge)
{
    if (s.degrees) {
        s.out[to] = edge;
        return;
    }
    const int64_t id = s.graph.index_bytes == 4 ? static_cast<const int32_t *>(s.graph.indices)[edge]
                                                : static_cast<const int64_t *>(s.graph.indices)[edge];
    check_neighbour(s, id);
    s.out[to] = id;
}

/* Draws fewer than all neighbours, in order. */
__device__ __forceinline__ bool is_drawn(const sampling &s, const struct row &r)
{
    return s.fanout >= 0 && (r.taken != r.degree || (s.replace && r.taken > 0));
}

/* What every vertex begins with: its offsets, and where its neighbours go. There are none for i past the
 * end. */
__device__ __forceinline__ int64_t start_row(const sampling &s, int64_t i, int64_t n, struct row *r)
{
    *r = {0, 0, 0, 0};
    if (i < n)
        (void)row_of(s, i, r);
    return i > 0 && i < n ? s.indptr[i] : 0;
}

/* ---- up to FEW draws: one kernel --------------------------------------------------------------------- */

/* The edges that a vertex draws, of up to MOST. Each random number is for two draws. */
template <int MOST>
__device__ __forceinline__ void draw_row(const sampling &s, const struct pst_rng_stream &stream,
                                         const struct row &r, int64_t *edges)
{
    int64_t chosen[MOST];
#pragma unroll
    for (int slot = 0; slot < MOST; slot += 2) {
        if (slot >= s.fanout)
            break;
        const struct pst_rng_block draw = pst_rng_draw(&stream, (uint64_t)r.vertex, (uint32_t)slot / 2);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int at = slot + half;
            const int64_t last = r.degree - s.fanout + at;
            const int64_t pick = (int64_t)pst_rng_bounded(pst_rng_u64(&draw, half),
                                                          (uint64_t)(s.replace ? r.degree : last + 1));
            bool met = false;
#pragma unroll
            for (int before = 0; before < at; before++)
                met |= chosen[before] == pick;
            chosen[at] = met && !s.replace ? last : pick;
            if (at < s.fanout)
                edges[at] = r.begin + chosen[at];
        }
    }
}

/* Puts the neighbours in place of the edges. A thread does every TILE-th, here and when they are written. */
template <class T>
__device__ __forceinline__ void read_neighbours(const sampling &s, const T *indices, int64_t *edges,
                                                int64_t sum)
{
    for (int64_t first = threadIdx.x; first < sum; first += TILE * AT_ONCE) {
        int64_t id[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            id[k] = first + k * TILE < sum ? indices[edges[first + k * TILE]] : 0;
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            if (first + k * TILE >= sum)
                break;
            check_neighbour(s, id[k]);
            edges[first + k * TILE] = id[k];
        }
    }
}

/* A fault does not stop the other tiles: a block that has taken a tile must tell its sum. */
template <int MOST> __global__ void __launch_bounds__(TILE) take_few(sampling s, struct pst_cu_tiles tiles)
{
    PST_CU_SHARED_DYNAMIC(int64_t, edges);
    const int64_t n = pst_cu_block_value(s.n, s.status);
    const struct pst_rng_stream stream = pst_cu_stream_now(s.stream);
    if (n == 0 && pst_cu_first() == 0) {
        s.indptr[0] = 0;
        *s.total = 0;
    }
    if (n == 0)
        return;
    for (int64_t tile; (tile = pst_cu_next_tile(tiles)) * TILE < n;) {
        const int64_t i = tile * TILE + threadIdx.x;
        struct row r = {0, 0, 0, 0};
        if (i < n && !row_of(s, i, &r))
            pst_cu_fault(s.status, PST_E_FORMAT);
        int64_t sum;
        const int64_t from = pst_cu_block_before<TILE>(r.taken, &sum);
        if (threadIdx.x == 0)
            pst_cu_publish_sum(&tiles.sum[tile], sum);
        if (is_drawn(s, r)) {
            draw_row<MOST>(s, stream, r, edges + from);
        } else {
            for (int64_t e = 0; e < r.taken; e++)
                edges[from + e] = r.begin + e;
        }
        __syncthreads();
        if (!s.degrees && s.graph.index_bytes == 4)
            read_neighbours(s, static_cast<const int32_t *>(s.graph.indices), edges, sum);
        else if (!s.degrees)
            read_neighbours(s, static_cast<const int64_t *>(s.graph.indices), edges, sum);
        const int64_t to = pst_cu_tiles_before<TILE>(tiles, tile, sum);
        if (i < n)
            s.indptr[i + 1] = (int32_t)min(to + from + r.taken, s.limit);
        for (int64_t at = threadIdx.x; at < min(sum, s.limit - to); at += TILE)
            s.out[to + at] = edges[at];
        if (tile == 0 && threadIdx.x == 0)
            s.indptr[0] = 0;
        if (tile == (n - 1) / TILE && threadIdx.x == 0) {
            *s.total = to + sum <= s.limit ? to + sum : 0;
            if (to + sum > s.limit)
                pst_cu_fault(s.status, PST_E_LIMIT);
        }
    }
}

pst_rc few(struct pst_queue *q, const sampling &s)
{
    const int64_t tiles = (s.n.most + TILE - 1) / TILE;
    const size_t bytes = (size_t)pst_cu_tiles_words(tiles) * sizeof(unsigned long long),
                 shared = (size_t)s.fanout * TILE * sizeof(int64_t);
    const unsigned blocks = pst_cu_grid(q, s.n.most > 0 ? s.n.most : 1, TILE);
    pst_cu_begin(q);
    void *words = pst_cu_scratch(q, bytes);
    if (!words || !pst_cu_checked(q, cudaMemsetAsync(words, 0, bytes, q->stream)))
        return q->rc;
    const struct pst_cu_tiles sums = pst_cu_tiles_at(words, tiles);
    if (s.fanout > 16)
        pst_cu_on(q, blocks, TILE, shared)(take_few<FEW>, s, sums);
    else if (s.fanout > 8)
        pst_cu_on(q, blocks, TILE, shared)(take_few<16>, s, sums);
    else
        pst_cu_on(q, blocks, TILE, shared)(take_few<8>, s, sums);
    return q->rc;
}

/* ---- all neighbours, or more draws: a scan, then a kernel -----------------------------------------------
 */

/* A warp for each vertex. */
__global__ void __launch_bounds__(PST_CU_THREADS, 4) take_all(sampling s)
{
    const int64_t n = pst_cu_warp_value(s.n, s.status);
    const int lane = (int)threadIdx.x % PST_CU_WARP;
    if (pst_cu_first() == 0) {
        s.indptr[0] = 0;
        *s.total = n > 0 ? s.indptr[n] : 0;
    }
    for (int64_t i = pst_cu_first() / PST_CU_WARP; i < n; i += pst_cu_step() / PST_CU_WARP) {
        struct row r;
        const int64_t to = start_row(s, i, n, &r);
        for (int64_t e = lane; e < r.taken; e += PST_CU_WARP)
            emit(s, to + e, r.begin + e);
    }
}

/* A set of positions in shared memory, by hashing. -1: empty. */
__device__ bool set_has(const unsigned long long *set, uint64_t mask, int64_t value)
{
    uint64_t at = ((uint64_t)value * 0x9E3779B97F4A7C15ull) >> 40;
    for (; (int64_t)set[at & mask] >= 0; at++)
        if ((int64_t)set[at & mask] == value)
            return true;
    return false;
}

__device__ void set_add(unsigned long long *set, uint64_t mask, int64_t value)
{
    uint64_t at = ((uint64_t)value * 0x9E3779B97F4A7C15ull) >> 40;
    while (atomicCAS(&set[at & mask], ~0ull, (unsigned long long)value) != ~0ull)
        at++;
}

/* Larger fanouts: a block of one warp for each vertex, 32 draws at a time. places: of the set; 0 with
 * replacement. */
__global__ void __launch_bounds__(PST_CU_WARP) draw_many(sampling s, int places)
{
    PST_CU_SHARED_DYNAMIC(unsigned long long, set);
    const int64_t n = pst_cu_warp_value(s.n, s.status);
    const struct pst_rng_stream stream = pst_cu_stream_now(s.stream);
    const int lane = (int)threadIdx.x;
    if (blockIdx.x == 0 && lane == 0) {
        s.indptr[0] = 0;
        *s.total = n > 0 ? s.indptr[n] : 0;
    }
    for (int64_t i = blockIdx.x; i < n; i += gridDim.x) {
        struct row r;
        const int64_t to = start_row(s, i, n, &r);
        const bool drawn = is_drawn(s, r);
        for (int at = lane; drawn && at < places; at += PST_CU_WARP)
            set[at] = ~0ull;
        __syncwarp();
        for (int64_t slot = lane; slot - lane < r.taken; slot += PST_CU_WARP) {
            const bool in = slot < r.taken;
            int64_t position = slot;
            if (drawn) {
                const int64_t pick =
                                  in ? pst_cu_pick(stream, r.vertex, r.degree, s.fanout, s.replace, (int)slot)
                                     : -1,
                              last = r.degree - s.fanout + slot;
                position = places && in && set_has(set, (uint64_t)places - 1, pick) ? last : pick;
                if (places)
                    position = pst_cu_settle(pick, position, last, PST_CU_WARP, lane, PST_CU_WARP);
                __syncwarp();
                if (places && in)
                    set_add(set, (uint64_t)places - 1, position);
                __syncwarp();
            }
            if (in)
                emit(s, to + slot, r.begin + position);
        }
    }
}

void draw(struct pst_queue *q, const sampling &s)
{
    const int64_t n = s.n.most > 0 ? s.n.most : 1;
    if (s.fanout < 0) {
        pst_cu_on(q, pst_cu_grid(q, n, PST_CU_THREADS / PST_CU_WARP))(take_all, s);
        return;
    }
    int places = s.replace ? 0 : 2 * PST_CU_WARP;
    while (places && places < 2 * s.fanout)
        places *= 2;
    assert(places == 0 || places >= 2 * s.fanout); /* in a fuller set lanes would search for ever longer */
    const size_t bytes = (size_t)places * sizeof(unsigned long long);
    if (pst_cu_checked(q, cudaFuncSetAttribute(draw_many, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                               2 * PST_FANOUT_MAX * (int)sizeof(unsigned long long))))
        pst_cu_on(q, pst_cu_grid(q, n, 1), PST_CU_WARP, bytes)(draw_many, s, places);
}

pst_rc sample(struct pst_queue *q, const sampling &s)
{
    if (s.fanout >= 0 && s.fanout <= FEW)
        return few(q, s);
    const sum_to op = {(uint32_t)s.limit + 1};
    const pst_cu_input<taken> in = {{s}, 0};
    const pst_cu_output<put_row> rows = {{s}, 0};
    size_t bytes = 0;
    pst_cu_begin(q);
    if (s.n.most > 0) {
        if (!pst_cu_checked(q,
                            cub::DeviceScan::InclusiveScan(NULL, bytes, in, rows, op, s.n.most, q->stream)))
            return q->rc;
        void *temp = pst_cu_scratch(q, bytes);
        if (!temp || !pst_cu_checked(
                         q, cub::DeviceScan::InclusiveScan(temp, bytes, in, rows, op, s.n.most, q->stream)))
            return q->rc;
    }
    draw(q, s);
    return q->rc;
}
} // namespace

pst_rc pst_kn_sample(struct pst_queue *q, const struct pst_csc *graph, const struct pst_sample_key *key,
                     const int64_t *vertices, struct pst_twin_n n, int fanout, bool replace, int32_t *indptr,
                     int64_t *out, int64_t capacity, int64_t *total)
{
    assert(n.most >= 0 && capacity >= 0 && fanout >= -1 && fanout <= PST_FANOUT_MAX);
    assert(graph->index_bytes == 4 || graph->index_bytes == 8);
    return sample(
        q,
        {*graph, NULL,
         pst_cu_stream_of(q, pst_rng_stream_of(PST_RNG_SAMPLE, key->seed, key->epoch, key->batch, key->hop)),
         vertices, n, fanout, replace, indptr, out, pst_min_i64(capacity, INT32_MAX), total, q->status});
}

pst_rc pst_k_sample(struct pst_queue *q, const struct pst_csc *graph, const struct pst_sample_key *key,
                    const int64_t *vertices, int64_t n, int fanout, bool replace, int32_t *indptr,
                    int64_t *out, int64_t capacity)
{
    return pst_kn_sample(q, graph, key, vertices, {NULL, n}, fanout, replace, indptr, out, capacity,
                         q->unused);
}

pst_rc pst_kn_pick(struct pst_queue *q, const struct pst_sample_key *key, const int64_t *vertices,
                   const int64_t *degrees, struct pst_twin_n n, int fanout, bool replace, int32_t *indptr,
                   int64_t *positions, int64_t capacity, int64_t *total)
{
    assert(n.most >= 0 && capacity >= 0 && fanout >= -1 && fanout <= PST_FANOUT_MAX);
    return sample(q, {{},
                      degrees,
                      {pst_rng_stream_of(PST_RNG_SAMPLE, key->seed, key->epoch, key->batch, key->hop), NULL},
                      vertices,
                      n,
                      fanout,
                      replace,
                      indptr,
                      positions,
                      pst_min_i64(capacity, INT32_MAX),
                      total,
                      q->status});
}

pst_rc pst_k_pick(struct pst_queue *q, const struct pst_sample_key *key, const int64_t *vertices,
                  const int64_t *degrees, int64_t n, int fanout, bool replace, int32_t *indptr,
                  int64_t *positions, int64_t capacity)
{
    return pst_kn_pick(q, key, vertices, degrees, {NULL, n}, fanout, replace, indptr, positions, capacity,
                       q->unused);
}
