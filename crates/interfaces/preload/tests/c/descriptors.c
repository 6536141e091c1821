/* Positions, flags, duplicates, vectors, lengths. */
#include "check.h"
MAIN
    char buf[100];
    errno = 77;
    int fd = open("f", O_CREAT | O_RDWR, 0640);
    CHECK(fd >= 3 && errno == 77); /* success does not change errno */
    CHECK(write(fd, "hello world", 11) == 11);
    CHECK(lseek(fd, 0, SEEK_CUR) == 11);
    CHECK(lseek(fd, -5, SEEK_END) == 6);
    CHECK(read(fd, buf, 100) == 5 && memcmp(buf, "world", 5) == 0);
    CHECK(read(fd, buf, 100) == 0);
    CHECK(pread(fd, buf, 3, 1) == 3 && memcmp(buf, "ell", 3) == 0);
    CHECK(pwrite(fd, "J", 1, 0) == 1);
    CHECK(lseek(fd, 0, SEEK_CUR) == 11);
    FAILS(lseek(fd, -1, SEEK_SET), EINVAL);
    FAILS(lseek(fd, 0, 99), EINVAL);
    FAILS(pread(fd, buf, 1, -1), EINVAL);

    /* A duplicate shares the position; another open does not. */
    int copy = dup(fd), other = open("f", O_RDONLY);
    CHECK(lseek(copy, 4, SEEK_SET) == 4 && lseek(fd, 0, SEEK_CUR) == 4);
    CHECK(lseek(other, 0, SEEK_CUR) == 0);
    FAILS(write(other, "x", 1), EBADF);
    CHECK(fcntl(copy, F_GETFD) == 0);
    CHECK(fcntl(copy, F_SETFD, FD_CLOEXEC) == 0 && fcntl(copy, F_GETFD) == FD_CLOEXEC);
    CHECK((fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR && (fcntl(other, F_GETFL) & O_ACCMODE) == O_RDONLY);
    int high = fcntl(fd, F_DUPFD_CLOEXEC, 50);
    CHECK(high >= 50 && fcntl(high, F_GETFD) == FD_CLOEXEC);
    CHECK(dup2(fd, 40) == 40 && dup2(40, 40) == 40);
    CHECK(dup3(fd, 41, O_CLOEXEC) == 41 && fcntl(41, F_GETFD) == FD_CLOEXEC);
    FAILS(dup3(fd, fd, 0), EINVAL);
    CHECK(close(fd) == 0);
    FAILS(read(fd, buf, 1), EBADF);
    CHECK(pread(40, buf, 1, 0) == 1 && buf[0] == 'J');
    CHECK(close_range(40, 41, 0) == 0);
    FAILS(read(40, buf, 1), EBADF);
    CHECK(pread(copy, buf, 1, 0) == 1); /* still there */
    /* A foreign descriptor replaces a Weft descriptor, and the reverse. */
    int null = open("/dev/null", O_RDWR);
    CHECK(dup2(null, other) == other);
    CHECK(write(other, "x", 1) == 1 && read(other, buf, 1) == 0);
    CHECK(dup2(copy, null) == null && pread(null, buf, 1, 0) == 1);
    close(null), close(other), close(high);

    /* Append: at the end, ignoring the position; pwrite too, as on Linux. */
    int a = open("log", O_CREAT | O_WRONLY | O_APPEND, 0644), b = open("log", O_RDWR | O_APPEND);
    CHECK(write(a, "one", 3) == 3 && write(b, "two", 3) == 3 && lseek(b, 0, SEEK_SET) == 0);
    CHECK(write(b, "three", 5) == 5 && lseek(b, 0, SEEK_CUR) == 11);
    CHECK(same(get("log"), "onetwothree"));
    CHECK(fcntl(b, F_SETFL, 0) == 0 && (fcntl(b, F_GETFL) & O_APPEND) == 0);
    CHECK(pwrite(b, "ONE", 3, 0) == 3 && same(get("log"), "ONEtwothree"));
    close(a), close(b);

    /* Vectors. */
    fd = open("v", O_CREAT | O_RDWR | O_EXCL, 0600);
    FAILS(open("v", O_CREAT | O_EXCL | O_RDWR, 0600), EEXIST);
    struct iovec out[3] = {{"ab", 2}, {"", 0}, {"cde", 3}};
    CHECK(writev(fd, out, 3) == 5 && pwritev(fd, out, 3, 5) == 5);
    char one[4], two[9];
    struct iovec in[2] = {{one, 4}, {two, 9}};
    CHECK(lseek(fd, 0, SEEK_SET) == 0 && readv(fd, in, 2) == 10 && memcmp(two, "eabcde", 6) == 0);
    CHECK(preadv(fd, in, 2, 8) == 2 && memcmp(one, "de", 2) == 0);
    CHECK(preadv2(fd, in, 1, 0, 0) == 4 && pwritev2(fd, out, 1, -1, RWF_SYNC) == 2);
    FAILS(readv(fd, in, -1), EINVAL);
    /* Flags that change what a call does are served or refused, and never ignored. */
    FAILS(preadv2(fd, in, 1, 0, 0x4000), EOPNOTSUPP);
    FAILS(pwritev2(fd, out, 1, 0, 0x4000), EOPNOTSUPP);
    struct iovec xy = {"xy", 2};
    ssize_t appended = pwritev2(fd, &xy, 1, 0, RWF_APPEND);
    CHECK(appended == 2 || (appended == -1 && errno == EOPNOTSUPP));
    CHECK(pread(fd, one, 4, 0) == 4 && memcmp(one, "abcd", 4) == 0);

    /* Lengths and holes. */
    CHECK(ftruncate(fd, 3) == 0 && same(get("v"), "abc"));
    CHECK(pwrite(fd, "z", 1, 100000) == 1);
    struct stat st;
    CHECK(fstat(fd, &st) == 0 && st.st_size == 100001 && S_ISREG(st.st_mode) && (st.st_mode & 07777) == 0600);
    memset(buf, 1, sizeof buf);
    CHECK(pread(fd, buf, 100, 500) == 100 && buf[0] == 0 && buf[99] == 0);
    CHECK(truncate("v", 200000) == 0 && stat("v", &st) == 0 && st.st_size == 200000);
    CHECK(posix_fallocate(fd, 0, 300000) == 0 && fstat(fd, &st) == 0 && st.st_size == 300000);
    CHECK(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 400000) == 0 && fstat(fd, &st) == 0 && st.st_size == 300000);
    CHECK(lseek(fd, 0, SEEK_DATA) >= 0 && lseek(fd, 250000, SEEK_HOLE) <= 300000);
    FAILS(lseek(fd, 300000, SEEK_DATA), ENXIO);
    FAILS(ftruncate(fd, -1), EINVAL);
    CHECK(fsync(fd) == 0 && fdatasync(fd) == 0 && syncfs(fd) == 0);
    CHECK(posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL) == 0 && posix_fadvise(fd, 0, 0, 99) == EINVAL);
    CHECK(!isatty(fd));
    int ro = open("v", O_RDONLY);
    FAILS(ftruncate(ro, 0), EINVAL);
    FAILS(ioctl(ro, 0x5401, buf), ENOTTY);
    struct statfs sf;
    struct statvfs sv;
    CHECK(fstatfs(fd, &sf) == 0 && statvfs(".", &sv) == 0 && fstatvfs(fd, &sv) == 0 && sv.f_namemax == 255);
    CHECK(fpathconf(fd, _PC_NAME_MAX) == 255);
    CHECK(fpathconf(fd, _PC_MAX_CANON) == 255 && fpathconf(fd, _PC_MAX_INPUT) == 255 && fpathconf(fd, _PC_VDISABLE) == 0);
    errno = 0;
    CHECK(fpathconf(fd, _PC_SOCK_MAXBUF) == -1 && fpathconf(fd, _PC_REC_INCR_XFER_SIZE) == -1 && errno == 0);

    /* From a Weft file to a foreign one inside the kernel. */
    int tmp = open("/tmp", O_TMPFILE | O_RDWR, 0600);
    off_t from = 0;
    CHECK(pwrite(fd, "0123456789", 10, 0) == 10);
    CHECK(sendfile(tmp, fd, &from, 10) == 10 && from == 10);
    CHECK(pread(tmp, buf, 100, 0) == 10 && memcmp(buf, "0123456789", 10) == 0);
    ssize_t n = copy_file_range(fd, NULL, tmp, NULL, 10, 0);
    CHECK(n >= 0 || errno == EXDEV);

    /* Directories are not regular files. */
    CHECK(mkdir("d", 0700) == 0);
    int dir = open("d", O_RDONLY | O_DIRECTORY);
    CHECK(dir >= 0);
    FAILS(read(dir, buf, 1), EISDIR);
    FAILS(open("d", O_RDWR), EISDIR);
    FAILS(open("v", O_RDONLY | O_DIRECTORY), ENOTDIR);
    FAILS(open("v/", O_RDONLY), ENOTDIR);
    FAILS(open("new/", O_CREAT | O_WRONLY, 0600), EISDIR);
    FAILS(openat(fd, "x", O_RDONLY), ENOTDIR);
    int inside = openat(dir, "x", O_CREAT | O_WRONLY, 0600);
    CHECK(inside >= 0 && write(inside, "in", 2) == 2 && same(get("d/x"), "in"));
    int handle = open("v", O_PATH);
    CHECK(handle >= 0 && fstat(handle, &st) == 0 && st.st_size == 300000);
    FAILS(read(handle, buf, 1), EBADF);
    /* An unlinked file stays readable. */
    CHECK(unlink("v") == 0 && pread(fd, buf, 4, 0) == 4 && memcmp(buf, "0123", 4) == 0);
    FAILS(open("v", O_RDONLY), ENOENT);
    return 0;
}
