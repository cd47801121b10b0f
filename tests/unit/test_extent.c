/* Where bytes lie: pst_extent_find against a walk over the units; and the judge of requests. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/slots/request.h"

static void every_byte_is_where_its_unit_was_dealt(void **state)
{
    (void)state;
    for (uint32_t over = 1; over <= 4; over++)
        for (uint64_t unit = 1; unit <= 9; unit += 4) {
            const struct pst_extent e = {.from = 13, .unit = unit, .base = 100, .first = 5, .over = over};
            struct pst_extent_place to;
            uint64_t next[4] = {100, 100, 100, 100}; /* of each place: where the next unit goes */
            assert_false(pst_extent_find(&e, 12, &to));
            for (uint64_t u = 0; u < 20; u++) {
                const uint32_t place = (uint32_t)(u % over);
                for (uint64_t k = 0; k < unit; k++) {
                    assert_true(pst_extent_find(&e, 13 + u * unit + k, &to));
                    assert_int_equal(to.place, 5 + place);
                    assert_int_equal(to.at, next[place] + k);
                    assert_true(to.run == (over == 1 ? UINT64_MAX : unit - k));
                }
                next[place] += unit;
            }
        }
}

static void nothing_lies_in_no_place(void **state)
{
    (void)state;
    const struct pst_extent nowhere = {.unit = 8};
    struct pst_extent_place to;
    assert_false(pst_extent_find(&nowhere, 0, &to));
}

static void each_fault_is_told(void **state)
{
    (void)state;
    enum { ROWS = 10, ROW = 100, SLOT = 1000, THERE = PST_REQUEST_ARRAYS_MAX - 1 };
    struct pst_request_array arrays[PST_REQUEST_ARRAYS_MAX] = {{.rows = 0}};
    arrays[THERE] = (struct pst_request_array){.rows = ROWS, .rows_in = {.unit = ROW, .over = 1}};
    const struct {
        struct pst_request r;
        enum pst_request_fault is;
    } cases[] = {
        {{.array = THERE, .rows = ROWS}, PST_REQUEST_RIGHT},
        {{.array = THERE, .rows = 1, .row = ROWS - 1, .offset = SLOT - ROW}, PST_REQUEST_RIGHT},
        {{.array = THERE, .rows = 1, .op = 2}, PST_REQUEST_NO_OP},
        {{.array = THERE, .rows = 1, .op = PST_REQUEST_WRITE}, PST_REQUEST_NO_WRITE},
        {{.array = 0, .rows = 1}, PST_REQUEST_NO_ARRAY},
        {{.array = PST_REQUEST_ARRAYS_MAX, .rows = 1}, PST_REQUEST_NO_ARRAY},
        {{.array = UINT16_MAX, .rows = 1}, PST_REQUEST_NO_ARRAY},
        {{.array = THERE, .rows = 0}, PST_REQUEST_NO_ROWS},
        {{.array = THERE, .rows = 1, .row = ROWS}, PST_REQUEST_NO_ROWS},
        {{.array = THERE, .rows = 2, .row = ROWS - 1}, PST_REQUEST_NO_ROWS},
        {{.array = THERE, .rows = 1, .row = UINT64_MAX}, PST_REQUEST_NO_ROWS},
        {{.array = THERE, .rows = 1, .offset = SLOT - ROW + 1}, PST_REQUEST_NO_ROOM},
        {{.array = THERE, .rows = ROWS, .offset = 1}, PST_REQUEST_NO_ROOM},
        {{.array = THERE, .rows = 1, .offset = UINT64_MAX}, PST_REQUEST_NO_ROOM},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(pst_request_judge(&cases[i].r, arrays, false, SLOT), cases[i].is);
    const struct pst_request write = {.array = THERE, .rows = 1, .op = PST_REQUEST_WRITE};
    assert_int_equal(pst_request_judge(&write, arrays, true, SLOT), PST_REQUEST_RIGHT);
    arrays[THERE].writable = true; /* this array alone */
    assert_int_equal(pst_request_judge(&write, arrays, false, SLOT), PST_REQUEST_RIGHT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_is_where_its_unit_was_dealt),
        cmocka_unit_test(nothing_lies_in_no_place),
        cmocka_unit_test(each_fault_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
