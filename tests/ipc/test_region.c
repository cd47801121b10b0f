/* Regions in huge pages: what the memory host asks the kernel for, by the system's policy. A machine whose
 * policy is `advise` or `always` also shows that the pages are huge. */
#include <setjmp.h>
#include <stdarg.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

static char policy[64];
static int advices[8], nadvices;
static bool refuses, slow; /* the kernel does not know the request; it takes long */

static int noted(void *at, size_t bytes, int advice)
{
    if (nadvices < 8)
        advices[nadvices++] = advice;
    if (slow)
        (void)usleep(300000);
    if (refuses)
        errno = EINVAL;
    return refuses ? -1 : madvise(at, bytes, advice);
}

#define PST_REGION_POLICY policy
#define madvise noted
#include "common/ipc/region.c"
#undef madvise

static void set_policy(const char *text)
{
    FILE *f = fopen(policy, "w");
    assert_non_null(f);
    (void)fputs(text, f);
    assert_int_equal(fclose(f), 0);
    nadvices = 0;
}

/* All of it is there, zeroed, and can be written. */
static void use(uint64_t bytes)
{
    struct pst_region region;
    assert_int_equal(pst_region_new(&region, "test", bytes), PST_OK);
    unsigned char *at = region.base;
    for (uint64_t i = 0; i < bytes; i += PST_PAGE) {
        assert_int_equal(at[i], 0);
        at[i] = 1;
    }
    pst_region_unmap(&region);
}

static void huge_pages_are_asked_for_first(void **state)
{
    (void)state;
    set_policy("always within_size [advise] never deny force\n");
    use((6 << 20) + PST_PAGE);
    assert_int_equal(nadvices, 2);
    assert_int_equal(advices[0], MADV_HUGEPAGE);
    assert_int_equal(advices[1], MADV_POPULATE_WRITE);
    nadvices = 0;
    use((2 << 20) - PST_PAGE); /* smaller than a huge page */
    assert_int_equal(nadvices, 0);
}

/* With `never`, scattered memory has them, and any other has none. */
static void scattered_memory_has_them_by_itself(void **state)
{
    (void)state;
    int fd;
    set_policy("always within_size advise [never] deny force\n");
    for (int old = 0; old < 2; old++) {
        nadvices = 0;
        refuses = old == 1;
        assert_int_equal(pst_region_create(&fd, "test", ((uint64_t)34 << 20) + PST_PAGE, true), PST_OK);
        refuses = false;
        assert_int_equal(advices[0], MADV_COLLAPSE);
        assert_true(old ? nadvices == 1 : nadvices >= 1 && nadvices <= 3); /* 16 MiB each, until it fails */
        struct pst_region region;
        char path[64];
        (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        assert_int_equal(pst_region_map(&region, path, ((uint64_t)34 << 20) + PST_PAGE), PST_OK);
        const unsigned char *at = region.base;
        for (uint64_t i = 0; i < region.bytes; i += PST_PAGE)
            assert_int_equal(at[i], 0);
        assert_int_equal((uintptr_t)region.base % (2 << 20), 0);
        pst_region_unmap(&region);
        assert_int_equal(close(fd), 0);
    }
    nadvices = 0;
    set_policy("always within_size advise never [deny] force\n");
    assert_int_equal(pst_region_create(&fd, "test", 4 << 20, true), PST_OK);
    assert_int_equal(close(fd), 0);
    assert_int_equal(nadvices, 0);
}

/* A kernel that takes long to find huge pages is asked no more. */
static void slow_huge_pages_are_not_made(void **state)
{
    (void)state;
    int fd;
    set_policy("always within_size advise [never] deny force\n");
    slow = true;
    assert_int_equal(pst_region_create(&fd, "test", (uint64_t)66 << 20, true), PST_OK);
    slow = false;
    assert_int_equal(nadvices, 1);
    assert_int_equal(close(fd), 0);
}

/* With `never` there are none, and with `always` fallocate makes them. */
static void the_policy_is_the_systems(void **state)
{
    (void)state;
    set_policy("always within_size advise [never] deny force\n");
    use(4 << 20);
    set_policy("[always] within_size advise never deny force\n");
    use(4 << 20);
    assert_int_equal(unlink(policy), 0);
    use(4 << 20);
    assert_int_equal(nadvices, 0);
}

/* Bytes of the mapping at `base` that are in huge pages. */
static uint64_t huge_bytes(const void *base)
{
    char line[512];
    uint64_t kib = 0;
    unsigned long first, past;
    bool here = false;
    FILE *f = fopen("/proc/self/smaps", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "%lx-%lx ", &first, &past) == 2)
            here = (uintptr_t)base >= first && (uintptr_t)base < past;
        else if (here && strncmp(line, "ShmemPmdMapped:", 15) == 0)
            kib += strtoul(line + 15, NULL, 10);
    }
    (void)fclose(f);
    return kib << 10;
}

static void the_pages_are_huge(void **state)
{
    (void)state;
    char text[128] = "";
    FILE *f = fopen("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "r");
    if (!f || !fgets(text, sizeof text, f) || strstr(text, "[never]") || strstr(text, "[deny]")) {
        if (f)
            (void)fclose(f);
        skip(); /* this system has none for shared memory */
    }
    (void)fclose(f);
    set_policy(text);
    struct pst_region region;
    assert_int_equal(pst_region_new(&region, "test", 8 << 20), PST_OK);
    memset(region.base, 1, 8 << 20);
    assert_true(huge_bytes(region.base) > 0);
    pst_region_unmap(&region);
}

static int make_policy(void **state)
{
    (void)state;
    (void)snprintf(policy, sizeof policy, "/tmp/test-region-XXXXXX");
    const int fd = mkstemp(policy);
    return fd < 0 || close(fd) != 0;
}

static int remove_policy(void **state)
{
    (void)state;
    (void)unlink(policy);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(huge_pages_are_asked_for_first),
        cmocka_unit_test(the_pages_are_huge),
        cmocka_unit_test(the_policy_is_the_systems),
        cmocka_unit_test(scattered_memory_has_them_by_itself),
        cmocka_unit_test(slow_huge_pages_are_not_made),
    };
    return cmocka_run_group_tests(tests, make_policy, remove_policy);
}
