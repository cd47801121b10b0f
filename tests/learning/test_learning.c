/* Schedules against the closed forms of the papers, and metrics against their definitions, by brute force in
 * double precision, with ties, unknown labels and repeated vertices. */
#include "stages/lib/learning/fit.h"
#include "stages/lib/learning/metric.h"
#include "stages/lib/learning/schedule.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void near(double found, double wanted, const char *what)
{
    if (!(fabs(found - wanted) <= 1e-12 * (1 + fabs(wanted))))
        fail_msg("%s: found %.17g, expected %.17g", what, found, wanted);
}

/* ---- schedules ----------------------------------------------------------------------------------- */

enum { IN_EPOCH = 7, EPOCHS = 6 };

static double warm(uint64_t batch, double batches)
{
    return (double)batch + 1 < batches ? ((double)batch + 1) / batches : 1;
}

static void every_schedule_with_and_without_warmup(void **state)
{
    (void)state;
    const double warmups[] = {0, 0.5, 2}, rises[] = {0, 4, 14}; /* epochs; batches, rounded up */
    for (int w = 0; w < 3; w++)
        for (uint64_t batch = 0; batch < (EPOCHS + 2) * IN_EPOCH; batch++) {
            struct pst_schedule s = {.rate = 0.3, .warmup = warmups[w]};
            const double share = warm(batch, rises[w]);
            near(pst_schedule_rate(&s, batch, IN_EPOCH, 0.5), 0.3 * share, "constant");

            s.kind = PST_SCHEDULE_STEP;
            s.factor = 0.5;
            s.period = 3;
            s.rate_min = 0.1;
            double rate = 0.3;
            for (uint64_t fall = 3 * IN_EPOCH; fall <= batch; fall += 3 * IN_EPOCH)
                rate = fmax(rate * 0.5, 0.1);
            near(pst_schedule_rate(&s, batch, IN_EPOCH, 0.5), rate * share, "step");

            s.kind = PST_SCHEDULE_COSINE;
            s.period = EPOCHS;
            s.rate_min = 0.01;
            const double all = EPOCHS * IN_EPOCH - rises[w],
                         at = fmin(fmax((double)batch - rises[w], 0), all);
            rate = 0.01 + 0.5 * (0.3 - 0.01) * (1 + cos(acos(-1) * at / all));
            near(pst_schedule_rate(&s, batch, IN_EPOCH, 0.5), rate * share, "cosine");

            s.kind = PST_SCHEDULE_PLATEAU;
            near(pst_schedule_rate(&s, batch, IN_EPOCH, 0.5), 0.15 * share, "plateau");
            near(pst_schedule_rate(&s, batch, IN_EPOCH, 1e-9), 0.01 * share, "lowest plateau");
        }
}

/* A warm-up that is longer than the cosine leaves nothing of it. */
static void warmup_longer_than_the_cosine(void **state)
{
    (void)state;
    const struct pst_schedule s = {
        .kind = PST_SCHEDULE_COSINE, .rate = 1, .rate_min = 0.25, .period = 2, .warmup = 3};
    near(pst_schedule_rate(&s, 3 * IN_EPOCH, IN_EPOCH, 1), 0.25, "after");
    near(pst_schedule_rate(&s, 0, IN_EPOCH, 1), 0.25 / (3 * IN_EPOCH), "first");
}

/* ---- metrics ------------------------------------------------------------------------------------- */

static uint64_t rng = 0x9E3779B97F4A7C15ull;
static uint64_t rnd(uint64_t bound)
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return (rng >> 11) % bound;
}

enum { VERTICES = 300, CLASSES_MAX = 5 };
struct world {
    int32_t one[VERTICES], predicted[VERTICES];
    uint8_t several[VERTICES * CLASSES_MAX], guessed[VERTICES * CLASSES_MAX];
    pst_real logits[VERTICES * (CLASSES_MAX + 2)];
    int64_t ids[VERTICES], n, classes, ld;
    bool multilabel;
};

static void make(struct world *w, bool multilabel)
{
    *w = (struct world){.n = 1 + (int64_t)rnd(150), .multilabel = multilabel};
    w->classes = multilabel ? 1 + (int64_t)rnd(CLASSES_MAX) : 2 + (int64_t)rnd(CLASSES_MAX - 1);
    w->ld = w->classes + (int64_t)rnd(3);
    for (int64_t i = 0; i < VERTICES * w->ld; i++)
        w->logits[i] = (pst_real)rnd(8) * (pst_real)0.5 - 2; /* many ties */
    for (int64_t v = 0; v < VERTICES; v++) {
        w->one[v] = (int32_t)rnd((uint64_t)w->classes + 1) - 1;
        w->predicted[v] = (int32_t)rnd((uint64_t)w->classes);
        w->ids[v] = (int64_t)rnd(VERTICES); /* some twice */
    }
    for (int64_t i = 0; i < VERTICES * w->classes; i++) {
        w->several[i] = rnd(5) ? (uint8_t)rnd(2) : PST_LABEL_IGNORED;
        w->guessed[i] = (uint8_t)rnd(2);
    }
}

static struct pst_metric opened(const struct world *w, enum pst_metric_kind kind)
{
    struct pst_metric m;
    const struct pst_metric_labels labels = {w->multilabel ? NULL : w->one, w->multilabel ? w->several : NULL,
                                             w->classes};
    assert_int_equal(pst_metric_open(&m, kind, &labels, w->ids, w->n), 0);
    m.score = calloc(1, pst_metric_score_bytes(&m) + 1);
    for (int64_t first = 0; first < VERTICES; first += 128)
        if (pst_metric_ranks(kind))
            pst_metric_note(&m, w->logits + first * w->ld, w->ld, first,
                            VERTICES - first < 128 ? VERTICES - first : 128);
    return m;
}

static void closed(struct pst_metric *m)
{
    free(m->score);
    pst_metric_close(m);
}

static int label_of(const struct world *w, int64_t id, int64_t c)
{
    if (w->multilabel)
        return w->several[id * w->classes + c] == PST_LABEL_IGNORED ? -1 : w->several[id * w->classes + c];
    return w->one[id] < 0 ? -1 : w->one[id] == c;
}

/* The share of the softmax, or the logit. Multiples of 1/2 that are equal have shares that are equal to the
 * last bit if the sum is made in the order of size. */
static double score_of(const struct world *w, int64_t id, int64_t c)
{
    const pst_real *row = w->logits + id * w->ld;
    double sum = 0;
    if (w->multilabel)
        return (double)row[c];
    for (int half = -4; half <= 4; half++)
        for (int64_t k = 0; k < w->classes; k++)
            sum += (double)row[k] == 0.5 * half ? exp(0.5 * half) : 0;
    return (double)(float)((double)row[c] - log(sum));
}

/* Each pair of vertices in and out of the class. -1: there are none. */
static double auc_of(const struct world *w, int64_t c)
{
    double right = 0, pairs = 0;
    for (int64_t i = 0; i < w->n; i++)
        for (int64_t j = 0; j < w->n; j++) {
            if (label_of(w, w->ids[i], c) != 1 || label_of(w, w->ids[j], c) != 0)
                continue;
            const double a = score_of(w, w->ids[i], c), b = score_of(w, w->ids[j], c);
            right += a > b ? 1 : a == b ? 0.5 : 0;
            pairs++;
        }
    return pairs > 0 ? right / pairs : -1;
}

/* Each distinct score is a threshold, from the highest. */
static double precision_of(const struct world *w, int64_t c)
{
    double threshold = INFINITY, before = 0, sum = 0, in = 0, out = 0;
    for (int64_t i = 0; i < w->n; i++) {
        in += label_of(w, w->ids[i], c) == 1;
        out += label_of(w, w->ids[i], c) == 0;
    }
    for (;;) {
        double next = -INFINITY, hits = 0, all = 0;
        for (int64_t i = 0; i < w->n; i++) {
            const double score = score_of(w, w->ids[i], c);
            if (label_of(w, w->ids[i], c) >= 0 && score < threshold && score > next)
                next = score;
        }
        if (next == -INFINITY)
            break;
        for (int64_t i = 0; i < w->n; i++)
            if (label_of(w, w->ids[i], c) >= 0 && score_of(w, w->ids[i], c) >= next) {
                hits += label_of(w, w->ids[i], c);
                all++;
            }
        sum += (hits / in - before) * (hits / all);
        before = hits / in;
        threshold = next;
    }
    return in > 0 && out > 0 ? sum : -1;
}

static double ranked(const struct world *w, enum pst_metric_kind kind)
{
    struct pst_metric m = opened(w, kind);
    void *scratch = malloc(pst_metric_scratch_bytes(&m) + 1);
    double figures[CLASSES_MAX], wanted[CLASSES_MAX];
    for (int64_t c = 0; c < m.columns; c++) {
        const int64_t class = m.columns < w->classes ? 1 : c;
        pst_metric_rank(&m, c, scratch, &figures[c]);
        wanted[c] = kind == PST_METRIC_ROC_AUC ? auc_of(w, class) : precision_of(w, class);
        near(figures[c], wanted[c], pst_metric_name(kind));
    }
    const double mean = pst_metric_mean(figures, m.columns);
    free(scratch);
    closed(&m);
    return mean;
}

static void ranks_equal_the_definitions(void **state)
{
    (void)state;
    struct world *w = malloc(sizeof *w);
    int there = 0;
    for (int turn = 0; turn < 60; turn++) {
        make(w, turn % 2);
        there += ranked(w, PST_METRIC_ROC_AUC) >= 0;
        there += ranked(w, PST_METRIC_AVERAGE_PRECISION) >= 0;
    }
    assert_true(there > 100);
    free(w);
}

/* What can be computed by hand: scores 4 3 3 2 1, and 0 and -0, which are equal. */
static void ranks_by_hand(void **state)
{
    (void)state;
    const int32_t one[] = {1, 0, 1, 0, 1, 0, 1};
    const pst_real scores[] = {4, 3, 3, 2, 1, 0, -(pst_real)0.0};
    pst_real logits[14] = {0};
    const int64_t ids[] = {0, 1, 2, 3, 4, 5, 6};
    const struct pst_metric_labels labels = {one, NULL, 2};
    double figure;
    uint64_t scratch[14];
    for (int i = 0; i < 7; i++)
        logits[2 * i + 1] = scores[i];
    for (enum pst_metric_kind kind = PST_METRIC_ROC_AUC; kind <= PST_METRIC_AVERAGE_PRECISION; kind++) {
        struct pst_metric m;
        float room[7];
        assert_int_equal(pst_metric_open(&m, kind, &labels, ids, 7), 0);
        assert_int_equal(m.columns, 1);
        m.score = room;
        pst_metric_note(&m, logits, 2, 0, 7);
        room[6] = -0.0f;
        pst_metric_rank(&m, 0, scratch, &figure);
        if (kind == PST_METRIC_ROC_AUC)
            near(figure, (3 + 2.5 + 1 + 0.5) / 12, "ROC AUC");
        else
            near(figure, (1 + 2. / 3 + 3. / 5 + 4. / 7) / 4, "average precision");
        pst_metric_close(&m);
    }
    const double none[] = {-1, -1}, some[] = {-1, 0.25, 0.75};
    near(pst_metric_mean(none, 2), -1, "no mean");
    near(pst_metric_mean(some, 3), 0.5, "mean");
}

/* A class has a rank exactly if the list is said to support it. */
static void what_can_be_measured_is_known_before(void **state)
{
    (void)state;
    struct world *w = malloc(sizeof *w);
    int64_t undefined = 0, unlabelled = 0;
    for (int turn = 0; turn < 200; turn++) {
        make(w, turn % 2);
        w->n = 1 + (int64_t)rnd(4);
        const struct pst_metric_labels labels = {w->multilabel ? NULL : w->one,
                                                 w->multilabel ? w->several : NULL, w->classes};
        struct pst_metric_support s;
        int64_t count = 0, first = -1, labelled = 0;
        assert_int_equal(pst_metric_supported(&labels, VERTICES, w->ids, w->n, &s), 0);
        for (int64_t c = 0; c < w->classes; c++)
            if (auc_of(w, c) < 0) {
                first = count++ == 0 ? c : first;
                assert_true(precision_of(w, c) < 0);
            }
        for (int64_t i = 0; i < w->n; i++) {
            bool known = false;
            for (int64_t c = 0; c < w->classes; c++)
                known |= label_of(w, w->ids[i], c) >= 0;
            labelled += known;
        }
        assert_int_equal(s.undefined, count);
        assert_int_equal(s.first, first);
        assert_int_equal(s.labelled, labelled);
        undefined += count;
        unlabelled += labelled == 0;
    }
    assert_true(undefined > 100 && unlabelled > 0);
    free(w);
}

static void macro_f1_equals_the_definition(void **state)
{
    (void)state;
    struct world *w = malloc(sizeof *w);
    for (int turn = 0; turn < 200; turn++) {
        make(w, turn % 2);
        double sum = 0, used = 0, known = 0, found;
        for (int64_t c = 0; c < w->classes; c++) {
            double tp = 0, fp = 0, fn = 0;
            for (int64_t i = 0; i < w->n; i++) {
                const int64_t id = w->ids[i];
                const int label = label_of(w, id, c),
                          guess = w->multilabel ? w->guessed[id * w->classes + c] : w->predicted[id] == c;
                known += label >= 0;
                tp += label == 1 && guess;
                fp += label == 0 && guess;
                fn += label == 1 && !guess;
            }
            used += tp + fp + fn > 0 || w->multilabel;
            sum += tp + fp + fn > 0 ? 2 * tp / (2 * tp + fp + fn) : 0;
        }
        struct pst_metric m = opened(w, PST_METRIC_MACRO_F1);
        assert_int_equal(pst_metric_macro_f1(&m, w->predicted, w->guessed, &found), 0);
        near(found, known > 0 ? sum / used : -1, "macro F1");
        closed(&m);
    }
    free(w);
}

/* Two columns, the second of which is the same for all of the list. */
static void fits_by_hand(void **state)
{
    (void)state;
    const float targets[] = {1, 9, 9, 9, 2, 0.1f, 4, 0.1f, 6, 0.1f},
                outputs[] = {0, 0, 0, 0, 1, 0.1f, 4, 0.1f, 8, 0.1f};
    const int64_t ids[] = {4, 2, 3};
    struct pst_fit fit;
    assert_int_equal(pst_fit_of(outputs, targets, 2, ids, 3, &fit), 0);
    near(fit.mse, (1 + 0 + 4) / 6., "mse");
    near(fit.mae, (1 + 0 + 2) / 6., "mae");
    near(fit.r2, 1 - 5. / 8, "r2");
    assert_int_equal(pst_fit_of(outputs, targets, 2, ids, 1, &fit), 0);
    near(fit.mse, 2, "mse of one vertex");
    assert_true(fit.r2 == PST_METRIC_UNKNOWN);
    assert_int_equal(pst_fit_of(outputs, targets, 2, ids, 0, &fit), 0);
    assert_true(fit.mse == PST_METRIC_UNKNOWN && fit.mae == PST_METRIC_UNKNOWN &&
                fit.r2 == PST_METRIC_UNKNOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_schedule_with_and_without_warmup),
        cmocka_unit_test(warmup_longer_than_the_cosine),
        cmocka_unit_test(ranks_equal_the_definitions),
        cmocka_unit_test(ranks_by_hand),
        cmocka_unit_test(what_can_be_measured_is_known_before),
        cmocka_unit_test(macro_f1_equals_the_definition),
        cmocka_unit_test(fits_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
