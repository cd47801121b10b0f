/* usable.h: what stands between our driver and an NVMe controller, and the command that would mend each: no
 * IOMMU, a group that holds other devices, file systems that are mounted, rights.
 *
 * `root` as in pci.h. Owner: the caller's arrays. Threads: any. */
#ifndef PST_USABLE_H
#define PST_USABLE_H

#include "common/nvme/driver/pci.h"

PST_BEGIN_DECLS

#define PST_OBSTACLES_MAX 16

struct pst_obstacle {
    char why[512];
    char mend[256]; /* a command; or, where none would do it, what to do */
};

/* Why pst_usable_bind would refuse; the number of obstacles. */
PST_API int pst_obstacles_to_bind(const struct pst_pci *pci, const char *root,
                                  struct pst_obstacle found[PST_OBSTACLES_MAX]);

/* Why our driver cannot open it as it is now; 0: it can. */
PST_API int pst_obstacles_to_open(const struct pst_pci *pci, const char *root,
                                  struct pst_obstacle found[PST_OBSTACLES_MAX]);

/* Takes the controller from the kernel's driver for vfio-pci, or gives it back (waiting until its namespaces
 * are there). Refused, with every reason and what would mend it, in the error text: PST_E_STATE. */
PST_API PST_MUST_USE pst_rc pst_usable_bind(const char *root, const char *address);
PST_API PST_MUST_USE pst_rc pst_usable_release(const char *root, const char *address);

/* PST_OK, or PST_E_STATE with all obstacles, one a line. */
PST_API PST_MUST_USE pst_rc pst_obstacles_result(const char *what, const struct pst_obstacle *found, int n);

PST_END_DECLS
#endif
