/* killed.c: killed PCI: kills a driver with reads in flight, and uses the memory of these reads for something
 * else at once. Nothing may land there. First it checks that the reads do land there while the driver lives.
 */
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "tests/qemu/ssd.h"

#define READS 60 /* of each queue */
#define QUEUES 2
#define READ_BYTES 65536u
#define MEMORY (QUEUES * READS * READ_BYTES)
#define LOOK_MS 1500 /* QEMU serves 40 reads a second here */

struct shared {
    atomic_int posted, completed;
    _Alignas(PST_PAGE) unsigned char memory[MEMORY];
};

/* The driver: posts as many reads as it can and counts completions until it is killed. */
static void drive(const char *address, struct shared *shared)
{
    struct ssd ssd;
    start(&ssd, address, QUEUES, 64, PST_PAGE);
    NEED(ssd.t.ops->dma_map(&ssd.t, shared->memory, MEMORY, &ssd.memory.iova));
    for (uint16_t qid = 1; qid <= QUEUES; qid++) {
        for (uint64_t i = 0; i < READS; i++)
            (void)post(&ssd, qid, PST_NVME_READ, i, READ_BYTES / ssd.ns.lba_bytes,
                       ((uint64_t)(qid - 1) * READS + i) * READ_BYTES);
        pst_nvme_ring_sq(ssd.c.io[qid]);
    }
    atomic_store(&shared->posted, QUEUES * READS);
    for (uint16_t qid = 1;; qid = 3 - qid) {
        struct pst_nvme_qp *qp = ssd.c.io[qid];
        struct pst_nvme_cqe cqe;
        if (!pst_nvme_poll(qp, qp->taken, &cqe))
            continue;
        need(pst_nvme_take(qp, qp->taken, cqe.cid), "a completion of a command that is in flight");
        pst_nvme_ring_cq(qp, 1);
        (void)atomic_fetch_add(&shared->completed, 1);
    }
}

static pid_t start_driver(const char *address, struct shared *shared)
{
    atomic_store(&shared->posted, 0);
    atomic_store(&shared->completed, 0);
    const pid_t pid = fork();
    need(pid >= 0, "fork");
    if (pid == 0)
        drive(address, shared);
    for (int ms = 0; atomic_load(&shared->completed) < 3; ms++) {
        need(ms < DEADLINE_MS && waitpid(pid, NULL, WNOHANG) == 0, "a driver with reads in flight");
        (void)usleep(1000);
    }
    return pid;
}

/* Uses the memory for something else, and counts how many places of reads change. */
static int places_changed(struct shared *shared)
{
    int changed = 0;
    memset(shared->memory, CANARY, MEMORY);
    (void)usleep(LOOK_MS * 1000);
    for (size_t i = 0; i < MEMORY; i += READ_BYTES)
        changed += shared->memory[i] != CANARY ||
                   memcmp(&shared->memory[i], &shared->memory[i + 1], READ_BYTES - 1) != 0;
    return changed;
}

int main(int argc, char **argv)
{
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    need(argc == 2, "usage: killed PCI");
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    need(shared != MAP_FAILED, "shared memory");

    pid_t pid = start_driver(argv[1], shared);
    (void)kill(pid, SIGSTOP);
    const int while_alive = places_changed(shared);
    printf("# while the driver was stopped, %d reads landed\n", while_alive);
    need(while_alive > 10, "reads land where they were posted to while the driver lives");
    (void)kill(pid, SIGKILL);
    need(waitpid(pid, NULL, 0) == pid, "the driver's end");

    pid = start_driver(argv[1], shared);
    (void)kill(pid, SIGKILL);
    need(waitpid(pid, NULL, 0) == pid, "the driver's end");
    const int in_flight = atomic_load(&shared->posted) - atomic_load(&shared->completed);
    const int after_death = places_changed(shared);
    printf("# the driver was killed with %d reads in flight; %d landed afterwards\n", in_flight, after_death);
    need(in_flight > 50, "reads in flight when it was killed");
    need(after_death == 0, "no read lands in memory that has another use");
    printf("ok 1 - a driver killed with reads in flight: none lands afterwards\n");

    struct ssd ssd;
    start(&ssd, argv[1], 1, 4, MIB);
    need(one(&ssd, PST_NVME_READ, 0, 1, 0) == PST_NVME_OK, "a read after that");
    finish(&ssd);
    printf("ok 2 - the drive can be driven again\n");
    return 0;
}
