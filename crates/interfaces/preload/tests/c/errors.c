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
    struct flock lock = range(F_WRLCK, SEEK_SET, 90, 3);
    /* A duplication that fails closes nothing. */
    CHECK(fcntl(fd, F_SETLK, &lock) == 0);
    FAILS(dup2(BAD_FD, fd), EBADF);
    FAILS(dup3(ro, fd, 1), EINVAL);
    /* Nor does the end of a descriptor that only names the file release locks. */
    int name = open("f", O_PATH);
    CHECK(dup2(name, path) == path && close(name) == 0);
    FAILS(fcntl(ro, F_OFD_SETLK, &(struct flock){.l_type = F_RDLCK, .l_start = 90, .l_len = 3}), EAGAIN);
    lock.l_type = F_UNLCK;
    CHECK(fcntl(fd, F_SETLK, &lock) == 0);
    lock = range(F_WRLCK, SEEK_SET, -5, 3);
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
    CHECK(symlink("endless/", "endless") == 0);
    FAILS(open("endless", O_CREAT | O_RDWR, 0644), EISDIR);
    FAILS(open("endless/", O_CREAT | O_RDWR, 0644), EISDIR);
    FAILS(open("endless", O_RDWR), ELOOP);
    FAILS(open("slash", O_CREAT | O_RDWR, 0644), EISDIR);
    FAILS(open("again", O_CREAT | O_RDWR, 0644), EISDIR);
    FAILS(open("to-d", O_CREAT | O_RDONLY, 0644), EISDIR);
    FAILS(open("slash", O_RDWR), ENOTDIR);
    FAILS(open("slash", O_CREAT | O_EXCL | O_RDWR, 0644), EEXIST);
    char with_slash[PATH_MAX + 10], there[PATH_MAX];
    CHECK(getcwd(there, sizeof there) && snprintf(with_slash, sizeof with_slash, "%s/f/", there) > 0);
    CHECK(symlink(with_slash, "far") == 0);
    for (int i = 0; i < 2; i++) {
        const char *link = i ? "slash" : "far";
        struct open_how how = {.flags = O_CREAT | O_RDWR, .mode = 0600};
        FAILS(open(link, O_CREAT | O_RDWR, 0644), EISDIR);
        FAILS(syscall(SYS_openat2, AT_FDCWD, link, &how, sizeof how), EISDIR);
        snprintf(with_slash, sizeof with_slash, "%s/%s", there, link);
        FAILS(syscall(SYS_openat2, AT_FDCWD, with_slash, &how, sizeof how), EISDIR);
        FAILS(open(with_slash, O_RDWR), ENOTDIR);
        FAILS(open_how(AT_FDCWD, with_slash, O_RDWR), ENOTDIR);
    }
    CHECK(symlink(strcat(strcpy(with_slash, there), "/f"), "far-f") == 0);
    /* The slash of the first link counts behind the second, absolute one. */
    CHECK(symlink("far-f/", "near-slash") == 0);
    FAILS(stat("near-slash", &(struct stat){0}), ENOTDIR);
    FAILS(open("near-slash", O_PATH), ENOTDIR);
    FAILS(open("near-slash", O_RDWR), ENOTDIR);
    FAILS(chmod("near-slash", 0600), ENOTDIR);
    const char *volatile none = NULL;
    FAILS(fchownat(fd, none, -1, -1, AT_EMPTY_PATH), EFAULT);
    FAILS(open("far-f/", O_RDWR), ENOTDIR);
    FAILS(open("far-f/", O_PATH), ENOTDIR);
    FAILS(open("far-f/.", O_RDWR), ENOTDIR);
    FAILS(open_how(AT_FDCWD, "far-f/", O_RDWR), ENOTDIR);
    /* Slashes and dots behind a name: the name must lead to a directory before it is refused. */
    const char *ends[] = {"none/.", "none/./", "none/..", "f/.", "f/./", "d/.", "d/./", "d/e/..", "none/", "d/"};
    const int errors[] = {ENOENT, ENOENT, ENOENT, ENOTDIR, ENOTDIR, EISDIR, EISDIR, EISDIR, EISDIR, EISDIR};
    for (int i = 0; i < 10; i++) {
        struct open_how how = {.flags = O_CREAT | O_RDWR, .mode = 0600, .resolve = RESOLVE_BENEATH};
        FAILS(syscall(SYS_openat2, AT_FDCWD, ends[i], &how, sizeof how), errors[i]);
        FAILS(open(ends[i], O_CREAT | O_RDWR, 0600), errors[i]);
        CHECK(symlink(ends[i], "to-end") == 0);
        FAILS(syscall(SYS_openat2, AT_FDCWD, "to-end", &how, sizeof how), errors[i]);
        FAILS(open("to-end", O_CREAT | O_RDWR, 0600), errors[i]);
        CHECK(unlink("to-end") == 0);
    }
    FAILS(open_how(fd, "x", O_RDONLY | O_TRUNC | O_TMPFILE), EINVAL);
    FAILS(open_how(fd, "x", O_PATH | O_RDWR), EINVAL);
    FAILS(open_how(fd, "", O_RDONLY), ENOENT);
    FAILS(open_how(fd, "x", O_RDONLY), ENOTDIR);

    /* Transfers. */
    off_t at = -3251;
    FAILS(sendfile(fd, dir, NULL, 10), EINVAL);
    CHECK(sendfile(fd, dir, NULL, 0) == 0);
    int neither = open("f", O_ACCMODE);
    FAILS(readahead(neither, 0, 10), EBADF);
    CHECK(close(neither) == 0);
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

    /* Slashes and dots behind a link to an absolute path count there, too. */
    CHECK(symlink(strcat(strcpy(target, absolute), "/d"), "there") == 0);
    FAILS(symlink("f", "there/x/"), ENOENT);
    FAILS(mknod("there/x/", S_IFREG | 0600, 0), ENOENT);
    FAILS(open("there/x/", O_CREAT | O_EXCL | O_RDWR, 0600), EISDIR);
    CHECK(mkdir("there/x/", 0700) == 0 && rmdir("there/x/") == 0);
    CHECK(symlink(strcat(strcpy(target, absolute), "/none"), "to-none") == 0);
    CHECK(symlink(strcat(strcpy(target, absolute), "/none/."), "to-dot") == 0);
    FAILS(rename("f", "to-none/."), ENOENT);
    FAILS(open("to-none/x/", O_CREAT | O_EXCL | O_RDWR, 0600), ENOENT);
    FAILS(open("to-dot", O_CREAT | O_RDONLY, 0600), ENOENT);
    struct open_how no_links = {.flags = O_RDWR | O_CREAT, .mode = 0600, .resolve = RESOLVE_NO_SYMLINKS};
    FAILS(syscall(SYS_openat2, AT_FDCWD, "there/", &no_links, sizeof no_links), EISDIR);
    /* A chain of links that climb out of the mount and lead back to themselves. */
    CHECK(snprintf(target, sizeof target, "/../../../../../../../..%.4000s/up", absolute) > 0 && symlink(target, "up") == 0);
    FAILS(open("up/f", O_WRONLY), ELOOP);
    FAILS(open("up/../../f", O_WRONLY), ELOOP);
    CHECK(symlink(strcat(strcpy(target, absolute), "/loop"), "loop") == 0);
    FAILS(renameat(fd, "x", AT_FDCWD, "loop/x"), ENOTDIR);
    FAILS(rename("d/e", "loop/x"), ELOOP);
    FAILS(link("missing", "loop/x"), ENOENT);
    FAILS(renameat2(AT_FDCWD, "f/", AT_FDCWD, "missing", RENAME_EXCHANGE), ENOENT);
    char too_long[NAME_MAX + 2] = "";
    memset(too_long, 'n', NAME_MAX + 1);
    FAILS(rename("f/", too_long), ENAMETOOLONG);
    FAILS(rename(too_long, "f/"), ENAMETOOLONG);
    FAILS(renameat2(AT_FDCWD, "f/", AT_FDCWD, "d", RENAME_EXCHANGE), ENOTDIR);

    /* A removed directory has no names, of any length. */
    DIR *names = opendir("d/e");
    char name[300];
    memset(name, 'n', 256), name[256] = 0;
    FAILS(openat(dirfd(names), name, O_CREAT | O_WRONLY, 0600), ENAMETOOLONG);
    CHECK(names && rmdir("d/e") == 0 && readdir(names) == NULL);
    FAILS(openat(dirfd(names), name, O_CREAT | O_WRONLY, 0600), ENOENT);
    FAILS(unlinkat(dirfd(names), name, 0), ENOENT);
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
