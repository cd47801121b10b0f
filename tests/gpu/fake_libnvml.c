/* fake_libnvml.c: a libnvidia-ml.so.1 for tests of what opens NVML at run time. FAKE_NVML_GPUS GPUs (4 if it
 * is not set); GPU 2k is linked with GPU 2k + 1. FAKE_NVML_FAILS names a call that fails. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, UNKNOWN = 999, NVLINK = 2, P2P_OK = 0, P2P_NOT_SUPPORTED = 5 };

static int fails(const char *call)
{
    const char *name = getenv("FAKE_NVML_FAILS");
    return name != NULL && strcmp(name, call) == 0;
}

static unsigned gpus(void)
{
    const char *n = getenv("FAKE_NVML_GPUS");
    return n != NULL ? (unsigned)strtoul(n, NULL, 10) : 4;
}

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetName(void *device, char *name, unsigned bytes);
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory);
int nvmlDeviceGetPciInfo_v3(void *device, void *pci);
int nvmlDeviceGetP2PStatus(void *device, void *peer, int capability, int *status);

int nvmlInit_v2(void)
{
    return fails("init") ? UNKNOWN : SUCCESS;
}

int nvmlShutdown(void)
{
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = gpus();
    return SUCCESS;
}

/* A handle is the number plus 1. */
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    *device = (char *)NULL + index + 1;
    return index < gpus() ? SUCCESS : UNKNOWN;
}

int nvmlDeviceGetName(void *device, char *name, unsigned bytes)
{
    (void)snprintf(name, bytes, "Fake GPU %d", (int)((char *)device - (char *)NULL) - 1);
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory)
{
    (void)device;
    memory[0] = 1ull << 34;
    memory[1] = memory[2] = 1ull << 33;
    return fails("memory") ? UNKNOWN : SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(void *device, void *pci)
{
    (void)device;
    memset(pci, 0, 16 + 6 * 4 + 32);
    return SUCCESS;
}

int nvmlDeviceGetP2PStatus(void *device, void *peer, int capability, int *status)
{
    const long a = (char *)device - (char *)NULL - 1, b = (char *)peer - (char *)NULL - 1;
    *status = capability == NVLINK && (a ^ b) == 1 ? P2P_OK : P2P_NOT_SUPPORTED;
    return SUCCESS;
}
