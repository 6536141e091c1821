/* Flags, commands and numbers that the kernel refuses, and the order in which it looks at them. */
#include "check.h"
#include <linux/fs.h>
#include <sys/ioctl.h>
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif

MAIN
    put("f", "0123456789");
    CHECK(mkdir("d", 0700) == 0 && symlink("f", "l") == 0);
    int fd = open("f", O_RDWR), reads = open("f", O_RDONLY), path = open("f", O_PATH), dir = open(".", O_RDONLY | O_DIRECTORY);
    int writes = open("f", O_WRONLY);
    struct stat st;
    char buf[100];
    int unknown = 0x8;

    /* A descriptor of a link, a pipe or a socket itself. */
    int itself = open("l", O_PATH | O_NOFOLLOW);
    CHECK(itself >= 0 && fstat(itself, &st) == 0 && S_ISLNK(st.st_mode));
    CHECK(readlinkat(itself, "", buf, sizeof buf) == 1 && buf[0] == 'f');
    FAILS(read(itself, buf, 1), EBADF);
    FAILS(open("l", O_PATH | O_NOFOLLOW | O_DIRECTORY), ENOTDIR);
    CHECK(mkfifo("pipe", 0600) == 0);
    int pipe = open("pipe", O_PATH);
    CHECK(pipe >= 0 && fstat(pipe, &st) == 0 && S_ISFIFO(st.st_mode));
    CHECK(mknod("socket", S_IFSOCK | 0600, 0) == 0);
    int named = open("socket", O_PATH);
    CHECK(named >= 0 && fstat(named, &st) == 0 && S_ISSOCK(st.st_mode));
    CHECK(close(itself) == 0 && close(pipe) == 0 && close(named) == 0);
    CHECK(unlink("pipe") == 0 && unlink("socket") == 0);

    FAILS(unlinkat(dir, "f", unknown), EINVAL);
    FAILS(unlinkat(dir, "missing", AT_SYMLINK_NOFOLLOW), EINVAL);
    FAILS(linkat(dir, "f", dir, "x", unknown), EINVAL);
    FAILS(linkat(dir, "missing", dir, "x", AT_SYMLINK_NOFOLLOW), EINVAL);
    FAILS(link("", "x"), ENOENT);
    FAILS(link("f", ""), ENOENT);
    FAILS(link("missing", "x"), ENOENT);
    FAILS(rename("", "x"), ENOENT);
    FAILS(rename("f", ""), ENOENT);
    FAILS(symlink("", "x"), ENOENT);
    FAILS(mkdir("", 0700), ENOENT);
    FAILS(unlink(""), ENOENT);
    FAILS(stat("", &st), ENOENT);
    FAILS(open("", O_RDONLY), ENOENT);
    FAILS(truncate("", 0), ENOENT);
    FAILS(access("", F_OK), ENOENT);
    FAILS(renameat2(dir, "f", dir, "x", 0x8), EINVAL);
    FAILS(renameat2(dir, "f", dir, "d", RENAME_NOREPLACE | RENAME_EXCHANGE), EINVAL);
    FAILS(renameat2(dir, "f", dir, "d", RENAME_NOREPLACE), EEXIST);
    FAILS(fstatat(dir, "f", &st, unknown), EINVAL);
    FAILS(fstatat(fd, "", &st, 0), ENOENT);
    CHECK(fstatat(fd, "", &st, AT_EMPTY_PATH) == 0 && st.st_size == 10);
    CHECK(fstatat(dir, "l", &st, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) == 0 && S_ISLNK(st.st_mode));
    struct statx stx;
    FAILS(statx(dir, "f", unknown, STATX_ALL, &stx), EINVAL);
    FAILS(statx(dir, "f", AT_STATX_FORCE_SYNC | AT_STATX_DONT_SYNC, STATX_ALL, &stx), EINVAL);
    FAILS(statx(dir, "f", 0, 0x80000000u, &stx), EINVAL);
    CHECK(statx(dir, "f", AT_STATX_FORCE_SYNC, STATX_ALL, &stx) == 0 && stx.stx_size == 10);
    char *none[] = {"f", NULL};
    CHECK(symlink("/bin/false", "program") == 0);
    FAILS(execveat(dir, "program", none, environ, AT_SYMLINK_NOFOLLOW), ELOOP);
    FAILS(syscall(SYS_execveat, dir, "program", none, environ, AT_SYMLINK_NOFOLLOW), ELOOP);
    FAILS(execveat(dir, "program", none, environ, unknown), EINVAL);
    FAILS(execveat(fd, "", none, environ, 0), ENOENT);
    FAILS(execveat(dir, "missing", none, environ, AT_SYMLINK_NOFOLLOW), ENOENT);
    FAILS(execveat(fd, "program", none, environ, 0), ENOTDIR);
    FAILS(faccessat(dir, "f", 0x10, 0), EINVAL);
    FAILS(faccessat(dir, "f", R_OK, unknown), EINVAL);
    FAILS(syscall(SYS_faccessat2, dir, "f", R_OK, unknown), EINVAL);
    CHECK(faccessat(dir, "f", R_OK, AT_EACCESS) == 0 && faccessat(dir, "l", F_OK, AT_SYMLINK_NOFOLLOW) == 0);
    FAILS(access("f", 8), EINVAL);
    FAILS(fchmodat(dir, "f", 0600, unknown), EINVAL);
    FAILS(syscall(SYS_fchmodat2, dir, "f", 0600, unknown), EINVAL);
    FAILS(syscall(SYS_fchmodat2, dir, "f", 0600, AT_REMOVEDIR), EINVAL);
    CHECK(syscall(SYS_fchmodat2, dir, "f", 0640, 0) == 0 && syscall(SYS_fchmodat2, fd, "", 0600, AT_EMPTY_PATH) == 0);
    FAILS(syscall(SYS_fchmodat2, dir, "l", 0600, AT_SYMLINK_NOFOLLOW), EOPNOTSUPP);
    FAILS(fchownat(dir, "f", -1, -1, unknown), EINVAL);
    CHECK(fchownat(dir, "l", -1, -1, AT_SYMLINK_NOFOLLOW) == 0 && fchownat(fd, "", -1, -1, AT_EMPTY_PATH) == 0);
    struct timespec omit[2] = {{0, UTIME_OMIT}, {0, UTIME_OMIT}}, wrong[2] = {{0, 1000000000}, {0, 0}}, now[2] = {{1, 2}, {3, 4}};
    FAILS(utimensat(dir, "f", now, unknown), EINVAL);
    FAILS(utimensat(dir, "f", wrong, 0), EINVAL);
    FAILS(futimens(fd, wrong), EINVAL);
    FAILS(futimens(path, now), EBADF);
    CHECK(futimens(path, omit) == 0);
    CHECK(utimensat(dir, "f", omit, 0) == 0 && utimensat(dir, "f", now, AT_SYMLINK_NOFOLLOW) == 0);
    CHECK(syscall(SYS_utimensat, fd, NULL, now, 0) == 0 && fstat(fd, &st) == 0 && st.st_mtim.tv_sec == 3);
    FAILS(mknod("n", S_IFDIR | 0700, 0), EPERM);
    FAILS(mknod("n", 0150000 | 0700, 0), EINVAL);
    FAILS(mknodat(dir, "f", S_IFREG | 0600, 0), EEXIST);

    /* Descriptors that only refer to a file, or may not read or write it. */
    FAILS(read(path, buf, 1), EBADF);
    FAILS(write(path, buf, 1), EBADF);
    FAILS(pread(path, buf, 1, 0), EBADF);
    FAILS(lseek(path, 0, SEEK_SET), EBADF);
    FAILS(ftruncate(path, 0), EBADF);
    FAILS(fsync(path), EBADF);
    FAILS(fallocate(path, 0, 0, 1), EBADF);
    FAILS(fcntl(path, F_SETFL, 0), EBADF);
    FAILS(fcntl(path, F_SETLK, &(struct flock){.l_type = F_RDLCK}), EBADF);
    FAILS(ioctl(path, FIONREAD, buf), EBADF);
    FAILS(fchmod(path, 0600), EBADF);
    FAILS(fchown(path, -1, -1), EBADF);
    FAILS(futimens(path, now), EBADF);
    FAILS(fgetxattr(path, "user.a", buf, 10), EBADF);
    FAILS(fsetxattr(path, "user.a", "v", 1, 0), EBADF);
    FAILS(flistxattr(path, buf, 10), EBADF);
    FAILS(syncfs(path), EBADF);
    FAILS(flock(path, LOCK_SH), EBADF);
    FAILS(syscall(SYS_getdents64, open(".", O_PATH | O_DIRECTORY), buf, 100), EBADF);
    CHECK(posix_fadvise(path, 0, 0, 0) == EBADF && (fcntl(path, F_GETFL) & O_PATH) && fstat(path, &st) == 0);
    int neither = open("f", O_ACCMODE);
    CHECK(neither >= 0);
    FAILS(read(neither, buf, 1), EBADF);
    FAILS(write(neither, "x", 1), EBADF);
    FAILS(ftruncate(reads, 0), EINVAL);
    FAILS(fallocate(reads, 0, 0, 1), EBADF);
    FAILS(readahead(writes, 0, 10), EBADF);

    /* Flags by ioctl. */
    int on = 1;
    CHECK(ioctl(reads, FIONBIO, &on) == 0 && (fcntl(reads, F_GETFL) & O_NONBLOCK));
    on = 0;
    CHECK(ioctl(reads, FIONBIO, &on) == 0 && !(fcntl(reads, F_GETFL) & O_NONBLOCK));
    FAILS(ioctl(reads, FIONBIO, NULL), EFAULT);
    FAILS(ioctl(path, FIONBIO, &on), EBADF);

    /* Offsets, lengths and modes. */
    FAILS(lseek(fd, 0, 5), EINVAL);
    FAILS(lseek(fd, 0, -1), EINVAL);
    FAILS(lseek(fd, -11, SEEK_END), EINVAL);
    FAILS(lseek(fd, -1, SEEK_SET), EINVAL);
    FAILS(lseek(fd, -1, SEEK_DATA), ENXIO);
    FAILS(lseek(fd, 10, SEEK_DATA), ENXIO);
    FAILS(lseek(fd, 11, SEEK_HOLE), ENXIO);
    FAILS(pread(fd, buf, 1, -1), EINVAL);
    FAILS(pwrite(fd, buf, 1, -1), EINVAL);
    FAILS(pread(path, buf, 1, -1), EINVAL);
    FAILS(ftruncate(fd, -1), EINVAL);
    FAILS(ftruncate(reads, -1), EINVAL);
    FAILS(truncate("f", -1), EINVAL);
    FAILS(truncate("d", 0), EISDIR);
    FAILS(fallocate(fd, 0, -1, 1), EINVAL);
    FAILS(fallocate(fd, 0, 0, 0), EINVAL);
    FAILS(fallocate(fd, 0, 0, -1), EINVAL);
    FAILS(fallocate(fd, 0, LONG_MAX, 1), EFBIG);
    FAILS(fallocate(fd, FALLOC_FL_PUNCH_HOLE, 0, 1), EOPNOTSUPP);
    FAILS(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE, 0, 1), EOPNOTSUPP);
    FAILS(fallocate(fd, 0x1000, 0, 1), EOPNOTSUPP);
    FAILS(fallocate(reads, 0x1000, 0, 1), EOPNOTSUPP);
    CHECK(posix_fadvise(fd, 0, -1, 0) == EINVAL && posix_fadvise(fd, 0, 0, 6) == EINVAL && posix_fadvise(fd, 0, 0, -1) == EINVAL);
    CHECK(posix_fallocate(fd, 0, 0) == EINVAL && posix_fallocate(reads, 0, 1) == EBADF);
    FAILS(sync_file_range(fd, 0, 0, 8), EINVAL);
    FAILS(sync_file_range(fd, -1, 0, 0), EINVAL);
    CHECK(sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE) == 0);
    struct iovec one = {buf, 1};
    FAILS(preadv2(fd, &one, 1, 0, 0x10000), EOPNOTSUPP);
    FAILS(preadv2(fd, &one, 1, -2, 0), EINVAL);
    FAILS(pwritev2(fd, &one, 1, -2, 0), EINVAL);

    /* By number. */
    CHECK(syscall(SYS_lseek, fd, 0L, SEEK_SET) == 0 && syscall(SYS_readv, fd, &one, 1) == 1 && buf[0] == '0');
    CHECK(syscall(SYS_preadv2, fd, &one, 1, -1L, -1L, 0) == 1 && buf[0] == '1');
    CHECK(syscall(SYS_preadv2, fd, &one, 1, 5L, 0L, 0) == 1 && buf[0] == '5');
    CHECK(syscall(SYS_pwritev2, fd, &one, 1, 5L, 0L, 0) == 1 && syscall(SYS_fcntl, fd, F_GETFD) == 0);
    long copied = syscall(SYS_dup, fd);
    CHECK(copied > fd && syscall(SYS_dup3, fd, copied, O_CLOEXEC) == copied && read(copied, buf, 1) == 1 && buf[0] == '2');
    CHECK(syscall(SYS_flock, fd, LOCK_EX) == 0 && syscall(SYS_flock, fd, LOCK_UN) == 0 && close(copied) == 0);
    FAILS(vmsplice(fd, &one, 1, 0), EBADF);
    FAILS(tee(fd, fd, 10, 0), EINVAL);

    /* Commands of fcntl and ioctl. */
    FAILS(fcntl(fd, 99999), EINVAL);
    FAILS(fcntl(fd, F_GETPIPE_SZ), EBADF);
    FAILS(fcntl(fd, F_SETPIPE_SZ, 4096), EBADF);
    FAILS(fcntl(fd, F_ADD_SEALS, 0), EINVAL);
    FAILS(fcntl(fd, F_GET_SEALS), EINVAL);
    FAILS(fcntl(fd, F_NOTIFY, DN_MODIFY), ENOTDIR);
    FAILS(fcntl(fd, F_SETLEASE, 99), EINVAL);
    FAILS(fcntl(fd, F_SETLEASE, F_UNLCK), EAGAIN);
    FAILS(fcntl(fd, F_DUPFD, -1), EINVAL);
    FAILS(fcntl(fd, F_DUPFD, 1 << 30), EINVAL);
    FAILS(fcntl(fd, F_SETLK, &(struct flock){.l_type = 7}), EINVAL);
    FAILS(fcntl(fd, F_SETLK, &(struct flock){.l_type = F_WRLCK, .l_whence = 9}), EINVAL);
    FAILS(fcntl(fd, F_SETLK, &(struct flock){.l_type = F_WRLCK, .l_start = -1}), EINVAL);
    FAILS(fcntl(fd, F_OFD_SETLK, &(struct flock){.l_type = F_WRLCK, .l_pid = 1}), EINVAL);
    FAILS(fcntl(reads, F_SETLK, &(struct flock){.l_type = F_WRLCK}), EBADF);
    CHECK(fcntl(fd, F_GETLEASE) == F_UNLCK && fcntl(fd, F_GETOWN) == 0 && fcntl(fd, F_GETSIG) == 0);
    uint64_t hint = 77;
    CHECK(fcntl(fd, F_GET_RW_HINT, &hint) == 0 && hint == 0);
    hint = 99;
    FAILS(fcntl(fd, F_SET_RW_HINT, &hint), EINVAL);
    CHECK(fcntl(fd, F_SETFL, 1 << 30) == 0 && (fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND)) == O_RDWR);
    CHECK(fcntl(fd, F_SETFL, O_APPEND | O_WRONLY) == 0 && (fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND)) == (O_RDWR | O_APPEND));
    FAILS(flock(fd, 16), EINVAL);
    FAILS(ioctl(fd, TCGETS, buf), ENOTTY);
    FAILS(open("f", O_RDONLY | O_DIRECTORY), ENOTDIR);
    FAILS(open("l", O_RDONLY | O_NOFOLLOW), ELOOP);
    /* Without restrictions `openat2` follows links to other file systems. */
    CHECK(symlink("/dev/null", "away") == 0);
    struct { uint64_t flags, mode, resolve; } how = {O_RDONLY, 0, 0};
    int away = syscall(SYS_openat2, dir, "away", &how, sizeof how);
    CHECK(away >= 0 && fstat(away, &st) == 0 && S_ISCHR(st.st_mode));
    FAILS(open("d", O_WRONLY), EISDIR);
    FAILS(open("d", O_RDONLY | O_CREAT, 0600), EISDIR);
    FAILS(open("d", O_TMPFILE | O_RDONLY, 0600), EINVAL);
    FAILS(open("new", O_CREAT | O_DIRECTORY, 0700), EINVAL);
    FAILS(openat(fd, "x", O_RDONLY), ENOTDIR);
    FAILS(dup2(fd, -1), EBADF);
    FAILS(dup3(fd, fd, 0), EINVAL);
    FAILS(dup3(fd, 50, 0x4), EINVAL);
    FAILS(read(dir, buf, 1), EISDIR);
    FAILS(read(dir, buf, 0), EISDIR);
    CHECK(fsync(dir) == 0);
    return 0;
}
