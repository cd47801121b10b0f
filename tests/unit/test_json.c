/* JSON with lines, and the list of errors that a check tells. */
#include "tests/unit/store_fixture.h"

#include "common/pipeline/json/json.h"

struct told {
    struct pst_json doc;
    struct pst_diag diag;
    bool ok;
};

static void parse(struct told *t, const char *text, size_t bytes)
{
    memset(t, 0, sizeof *t);
    t->ok = pst_json_parse(&t->doc, "p.json", text, bytes, &t->diag);
}

static void parse_text(struct told *t, const char *text)
{
    parse(t, text, strlen(text));
}

static void done(struct told *t)
{
    pst_json_release(&t->doc);
    pst_diag_release(&t->diag);
}

static void assert_told(const struct told *t, size_t i, const char *begin, const char *part)
{
    assert_true(t->diag.count > i);
    if (strncmp(t->diag.line[i], begin, strlen(begin)) != 0 || !strstr(t->diag.line[i], part))
        fail_msg("expected '%s ... %s', found '%s'", begin, part, t->diag.line[i]);
}

static const char lines_text[] = "{ \"a\": 1,\n"
                                 "  \"b\": {\"c\": [10,\n"
                                 "    {\"d\": \"} ] \\\" \\\\\"}, 12\n"
                                 "  ],\n"
                                 "  \"e\" : null}\n"
                                 ", \"f\": \"\\u0041\", \"g\\u0068\":\n"
                                 "  true}\n";

static void test_lines(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        int line;
    } want[] = {{"a", 1},          {"b", 2},        {"b.c", 2},    {"b.c[0]", 2},
                {"b.c[1]", 3},     {"b.c[1].d", 3}, {"b.c[2]", 3}, {"b.e", 5},
                {"f", 6},          {"gh", 6},       {"b.c[9]", 2}, {"b.c[1].x.y[3]", 3},
                {"nothing.at", 1}, {"", 0},         {"b.cc", 2},   {"b.c[1].d[0]", 3}};
    struct told t;
    parse_text(&t, lines_text);
    assert_true(t.ok);
    assert_int_equal(t.diag.count, 0);
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++)
        if (pst_json_place(&t.doc, want[i].path).line != want[i].line)
            fail_msg("%s: expected line %d, found %d", want[i].path, want[i].line,
                     pst_json_place(&t.doc, want[i].path).line);
    pst_json_error(&t.doc, &t.diag, "b.c[2]", "expected %d", 13);
    assert_told(&t, 0, "p.json:3: b.c[2]: expected 13", "");
    done(&t);
}

static void test_duplicates(void **state)
{
    (void)state;
    struct told t;
    parse_text(&t, "{\"a\": 1,\n\"b\": {\"a\": 1,\n\"a\": 2},\n\"a\": 3, \"\\u0062\": 4}");
    assert_true(t.ok);
    assert_int_equal(t.diag.count, 3);
    assert_told(&t, 0, "p.json:3: b.a: ", "duplicate key: it is already set in line 2");
    assert_told(&t, 1, "p.json:4: a: ", "duplicate key: it is already set in line 1");
    assert_told(&t, 2, "p.json:4: b: ", "duplicate key: it is already set in line 2");
    done(&t);
    /* the same path in two objects, by a key with a dot or in lists, is no duplicate */
    parse_text(&t, "{\"a.b\": 1, \"a\": {\"b\": 2}, \"c[0]\": 1, \"c\": [{\"x\": 1}, {\"x\": 1}]}");
    assert_true(t.ok);
    assert_int_equal(t.diag.count, 0);
    done(&t);
}

static void test_long_keys(void **state)
{
    (void)state;
    enum { LEN = 2000 };
    char text[2 * LEN + 64], key[LEN + 1];
    memset(key, 'k', LEN);
    key[LEN] = '\0';
    struct told t;
    int n = snprintf(text, sizeof text, "{\"%s\": 1,\n\"%sx\": [{\"z\": 2}],\n\"y\": 3}", key, key);
    parse(&t, text, (size_t)n);
    assert_true(t.ok);
    assert_int_equal(t.diag.count, 0); /* neither has a path of its own, and neither is the other */
    assert_int_equal(pst_json_place(&t.doc, "y").line, 3);
    done(&t);
}

static void test_syntax(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t bytes;
        const char *begin, *part;
    } bad[] = {
        {"", 0, "p.json:", "not JSON"},
        {"{", 1, "p.json:1: ", "not JSON"},
        {"{\n\"a\": }", 8, "p.json:2: ", "not JSON"},
        {"[]", 2, "p.json:1: expected an object, found a list", ""},
        {"{} {}", 5, "p.json:1: ", "not JSON"},
        {"{\"a\": \0}", 8, "p.json:1: ", "not JSON"},
        {"{\"a\": [1\0, 2]}", 14, "p.json:1: ", "byte 8 is zero"}, /* once, the scanner stood still here */
        {"{\"a\":\n1}\0", 9, "p.json:2: ", "byte 8 is zero"},
        {"{\"a\": \"\\u0000\"}", 15, "p.json:1: ", "not JSON"},
        {"{\"a\": \"\xc3\"}", 10, "p.json:1: ", "not JSON"},
        {"{\"a\": \"\xed\xa0\x80\"}", 12, "p.json:1: ", "not JSON"},
        {"{\"a\":\n123456789012345678901}", 28, "p.json:2: ", "too big"},
        {"{\"a\": 1e999}", 12, "p.json:1: ", "overflow"},
        {"{\"a\": Infinity}", 15, "p.json:1: ", "not JSON"},
        {"{\"a\": 01}", 9, "p.json:1: ", "not JSON"},
        {"{'a': 1}", 8, "p.json:1: ", "not JSON"},
        {"{\"a\": 1,}", 9, "p.json:1: ", "not JSON"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct told t;
        parse(&t, bad[i].text, bad[i].bytes);
        assert_false(t.ok);
        assert_int_equal(t.diag.count, 1);
        assert_told(&t, 0, bad[i].begin, bad[i].part);
        done(&t);
    }
}

static void test_every_prefix(void **state)
{
    (void)state;
    size_t bytes = strlen(lines_text);
    for (size_t n = 0; n + 1 < bytes; n++) { /* the last byte is a newline */
        char *copy = malloc(n + 1);
        assert_non_null(copy);
        memcpy(copy, lines_text, n);
        struct told t;
        parse(&t, copy, n);
        assert_false(t.ok);
        assert_int_equal(t.diag.count, 1);
        done(&t);
        free(copy);
    }
}

static void test_deep(void **state)
{
    (void)state;
    enum { DEPTH = 1500, TOO_DEEP = 100000 };
    char *text = malloc(2 * TOO_DEEP + 64);
    assert_non_null(text);
    struct told t;
    memset(text, '[', TOO_DEEP);
    parse(&t, text, TOO_DEEP);
    assert_false(t.ok);
    assert_told(&t, 0, "p.json:1: ", "depth");
    done(&t);
    /* what jansson takes, the scanner takes: deep values have their ancestor's line */
    int at = sprintf(text, "{\"a\":\n");
    memset(text + at, '[', DEPTH);
    memset(text + at + DEPTH, ']', DEPTH);
    (void)sprintf(text + at + 2 * DEPTH, ",\n\"b\": 1}");
    parse_text(&t, text);
    assert_true(t.ok);
    assert_int_equal(t.diag.count, 0);
    assert_int_equal(pst_json_place(&t.doc, "a").line, 1);
    assert_int_equal(pst_json_place(&t.doc, "b").line, 3);
    done(&t);
    free(text);
}

static void test_files(void **state)
{
    (void)state;
    struct told t = {0};
    assert_false(pst_json_load(&t.doc, in_scratch("none.json"), &t.diag));
    assert_true(strstr(t.diag.line[0], "cannot open") != NULL);
    done(&t);
    memset(&t, 0, sizeof t);
    assert_false(pst_json_load(&t.doc, scratch, &t.diag));
    assert_true(strstr(t.diag.line[0], "cannot read") != NULL);
    done(&t);
    memset(&t, 0, sizeof t);
    put_file(in_scratch("empty.json"), "", 0);
    assert_false(pst_json_load(&t.doc, in_scratch("empty.json"), &t.diag));
    assert_true(strstr(t.diag.line[0], "empty") != NULL);
    done(&t);
    memset(&t, 0, sizeof t);
    char *big = malloc(PST_JSON_MAX_BYTES + 1);
    assert_non_null(big);
    memset(big, '[', PST_JSON_MAX_BYTES + 1);
    put_file(in_scratch("big.json"), big, PST_JSON_MAX_BYTES + 1);
    free(big);
    assert_int_equal(truncate(in_scratch("big.json"), 100 << 20), 0);
    assert_false(pst_json_load(&t.doc, in_scratch("big.json"), &t.diag));
    assert_true(strstr(t.diag.line[0], "larger than 1048576 bytes") != NULL);
    done(&t);
}

static void test_set(void **state)
{
    (void)state;
    struct told t;
    parse_text(&t, "{\"a\": 1,\n\"l\": [1, {\"x\": 2}],\n\"o\": {\"p\": {\"q\": 3}}}");
    static const char *const good[] = {
        "a=2",           "l[0]=\"s\"",      "l[1].x=[1,2]", "o.p.q=true", "n.e.w=1.5",
        "o.text=a=b {c", "o.p.r={\"s\":1}", "o.empty=",     "l[2]=7"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_true(pst_json_set(&t.doc, good[i], &t.diag));
    json_t *want =
        json_loads("{\"a\":2,\"l\":[\"s\",{\"x\":[1,2]},7],\"o\":{\"p\":{\"q\":true,\"r\":{\"s\":1}},"
                   "\"text\":\"a=b {c\",\"empty\":\"\"},\"n\":{\"e\":{\"w\":1.5}}}",
                   0, NULL);
    assert_true(json_equal(t.doc.root, want));
    json_decref(want);
    /* what came from --set is not blamed on the file's lines; what did not, is */
    assert_int_equal(pst_json_place(&t.doc, "a").source, PST_JSON_SET);
    assert_int_equal(pst_json_place(&t.doc, "n.e.w").source, PST_JSON_SET);
    assert_int_equal(pst_json_place(&t.doc, "n").source, PST_JSON_SET); /* it was made for n.e.w */
    assert_int_equal(pst_json_place(&t.doc, "l[2]").source, PST_JSON_SET);
    assert_int_equal(pst_json_place(&t.doc, "o.p.r.s").source, PST_JSON_SET);
    assert_int_equal(pst_json_place(&t.doc, "l").line, 2);
    assert_int_equal(pst_json_place(&t.doc, "o.p").line, 3);
    pst_json_error(&t.doc, &t.diag, "a", "bad");
    assert_told(&t, 0, "--set: a: bad", "");
    static const char *const bad[] = {
        "",           "a",        "=1",    "a.b=1",  "l[4]=1",    "l[-1]=1",
        "l[+1]=1",    "l[ 1]=1",  "l[=1",  "l[]=1",  "l[0]x=1",   ".a=1",
        "a.=1",       "o..p=1",   "l.x=1", "o[0]=1", "l[0][0]=1", "l[99999999999999999999]=1",
        "o.\xff.x=1", "o.\xff=1", "a=\xff"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        size_t before = t.diag.count;
        if (pst_json_set(&t.doc, bad[i], &t.diag))
            fail_msg("'%s' was taken", bad[i]);
        assert_int_equal(t.diag.count, before + 1);
        assert_told(&t, before, "--set: ", "");
    }
    char path[PST_JSON_PATH_MAX + 8];
    memset(path, 'x', sizeof path);
    (void)strcpy(path + sizeof path - 3, "=1");
    assert_false(pst_json_set(&t.doc, path, &t.diag));
    done(&t);
}

static void put_text(const char *name, const char *text)
{
    put_file(in_scratch(name), text, strlen(text));
}

static void test_overlays(void **state)
{
    (void)state;
    struct told t;
    parse_text(&t, "{\"a\": {\"b\": 1,\n\"c\": {\"d\": 2}},\n\"l\": [1, 2],\n\"k\": 5}");
    put_text("one.json", "{\n\"a\": {\"c\": {\"e\":\n3}}, \"l\": [7]}");
    put_text("two.json", "{\"k\": {\"new\": true},\n\n\"a\": {\"b\": [1,\n2]}}");
    assert_true(pst_json_overlay(&t.doc, in_scratch("one.json"), &t.diag));
    assert_true(pst_json_overlay(&t.doc, in_scratch("two.json"), &t.diag));
    json_t *want = json_loads("{\"a\": {\"b\": [1, 2], \"c\": {\"d\": 2, \"e\": 3}}, \"l\": [7], \"k\": "
                              "{\"new\": true}}",
                              0, NULL);
    assert_true(json_equal(t.doc.root, want));
    json_decref(want);
    static const struct {
        const char *path;
        int source, line;
    } places[] = {{"a", 0, 1},     {"a.b", 2, 3},   {"a.b[1]", 2, 4}, {"a.c", 0, 2},
                  {"a.c.d", 0, 2}, {"a.c.e", 1, 2}, {"l", 1, 3},      {"l[0]", 1, 3},
                  {"l[1]", 1, 3},  {"k.new", 2, 1}, {"k", 2, 1},      {"k.old", 2, 1}};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        const struct pst_json_place place = pst_json_place(&t.doc, places[i].path);
        if (place.source != places[i].source || place.line != places[i].line)
            fail_msg("%s: source %d, line %d", places[i].path, place.source, place.line);
    }
    char begin[600];
    (void)snprintf(begin, sizeof begin, "%s:4: a.b[1]: bad", in_scratch("two.json"));
    pst_json_error(&t.doc, &t.diag, "a.b[1]", "bad");
    assert_told(&t, 0, begin, "");
    /* an object over a list changes elements */
    put_text("list-of.json", "{\"l\": {\"0\": {\"x\":\n1}, \"1\": 8}}");
    put_text("list-in.json", "{\"l\": {\"0\":\n\n{\"y\": 2}}}");
    put_text("list-no.json", "{\"l\": {\n\"7\": 1, \"x\": 2, \"-1\": 3}}");
    assert_true(pst_json_overlay(&t.doc, in_scratch("list-of.json"), &t.diag));
    assert_true(pst_json_overlay(&t.doc, in_scratch("list-in.json"), &t.diag));
    want = json_loads("[{\"x\": 1, \"y\": 2}, 8]", 0, NULL);
    assert_true(json_equal(json_object_get(t.doc.root, "l"), want));
    json_decref(want);
    assert_true(pst_json_place(&t.doc, "l[0].x").source == 3 && pst_json_place(&t.doc, "l[0].x").line == 1);
    assert_true(pst_json_place(&t.doc, "l[0].y").source == 4 && pst_json_place(&t.doc, "l[0].y").line == 3);
    struct pst_diag lists = {0};
    assert_false(pst_json_overlay(&t.doc, in_scratch("list-no.json"), &lists));
    assert_int_equal(lists.count, 3);
    assert_non_null(
        strstr(lists.line[0],
               "list-no.json:2: l.7: expected the index of a list element, from 0 to 2, found \"7\""));
    assert_true(json_array_size(json_object_get(t.doc.root, "l")) == 2);
    pst_diag_release(&lists);
    /* --set comes last */
    assert_true(pst_json_set(&t.doc, "a.c.e=4", &t.diag));
    assert_int_equal(pst_json_place(&t.doc, "a.c.e").source, PST_JSON_SET);
    /* an overlay that cannot be read changes nothing */
    put_text("bad.json", "{\"a\": 1,");
    put_text("list.json", "[1]");
    put_text("twice.json", "{\"z\": 1,\n\"z\": 2}");
    assert_false(pst_json_overlay(&t.doc, in_scratch("bad.json"), &t.diag));
    assert_told(&t, 1, in_scratch("bad.json"), "not JSON");
    assert_false(pst_json_overlay(&t.doc, in_scratch("list.json"), &t.diag));
    assert_told(&t, 2, in_scratch("list.json"), "expected an object, found a list");
    assert_false(pst_json_overlay(&t.doc, in_scratch("none.json"), &t.diag));
    assert_told(&t, 3, in_scratch("none.json"), "cannot open");
    assert_true(json_is_object(json_object_get(t.doc.root, "a")));
    assert_true(pst_json_overlay(&t.doc, in_scratch("twice.json"), &t.diag));
    (void)snprintf(begin, sizeof begin, "%s:2: z: ", in_scratch("twice.json"));
    assert_told(&t, 4, begin, "duplicate key: it is already set in line 1");
    for (int i = 0; i < PST_JSON_OVERLAYS_MAX; i++)
        (void)pst_json_overlay(&t.doc, in_scratch("one.json"), &t.diag);
    assert_told(&t, 5, in_scratch("one.json"), "too many overlays: at most 16 are allowed");
    done(&t);
}

static void test_nearest(void **state)
{
    (void)state;
    static const char *const names[] = {"sampler", "planner", "disk", "trainer", "a"};
    static const struct {
        const char *name, *near;
    } want[] = {{"samplr", "sampler"},  {"smapler", "sampler"},  {"plan", NULL}, {"planer", "planner"},
                {"dsk", "disk"},        {"xyzzy", NULL},         {"", NULL},     {"disk", "disk"},
                {"Trainer", "trainer"}, {"trainers", "trainer"}, {"b", NULL}};
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        const char *near = pst_diag_nearest(want[i].name, names, 5);
        if (near != want[i].near && (!near || !want[i].near || strcmp(near, want[i].near) != 0))
            fail_msg("%s: expected %s, found %s", want[i].name, want[i].near ? want[i].near : "none",
                     near ? near : "none");
    }
    char huge[5000];
    memset(huge, 's', sizeof huge);
    huge[sizeof huge - 1] = '\0';
    assert_null(pst_diag_nearest(huge, names, 5));
    assert_null(pst_diag_nearest("x", NULL, 0));
}

static void test_diag(void **state)
{
    (void)state;
    struct pst_diag diag = {0};
    pst_diag_add(&diag, "f", 3, "a.b", "x %d", 1);
    pst_diag_add(&diag, "f", 0, NULL, "y");
    pst_diag_add(&diag, NULL, 0, "", "z");
    pst_diag_add(&diag, "f", 3, "a.b", "x %d", 1); /* told once */
    pst_diag_add(&diag, "f", 1, "a\x1b[2J", "\a\n");
    assert_int_equal(diag.count, 4);
    assert_string_equal(diag.line[0], "f:3: a.b: x 1");
    assert_string_equal(diag.line[1], "f: y");
    assert_string_equal(diag.line[2], "z");
    assert_string_equal(diag.line[3], "f:1: a?[2J: ??");
    char huge[10000];
    memset(huge, 'h', sizeof huge);
    huge[sizeof huge - 1] = '\0';
    pst_diag_add(&diag, huge, 1, huge, "%s", huge);
    assert_true(strlen(diag.line[4]) < 2048);
    for (int i = 0; i < 2 * PST_DIAG_MAX; i++)
        pst_diag_add(&diag, "f", i, NULL, "n");
    assert_true(diag.count > PST_DIAG_MAX);
    pst_diag_release(&diag);
    assert_int_equal(diag.count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),   cmocka_unit_test(test_duplicates),   cmocka_unit_test(test_long_keys),
        cmocka_unit_test(test_syntax),  cmocka_unit_test(test_every_prefix), cmocka_unit_test(test_deep),
        cmocka_unit_test(test_files),   cmocka_unit_test(test_set),          cmocka_unit_test(test_overlays),
        cmocka_unit_test(test_nearest), cmocka_unit_test(test_diag),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
