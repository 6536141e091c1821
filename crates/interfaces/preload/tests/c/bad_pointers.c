/* Calls with pointers to nothing fail with EFAULT, and move the bytes before the hole as Linux does. */
#include "check.h"
#include <sys/ioctl.h>
#pragma GCC diagnostic ignored "-Wstringop-overflow"
#pragma GCC diagnostic ignored "-Wstringop-overread"

MAIN
    long page = sysconf(_SC_PAGESIZE);
    char *last = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(last != MAP_FAILED && mprotect(last + page, page, PROT_NONE) == 0);
    int fd = open("f", O_CREAT | O_RDWR, 0600);
    static char big[300000];
    memset(big, 'b', sizeof big);
    CHECK(write(fd, big, sizeof big) == sizeof big && mkdir("d", 0700) == 0 && symlink("f", "l") == 0);
    int dir = open("d", O_RDONLY | O_DIRECTORY), small = open("small", O_CREAT | O_RDWR, 0600);
    CHECK(write(small, "0123456789", 10) == 10);
    char open_name[40];
    snprintf(open_name, sizeof open_name, "/proc/self/fd/%d", small);
    void *bad[] = {NULL, last + page, (void *)1, (void *)-1, (void *)-4096};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        void *p = bad[i];
        /* The compiler takes arguments of some calls for valid pointers, so that comparing them says nothing. */
        int is_low = i != 3 && i != 4, is_null = i == 0;
        struct iovec one = {p, 100}, mixed[2] = {{big, 10}, {p, 10}};
        for (int k = 0; k < 2; k++) {
            int to = k ? small : fd;
            CHECK(lseek(to, 0, SEEK_SET) == 0);
            FAILS(read(to, p, 100), EFAULT);
            FAILS(write(to, p, 100), EFAULT);
            FAILS(pread(to, p, 100, 0), EFAULT);
            FAILS(pwrite(to, p, 1024, 0), EFAULT);
            FAILS(readv(to, &one, 1), EFAULT);
            FAILS(writev(to, &one, 1), EFAULT);
            FAILS(preadv(to, &one, 1, 0), EFAULT);
            FAILS(pwritev(to, &one, 1, 0), EFAULT);
            FAILS(preadv2(to, &one, 1, -1, 0), EFAULT);
            FAILS(readv(to, p, 1), EFAULT);
            FAILS(writev(to, p, 1), EFAULT);
            FAILS(syscall(SYS_read, to, p, 100), EFAULT);
            FAILS(syscall(SYS_pwrite64, to, p, 100, 0L), EFAULT);
            CHECK(lseek(to, 0, SEEK_CUR) == 0);
            if (!is_low) FAILS(read(to, p, 0), EFAULT);
            else CHECK(read(to, p, 0) == 0 && write(to, p, 0) == 0 && readv(to, mixed, 2) == 10 && lseek(to, 0, SEEK_CUR) == 10);
        }
        struct stat st;
        CHECK(fstat(small, &st) == 0 && st.st_size == 10);
        /* At the end there is nothing to store. */
        if (is_low) CHECK(lseek(fd, 0, SEEK_END) == 300000 && read(fd, p, 10) == 0 && pread(small, p, 9, 10) == 0);
        FAILS(syscall(SYS_openat, AT_FDCWD, p, O_RDONLY), EFAULT);
        FAILS(open(p, O_RDONLY), EFAULT);
        FAILS(openat(dir, p, O_RDONLY), EFAULT);
        FAILS(access(p, F_OK), EFAULT);
        FAILS(chmod(p, 0600), EFAULT);
        FAILS(chown(p, -1, -1), EFAULT);
        FAILS(mkdir(p, 0700), EFAULT);
        FAILS(mkdirat(dir, p, 0700), EFAULT);
        FAILS(rmdir(p), EFAULT);
        FAILS(unlink(p), EFAULT);
        FAILS(unlinkat(dir, p, 0), EFAULT);
        FAILS(truncate(p, 0), EFAULT);
        FAILS(chdir(p), EFAULT);
        FAILS(rename(p, "x"), EFAULT);
        FAILS(rename("f", p), EFAULT);
        FAILS(link(p, "x"), EFAULT);
        FAILS(link("f", p), EFAULT);
        FAILS(linkat(AT_FDCWD, open_name, AT_FDCWD, p, AT_SYMLINK_FOLLOW), EFAULT);
        FAILS(symlink(p, "x"), EFAULT);
        FAILS(symlink("f", p), EFAULT);
        FAILS(mknod(p, S_IFREG | 0600, 0), EFAULT);
        FAILS(stat(p, &st), EFAULT);
        FAILS(lstat(p, &st), EFAULT);
        FAILS(statfs(p, (struct statfs *)big), EFAULT);
        FAILS(getxattr(p, "user.a", big, 10), EFAULT);
        FAILS(readlink(p, big, 10), EFAULT);
        FAILS(stat("f", p), EFAULT);
        FAILS(lstat("l", p), EFAULT);
        FAILS(fstat(fd, p), EFAULT);
        FAILS(fstatat(dir, ".", p, 0), EFAULT);
        FAILS(statx(dir, ".", 0, STATX_ALL, p), EFAULT);
        FAILS(statfs("f", p), EFAULT);
        FAILS(fstatfs(fd, p), EFAULT);
        FAILS(readlink("l", p, 10), EFAULT);
        FAILS(syscall(SYS_getdents64, dir, p, 1000), EFAULT);
        FAILS(fcntl(fd, F_SETLK, p), EFAULT);
        FAILS(fcntl(fd, F_GETLK, p), EFAULT);
        FAILS(fcntl(fd, F_OFD_SETLK, p), EFAULT);
        FAILS(ioctl(fd, FIONREAD, p), EFAULT);
        FAILS(setxattr("f", "user.a", p, 10, 0), EFAULT);
        FAILS(setxattr("f", p, "v", 1, 0), EFAULT);
        FAILS(fsetxattr(fd, p, "v", 1, 0), EFAULT);
        if (!is_null) {
            FAILS(utimensat(dir, ".", p, 0), EFAULT);
            FAILS(futimens(fd, p), EFAULT);
            FAILS(sendfile(small, fd, p, 10), EFAULT);
            FAILS(copy_file_range(fd, p, small, NULL, 10, 0), EFAULT);
            errno = 0;
            CHECK(getcwd(p, 4000) == NULL && errno == EFAULT);
        }
        CHECK(fopen(p, "r") == NULL && errno == EFAULT);
        char *arguments[] = {"x", NULL};
        pid_t child;
        FAILS(execve(p, arguments, environ), EFAULT);
        FAILS(execveat(dir, p, arguments, environ, 0), EFAULT);
        FAILS(syscall(SYS_openat2, dir, p, p, 24), EFAULT);
        CHECK(posix_spawn(&child, p, NULL, NULL, arguments, environ) == EFAULT);
        struct aiocb later = {.aio_fildes = fd, .aio_buf = p, .aio_nbytes = 10};
        const struct aiocb *waited = &later;
        int submitted = is_null ? -1 : aio_write(&later);
        while (submitted == 0 && aio_error(&later) == EINPROGRESS) CHECK(aio_suspend(&waited, 1, NULL) == 0);
        CHECK(submitted != 0 || aio_error(&later) == EFAULT);
    }
    /* A result that needs more room than there is. */
    FAILS(stat("f", (struct stat *)(last + page - 10)), EFAULT);
    FAILS(pread(fd, (char *)"constant memory", 5, 0), EFAULT);
    /* Up to the hole. */
    CHECK(lseek(fd, 0, SEEK_SET) == 0 && read(fd, last + page - 100, 1000) == 100 && lseek(fd, 0, SEEK_CUR) == 100);
    CHECK(last[page - 1] == 'b');
    memset(last, 'y', page);
    CHECK(pread(small, last + page - 20, 1000, 0) == 10 && pwrite(fd, last + page - 30, 5000, 0) == 30);
    struct iovec cut[3] = {{big, 5}, {last + page - 3, 10}, {big, 5}};
    CHECK(lseek(fd, 0, SEEK_SET) == 0 && writev(fd, cut, 3) == 8 && lseek(fd, 0, SEEK_CUR) == 8);
    /* Lengths and numbers of buffers. */
    struct iovec wrong[2] = {{big, 5}, {big, (size_t)-1}};
    FAILS(readv(fd, wrong, 2), EINVAL);
    FAILS(writev(fd, wrong, 2), EINVAL);
    FAILS(pwritev(fd, wrong, 2, 0), EINVAL);
    FAILS(pwritev2(fd, wrong, 2, -1, 0), EINVAL);
    FAILS(readv(fd, wrong, -1), EINVAL);
    FAILS(writev(fd, wrong, 1025), EINVAL);
    FAILS(pwritev(fd, wrong, 1, -1), EINVAL);
    FAILS(preadv(fd, wrong, 1, -5), EINVAL);
    FAILS(pwritev2(fd, wrong, 1, -2, 0), EINVAL);
    FAILS(read(fd, big, (size_t)-1), EFAULT);
    CHECK(readv(fd, wrong, 0) == 0 && writev(fd, NULL, 0) == 0);
    /* Paths that end at the hole, and do not. */
    strcpy(last + page - 2, "f");
    CHECK(access(last + page - 2, F_OK) == 0);
    last[page - 1] = 'f';
    FAILS(access(last + page - 2, F_OK), EFAULT);
    /* Memory that changes its kind is looked at again. */
    CHECK(mprotect(last, page, PROT_READ) == 0);
    FAILS(pread(fd, last, 10, 0), EFAULT);
    CHECK(mprotect(last, page, PROT_READ | PROT_WRITE) == 0 && pread(fd, last, 10, 0) == 10 && munmap(last, page) == 0);
    FAILS(pread(fd, last, 10, 0), EFAULT);
    return 0;
}
