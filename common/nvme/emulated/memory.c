/* memory.c: the client's memory as the controllers see it: by IO virtual address, and not at all after it is
 * unmapped. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "common/nvme/emulated/emulated_impl.h"
#include "common/error.h"

#define IOVA_FIRST 0x100000000ull
/* between mappings, so that an access beyond the end of one does not hit the next */
#define IOVA_GAP (2ull << 20)

static const struct pst_emu_mapping *find(const struct pst_emu_ssd *ssd, uint64_t iova)
{
    uint32_t low = 0, high = ssd->nmappings;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (ssd->mappings[middle].iova <= iova)
            low = middle + 1;
        else
            high = middle;
    }
    return low > 0 ? &ssd->mappings[low - 1] : NULL;
}

uint8_t *pst_emu_translate(struct pst_emu_part *part, uint64_t iova, uint64_t bytes)
{
    const struct pst_emu_mapping *m = part->hit;
    if (m == NULL || iova < m->iova || iova - m->iova >= m->bytes)
        m = find(part->ssd, iova);
    if (m == NULL || iova - m->iova > m->bytes || bytes > m->bytes - (iova - m->iova)) {
        __atomic_fetch_add(&part->ssd->stats->dma_refused, 1, __ATOMIC_RELAXED);
        __atomic_store_n(&part->ssd->stats->dma_refused_iova, iova, __ATOMIC_RELAXED);
        return NULL;
    }
    part->hit = m;
    return m->base + (iova - m->iova);
}

void *pst_emu_translate_queue(struct pst_emu_ssd *ssd, uint64_t iova, uint64_t bytes)
{
    return iova % PST_PAGE == 0 ? pst_emu_translate(pst_emu_admin_part(ssd), iova, bytes) : NULL;
}

/* ---- PRPs ----------------------------------------------------------------------------------------- */

/* The pages of a transfer after the first, one by one (section 4.1.1). */
struct list {
    uint64_t at; /* address of the next entry; 0: there is one page, `only` */
    uint64_t only;
    uint64_t entries; /* entries left */
};

static bool next_page(struct pst_emu_part *part, struct list *list, uint64_t *page)
{
    if (list->at == 0) {
        *page = list->only;
        return true;
    }
    uint64_t entry;
    for (;;) {
        const uint8_t *memory = pst_emu_translate(part, list->at, sizeof entry);
        if (memory == NULL)
            return false;
        pst_emu_copy(&entry, memory, sizeof entry);
        if (list->at % PST_PAGE != PST_PAGE - sizeof entry || list->entries == 1)
            break;
        list->at = entry; /* the last entry of a full page is the address of the next part of the list */
    }
    list->at += sizeof entry;
    list->entries--;
    *page = entry;
    return true;
}

#ifdef __SANITIZE_THREAD__
__attribute__((no_sanitize_thread)) void pst_emu_copy(void *to, const void *from, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++)
        ((volatile uint8_t *)to)[i] = ((const volatile uint8_t *)from)[i];
}
#else
void pst_emu_copy(void *to, const void *from, uint64_t bytes)
{
    memcpy(to, from, bytes);
}
#endif

bool pst_emu_walk(struct pst_emu_part *part, struct pst_emu_command *command, uint64_t bytes,
                  bool (*visit)(void *context, uint8_t *memory, uint64_t at, uint64_t bytes), void *context)
{
    const struct pst_nvme_sqe *sqe = &command->sqe;
    uint64_t iova = sqe->prp1, at = 0;
    const uint64_t pages = pst_nvme_prp_count(sqe->prp1, bytes, PST_PAGE);
    struct list list = {.at = pages > 1 ? sqe->prp2 : 0, .only = sqe->prp2, .entries = pages};
    if (sqe->prp1 % 4 != 0 || (pages > 1 && (sqe->prp2 % 8 != 0 || sqe->prp2 == 0))) {
        command->status = PST_NVME_BAD_PRP_OFFSET;
        return false;
    }
    while (at < bytes) {
        const uint64_t room = PST_PAGE - iova % PST_PAGE, left = bytes - at;
        const uint64_t n = left < room ? left : room;
        uint8_t *memory = pst_emu_translate(part, iova, n);
        if (memory == NULL) {
            command->status = PST_NVME_DATA_TRANSFER;
            return false;
        }
        if (!visit(context, memory, at, n))
            return true;
        at += n;
        if (at == bytes)
            break;
        if (!next_page(part, &list, &iova)) {
            command->status = PST_NVME_DATA_TRANSFER;
            return false;
        }
        if (iova % PST_PAGE != 0) {
            command->status = PST_NVME_BAD_PRP_OFFSET;
            return false;
        }
    }
    return true;
}

/* ---- mapping -------------------------------------------------------------------------------------- */

static void forget_hits(struct pst_emu_ssd *ssd)
{
    for (uint32_t i = 0; i <= ssd->emu->config.workers; i++)
        ssd->parts[i].hit = NULL;
}

pst_rc pst_emu_map(struct pst_emu_ssd *ssd, int fd, uint64_t offset, uint64_t bytes, uint64_t *iova)
{
    struct stat st;
    if (ssd->nmappings == PST_EMU_MAPPINGS_MAX)
        return pst_fail(
            PST_E_LIMIT,
            "the emulated controller has mapped %d regions of memory, which is its limit: use fewer links",
            PST_EMU_MAPPINGS_MAX);
    if (offset % PST_PAGE != 0 || bytes == 0 || bytes % PST_PAGE != 0)
        return pst_fail(PST_E_ARG,
                        "cannot map %llu bytes from byte %llu of a region on; expected whole pages",
                        (unsigned long long)bytes, (unsigned long long)offset);
    const int seals = fd >= 0 ? fcntl(fd, F_GET_SEALS) : -1;
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
        return pst_fail(PST_E_ARG, "cannot map this file for an emulated drive: expected a sealed memfd, "
                                   "because any other file could shrink while the drive uses it");
    if (fstat(fd, &st) != 0 || offset > (uint64_t)st.st_size || bytes > (uint64_t)st.st_size - offset)
        return pst_fail(PST_E_ARG, "cannot map %llu bytes from byte %llu on: the region has only %lld bytes",
                        (unsigned long long)bytes, (unsigned long long)offset, (long long)st.st_size);
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);
    if (base == MAP_FAILED)
        return pst_fail(PST_E_NOMEM, "cannot map %llu bytes: %s", (unsigned long long)bytes, strerror(errno));
    struct pst_emu *emu = ssd->emu;
    if (emu->next_iova == 0)
        emu->next_iova = IOVA_FIRST;
    *iova = emu->next_iova;
    emu->next_iova += pst_align_up(bytes, IOVA_GAP) + IOVA_GAP;
    pst_emu_hold(ssd);
    ssd->mappings[ssd->nmappings++] = (struct pst_emu_mapping){*iova, bytes, base};
    pst_emu_let_go(ssd);
    return PST_OK;
}

static bool in(const struct pst_emu_mapping *m, const void *memory)
{
    return (const uint8_t *)memory >= m->base && (const uint8_t *)memory < m->base + m->bytes;
}

/* If a queue lies in the memory, the controller cannot go on. */
static void check_queues(struct pst_emu_ssd *ssd, const struct pst_emu_mapping *m)
{
    bool hit = false;
    for (int i = 0; i <= PST_EMU_QUEUES_MAX; i++)
        hit = hit || (ssd->sqs[i] != NULL && in(m, ssd->sqs[i]->base)) ||
              (ssd->cqs[i] != NULL && in(m, ssd->cqs[i]->base));
    if (!hit)
        return;
    __atomic_fetch_add(&ssd->stats->dma_refused, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&ssd->stats->dma_refused_iova, m->iova, __ATOMIC_RELAXED);
    pst_emu_disable(ssd);
    atomic_store(&ssd->fatal, true);
}

pst_rc pst_emu_unmap(struct pst_emu_ssd *ssd, uint64_t iova)
{
    pst_emu_hold(ssd);
    const struct pst_emu_mapping *m = find(ssd, iova);
    if (m == NULL || m->iova != iova) {
        pst_emu_let_go(ssd);
        return pst_fail(PST_E_ARG, "cannot unmap the memory at address %#llx: nothing is mapped there",
                        (unsigned long long)iova);
    }
    check_queues(ssd, m);
    const struct pst_emu_mapping gone = *m;
    const uint32_t i = (uint32_t)(m - ssd->mappings);
    memmove(&ssd->mappings[i], &ssd->mappings[i + 1], (ssd->nmappings - i - 1) * sizeof gone);
    ssd->nmappings--;
    forget_hits(ssd);
    pst_emu_let_go(ssd);
    (void)munmap(gone.base, gone.bytes);
    return PST_OK;
}

void pst_emu_unmap_all(struct pst_emu_ssd *ssd)
{
    for (uint32_t i = 0; i < ssd->nmappings; i++)
        (void)munmap(ssd->mappings[i].base, ssd->mappings[i].bytes);
    ssd->nmappings = 0;
    forget_hits(ssd);
}
