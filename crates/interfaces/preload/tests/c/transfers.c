/* Calls that move bytes between two descriptors, in the order in which programs try them. */
#include "check.h"
#include <poll.h>
#include <sys/socket.h>
#include <sys/ioctl.h>

static char bytes[300000], got[300000];

static void same_bytes(int fd, size_t len) {
    memset(got, 0, sizeof got);
    size_t done = 0;
    ssize_t n;
    while ((n = pread(fd, got + done, sizeof got - done, done)) > 0) done += n;
    CHECK(n == 0 && done == len && memcmp(got, bytes, len) == 0);
}

/* All bytes by sendfile, with an offset or by the position. */
static void send_all(int to, int from, int by_offset) {
    off_t at = 0;
    ssize_t n;
    CHECK(lseek(from, 0, SEEK_SET) == 0);
    while ((n = sendfile(to, from, by_offset ? &at : NULL, 1 << 30)) > 0) ;
    CHECK(n == 0 && lseek(from, 0, SEEK_CUR) == (by_offset ? 0 : (off_t)sizeof bytes));
    if (by_offset) CHECK(at == sizeof bytes);
}

MAIN
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = i * 7 + i / 251;
    int local = open("/tmp", O_TMPFILE | O_RDWR, 0600), back = open("/tmp", O_TMPFILE | O_RDWR, 0600);
    CHECK(write(local, bytes, sizeof bytes) == sizeof bytes);
    for (int by_offset = 0; by_offset < 2; by_offset++) {
        int one = open("one", O_CREAT | O_RDWR | O_TRUNC, 0600), two = open("two", O_CREAT | O_RDWR | O_TRUNC, 0600);
        CHECK(ftruncate(back, 0) == 0 && lseek(back, 0, SEEK_SET) == 0);
        send_all(one, local, by_offset);
        CHECK(lseek(one, 0, SEEK_CUR) == sizeof bytes);
        same_bytes(one, sizeof bytes);
        send_all(two, one, by_offset);
        same_bytes(two, sizeof bytes);
        send_all(back, two, by_offset);
        same_bytes(back, sizeof bytes);
        close(one), close(two);
    }
    /* In the middle, and no further than asked for. */
    int fd = open("part", O_CREAT | O_RDWR, 0600);
    off_t at = 100;
    CHECK(lseek(fd, 50, SEEK_SET) == 50 && sendfile(fd, local, &at, 1000) == 1000 && at == 1100);
    CHECK(lseek(fd, 0, SEEK_CUR) == 1050 && pread(fd, got, 2000, 50) == 1000 && memcmp(got, bytes + 100, 1000) == 0);
    CHECK(sendfile(fd, local, &at, 0) == 0);
    at = sizeof bytes;
    CHECK(sendfile(fd, local, &at, 10) == 0 && at == sizeof bytes && lseek(fd, 0, SEEK_CUR) == 1050);
    at = -1;
    FAILS(sendfile(fd, local, &at, 10), EINVAL);
    /* Wrong ends. */
    int reads = open("part", O_RDONLY), appends = open("part", O_WRONLY | O_APPEND), writes = open("part", O_WRONLY);
    FAILS(sendfile(reads, local, NULL, 10), EBADF);
    FAILS(sendfile(fd, writes, NULL, 10), EBADF);
    FAILS(sendfile(appends, local, NULL, 10), EINVAL);
    FAILS(sendfile(fd, -1, NULL, 10), EBADF);
    FAILS(sendfile(-1, fd, NULL, 10), EBADF);
    int ends[2];
    CHECK(pipe(ends) == 0 && write(ends[1], "piped", 5) == 5);
    FAILS(sendfile(fd, ends[0], NULL, 5), EINVAL);
    at = 0;
    FAILS(sendfile(fd, ends[0], &at, 5), ESPIPE);
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && write(pair[0], "sent", 4) == 4);
    FAILS(sendfile(fd, pair[1], NULL, 4), EINVAL);
    at = 10;
    CHECK(sendfile(pair[0], fd, &at, 40) == 40 && at == 50 && recv(pair[1], got, 100, 0) >= 4);

    /* splice needs a pipe; programs know the error of those that cannot. */
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    FAILS(splice(fd, NULL, local, NULL, 10, 0), EINVAL);
    CHECK(read(ends[0], got, 100) == 5);
    CHECK(ftruncate(fd, 0) == 0 && pwrite(fd, bytes, sizeof bytes, 0) == sizeof bytes);
    CHECK(lseek(fd, 0, SEEK_SET) == 0 && splice(fd, NULL, ends[1], NULL, 1000, 0) == 1000 && lseek(fd, 0, SEEK_CUR) == 1000);
    CHECK(read(ends[0], got, 2000) == 1000 && memcmp(got, bytes, 1000) == 0);
    off64_t place = 5;
    CHECK(splice(fd, &place, ends[1], NULL, 100, 0) == 100 && place == 105 && lseek(fd, 0, SEEK_CUR) == 1000);
    CHECK(read(ends[0], got, 2000) == 100 && memcmp(got, bytes + 5, 100) == 0);
    /* No more than the pipe holds. */
    place = 0;
    ssize_t n = splice(fd, &place, ends[1], NULL, sizeof bytes, 0);
    CHECK(n > 0 && n <= fcntl(ends[1], F_GETPIPE_SZ) && place == n);
    FAILS(splice(fd, &place, ends[1], NULL, sizeof bytes, SPLICE_F_NONBLOCK), EAGAIN);
    int out = open("spliced", O_CREAT | O_RDWR, 0600);
    ssize_t left = n;
    while (left > 0) {
        ssize_t m = splice(ends[0], NULL, out, NULL, left, 0);
        CHECK(m > 0);
        left -= m;
    }
    CHECK(lseek(out, 0, SEEK_CUR) == n && pread(out, got, sizeof got, 0) == n && memcmp(got, bytes, n) == 0);
    FAILS(splice(ends[0], NULL, out, NULL, 10, SPLICE_F_NONBLOCK), EAGAIN);
    place = 7;
    CHECK(write(ends[1], "later", 5) == 5 && splice(ends[0], NULL, out, &place, 100, 0) == 5 && place == 12);
    CHECK(lseek(out, 0, SEEK_CUR) == n && pread(out, got, 5, 7) == 5 && memcmp(got, "later", 5) == 0);
    CHECK(close(ends[1]) == 0 && splice(ends[0], NULL, out, NULL, 10, 0) == 0);
    FAILS(splice(ends[0], &place, out, NULL, 10, 0), ESPIPE);
    FAILS(splice(ends[0], NULL, appends, NULL, 10, 0), EINVAL);
    FAILS(splice(ends[0], NULL, out, NULL, 10, 0x100), EINVAL);

    /* Copies of files: by the kernel, or with the error after which programs copy themselves. */
    CHECK(lseek(local, 0, SEEK_SET) == 0 && lseek(out, 0, SEEK_SET) == 0);
    n = copy_file_range(local, NULL, out, NULL, 100, 0);
    CHECK(n == 100 || (n == -1 && errno == EXDEV));
    FAILS(copy_file_range(fd, NULL, out, NULL, 100, 1), EINVAL);
    FAILS(copy_file_range(fd, NULL, reads, NULL, 100, 0), EBADF);
    FAILS(copy_file_range(writes, NULL, fd, NULL, 100, 0), EBADF);
    return 0;
}
