/* Events that three processes share: one makes them, another records them, and a third one waits. In a run,
 * these are the memory host and two stages. This program starts itself for each of them. Each does what it
 * reads, a line at a time, and answers. The program itself opens no GPU, because it forks.
 *
 * PENSTOCK_TWIN=cuda runs it on a real GPU, bare or, with CUDA_MPS_PIPE_DIRECTORY, under MPS. Otherwise it
 * runs on virtual GPUs (kernels/cuda/host). */
#include "kernels/twin.h"

#include "common/ipc/gpus.h"
#include "common/util/clock.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum {
    SLOTS = 4,
    SKIPPED = 77,
    MEMORY_BYTES = 2 << 20, /* CUDA shares memory in such pieces */
    LINE_MAX_BYTES = 1024,
    PATIENCE_S = 30, /* for the other process */
    TURNS_REAL = 10000,
    TURNS_VIRTUAL = 200,
    DELAY_BYTES_REAL = 256 << 20,
    DELAY_FILLS_REAL = 600, /* with such memory at 3 TB/s: 50 ms */
    DELAY_BYTES_VIRTUAL = 4096,
    DELAY_FILLS_VIRTUAL = 3,
};
#define KILLED_WAIT_S "1"   /* for an event whose recorder was killed */
#define KILLED_SLACK_S 10.0 /* until the wait with this limit has ended, on a busy machine */

static bool real(void)
{
    const char *wanted = getenv("PENSTOCK_TWIN");
    return wanted && strcmp(wanted, "cuda") == 0;
}

struct page { /* which turns were recorded and read; all processes map it */
    uint32_t told, answered;
};

/* ---- each of the three --------------------------------------------------------------------------- */

struct party {
    const struct pst_twin *cuda;
    const struct pst_gpus *gpus;
    struct pst_queue *queue;
    struct page *page;
    bool maker;
    int64_t *memory;        /* a value for each slot, in the maker's memory */
    int64_t *values, *seen; /* pinned: what is written to each slot, and what was read */
    void *delay, *event[SLOTS];
};

static char why[PST_TWIN_WHY_BYTES];

/* Ends the process; the director then reads an empty answer. */
static void must(pst_rc rc, const char *what)
{
    if (rc == PST_OK)
        return;
    (void)fprintf(stderr, "# test_events: %s: error %d: %s\n", what, (int)rc, why);
    exit(1);
}

/* "ready", or why there is no GPU. */
static void begin(struct party *p)
{
    const struct pst_queue_options options = {.most = 1000, .columns = 10};
    p->cuda = pst_twin_open(NULL, why);
    if (!p->cuda || pst_gpus_open(&p->gpus) != PST_OK ||
        p->cuda->queue_new(&options, &p->queue, why) != PST_OK) {
        printf("no GPU: %s\n", why);
        return;
    }
    const size_t bytes = SLOTS * sizeof(int64_t);
    must(p->cuda->alloc(0, PST_TWIN_MEMORY_PINNED, bytes, (void **)&p->values, why), "pinned memory");
    must(p->cuda->alloc(0, PST_TWIN_MEMORY_PINNED, bytes, (void **)&p->seen, why), "pinned memory");
    printf("ready\n");
}

/* Answers with the handles of the memory and of each event. */
static void make(struct party *p)
{
    struct pst_ipc handle;
    char text[PST_IPC_TEXT_BYTES];
    p->maker = true;
    must(p->gpus->alloc(0, MEMORY_BYTES, (void **)&p->memory, why), "memory");
    must(p->cuda->fill(p->queue, p->memory, 0, MEMORY_BYTES), "fill");
    must(p->cuda->wait(p->queue, why), "fill");
    must(p->gpus->share(0, p->memory, &handle, why), "a handle of memory");
    pst_ipc_text(&handle, text);
    printf("%s", text);
    for (int i = 0; i < SLOTS; i++) {
        must(p->gpus->event_new(0, true, &p->event[i], why), "event");
        must(p->gpus->event_share(0, p->event[i], &handle, why), "a handle of an event");
        pst_ipc_text(&handle, text);
        printf(" %s", text);
    }
    printf("\n");
}

static void join(struct party *p, char *handles)
{
    struct pst_ipc handle;
    char *rest = NULL;
    if (!pst_ipc_parse(strtok_r(handles, " ", &rest), &handle))
        must(PST_E_ARG, "a handle of memory");
    must(p->gpus->open(0, &handle, (void **)&p->memory, why), "memory of another process");
    for (int i = 0; i < SLOTS; i++) {
        if (!pst_ipc_parse(strtok_r(NULL, " ", &rest), &handle))
            must(PST_E_ARG, "a handle of an event");
        must(p->gpus->event_open(0, &handle, &p->event[i], why), "an event of another process");
    }
    printf("joined\n");
}

/* Work that takes a while on a GPU. A virtual one does nothing until somebody waits for it. */
static void put_delay(struct party *p)
{
    const size_t bytes = real() ? DELAY_BYTES_REAL : DELAY_BYTES_VIRTUAL;
    const int fills = real() ? DELAY_FILLS_REAL : DELAY_FILLS_VIRTUAL;
    if (!p->delay)
        must(p->cuda->alloc(0, PST_TWIN_MEMORY_DEVICE, bytes, &p->delay, why), "memory");
    for (int i = 0; i < fills; i++)
        must(p->cuda->fill(p->queue, p->delay, i, bytes), "fill");
}

/* Puts a write of the slot on the queue, and a record of its event behind it. */
static void put(struct party *p, int slot, int64_t value)
{
    p->values[slot] = value;
    must(p->cuda->copy(p->queue, p->memory + slot, p->values + slot, sizeof *p->values), "copy");
    must(p->gpus->event_record(0, p->event[slot], p->cuda->stream(p->queue), why), "record");
}

static int64_t look(struct party *p, int slot)
{
    must(p->cuda->copy(p->queue, p->seen + slot, p->memory + slot, sizeof *p->seen), "copy");
    must(p->cuda->wait(p->queue, why), "wait for the queue");
    return p->seen[slot];
}

/* Reads a slot behind a wait for its event on the queue. */
static int64_t take(struct party *p, int slot)
{
    must(p->gpus->event_wait(0, p->event[slot], p->cuda->stream(p->queue), false, why), "wait");
    return look(p, slot);
}

static void await(const uint32_t *at, uint32_t turn)
{
    const double end = pst_clock_s() + PATIENCE_S;
    while (__atomic_load_n(at, __ATOMIC_ACQUIRE) < turn) {
        if (pst_clock_s() > end)
            must(PST_E_TIMEOUT, "the other process is silent");
        (void)usleep(real() ? 0 : 20);
    }
}

/* Writes each slot again as soon as its last value was read. */
static void put_turns(struct party *p, uint32_t turns)
{
    for (uint32_t turn = 1; turn <= turns; turn++) {
        await(&p->page->answered, turn < SLOTS ? 0 : turn - SLOTS);
        put(p, (int)(turn % SLOTS), turn);
        __atomic_store_n(&p->page->told, turn, __ATOMIC_RELEASE);
    }
    printf("%u\n", turns);
}

/* Answers with the number of turns that were read rightly. */
static void take_turns(struct party *p, uint32_t turns)
{
    uint32_t right = 0;
    for (uint32_t turn = 1; turn <= turns; turn++) {
        await(&p->page->told, turn);
        right += take(p, (int)(turn % SLOTS)) == (int64_t)turn;
        __atomic_store_n(&p->page->answered, turn, __ATOMIC_RELEASE);
    }
    printf("%u\n", right);
}

/* The host waits for an event, for at most so long. */
static void sleep_for(struct party *p, int slot, const char *limit_s)
{
    (void)setenv("PENSTOCK_GPU_WAIT_S", limit_s, 1);
    const pst_rc rc = p->gpus->event_wait(0, p->event[slot], NULL, true, why);
    (void)unsetenv("PENSTOCK_GPU_WAIT_S");
    printf("%s\n", rc == PST_OK ? "passed" : rc == PST_E_TIMEOUT ? "timeout" : why);
}

/* Closes what others made, or frees what it made, which nobody else has open then. */
static void leave(struct party *p)
{
    must(p->cuda->wait(p->queue, why), "wait for the queue");
    for (int i = 0; i < SLOTS; i++)
        must(p->gpus->event_free(0, p->event[i], why), "event");
    must(p->maker ? p->gpus->release(0, p->memory, why) : p->gpus->close(0, p->memory, why), "memory");
    if (p->delay)
        p->cuda->release(PST_TWIN_MEMORY_DEVICE, p->delay);
    p->cuda->release(PST_TWIN_MEMORY_PINNED, p->values);
    p->cuda->release(PST_TWIN_MEMORY_PINNED, p->seen);
    p->cuda->queue_free(p->queue);
    printf("left\n");
}

static int obey(int page)
{
    struct party p = {0};
    char line[LINE_MAX_BYTES], word[16];
    int slot = 0, used = 0;
    p.page = mmap(NULL, sizeof *p.page, PROT_READ | PROT_WRITE, MAP_SHARED, page, 0);
    while (p.page != MAP_FAILED && fgets(line, sizeof line, stdin) &&
           sscanf(line, "%15s %n", word, &used) == 1) {
        char *rest = line + used;
        rest[strcspn(rest, "\n")] = '\0';
        char *more = rest + strcspn(rest, " ");
        slot = atoi(rest) % SLOTS;
        if (strcmp(word, "begin") == 0)
            begin(&p);
        else if (strcmp(word, "make") == 0)
            make(&p);
        else if (strcmp(word, "join") == 0)
            join(&p, rest);
        else if (strcmp(word, "delay") == 0)
            put_delay(&p), printf("put\n");
        else if (strcmp(word, "put") == 0)
            put(&p, slot, atoi(more)), printf("put\n");
        else if (strcmp(word, "look") == 0)
            printf("%lld\n", (long long)look(&p, slot));
        else if (strcmp(word, "take") == 0)
            printf("%lld\n", (long long)take(&p, slot));
        else if (strcmp(word, "sleep") == 0)
            sleep_for(&p, slot, more + 1);
        else if (strcmp(word, "put-turns") == 0)
            put_turns(&p, (uint32_t)atoi(rest));
        else if (strcmp(word, "take-turns") == 0)
            take_turns(&p, (uint32_t)atoi(rest));
        else
            leave(&p);
        (void)fflush(stdout);
    }
    return 0;
}

/* ---- the director -------------------------------------------------------------------------------- */

struct other {
    pid_t pid;
    FILE *to, *from;
};
static struct other maker, recorder, waiter, heir; /* heir: records when the recorder is dead */
static struct other *const ALL[] = {&maker, &recorder, &waiter, &heir};
enum { PARTIES = sizeof ALL / sizeof *ALL };

static void start(struct other *o, int page)
{
    int in[2], out[2];
    char number[16];
    (void)snprintf(number, sizeof number, "%d", page);
    assert_true(pipe(in) == 0 && pipe(out) == 0);
    o->pid = fork();
    if (o->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)dup2(in[0], 0);
        (void)dup2(out[1], 1);
        for (int fd = 3; fd < 256; fd++) /* another's pipes would keep it from ending */
            if (fd != page)
                (void)close(fd);
        (void)execl("/proc/self/exe", "test_events", "obey", number, (char *)NULL);
        _exit(127);
    }
    assert_true(o->pid > 0);
    (void)close(in[0]);
    (void)close(out[1]);
    o->to = fdopen(in[1], "w");
    o->from = fdopen(out[0], "r");
    assert_true(o->to && o->from);
}

static void tell(const struct other *o, const char *line)
{
    (void)fprintf(o->to, "%s\n", line);
    (void)fflush(o->to);
}

/* "" if it has died. */
static const char *heard(const struct other *o)
{
    static char text[LINE_MAX_BYTES];
    if (!fgets(text, sizeof text, o->from))
        text[0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return text;
}

static const char *ask(const struct other *o, const char *line)
{
    tell(o, line);
    return heard(o);
}

static void end(struct other *o, int number)
{
    if (number)
        (void)kill(o->pid, number);
    (void)fclose(o->to);
    (void)fclose(o->from);
    assert_int_equal(waitpid(o->pid, NULL, 0), o->pid);
    o->pid = 0;
}

static int set_up(void **state)
{
    char line[LINE_MAX_BYTES];
    const int page = memfd_create("test-events", 0);
    (void)state;
    assert_true(page >= 0 && ftruncate(page, sizeof(struct page)) == 0);
    for (int i = 0; i < PARTIES; i++)
        start(ALL[i], page);
    (void)close(page);
    for (int i = 0; i < PARTIES; i++)
        assert_string_equal(ask(ALL[i], "begin"), "ready");
    (void)snprintf(line, sizeof line, "join %s", ask(&maker, "make"));
    for (int i = 1; i < PARTIES; i++)
        assert_string_equal(ask(ALL[i], line), "joined");
    return 0;
}

/* The maker leaves last. */
static int tear_down(void **state)
{
    (void)state;
    for (int i = PARTIES - 1; i >= 0; i--) {
        if (ALL[i]->pid == 0)
            continue;
        assert_string_equal(ask(ALL[i], "leave"), "left");
        end(ALL[i], 0);
    }
    return 0;
}

static void an_event_that_was_never_recorded_has_passed(void **state)
{
    (void)state;
    assert_string_equal(ask(&waiter, "sleep 0 5"), "passed");
    assert_string_equal(ask(&maker, "sleep 0 5"), "passed");
    assert_string_equal(ask(&waiter, "take 1"), "0");
}

/* Neither the one who recorded it nor the one who waits made the event. */
static void a_waiter_finds_what_another_recorded(void **state)
{
    (void)state;
    for (int value = 1; value <= 6; value++) {
        char line[64], expected[64];
        (void)snprintf(line, sizeof line, "put 2 %d", value);
        (void)snprintf(expected, sizeof expected, "%d", value - 1);
        assert_string_equal(ask(&recorder, "delay"), "put");
        assert_string_equal(ask(&recorder, line), "put");
        if (real()) /* 50 ms are before it */
            assert_string_equal(ask(&waiter, "sleep 2 0.0001"), "timeout");
        else /* a virtual GPU has done nothing yet */
            assert_string_equal(ask(&waiter, "look 2"), expected);
        (void)snprintf(expected, sizeof expected, "%d", value);
        if (value % 2)
            assert_string_equal(ask(&maker, "sleep 2 30"), "passed");
        assert_string_equal(ask(&waiter, "take 2"), expected);
    }
}

/* Events are recorded again and again, while other slots are on their way. */
static void slots_take_turns(void **state)
{
    (void)state;
    char line[64], expected[64];
    const int turns = real() ? TURNS_REAL : TURNS_VIRTUAL;
    (void)snprintf(expected, sizeof expected, "%d", turns);
    (void)snprintf(line, sizeof line, "put-turns %d", turns);
    tell(&recorder, line);
    (void)snprintf(line, sizeof line, "take-turns %d", turns);
    tell(&waiter, line);
    assert_string_equal(heard(&recorder), expected);
    assert_string_equal(heard(&waiter), expected);
}

/* The recorder is killed while its work is before the record. A virtual event then never comes. What a GPU's
 * does is not documented, so the wait must only end. Others go on with the maker's memory, but not under MPS:
 * a client that is killed while its kernels run can end the others (NVIDIA, MPS, "Client Early
 * Termination"). */
static void the_recorder_is_killed(void **state)
{
    (void)state;
    assert_string_equal(ask(&recorder, "put 3 7"), "put");
    assert_string_equal(ask(&waiter, "take 3"), "7");
    assert_string_equal(ask(&recorder, "delay"), "put");
    assert_string_equal(ask(&recorder, "put 3 8"), "put");
    end(&recorder, SIGKILL);
    const double since = pst_clock_s();
    char said[LINE_MAX_BYTES];
    (void)snprintf(said, sizeof said, "%s", ask(&waiter, "sleep 3 " KILLED_WAIT_S));
    print_message("# after a kill of the recorder, the wait ended with: %s\n", said);
    assert_true(pst_clock_s() - since < KILLED_SLACK_S);
    if (getenv("CUDA_MPS_PIPE_DIRECTORY")) {
        for (int i = 0; i < PARTIES; i++)
            if (ALL[i]->pid != 0)
                end(ALL[i], SIGKILL);
        return;
    }
    assert_true(strlen(said) > 0);
    assert_string_equal(ask(&heir, "put 1 9"), "put");
    assert_string_equal(ask(&waiter, "take 1"), "9");
    if (real())
        return;
    assert_string_equal(said, "timeout");
    assert_string_equal(ask(&maker, "look 3"), "7");
    assert_string_equal(ask(&heir, "put 3 10"), "put");
    assert_string_equal(ask(&waiter, "take 3"), "10");
}

/* Ends the program if there is no GPU. */
static void need_gpu(void)
{
    char said[LINE_MAX_BYTES];
    struct other first = {0};
    const int page = memfd_create("test-events", 0);
    assert_true(page >= 0 && ftruncate(page, sizeof(struct page)) == 0);
    start(&first, page);
    (void)close(page);
    (void)snprintf(said, sizeof said, "%s", ask(&first, "begin"));
    end(&first, SIGKILL);
    if (strcmp(said, "ready") == 0)
        return;
    printf("# %s%s\n", real() ? "SKIP " : "", said);
    exit(real() ? SKIPPED : 1);
}

int main(int argc, char **argv)
{
    const char *build = getenv("BUILD");
    char path[512];
    if (argc == 3 && strcmp(argv[1], "obey") == 0)
        return obey(atoi(argv[2]));
    (void)snprintf(path, sizeof path, "%s/tests/libpenstock-cuda-host.so", build ? build : "build");
    if (!real())
        (void)setenv("PENSTOCK_CUDA", path, 1);
    (void)signal(SIGPIPE, SIG_IGN);
    need_gpu();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_event_that_was_never_recorded_has_passed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_waiter_finds_what_another_recorded, set_up, tear_down),
        cmocka_unit_test_setup_teardown(slots_take_turns, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_recorder_is_killed, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
