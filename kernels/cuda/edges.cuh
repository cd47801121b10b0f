/* edges.cuh: what kernels over the edges of a block share: some columns of a row at once, and edges sorted by
 * source, so that a warp can add up what one source gets without atomics.
 * Owner: sorted edges are in the queue's scratch memory until the next call. Threads: device code; a queue
 * belongs to one thread at a time. */
#ifndef PST_EDGES_CUH
#define PST_EDGES_CUH

#include "kernels/cuda/queue.cuh"

template <int W> struct pst_cu_vec { /* W numbers side by side: 1 or 4 */
    float at[W];
};

template <int W> static __device__ __forceinline__ pst_cu_vec<W> pst_cu_vec_load(const float *from)
{
    pst_cu_vec<W> c;
    if (W == 4) {
        const float4 v = *reinterpret_cast<const float4 *>(from);
        c.at[0] = v.x, c.at[W > 1] = v.y, c.at[W > 2 ? 2 : 0] = v.z, c.at[W > 3 ? 3 : 0] = v.w;
    }
    if (W == 1)
        c.at[0] = *from;
    return c;
}

template <int W> static __device__ __forceinline__ void pst_cu_vec_store(float *to, const pst_cu_vec<W> &c)
{
    if (W == 4)
        *reinterpret_cast<float4 *>(to) = {c.at[0], c.at[W > 1], c.at[W > 2 ? 2 : 0], c.at[W > 3 ? 3 : 0]};
    if (W == 1)
        *to = c.at[0];
}

/* The same for rows that are read or written once: what is used again stays in the L2 cache. */
template <int W> static __device__ __forceinline__ pst_cu_vec<W> pst_cu_vec_pass_load(const float *from)
{
    if constexpr (W == 4) {
        const float4 v = __ldcs(reinterpret_cast<const float4 *>(from));
        return {{v.x, v.y, v.z, v.w}};
    } else {
        return {{__ldcs(from)}};
    }
}

template <int W>
static __device__ __forceinline__ void pst_cu_vec_pass_store(float *to, const pst_cu_vec<W> &c)
{
    if constexpr (W == 4)
        __stcs(reinterpret_cast<float4 *>(to), float4{c.at[0], c.at[1], c.at[2], c.at[3]});
    else
        __stcs(to, c.at[0]);
}

/* Can rows of both be taken 16 bytes at a time? */
static inline bool pst_cu_by_fours(const float *a, int64_t ld_a, const float *b, int64_t ld_b, int64_t dim)
{
    return ((uintptr_t)a | (uintptr_t)b) % sizeof(float4) == 0 && (ld_a | ld_b | dim) % 4 == 0;
}

enum pst_cu_edge_value { PST_CU_EDGE_DST, PST_CU_EDGE_NUMBER };

struct pst_cu_sorted { /* the edges of a block by source; those of one source stay in order */
    const uint32_t *source;
    const int32_t *value; /* each edge's destination or number */
    const int32_t *dst;   /* by number, not sorted: each edge's destination */
    int64_t edges;
};

/* Sorts. edges is at least 1, and may be fewer than the scratch memory has room for. False: the queue has
 * failed. */
bool pst_cu_sort_edges(struct pst_queue *q, const struct pst_block *block, enum pst_cu_edge_value value,
                       struct pst_cu_sorted *sorted);

/* ---- scattering rows to sources ------------------------------------------------------------------ */

/* A warp adds up a chunk: so many entries, sorted by source. The sum of a source that lies in one chunk is
 * added to its row. A source that crosses a border of chunks gives partial sums, at most two of a chunk,
 * which are the entries of the next level. So no warp reads more than PST_CU_CHUNK rows for each of its
 * columns, however many edges a source has, and the order of additions depends on the positions of the edges
 * alone. Wide rows are cut into panels of columns: all chunks of the first panel come first, so that the rows
 * that are read many times have a better chance to lie in the L2 cache. */
enum {
    PST_CU_CHUNK = 64,
    PST_CU_HALVES = PST_CU_CHUNK / PST_CU_WARP, /* entries of a lane */
    PST_CU_AHEAD = 4,                           /* rows loaded before the first is added */
};
constexpr uint32_t PST_CU_NOBODY = ~0u; /* the source of an entry that is not used */

#ifdef PST_HOST_BUILD
#define PST_CU_READS_ROW() pst_cu_host_reads_row() /* tests count them */
#else
#define PST_CU_READS_ROW() (void)0
#endif

template <class T> struct pst_cu_edge {
    int32_t dst;
    T more; /* whatever else get() needs */
};

/* The lowest level: what each edge adds. */
template <class F> struct pst_cu_of_edges {
    using more = typename F::more;
    static constexpr int AHEAD = PST_CU_AHEAD, BLOCKS = 3; /* of a multiprocessor */
    pst_cu_sorted s;
    F f;
    int64_t column; /* the first of this panel */

    __device__ __forceinline__ uint32_t key(int64_t at) const
    {
        return s.source[at];
    }
    __device__ __forceinline__ uint32_t before(int64_t at) const
    {
        return s.source[at - 1];
    }
    __device__ __forceinline__ pst_cu_edge<more> look(int64_t at) const
    {
        return f.look(at);
    }
    template <int W> __device__ __forceinline__ pst_cu_vec<W> get(pst_cu_edge<more> edge, int64_t j) const
    {
        return f.template get<W>(edge, column + j);
    }
};

/* The levels above it. Chunk c of the level below has given entry 2c to the source that crosses its first
 * border, and entry 2c + 1 to another one that crosses its last border. */
struct pst_cu_partials {
    using more = int32_t;
    static constexpr int AHEAD = 2 * PST_CU_AHEAD, BLOCKS = 2; /* few warps, so each loads more at once */
    uint32_t *source;
    float *row;
    int64_t width;

    __device__ __forceinline__ uint32_t key(int64_t at) const
    {
        return source[at];
    }
    __device__ __forceinline__ uint32_t before(int64_t at) const
    {
        return source[at - 1] != PST_CU_NOBODY ? source[at - 1] : source[at - 2];
    }
    __device__ __forceinline__ pst_cu_edge<int32_t> look(int64_t at) const
    {
        return {(int32_t)at, 0};
    }
    template <int W> __device__ __forceinline__ pst_cu_vec<W> get(pst_cu_edge<int32_t> edge, int64_t j) const
    {
        return pst_cu_vec_load<W>(row + edge.dst * width + j);
    }
};

struct pst_cu_sums { /* where they go */
    float *to;
    int64_t ld, width;
    pst_cu_partials up;
};

template <class T> struct pst_cu_chunk {
    uint32_t key[PST_CU_HALVES]; /* of entry 32 h + lane */
    pst_cu_edge<T> edge[PST_CU_HALVES];
    uint32_t used[PST_CU_HALVES],
        last[PST_CU_HALVES];       /* bits of entries: has a source, is its last one here */
    uint32_t whole[PST_CU_HALVES]; /* is the last one of a source that crosses no border */
    uint32_t left, right;          /* the sources that cross its borders, or PST_CU_NOBODY */
    int64_t number;
};

/* The source that crosses the border before entry `at`. */
template <class L>
static __device__ __forceinline__ uint32_t pst_cu_crosses(const L &in, int64_t at, int64_t n)
{
    return at > 0 && at < n && in.before(at) == in.key(at) ? in.key(at) : PST_CU_NOBODY;
}

/* The key `further` (1 or 2) entries after this lane's of a half. */
template <class T>
static __device__ __forceinline__ uint32_t pst_cu_key_after(const pst_cu_chunk<T> &c, int half, int further,
                                                            int lane)
{
    const int at = (lane + further) % PST_CU_WARP;
    const uint32_t here = __shfl_sync(0xFFFFFFFFu, c.key[half], at);
    const uint32_t next = half + 1 < PST_CU_HALVES
                              ? __shfl_sync(0xFFFFFFFFu, c.key[(half + 1) % PST_CU_HALVES], at)
                              : PST_CU_NOBODY;
    return lane + further < PST_CU_WARP ? here : next;
}

/* An entry that is not used can lie between two of the same source (pst_cu_partials), but not two of them. */
template <class L>
static __device__ __forceinline__ pst_cu_chunk<typename L::more> pst_cu_look(const L &in, int64_t chunk,
                                                                             int64_t n, int lane)
{
    const int64_t base = chunk * PST_CU_CHUNK;
    pst_cu_chunk<typename L::more> c = {};
#pragma unroll
    for (int h = 0; h < PST_CU_HALVES; h++) {
        const int64_t at = base + h * PST_CU_WARP + lane;
        c.key[h] = at < n ? in.key(at) : PST_CU_NOBODY;
        if (c.key[h] != PST_CU_NOBODY)
            c.edge[h] = in.look(at);
    }
    c.left = pst_cu_crosses(in, base, n);
    c.right = pst_cu_crosses(in, base + PST_CU_CHUNK, n);
    c.number = chunk;
#pragma unroll
    for (int h = 0; h < PST_CU_HALVES; h++) {
        const uint32_t key = c.key[h], next = pst_cu_key_after(c, h, 1, lane),
                       second = pst_cu_key_after(c, h, 2, lane);
        const bool used = key != PST_CU_NOBODY;
        const bool last = used && next != key && (next != PST_CU_NOBODY || second != key);
        c.used[h] = __ballot_sync(0xFFFFFFFFu, used);
        c.last[h] = __ballot_sync(0xFFFFFFFFu, last);
        c.whole[h] = __ballot_sync(0xFFFFFFFFu, last && key != c.left && key != c.right);
    }
    return c;
}

/* The source of an entry ends in this chunk: its sum goes to its row, of which `row` is what was there, or to
 * the next level. */
template <int W, class T>
static __device__ __forceinline__ void pst_cu_put(const pst_cu_sums &out, const pst_cu_chunk<T> &c,
                                                  uint32_t source, bool whole, const pst_cu_vec<W> &row,
                                                  const pst_cu_vec<W> &sum, int64_t j)
{
    if (whole) {
        pst_cu_vec<W> all = row;
#pragma unroll
        for (int w = 0; w < W; w++)
            all.at[w] += sum.at[w];
        pst_cu_vec_pass_store<W>(out.to + (int64_t)source * out.ld + j, all);
        return;
    }
    const int64_t entry = 2 * c.number + (source == c.left ? 0 : 1);
    pst_cu_vec_store<W>(out.up.row + entry * out.up.width + j, sum);
}

/* W columns a lane, from j on. The loads of so many entries, AHEAD, come before the first addition: of the
 * rows that are added, and of those to which the sums go. What is not there is loaded from entry 0, which is,
 * and not added. */
template <int W, int AHEAD, class L>
static __device__ __forceinline__ void pst_cu_add_chunk(const L &in, const pst_cu_sums &out,
                                                        const pst_cu_chunk<typename L::more> &c, int64_t j)
{
    const bool mine = j < out.width;
    bool fresh = true;
    pst_cu_vec<W> sum = {};
#pragma unroll
    for (int h = 0; h < PST_CU_HALVES; h++) {
        for (int t = 0; t < PST_CU_WARP && c.used[h] >> t != 0; t += AHEAD) {
            uint32_t source[AHEAD];
            pst_cu_vec<W> part[AHEAD], row[AHEAD];
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                source[k] = __shfl_sync(0xFFFFFFFFu, c.key[h], t + k);
                const pst_cu_edge<typename L::more> turn = {__shfl_sync(0xFFFFFFFFu, c.edge[h].dst, t + k),
                                                            __shfl_sync(0xFFFFFFFFu, c.edge[h].more, t + k)};
                part[k] = in.template get<W>(turn, mine ? j : 0);
                PST_CU_READS_ROW();
            }
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                row[k] = {};
                if (mine && (c.whole[h] >> (t + k) & 1) != 0)
                    row[k] = pst_cu_vec_pass_load<W>(out.to + (int64_t)source[k] * out.ld + j);
            }
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                if ((c.used[h] >> (t + k) & 1) == 0)
                    continue;
#pragma unroll
                for (int w = 0; w < W; w++)
                    sum.at[w] = fresh ? part[k].at[w] : sum.at[w] + part[k].at[w];
                fresh = (c.last[h] >> (t + k) & 1) != 0;
                if (fresh && mine)
                    pst_cu_put<W>(out, c, source[k], (c.whole[h] >> (t + k) & 1) != 0, row[k], sum, j);
            }
        }
    }
}

template <int W, class L>
__global__ void __launch_bounds__(PST_CU_THREADS, L::BLOCKS)
    pst_cu_add_chunks(L in, int64_t n, pst_cu_sums out)
{
    const int lane = (int)threadIdx.x % PST_CU_WARP;
    const int64_t chunks = (n + PST_CU_CHUNK - 1) / PST_CU_CHUNK, panel = PST_CU_WARP * W,
                  panels = (out.width + panel - 1) / panel;
    for (int64_t item = pst_cu_first() / PST_CU_WARP; item < chunks * panels;
         item += pst_cu_step() / PST_CU_WARP) {
        const int64_t chunk = item % chunks, column = item / chunks * panel, j = column + (int64_t)lane * W;
        const pst_cu_chunk<typename L::more> c = pst_cu_look(in, chunk, n, lane);
        pst_cu_add_chunk<W, L::AHEAD>(in, out, c, j);
        if (chunk == 0 && out.up.source && j < out.width) /* loaded in place of what is not there */
            pst_cu_vec_store<W>(out.up.row + j, pst_cu_vec<W>{});
        if (lane < 2 && out.up.source && column == 0)
            out.up.source[2 * chunk + lane] = lane == 0           ? c.left
                                              : c.right == c.left ? PST_CU_NOBODY
                                                                  : c.right;
    }
}

static inline int64_t pst_cu_chunks(int64_t n)
{
    return (n + PST_CU_CHUNK - 1) / PST_CU_CHUNK;
}

template <int W, class L>
void pst_cu_add_level(struct pst_queue *q, const L &in, int64_t n, const pst_cu_sums &out)
{
    const int64_t panels = (out.width + PST_CU_WARP * W - 1) / (PST_CU_WARP * W);
    pst_cu_on(q, pst_cu_grid(q, pst_cu_chunks(n) * panels, PST_CU_THREADS / PST_CU_WARP))(
        pst_cu_add_chunks<W, L>, in, n, out);
}

/* The partial sums of all levels over n edges, with as many columns as the scratch memory has room for.
 * False: the queue has failed. */
bool pst_cu_take_partials(struct pst_queue *q, int64_t n, int64_t width, pst_cu_partials *out);

/* to[source][j] += f.get(edge, j) for each edge; j < width. f.look(at) is what get() needs of sorted edge
 * `at`, and is called by one lane for all. There are no atomics, so the sum is the same every time. */
template <int W, class F>
void pst_cu_scatter(struct pst_queue *q, const pst_cu_sorted &s, F f, float *to, int64_t ld, int64_t width)
{
    pst_cu_partials up;
    if (!pst_cu_take_partials(q, s.edges, width, &up))
        return;
    for (int64_t column = 0; column < width; column += up.width) {
        pst_cu_sums out = {to + column, ld, pst_min_i64(up.width, width - column), up};
        pst_cu_add_level<W>(q, pst_cu_of_edges<F>{s, f, column}, s.edges, out);
        for (int64_t n = s.edges; n > PST_CU_CHUNK;) {
            const pst_cu_partials in = out.up;
            n = 2 * pst_cu_chunks(n);
            out.up.source = n > PST_CU_CHUNK ? in.source + n : NULL; /* one chunk has no borders */
            out.up.row = in.row + n * up.width;
            pst_cu_add_level<W>(q, in, n, out);
        }
    }
}

#endif
