/* cuda_driver.c: opens the CUDA driver and looks its functions up. */
#include "tools/penstock/machine/cuda_driver.h"

#include <dlfcn.h>

#include "common/error.h"

pst_rc pst_driver_open(struct pst_driver *driver)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return pst_fail(PST_E_UNSUPPORTED, "%s", dlerror());
#define FIND(member, symbol, parameters)                                                                     \
    *(void **)&driver->member = dlsym(library, symbol);                                                      \
    if (driver->member == NULL)                                                                              \
        return pst_fail(PST_E_UNSUPPORTED, "libcuda.so.1 lacks the function %s: the driver is too old",      \
                        symbol);
    PST_DRIVER_CALLS(FIND)
#undef FIND
    return PST_OK;
}

const char *pst_driver_error(const struct pst_driver *driver, int error)
{
    const char *name = NULL;
    return driver->error_name(error, &name) == 0 && name ? name : "an unknown CUDA error";
}
