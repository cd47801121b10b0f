/* The plateau schedule: what counts as an improvement, when the rate falls, how far, and what a resumed run
 * finds. */
#include "stages/lib/learning/plateau.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static struct pst_plateau begin(double patience, double factor, double least)
{
    return (struct pst_plateau){
        .patience = patience, .factor = factor, .least = least, .state = {.scale = 1}};
}

static void steps(struct pst_plateau *p, enum pst_plateau_figure figure, const double *values, int n)
{
    for (int i = 0; i < n; i++)
        pst_plateau_step(p, figure, values[i]);
}

static void the_loss_must_fall_and_the_mrr_must_rise(void **s)
{
    (void)s;
    const double falling[] = {3, 2, 1.5, 1.4}, rising[] = {.1, .2, .3, .31};
    struct pst_plateau p = begin(0, 0.5, 0);
    steps(&p, PST_PLATEAU_LOSS, falling, 4);
    assert_true(p.state.scale == 1 && p.state.best == 1.4);
    p = begin(0, 0.5, 0);
    steps(&p, PST_PLATEAU_SCORE, rising, 4);
    assert_true(p.state.scale == 1 && p.state.best == .31);
    steps(&p, PST_PLATEAU_SCORE, falling + 3, 1);
    steps(&p, PST_PLATEAU_SCORE, rising, 4);
    assert_true(p.state.scale == 1. / 16 && p.state.best == 1.4);
    p = begin(0, 0.5, 0);
    steps(&p, PST_PLATEAU_LOSS, rising, 4);
    assert_true(p.state.scale == 1. / 8 && p.state.best == .1);
}

/* As r2 can be. */
static void a_score_below_zero_improves_when_it_rises(void **s)
{
    (void)s;
    const double rising[] = {-3, -2, -1.9999, -1.99}, falling[] = {-1, -1.00001};
    struct pst_plateau p = begin(5, 0.5, 0);
    steps(&p, PST_PLATEAU_SCORE, rising, 2);
    assert_true(p.state.best == -2 && p.state.waited == 0);
    steps(&p, PST_PLATEAU_SCORE, rising + 2, 1);
    assert_true(p.state.best == -2 && p.state.waited == 1); /* too little */
    steps(&p, PST_PLATEAU_SCORE, rising + 3, 1);
    assert_true(p.state.best == -1.99 && p.state.waited == 0);
    p = begin(5, 0.5, 0);
    steps(&p, PST_PLATEAU_SCORE, falling, 2);
    assert_true(p.state.best == -1 && p.state.waited == 1);
}

static void patience_threshold_and_least(void **s)
{
    (void)s;
    /* the second value is better, but by too little */
    const double values[] = {1, 0.99995, 1, 2, 1, 1, 1, 1, 1, 1};
    const double scales[] = {1, 1, 1, .25, .25, .25, .1, .1, .1, .1};
    struct pst_plateau p = begin(2, 0.25, 0.1);
    for (int i = 0; i < 10; i++) {
        steps(&p, PST_PLATEAU_LOSS, values + i, 1);
        assert_true(p.state.scale == scales[i]);
    }
}

static void another_figure_begins_anew_and_a_copy_of_the_state_goes_on(void **s)
{
    (void)s;
    const double same[] = {0.3, 0.3, 0.3};
    struct pst_plateau p = begin(2, 0.5, 0), resumed = p;
    steps(&p, PST_PLATEAU_LOSS, same, 3);
    resumed.state = p.state;
    steps(&p, PST_PLATEAU_SCORE, same, 3);
    assert_true(p.state.scale == 1 && p.state.waited == 2);
    steps(&resumed, PST_PLATEAU_LOSS, same, 1);
    assert_true(resumed.state.scale == 0.5 && resumed.state.waited == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_loss_must_fall_and_the_mrr_must_rise),
        cmocka_unit_test(a_score_below_zero_improves_when_it_rises),
        cmocka_unit_test(patience_threshold_and_least),
        cmocka_unit_test(another_figure_begins_anew_and_a_copy_of_the_state_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
