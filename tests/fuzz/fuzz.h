/* fuzz.h: what the fuzz targets share. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerInitialize(int *argc, char ***argv);

/* An accepted input must hold what the parser promises. */
#define fuzz_check(condition)                                                                                \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);                    \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

/* A file in memory that is made once and filled anew by each input; its path is for whoever opens it. */
struct fuzz_file {
    int fd;
    char path[64];
};

static inline void fuzz_fill(struct fuzz_file *file, const void *data, size_t bytes)
{
    if (file->path[0] == '\0') {
        file->fd = memfd_create("fuzz", MFD_CLOEXEC);
        fuzz_check(file->fd >= 0);
        (void)snprintf(file->path, sizeof file->path, "/proc/self/fd/%d", file->fd);
    }
    fuzz_check(ftruncate(file->fd, 0) == 0);
    fuzz_check(pwrite(file->fd, data, bytes, 0) == (ssize_t)bytes);
}

#endif
