/* drives.h: the NVMe drives of the backends "nvme" and "emulated". It opens them, maps the stage's memory for
 * them, and knows where each byte of each file lies on them. Owner: the backend. Threads: one. */
#ifndef PST_DRIVES_H
#define PST_DRIVES_H

#include "common/nvme/emulated/emulated.h"
#include "common/nvme/stack/stack.h"
#include "stages/lib/io/backend.h"

#define PST_IO_DRIVES_REGIONS_MAX 80

struct pst_io_drives {
    uint32_t n;
    struct pst_nvme_emulated emulated;
    struct pst_nvme_emulated_speed speed; /* of each emulated drive */
    struct pst_nvme_transport t[PST_NVME_SSDS_MAX];
    struct pst_nvme_controller c[PST_NVME_SSDS_MAX], *list[PST_NVME_SSDS_MAX];
    bool open[PST_NVME_SSDS_MAX];
    uint32_t lba_shift;
    struct pst_extent extents[PST_REQUEST_FILES_MAX]; /* where each file lies on the drives */
    int nregions;
    struct {
        const char *base;
        uint64_t bytes, iova[PST_NVME_SSDS_MAX];
    } regions[PST_IO_DRIVES_REGIONS_MAX];
};

/* Opens real drives (config->nvme->drives), or emulated ones that serve the files. */
PST_MUST_USE pst_rc pst_io_drives_open(struct pst_io_drives *d, const struct pst_io_config *config,
                                       bool emulated);
/* Whether these are emulated drives, and their content is files that `penstock store` wrote. */
bool pst_io_drives_stored(const char *backend, const struct pst_io_nvme_config *c);
/* The number of drives in the list c->drives; at least 1. */
uint32_t pst_io_drives_listed(const struct pst_io_nvme_config *c);
void pst_io_drives_close(struct pst_io_drives *d);

/* Where byte `at` of a file lies, and how many bytes follow there on the same drive. False: it is on no
 * drive. */
bool pst_io_drives_find(const struct pst_io_drives *d, uint32_t file, uint64_t at,
                        struct pst_nvme_request *where, uint64_t *run);
/* The address of memory for a drive. False: the memory is in no region. */
bool pst_io_drives_iova(const struct pst_io_drives *d, uint32_t drive, const void *memory, uint64_t bytes,
                        uint64_t *iova);

#endif
