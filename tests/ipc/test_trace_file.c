/* test_trace_file.c: the file that a stage's trace becomes: names, rings that are full, threads, counters. */
/* cmocka.h wants these first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/host/trace.h"

static json_t *written(const struct pst_trace *trace)
{
    char path[] = "/tmp/penstock-trace-XXXXXX", *text = NULL;
    size_t n = 0;
    assert_return_code(mkstemp(path), 0);
    assert_int_equal(pst_trace_write(trace, path, "disk", 3), PST_OK);
    FILE *f = fopen(path, "re"), *whole = open_memstream(&text, &n);
    assert_true(f && whole);
    fputc('[', whole);
    for (int c; (c = fgetc(f)) != EOF;)
        fputc(c, whole);
    fputs("0]", whole); /* each line ends with a comma */
    (void)fclose(f);
    (void)fclose(whole);
    (void)unlink(path);
    json_error_t error;
    json_t *events = json_loads(text, 0, &error);
    if (!events)
        fail_msg("%s: %.300s", error.text, text);
    free(text);
    return events;
}

static const char *text_of(const json_t *event, const char *key)
{
    const char *text = json_string_value(json_object_get(event, key));
    return text ? text : "";
}

static double number_of(const json_t *event, const char *key)
{
    return json_number_value(json_object_get(event, key));
}

/* The n-th event of a phase; name NULL: of any name. */
static const json_t *nth(const json_t *events, const char *phase, const char *name, int n)
{
    size_t i;
    const json_t *e;
    json_array_foreach(events, i, e)
    {
        if (strcmp(text_of(e, "ph"), phase) == 0 && (!name || strcmp(text_of(e, "name"), name) == 0) &&
            n-- == 0)
            return e;
    }
    return NULL;
}

static void names_that_json_cannot_hold(void **state)
{
    (void)state;
    struct pst_trace trace;
    assert_int_equal(pst_trace_open(&trace), PST_OK);
    pst_trace_add(&trace, "a \"quoted\\\" \x01\xff name that is much longer than a span's name can be", 1, 2);
    json_t *events = written(&trace);
    assert_string_equal(text_of(nth(events, "X", NULL, 0), "name"),
                        "a ?quoted?? ?? name that is much longer");
    assert_string_equal(text_of(json_object_get(nth(events, "M", "thread_name", 0), "args"), "name"), "disk");
    json_decref(events);
    pst_trace_close(&trace);
}

static void the_last_spans_stay(void **state)
{
    (void)state;
    struct pst_trace trace;
    assert_int_equal(pst_trace_open(&trace), PST_OK);
    for (int i = 0; i < PST_TRACE_SPANS_MAX + 5; i++)
        pst_trace_add_of(&trace, "T", (uint64_t)i, -1, i, i + 0.5);
    json_t *events = written(&trace);
    assert_string_equal(text_of(nth(events, "X", NULL, 0), "name"), "T 5");
    assert_non_null(nth(events, "X", NULL, PST_TRACE_SPANS_MAX - 1));
    assert_null(nth(events, "X", NULL, PST_TRACE_SPANS_MAX));
    json_decref(events);
    pst_trace_close(&trace);
}

/* 1..9 holds 2..3 and 4..6; 5..7 overlaps 4..6, and goes to a second thread, where 8..10 has room, too. */
static void spans_that_do_not_nest(void **state)
{
    (void)state;
    static const double spans[][2] = {{5, 7}, {1, 9}, {2, 3}, {8, 10}, {4, 6}};
    static const int threads[] = {0, 0, 0, 1, 1}; /* in the order of their begin */
    struct pst_trace trace;
    assert_int_equal(pst_trace_open(&trace), PST_OK);
    for (size_t i = 0; i < 5; i++)
        pst_trace_add(&trace, "x", spans[i][0], spans[i][1]);
    json_t *events = written(&trace);
    for (int i = 0; i < 5; i++)
        assert_int_equal((int)number_of(nth(events, "X", NULL, i), "tid"), threads[i]);
    assert_string_equal(text_of(json_object_get(nth(events, "M", "thread_name", 1), "args"), "name"),
                        "disk 2");
    assert_null(nth(events, "M", "thread_name", 2));
    json_decref(events);
    pst_trace_close(&trace);
}

static void flows_begin_with_their_spans(void **state)
{
    (void)state;
    static const char *const phases[] = {"s", "t", "f"};
    struct pst_trace trace;
    assert_int_equal(pst_trace_open(&trace), PST_OK);
    const uint64_t flow = pst_trace_flow(2, 77, 1);
    pst_trace_add_way(&trace, "fill 77", 1, 2, PST_TRACE_STARTS, flow);
    pst_trace_add_way(&trace, "frame 77", 3, 4, PST_TRACE_PASSES, flow);
    pst_trace_add_way(&trace, "frame 77", 5, 6, PST_TRACE_ENDS, flow);
    json_t *events = written(&trace);
    for (int i = 0; i < 3; i++) {
        const json_t *e = nth(events, phases[i], "batch", 0);
        assert_true(number_of(e, "id") == (double)flow && number_of(e, "ts") == (1 + 2 * i) * 1e6);
        assert_string_equal(text_of(e, "bp"), i == 2 ? "e" : "");
    }
    json_decref(events);
    pst_trace_close(&trace);
}

static void flows_have_their_own_numbers(void **state)
{
    (void)state;
    const uint64_t a = pst_trace_flow(0, 1, 0);
    assert_true(a != pst_trace_flow(1, 1, 0) && a != pst_trace_flow(0, 2, 0) && a != pst_trace_flow(0, 1, 1));
    const uint64_t most = pst_trace_flow(63, ((uint64_t)1 << 35) - 1, 4095);
    assert_true((uint64_t)(double)most == most &&
                most == ((uint64_t)1 << 53) - 1); /* JSON readers use doubles */
    assert_int_equal(pst_trace_flow(64, (uint64_t)1 << 35, 4096), 0);
}

static void counters_between_samples(void **state)
{
    (void)state;
    struct pst_trace trace;
    assert_int_equal(pst_trace_open(&trace), PST_OK);
    pst_trace_add_sample(&trace, &(struct pst_trace_sample){.at_s = 1, .free_slots = 4}, false);
    pst_trace_add_sample(&trace, &(struct pst_trace_sample){.at_s = 1.0001, .free_slots = 3},
                         false); /* too soon */
    pst_trace_add_sample(&trace, &(struct pst_trace_sample){.at_s = 1.0002, .free_slots = 4},
                         true); /* unchanged */
    pst_trace_add_sample(&trace, &(struct pst_trace_sample){.at_s = 1.5, .free_slots = 2, .bytes = 100},
                         false);
    pst_trace_add_sample(&trace, &(struct pst_trace_sample){.at_s = 1.5001, .free_slots = 1, .bytes = 100},
                         true);
    json_t *events = written(&trace);
    static const double slots[] = {4, 2, 1}, rates[] = {200, 0, 0};
    for (int i = 0; i < 3; i++) {
        assert_true(number_of(json_object_get(nth(events, "C", "free slots", i), "args"), "slots") ==
                    slots[i]);
        assert_true(number_of(json_object_get(nth(events, "C", "bytes a second", i), "args"), "bytes") ==
                    rates[i]);
    }
    assert_null(nth(events, "C", "free slots", 3));
    assert_null(nth(events, "C", "queue depth", 0)); /* always 0 */
    json_decref(events);
    pst_trace_close(&trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_that_json_cannot_hold),  cmocka_unit_test(the_last_spans_stay),
        cmocka_unit_test(spans_that_do_not_nest),       cmocka_unit_test(flows_begin_with_their_spans),
        cmocka_unit_test(flows_have_their_own_numbers), cmocka_unit_test(counters_between_samples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
