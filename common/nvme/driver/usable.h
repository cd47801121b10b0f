/* usable.h: why our driver cannot use an NVMe controller, and the command that removes each obstacle: no
 * IOMMU, other devices in its IOMMU group, mounted file systems, missing rights.
 *
 * `root` as in pci.h. Owner: the caller's arrays. Threads: any. */
#ifndef PST_USABLE_H
#define PST_USABLE_H

#include "common/nvme/driver/pci.h"

PST_BEGIN_DECLS

#define PST_OBSTACLES_MAX 16

struct pst_obstacle {
    char why[512];
    char mend[256]; /* a command; if no command helps, what to do */
};

/* Finds why pst_usable_bind would refuse. Returns the number of obstacles. */
PST_API int pst_obstacles_to_bind(const struct pst_pci *pci, const char *root,
                                  struct pst_obstacle found[PST_OBSTACLES_MAX]);

/* Finds why our driver cannot open it now. Returns the number of obstacles; 0: it can. */
PST_API int pst_obstacles_to_open(const struct pst_pci *pci, const char *root,
                                  struct pst_obstacle found[PST_OBSTACLES_MAX]);

/* Takes the controller from the kernel's driver for vfio-pci, or gives it back and waits until its namespaces
 * are there. PST_E_STATE: refused; the message has every reason and what helps. */
PST_API PST_MUST_USE pst_rc pst_usable_bind(const char *root, const char *address);
PST_API PST_MUST_USE pst_rc pst_usable_release(const char *root, const char *address);

/* PST_OK if n is 0; otherwise PST_E_STATE with all obstacles, one on each line. */
PST_MUST_USE pst_rc pst_obstacles_result(const char *what, const struct pst_obstacle *found, int n);

PST_END_DECLS
#endif
