/* fake_libcuda.c: a libcuda.so.1 for tests of what opens the driver at run time. Two devices; memory is a
 * file in FAKE_CUDA_DIR whose name is its handle, so that other processes can open it. Rules that CUDA has
 * and that are easily forgotten hold here: no call before cuInit, and no handle is opened by the process that
 * made it. FAKE_CUDA_LACKS is a list of calls that say CUDA_ERROR_NOT_SUPPORTED. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    OK,
    INVALID_VALUE = 1,
    NOT_INITIALIZED = 3,
    INVALID_CONTEXT = 201,
    ALREADY_MAPPED = 208,
    NOT_SUPPORTED = 801
};
enum { DEVICES = 2, REGIONS = 8 };

struct handle {
    char name[64];
};

static struct region {
    char *at;
    size_t bytes;
} regions[REGIONS];
static int made, initialised, current;

#define CALL(name, ...)                                                                                      \
    int name(__VA_ARGS__);                                                                                   \
    int name(__VA_ARGS__)

static int lacks(const char *call)
{
    const char *list = getenv("FAKE_CUDA_LACKS");
    return list && strstr(list, call) != NULL;
}

static int ready(const char *call)
{
    return lacks(call) ? NOT_SUPPORTED : !initialised ? NOT_INITIALIZED : OK;
}

static int with_context(const char *call)
{
    const int error = ready(call);
    return error != OK ? error : current ? OK : INVALID_CONTEXT;
}

static void path_of(const char *name, char *path, size_t bytes)
{
    const char *folder = getenv("FAKE_CUDA_DIR");
    (void)snprintf(path, bytes, "%s/%s", folder ? folder : "/nonexistent", name);
}

/* Maps a file of the folder, making it if bytes are given. */
static char *map_file(const char *name, size_t bytes)
{
    char path[512];
    path_of(name, path, sizeof path);
    const int fd = open(path, bytes ? O_RDWR | O_CREAT | O_EXCL : O_RDWR, 0600);
    if (fd < 0)
        return NULL;
    if (bytes && ftruncate(fd, (off_t)bytes) != 0) {
        (void)close(fd);
        return NULL;
    }
    const off_t size = lseek(fd, 0, SEEK_END);
    char *at = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)close(fd);
    return at == MAP_FAILED ? NULL : at;
}

CALL(cuInit, unsigned flags)
{
    (void)flags;
    if (lacks("cuInit"))
        return NOT_SUPPORTED;
    initialised = 1;
    return OK;
}

CALL(cuDriverGetVersion, int *version)
{
    *version = 13020;
    return OK;
}

CALL(cuDeviceGetCount, int *count)
{
    *count = lacks("devices") ? 0 : DEVICES;
    return ready("cuDeviceGetCount");
}

CALL(cuDeviceGet, int *device, int ordinal)
{
    *device = ordinal;
    return ordinal < DEVICES ? ready("cuDeviceGet,") : INVALID_VALUE;
}

CALL(cuDeviceGetName, char *name, int bytes, int device)
{
    (void)snprintf(name, (size_t)bytes, "Fake GPU %d", device);
    return ready("cuDeviceGetName");
}

CALL(cuDeviceTotalMem_v2, size_t *bytes, int device)
{
    (void)device;
    *bytes = (size_t)8 << 30;
    return ready("cuDeviceTotalMem_v2");
}

CALL(cuDeviceGetAttribute, int *value, int attribute, int device)
{
    (void)device;
    *value = attribute == 75 ? 9 : attribute == 76 ? 0 : 132;
    if ((attribute == 91 && lacks("one address")) || (attribute == 124 && lacks("dma-buf")))
        *value = 0;
    return ready("cuDeviceGetAttribute");
}

CALL(cuDeviceCanAccessPeer, int *can, int device, int peer)
{
    *can = device != peer;
    return ready("cuDeviceCanAccessPeer");
}

CALL(cuDevicePrimaryCtxRetain, void **context, int device)
{
    *context = &regions[device];
    return ready("cuDevicePrimaryCtxRetain");
}

CALL(cuCtxSetCurrent, void *context)
{
    current = context != NULL;
    return ready("cuCtxSetCurrent");
}

CALL(cuMemAlloc_v2, unsigned long long *at, size_t bytes)
{
    const int error = with_context("cuMemAlloc_v2");
    char name[64];
    if (error != OK || made == REGIONS)
        return error != OK ? error : INVALID_VALUE;
    (void)snprintf(name, sizeof name, "memory-%d-%d", (int)getpid(), made);
    regions[made] = (struct region){map_file(name, bytes), bytes};
    *at = (unsigned long long)(size_t)regions[made++].at;
    return *at ? OK : INVALID_VALUE;
}

CALL(cuMemsetD8_v2, unsigned long long at, unsigned char byte, size_t bytes)
{
    memset((void *)(size_t)at, byte, bytes);
    return with_context("cuMemsetD8_v2");
}

CALL(cuMemcpyDtoH_v2, void *to, unsigned long long from, size_t bytes)
{
    memcpy(to, (void *)(size_t)from, bytes);
    if (lacks("true bytes"))
        memset(to, 0, bytes);
    return with_context("cuMemcpyDtoH_v2");
}

CALL(cuMemHostRegister_v2, void *at, size_t bytes, unsigned flags)
{
    if (flags & 4 && lacks("io memory"))
        return NOT_SUPPORTED;
    return at && bytes ? with_context("cuMemHostRegister_v2") : INVALID_VALUE;
}

CALL(cuIpcGetMemHandle, struct handle *handle, unsigned long long at)
{
    for (int i = 0; i < made; i++) {
        if (regions[i].at == (char *)(size_t)at) {
            (void)snprintf(handle->name, sizeof handle->name, "memory-%d-%d", (int)getpid(), i);
            return with_context("cuIpcGetMemHandle");
        }
    }
    return INVALID_VALUE;
}

static int by_me(const struct handle *handle)
{
    int pid = 0;
    const char *dash = memchr(handle->name, '-', sizeof handle->name);
    return dash && sscanf(dash + 1, "%d", &pid) == 1 && pid == (int)getpid();
}

CALL(cuIpcOpenMemHandle_v2, unsigned long long *at, struct handle handle, unsigned flags)
{
    const int error = with_context("cuIpcOpenMemHandle_v2");
    if (error != OK || flags != 1 || by_me(&handle))
        return error != OK ? error : INVALID_VALUE;
    *at = (unsigned long long)(size_t)map_file(handle.name, 0);
    return *at ? OK : INVALID_VALUE;
}

CALL(cuIpcCloseMemHandle, unsigned long long at)
{
    (void)at;
    return with_context("cuIpcCloseMemHandle");
}

CALL(cuEventCreate, void **event, unsigned flags)
{
    *event = &made;
    return flags == 6 ? with_context("cuEventCreate") : INVALID_VALUE;
}

CALL(cuEventRecord, void *event, void *stream)
{
    (void)stream;
    return event ? with_context("cuEventRecord") : INVALID_VALUE;
}

CALL(cuEventSynchronize, void *event)
{
    if (lacks("an end"))
        (void)pause();
    return event ? with_context("cuEventSynchronize") : INVALID_VALUE;
}

CALL(cuIpcGetEventHandle, struct handle *handle, void *event)
{
    (void)snprintf(handle->name, sizeof handle->name, "event-%d", (int)getpid());
    return event ? with_context("cuIpcGetEventHandle") : INVALID_VALUE;
}

CALL(cuIpcOpenEventHandle, void **event, struct handle handle)
{
    if (lacks("life"))
        abort();
    *event = &made;
    return by_me(&handle) ? INVALID_VALUE : with_context("cuIpcOpenEventHandle");
}

CALL(cuGetErrorName, int error, const char **name)
{
    *name = error == NOT_SUPPORTED   ? "CUDA_ERROR_NOT_SUPPORTED"
            : error == INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE"
                                     : "CUDA_ERROR";
    return OK;
}
