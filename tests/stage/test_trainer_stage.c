/* The trainer as a stage: events in, reports out. */
#include "common/slots/request.h"
#include "tests/stage/trainer_host.h"

#include <math.h>

static void test_epochs(void **state)
{
    (void)state;
    struct pst_stage host, again;
    run_straight(&host, in_scratch("epochs"), false);
    run_straight(&again, in_scratch("again"), false);
    assert_string_equal(host.reports, again.reports);
    assert_int_equal(host.consumed, 2 * BATCHES);
    assert_non_null(strstr(host.reports, "epochs {\"epoch\":0,"));
    assert_non_null(strstr(host.reports, "epochs {\"epoch\":1,"));
    assert_non_null(strstr(host.reports, "result {\"test_accuracy\":0."));
    assert_null(strstr(host.reports, "null"));
    host_end(&host);
    host_end(&again);
}

static double number_after(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    assert_non_null(at);
    return strtod(at + strlen(key), NULL);
}

/* A split batch learns the same; parts that are not the last change nothing. */
static void test_halves(void **state)
{
    (void)state;
    struct pst_stage whole, halves;
    run_straight(&whole, in_scratch("whole"), false);
    run_straight(&halves, in_scratch("halves"), true);
    const double a = number_after(whole.reports, "\"loss\":"), b = number_after(halves.reports, "\"loss\":");
    assert_true(fabs(a - b) < 1e-5 * a);
    assert_int_equal(halves.consumed, 4 * BATCHES);
    host_end(&whole);
    host_end(&halves);
}

/* Stopped between the halves of batch 4, and gone on with: the same to the last bit. */
static void test_finish_and_resume(void **state)
{
    (void)state;
    struct pst_stage straight, first, second;
    char path[512];
    run_straight(&straight, in_scratch("straight"), true);
    host_init(&first, in_scratch("stopped"));
    assert_int_equal(host_open(&first), PST_OK);
    assert_int_equal(tell(&first, PST_EV_START), PST_OK);
    for (uint64_t batch = 0; batch < 4; batch++) {
        send_half(&first, batch, 0);
        send_half(&first, batch, 1);
    }
    send_half(&first, 4, 0);
    assert_int_equal(tell(&first, PST_EV_FINISH), PST_OK);
    assert_int_equal(pst_checkpoint_latest(in_scratch("stopped/checkpoints"), path, sizeof path, NULL, 0),
                     PST_OK);
    assert_non_null(strstr(path, "00000004.safetensors"));

    host_init(&second, in_scratch("resumed"));
    second.resume = path;
    assert_int_equal(host_open(&second), PST_OK);
    assert_int_equal(tell(&second, PST_EV_START), PST_OK);
    for (uint64_t batch = 4; batch < 6; batch++) {
        send_half(&second, batch, 0);
        send_half(&second, batch, 1);
    }
    assert_int_equal(tell(&second, PST_EV_END), PST_OK);
    strip_times(first.reports);
    strip_times(second.reports);
    char *so_far = strstr(first.reports, "result {"); /* what it has when it is stopped */
    assert_non_null(so_far);
    *so_far = '\0';
    char joined[2 * HOST_TEXT_MAX];
    snprintf(joined, sizeof joined, "%s%s", first.reports, second.reports);
    assert_string_equal(joined, straight.reports);
    host_end(&straight);
    host_end(&first);
    host_end(&second);
}

static void expect_refusal(uint64_t batch, const char *why, void (*spoil)(struct pst_minibatch *))
{
    struct pst_stage host;
    host_init(&host, in_scratch("refused"));
    assert_int_equal(host_open(&host), PST_OK);
    assert_int_equal(tell(&host, PST_EV_START), PST_OK);
    struct pst_minibatch *mb = fill(host.slot, batch, 0, SEEDS, true);
    if (spoil)
        spoil(mb);
    assert_int_not_equal(send_frame(&host, batch, 0, PST_LAST_PART | PST_LAST_MICRO, 1), PST_OK);
    if (!strstr(pst_error_text(), why))
        print_message("expected \"%s\" in: %s\n", why, pst_error_text());
    assert_non_null(strstr(pst_error_text(), why));
    host_end(&host);
}

static void spoil_magic(struct pst_minibatch *mb)
{
    mb->magic++;
}
static void spoil_label(struct pst_minibatch *mb)
{
    ((int32_t *)pst_minibatch_at(mb, mb->labels_at))[2] = 4;
}
static void spoil_dim(struct pst_minibatch *mb)
{
    mb->feature_dim--;
}
static void spoil_number(struct pst_minibatch *mb)
{
    mb->batch_in_epoch = 1;
}
static void spoil_feature(struct pst_minibatch *mb)
{
    ((float *)pst_minibatch_at(mb, mb->features_at))[3] = NAN;
}
static void spoil_hops(struct pst_minibatch *mb)
{
    mb->hops = 1;
    mb->n[2] = mb->n[1];
}

/* Two rows were asked for, and one was read. */
static void spoil_served(struct pst_minibatch *mb)
{
    mb->requests = 2;
    mb->served = 1;
    mb->requests_at = pst_align_up(mb->bytes_used, PST_CACHE_LINE);
    mb->missing_at = mb->requests_at + 2 * sizeof(struct pst_request);
    mb->bytes_used = mb->missing_at + 2 * sizeof(int32_t);
    memset(pst_minibatch_at(mb, mb->requests_at), 0, mb->bytes_used - mb->requests_at);
}

/* A row is in a cache that the trainer does not have. */
static void spoil_in_place(struct pst_minibatch *mb)
{
    const uint64_t rows = (uint64_t)mb->n[2];
    mb->in_place_at = pst_align_up(mb->bytes_used, PST_CACHE_LINE);
    mb->in_place_rows = 1;
    mb->bytes_used = mb->in_place_at + rows * sizeof(int32_t);
    memset(pst_minibatch_at(mb, mb->in_place_at), -1, rows * sizeof(int32_t));
    *(int32_t *)pst_minibatch_at(mb, mb->in_place_at) = 0;
}

static void test_refusals(void **state)
{
    (void)state;
    expect_refusal(1, "batch 1 arrived; expected batch 0", NULL);
    expect_refusal(0, "batch 0", spoil_magic);
    expect_refusal(0, "is 4, but the dataset has only", spoil_label);
    expect_refusal(0, "columns", spoil_dim);
    expect_refusal(0, "batch_in_epoch ", spoil_number);
    expect_refusal(0, "epoch 0 (its batch 0): the loss is", spoil_feature);
    expect_refusal(0, "1 hops, but the model has 2 layers: both numbers must be equal", spoil_hops);
    expect_refusal(0, "1 of 2 requested feature rows were never read: put", spoil_served);
    expect_refusal(0, "in a cache of 1 rows, but the stage that made it shares memory for 0", spoil_in_place);
}

static void test_void_batches(void **state)
{
    (void)state;
    struct pst_stage host;
    host_init(&host, in_scratch("void"));
    assert_int_equal(host_open(&host), PST_OK);
    assert_int_equal(tell(&host, PST_EV_START), PST_OK);
    memset(host.slot, 0xFF, SLOT_BYTES); /* not looked at before the last part */
    assert_int_equal(send_frame(&host, 0, 0, 0, 1), PST_OK);
    assert_int_equal(host.consumed, 0);
    const int64_t steps = host.state->model.steps;
    (void)fill(host.slot, 0, 0, 0, true); /* no seeds */
    assert_int_equal(send_frame(&host, 0, 0, PST_LAST_PART | PST_LAST_MICRO, 1), PST_OK);
    assert_int_equal(send_frame(&host, 1, 0, PST_LAST_PART | PST_LAST_MICRO, 0), PST_OK); /* no slot */
    assert_int_equal(host.state->model.steps, steps); /* nothing was learned: no step */
    send_half(&host, 2, 0);
    (void)fill(host.slot, 2, SEEDS, SEEDS, true); /* a void one ends a batch that has gradients */
    assert_int_equal(send_frame(&host, 2, 1, PST_LAST_PART | PST_LAST_MICRO, 1), PST_OK);
    assert_int_equal(host.state->model.steps, steps + 1);
    assert_non_null(strstr(host.reports, "epochs {\"epoch\":0,"));
    host_end(&host);
}

static void expect_no_open(const char *name, const char *value, const char *why)
{
    struct pst_stage host;
    host_init(&host, in_scratch("closed"));
    host.set[0][0] = name;
    host.set[0][1] = value;
    assert_int_not_equal(host_open(&host), PST_OK);
    assert_non_null(strstr(pst_error_text(), why));
    host_end(&host);
}

static void test_open(void **state)
{
    (void)state;
    expect_no_open("residual", "true", "layers to 3");
    struct pst_stage host;
    host_init(&host, in_scratch("closed"));
    host.resume = "/not/there";
    assert_int_equal(host_open(&host), PST_E_IO);
    host_end(&host);
    host_init(&host, in_scratch("closed"));
    host.dataset = scratch;
    assert_int_not_equal(host_open(&host), PST_OK);
    host_end(&host);
}

/* Halves of a batch as two grains: a grain of another replica is refused, and so is one that comes late. */
static void expect_grains(uint32_t first, uint32_t then, const char *why)
{
    struct pst_stage host;
    host_init(&host, in_scratch("grains"));
    host.set[0][0] = "grains";
    host.set[0][1] = "8";
    host.replicas = 2;
    host.replica = 1; /* it has grains 4 to 7 */
    assert_int_equal(host_open(&host), PST_OK);
    assert_int_equal(tell(&host, PST_EV_START), PST_OK);
    fill(host.slot, 0, 0, SEEDS / 2, false)->grain = first;
    const pst_rc rc = send_frame(&host, 0, 0, PST_LAST_PART, 1);
    if (rc == PST_OK) {
        fill(host.slot, 0, SEEDS / 2, SEEDS, true)->grain = then;
        const pst_rc last = send_frame(&host, 0, 1, PST_LAST_PART | PST_LAST_MICRO, 1);
        assert_true((last == PST_OK) == (why == NULL));
    }
    if (why && !strstr(pst_error_text(), why))
        fail_msg("expected \"%s\" in: %s", why, pst_error_text());
    assert_int_equal(host.state->model.steps, why ? 0 : 1);
    host_end(&host);
}

static void test_grains(void **state)
{
    (void)state;
    expect_grains(4, 4, NULL);
    expect_grains(4, 7, NULL);
    expect_grains(3, 7, "grain 3 of the batch arrived; expected 4 to 7: link each replica");
    expect_grains(8, 7, "grain 8 of the batch arrived; expected 4 to 7: link each replica");
    expect_grains(6, 5, "grain 5 of the batch arrived; expected 6 to 7: link each replica");
}

/* Without evaluation and checkpoints nothing is written, and what was not measured is null. */
static void test_nothing_extra(void **state)
{
    (void)state;
    struct pst_stage host;
    host_init(&host, in_scratch("bare"));
    host.set[0][0] = "eval_every";
    host.set[0][1] = "0";
    host.set[1][0] = "checkpoint_every";
    host.set[1][1] = "0";
    assert_int_equal(host_open(&host), PST_OK);
    assert_int_equal(tell(&host, PST_EV_START), PST_OK);
    for (uint64_t batch = 0; batch < 2 * BATCHES; batch++)
        assert_int_equal(send_batch(&host, batch), PST_OK);
    assert_int_equal(tell(&host, PST_EV_END), PST_OK);
    assert_non_null(strstr(host.reports, "\"val_accuracy\":null"));
    assert_non_null(strstr(host.reports, "\"test_accuracy\":null"));
    assert_int_not_equal(access(in_scratch("bare/checkpoints"), F_OK), 0);
    host_end(&host);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_epochs),        cmocka_unit_test(test_halves),
        cmocka_unit_test(test_refusals),      cmocka_unit_test(test_finish_and_resume),
        cmocka_unit_test(test_open),          cmocka_unit_test(test_void_batches),
        cmocka_unit_test(test_nothing_extra), cmocka_unit_test(test_grains),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
