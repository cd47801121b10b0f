/* Virtual GPUs between processes (kernels/cuda/host/virtual.h): the rules of CUDA's handles, kept and told.
 * The other process is this program again, which does what it reads, a line at a time, and says how it went.
 */
#include "kernels/cuda/queue.cuh"

#include <csignal>
#include <csetjmp>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
extern "C" {
#include <cmocka.h>
}

namespace
{
enum { BYTES = 3 * 4096 + 40, WORDS = BYTES / 4 };

/* ---- the other process --------------------------------------------------------------------------- */

template <class H> std::string text_of(const H &handle)
{
    char pair[3];
    std::string text;
    for (const char c : handle.reserved) {
        (void)snprintf(pair, sizeof pair, "%02x", (unsigned char)c);
        text += pair;
    }
    return text;
}

template <class H> H handle_of(const char *text)
{
    H handle;
    for (size_t i = 0; i < sizeof handle.reserved; i++) {
        const char pair[3] = {text[2 * i], text[2 * i + 1], '\0'};
        handle.reserved[i] = (char)strtol(pair, nullptr, 16);
    }
    return handle;
}

struct session {
    void *memory, *again;
    cudaEvent_t event;
    cudaIpcMemHandle_t handle;
};

std::string answer(session *s, const std::string &word, const char *rest)
{
    int value = atoi(rest);
    cudaError_t error = cudaSuccess;
    if (word == "device") {
        error = cudaSetDevice(value);
    } else if (word == "open") {
        s->handle = handle_of<cudaIpcMemHandle_t>(rest);
        error = cudaIpcOpenMemHandle(&s->memory, s->handle, cudaIpcMemLazyEnablePeerAccess);
    } else if (word == "reopen") {
        error = cudaIpcOpenMemHandle(&s->again, s->handle, cudaIpcMemLazyEnablePeerAccess);
        if (error == cudaSuccess)
            return s->again == s->memory ? "the same" : "another";
    } else if (word == "close") {
        error = cudaIpcCloseMemHandle(s->memory);
    } else if (word == "read") {
        error =
            cudaMemcpy(&value, static_cast<int *>(s->memory) + WORDS - 1, sizeof value, cudaMemcpyDefault);
        if (error == cudaSuccess)
            return std::to_string(value);
    } else if (word == "write") {
        error =
            cudaMemcpy(static_cast<int *>(s->memory) + WORDS - 1, &value, sizeof value, cudaMemcpyDefault);
    } else if (word == "take") {
        error = cudaMalloc(&s->memory, BYTES);
        if (error == cudaSuccess)
            error = cudaIpcGetMemHandle(&s->handle, s->memory);
        if (error == cudaSuccess)
            return text_of(s->handle);
    } else if (word == "free") {
        error = cudaFree(s->memory);
    } else if (word == "touch") {
        return std::to_string(static_cast<volatile int *>(s->memory)[WORDS - 1]);
    } else if (word == "event") {
        error = cudaIpcOpenEventHandle(&s->event, handle_of<cudaIpcEventHandle_t>(rest));
    } else if (word == "wait") {
        error = cudaStreamWaitEvent(nullptr, s->event, 0);
    } else if (word == "sleep") {
        error = cudaEventSynchronize(s->event);
    }
    return cudaGetErrorName(error);
}

int obey()
{
    session s = {};
    char line[512];
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        const size_t n = strcspn(line, " ");
        puts(answer(&s, std::string(line, n), line[n] ? line + n + 1 : "").c_str());
        fflush(stdout);
    }
    return 0;
}

struct other {
    pid_t pid;
    FILE *to, *from, *errors;

    other()
    {
        int in[2], out[2];
        errors = tmpfile();
        assert_true(errors && pipe(in) == 0 && pipe(out) == 0);
        pid = fork();
        if (pid == 0) {
            (void)dup2(in[0], 0);
            (void)dup2(out[1], 1);
            (void)dup2(fileno(errors), 2);
            for (const int fd : {in[0], in[1], out[0], out[1]})
                (void)close(fd);
            (void)execl("/proc/self/exe", "test_virtual_gpus", "obey", (char *)nullptr);
            _exit(127);
        }
        assert_true(pid > 0);
        (void)close(in[0]);
        (void)close(out[1]);
        to = fdopen(in[1], "w");
        from = fdopen(out[0], "r");
    }

    /* "" if it has died. */
    std::string ask(const std::string &line) const
    {
        char text[512] = "";
        fprintf(to, "%s\n", line.c_str());
        fflush(to);
        if (!fgets(text, sizeof text, from))
            return "";
        text[strcspn(text, "\n")] = '\0';
        return text;
    }

    /* What it wrote to standard error, once it has ended. */
    std::string end(int number)
    {
        char text[65536];
        if (number)
            (void)kill(pid, number);
        (void)fclose(to);
        (void)fclose(from);
        assert_int_equal(waitpid(pid, nullptr, 0), pid);
        rewind(errors);
        const size_t n = fread(text, 1, sizeof text, errors);
        (void)fclose(errors);
        return std::string(text, n);
    }
};

void assert_said(const std::string &said, const char *expected)
{
    assert_string_equal(said.c_str(), expected);
}

int *take(cudaIpcMemHandle_t *handle)
{
    void *at = nullptr;
    assert_int_equal(cudaMalloc(&at, BYTES), cudaSuccess);
    assert_int_equal(cudaIpcGetMemHandle(handle, at), cudaSuccess);
    return static_cast<int *>(at);
}

int last_word(const int *at)
{
    int value = 0;
    assert_int_equal(cudaMemcpy(&value, at + WORDS - 1, sizeof value, cudaMemcpyDefault), cudaSuccess);
    return value;
}

void set_last_word(int *at, int value)
{
    assert_int_equal(cudaMemcpy(at + WORDS - 1, &value, sizeof value, cudaMemcpyDefault), cudaSuccess);
}

/* ---- memory -------------------------------------------------------------------------------------- */

void test_memory_is_shared(void **)
{
    cudaIpcMemHandle_t handle;
    int *at = take(&handle);
    other o;
    set_last_word(at, 77);
    assert_said(o.ask("open " + text_of(handle)), "cudaSuccess");
    assert_said(o.ask("read"), "77");
    assert_said(o.ask("write 78"), "cudaSuccess");
    assert_int_equal(last_word(at), 78);
    assert_said(o.ask("reopen"), "the same");
    assert_said(o.ask("close"), "cudaSuccess");
    assert_said(o.ask("read"), "78"); /* opened twice, closed once */
    assert_said(o.ask("close"), "cudaSuccess");
    assert_said(o.ask("close"), "cudaErrorInvalidValue");
    assert_int_equal(cudaFree(at), cudaSuccess);
    (void)o.end(0);
}

void test_who_cannot_open(void **)
{
    cudaIpcMemHandle_t handle, wrong = {};
    int *at = take(&handle);
    void *again = nullptr;
    assert_int_equal(cudaIpcOpenMemHandle(&again, handle, cudaIpcMemLazyEnablePeerAccess),
                     cudaErrorDeviceUninitialized); /* its maker */
    assert_int_equal(cudaIpcOpenMemHandle(&again, wrong, cudaIpcMemLazyEnablePeerAccess),
                     cudaErrorInvalidValue);
    assert_int_equal(cudaIpcGetMemHandle(&wrong, at + 1), cudaErrorInvalidValue); /* not where it begins */
    other o;
    assert_said(o.ask("device 1"), "cudaSuccess");
    assert_said(o.ask("open " + text_of(handle)), "cudaErrorMapBufferObjectFailed"); /* on another device */
    assert_said(o.ask("device 2"), "cudaErrorInvalidDevice");
    assert_said(o.ask("device 0"), "cudaSuccess");
    assert_int_equal(cudaFree(at), cudaSuccess);
    assert_said(o.ask("open " + text_of(handle)), "cudaErrorInvalidResourceHandle"); /* it was freed */
    at = take(&wrong); /* in the same place or not */
    assert_said(o.ask("open " + text_of(handle)), "cudaErrorInvalidResourceHandle");
    assert_said(o.ask("open " + text_of(wrong)), "cudaSuccess");
    assert_said(o.ask("close"), "cudaSuccess");
    assert_int_equal(cudaFree(at), cudaSuccess);
    (void)o.end(0);
}

void test_peers_open_it_on_their_own(void **)
{
    cudaIpcMemHandle_t handle;
    int *at = take(&handle);
    assert_int_equal(setenv("PENSTOCK_VIRTUAL_PEERS", "1", 1), 0);
    other o;
    assert_int_equal(unsetenv("PENSTOCK_VIRTUAL_PEERS"), 0);
    assert_said(o.ask("device 1"), "cudaSuccess");
    assert_said(o.ask("open " + text_of(handle)), "cudaSuccess");
    assert_said(o.ask("write 79"), "cudaSuccess");
    assert_int_equal(last_word(at), 79);
    assert_said(o.ask("device 0"), "cudaSuccess");
    assert_said(o.ask("open " + text_of(handle)), "cudaErrorMapBufferObjectFailed"); /* on a second one */
    assert_said(o.ask("device 1"), "cudaSuccess");
    assert_said(o.ask("close"), "cudaSuccess");
    assert_int_equal(cudaFree(at), cudaSuccess);
    (void)o.end(0);
}

void test_pairs_reach_each_other(void **)
{
    int count = 0, can[4][4];
    assert_int_equal(setenv("PENSTOCK_VIRTUAL_GPUS", "4", 1), 0);
    assert_int_equal(setenv("PENSTOCK_VIRTUAL_PEERS", "0-1,3-2", 1), 0);
    assert_int_equal(cudaGetDeviceCount(&count), cudaSuccess);
    assert_int_equal(cudaSetDevice(4), cudaErrorInvalidDevice);
    assert_int_equal(cudaSetDevice(3), cudaSuccess);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 4; k++)
            assert_int_equal(cudaDeviceCanAccessPeer(&can[i][k], i, k), cudaSuccess);
    assert_int_equal(unsetenv("PENSTOCK_VIRTUAL_PEERS"), 0);
    assert_int_equal(unsetenv("PENSTOCK_VIRTUAL_GPUS"), 0);
    assert_int_equal(count, 4);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 4; k++)
            assert_int_equal(can[i][k], i != k && i / 2 == k / 2);
    assert_int_equal(cudaGetDeviceCount(&count), cudaSuccess);
    assert_int_equal(count, 2);
    assert_int_equal(cudaSetDevice(0), cudaSuccess);
}

void test_dead_after_its_owner(void **)
{
    other o, second;
    void *at = nullptr, *later = nullptr;
    const cudaIpcMemHandle_t a = handle_of<cudaIpcMemHandle_t>(o.ask("take").c_str()),
                             b = handle_of<cudaIpcMemHandle_t>(o.ask("take").c_str());
    assert_int_equal(cudaIpcOpenMemHandle(&at, a, cudaIpcMemLazyEnablePeerAccess), cudaSuccess);
    (void)o.end(SIGKILL);
    assert_int_equal(cudaIpcOpenMemHandle(&later, b, cudaIpcMemLazyEnablePeerAccess),
                     cudaErrorInvalidResourceHandle);                                /* known, and gone */
    assert_said(second.ask("open " + text_of(b)), "cudaErrorInvalidResourceHandle"); /* never seen */
    assert_int_equal(cudaIpcCloseMemHandle(at), cudaSuccess);
    (void)second.end(0);
}

/* Who frees what others have open is told, and ends: CUDA leaves open what happens then. */
void test_freed_too_early(void **)
{
    other o;
    void *at = nullptr;
    const cudaIpcMemHandle_t handle = handle_of<cudaIpcMemHandle_t>(o.ask("take").c_str());
    assert_int_equal(cudaIpcOpenMemHandle(&at, handle, cudaIpcMemLazyEnablePeerAccess), cudaSuccess);
    assert_said(o.ask("free"), "");
    assert_non_null(strstr(o.end(0).c_str(), "cudaFree of memory of cuda:0 that is still open in process"));
    assert_int_equal(cudaIpcCloseMemHandle(at), cudaSuccess);
    other closed;
    const cudaIpcMemHandle_t next = handle_of<cudaIpcMemHandle_t>(closed.ask("take").c_str());
    assert_int_equal(cudaIpcOpenMemHandle(&at, next, cudaIpcMemLazyEnablePeerAccess), cudaSuccess);
    assert_int_equal(cudaIpcCloseMemHandle(at), cudaSuccess);
    assert_said(closed.ask("free"), "cudaSuccess");
    (void)closed.end(0);
}

void test_the_host_cannot_touch_it(void **)
{
    cudaIpcMemHandle_t handle;
    int *at = take(&handle);
    other own, opened;
    (void)own.ask("take");
    assert_said(own.ask("touch"), "");
    assert_non_null(
        strstr(own.end(0).c_str(), "error: code on the host accessed device memory of a virtual GPU"));
    assert_said(opened.ask("open " + text_of(handle)), "cudaSuccess");
    assert_said(opened.ask("touch"), "");
    assert_non_null(
        strstr(opened.end(0).c_str(), "error: code on the host accessed device memory of a virtual GPU"));
    assert_int_equal(cudaFree(at), cudaSuccess); /* who had it open is dead */
}

void test_host_memory(void **)
{
    char bytes[8192];
    void *seen = nullptr;
    assert_int_equal(cudaHostRegister(bytes, 4096, cudaHostRegisterPortable), cudaSuccess);
    assert_int_equal(cudaHostRegister(bytes + 4000, 4096, 0), cudaErrorHostMemoryAlreadyRegistered);
    assert_int_equal(cudaHostGetDevicePointer(&seen, bytes + 4095, 0), cudaSuccess);
    assert_ptr_equal(seen, bytes + 4095);
    assert_int_equal(cudaHostGetDevicePointer(&seen, bytes + 4096, 0), cudaErrorInvalidValue);
    assert_int_equal(cudaHostUnregister(bytes + 1), cudaErrorHostMemoryNotRegistered);
    assert_int_equal(cudaHostUnregister(bytes), cudaSuccess);
    assert_int_equal(cudaHostUnregister(bytes), cudaErrorHostMemoryNotRegistered);
}

/* ---- events -------------------------------------------------------------------------------------- */

cudaEvent_t shared_event(cudaIpcEventHandle_t *handle)
{
    cudaEvent_t event;
    assert_int_equal(cudaEventCreateWithFlags(&event, cudaEventInterprocess | cudaEventDisableTiming),
                     cudaSuccess);
    assert_int_equal(cudaIpcGetEventHandle(handle, event), cudaSuccess);
    return event;
}

/* What one process put on a stream is there for another that waits for the event, and nobody else waits. */
void test_events_order_processes(void **)
{
    cudaIpcMemHandle_t memory;
    cudaIpcEventHandle_t handle;
    int *at = take(&memory), values[8];
    cudaEvent_t event = shared_event(&handle);
    cudaStream_t stream;
    assert_int_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    other o;
    assert_said(o.ask("open " + text_of(memory)), "cudaSuccess");
    assert_said(o.ask("event " + text_of(handle)), "cudaSuccess");
    assert_said(o.ask("sleep"), "cudaSuccess"); /* never recorded: it has passed */
    for (int i = 0; i < 8; i++) {
        values[i] = 1000 + i;
        assert_int_equal(
            cudaMemcpyAsync(at + WORDS - 1, &values[i], sizeof values[i], cudaMemcpyDefault, stream),
            cudaSuccess);
        assert_int_equal(cudaEventRecord(event, stream), cudaSuccess);
        if (i > 0) /* who does not wait finds what was there */
            assert_said(o.ask("read"), std::to_string(values[i - 1]).c_str());
        assert_said(o.ask(i % 2 ? "wait" : "sleep"), "cudaSuccess");
        assert_said(o.ask("read"), std::to_string(values[i]).c_str());
    }
    assert_int_equal(cudaEventQuery(event), cudaSuccess);
    (void)o.end(0);
    assert_int_equal(cudaEventDestroy(event), cudaSuccess);
    assert_int_equal(cudaStreamDestroy(stream), cudaSuccess);
    assert_int_equal(cudaFree(at), cudaSuccess);
}

void test_event_rules(void **)
{
    cudaIpcEventHandle_t handle;
    cudaEvent_t event, again;
    assert_int_equal(cudaEventCreateWithFlags(&event, cudaEventInterprocess), cudaErrorInvalidValue);
    assert_int_equal(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
    assert_int_equal(cudaIpcGetEventHandle(&handle, event), cudaErrorInvalidResourceHandle);
    assert_int_equal(cudaEventDestroy(event), cudaSuccess);
    event = shared_event(&handle);
    assert_int_equal(cudaIpcOpenEventHandle(&again, handle), cudaErrorDeviceUninitialized); /* its maker */
    other o;
    assert_said(o.ask("event " + text_of(handle)), "cudaSuccess");
    assert_int_equal(cudaEventDestroy(event), cudaSuccess);
    assert_said(o.ask("event " + text_of(handle)), "cudaErrorInvalidResourceHandle");
    (void)o.end(0);
}

__global__ void put(int *to, int value)
{
    *to = value;
}

/* A stream takes launches and records of its own device's. */
void test_devices_of_streams(void **)
{
    cudaStream_t stream;
    cudaEvent_t event;
    int x = 0;
    assert_int_equal(cudaSetDevice(1), cudaSuccess);
    assert_int_equal(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    assert_int_equal(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
    assert_int_equal(cudaSetDevice(0), cudaSuccess);
    pst_cu_host_launch(put, 1, 1, 0, stream, pst_cu_site{__FILE__, __LINE__}, &x, 5);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidResourceHandle);
    assert_int_equal(cudaEventRecord(event, nullptr), cudaErrorInvalidResourceHandle);
    assert_int_equal(cudaSetDevice(1), cudaSuccess);
    pst_cu_host_launch(put, 1, 1, 0, stream, pst_cu_site{__FILE__, __LINE__}, &x, 6);
    assert_int_equal(cudaStreamSynchronize(stream), cudaSuccess);
    assert_int_equal(x, 6);
    assert_int_equal(cudaEventDestroy(event), cudaSuccess);
    assert_int_equal(cudaStreamDestroy(stream), cudaSuccess);
    assert_int_equal(cudaSetDevice(0), cudaSuccess);
}
} // namespace

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "obey") == 0)
        return obey();
    (void)signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_is_shared),           cmocka_unit_test(test_who_cannot_open),
        cmocka_unit_test(test_peers_open_it_on_their_own), cmocka_unit_test(test_pairs_reach_each_other),
        cmocka_unit_test(test_dead_after_its_owner),       cmocka_unit_test(test_freed_too_early),
        cmocka_unit_test(test_the_host_cannot_touch_it),   cmocka_unit_test(test_host_memory),
        cmocka_unit_test(test_events_order_processes),     cmocka_unit_test(test_event_rules),
        cmocka_unit_test(test_devices_of_streams),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
