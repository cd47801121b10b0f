/* Pipelines resolved: parameters, routes, copies between devices, capacity. */
#include "tests/unit/store_fixture.h"

#include "common/pipeline/desc/condition.h"
#include "common/pipeline/graph.h"
#include "common/pipeline/place.h"

struct loaded {
    struct pst_pipeline pl;
    struct pst_graph graph;
    struct pst_diag diag;
    bool ok;
};

static char stages[4096]; /* where the tests' own stages are */

/* Loads a pipeline whose stages are "NAME": {"run": "@KIND" ...}; @ stands for the tests' stages. */
static struct loaded *load_with(const char *members, const char *links, char *const *sets, int nsets,
                                bool group_all)
{
    struct loaded *l = calloc(1, sizeof *l);
    FILE *f = fopen(in_scratch("p.json"), "w");
    assert_true(l && f);
    (void)fprintf(f, "{\"penstock\": 1, \"params\": {},\n\"stages\": {");
    for (const char *at = members; *at; at++)
        if (*at == '@') {
            size_t n = strcspn(at + 1, "\"");
            (void)fprintf(f, "%s/%.*s.so", stages, (int)n, at + 1);
            at += n;
        } else {
            (void)fputc(*at, f);
        }
    (void)fprintf(f, "},\n\"links\": [%s]}\n", links);
    assert_int_equal(fclose(f), 0);
    const struct pst_pipeline_options options = {.sets = sets, .nsets = nsets, .group_all = group_all};
    l->ok = pst_pipeline_load(&l->pl, in_scratch("p.json"), &options, &l->diag) &&
            pst_graph_build(&l->graph, &l->pl, &l->diag);
    return l;
}

static struct loaded *load(const char *members, const char *links)
{
    return load_with(members, links, NULL, 0, false);
}

static void done(struct loaded *l)
{
    pst_pipeline_release(&l->pl);
    pst_diag_release(&l->diag);
    free(l);
}

static void assert_ok(const struct loaded *l)
{
    if (!l->ok)
        fail_msg("%s", l->diag.count ? l->diag.line[0] : "failed without a word");
    assert_int_equal(l->diag.count, 0);
}

static void assert_bad(const struct loaded *l, const char *part)
{
    assert_false(l->ok);
    assert_int_equal(l->diag.count, 1);
    if (!strstr(l->diag.line[0], part))
        fail_msg("expected '%s' in: %s", part, l->diag.line[0]);
}

/* "source>a.in>sink.in *4" for every route. */
static void route_text(const struct loaded *l, int r, char out[512])
{
    const struct pst_route *route = &l->graph.routes[r];
    const struct pst_pipeline *pl = &l->pl;
    int n = snprintf(out, 512, "%s.%s", pl->stages[route->stage].name,
                     pl->stages[route->stage].caps.desc->ports[route->port].name);
    for (int b = 0; b < route->borrowers; b++) {
        const struct pst_pipeline_stage_spec *s = &pl->stages[route->borrower_stage[b]];
        n += snprintf(out + n, 512 - (size_t)n, " %s.%s", s->name,
                      s->caps.desc->ports[route->borrower_port[b]].name);
    }
    (void)snprintf(out + n, 512 - (size_t)n, " *%d on %s copy %d", route->slots, route->device,
                   route->copy_of);
}

static void assert_routes(const struct loaded *l, int n, const char *const *want)
{
    assert_ok(l);
    assert_int_equal(l->graph.nroutes, n);
    for (int r = 0; r < n; r++) {
        char text[512];
        route_text(l, r, text);
        assert_string_equal(text, want[r]);
    }
}

#define SOURCE "\"source\": {\"run\": \"@source\"}"
#define SINK "\"sink\": {\"run\": \"@sink\"}"
#define A "\"a\": {\"run\": \"passthrough\"}"
#define LINK(from, to) "{\"from\": \"" from "\", \"to\": \"" to "\"}"
#define SLOTS(from, to, n) "{\"from\": \"" from "\", \"to\": \"" to "\", \"slots\": " n "}"

static void test_chain(void **state)
{
    (void)state;
    struct loaded *l =
        load(SOURCE ", " A ", " SINK, LINK("source.out", "a.in") ", " LINK("a.out", "sink.in"));
    assert_routes(l, 1, (const char *const[]){"source.out a.in sink.in *4 on cpu:0 copy -1"});
    for (int k = 0; k < l->pl.nlinks; k++) {
        assert_true(pst_link_carries(&l->graph, 0, &l->pl, &l->pl.links[k]));
        assert_false(pst_link_oneshot(&l->pl, &l->pl.links[k]));
    }
    assert_int_equal(pst_pipeline_stage(&l->pl, "sink"), 2);
    assert_int_equal(pst_pipeline_stage(&l->pl, "nothing"), -1);
    assert_true(l->pl.seed == 1 && l->pl.epochs == 1 && l->pl.dataset[0] == '\0');
    assert_string_equal(l->pl.name, "p");
    done(l);
}

static void test_fan_out(void **state)
{
    (void)state;
    struct loaded *l =
        load(SOURCE ", " A ", " SINK ", \"two\": {\"run\": \"@sink\"}",
             SLOTS("source.out", "a.in", "9") ", " LINK("a.out", "sink.in") ", " LINK("a.out", "two.in"));
    assert_routes(l, 1, (const char *const[]){"source.out a.in sink.in two.in *9 on cpu:0 copy -1"});
    done(l);
}

static void test_back_link(void **state)
{
    (void)state;
    struct loaded *l = load("\"looper\": {\"run\": \"@looper\"}, \"echo\": {\"run\": \"passthrough\"}, " SINK,
                            SLOTS("looper.out", "sink.in", "5") ", " SLOTS(
                                "looper.ask", "echo.in",
                                "6") ", "
                                     "{\"from\": \"echo.out\", \"to\": \"looper.answer\", \"back\": true}");
    assert_routes(l, 2,
                  (const char *const[]){"looper.out sink.in *5 on cpu:0 copy -1",
                                        "looper.ask echo.in looper.answer *6 on cpu:0 copy -1"});
    assert_true(l->pl.links[2].back && pst_link_carries(&l->graph, 1, &l->pl, &l->pl.links[2]));
    assert_false(pst_link_carries(&l->graph, 0, &l->pl, &l->pl.links[2]));
    done(l);
}

static void test_one_shot(void **state)
{
    (void)state;
    struct loaded *l = load("\"planner\": {\"run\": \"planner\"}, \"sampler\": {\"run\": \"sampler\"}, "
                            "\"disk\": {\"run\": \"disk\"}, \"trainer\": {\"run\": \"trainer\"}",
                            LINK("planner.plan", "sampler.plan") ", " LINK(
                                "sampler.batch", "disk.requests") ", " LINK("disk.done", "trainer.batch"));
    assert_routes(l, 1,
                  (const char *const[]){"sampler.batch disk.requests trainer.batch *4 on cpu:0 copy -1"});
    assert_true(pst_link_oneshot(&l->pl, &l->pl.links[0]));
    assert_false(pst_link_carries(&l->graph, 0, &l->pl, &l->pl.links[0]));
    done(l);
}

#define ON1 ", \"place\": {\"device\": \"cpu:1\"}}"

static void test_copies(void **state)
{
    (void)state;
    struct loaded *l = load(
        SOURCE ", \"a\": {\"run\": \"passthrough\"" ON1 ", " SINK ", \"copy-0\": {\"run\": \"passthrough\"}",
        SLOTS("source.out", "copy-0.in", "7") ", " LINK("copy-0.out", "a.in") ", " LINK("a.out", "sink.in"));
    /* there and back, each with as many slots as the original; the user's own copy-0 keeps its name */
    assert_routes(l, 3,
                  (const char *const[]){"source.out copy-0.in copy-1.in *7 on cpu:0 copy -1",
                                        "copy-1.out a.in copy-2.in *7 on cpu:1 copy 0",
                                        "copy-2.out sink.in *7 on cpu:0 copy 1"});
    assert_int_equal(l->pl.nstages, 6);
    assert_int_equal(l->pl.nlinks, 5);
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    pst_graph_draw(&l->graph, &l->pl, PST_GRAPH_MERMAID, out);
    assert_int_equal(fclose(out), 0);
    assert_true(strstr(text, "flowchart LR") && strstr(text, "copy-2") && strstr(text, "7 slots, copied"));
    free(text);
    done(l);
    l = load(
        SOURCE ", \"sink\": {\"run\": \"@sink\"" ON1 ", \"copy-0\": {\"run\": \"passthrough\"" ON1
               ", \"k\": {\"run\": \"@sink\"" ON1,
        LINK("source.out", "sink.in") ", " LINK("source.out", "copy-0.in") ", " LINK("copy-0.out", "k.in"));
    assert_ok(l);
    for (int a = 0; a < l->pl.nstages; a++)
        for (int b = 0; b < a; b++)
            assert_string_not_equal(l->pl.stages[a].name, l->pl.stages[b].name);
    done(l);
}

/* A route needs one slot more than what all of its stages may keep for ever. */
static void test_capacity(void **state)
{
    (void)state;
    static const struct {
        int keep, instances, least;
    } cases[] = {{1, 1, 1}, {4, 1, 4}, {4, 3, 10}, {2, 16, 17}, {64, 16, 1009}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int slots = cases[i].least - 1; slots <= cases[i].least; slots++) {
            char members[256], wires[128], least[64];
            (void)snprintf(members, sizeof members,
                           SOURCE
                           ", \"sink\": {\"run\": \"@sink\", \"params\": {\"keep\": %d}, \"instances\": %d}",
                           cases[i].keep, cases[i].instances);
            (void)snprintf(wires, sizeof wires, SLOTS("source.out", "sink.in", "%d"), slots);
            (void)snprintf(least, sizeof least, "at least %d", cases[i].least);
            struct loaded *l = load(members, wires);
            if (slots >= cases[i].least)
                assert_ok(l);
            else
                assert_bad(l, slots ? least : "expected an integer from 1 to 1024, found 0");
            done(l);
        }
}

static void test_params(void **state)
{
    (void)state;
    static char *const sets[] = {"params.bytes=64KiB",
                                 "stages.source.params.micros=3",
                                 "params.keep=2",
                                 "stages.sink.params.keep=4",
                                 "seed=9",
                                 "name=x-y_1",
                                 "links[0].slots=8"};
    struct loaded *l = load_with(SOURCE ", " SINK, LINK("source.out", "sink.in"), sets, 7, false);
    assert_ok(l);
    const struct pst_pipeline_stage_spec *source = &l->pl.stages[0], *sink = &l->pl.stages[1];
    assert_int_equal(json_integer_value(json_object_get(source->params, "bytes")),
                     65536); /* shared, normal form */
    assert_int_equal(json_integer_value(json_object_get(source->params, "micros")), 3); /* its own */
    assert_int_equal(json_integer_value(json_object_get(source->params, "parts")), 1);  /* the default */
    assert_int_equal(json_integer_value(json_object_get(sink->params, "keep")),
                     4); /* its own before the shared */
    assert_true(l->pl.seed == 9 && l->graph.routes[0].slots == 8);
    assert_string_equal(l->pl.name, "x-y_1");
    assert_true(pst_condition_holds("micros=3", source->params) &&
                pst_condition_holds("split=false", source->params));
    assert_true(pst_condition_holds("section=sink", sink->params));
    assert_false(pst_condition_holds("micros=4", source->params) ||
                 pst_condition_holds("nothing=1", source->params) ||
                 pst_condition_holds("micros", source->params) || pst_condition_holds("", source->params) ||
                 pst_condition_holds(NULL, source->params));
    assert_int_equal(pst_pipeline_port_hold(sink, &sink->caps.desc->ports[0]), 4);
    assert_int_equal(pst_pipeline_port_hold(source, &source->caps.desc->ports[0]), 1);
    done(l);
}

/* What a port's memory asks of parameters before the stage can be on a GPU. */
static void test_conditions_on_memory(void **state)
{
    (void)state;
    static const struct {
        const char *memory, *why; /* NULL: it can */
    } all[] = {
        {"cpu", "runs only on CPUs"},
        {"cpu,pinned", NULL},
        {"cpu,cuda if split=false", NULL},
        {"pinned if split=true,cpu", "only if split=true"},
        {"cpu,pinned if micros=1|2 and split=true|false and parts=1,cpu", NULL},
        {"cpu,pinned if micros=1|2 and split=true and parts=9", "only if split=true"},
        {"cpu,pinned if micros=7|8 and split=false", "only if micros=7|8"},
        {"cpu,pinned if micros=1|2 and ", "only if "},
        {"cpu,pinned if micros=1 or split=false", "only if "},
    };
    struct loaded *l = load(SOURCE ", " SINK, LINK("source.out", "sink.in"));
    assert_ok(l);
    struct pst_pipeline_stage_spec source = l->pl.stages[0];
    struct pst_stage_desc desc = *source.caps.desc;
    struct pst_port_desc ports[2] = {desc.ports[0]};
    desc.ports = ports;
    source.caps.desc = &desc;
    json_object_set_new(source.params, "micros", json_integer(1));
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        char why[160] = "";
        ports[0].memory = all[i].memory;
        if (pst_place_stage_on_gpu(&source, why) != (all[i].why == NULL) ||
            !strstr(why, all[i].why ? all[i].why : ""))
            fail_msg("%s: %s", all[i].memory, why);
    }
    done(l);
}

static void test_groups_and_places(void **state)
{
    (void)state;
    struct loaded *l =
        load("\"source\": {\"run\": \"@source\", \"group\": \"g\", \"place\": {\"device\": \"auto\", "
             "\"cores\": \"0\"}}, " SINK,
             LINK("source.out", "sink.in"));
    assert_ok(l);
    assert_string_equal(l->pl.stages[0].group, "g");
    assert_string_equal(l->pl.stages[0].device, "cpu:0");
    assert_string_equal(l->pl.stages[0].cores, "0");
    assert_string_equal(l->pl.stages[1].group, "");
    done(l);
    l = load_with(SOURCE ", " SINK, LINK("source.out", "sink.in"), NULL, 0, true);
    assert_ok(l);
    assert_string_equal(l->pl.stages[0].group, "all");
    done(l);
}

/* More links than could be searched way by way: 3 to the power of 20 ways. */
static void test_many_ways(void **state)
{
    (void)state;
    enum { LAYERS = 20, WIDE = 3 };
    char *members = calloc(1, 1 << 16), *wires = calloc(1, 1 << 16);
    assert_true(members && wires);
    (void)strcpy(members, "\"o\": {\"run\": \"@source\"}");
    for (int i = 0; i < LAYERS * WIDE; i++)
        (void)sprintf(members + strlen(members), ", \"s%d\": {\"run\": \"passthrough\"}", i);
    for (int i = 0; i < (LAYERS - 1) * WIDE; i++)
        for (int k = 0; k < WIDE; k++)
            (void)sprintf(wires + strlen(wires), "%s{\"from\": \"s%d.out\", \"to\": \"s%d.in\"%s}",
                          wires[0] ? "," : "", i, (i / WIDE + 1) * WIDE + k,
                          i == 0 && k == 0 ? ", \"back\": true" : "");
    struct loaded *l = load(members, wires);
    assert_false(l->ok);
    done(l);
    free(members);
    free(wires);
}

static int setup(void **state)
{
    ssize_t n = readlink("/proc/self/exe", stages, sizeof stages - 1);
    if (n <= 0 || n > 3000)
        return 1;
    stages[n] = '\0';
    char *cut = strrchr(stages, '/');
    *cut = '\0'; /* .../tests/unit */
    cut = strrchr(stages, '/');
    char installed[4096];
    (void)snprintf(installed, sizeof installed, "%.*s/../lib/penstock/stages", (int)(cut - stages), stages);
    (void)strcpy(cut, "/stages");
    return setenv("PENSTOCK_STAGES", installed, 1) != 0 || scratch_setup(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chain),
        cmocka_unit_test(test_fan_out),
        cmocka_unit_test(test_back_link),
        cmocka_unit_test(test_one_shot),
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_capacity),
        cmocka_unit_test(test_params),
        cmocka_unit_test(test_groups_and_places),
        cmocka_unit_test(test_conditions_on_memory),
        cmocka_unit_test(test_many_ways),
    };
    return cmocka_run_group_tests(tests, setup, scratch_teardown);
}
