/* A run takes its directory while `penstock gc` removes it: the moments between mkdir, open and flock. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "tools/penstock/run/run_dir.c"

static char place[] = "/tmp/test_run_dir_XXXXXX";
static int place_fd;
static int removals; /* how often a cleaner comes just before a lock is taken */

/* Stands in for the library's. */
int flock(int fd, int operation)
{
    if (removals > 0 && removals-- > 0) {
        char path[64];
        (void)snprintf(path, sizeof path, "%s/run/lock", place);
        assert_int_equal(unlink(path), 0);
        *strrchr(path, '/') = '\0';
        assert_int_equal(rmdir(path), 0);
    }
    return (int)syscall(SYS_flock, fd, operation);
}

static const char *open_run(int *lock)
{
    static char dir[PST_PATH_MAX];
    (void)snprintf(dir, sizeof dir, "%s/run", place);
    assert_int_equal(run_dir_open(dir, "name", "0123456789abcdef", NULL, lock), PST_OK);
    return dir;
}

static void a_cleaner_between_open_and_flock(void **state)
{
    (void)state;
    struct run_lock text;
    struct stat st;
    int lock, fd;
    removals = 3;
    const char *dir = open_run(&lock);
    assert_int_equal(removals, 0);
    assert_true(run_dir_is_held(dir));
    const int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(fstat(dir_fd, &st), 0);
    assert_true(run_lock_open(dir_fd, &text, &fd));
    assert_int_equal(text.pid, getpid());
    assert_int_equal(text.made, st.st_ino);
    assert_int_equal(close(fd) + close(dir_fd) + close(lock), 0);
    assert_false(run_dir_is_held(dir));
    assert_int_equal(run_dir_remove(place_fd, "run", dir, false), PST_OK);
    assert_int_equal(access(dir, F_OK), -1);
}

static void a_cleaner_that_never_stops(void **state)
{
    (void)state;
    char dir[PST_PATH_MAX];
    int lock;
    (void)snprintf(dir, sizeof dir, "%s/run", place);
    removals = 1000;
    assert_int_equal(run_dir_open(dir, "name", "0123456789abcdef", NULL, &lock), PST_E_STATE);
    assert_non_null(strstr(pst_error_text(), "keeps removing the run directory"));
    assert_int_equal(lock, -1);
    removals = 0;
}

/* A directory keeps the mark of the run that made it, and no other gets it. */
static void the_mark_of_who_made_it(void **state)
{
    (void)state;
    struct run_lock text;
    int lock, fd;
    for (int again = 0; again < 2; again++) {
        const char *dir = open_run(&lock);
        const int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(run_lock_open(dir_fd, &text, &fd) && text.made != 0);
        assert_int_equal(close(fd) + close(dir_fd) + close(lock), 0);
    }
    assert_int_equal(mkdirat(place_fd, "mine", 0700), 0);
    for (int again = 0; again < 2; again++) {
        char dir[PST_PATH_MAX];
        (void)snprintf(dir, sizeof dir, "%s/mine", place);
        assert_int_equal(run_dir_open(dir, "name", "0123456789abcdef", NULL, &lock), PST_OK);
        const int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(run_lock_open(dir_fd, &text, &fd) && text.made == 0);
        assert_int_equal(close(fd) + close(dir_fd) + close(lock), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cleaner_between_open_and_flock),
        cmocka_unit_test(a_cleaner_that_never_stops),
        cmocka_unit_test(the_mark_of_who_made_it),
    };
    assert(mkdtemp(place) != NULL);
    place_fd = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char command[64];
    (void)snprintf(command, sizeof command, "rm -rf %s", place);
    return system(command) == 0 ? failed : 1;
}
