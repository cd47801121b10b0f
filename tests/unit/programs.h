/* programs.h: where a test finds the programs that it starts. Included after cmocka.h. */
#ifndef PROGRAMS_H
#define PROGRAMS_H

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Tests lie in BUILD/tests/unit, programs in BUILD/bin. */
static inline void find_programs(void)
{
    char path[4096];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 16);
    assert_true(n > 0);
    path[n] = '\0';
    for (int i = 0; i < 3; i++)
        *strrchr(path, '/') = '\0';
    strcat(path, "/bin");
    (void)setenv("PENSTOCK_BIN", path, 1);
}

#endif
