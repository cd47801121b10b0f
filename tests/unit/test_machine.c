/* Machine files and their mistakes; the cliques of the machines that ship, and of random graphs against brute
 * force. */
#include "tests/unit/store_fixture.h"

#include <math.h>

#include "common/machine/machine.h"
#include "common/util/clock.h"
#include "common/util/rng.h"
#include "stages/lib/clique/cliques.h"

/* ---- cliques -------------------------------------------------------------------------------------- */

static bool is_clique(const uint64_t *links, uint64_t set)
{
    for (uint64_t left = set; left != 0; left &= left - 1) {
        const int v = __builtin_ctzll(left);
        if ((set & ~(links[v] | UINT64_C(1) << v)) != 0)
            return false;
    }
    return true;
}

/* Of two sets of the same size, the one whose sorted numbers come first has the lowest device in which they
 * differ. */
static bool before(uint64_t a, uint64_t b)
{
    const uint64_t differ = a ^ b;
    return differ != 0 && (a & (differ & -differ)) != 0;
}

static uint64_t brute_force(const uint64_t *links, uint64_t set)
{
    uint64_t best = 0;
    for (uint64_t s = set; s != 0; s = (s - 1) & set) {
        const int size = __builtin_popcountll(s), most = __builtin_popcountll(best);
        if ((size > most || (size == most && before(s, best))) && is_clique(links, s))
            best = s;
    }
    return best;
}

/* Each pair is linked with a probability of `percent`. */
static void random_links(uint64_t *links, int n, uint32_t seed, unsigned percent)
{
    const struct pst_rng_stream stream = pst_rng_stream_of(PST_RNG_SAMPLE, seed, 0, 0, 0);
    memset(links, 0, (size_t)n * sizeof *links);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++)
            if (pst_rng_draw(&stream, (uint64_t)(i * PST_CLIQUES_MAX + k), 0).word[0] % 100 < percent) {
                links[i] |= UINT64_C(1) << k;
                links[k] |= UINT64_C(1) << i;
            }
}

static void random_graphs_equal_brute_force(void **state)
{
    (void)state;
    for (uint32_t seed = 0; seed < 10000; seed++) {
        uint64_t links[PST_CLIQUES_MAX], clique[PST_CLIQUES_MAX];
        const int n = 1 + (int)(seed % 12);
        random_links(links, n, seed, 10 + seed / 12 % 9 * 10);
        uint64_t left = (UINT64_C(1) << n) - 1;
        const int count = pst_cliques_find(links, n, clique);
        for (int k = 0; k < count; k++) {
            if (clique[k] != brute_force(links, left))
                fail_msg("seed %u, clique %d: found %#llx, expected %#llx", seed, k,
                         (unsigned long long)clique[k], (unsigned long long)brute_force(links, left));
            left &= ~clique[k];
        }
        assert_int_equal(left, 0);
    }
}

static void sixteen_devices_are_quick(void **state)
{
    (void)state;
    double worst = 0;
    for (uint32_t seed = 0; seed < 200; seed++) {
        uint64_t links[PST_CLIQUES_MAX], clique[PST_CLIQUES_MAX];
        random_links(links, 16, seed, 20 + seed % 8 * 10);
        const double begin = pst_clock_s();
        (void)pst_cliques_find(links, 16, clique);
        worst = fmax(worst, pst_clock_s() - begin);
    }
    if (worst > 0.010) /* one that other work delayed would be the exception */
        fail_msg("16 devices took %g s, expected at most 0.010", worst);
}

static void sixty_four_devices_end(void **state)
{
    (void)state;
    uint64_t links[PST_CLIQUES_MAX], clique[PST_CLIQUES_MAX];
    for (int i = 0; i < PST_CLIQUES_MAX; i++)
        links[i] = ~(UINT64_C(1) << i);
    assert_int_equal(pst_cliques_find(links, PST_CLIQUES_MAX, clique), 1);
    assert_true(clique[0] == ~UINT64_C(0));
    memset(links, 0, sizeof links);
    assert_int_equal(pst_cliques_find(links, PST_CLIQUES_MAX, clique), PST_CLIQUES_MAX);
    for (int i = 0; i < PST_CLIQUES_MAX; i++)
        assert_true(clique[i] == UINT64_C(1) << i);
    random_links(links, PST_CLIQUES_MAX, 1, 80);
    assert_true(pst_cliques_find(links, PST_CLIQUES_MAX, clique) > 1);
}

/* ---- files ---------------------------------------------------------------------------------------- */

static void shipped(const char *name, int count, int size)
{
    char path[PST_PATH_MAX];
    struct pst_machine m;
    struct pst_diag diag = {0};
    uint64_t links[PST_CLIQUES_MAX], clique[PST_CLIQUES_MAX];
    (void)snprintf(path, sizeof path, "pipelines/machines/%s.json", name);
    assert_true(pst_machine_load(&m, path, &diag));
    assert_string_equal(m.name, name);
    assert_int_equal(m.ndevices, 8);
    for (int i = 0; i < m.ndevices; i++)
        links[i] = m.device[i].links;
    assert_int_equal(pst_cliques_find(links, m.ndevices, clique), count);
    for (int k = 0; k < count; k++)
        assert_int_equal(__builtin_popcountll(clique[k]), size);
}

static void shipped_machines(void **state)
{
    (void)state;
    shipped("dgx-v100", 2, 4); /* Legion, Table 1: K_c and K_g */
    shipped("siton", 4, 2);
    shipped("dgx-a100", 1, 8);
}

/* Loads a file with this text; the first error must contain `error`. NULL: the file is valid. */
static void told(const char *text, const char *error)
{
    char path[PST_PATH_MAX];
    struct pst_machine m;
    struct pst_diag diag = {0};
    (void)snprintf(path, sizeof path, "%s", in_scratch("machine.json"));
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    (void)fputs(text, f);
    assert_int_equal(fclose(f), 0);
    const bool ok = pst_machine_load(&m, path, &diag);
    if (error == NULL ? !ok : ok || strstr(diag.line[0], error) == NULL)
        fail_msg("expected \"%s\", found \"%s\"", error ? error : "no error", ok ? "no error" : diag.line[0]);
    if (ok) {
        struct pst_machine again;
        char *written = pst_machine_text(&m);
        assert_non_null(written);
        f = fopen(path, "w");
        assert_non_null(f);
        (void)fputs(written, f);
        assert_int_equal(fclose(f), 0);
        free(written);
        assert_true(pst_machine_load(&again, path, &diag));
        assert_memory_equal(&m, &again, sizeof m);
    }
    pst_diag_release(&diag);
}

#define SOCKETS "\"sockets\": [{\"cores\": 2, \"memory_bytes\": 1e9}]"
#define DEVICE(socket, links) "{\"socket\": " socket ", \"memory_bytes\": 1e9, \"links\": [" links "]}"
#define MACHINE(devices) "{\"machine\": 1, \"name\": \"m\", " SOCKETS ", \"devices\": [" devices "]}"

static void mistakes_are_told(void **state)
{
    (void)state;
    told(MACHINE(DEVICE("0", "1") ", " DEVICE("0", "0")), NULL);
    told(MACHINE(""), NULL);
    told(MACHINE(DEVICE("0", "1") ", " DEVICE("0", "")),
         "devices[0].links: device 0 lists device 1, but not the reverse");
    told(MACHINE(DEVICE("0", "0")), "devices[0].links[0]: device 0 is linked with itself");
    told(MACHINE(DEVICE("0", "1, 1") ", " DEVICE("0", "0")),
         "devices[0].links[1]: device 0 has this link twice");
    told(MACHINE(DEVICE("0", "7")), "devices[0].links[0]: expected the number of a device, from 0 to 0");
    told(MACHINE(DEVICE("0", "\"a\"")), "expected the number of a device");
    told(MACHINE(DEVICE("1", "")), "devices[0].socket: there is no socket 1");
    told(MACHINE(DEVICE("-1", "")), "devices[0].socket: expected an integer from 0 to 15, found -1");
    told(MACHINE("3"), "devices[0]: expected an object, found an integer");
    told("{\"machine\": 2, \"name\": \"m\", " SOCKETS ", \"devices\": []}",
         "machine: expected an integer from 1 to 1");
    told("{\"machine\": 1, \"name\": \"m\", \"sockets\": [], \"devices\": []}",
         "sockets: expected at least one");
    told("{\"machine\": 1, \"name\": \"m\", " SOCKETS ", \"device\": []}",
         "device: unknown key; did you mean");
    told("{\"machine\": 1, \"name\": \"m\", " SOCKETS, "machine.json:1");
}

static void places_are_devices(void **state)
{
    (void)state;
    const struct pst_machine m = {.ndevices = 8};
    assert_int_equal(pst_machine_device(&m, "cpu:1"), 0);
    assert_int_equal(pst_machine_device(&m, "cpu:8"), 7);
    assert_int_equal(pst_machine_device(&m, "cuda:0"), 0);
    assert_int_equal(pst_machine_device(&m, "cuda:7"), 7);
    static const char *const none[] = {"cpu:0", "cpu:9", "cuda:8", "cpu"};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        assert_int_equal(pst_machine_device(&m, none[i]), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_graphs_equal_brute_force),
        cmocka_unit_test(sixteen_devices_are_quick),
        cmocka_unit_test(sixty_four_devices_end),
        cmocka_unit_test(shipped_machines),
        cmocka_unit_test(mistakes_are_told),
        cmocka_unit_test(places_are_devices),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
