/* The bus of a run: its rate when several processes share it, a process that is killed, and a run that stops.
 */
#include "tests/unit/store_fixture.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/ipc/bus.h"

#define RATE 200e6
#define EACH (UINT64_C(16) << 20)
#define PROCESSES 4

struct shared {
    struct pst_bus bus;
    _Atomic uint32_t stop;
};

static struct shared *new_shared(void)
{
    void *at = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(at != MAP_FAILED);
    return at;
}

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static pid_t transfer(struct shared *s, uint64_t bytes)
{
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        pst_bus_take(&s->bus, RATE, bytes, &s->stop);
        _exit(0);
    }
    return pid;
}

/* One process is killed in the middle of an endless transfer; what it has moved until then counts, too. */
static void test_processes_share_the_rate(void **state)
{
    (void)state;
    struct shared *s = new_shared();
    pid_t pids[PROCESSES];
    const double begin = now();
    const pid_t victim = transfer(s, UINT64_MAX);
    for (int i = 0; i < PROCESSES; i++)
        pids[i] = transfer(s, EACH);
    while (atomic_load(&s->bus.bytes) < EACH)
        (void)usleep(1000);
    assert_int_equal(kill(victim, SIGKILL), 0);
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    const double rate = (double)atomic_load(&s->bus.bytes) / (now() - begin);
    assert_int_equal(waitpid(victim, NULL, 0), victim);
    assert_true(atomic_load(&s->bus.bytes) >= PROCESSES * EACH);
    /* never faster than the bus; slower only where the machine is too busy to wake the processes in time */
    if (!(rate > 0.5 * RATE && rate < 1.05 * RATE))
        fail_msg("expected %.4g bytes per second, found %.4g", RATE, rate);
    (void)munmap(s, sizeof *s);
}

static void test_a_stop_ends_the_wait(void **state)
{
    (void)state;
    struct shared *s = new_shared();
    const pid_t pid = transfer(s, UINT64_MAX);
    (void)usleep(20000);
    const double begin = now();
    atomic_store(&s->stop, 1);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_true(now() - begin < 1);
    (void)munmap(s, sizeof *s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_processes_share_the_rate),
        cmocka_unit_test(test_a_stop_ends_the_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
