/* fiber.cpp: a thread runs until it must wait for others. The last one to come does what they came for and
 * goes on. If all wait and none can go on, it is a deadlock, and is reported. */
#include "kernels/cuda/host/counts.h"
#include "kernels/cuda/host/fiber.h"
#include "kernels/cuda/host/order.h"

#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <vector>
#include <sys/mman.h>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace
{
enum {
    WARP = 32,
    THREADS_MAX = 1024,
    SHARED_MAX = 227 * 1024,  /* of a block, on Hopper; a launch that asks for more fails there */
    STACK_BYTES = 256 * 1024, /* sanitizers make frames several times as large */
    RUBBISH = 0xA5,
    MEET_EVERY = 7, /* atomics between two changes of threads */
};

enum state { READY, IN_WARP, IN_BLOCK, DONE };

struct context {
#if defined(__x86_64__)
    void *stack_pointer;
#else
    ucontext_t ucontext;
#endif
    void *bottom; /* of the stack; NULL: the host thread's own */
    size_t bytes;
    void *fake_stack, *tsan;
};

struct fiber {
    context ctx;
    pst_cu_host_thread self;
    enum state state;
    bool started;
    context *stack; /* lent while it runs */
    /* what it waits for */
    pst_cu_site site;
    pst_cu_host_op op;
    unsigned mask;
    uint64_t value, result;
    int arg, width;
    bool predicate;
};

struct runner {
    std::mutex lock;
    fiber threads[THREADS_MAX];
    std::vector<context *> idle; /* stacks whose fiber waits for work */
    int count, current, done;
    int at_block, trues, block_result;
    context scheduler;
    void (*call)(void *);
    void *user;
    pst_cu_site where;
    uint64_t launches;
    unsigned atomics;
    uint64_t rows[THREADS_MAX / WARP]; /* that the warps of this block have read */
    std::set<void *> declared;         /* shared arrays that were seen in this block */
    unsigned char *dynamic;
    ~runner();
};
runner r;

#if defined(__x86_64__)
/* Saves the registers that a call must preserve, and continues where the other fiber left off. */
extern "C" void pst_cu_host_swap(void **save, void *load);
__asm__(".text\n.globl pst_cu_host_swap\n.hidden pst_cu_host_swap\n.type pst_cu_host_swap,@function\n"
        "pst_cu_host_swap:\n"
        "push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15\n"
        "mov %rsp, (%rdi)\n"
        "mov %rsi, %rsp\n"
        "pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp\n"
        "ret\n"
        ".size pst_cu_host_swap, .-pst_cu_host_swap\n");
#endif

#if defined(__SANITIZE_ADDRESS__)
/* Tells ASan that the switch is over. Gets the bounds of the stack that was left, if wanted. */
void arrived(context *left, void *fake_stack)
{
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(fake_stack, &bottom, &bytes);
    if (left) {
        left->bottom = const_cast<void *>(bottom);
        left->bytes = bytes;
    }
}
#endif

void go(context *from, context *to)
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&from->fake_stack, to->bottom, to->bytes);
#endif
#if defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(to->tsan, 0);
#endif
#if defined(__x86_64__)
    pst_cu_host_swap(&from->stack_pointer, to->stack_pointer);
#else
    swapcontext(&from->ucontext, &to->ucontext);
#endif
#if defined(__SANITIZE_ADDRESS__)
    arrived(from == &r.scheduler ? nullptr : &r.scheduler, from->fake_stack);
#endif
}

[[noreturn]] void wrong(const char *what, const fiber *f, pst_cu_site site)
{
    const uint3 t = f->self.thread, b = f->self.block;
    fprintf(stderr,
            "kernel launched at %s:%d: %s\n  thread (%u,%u,%u) of block (%u,%u,%u), lane %d, at %s:%d\n",
            r.where.file, r.where.line, what, t.x, t.y, t.z, b.x, b.y, b.z, (int)((f - r.threads) % WARP),
            site.file, site.line);
    fflush(stderr);
    abort();
}

void finish(fiber *f)
{
    f->state = DONE;
    r.done++;
}

/* What every stack runs for ever: one thread of a kernel after the other. */
void stack_main()
{
#if defined(__SANITIZE_ADDRESS__)
    arrived(&r.scheduler, nullptr);
#endif
    for (;;) {
        r.call(r.user);
        fiber *f = &r.threads[r.current];
        finish(f);
        go(f->stack, &r.scheduler);
    }
}

context *new_stack()
{
    context *ctx = new context();
    ctx->bytes = STACK_BYTES;
    ctx->bottom = mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (ctx->bottom == MAP_FAILED) {
        fprintf(stderr, "out of memory: cannot allocate the stack of a thread\n");
        abort();
    }
#if defined(__SANITIZE_THREAD__)
    ctx->tsan = __tsan_create_fiber(0);
#endif
#if defined(__x86_64__)
    void **top = reinterpret_cast<void **>(static_cast<char *>(ctx->bottom) + STACK_BYTES);
    *--top = nullptr; /* no caller; the stack looks as after a call */
    *--top = reinterpret_cast<void *>(stack_main);
    for (int i = 0; i < 6; i++)
        *--top = nullptr;
    ctx->stack_pointer = top;
#else
    getcontext(&ctx->ucontext);
    ctx->ucontext.uc_stack.ss_sp = ctx->bottom;
    ctx->ucontext.uc_stack.ss_size = STACK_BYTES;
    makecontext(&ctx->ucontext, stack_main, 0);
#endif
    return ctx;
}

runner::~runner()
{
    for (context *ctx : idle) {
#if defined(__SANITIZE_THREAD__)
        __tsan_destroy_fiber(ctx->tsan);
#endif
        (void)munmap(ctx->bottom, ctx->bytes);
        delete ctx;
    }
}

void run_fiber(int i)
{
    fiber *f = &r.threads[i];
    if (!f->started) {
        if (r.idle.empty())
            r.idle.push_back(new_stack());
        f->stack = r.idle.back();
        r.idle.pop_back();
        f->started = true;
    }
    r.current = i;
    pst_cu_host_me = &f->self;
    go(&r.scheduler, f->stack);
    pst_cu_host_me = nullptr;
    if (f->state == DONE)
        r.idle.push_back(f->stack);
}

fiber *pause_here(enum state state)
{
    fiber *f = &r.threads[r.current];
    f->state = state;
    go(f->stack, &r.scheduler);
    return f;
}

const char *name_of(pst_cu_host_op op)
{
    static const char *const names[] = {"__syncwarp",       "__shfl_sync",     "__shfl_up_sync",
                                        "__shfl_down_sync", "__shfl_xor_sync", "__ballot_sync",
                                        "__match_any_sync"};
    return names[op];
}

/* Are all lanes there that f waits for? If they can never come, reports it. */
bool complete(fiber *f, fiber *warp, int lanes)
{
    char text[160];
    const int me = (int)(f - warp);
    bool all = true;
    for (int lane = 0; lane < WARP; lane++) {
        if (!(f->mask >> lane & 1))
            continue;
        const fiber *other = &warp[lane];
        if (lane >= lanes || other->state == DONE) {
            snprintf(text, sizeof text, "%s waits for lane %d, which %s (mask %08x)", name_of(f->op), lane,
                     lane >= lanes ? "does not exist in this block" : "has left the kernel", f->mask);
            wrong(text, f, f->site);
        }
        if (other->state != IN_WARP) {
            all = false;
            continue;
        }
        const bool same = other->mask == f->mask && other->op == f->op &&
                          (f->op == HOST_SYNC ||
                           (other->site.line == f->site.line && strcmp(other->site.file, f->site.file) == 0));
        if (!same && (other->mask >> me & 1)) {
            snprintf(text, sizeof text, "%s with mask %08x meets lane %d's %s with mask %08x (line %d)",
                     name_of(f->op), f->mask, lane, name_of(other->op), other->mask, other->site.line);
            wrong(text, f, f->site);
        }
        all = all && same;
    }
    return all;
}

/* The lane that a shuffle reads: this lane itself if the other is outside its part of the warp. */
int source_of(const fiber *f, int lane)
{
    const int base = lane / f->width * f->width, end = base + f->width;
    switch (f->op) {
    case HOST_SHFL: return base + (f->arg & (f->width - 1));
    case HOST_SHFL_UP: return lane - f->arg < base ? lane : lane - f->arg;
    case HOST_SHFL_DOWN: return lane + f->arg >= end ? lane : lane + f->arg;
    default: return (lane ^ f->arg) >= end ? lane : lane ^ f->arg;
    }
}

uint64_t result_of(const fiber *f, const fiber *warp, int lane)
{
    uint64_t bits = 0;
    switch (f->op) {
    case HOST_SYNC: return 0;
    case HOST_BALLOT:
    case HOST_MATCH:
        for (int other = 0; other < WARP; other++)
            if (f->mask >> other & 1)
                bits |=
                    (uint64_t)(f->op == HOST_BALLOT ? warp[other].value != 0 : warp[other].value == f->value)
                    << other;
        return bits;
    default: break;
    }
    const int from = source_of(f, lane);
    if (!(f->mask >> from & 1)) {
        char text[120];
        snprintf(text, sizeof text, "%s reads lane %d, which is not in its mask %08x", name_of(f->op), from,
                 f->mask);
        wrong(text, f, f->site);
    }
    return warp[from].value;
}

void check_stuck(int before)
{
    if (before != r.done)
        return;
    char text[200];
    int warps = 0, blocks = 0;
    const fiber *first = nullptr;
    for (int i = 0; i < r.count; i++) {
        const fiber *f = &r.threads[i];
        if (f->state == READY)
            return;
        warps += f->state == IN_WARP;
        blocks += f->state == IN_BLOCK;
        if (f->state == IN_WARP || (f->state == IN_BLOCK && !first))
            first = f;
    }
    if (!first)
        return;
    snprintf(
        text, sizeof text,
        "deadlock: %d threads wait at the block's barrier, %d wait for lanes of their warp, %d have ended",
        blocks, warps, r.done);
    wrong(text, first, first->site);
}

void run_block(uint3 block, dim3 blocks, dim3 threads, size_t shared_bytes)
{
    r.count = (int)(threads.x * threads.y * threads.z);
    r.done = r.at_block = r.trues = 0;
    memset(r.rows, 0, sizeof r.rows);
    r.declared.clear();
    r.dynamic = static_cast<unsigned char *>(malloc(shared_bytes ? shared_bytes : 1));
    memset(r.dynamic, RUBBISH, shared_bytes);
    for (int i = 0; i < r.count; i++) {
        fiber *f = &r.threads[i];
        const unsigned t = (unsigned)i;
        f->self = {
            {t % threads.x, t / threads.x % threads.y, t / threads.x / threads.y}, block, threads, blocks};
        f->state = READY;
        f->started = false;
    }
    while (r.done < r.count) {
        const int before = r.done;
        pst_cu_host_order threads_in(static_cast<uint64_t>(r.count), r.launches++);
        for (int i = 0; i < r.count; i++) {
            const int t = (int)threads_in.next();
            if (r.threads[t].state == READY)
                run_fiber(t);
        }
        check_stuck(before);
    }
    free(r.dynamic);
    r.dynamic = nullptr;
}
} // namespace

pst_cu_host_thread *pst_cu_host_me;

uint64_t pst_cu_host_warp(pst_cu_host_op op, unsigned mask, uint64_t value, int arg, int width,
                          pst_cu_site site)
{
    fiber *f = &r.threads[r.current];
    const int first = r.current / WARP * WARP, lane = r.current - first;
    fiber *warp = &r.threads[first];
    f->op = op;
    f->mask = mask;
    f->value = value;
    f->arg = arg;
    f->width = width;
    f->site = site;
    if (!(mask >> lane & 1))
        wrong("a lane is missing in its own mask", f, site);
    f->state = IN_WARP;
    if (!complete(f, warp, r.count - first)) {
        f = pause_here(IN_WARP);
        return f->result;
    }
    for (int other = 0; other < WARP; other++)
        if (mask >> other & 1)
            warp[other].result = result_of(&warp[other], warp, other);
    for (int other = 0; other < WARP; other++)
        if (mask >> other & 1)
            warp[other].state = READY;
    return f->result;
}

int pst_cu_host_block(bool predicate, pst_cu_site site)
{
    fiber *f = &r.threads[r.current];
    f->site = site;
    if (r.done > 0)
        wrong("a thread waits at the block's barrier, but other threads of the block have ended", f, site);
    for (int i = 0; i < r.count; i++) {
        const fiber *other = &r.threads[i];
        if (other->state == IN_BLOCK && other->site.line != site.line)
            wrong("threads of a block wait at different barriers", f, site);
    }
    r.trues += predicate;
    if (++r.at_block < r.count) {
        f = pause_here(IN_BLOCK);
        return r.block_result;
    }
    r.block_result = r.trues;
    r.at_block = r.trues = 0;
    for (int i = 0; i < r.count; i++)
        r.threads[i].state = READY;
    return r.block_result;
}

void pst_cu_host_meet()
{
    if (pst_cu_host_me && r.atomics++ % MEET_EVERY == 0)
        pause_here(READY);
}

void pst_cu_host_reads_row()
{
    if (r.current % WARP == 0)
        pst_cu_host_counts_raise(PST_HOST_ROWS, ++r.rows[r.current / WARP]);
}

void pst_cu_host_shared(void *at, size_t bytes)
{
    if (r.declared.insert(at).second)
        memset(at, RUBBISH, bytes);
}

void *pst_cu_host_shared_dynamic()
{
    return r.dynamic;
}

void pst_cu_host_run(void (*call)(void *), void *user, dim3 blocks, dim3 threads, size_t shared_bytes,
                     pst_cu_site where)
{
    std::lock_guard<std::mutex> guard(r.lock);
    pst_cu_host_counts_add(PST_HOST_LAUNCHES);
    assert(shared_bytes <= SHARED_MAX && threads.x * threads.y * threads.z <= THREADS_MAX);
    r.call = call;
    r.user = user;
    r.where = where;
#if defined(__SANITIZE_THREAD__)
    r.scheduler.tsan = __tsan_get_current_fiber();
#endif
    const uint64_t n = (uint64_t)blocks.x * blocks.y * blocks.z;
    pst_cu_host_order blocks_in(n, r.launches++);
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t b = blocks_in.next();
        run_block({(unsigned)(b % blocks.x), (unsigned)(b / blocks.x % blocks.y),
                   (unsigned)(b / blocks.x / blocks.y)},
                  blocks, threads, shared_bytes);
    }
}
