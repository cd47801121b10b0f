/* blocks.c: the memory of the blocks, on the host or on a GPU. A GPU has the rows of all blocks in one table,
 * and their states in another, so that kernels find a row by its number. A partition in a file has both, one
 * after the other. */
#include "stages/lib/vectors/vectors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"

/* Bytes of a block's rows and of their states. */
static void parts_of(const struct pst_vectors *v, uint64_t bytes[2])
{
    bytes[0] = (uint64_t)(v->block_rows * v->dim) * sizeof(pst_real);
    bytes[1] = (uint64_t)(v->block_rows * v->state_dim) * sizeof(pst_real);
}

static pst_rc open_on_gpu(struct pst_vectors *v)
{
    uint64_t bytes[2];
    void *memory, *image = NULL;
    parts_of(v, bytes);
    pst_rc rc =
        pst_device_take(v->device, PST_TWIN_MEMORY_DEVICE, (uint64_t)v->blocks * (bytes[0] + bytes[1]),
                        "the embeddings (lower `dim` or `buffer`, or raise `partitions`)", &memory);
    if (rc == PST_OK)
        rc = pst_device_take(v->device, PST_TWIN_MEMORY_PINNED, v->block_bytes, "a partition", &image);
    v->memory = memory;
    v->image = image;
    return rc;
}

pst_rc pst_vectors_open_blocks(struct pst_vectors *v)
{
    v->imaged = -1;
    if (v->device)
        return open_on_gpu(v);
    v->memory = aligned_alloc(PST_PAGE, pst_align_up((uint64_t)v->blocks * v->block_bytes + 1, PST_PAGE));
    return v->memory
               ? PST_OK
               : pst_fail(
                     PST_E_NOMEM,
                     "out of memory: cannot allocate the embeddings of %" PRId64 " vertices, %" PRId64
                     " floats each with optimizer state; lower `dim` or `buffer`, raise `partitions`, or "
                     "choose the optimizer adagrad-row",
                     v->blocks * v->block_rows, v->dim + v->state_dim);
}

void pst_vectors_close_blocks(struct pst_vectors *v)
{
    if (v->device) {
        pst_device_give(v->device, v->memory);
        pst_device_give(v->device, v->image);
    } else {
        free(v->memory);
    }
}

/* ---- copies ---------------------------------------------------------------------------------------- */

/* Copies bytes `at` and so on of a block's image to the GPU, or back. Behind both parts there is nothing. */
static pst_rc copy(const struct pst_vectors *v, int block, uint64_t at, char *here, uint64_t bytes, bool back)
{
    char *there[2] = {(char *)pst_vectors_rows(v, block), (char *)pst_vectors_state(v, block)};
    uint64_t part[2];
    parts_of(v, part);
    for (int i = 0; i < 2; i++) {
        const uint64_t n = at >= part[i] ? 0 : bytes < part[i] - at ? bytes : part[i] - at;
        char *on_gpu = there[i] + (n > 0 ? at : 0);
        if (n > 0)
            (void)v->device->twin->copy(v->device->q, back ? here : on_gpu, back ? on_gpu : here, n);
        at = at + n >= part[i] ? at + n - part[i] : 0;
        here += n;
        bytes -= n;
    }
    if (back)
        memset(here, 0, bytes);
    return pst_device_wait(v->device);
}

pst_rc pst_vectors_put(struct pst_vectors *v, int block, uint64_t at, const char *from, uint64_t bytes)
{
    if (v->device)
        return copy(v, block, at, (char *)(uintptr_t)from, bytes, false);
    memcpy((char *)pst_vectors_rows(v, block) + at, from, bytes);
    return PST_OK;
}

pst_rc pst_vectors_get(const struct pst_vectors *v, int block, uint64_t at, char *to, uint64_t bytes)
{
    if (v->device)
        return copy(v, block, at, to, bytes, true);
    memcpy(to, (char *)pst_vectors_rows(v, block) + at, bytes);
    return PST_OK;
}

char *pst_vectors_image(struct pst_vectors *v, int block)
{
    v->imaged = -1;
    return v->device ? v->image : (char *)pst_vectors_rows(v, block);
}

pst_rc pst_vectors_put_image(struct pst_vectors *v, int block, int partition)
{
    v->imaged = partition;
    return v->device ? pst_vectors_put(v, block, 0, v->image, v->block_bytes) : PST_OK;
}
