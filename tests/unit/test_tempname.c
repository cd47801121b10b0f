/* Temporary names: what somebody writes is never removed, what nobody holds is. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/error.h"
#include "common/util/file.h"
#include "common/util/tempname.h"

#define DEAD ".penstock-partial-4194305" /* above the largest PID */

static char dir[] = "/tmp/test_tempname_XXXXXX";
static int dir_fd;

static void make_file(const char *name)
{
    const int fd = openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "x", 1), 1);
    assert_int_equal(close(fd), 0);
}

static bool is_there(const char *name)
{
    return faccessat(dir_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void only_temporary_names_are_swept(void **state)
{
    (void)state;
    static const char *const kept[] = {"report.json",
                                       "a.part",
                                       ".hidden",
                                       "a.penstock-partial-",
                                       "a.penstock-partial-12b",
                                       "a.penstock-old-4194305",
                                       "a.penstock-removed-4194305"};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        make_file(kept[i]);
    make_file("a" DEAD);
    make_file("b" DEAD);
    assert_int_equal(mkdirat(dir_fd, "d" DEAD, 0700), 0);
    assert_int_equal(mkfifoat(dir_fd, "fifo" DEAD, 0600), 0);
    assert_int_equal(symlinkat("report.json", dir_fd, "link" DEAD), 0);
    assert_int_equal(pst_tempname_sweep(dir_fd, "a", true), 1);
    assert_int_equal(pst_tempname_sweep(dir_fd, NULL, true), 2);
    assert_int_equal(pst_tempname_sweep(dir_fd, "a", false), 1);
    assert_true(is_there("b" DEAD));
    assert_int_equal(pst_tempname_sweep(dir_fd, NULL, false), 1);
    assert_false(is_there("a" DEAD) || is_there("b" DEAD));
    assert_true(is_there("d" DEAD) && is_there("fifo" DEAD) && is_there("link" DEAD));
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        assert_true(is_there(kept[i]));
}

static void what_is_held_stays(void **state)
{
    (void)state;
    char path[128];
    int fd, other;
    (void)snprintf(path, sizeof path, "%s/held" DEAD, dir); /* whatever the number in the name says */
    assert_int_equal(pst_tempname_open(path, &fd), PST_OK);
    assert_int_equal(pst_tempname_sweep(dir_fd, "held", false), 0);
    assert_int_equal(pst_tempname_open(path, &other), PST_E_STATE);
    assert_non_null(strstr(pst_error_text(), "is writing this file"));
    assert_int_equal(close(fd), 0);
    assert_int_equal(pst_tempname_sweep(dir_fd, "held", false), 1);

    (void)snprintf(path, sizeof path, "%s/dir" DEAD, dir);
    assert_int_equal(pst_tempname_mkdir(path, 0700, &fd), PST_OK);
    assert_false(pst_tempname_take(dir_fd, "dir" DEAD, &other));
    assert_int_equal(close(fd), 0);
    assert_true(pst_tempname_take(dir_fd, "dir" DEAD, &other));
    assert_int_equal(close(other), 0);
    assert_int_equal(pst_tempname_mkdir(path, 0700, &fd), PST_E_IO);
    assert_int_equal(fd, -1);
}

/* POSIX locks are invisible to flock, and to the process that holds them. */
static void a_lock_of_fcntl_counts(void **state)
{
    (void)state;
    int up[2], fd;
    char c;
    make_file("posix" DEAD);
    assert_int_equal(pipe(up), 0);
    const pid_t child = fork();
    if (child == 0) {
        struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        const int own = openat(dir_fd, "posix" DEAD, O_RDWR);
        if (fcntl(own, F_SETLK, &all) == 0 && write(up[1], "x", 1) == 1)
            (void)pause();
        _exit(1);
    }
    assert_int_equal(read(up[0], &c, 1), 1);
    assert_false(pst_tempname_take(dir_fd, "posix" DEAD, &fd));
    assert_int_equal(pst_tempname_sweep(dir_fd, "posix", false), 0);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(pst_tempname_sweep(dir_fd, "posix", false), 1);
    (void)close(up[0]);
    (void)close(up[1]);
}

static const char *vanishes; /* the name that a cleaner removes just before it is locked */
static int times;

/* Stands in for the library's. */
int flock(int fd, int operation)
{
    if (vanishes != NULL && times-- > 0)
        assert_int_equal(unlinkat(dir_fd, vanishes, strstr(vanishes, "dir") != NULL ? AT_REMOVEDIR : 0), 0);
    return (int)syscall(SYS_flock, fd, operation);
}

/* The lock of a name that is gone is worth nothing: the writer begins again. */
static void a_cleaner_between_open_and_flock(void **state)
{
    (void)state;
    char file[128], made[128];
    struct stat st, named;
    int fd;
    (void)snprintf(file, sizeof file, "%s/raced" DEAD, dir);
    (void)snprintf(made, sizeof made, "%s/raced-dir" DEAD, dir);
    vanishes = "raced" DEAD;
    times = 3;
    assert_int_equal(pst_tempname_open(file, &fd), PST_OK);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(stat(file, &named), 0);
    assert_int_equal(st.st_ino, named.st_ino);
    assert_int_equal(close(fd), 0);
    vanishes = "raced-dir" DEAD;
    times = 3;
    assert_int_equal(pst_tempname_mkdir(made, 0700, &fd), PST_OK);
    assert_true(is_there("raced-dir" DEAD));
    assert_int_equal(close(fd), 0);
    vanishes = NULL;
}

/* A cleaner runs all the time, and no write fails. */
static void a_writer_beside_a_cleaner(void **state)
{
    (void)state;
    char path[128];
    (void)snprintf(path, sizeof path, "%s/file", dir);
    const pid_t cleaner = fork();
    while (cleaner == 0)
        (void)pst_tempname_sweep(dir_fd, "file", false);
    for (int i = 0; i < 200; i++)
        assert_int_equal(pst_file_replace(path, "text", 4), PST_OK);
    assert_int_equal(kill(cleaner, SIGKILL), 0);
    assert_int_equal(waitpid(cleaner, NULL, 0), cleaner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_temporary_names_are_swept), cmocka_unit_test(what_is_held_stays),
        cmocka_unit_test(a_lock_of_fcntl_counts),         cmocka_unit_test(a_cleaner_between_open_and_flock),
        cmocka_unit_test(a_writer_beside_a_cleaner),
    };
    assert(mkdtemp(dir) != NULL);
    dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert(dir_fd >= 0);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char command[64];
    (void)snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command) == 0 ? failed : 1;
}
