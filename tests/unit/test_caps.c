/* Descriptions of stages: values in their normal form, what a description must have, and the way through
 * JSON and back that a foreign stage's takes. */
#include "tests/unit/store_fixture.h"

#include "common/pipeline/desc/caps_impl.h"
#include "common/pipeline/desc/desc.h"
#include "common/pipeline/pipeline.h"

struct value {
    enum pst_param_type type;
    double min, max;
    const char *given, *normal; /* JSON; normal NULL: refused, and given's reason has why */
    const char *why;
};

static const struct value values[] = {
    {PST_PARAM_BOOL, 0, 0, "true", "true", NULL},
    {PST_PARAM_BOOL, 0, 0, "1", NULL, "expected true or false, found 1"},
    {PST_PARAM_BOOL, 0, 0, "null", NULL, "expected true or false, found null"},
    {PST_PARAM_INT, 0, 0, "-9223372036854775808", "-9223372036854775808", NULL},
    {PST_PARAM_INT, 1, 9, "9", "9", NULL},
    {PST_PARAM_INT, 1, 9, "10", NULL, "from 1 to 9, found 10"},
    {PST_PARAM_INT, 1, 9, "9223372036854775807", NULL, "from 1 to 9"},
    {PST_PARAM_INT, 1, 9, "3.0", NULL, "expected an integer from 1 to 9, found 3.0"},
    {PST_PARAM_INT, 1, 9, "\"3\"", NULL, "expected an integer from 1 to 9, found \"3\""},
    {PST_PARAM_INT, 1, 9, "{}", NULL, "expected an integer from 1 to 9, found {}"},
    {PST_PARAM_REAL, 0, 1, "1", "1", NULL},
    {PST_PARAM_REAL, 0, 1, "1.0000001", NULL, "from 0 to 1"},
    {PST_PARAM_REAL, 0, 0, "1e308", "1e308", NULL},
    {PST_PARAM_REAL, 0, 1, "\"x\"", NULL, "expected a number from 0 to 1"},
    {PST_PARAM_STRING, 0, 0, "\"\"", "\"\"", NULL},
    {PST_PARAM_STRING, 0, 0, "[]", NULL, "expected a string, found []"},
    {PST_PARAM_ENUM, 0, 0, "\"yes\"", "\"yes\"", NULL},
    {PST_PARAM_ENUM, 0, 0, "\"ye\"", NULL, "expected one of yes, no, maybe, found \"ye\"; did you mean yes?"},
    {PST_PARAM_ENUM, 0, 0, "\"yes|no\"", NULL, "expected one of"},
    {PST_PARAM_ENUM, 0, 0, "\"\"", NULL, "expected one of"},
    {PST_PARAM_ENUM, 0, 0, "true", NULL, "expected one of"},
    {PST_PARAM_BYTES, 0, 0, "0", "0", NULL},
    {PST_PARAM_BYTES, 0, 0, "\"64KiB\"", "65536", NULL},
    {PST_PARAM_BYTES, 0, 0, "\"1.5MiB\"", "1572864", NULL},
    {PST_PARAM_BYTES, 0, 0, "\"2GB\"", "2000000000", NULL},
    {PST_PARAM_BYTES, 0, 0, "\"7\"", "7", NULL},
    {PST_PARAM_BYTES, 0, 0, "\"7B\"", "7", NULL},
    {PST_PARAM_BYTES, 0, 100, "\"1KiB\"", NULL, "expected a size from 0 to 100, found \"1KiB\""},
    {PST_PARAM_BYTES, 0, 0, "-1", NULL, "expected a size, found -1"},
    {PST_PARAM_BYTES, 0, 0, "\"-1KiB\"", NULL, "expected a size"},
    {PST_PARAM_BYTES, 0, 0, "\"KiB\"", NULL, "expected a size"},
    {PST_PARAM_BYTES, 0, 0, "\"64kib\"", NULL, "expected a size"},
    {PST_PARAM_BYTES, 0, 0, "\"nan\"", NULL, "expected a size"},
    {PST_PARAM_BYTES, 0, 0, "\"inf\"", NULL, "expected a size"},
    {PST_PARAM_BYTES, 0, 0, "\"1e30\"", NULL, "expected a size"},
    {PST_PARAM_BYTES, 0, 0, "\"99999999TiB\"", NULL, "expected a size"},
    {PST_PARAM_BYTES, 0, 0, "1.5", NULL, "expected a size, for example 4096 or \"64MiB\", found 1.5"},
    {PST_PARAM_BYTES, 0, 0, "\"0x10\"", NULL, "found \"0x10\""},
    {PST_PARAM_BYTES, 0, 0, "\"1e3MiB\"", NULL, "found \"1e3MiB\""},
    {PST_PARAM_BYTES, 0, 0, "\"1 MiB\"", NULL, "found \"1 MiB\""},
    {PST_PARAM_BYTES, 0, 0, "\" 1MiB\"", NULL, "found \" 1MiB\""},
    {PST_PARAM_BYTES, 0, 0, "\"1.MiB\"", NULL, "found \"1.MiB\""},
    {PST_PARAM_BYTES, 0, 0, "\"0.3B\"", NULL, "found \"0.3B\""},
    {PST_PARAM_INTS, -1, 9, "[]", "[]", NULL},
    {PST_PARAM_INTS, -1, 9, "[-1, 9]", "[-1, 9]", NULL},
    {PST_PARAM_INTS, -1, 9, "[1, 10]", NULL, "from -1 to 9, found 10"},
    {PST_PARAM_INTS, -1, 9, "[1, 2.5]", NULL, "expected element 1 to be an integer from -1 to 9, found 2.5"},
    {PST_PARAM_INTS, -1, 9, "[[1]]", NULL, "expected element 0 to be an integer from -1 to 9, found [1]"},
    {PST_PARAM_INTS, -1, 9, "5", NULL, "expected a list of integers"},
    {PST_PARAM_NAMED_INTS, -1, 9, "[3, 4]", "[3, 4]", NULL},
    {PST_PARAM_NAMED_INTS, -1, 9, "[3, 10]", NULL, "from -1 to 9, found 10"},
    {PST_PARAM_NAMED_INTS, -1, 9, "{\"a:b:c\": [3, -1], \"*\": [0, 1]}",
     "{\"a:b:c\": [3, -1], \"*\": [0, 1]}", NULL},
    {PST_PARAM_NAMED_INTS, -1, 9, "[{\"a\": 3, \"*\": 0}, {\"*\": 1}]", "{\"a\": [3, 1], \"*\": [0, 1]}",
     NULL},
    {PST_PARAM_NAMED_INTS, -1, 9, "[{\"a\": 3}, {\"b\": 1}]", NULL, "element 1 has no number for \"a\""},
    {PST_PARAM_NAMED_INTS, -1, 9, "[{\"a\": 3}, 4]", NULL, "only integers in the list, or only objects"},
    {PST_PARAM_NAMED_INTS, -1, 9, "[4, {\"a\": 3}]", NULL, "expected element 1 to be an integer"},
    {PST_PARAM_NAMED_INTS, -1, 9, "{\"a\": [1, 2], \"b\": [1]}", NULL,
     "\"a\" has 2 numbers, but \"b\" has 1"},
    {PST_PARAM_NAMED_INTS, -1, 9, "{\"a\": [1, 10]}", NULL,
     "\"a\": expected element 1 to be an integer from -1 to 9, found 10"},
    {PST_PARAM_NAMED_INTS, -1, 9, "{\"a\": 1}", NULL, "\"a\": expected a list of integers"},
    {PST_PARAM_NAMED_INTS, -1, 9, "{}", NULL, "expected 1 to 64 names, found 0"},
    {PST_PARAM_NAMED_INTS, -1, 9, "7", NULL,
     "expected a list of integers, or an object of such lists by name"},
};

static void test_values(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        const struct value *v = &values[i];
        struct pst_param_desc desc = {.name = "p",
                                      .type = v->type,
                                      .min = v->min,
                                      .max = v->max,
                                      .choices = "yes|no|maybe",
                                      .help = "h"};
        json_t *given = json_loads(v->given, JSON_DECODE_ANY, NULL), *out = NULL;
        json_t *want = v->normal ? json_loads(v->normal, JSON_DECODE_ANY, NULL) : NULL;
        char why[256] = "";
        assert_non_null(given);
        bool ok = pst_desc_value(&desc, given, &out, why);
        if (ok != (want != NULL) || (want && !json_equal(out, want)) || (v->why && !strstr(why, v->why)))
            fail_msg("%s %s: %s, '%s'", pst_desc_type_name(v->type), v->given, ok ? "taken" : "refused", why);
        assert_true(ok == (out != NULL));
        json_decref(given);
        json_decref(want);
        json_decref(out);
    }
}

static void test_automatic(void **state)
{
    (void)state;
    struct pst_param_desc desc = {
        .name = "p", .type = PST_PARAM_INT, .min = 1, .max = 9, .help = "h", .automatic = true};
    json_t *word = json_string("auto"), *other = json_string("avto"), *out = NULL;
    char why[256] = "";
    assert_true(pst_desc_value(&desc, word, &out, why) && json_equal(out, word));
    json_decref(out);
    assert_false(pst_desc_value(&desc, other, &out, why));
    assert_non_null(strstr(why, "expected an integer from 1 to 9 or \"auto\", found \"avto\""));
    desc = (struct pst_param_desc){.name = "p", .type = PST_PARAM_BYTES, .help = "h", .automatic = true};
    assert_true(pst_desc_value(&desc, word, &out, why) && json_equal(out, word));
    json_decref(out);
    assert_false(pst_desc_value(&desc, other, &out, why));
    assert_non_null(strstr(why, "expected \"auto\", or a size"));
    desc.automatic = false;
    assert_false(pst_desc_value(&desc, word, &out, why));
    json_decref(word);
    json_decref(other);
}

static void test_lists(void **state)
{
    (void)state;
    struct pst_port_desc out = {.forwards = "in,other"};
    assert_true(pst_desc_forwards(&out, "in") && pst_desc_forwards(&out, "other"));
    assert_false(pst_desc_forwards(&out, "i") || pst_desc_forwards(&out, "in,other") ||
                 pst_desc_forwards(&out, ""));
    out.forwards = NULL;
    assert_false(pst_desc_forwards(&out, "in"));
}

static const struct pst_port_desc good_ports[] = {
    {.name = "in", .dir = PST_IN, .help = "i", .type = "t", .memory = "cpu", .hold_param = "n"},
    {.name = "out", .dir = PST_OUT, .help = "o", .type = "t", .memory = "cpu", .forwards = "in"},
    {0},
};
static const struct pst_param_desc good_params[] = {
    {.name = "n", .type = PST_PARAM_INT, .def = "3", .min = 1, .max = 9, .help = "n", .fixed = true}, {0}};
static const struct pst_stage_desc good = {
    .abi = PST_STAGE_ABI, .name = "good", .help = "h", .ports = good_ports, .params = good_params};

static void refused(const struct pst_stage_desc *desc, const char *why)
{
    assert_int_not_equal(pst_desc_check(desc, "FILE"), PST_OK);
    assert_error_has("FILE");
    assert_error_has(why);
}

static void test_descriptions(void **state)
{
    (void)state;
    assert_int_equal(pst_desc_check(&good, "FILE"), PST_OK);
    struct pst_stage_desc d = good;
    d.abi = 0;
    refused(&d, "was built for version 0 of the stage interface, but this Penstock");
    d = good;
    d.name = "a b";
    refused(&d, "the stage's description must have name and help");
    d = good;
    d.help = NULL;
    refused(&d, "the stage's description must have name and help");
    d = good;
    d.instances_max = PST_INSTANCES_MAX + 1;
    refused(&d, "instances_max: expected 0 to 16, found 17");
    d = good;
    d.dataset = "features,splt:n";
    refused(&d, "dataset: expected features, labels, targets, edges or split:PARAM, which can be followed by "
                ":PARAM=VALUE; or triples, types, parts, lists, lists:PARAM, vertices:PARAM, evaluated:PARAM "
                "or relations:PARAM (PARAM: "
                "the name "
                "of a parameter), found \"splt:n\"");
    d.dataset = "vertices:m";
    refused(&d, "found \"vertices:m\"");
    d.dataset = "split:m";
    refused(&d, "found \"split:m\"");
    d.dataset = "targets:m=mse";
    refused(&d, "found \"targets:m=mse\"");
    d.dataset = "splits:n=1";
    refused(&d, "found \"splits:n=1\"");
    d.dataset = "split:n:q=1";
    refused(&d, "found \"split:n:q=1\"");
    struct pst_port_desc ports[PST_PORTS_MAX + 2] = {0};
    d = good;
    d.ports = ports;
#define PORTS_REFUSED(change, why)                                                                           \
    memcpy(ports, good_ports, sizeof good_ports);                                                            \
    change;                                                                                                  \
    refused(&d, why)
    PORTS_REFUSED(ports[1].name = "in", "is invalid, or another port has it");
    PORTS_REFUSED(ports[1].name = "../x", "is invalid, or another port has it");
    PORTS_REFUSED(ports[1].type = NULL, "must have type, memory and help");
    PORTS_REFUSED(ports[1].forwards = "out", "which is not an input");
    PORTS_REFUSED(ports[1].forwards = "in,nothing", "forwards the slots of nothing");
    PORTS_REFUSED(ports[0].forwards = "in", "an input cannot forward slots");
    PORTS_REFUSED(ports[0].memory = "ram", "memory: expected cpu, pinned or cuda, found \"ram\"");
    PORTS_REFUSED(ports[0].memory = "cpu,pinned if m=1", "memory: \"m=1\": unknown parameter m");
    PORTS_REFUSED(ports[1].splits_if = "n=x", "splits_if: \"n=x\": parameter n cannot have the value \"x\"");
    PORTS_REFUSED(ports[0].whole_if = "n=1 and ", "whole_if: \"n=1 and \" is not");
    PORTS_REFUSED(ports[1].flags |= PST_PORT_IN_PLACE, "in_place: only an input can have it");
    PORTS_REFUSED(ports[0].in_place_if = "n=1", "and only with it in_place_if");
    PORTS_REFUSED((ports[0].in_place_if = "n=x", ports[0].flags |= PST_PORT_IN_PLACE),
                  "in_place_if: \"n=x\": parameter n cannot have the value \"x\"");
    PORTS_REFUSED(ports[1].near_if = "n=1", "near_if: only a one-shot output can have it");
    PORTS_REFUSED((ports[0].near_if = "n=1", ports[0].flags |= PST_PORT_ONESHOT),
                  "near_if: only a one-shot output");
    PORTS_REFUSED((ports[1].near_if = "n=x", ports[1].flags |= PST_PORT_ONESHOT),
                  "near_if: \"n=x\": parameter n cannot have the value \"x\"");
    PORTS_REFUSED(ports[0].requests = PST_REQUESTS_MAKES, "requests: only an output");
    PORTS_REFUSED(ports[1].requests = PST_REQUESTS_SERVES, "requests: only an input");
    PORTS_REFUSED(ports[1].requests = (enum pst_requests)9, "requests: found the value 9");
    PORTS_REFUSED(ports[0].hold_param = "m", "the stage has no integer parameter m");
    for (int i = 0; i <= PST_PORTS_MAX; i++)
        ports[i] = good_ports[0];
    refused(&d, "17 ports; at most 16");
    struct pst_param_desc params[PST_PARAMS_MAX + 2] = {0};
    d = good;
    d.params = params;
#define PARAMS_REFUSED(change, why)                                                                          \
    memcpy(params, good_params, sizeof good_params);                                                         \
    change;                                                                                                  \
    refused(&d, why)
    PARAMS_REFUSED(params[1] = params[0], "another parameter has its name");
    PARAMS_REFUSED(params[0].help = NULL, "no help");
    PARAMS_REFUSED(params[0].def = "10", "parameter n: its default is not valid");
    PARAMS_REFUSED(params[0].def = "{", "parameter n: its default is not valid");
    PARAMS_REFUSED(params[0].equals = "in",
                   "equals: expected PORT.PARAM, count(PORT.PARAM) or PORT.PARAM:VALUE=VALUE");
    PARAMS_REFUSED(params[0].equals = "count(in.n", "equals: expected PORT.PARAM");
    PARAMS_REFUSED(params[0].equals = "nothing.n", "equals: the stage has no port nothing");
    PARAMS_REFUSED(
        (params[1] =
             (struct pst_param_desc){.name = "z", .type = PST_PARAM_REAL, .help = "h", .automatic = true}),
        "only an int or bytes parameter can be automatic");
    PARAMS_REFUSED(params[0].needed_if = "n=1", "only a string parameter can have needed_if");
    PARAMS_REFUSED(params[0].below = "n", "parameter n: below: the stage has no other int parameter n");
    PARAMS_REFUSED(params[0].below = "m", "parameter n: below: the stage has no other int parameter m");
    PARAMS_REFUSED(params[0].at_most = "m-n", "parameter n: at_most: the stage has no other int parameter m");
    PARAMS_REFUSED(params[0].at_most = "-n", "parameter n: at_most: expected PARAM-PARAM");
    PARAMS_REFUSED(params[0].at_most = "n", "parameter n: at_most: expected PARAM-PARAM");
    PARAMS_REFUSED(params[0].even_if = "m=1", "parameter n: even_if: \"m=1\": unknown parameter m");
    PARAMS_REFUSED((params[0].even_if = "n=1", params[0].type = PST_PARAM_REAL),
                   "only an int parameter can have below, at_most or even_if");
    PARAMS_REFUSED(params[0].alone = true, "only a parameter with needed_if can have alone = true");
    PARAMS_REFUSED(params[0].counted = 1, "counted is 1: expected 1 + the index of a choice");
    PARAMS_REFUSED(params[0].only_if = "nothing=1", "only_if: \"nothing=1\": unknown parameter nothing");
    PARAMS_REFUSED(params[0].choice_if = "a if n=1", "choice_if: expected \"CHOICE if CONDITION\"");
    PARAMS_REFUSED((params[0].only_if = "n=1", params[0].def = NULL),
                   "a parameter with only_if must have a default");
    PARAMS_REFUSED((params[0].type = PST_PARAM_ENUM, params[0].def = NULL), "no choices");
    PARAMS_REFUSED(params[0].type = (enum pst_param_type)99, "has an invalid type, or its type is a choice");
}

enum colour { RED, GREEN, BLUE };
struct bound {
    bool yes, second;
    int small;
    unsigned count;
    int64_t whole;
    uint64_t bytes, size;
    double real;
    const char *text;
    enum colour colour;
    struct pst_ints list;
    struct pst_named_ints named, plain;
    int last;
};

#define BOUND(name_, type_, member_, ...)                                                                    \
    {                                                                                                        \
        .name = name_, .type = type_, .into = PST_INTO(struct bound, member_), .help = name_, __VA_ARGS__    \
    }
static const struct pst_param_desc bound_params[] = {
    BOUND("yes", PST_PARAM_BOOL, yes, .def = "false"),
    BOUND("second", PST_PARAM_ENUM, second, .choices = "first|second"),
    BOUND("small", PST_PARAM_INT, small, .min = -5, .max = 5),
    BOUND("count", PST_PARAM_INT, count, .max = 4294967295),
    BOUND("whole", PST_PARAM_INT, whole, .def = "0"),
    BOUND("bytes", PST_PARAM_BYTES, bytes, .def = "0"),
    BOUND("real", PST_PARAM_REAL, real, .def = "0"),
    BOUND("text", PST_PARAM_STRING, text, .def = "\"\""),
    BOUND("colour", PST_PARAM_ENUM, colour, .choices = "red|green|blue"),
    BOUND("list", PST_PARAM_INTS, list, .count_min = 1, .count_max = PST_INTS_MAX),
    BOUND("named", PST_PARAM_NAMED_INTS, named, .count_min = 1, .count_max = PST_INTS_MAX),
    BOUND("plain", PST_PARAM_NAMED_INTS, plain, .def = "[3]", .count_min = 1, .count_max = PST_INTS_MAX),
    BOUND("size", PST_PARAM_BYTES, size, .def = "\"auto\"", .automatic = true),
    {0},
};

static void test_binding(void **state)
{
    (void)state;
    struct pst_stage_desc d = good;
    d.params = bound_params;
    d.ports = NULL;
    d.state_bytes = sizeof(struct bound);
    if (pst_desc_check(&d, "FILE") != PST_OK)
        fail_msg("%s", pst_error_text());
    json_t *given =
        json_pack("{sb ss si sI sI sI ss sf ss ss s[iii] s{s[iii] s[iii]} s[ii]}", "yes", 1, "second",
                  "second", "small", -5, "count", (json_int_t)UINT32_MAX, "whole", (json_int_t)INT64_MIN,
                  "bytes", (json_int_t)1 << 40, "size", "auto", "real", 0.25, "text", "words", "colour",
                  "blue", "list", 7, -1, 9, "named", "a:b:c", 1, -1, 0, "*", 4, 9, 0, "plain", 6, 5);
    struct bound b = {.last = 77};
    pst_desc_bind(&d, given, &b);
    assert_true(b.yes && b.second && b.small == -5 && b.count == UINT32_MAX && b.whole == INT64_MIN);
    assert_true(b.size == (uint64_t)PST_AUTO && b.bytes == 1ull << 40 && b.real == 0.25 && b.colour == BLUE &&
                b.last == 77);
    assert_string_equal(b.text, "words");
    assert_true(b.list.count == 3 && b.list.value[0] == 7 && b.list.value[1] == -1 && b.list.value[2] == 9);
    assert_true(b.named.names == 2 && b.named.all.count == 3 && b.named.all.value[0] == 4 &&
                b.named.all.value[1] == -1 && b.named.all.value[2] == 0 && b.named.value[0][0] == 1 &&
                b.named.value[1][1] == 9);
    assert_string_equal(b.named.name[0], "a:b:c");
    assert_true(b.plain.names == 0 && b.plain.all.count == 2 && b.plain.all.value[1] == 5);
    json_decref(given);
    /* what does not fit is refused when the stage is loaded */
    struct pst_param_desc one[2] = {0};
    d.params = one;
#define INTO_REFUSED(i, change, why)                                                                         \
    one[0] = bound_params[i];                                                                                \
    change;                                                                                                  \
    refused(&d, why)
    INTO_REFUSED(0, one[0].into.kind = PST_INTO_I32,
                 "the struct member that stores this parameter has another type");
    INTO_REFUSED(1, one[0].choices = "a|b|c",
                 "the struct member that stores this parameter has another type");
    INTO_REFUSED(2, one[0].max = 3e9, "the struct member that stores this parameter has another type");
    INTO_REFUSED(2, one[0].min = one[0].max = 0,
                 "the struct member that stores this parameter has another type");
    INTO_REFUSED(3, one[0].min = -1, "the struct member that stores this parameter has another type");
    INTO_REFUSED(5, one[0].into.kind = PST_INTO_F64,
                 "the struct member that stores this parameter has another type");
    INTO_REFUSED(6, one[0].into.kind = PST_INTO_I64,
                 "the struct member that stores this parameter has another type");
    INTO_REFUSED(9, one[0].count_max = PST_INTS_MAX + 1,
                 "the struct member that stores this parameter has another type");
    INTO_REFUSED(10, one[0].type = PST_PARAM_INTS,
                 "the struct member that stores this parameter has another type");
    INTO_REFUSED(0, one[0].path = PST_PATH_FILE, "only a string parameter can have path");
    INTO_REFUSED(7, one[0].path = PST_PATH_MACHINE + 1, "only a string parameter can have path");
    INTO_REFUSED(4, one[0].into.at = sizeof(struct bound) - 4,
                 "would be stored outside the stage's state, which has");
}

static void test_absolute(void **state)
{
    (void)state;
    static const struct {
        enum pst_param_path path;
        const char *given, *expected; /* after the directory where there is a '@' */
    } cases[] = {
        {PST_PATH_NONE, "./a", "./a"},
        {PST_PATH_FILE, "", ""},
        {PST_PATH_FILE, "a,b", "@/a,b"},
        {PST_PATH_FILE, "/a", "/a"},
        {PST_PATH_OR_NAME, "labor", "labor"},
        {PST_PATH_OR_NAME, "./mine.so", "@/./mine.so"},
        {PST_PATH_FILES, "a,/b,,c/d", "@/a,/b,,@/c/d"},
        {PST_PATH_FILES, "0000:5e:00.0,a", "0000:5e:00.0,@/a"},
        {PST_PATH_FILES, "0000:5e:00,a:b:c.d.e", "@/0000:5e:00,@/a:b:c.d.e"},
    };
    char here[PST_PATH_MAX];
    assert_non_null(getcwd(here, sizeof here));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct pst_param_desc param = {.path = (unsigned char)cases[i].path};
        char expected[3 * PST_PATH_MAX] = "";
        for (const char *c = cases[i].expected; *c; c++)
            (void)snprintf(expected + strlen(expected), sizeof expected - strlen(expected), "%.*s",
                           *c == '@' ? (int)strlen(here) : 1, *c == '@' ? here : c);
        json_t *value = json_string(cases[i].given), *got = pst_pipeline_absolute(&param, value);
        assert_string_equal(json_string_value(got), expected);
        json_decref(value);
        json_decref(got);
    }
}

/* A program that prints a native description's JSON is described alike. */
static void test_round_trip(void **state)
{
    (void)state;
    static const char *const names[] = {"planner", "sampler", "disk", "trainer", "passthrough"};
    assert_int_equal(setenv("XDG_CACHE_HOME", scratch, 1), 0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct pst_caps native, foreign, again;
        if (pst_caps_load(&native, names[i], NULL) != PST_OK)
            fail_msg("%s", pst_error_text());
        json_t *j = pst_desc_json(native.desc);
        assert_non_null(j);
        char path[512], *text = json_dumps(j, 0), *script = NULL;
        (void)snprintf(path, sizeof path, "%s", in_scratch(names[i]));
        int n = asprintf(&script, "#!/bin/sh\necho called >>'%s.calls'\ncat <<'END'\n%s\nEND\n", path, text);
        put_file(path, script, (size_t)n);
        assert_int_equal(chmod(path, 0700), 0);
        if (pst_caps_load(&foreign, path, NULL) != PST_OK)
            fail_msg("%s", pst_error_text());
        assert_true(foreign.foreign && !native.foreign);
        json_t *k = pst_desc_json(foreign.desc);
        assert_true(json_equal(j, k));
        assert_int_equal(pst_caps_load(&again, path, NULL), PST_OK); /* from the cache */
        size_t bytes;
        char calls[600];
        (void)snprintf(calls, sizeof calls, "%s.calls", path);
        char *called = get_file(calls, &bytes);
        assert_string_equal(called, "called\n");
        free(called);
        json_decref(j);
        json_decref(k);
        free(text);
        free(script);
        pst_caps_release(&native);
        pst_caps_release(&foreign);
        pst_caps_release(&again);
    }
}

static void test_not_found(void **state)
{
    (void)state;
    struct pst_caps caps;
    static const char *const runs[] = {"nothing", "./nothing", "/", "/dev/null", "/etc/passwd", "../..", ""};
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        assert_int_not_equal(pst_caps_load(&caps, runs[i], scratch), PST_OK);
        assert_true(pst_error_text()[0] != '\0');
        pst_caps_release(&caps);
    }
    char **names;
    size_t n;
    assert_int_equal(pst_caps_list(&names, &n), PST_OK);
    assert_true(n >= 5);
    for (size_t i = 1; i < n; i++)
        assert_true(strcmp(names[i - 1], names[i]) < 0);
    for (size_t i = 0; i < n; i++)
        free(names[i]);
    free(names);
}

static int setup(void **state)
{
    char self[4096], installed[4200];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0)
        return 1;
    self[n] = '\0';
    for (int i = 0; i < 3; i++) /* BUILD/tests/unit/NAME */
        *strrchr(self, '/') = '\0';
    (void)snprintf(installed, sizeof installed, "%s/lib/penstock/stages", self);
    return setenv("PENSTOCK_STAGES", installed, 1) != 0 || scratch_setup(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),     cmocka_unit_test(test_automatic),
        cmocka_unit_test(test_lists),      cmocka_unit_test(test_descriptions),
        cmocka_unit_test(test_binding),    cmocka_unit_test(test_absolute),
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_not_found),
    };
    return cmocka_run_group_tests(tests, setup, scratch_teardown);
}
