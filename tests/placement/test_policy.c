/* Policies of a cache that changes: every decision against a model of the lines, the ranked policies against
 * brute force, SIEVE and S3-FIFO against plain lists. Traces of ids: written, read, damaged. */
#include "stages/lib/policy/policy.h"
#include "stages/lib/policy/policy_trace.h"
#include "tests/unit/store_fixture.h"

enum { V = 160, BATCHES = 60, BATCH_MAX = 24, LINES_MAX = 48, GRAPHS = 12 };

struct world {
    int64_t ids[BATCHES][BATCH_MAX];
    int64_t n[BATCHES];
    int super; /* Belady knows so many batches at a time; 0: all */
    uint64_t next[BATCHES][BATCH_MAX];
    float hotness[V];
};

/* A cache as its decisions describe it. */
struct model {
    int64_t row[LINES_MAX]; /* the vertex of each line; -1: none */
    int64_t hits;
};

static uint64_t state = 88172645463325252u;

static int64_t below(int64_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (int64_t)((state >> 11) % (uint64_t)n);
}

/* Batches of distinct vertices, of which low ids are more common; some batches are empty. */
static void make_world(struct world *w)
{
    for (int v = 0; v < V; v++)
        w->hotness[v] = (float)below(8);
    w->super = 0;
    for (int b = 0; b < BATCHES; b++) {
        bool in[V] = {false};
        const int64_t want = below(10) == 0 ? 0 : 1 + below(BATCH_MAX);
        w->n[b] = 0;
        for (int64_t i = 0; i < want; i++) {
            const int64_t v = below(1 + below(V));
            if (!in[v])
                w->ids[b][w->n[b]++] = v;
            in[v] = true;
        }
    }
    uint64_t last[V];
    for (int v = 0; v < V; v++)
        last[v] = PST_POLICY_NEVER;
    for (int b = BATCHES - 1; b >= 0; b--)
        for (int64_t i = 0; i < w->n[b]; i++) {
            w->next[b][i] = last[w->ids[b][i]];
            last[w->ids[b][i]] = (uint64_t)b;
        }
}

static bool uses(const struct world *w, int b, int64_t v)
{
    bool found = false;
    for (int64_t i = 0; b < BATCHES && i < w->n[b]; i++)
        found = found || w->ids[b][i] == v;
    return found;
}

/* When the batches after b, up to b + window, use the vertex first. */
static uint64_t next_use(const struct world *w, int b, int window, int64_t v)
{
    for (int t = b + 1; t <= b + window && t < BATCHES; t++)
        if (uses(w, t, v))
            return (uint64_t)t;
    return PST_POLICY_NEVER;
}

static int64_t line_of(const struct model *m, int64_t lines, int64_t v)
{
    for (int64_t l = 0; l < lines; l++)
        if (m->row[l] == v)
            return l;
    return -1;
}

/* Whether brute force keeps vertex a rather than b after batch t. */
static bool better(const struct world *w, const struct pst_policy_config *c, int t, int64_t a, int64_t b)
{
    const bool belady = c->kind == PST_POLICY_BELADY;
    const int left = w->super > 0 ? w->super - 1 - t % w->super : BATCHES; /* of the super-batch, after t */
    const int window = belady ? left : c->window;
    const uint64_t na = next_use(w, t, window, a), nb = next_use(w, t, window, b);
    const float ha = belady ? 0 : w->hotness[a], hb = belady ? 0 : w->hotness[b];
    return na != nb ? na < nb : ha < hb || ha > hb ? ha > hb : a < b;
}

/* The cache after batch t has the best of what it had and of what the batch read. */
static void check_best(const struct world *w, const struct pst_policy_config *c, int t,
                       const struct model *before, const struct model *after)
{
    for (int64_t v = 0; v < V; v++) {
        if (line_of(before, c->lines, v) < 0 && !uses(w, t, v)) {
            assert_int_equal(line_of(after, c->lines, v), -1);
            continue;
        }
        int64_t ahead = 0; /* candidates that are better */
        for (int64_t u = 0; u < V; u++)
            ahead += u != v && (line_of(before, c->lines, u) >= 0 || uses(w, t, u)) && better(w, c, t, u, v);
        assert_int_equal(line_of(after, c->lines, v) >= 0, ahead < c->lines);
    }
}

/* No line that a batch of the window uses is lost; and while a line is free or safe, a miss is kept. */
static void check_window(const struct world *w, const struct pst_policy_config *c, int t,
                         const struct model *before, const struct model *after, const int32_t *hit,
                         const int32_t *keep)
{
    const int window = c->kind == PST_POLICY_WINDOW ? c->window : 0;
    int64_t safe = 0, kept = 0, misses = 0;
    for (int64_t l = 0; l < c->lines; l++) {
        const int64_t v = before->row[l];
        const bool used = v >= 0 && (uses(w, t, v) || next_use(w, t, window, v) != PST_POLICY_NEVER);
        safe += !used;
        if (used)
            assert_int_equal(after->row[l], v);
    }
    for (int64_t i = 0; i < w->n[t]; i++) {
        misses += hit[i] < 0;
        kept += keep[i] >= 0;
    }
    assert_int_equal(kept, safe < misses ? safe : misses);
}

/* Applies one decision to the model, and checks what holds for every policy. */
static void apply(const struct world *w, const struct pst_policy_config *c, int t, struct model *m,
                  const int32_t *hit, const int32_t *keep)
{
    bool taken[LINES_MAX] = {false};
    const bool past =
        c->kind == PST_POLICY_SIEVE || c->kind == PST_POLICY_S3FIFO || c->kind == PST_POLICY_LRU;
    for (int64_t i = 0; i < w->n[t]; i++) {
        if (hit[i] >= 0)
            assert_int_equal(m->row[hit[i]], w->ids[t][i]);
        else if (!past) /* those may evict a row before their own batch comes to it */
            assert_int_equal(line_of(m, c->lines, w->ids[t][i]), -1);
        m->hits += hit[i] >= 0;
    }
    for (int64_t i = 0; i < w->n[t]; i++) {
        if (keep[i] < 0)
            continue;
        assert_true(hit[i] < 0 && keep[i] < c->lines && !taken[keep[i]]);
        taken[keep[i]] = true;
        m->row[keep[i]] = w->ids[t][i];
    }
}

static int64_t play(const struct world *w, const struct pst_policy_config *c, uint64_t *digest)
{
    struct pst_policy *p = NULL;
    struct model m;
    int64_t n = 0, counted = 0;
    assert_int_equal(pst_policy_new(&p, c), PST_OK);
    for (int64_t l = 0; l < LINES_MAX; l++)
        m.row[l] = -1;
    m.hits = 0;
    const int64_t *first = pst_policy_lines(p, &n);
    for (int64_t l = 0; l < n; l++)
        m.row[l] = first[l];
    for (int t = 0, entered = 0; t < BATCHES; t++) {
        int32_t hit[BATCH_MAX], keep[BATCH_MAX];
        const bool super = c->kind == PST_POLICY_BELADY && w->super > 0;
        const int window = super                             ? w->super - 1 - t % w->super
                           : pst_policy_looks_ahead(c->kind) ? c->window
                                                             : 0;
        if (super && t > 0 && t % w->super == 0) {
            pst_policy_forget(p);
            for (int64_t l = 0; l < LINES_MAX; l++)
                m.row[l] = -1;
        }
        for (; entered < BATCHES && entered <= t + window; entered++)
            pst_policy_enter(p, w->ids[entered], w->n[entered]);
        const struct pst_policy_batch batch = {
            .batch = (uint64_t)t, .ids = w->ids[t], .n = w->n[t], .next = super ? NULL : w->next[t]};
        counted += pst_policy_decide(p, &batch, hit, keep);
        const struct model before = m;
        apply(w, c, t, &m, hit, keep);
        if (c->kind == PST_POLICY_LOOKAHEAD || c->kind == PST_POLICY_BELADY)
            check_best(w, c, t, &before, &m);
        if (c->kind == PST_POLICY_WINDOW || c->kind == PST_POLICY_RANDOM)
            check_window(w, c, t, &before, &m, hit, keep);
        for (int64_t i = 0; i < w->n[t]; i++)
            *digest = *digest * 31 + (uint64_t)(hit[i] + 2) * 7 + (uint64_t)(keep[i] + 2);
    }
    assert_int_equal(counted, m.hits);
    pst_policy_free(p);
    return m.hits;
}

static struct pst_policy_config config_of(const struct world *w, enum pst_policy_kind kind, int64_t lines,
                                          int window)
{
    return (struct pst_policy_config){.kind = kind,
                                      .seed = 7,
                                      .lines = lines,
                                      .window = window,
                                      .super_batch = w->super,
                                      .batch_max = BATCH_MAX,
                                      .hotness = w->hotness,
                                      .vertices = V};
}

static void every_policy(void **unused)
{
    (void)unused;
    static const int windows[] = {0, 1, 5, PST_POLICY_WINDOW_MAX};
    for (int g = 0; g < GRAPHS; g++) {
        struct world w;
        make_world(&w);
        const int64_t lines = g == 0 ? 0 : 1 + below(LINES_MAX);
        int64_t best = 0;
        for (int k = PST_POLICY_KINDS - 1; k >= 0; k--)
            for (size_t i = 0; i < sizeof windows / sizeof *windows; i++) {
                const struct pst_policy_config c = config_of(&w, (enum pst_policy_kind)k, lines, windows[i]);
                uint64_t once = 0, again = 0;
                const int64_t hits = play(&w, &c, &once);
                assert_int_equal(play(&w, &c, &again), hits);
                assert_int_equal(once, again);
                if (k == PST_POLICY_BELADY)
                    best = hits;
                if (k != PST_POLICY_STATIC) /* that one begins full */
                    assert_true(hits <= best);
            }
    }
}

/* Belady over super-batches decides as brute force does, and hits no more than with the whole trace; with one
 * super-batch it is the same. */
static void super_batches(void **unused)
{
    (void)unused;
    static const int sizes[] = {1, 2, 7, BATCHES};
    for (int g = 0; g < GRAPHS; g += 4) {
        struct world w;
        make_world(&w);
        const struct pst_policy_config whole = config_of(&w, PST_POLICY_BELADY, g * 4, 0);
        uint64_t all = 0;
        const int64_t best = play(&w, &whole, &all);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            w.super = sizes[i];
            const struct pst_policy_config c = config_of(&w, PST_POLICY_BELADY, g * 4, 0);
            uint64_t once = 0;
            const int64_t hits = play(&w, &c, &once);
            assert_true(hits <= best && (w.super > 1 || hits == 0));
            if (w.super == BATCHES)
                assert_true(hits == best && once == all);
        }
    }
}

/* Other keys, other victims; window 0 is random. */
static void keyed(void **unused)
{
    (void)unused;
    struct world w;
    make_world(&w);
    struct pst_policy_config a = config_of(&w, PST_POLICY_RANDOM, 16, 0);
    uint64_t one = 0, other = 0, window = 0;
    const int64_t hits = play(&w, &a, &one);
    a.seed = 8;
    (void)play(&w, &a, &other);
    a = config_of(&w, PST_POLICY_WINDOW, 16, 0);
    assert_int_equal(play(&w, &a, &window), hits);
    assert_true(one == window && one != other);
}

/* ---- queues against plain lists ------------------------------------------------------------------- */

/* A list of vertices, oldest first, each with a count of uses. */
struct list {
    int64_t v[2 * V];
    int freq[2 * V];
    int n;
};

static int find_in(const struct list *l, int64_t v)
{
    for (int i = 0; i < l->n; i++)
        if (l->v[i] == v)
            return i;
    return -1;
}

static void append(struct list *l, int64_t v, int freq)
{
    l->v[l->n] = v;
    l->freq[l->n++] = freq;
}

static void drop(struct list *l, int at)
{
    l->n--;
    for (int i = at; i < l->n; i++) {
        l->v[i] = l->v[i + 1];
        l->freq[i] = l->freq[i + 1];
    }
}

/* The paper's Algorithm 1. */
static bool plain_sieve(struct list *l, int *hand, int lines, int64_t v)
{
    const int at = find_in(l, v);
    if (at >= 0) {
        l->freq[at] = 1;
        return true;
    }
    if (l->n == lines) {
        int o = *hand < l->n ? *hand : 0;
        while (l->freq[o]) {
            l->freq[o] = 0;
            o = o + 1 < l->n ? o + 1 : 0;
        }
        drop(l, o);
        *hand = o; /* the next newer one; past the newest: the oldest */
        if (o == l->n)
            *hand = 0;
    }
    append(l, v, 0);
    return false;
}

struct plain_s3 {
    struct list small, main, ghost;
};

static bool plain_s3fifo(struct plain_s3 *q, int lines, int64_t v)
{
    const int share = lines / 10 > 1 ? lines / 10 : 1, ghosts = (int)(lines * 0.9);
    const int s = find_in(&q->small, v), m = find_in(&q->main, v), g = find_in(&q->ghost, v);
    if (s >= 0 || m >= 0) {
        int *freq = s >= 0 ? &q->small.freq[s] : &q->main.freq[m];
        *freq = *freq < 3 ? *freq + 1 : 3;
        return true;
    }
    if (g >= 0)
        q->ghost.v[g] = -1; /* its place in the ring stays */
    bool room = q->small.n + q->main.n < lines;
    while (!room && q->small.n > 0 && (q->small.n >= share || q->main.n == 0)) {
        const int64_t old = q->small.v[0];
        const int freq = q->small.freq[0];
        drop(&q->small, 0);
        if (freq > 1) {
            append(&q->main, old, 0);
            continue;
        }
        append(&q->ghost, old, 0);
        if (q->ghost.n > ghosts)
            drop(&q->ghost, 0);
        room = true;
    }
    while (!room) {
        const int64_t old = q->main.v[0];
        const int freq = q->main.freq[0];
        drop(&q->main, 0);
        if (freq > 0)
            append(&q->main, old, freq - 1);
        room = freq == 0;
    }
    append(g >= 0 ? &q->main : &q->small, v, 0);
    return false;
}

static bool plain_lru(struct list *l, int lines, int64_t v, int64_t *evictions)
{
    const int at = find_in(l, v);
    if (at >= 0)
        drop(l, at);
    else if (l->n == lines) {
        drop(l, 0);
        ++*evictions;
    }
    append(l, v, 0);
    return at >= 0;
}

static void lru(void **unused)
{
    (void)unused;
    for (int g = 0; g < GRAPHS; g++) {
        struct world w;
        make_world(&w);
        const int lines = 1 + (int)below(LINES_MAX);
        static struct list list;
        list.n = 0;
        int64_t want = 0, evictions = 0;
        struct pst_policy *p = NULL;
        const struct pst_policy_config c = config_of(&w, PST_POLICY_LRU, lines, 0);
        assert_int_equal(pst_policy_new(&p, &c), PST_OK);
        for (int b = 0; b < BATCHES; b++) {
            int32_t hit[BATCH_MAX], keep[BATCH_MAX];
            const struct pst_policy_batch batch = {.batch = (uint64_t)b, .ids = w.ids[b], .n = w.n[b]};
            pst_policy_enter(p, w.ids[b], w.n[b]);
            (void)pst_policy_decide(p, &batch, hit, keep);
            for (int64_t i = 0; i < w.n[b]; i++) {
                const bool there = plain_lru(&list, lines, w.ids[b][i], &evictions);
                assert_int_equal(hit[i] >= 0, there);
                want += there;
            }
        }
        assert_int_equal(pst_policy_evictions(p), evictions);
        pst_policy_free(p);
        uint64_t digest = 0;
        assert_int_equal(play(&w, &c, &digest), want);
    }
}

static void queues(void **unused)
{
    (void)unused;
    for (int g = 0; g < GRAPHS; g++) {
        struct world w;
        make_world(&w);
        const int lines = 1 + (int)below(LINES_MAX);
        static struct list sieve;
        static struct plain_s3 s3;
        int hand = 0;
        sieve.n = s3.small.n = s3.main.n = s3.ghost.n = 0;
        int64_t want[2] = {0, 0};
        for (int b = 0; b < BATCHES; b++)
            for (int64_t i = 0; i < w.n[b]; i++) {
                want[0] += plain_sieve(&sieve, &hand, lines, w.ids[b][i]);
                want[1] += plain_s3fifo(&s3, lines, w.ids[b][i]);
            }
        uint64_t digest = 0;
        const struct pst_policy_config a = config_of(&w, PST_POLICY_SIEVE, lines, 0),
                                       b = config_of(&w, PST_POLICY_S3FIFO, lines, 0);
        assert_int_equal(play(&w, &a, &digest), want[0]);
        assert_int_equal(play(&w, &b, &digest), want[1]);
    }
}

/* ---- traces --------------------------------------------------------------------------------------- */

static const char *path;

static void write_trace(void)
{
    static const int64_t ids[] = {5, 3, 9, 1};
    int fd = -1, other = -1;
    assert_int_equal(pst_policy_trace_open(path, true, &fd), PST_OK);
    assert_int_equal(pst_policy_trace_open(path, false, &other), PST_OK);
    assert_int_equal(pst_policy_trace_append(fd, 1, 0, ids, 2), PST_OK);
    assert_int_equal(pst_policy_trace_append(other, 0, 1, ids + 2, 2), PST_OK);
    assert_int_equal(pst_policy_trace_append(other, 0, 0, ids, 4), PST_OK);
    assert_int_equal(pst_policy_trace_append(fd, 1, 0, ids + 1, 3), PST_OK); /* again, after a resume */
    (void)close(fd);
    (void)close(other);
}

static void traces(void **unused)
{
    (void)unused;
    struct pst_policy_trace t;
    path = in_scratch("ids");
    write_trace();
    assert_int_equal(pst_policy_trace_read(&t, path), PST_OK);
    assert_int_equal(t.n, 3);
    assert_int_equal(t.ids, 9);
    assert_int_equal(t.batch_max, 4);
    assert_int_equal(t.vertices, 10);
    assert_true(t.batches[0].n == 4 && t.batches[1].micro == 1 && t.batches[2].batch == 1);
    assert_int_equal(t.batches[2].ids[0], 3);
    pst_policy_trace_close(&t);
    assert_int_equal(truncate(path, 210), 0); /* the last record loses its end */
    assert_int_equal(pst_policy_trace_read(&t, path), PST_OK);
    assert_true(t.n == 3 && t.cut_bytes == 50 && t.batches[2].n == 2);
    pst_policy_trace_close(&t);
}

static void refuse(uint64_t at, int64_t value, const char *words)
{
    struct pst_policy_trace t;
    write_trace();
    const int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, &value, sizeof value, (off_t)at), (ssize_t)sizeof value);
    (void)close(fd);
    assert_int_equal(pst_policy_trace_read(&t, path), PST_E_FORMAT);
    assert_non_null(strstr(pst_error_text(), words));
    pst_policy_trace_close(&t);
}

static void damaged_traces(void **unused)
{
    (void)unused;
    struct pst_policy_trace t;
    path = in_scratch("ids");
    refuse(0, 1, "no record begins here");
    refuse(24, 17, "no record begins here"); /* the first one's n */
    refuse(136, 5, "the same id twice");
    refuse(80, -1, "negative");
    refuse(80, INT64_MAX, "too large");
    (void)unlink(path);
    assert_int_equal(pst_policy_trace_read(&t, path), PST_E_ARG);
    (void)close(open(path, O_CREAT | O_WRONLY, 0600));
    assert_int_equal(pst_policy_trace_read(&t, path), PST_E_FORMAT);
    assert_int_equal(pst_policy_trace_open("/nowhere/ids", true, &(int){0}), PST_E_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_policy),  cmocka_unit_test(keyed),
                                       cmocka_unit_test(super_batches), cmocka_unit_test(lru),
                                       cmocka_unit_test(queues),        cmocka_unit_test(traces),
                                       cmocka_unit_test(damaged_traces)};
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
