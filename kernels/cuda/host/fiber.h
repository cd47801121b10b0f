/* fiber.h: the threads of a block, as fibers of one host thread. What a warp or a block does together is
 * checked: a mistake that a GPU may let pass is printed with its place, and the process aborts.
 *
 * One launch runs at a time, under a lock. Its blocks run one after the other. The order of blocks and
 * threads changes from launch to launch, so nothing can depend on it.
 *
 * Owner: the functions own all fibers and stacks. Threads: any may launch. */
#ifndef PST_HOST_FIBER_H
#define PST_HOST_FIBER_H

#include <cstddef>
#include <cstdint>

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};
struct uint3 {
    unsigned x, y, z;
};

/* What a thread of a kernel knows of itself. */
struct pst_cu_host_thread {
    uint3 thread, block;
    dim3 threads, blocks;
};
extern pst_cu_host_thread *pst_cu_host_me; /* NULL outside kernels */

struct pst_cu_site {
    const char *file;
    int line;
};

/* Operations that lanes of a warp do together. */
enum pst_cu_host_op {
    HOST_SYNC,
    HOST_SHFL,
    HOST_SHFL_UP,
    HOST_SHFL_DOWN,
    HOST_SHFL_XOR,
    HOST_BALLOT,
    HOST_MATCH
};

/* Waits for all lanes of mask. Returns this lane's result. */
uint64_t pst_cu_host_warp(pst_cu_host_op op, unsigned mask, uint64_t value, int arg, int width,
                          pst_cu_site site);
/* Waits for all threads of the block. Returns for how many the predicate was true. */
int pst_cu_host_block(bool predicate, pst_cu_site site);
/* Lets other threads run now and then. Called at atomics, where threads meet. */
void pst_cu_host_meet();

/* For tests: the running warp reads a row. */
void pst_cu_host_reads_row();
/* Counts the lines between at and at + bytes, if they are the host's memory. */
void pst_cu_host_counts_bus(const void *at, size_t bytes);

/* Shared memory of the running block, which is rubbish when a block begins: declared arrays, and the
 * dynamic part. */
void pst_cu_host_shared(void *at, size_t bytes);
void *pst_cu_host_shared_dynamic();

/* Runs call(user) once for each thread. Messages name the launch by its place. */
void pst_cu_host_run(void (*call)(void *user), void *user, dim3 blocks, dim3 threads, size_t shared_bytes,
                     pst_cu_site where);

#endif
