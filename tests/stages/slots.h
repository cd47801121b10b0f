/* slots.h: how the test stages fill and read slots where they are placed: on a GPU through its own copy,
 * as kernels would, so that it needs no address that the host can use. */
#ifndef SLOTS_H
#define SLOTS_H

#include <stdlib.h>
#include <string.h>

#include "common/ipc/gpus.h"
#include "common/stage.h"

struct slots {
    const struct pst_gpus *gpus; /* NULL: on a CPU */
    int gpu;
    uint64_t *words; /* of one slot, on the host */
    uint64_t bytes;
};

static inline pst_rc slots_open(struct slots *s, const struct pst_stage *self)
{
    return pst_device_of(self, &s->gpu) == PST_DEVICE_CUDA ? pst_gpus_open(&s->gpus) : PST_OK;
}

static inline void slots_close(struct slots *s)
{
    free(s->words);
}

static inline pst_rc slots_copy(struct slots *s, void *to, const void *from, uint64_t bytes)
{
    char why[PST_GPUS_WHY_BYTES];
    pst_rc rc = s->gpus->copy(s->gpu, to, from, bytes, why);
    return rc == PST_OK ? rc : pst_fail(rc, "%s", why);
}

/* The slot's words, to be read and changed until slots_put; NULL with pst_fail. */
static inline uint64_t *slots_get(struct slots *s, struct pst_stage *self, struct pst_ref ref,
                                  uint64_t *bytes)
{
    uint64_t n;
    uint64_t *at = pst_slot(self, ref, &n);
    if (bytes)
        *bytes = n;
    if (!at || !s->gpus)
        return at;
    if (s->bytes < n) {
        free(s->words);
        s->words = malloc(n);
        s->bytes = s->words ? n : 0;
    }
    if (!s->words) {
        (void)pst_fail(PST_E_NOMEM, "no memory for a slot of %llu bytes", (unsigned long long)n);
        return NULL;
    }
    return slots_copy(s, s->words, at, n) == PST_OK ? s->words : NULL;
}

static inline pst_rc slots_put(struct slots *s, struct pst_stage *self, struct pst_ref ref)
{
    uint64_t n;
    void *at = pst_slot(self, ref, &n);
    return !at ? PST_E_STATE : s->gpus ? slots_copy(s, at, s->words, n) : PST_OK;
}

#endif
