/* stack.c: the limit on the size of stacks (ulimit -s). */
#include <pthread.h>
#include <sys/resource.h>

#include "common/error.h"
#include "tools/penstock/cli/options.h"

#define STACK_MIN (1u << 20) /* a run was seen to need 384 KiB */
#define STACK_USUAL (8u << 20)

pst_rc command_stack(void)
{
    struct rlimit limit;
    pthread_attr_t attr;
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= STACK_MIN)
        return PST_OK;
    if (limit.rlim_max < STACK_MIN)
        return pst_fail(PST_E_LIMIT,
                        "the stack limit is %llu KiB, but Penstock needs %u KiB: raise the limit (ulimit -s)",
                        (unsigned long long)limit.rlim_max >> 10, STACK_MIN >> 10);
    limit.rlim_cur = limit.rlim_max < STACK_USUAL ? limit.rlim_max : STACK_USUAL;
    if (setrlimit(RLIMIT_STACK, &limit) != 0)
        return pst_fail_errno("cannot raise the limit on the stack to %llu KiB",
                              (unsigned long long)limit.rlim_cur >> 10);
    if (pthread_attr_init(&attr) != 0) /* glibc took the size of threads' stacks from the old limit */
        return PST_OK;
    int error = pthread_attr_setstacksize(&attr, limit.rlim_cur);
    if (error == 0)
        error = pthread_setattr_default_np(&attr);
    (void)pthread_attr_destroy(&attr);
    return error == 0
               ? PST_OK
               : pst_fail(PST_E_LIMIT,
                          "cannot set the stack size of threads to %llu KiB: set another limit (ulimit -s)",
                          (unsigned long long)limit.rlim_cur >> 10);
}
