/* The placement of lists and rows in caches: policies against brute force over all placements, costs against
 * formulas that are written another way, the order against a comparison sort, and what must hold of any plan.
 */
#include "tests/placement/placement_fixture.h"

#define INSTANCES 10000
#define CHUNKS 8 /* at most, of both kinds: 3^8 placements */

/* ---- instances of some chunks ------------------------------------------------------------------- */

struct instance {
    struct pst_placement p;
    double heat[2][CHUNKS], cpu[2][CHUNKS], home[2][CHUNKS];
    struct pst_placement_machine machine;
};

/* Chunks of very different worth, of similar worth, of few different values, or of equal worth. */
static double worth(int spread)
{
    return spread == 0   ? pow(10, 4 * uniform())
           : spread == 1 ? 1 + 9 * uniform()
           : spread == 2 ? 1 + (double)below(4)
                         : 5;
}

/* In most instances both times matter: training and lookup take none, and the caches hold a part. */
static void draw_machine(struct instance *x, int64_t chunks)
{
    const bool close = below(4) > 0;
    x->p.room[PST_PLACEMENT_CPU] = below(close ? (chunks + 3) / 2 : chunks + 2);
    x->p.room[PST_PLACEMENT_GPU] = below(close ? (chunks + 3) / 2 : chunks + 2);
    x->machine.pcie_per_s = 0.5 + 2 * uniform();
    x->machine.ssd_per_s = close ? x->machine.pcie_per_s * (0.5 + 0.5 * uniform()) : 0.2 + 2 * uniform();
    x->machine.lookup_s = close ? 0 : uniform();
    x->machine.train_s = close ? 0 : 10 * uniform();
}

static void draw(struct instance *x)
{
    memset(x, 0, sizeof *x);
    const int spread = (int)below(6) % 4;
    int64_t n = 0;
    for (int kind = 0; kind < PST_PLACEMENT_KINDS; kind++) {
        struct pst_placement_queue *q = &x->p.queue[kind];
        q->chunks = 1 + below(CHUNKS / 2);
        n += q->chunks;
        q->heat = x->heat[kind];
        q->cpu = x->cpu[kind];
        q->home = x->home[kind];
        for (int64_t i = 0; i < q->chunks; i++) {
            q->heat[i] = worth(spread);
            q->cpu[i] = worth(spread);
            q->home[i] = q->cpu[i] * (below(2) == 0 ? 1 : 1 + 7 * uniform());
        }
        q->left_cpu = kind == 0 && below(3) == 0 ? 3 : 0;
        q->left_home = 2 * q->left_cpu;
    }
    x->p.batches = 1 + below(10);
    x->p.lists_in_memory = below(4) == 0;
    if (x->p.lists_in_memory)
        memcpy(x->home[0], x->cpu[0], sizeof x->cpu[0]);
    draw_machine(x, n);
}

static const struct pst_placement_ask *
ask_for(enum pst_placement_policy policy, enum pst_placement_objective objective, const struct instance *x)
{
    static struct pst_placement_ask ask;
    ask = (struct pst_placement_ask){
        .policy = policy, .objective = objective, .lists_share = {0, 0.4, 0.3}, .machine = &x->machine};
    return &ask;
}

static bool fits(const struct instance *x, uint8_t *const tier[PST_PLACEMENT_KINDS])
{
    int64_t used[PST_PLACEMENT_TIERS] = {0};
    for (int kind = 0; kind < PST_PLACEMENT_KINDS; kind++) {
        for (int64_t i = 0; i < x->p.queue[kind].chunks; i++) {
            used[tier[kind][i]]++;
            if (kind == 0 && x->p.lists_in_memory && tier[kind][i] == PST_PLACEMENT_CPU)
                return false;
        }
    }
    return used[PST_PLACEMENT_CPU] <= x->p.room[PST_PLACEMENT_CPU] &&
           used[PST_PLACEMENT_GPU] <= x->p.room[PST_PLACEMENT_GPU];
}

/* Transactions a batch from the SSD and from CPU memory, counted without the room. */
static void count(const struct instance *x, uint8_t *const tier[PST_PLACEMENT_KINDS], double *ssd,
                  double *cpu)
{
    *ssd = *cpu = 0;
    const struct pst_placement_queue *lists = &x->p.queue[0];
    *(x->p.lists_in_memory ? cpu : ssd) += x->p.lists_in_memory ? lists->left_cpu : lists->left_home;
    for (int kind = 0; kind < PST_PLACEMENT_KINDS; kind++) {
        for (int64_t i = 0; i < x->p.queue[kind].chunks; i++) {
            const bool memory = kind == 0 && x->p.lists_in_memory;
            if (tier[kind][i] == PST_PLACEMENT_CPU || (tier[kind][i] == PST_PLACEMENT_HOME && memory))
                *cpu += x->cpu[kind][i];
            else if (tier[kind][i] == PST_PLACEMENT_HOME)
                *ssd += x->home[kind][i];
        }
    }
    *ssd /= (double)x->p.batches;
    *cpu /= (double)x->p.batches;
}

static double seconds(const struct instance *x, double ssd, double cpu)
{
    const struct pst_placement_machine *m = &x->machine;
    return fmax(fmax(ssd / m->ssd_per_s + m->lookup_s, (ssd + cpu) / m->pcie_per_s), m->train_s);
}

struct best {
    double transactions, seconds;
};

/* Tries all placements. */
static struct best brute_force(const struct instance *x)
{
    uint8_t lists[CHUNKS], rows[CHUNKS];
    uint8_t *const tier[] = {lists, rows};
    const int64_t n = x->p.queue[0].chunks + x->p.queue[1].chunks;
    int64_t all = 1;
    for (int64_t i = 0; i < n; i++)
        all *= PST_PLACEMENT_TIERS;
    struct best best = {INFINITY, INFINITY};
    for (int64_t code = 0; code < all; code++) {
        int64_t rest = code;
        for (int64_t i = 0; i < n; i++, rest /= PST_PLACEMENT_TIERS)
            *(i < x->p.queue[0].chunks ? &lists[i] : &rows[i - x->p.queue[0].chunks]) =
                (uint8_t)(rest % PST_PLACEMENT_TIERS);
        double ssd, cpu;
        if (!fits(x, tier))
            continue;
        count(x, tier, &ssd, &cpu);
        best.transactions = fmin(best.transactions, ssd + cpu);
        best.seconds = fmin(best.seconds, seconds(x, ssd, cpu));
    }
    return best;
}

static void solve(const struct instance *x, enum pst_placement_policy policy,
                  enum pst_placement_objective objective, struct pst_placement_plan *plan)
{
    assert_int_equal(pst_placement_solve(&x->p, ask_for(policy, objective, x), plan), PST_OK);
    assert_true(fits(x, plan->tier));
    double ssd, cpu;
    count(x, plan->tier, &ssd, &cpu);
    assert_near(plan->ssd[0] + plan->ssd[1], ssd);
    assert_near(plan->cpu[0] + plan->cpu[1], cpu);
    assert_near(plan->batch_s, seconds(x, ssd, cpu));
    const double value = objective == PST_PLACEMENT_TIME ? plan->batch_s : ssd + cpu;
    assert_near(plan->value, value);
}

static void joint_transactions_are_the_least(void **unused)
{
    (void)unused;
    struct instance x;
    for (int i = 0; i < INSTANCES; i++) {
        draw(&x);
        struct pst_placement_plan plan;
        solve(&x, PST_PLACEMENT_JOINT, PST_PLACEMENT_TRANSACTIONS, &plan);
        const double least = brute_force(&x).transactions;
        assert_near(plan.value, least);
        assert_near(plan.bound, least);
        pst_placement_plan_release(&plan);
    }
}

static void joint_time_is_the_least(void **unused)
{
    (void)unused;
    struct instance x;
    double worst = 0;
    for (int i = 0; i < INSTANCES; i++) {
        draw(&x);
        struct pst_placement_plan plan;
        solve(&x, PST_PLACEMENT_JOINT, PST_PLACEMENT_TIME, &plan);
        const double least = brute_force(&x).seconds;
        assert_true(plan.bound <= least * (1 + 1e-9) + 1e-12);
        assert_true(plan.value <= least * 1.01);
        worst = fmax(worst, least > 0 ? plan.value / least - 1 : 0);
        pst_placement_plan_release(&plan);
    }
    print_message("joint time: at most %.4f %% above the least\n", worst * 100);
}

/* The largest sum of at most `room` of the values at positions that are free. */
static double best_sum(const double *values, const bool *is_free, int64_t n, int64_t room)
{
    double best = 0;
    for (unsigned set = 0; set < 1u << n; set++) {
        double sum = 0;
        int64_t size = 0;
        bool valid = true;
        for (int64_t i = 0; i < n; i++) {
            if (set >> i & 1) {
                valid = valid && is_free[i];
                sum += values[i];
                size++;
            }
        }
        if (valid && size <= room && sum > best)
            best = sum;
    }
    return best;
}

static void check_paper(const struct instance *x, const struct pst_placement_plan *plan)
{
    double cpu[CHUNKS], home[CHUNKS], gpu_sum = 0, cpu_sum = 0;
    bool any[CHUNKS], left[CHUNKS];
    int64_t n = 0;
    for (int kind = 0; kind < PST_PLACEMENT_KINDS; kind++) {
        for (int64_t i = 0; i < x->p.queue[kind].chunks; i++, n++) {
            const uint8_t tier = plan->tier[kind][i];
            cpu[n] = x->cpu[kind][i];
            home[n] = x->home[kind][i];
            any[n] = true;
            left[n] = tier != PST_PLACEMENT_GPU && !(kind == 0 && x->p.lists_in_memory);
            gpu_sum += tier == PST_PLACEMENT_GPU ? cpu[n] : 0;
            cpu_sum += tier == PST_PLACEMENT_CPU ? home[n] : 0;
        }
    }
    const double gpu_best = best_sum(cpu, any, n, x->p.room[PST_PLACEMENT_GPU]);
    const double cpu_best = best_sum(home, left, n, x->p.room[PST_PLACEMENT_CPU]);
    assert_near(gpu_sum, gpu_best);
    assert_near(cpu_sum, cpu_best);
}

static void paper_is_its_dynamic_programme(void **unused)
{
    (void)unused;
    struct instance x;
    for (int i = 0; i < INSTANCES; i++) {
        draw(&x);
        struct pst_placement_plan plan;
        solve(&x, PST_PLACEMENT_PAPER_DP, PST_PLACEMENT_TRANSACTIONS, &plan);
        check_paper(&x, &plan);
        pst_placement_plan_release(&plan);
    }
}

static void joint_is_never_worse(void **unused)
{
    (void)unused;
    struct instance x;
    for (int i = 0; i < INSTANCES / 4; i++) {
        draw(&x);
        for (int objective = 0; objective < 2; objective++) {
            struct pst_placement_plan joint, other;
            solve(&x, PST_PLACEMENT_JOINT, (enum pst_placement_objective)objective, &joint);
            for (int policy = 0; policy < PST_PLACEMENT_JOINT; policy++) {
                solve(&x, (enum pst_placement_policy)policy, (enum pst_placement_objective)objective, &other);
                assert_true(joint.value <= other.value * (1 + 1e-12));
                pst_placement_plan_release(&other);
            }
            pst_placement_plan_release(&joint);
        }
    }
}

/* ---- many chunks ---------------------------------------------------------------------------------- */

struct large {
    struct pst_placement p;
    double *values;
};

static void draw_large(struct large *x, int64_t n, bool equal)
{
    *x = (struct large){.values = calloc((size_t)n * 6, sizeof *x->values)};
    assert_non_null(x->values);
    x->p.batches = 1;
    x->p.room[PST_PLACEMENT_GPU] = n / 5;
    x->p.room[PST_PLACEMENT_CPU] = n / 3;
    for (int kind = 0; kind < PST_PLACEMENT_KINDS; kind++) {
        struct pst_placement_queue *q = &x->p.queue[kind];
        q->chunks = n;
        q->heat = x->values + (size_t)(3 * kind) * (size_t)n;
        q->cpu = q->heat + n;
        q->home = q->cpu + n;
        for (int64_t i = 0; i < n; i++) {
            q->cpu[i] = equal ? 3 - kind : 1e6 / (double)(i + 10) * (0.9 + 0.2 * uniform());
            q->home[i] = q->cpu[i] * (kind == 0 ? 6.5 : 1);
        }
    }
}

/* The gap to the bound of the fractional problem is small where chunks are many, whether they differ or not.
 */
static void gap_is_small(void **unused)
{
    (void)unused;
    const int64_t sizes[] = {30, 300, 3000, 30000};
    for (int size = 0; size < 4; size++) {
        for (int round = 0; round < 8; round++) {
            struct large x;
            draw_large(&x, sizes[size], round % 4 == 3);
            const struct pst_placement_machine machine = {.ssd_per_s = 1, .pcie_per_s = 1 + round / 2 * 0.8};
            struct pst_placement_plan plan;
            const struct pst_placement_ask ask = {
                .policy = PST_PLACEMENT_JOINT, .objective = PST_PLACEMENT_TIME, .machine = &machine};
            assert_int_equal(pst_placement_solve(&x.p, &ask, &plan), PST_OK);
            assert_true(plan.value >= plan.bound * (1 - 1e-9));
            if (plan.value > plan.bound * (size == 0 ? 1.01 : 1.001))
                fail_msg("%lld chunks, round %d: %g, bound %g", (long long)sizes[size], round, plan.value,
                         plan.bound);
            pst_placement_plan_release(&plan);
            free(x.values);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joint_transactions_are_the_least),
        cmocka_unit_test(joint_time_is_the_least),
        cmocka_unit_test(paper_is_its_dynamic_programme),
        cmocka_unit_test(joint_is_never_worse),
        cmocka_unit_test(gap_is_small),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
