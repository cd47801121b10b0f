/* model.c: the speed of an emulated SSD. It begins one command every 1/IOPS s, or as long as the bytes of the
 * command take, in the order of arrival. Each command ends after its own latency. With d commands always
 * in flight this gives min(peak, d / latency), as in Little's law. */
#include <math.h>
#include <time.h>

#include "common/nvme/emulated/emulated_impl.h"

/* Commands that an SSD can be behind and catch up at once. Without this, a command that comes early or late
 * costs throughput near the peak: 6 % with 16 in flight (by simulation); with it 0.2 %. */
#define CREDIT 4

/* xorshift64* (Vigna, ACM TOMS 2016): good enough to choose faults and latencies. */
uint64_t pst_emu_random(struct pst_emu_part *part)
{
    uint64_t x = part->random;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    part->random = x;
    return x * 0x2545f4914f6cdd1du;
}

static double unit(struct pst_emu_part *part)
{
    return (double)(pst_emu_random(part) >> 11) * 0x1p-53;
}

/* The quantile of the normal distribution, by bisection; this runs once. */
static double normal_quantile(double p)
{
    double low = -8, high = 8;
    for (int i = 0; i < 60; i++) {
        const double middle = (low + high) / 2;
        if (0.5 * erfc(-middle / sqrt(2)) < p)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Quantiles of a lognormal distribution with sigma = spread and mean 1. */
void pst_emu_model_init(struct pst_emu *emu)
{
    double sum = 0;
    for (int i = 0; i < PST_EMU_QUANTILES; i++) {
        const double q = normal_quantile((i + 0.5) / PST_EMU_QUANTILES);
        emu->latency_of[i] = (float)exp(emu->config.spread * q);
        sum += (double)emu->latency_of[i];
    }
    for (int i = 0; i < PST_EMU_QUANTILES; i++)
        emu->latency_of[i] *= (float)(PST_EMU_QUANTILES / sum);
}

/* The time when an SSD, or the bus, begins a command that takes it service_ns. busy_until is its own. */
static uint64_t begin(_Atomic uint64_t *busy_until, uint64_t now, double service_ns)
{
    if (service_ns <= 0)
        return now;
    const uint64_t add = (uint64_t)(service_ns * 256), soonest = now * 256 - CREDIT * add;
    uint64_t before = atomic_load_explicit(busy_until, memory_order_relaxed), from;
    do
        from = before > soonest ? before : soonest;
    while (!atomic_compare_exchange_weak_explicit(busy_until, &before, from + add, memory_order_relaxed,
                                                  memory_order_relaxed));
    return from / 256 > now ? from / 256 : now;
}

static uint64_t inject(struct pst_emu_part *part, struct pst_emu_command *command)
{
    const struct pst_emu_faults *f = &part->ssd->emu->config.faults;
    struct pst_nvme_emulated_stats *stats = part->ssd->stats;
    uint64_t extra = 0;
    if (f->reorder_ns > 0) {
        extra += pst_emu_random(part) % f->reorder_ns;
        __atomic_fetch_add(&stats->reordered, 1, __ATOMIC_RELAXED);
    }
    if (f->delay_rate > 0 && unit(part) < f->delay_rate) {
        extra += f->delay_ns;
        __atomic_fetch_add(&stats->delayed, 1, __ATOMIC_RELAXED);
    }
    command->fault = f->error_rate > 0 && unit(part) < f->error_rate;
    command->torn = command->sqe.opcode == PST_NVME_WRITE && f->torn_rate > 0 && unit(part) < f->torn_rate;
    command->lost = f->lost_rate > 0 && unit(part) < f->lost_rate;
    (void)atomic_fetch_add(&part->ssd->commands, f->dead_after > 0);
    if ((f->fatal_rate > 0 && unit(part) < f->fatal_rate) || pst_emu_dead(part->ssd)) {
        atomic_store(&part->ssd->fatal, true);
        __atomic_fetch_add(&stats->fatal, 1, __ATOMIC_RELAXED);
    }
    return extra;
}

uint64_t pst_emu_due(struct pst_emu_part *part, struct pst_emu_command *command, uint64_t now)
{
    const struct pst_emu *emu = part->ssd->emu;
    const struct pst_emu_config *c = &emu->config;
    const uint64_t extra = inject(part, command);
    uint64_t due = now;
    if (command->sqe.opcode == PST_NVME_READ || command->sqe.opcode == PST_NVME_WRITE) {
        const double bytes = ((command->sqe.cdw12 & 0xffff) + 1.0) * c->lba_bytes;
        const double by_count = c->iops > 0 ? 1e9 / c->iops : 0;
        const double by_bytes = c->bytes_per_s > 0 ? bytes * 1e9 / c->bytes_per_s : 0;
        due = begin(&part->ssd->busy_until, now, by_count > by_bytes ? by_count : by_bytes);
        if (c->latency_ns > 0)
            due +=
                (uint64_t)(c->latency_ns * (double)emu->latency_of[pst_emu_random(part) % PST_EMU_QUANTILES]);
        if (c->bus_bytes_per_s > 0) {
            const double on_bus = bytes * 1e9 / c->bus_bytes_per_s;
            const uint64_t passed = c->bus != NULL
                                        ? pst_bus_book(c->bus, c->bus_bytes_per_s, (uint64_t)bytes, now)
                                        : begin(&part->ssd->emu->bus_until, now, on_bus) + (uint64_t)on_bus;
            due = due > passed ? due : passed;
        }
    }
    return due + extra;
}
