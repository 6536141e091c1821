/* Which error a call reports if several apply: the order of Linux's checks. */
#include "check.h"
#include <linux/openat2.h>

#define BAD_FD 999

static long open_how(int dir, const char *path, uint64_t flags) {
    struct open_how how = {.flags = flags};
    return syscall(SYS_openat2, dir, path, &how, sizeof how);
}

static struct flock range(short type, short whence, off_t start, off_t len) {
    return (struct flock){.l_type = type, .l_whence = whence, .l_start = start, .l_len = len};
}

/* Bad ranges come before access modes, and modes before everything else. */
static void locks(void) {
    int fd = open("f", O_RDWR), ro = open("f", O_RDONLY), neither = open("f", O_ACCMODE), path = open("f", O_PATH);
    CHECK(fd >= 0 && ro >= 0 && neither >= 0 && path >= 0);
    struct flock lock = range(F_WRLCK, SEEK_SET, -5, 3);
    FAILS(fcntl(ro, F_SETLK, &lock), EINVAL);
    lock = range(F_RDLCK, SEEK_SET, 0, 3);
    FAILS(fcntl(neither, F_SETLK, &lock), EBADF);
    FAILS(fcntl(path, F_GETLK, &lock), EBADF);
    lock = range(F_UNLCK, SEEK_SET, 0, 3);
    CHECK(fcntl(neither, F_SETLK, &lock) == 0);
    FAILS(fcntl(fd, F_GETLK, &lock), EINVAL);
    lock = range(F_WRLCK, SEEK_SET, 1, INT64_MAX);
    CHECK(fcntl(fd, F_SETLK, &lock) == 0);
    lock = range(F_WRLCK, SEEK_SET, 2, INT64_MAX);
    FAILS(fcntl(fd, F_SETLK, &lock), EOVERFLOW);
    lock = range(F_UNLCK, SEEK_SET, 0, 0);
    CHECK(fcntl(fd, F_SETLK, &lock) == 0);
    FAILS(lockf(path, F_TEST, 0), EBADF);
    FAILS(lockf(path, F_ULOCK, 0), EBADF);
    /* The process's own locks do not count, nor do shared ones, also those of its open files. */
    lock = range(F_RDLCK, SEEK_SET, 10, 5);
    CHECK(fcntl(ro, F_OFD_SETLK, &lock) == 0);
    CHECK(lseek(fd, 10, SEEK_SET) == 10 && lockf(fd, F_TEST, 5) == 0);
    lock = range(F_WRLCK, SEEK_SET, 12, 5);
    CHECK(fcntl(ro, F_OFD_SETLK, &(struct flock){.l_type = F_UNLCK}) == 0);
    CHECK(fcntl(fd, F_OFD_SETLK, &lock) == 0);
    FAILS(lockf(ro, F_TEST, 20), EACCES);
    /* Since Linux 6.6, F_UNLCK finds the open file's own locks. */
    if (is_served()) {
        lock = range(F_UNLCK, SEEK_SET, 0, 0);
        CHECK(fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_WRLCK && lock.l_start == 12 && lock.l_len == 5);
        CHECK(lock.l_pid == -1);
        lock = range(F_UNLCK, SEEK_SET, 20, 0);
        CHECK(fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK);
    }
    close(fd), close(ro), close(neither), close(path);
}

MAIN
    const char *volatile bad = (const char *)8;
    put("f", "0123456789");
    CHECK(mkdir("d", 0755) == 0 && mkdir("d/e", 0755) == 0);
    int fd = open("f", O_RDWR), dir = open("d", O_RDONLY), path = open("f", O_PATH);
    locks();

    /* Names. */
    FAILS(link("missing", bad), ENOENT);
    FAILS(link("f", bad), EFAULT);
    FAILS(rename("missing", bad), EFAULT);
    FAILS(rename("missing/x", bad), ENOENT);
    for (int i = 0; i < 4; i++) {
        const char *const ends[] = {"d/.", "d/./", "d/.//", "d/e/../../d/./"};
        FAILS(remove(ends[i]), EINVAL);
        FAILS(rmdir(ends[i]), EINVAL);
    }
    FAILS(rmdir("d/e/../"), ENOTEMPTY);
    /* A link whose target ends in a slash names no new file. */
    CHECK(symlink("f/", "slash") == 0 && symlink("slash", "again") == 0 && symlink("d/", "to-d") == 0);
    FAILS(open("slash", O_CREAT | O_RDWR, 0644), EISDIR);
    FAILS(open("again", O_CREAT | O_RDWR, 0644), EISDIR);
    FAILS(open("to-d", O_CREAT | O_RDONLY, 0644), EISDIR);
    FAILS(open("slash", O_RDWR), ENOTDIR);
    FAILS(open("slash", O_CREAT | O_EXCL | O_RDWR, 0644), EEXIST);
    FAILS(open_how(fd, "x", O_RDONLY | O_TRUNC | O_TMPFILE), EINVAL);
    FAILS(open_how(fd, "x", O_PATH | O_RDWR), EINVAL);
    FAILS(open_how(fd, "", O_RDONLY), ENOENT);
    FAILS(open_how(fd, "x", O_RDONLY), ENOTDIR);

    /* Transfers. */
    off_t at = -3251;
    FAILS(sendfile(fd, dir, NULL, 10), EINVAL);
    FAILS(sendfile(dir, fd, &at, 10), EINVAL);
    FAILS(copy_file_range(path, (off_t *)bad, fd, NULL, 1, 1), EBADF);
    FAILS(copy_file_range(fd, (off_t *)bad, fd, NULL, 1, 1), EFAULT);
    FAILS(copy_file_range(dir, NULL, fd, NULL, 1, 1), EINVAL);
    FAILS(copy_file_range(dir, NULL, fd, NULL, 1, 0), EISDIR);
    off_t last = INT64_MAX;
    FAILS(copy_file_range(fd, &at, fd, &last, 0, 0), EFBIG);
    FAILS(mmap(NULL, 0, PROT_READ, MAP_SHARED, path, 0), EBADF);
    FAILS(mmap(NULL, 0, PROT_READ, MAP_SHARED, fd, 0), EINVAL);

    /* Not every file system has such positions. */
    char bytes[20];
    if (lseek(fd, INT64_MAX - 1, SEEK_SET) > 0) {
        FAILS(read(fd, bytes, 20), EINVAL);
        FAILS(write(fd, bytes, 20), EINVAL);
    }

    /* A link at the end of a name with a slash is no directory, and what it leads to is not moved. */
    char target[PATH_MAX + 2], absolute[PATH_MAX];
    CHECK(getcwd(absolute, sizeof absolute) && snprintf(target, sizeof target, "%.4000s/d", absolute) > 0);
    CHECK(symlink(target, "link-d") == 0);
    FAILS(rename("link-d/", "moved"), ENOTDIR);
    FAILS(link("f", "link-d/"), EEXIST);
    CHECK(access("d/e", F_OK) == 0 && access("moved", F_OK) == -1);
    FAILS(open("link-d", O_DIRECTORY | O_NOFOLLOW), ENOTDIR);
    CHECK(readv(dir, &(struct iovec){bytes, 0}, 1) == 0 && readv(dir, NULL, 0) == 0);
    FAILS(read(dir, bytes, 0), EISDIR);
    FAILS(sendfile(BAD_FD, dir, NULL, 10), EBADF);

    /* A removed directory has no names. */
    DIR *names = opendir("d/e");
    CHECK(names && rmdir("d/e") == 0 && readdir(names) == NULL);
    rewinddir(names);
    CHECK(readdir(names) == NULL && closedir(names) == 0);

    /* Attributes. */
    FAILS(fsetxattr(fd, "user.a", "x", 1, 8), EINVAL);
    FAILS(fremovexattr(fd, ""), ERANGE);
    FAILS(fgetxattr(fd, "", NULL, 0), ERANGE);
    if (is_served()) FAILS(fremovexattr(path, ""), ERANGE); /* since Linux 6.13 */

    /* Streams. */
    FILE *file = fopen("s", "w+");
    CHECK(file && freopen(NULL, "w+x", file) == NULL && errno == EEXIST);
    return 0;
}
