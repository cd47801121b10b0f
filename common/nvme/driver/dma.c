/* dma.c: memory as memfds, which VFIO and emulated controllers can both map. */
#include "common/nvme/driver/dma.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/ipc/region.h"
#include "common/error.h"

pst_rc pst_nvme_dma_new(struct pst_nvme_dma *dma, struct pst_nvme_transport *t, uint64_t bytes)
{
    memset(dma, 0, sizeof *dma);
    struct pst_region region;
    pst_rc rc = pst_region_new(&region, "penstock-dma", pst_align_up(bytes, PST_PAGE));
    if (rc != PST_OK)
        return rc;
    *dma = (struct pst_nvme_dma){.base = region.base, .bytes = region.bytes};
    if (t == NULL)
        return PST_OK;
    rc = t->ops->dma_map(t, dma->base, dma->bytes, &dma->iova);
    if (rc != PST_OK) {
        pst_region_unmap(&region);
        memset(dma, 0, sizeof *dma);
        return rc;
    }
    dma->t = t;
    return PST_OK;
}

void pst_nvme_dma_free(struct pst_nvme_dma *dma)
{
    struct pst_region region = {dma->base, dma->bytes};
    if (dma->t != NULL && dma->t->ops->dma_unmap(dma->t, dma->iova) != PST_OK)
        fprintf(stderr, "%llu bytes are not freed, because the device may still write to them: %s\n",
                (unsigned long long)dma->bytes, pst_error_text());
    else
        pst_region_unmap(&region);
    memset(dma, 0, sizeof *dma);
}
