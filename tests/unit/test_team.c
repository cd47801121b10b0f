/* The team: every task of every job is done once, by any number of threads, while the caller waits or works.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/util/team.h"

enum { TASKS = 1000, JOBS = 2000 };

struct counted {
    _Atomic int64_t times[TASKS];
};

static void count_task(void *arg, int64_t task, int worker)
{
    struct counted *c = arg;
    assert_true(worker >= 0 && worker < 5);
    c->times[task]++;
}

/* Jobs follow each other at once, and after a sleep. apart: the caller begins and ends a job. */
static void check_jobs(int threads, bool apart)
{
    static struct counted c;
    struct pst_team *team;
    assert_int_equal(pst_team_new(&team, threads), PST_OK);
    memset(&c, 0, sizeof c);
    for (int job = 0; job < JOBS; job++) {
        if (apart)
            pst_team_begin(team, count_task, &c, job % 7);
        else
            pst_team_run(team, count_task, &c, job % 7);
        if (job % 500 == 0)
            (void)usleep(2000);
        if (apart)
            pst_team_end(team);
    }
    pst_team_run(team, count_task, &c, TASKS);
    for (int t = 0; t < TASKS; t++) {
        int64_t want = 1;
        for (int job = 0; job < JOBS; job++)
            want += t < job % 7;
        assert_int_equal(c.times[t], want);
    }
    pst_team_free(team);
}

static void jobs_are_done(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 5; threads += 2) {
        check_jobs(threads, false);
        check_jobs(threads, true);
    }
    pst_team_free(NULL);
}

/* While the caller does something else, the other threads do the tasks. */
static void workers_work_alone(void **state)
{
    (void)state;
    static struct counted c;
    struct pst_team *team;
    memset(&c, 0, sizeof c);
    assert_int_equal(pst_team_new(&team, 3), PST_OK);
    pst_team_begin(team, count_task, &c, TASKS);
    for (int i = 0; i < 10000 && c.times[TASKS - 1] == 0; i++)
        (void)usleep(1000);
    assert_int_equal(c.times[TASKS - 1], 1);
    pst_team_end(team);
    pst_team_free(team);
}

static void there_is_a_core(void **state)
{
    (void)state;
    assert_in_range(pst_team_cores(), 1, PST_TEAM_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(jobs_are_done), cmocka_unit_test(workers_work_alone),
                                       cmocka_unit_test(there_is_a_core)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
