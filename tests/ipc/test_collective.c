/* The collective in shared memory, between threads of one process and between processes: sums and gathers
 * that do not depend on timing, barriers, deadlines, and members that leave or die. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/collective/shared.h"
#include "common/error.h"
#include "common/util/clock.h"

enum { MEMBERS = 8, ROUNDS = 20, PATIENT_S = 60 };
#define ELEMENTS ((int64_t)(PST_COLLECTIVE_BOX / sizeof(float)) * 2 + 77) /* three pieces */

static const char *const names[MEMBERS] = {"t.0", "t.1", "t.2", "t.3", "t.4", "t.5", "t.6", "t.7"};

static void *shared_memory(int members)
{
    void *at = mmap(NULL, pst_collective_shared_bytes(members), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(at, MAP_FAILED);
    return at;
}

static void free_memory(void *at, int members)
{
    assert_int_equal(munmap(at, pst_collective_shared_bytes(members)), 0);
}

static struct pst_collective *member(void *memory, int rank, int members, double deadline_s)
{
    struct pst_collective *c = NULL;
    const struct pst_collective_shared_options options = {
        .memory = memory, .rank = rank, .members = members, .names = names, .deadline_s = deadline_s};
    return pst_collective_shared_open(&c, &options) == PST_OK ? c : NULL;
}

/* ---- work in common ------------------------------------------------------------------------------ */

struct worker {
    void *memory;
    int rank, members;
    int64_t n;
    bool good;
};

static float element(int rank, int64_t i, int round)
{
    return (float)((rank + 1) * 0.1 + (double)(i % 1013) * 1e-3 + round);
}

/* The tree that the header promises, for ranks first..first+n-1. */
static float tree(int first, int n, int64_t i, int round)
{
    return n == 1 ? element(first, i, round)
                  : tree(first, n / 2, i, round) + tree(first + n / 2, n / 2, i, round);
}

static bool one_round(struct pst_collective *c, const struct worker *w, int round, float *sum, float *theirs)
{
    int32_t all[MEMBERS] = {0};
    for (int64_t i = 0; i < w->n; i++)
        sum[i] = element(w->rank, i, round);
    bool good = pst_collective_sum(c, sum, theirs, w->n) == PST_OK;
    for (int64_t i = 0; i < w->n && good; i += 97)
        good = sum[i] == tree(0, w->members, i, round);
    all[w->rank] = 1000 * round + w->rank;
    good = good && pst_collective_gather(c, all, sizeof all[0]) == PST_OK;
    for (int r = 0; r < w->members; r++)
        good = good && all[r] == 1000 * round + r;
    return good && pst_collective_barrier(c) == PST_OK;
}

static void *work(void *arg)
{
    struct worker *w = arg;
    float *sum = malloc((size_t)w->n * sizeof *sum), *theirs = malloc((size_t)w->n * sizeof *theirs);
    struct pst_collective *c = member(w->memory, w->rank, w->members, PATIENT_S);
    w->good = c && sum && theirs;
    for (int round = 0; round < ROUNDS && w->good; round++)
        w->good = one_round(c, w, round, sum, theirs);
    pst_collective_close(c);
    free(sum);
    free(theirs);
    return NULL;
}

static void together(int members, int64_t n)
{
    struct worker w[MEMBERS];
    pthread_t thread[MEMBERS];
    void *memory = shared_memory(members);
    for (int r = 0; r < members; r++) {
        w[r] = (struct worker){.memory = memory, .rank = r, .members = members, .n = n};
        assert_int_equal(pthread_create(&thread[r], NULL, work, &w[r]), 0);
    }
    for (int r = 0; r < members; r++) {
        assert_int_equal(pthread_join(thread[r], NULL), 0);
        assert_true(w[r].good);
    }
    free_memory(memory, members);
}

static void test_threads(void **state)
{
    (void)state;
    for (int members = 1; members <= MEMBERS; members *= 2)
        together(members, 1001);
    together(2, ELEMENTS);
    together(4, ELEMENTS);
}

static void test_processes(void **state)
{
    void *memory = shared_memory(4);
    pid_t pid[4];
    (void)state;
    for (int r = 0; r < 4; r++) {
        pid[r] = fork();
        if (pid[r] == 0) {
            struct worker w = {.memory = memory, .rank = r, .members = 4, .n = ELEMENTS};
            (void)work(&w);
            _exit(w.good ? 0 : 1);
        }
    }
    for (int r = 0; r < 4; r++) {
        int status = -1;
        assert_int_equal(waitpid(pid[r], &status, 0), pid[r]);
        assert_int_equal(status, 0);
    }
    free_memory(memory, 4);
}

/* A number of members that is no power of two has barriers, too: nobody passes before the last has come. */
static _Atomic int arrived;

static void *pass(void *arg)
{
    struct worker *w = arg;
    struct pst_collective *c = member(w->memory, w->rank, w->members, PATIENT_S);
    w->good = c != NULL;
    for (int round = 1; round <= ROUNDS && w->good; round++) {
        (void)atomic_fetch_add(&arrived, 1);
        w->good = pst_collective_barrier(c) == PST_OK && atomic_load(&arrived) >= round * w->members &&
                  pst_collective_barrier(c) == PST_OK;
    }
    pst_collective_close(c);
    return NULL;
}

static void test_barrier_of_five(void **state)
{
    struct worker w[5];
    pthread_t thread[5];
    void *memory = shared_memory(5);
    (void)state;
    atomic_store(&arrived, 0);
    for (int r = 0; r < 5; r++) {
        w[r] = (struct worker){.memory = memory, .rank = r, .members = 5};
        assert_int_equal(pthread_create(&thread[r], NULL, pass, &w[r]), 0);
    }
    for (int r = 0; r < 5; r++) {
        assert_int_equal(pthread_join(thread[r], NULL), 0);
        assert_true(w[r].good);
    }
    free_memory(memory, 5);
}

/* ---- ends ---------------------------------------------------------------------------------------- */

static void expect_words(const char *const *words, int n)
{
    for (int i = 0; i < n; i++)
        if (!strstr(pst_error_text(), words[i]))
            fail_msg("the message lacks \"%s\": %s", words[i], pst_error_text());
}

static void test_dead_peer(void **state)
{
    void *memory = shared_memory(2);
    float a = 1, b = 0;
    (void)state;
    const pid_t pid = fork();
    if (pid == 0) {
        struct pst_collective *c = member(memory, 1, 2, PATIENT_S);
        if (c && pst_collective_barrier(c) == PST_OK)
            (void)raise(SIGKILL);
        _exit(1);
    }
    struct pst_collective *c = member(memory, 0, 2, PATIENT_S);
    assert_non_null(c);
    assert_int_equal(pst_collective_barrier(c), PST_OK);
    const double begin = pst_clock_s();
    assert_int_equal(pst_collective_exchange(c, 1, &a, &b, sizeof a), PST_E_PEER);
    assert_true(pst_clock_s() - begin < 2);
    expect_words((const char *const[]){"t.1 (process ", "died while t.0 waited for it"}, 2);
    pst_collective_close(c);
    (void)waitpid(pid, NULL, 0);
    free_memory(memory, 2);
}

/* What a member gave before it left can be taken; what it did not give cannot. */
static void test_left_peer(void **state)
{
    void *memory = shared_memory(2);
    struct pst_collective *c0 = member(memory, 0, 2, PATIENT_S), *c1 = member(memory, 1, 2, 0.01);
    float a = 1, b = 2, got = 0;
    (void)state;
    assert_non_null(c0);
    assert_non_null(c1);
    assert_int_equal(pst_collective_exchange(c1, 0, &b, &got, sizeof b), PST_E_TIMEOUT);
    expect_words((const char *const[]){"t.1 waited for data from t.0", "until the limit of 0.0 s was over"},
                 2);
    pst_collective_leave(c1);
    assert_int_equal(pst_collective_exchange(c0, 1, &a, &got, sizeof a), PST_OK);
    assert_true(got == 2);
    assert_int_equal(pst_collective_exchange(c0, 1, &a, &got, sizeof a), PST_E_INTERRUPTED);
    expect_words((const char *const[]){"t.1 has ended while t.0 waited for it"}, 1);
    pst_collective_close(c0);
    pst_collective_close(c1);
    free_memory(memory, 2);
}

static void test_stop(void **state)
{
    void *memory = shared_memory(2);
    _Atomic uint32_t stop = 1;
    struct pst_collective *c = NULL;
    const struct pst_collective_shared_options options = {
        .memory = memory, .rank = 0, .members = 2, .names = names, .deadline_s = PATIENT_S, .stop = &stop};
    (void)state;
    assert_int_equal(pst_collective_shared_open(&c, &options), PST_OK);
    assert_int_equal(pst_collective_barrier(c), PST_E_INTERRUPTED);
    expect_words((const char *const[]){"the run is ending"}, 1);
    pst_collective_close(c);
    pst_collective_close(NULL);
    free_memory(memory, 2);
}

static void test_ranks(void **state)
{
    void *memory = shared_memory(2);
    struct pst_collective *c = member(memory, 1, 2, PATIENT_S);
    (void)state;
    assert_non_null(c);
    assert_null(member(memory, 1, 2, PATIENT_S));
    expect_words((const char *const[]){"already has a member of rank 1"}, 1);
    assert_null(member(memory, 2, 2, PATIENT_S));
    expect_words((const char *const[]){"found number 2 of 2 members"}, 1);
    pst_collective_close(c);
    free_memory(memory, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),         cmocka_unit_test(test_processes),
        cmocka_unit_test(test_barrier_of_five), cmocka_unit_test(test_dead_peer),
        cmocka_unit_test(test_left_peer),       cmocka_unit_test(test_stop),
        cmocka_unit_test(test_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
