/* gpus.c: the table of CUDA functions, the number of GPUs, and handles as text. */
#include "common/ipc/gpus.h"

#include <dlfcn.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/util/subprocess.h"
#include "common/util/install.h"
#include "common/error.h"

#define COUNT_DEADLINE_MS 60000 /* CUDA takes seconds to start on a machine with many GPUs */
#define LIBRARY "libpenstock-cuda.so"

/* ---- the table ----------------------------------------------------------------------------------- */

static pst_rc library_path(char out[PST_PATH_MAX])
{
    const char *given = getenv("PENSTOCK_CUDA");
    Dl_info info;
    if (given)
        return snprintf(out, PST_PATH_MAX, "%s", given) < PST_PATH_MAX
                   ? PST_OK
                   : pst_fail(PST_E_LIMIT, "the path in PENSTOCK_CUDA is too long: expected at most %d bytes",
                              PST_PATH_MAX - 1);
    const char *slash =
        dladdr((const void *)pst_gpus_open, &info) && info.dli_fname ? strrchr(info.dli_fname, '/') : NULL;
    if (!slash || snprintf(out, PST_PATH_MAX, "%.*s/" LIBRARY, (int)(slash - info.dli_fname),
                           info.dli_fname) >= PST_PATH_MAX)
        return pst_fail(
            PST_E_UNSUPPORTED,
            "cannot find the directory of Penstock's libraries: set PENSTOCK_CUDA to the path of " LIBRARY);
    return PST_OK;
}

static pst_rc load(const struct pst_gpus **gpus)
{
    char path[PST_PATH_MAX];
    pst_rc rc = library_path(path);
    if (rc != PST_OK)
        return rc;
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!object)
        return pst_fail(PST_E_UNSUPPORTED, "%s", dlerror());
    pst_gpus_fn table;
    *(void **)&table = dlsym(object, PST_GPUS_SYMBOL);
    if (!table || table()->bytes != sizeof **gpus)
        return pst_fail(PST_E_UNSUPPORTED,
                        "%s was built together with another version of Penstock: build it again", path);
    *gpus = table();
    return PST_OK;
}

pst_rc pst_gpus_open(const struct pst_gpus **gpus)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static const struct pst_gpus *opened;
    (void)pthread_mutex_lock(&lock);
    pst_rc rc = opened ? PST_OK : load(&opened);
    *gpus = opened;
    (void)pthread_mutex_unlock(&lock);
    return rc;
}

/* ---- what there is ------------------------------------------------------------------------------- */

struct found {
    int gpus;
    uint32_t peers[PST_GPUS_MAX];
    char why[PST_GPUS_WHY_BYTES];
};

static void ask(struct found *found)
{
    char path[PST_PATH_MAX], text[2048];
    size_t bytes;
    pst_rc rc = pst_install_program_path("penstock-memory", path);
    if (rc == PST_OK)
        rc = pst_subprocess_read(path, "--gpus", COUNT_DEADLINE_MS, text, sizeof text, &bytes);
    json_t *answer = rc == PST_OK ? json_loadb(text, bytes, 0, NULL) : NULL;
    const int gpus = (int)json_integer_value(json_object_get(answer, "gpus"));
    const json_t *peers = json_object_get(answer, "peers");
    const char *reason = json_string_value(json_object_get(answer, "why"));
    (void)snprintf(found->why, sizeof found->why, "%.*s", PST_GPUS_WHY_BYTES - 1,
                   rc != PST_OK ? pst_error_text()
                   : reason     ? reason
                                : "");
    found->gpus = gpus < PST_GPUS_MAX ? gpus : PST_GPUS_MAX;
    for (int i = 0; i < found->gpus; i++)
        found->peers[i] = (uint32_t)json_integer_value(json_array_get(peers, (size_t)i));
    json_decref(answer);
}

static pthread_mutex_t found_lock = PTHREAD_MUTEX_INITIALIZER;
static struct found found_here = {.gpus = -1};

static const struct found *find(void)
{
    (void)pthread_mutex_lock(&found_lock);
    if (found_here.gpus < 0)
        ask(&found_here);
    (void)pthread_mutex_unlock(&found_lock);
    return &found_here;
}

void pst_gpus_assume(int gpus, const uint32_t *peers)
{
    (void)pthread_mutex_lock(&found_lock);
    found_here = (struct found){.gpus = gpus, .why = "the machine file has none"};
    memcpy(found_here.peers, peers, (size_t)gpus * sizeof *peers);
    if (gpus > 0)
        found_here.why[0] = '\0';
    (void)pthread_mutex_unlock(&found_lock);
}

int pst_gpus_count(char why[PST_GPUS_WHY_BYTES])
{
    const struct found *found = find();
    memcpy(why, found->why, sizeof found->why);
    return found->gpus;
}

bool pst_gpus_reach(int gpu, int other)
{
    const struct found *found = find();
    return gpu >= 0 && gpu < found->gpus && other >= 0 && other < found->gpus &&
           (gpu == other || (found->peers[gpu] >> other & 1) != 0);
}

int pst_gpu_number(const char *device)
{
    return strncmp(device, "cuda:", 5) == 0 ? (int)strtol(device + 5, NULL, 10) : -1;
}

/* ---- handles as text ----------------------------------------------------------------------------- */

void pst_ipc_text(const struct pst_ipc *handle, char out[PST_IPC_TEXT_BYTES])
{
    for (size_t i = 0; i < PST_IPC_BYTES; i++)
        (void)snprintf(out + 2 * i, 3, "%02x", handle->bytes[i]);
}

bool pst_ipc_parse(const char *text, struct pst_ipc *handle)
{
    if (!text || strlen(text) != PST_IPC_TEXT_BYTES - 1 ||
        strspn(text, "0123456789abcdef") != PST_IPC_TEXT_BYTES - 1)
        return false;
    for (size_t i = 0; i < PST_IPC_BYTES; i++) {
        const char pair[3] = {text[2 * i], text[2 * i + 1], '\0'};
        handle->bytes[i] = (unsigned char)strtol(pair, NULL, 16);
    }
    return true;
}
