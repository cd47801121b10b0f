/* file_open.c: opens a file for buffered and for direct I/O, and finds the alignment that direct I/O needs.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "stages/lib/io/backend.h"
#include "common/error.h"

/* Kernels before 6.1 do not report the alignment of direct I/O. Then it is the smallest that works. */
static uint32_t probe_block(int fd)
{
    void *memory = NULL;
    uint32_t found = 0;
    if (posix_memalign(&memory, PST_PAGE, PST_PAGE) != 0)
        return 0;
    for (uint32_t block = PST_SECTOR; block <= PST_PAGE && found == 0; block *= 2) {
        if (pread(fd, memory, block, 0) >= 0)
            found = block;
    }
    free(memory);
    return found;
}

static void find_alignment(struct pst_io_file *file)
{
#ifdef STATX_DIOALIGN
    struct statx stx;
    if (statx(file->direct, "", AT_EMPTY_PATH, STATX_DIOALIGN, &stx) == 0 &&
        (stx.stx_mask & STATX_DIOALIGN) != 0) {
        file->block = stx.stx_dio_offset_align;
        file->mem_align = stx.stx_dio_mem_align;
        return;
    }
#endif
    file->block = probe_block(file->direct);
    file->mem_align = file->block;
}

static void open_direct(struct pst_io_file *file, int flags, char note[PST_IO_NOTE_BYTES])
{
    file->direct = open(file->path, flags | O_DIRECT);
    if (file->direct < 0) {
        (void)snprintf(note, PST_IO_NOTE_BYTES,
                       "%.300s: the file system has no direct I/O (%s), so reads go through the page cache",
                       file->path, strerror(errno));
        return;
    }
    find_alignment(file);
    if (file->block == 0 || file->block > PST_PAGE || file->mem_align > PST_PAGE) {
        (void)snprintf(
            note, PST_IO_NOTE_BYTES,
            "%.300s: the file system has no direct I/O for this file, so reads go through the page cache",
            file->path);
        (void)close(file->direct);
        file->direct = -1;
        file->block = file->mem_align = 1;
    }
}

pst_rc pst_io_file_open(struct pst_io_file *file, const char *path, bool direct, bool writable,
                        char note[PST_IO_NOTE_BYTES])
{
    note[0] = '\0';
    *file = (struct pst_io_file){.fd = -1, .direct = -1, .block = 1, .mem_align = 1, .writable = writable};
    if (strlen(path) >= sizeof file->path)
        return pst_fail(PST_E_LIMIT, "the path is too long: expected at most %zu bytes: %.100s...",
                        sizeof file->path, path);
    memcpy(file->path, path, strlen(path) + 1);
    int flags = (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC;
    file->fd = open(path, flags);
    if (file->fd < 0)
        return pst_fail_errno("opening %s", path);
    struct stat st;
    if (fstat(file->fd, &st) != 0 || !(S_ISREG(st.st_mode) || S_ISBLK(st.st_mode))) {
        pst_io_file_close(file);
        return pst_fail(PST_E_ARG, "%s is neither a regular file nor a block device", path);
    }
    if (direct)
        open_direct(file, flags, note);
    if (file->mem_align == 0)
        file->mem_align = 1;
    /* rows are read at random, so read-ahead would read useless data */
    (void)posix_fadvise(file->fd, 0, 0, POSIX_FADV_RANDOM);
    return PST_OK;
}

void pst_io_file_close(struct pst_io_file *file)
{
    if (file->fd >= 0)
        (void)close(file->fd);
    if (file->direct >= 0)
        (void)close(file->direct);
    file->fd = file->direct = -1;
}
