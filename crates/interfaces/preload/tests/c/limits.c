/* The limit on file sizes: bytes below it are written, others cause EFBIG and SIGXFSZ. */
#include "check.h"
#include <sys/resource.h>
static volatile sig_atomic_t signals;
static void on_signal(int signal) { signals += signal == SIGXFSZ; }
static void limit(rlim_t bytes) {
    struct rlimit now;
    CHECK(getrlimit(RLIMIT_FSIZE, &now) == 0);
    now.rlim_cur = bytes;
    CHECK(setrlimit(RLIMIT_FSIZE, &now) == 0);
}
/* The call fails because of the limit, with exactly one signal. */
#define OVER(call) \
    do { \
        int before_ = signals; \
        FAILS(call, EFBIG); \
        CHECK(signals == before_ + 1); \
    } while (0)
static off_t size_of(const char *path) {
    struct stat st;
    CHECK(stat(path, &st) == 0);
    return st.st_size;
}
MAIN
    static char bytes[10000];
    memset(bytes, 'b', sizeof bytes);
    put("f", "0123456789");
    int fd = open("f", O_RDWR);
    signal(SIGXFSZ, on_signal);
    limit(4000);
    /* Up to the limit, not beyond. */
    CHECK(pwrite(fd, bytes, 10000, 0) == 4000 && size_of("f") == 4000 && signals == 0);
    CHECK(pwrite(fd, bytes, 1, 3999) == 1);
    OVER(pwrite(fd, bytes, 1, 4000));
    OVER(pwrite(fd, bytes, 1, 5000));
    CHECK(pwrite(fd, bytes, 0, 5000) == 0 && signals == 2);
    CHECK(lseek(fd, 3990, SEEK_SET) == 3990 && write(fd, bytes, 100) == 10);
    CHECK(lseek(fd, 0, SEEK_CUR) == 4000);
    OVER(write(fd, bytes, 1));
    CHECK(lseek(fd, 0, SEEK_CUR) == 4000);
    struct iovec parts[3] = {{bytes, 3}, {bytes, 0}, {bytes, 50}};
    CHECK(pwritev(fd, parts, 3, 3990) == 10 && lseek(fd, 3995, SEEK_SET) == 3995 && writev(fd, parts, 3) == 5);
    OVER(pwritev(fd, parts, 3, 4001));
    /* Lengths: growing beyond it fails, shrinking to more than it does not. */
    OVER(ftruncate(fd, 4001));
    OVER(truncate("f", 4001));
    OVER(fallocate(fd, 0, 0, 4001));
    CHECK(fallocate(fd, 0, 0, 4000) == 0 && ftruncate(fd, 3000) == 0 && ftruncate(fd, 4000) == 0);
    CHECK(size_of("f") == 4000);
    /* Appending counts from the end. */
    int end = open("f", O_WRONLY | O_APPEND);
    OVER(write(end, bytes, 1));
    CHECK(ftruncate(fd, 3900) == 0 && write(end, bytes, 1000) == 100 && size_of("f") == 4000);
    OVER(pwrite(end, bytes, 1, 0));
    /* With the signal ignored, the error remains, also on a stream. */
    signal(SIGXFSZ, SIG_IGN);
    FAILS(pwrite(fd, bytes, 1, 4000), EFBIG);
    FILE *stream = fopen("stream", "w");
    CHECK(stream && fwrite(bytes, 1, 10000, stream) <= 10000 && (fflush(stream) != 0 || ferror(stream)));
    fclose(stream);
    CHECK(size_of("stream") == 4000);
    /* Shrinking a file that is longer than the limit. */
    limit(100);
    CHECK(ftruncate(fd, 2000) == 0 && truncate("f", 1000) == 0 && pwrite(fd, bytes, 50, 0) == 50);
    FAILS(pwrite(fd, bytes, 1, 100), EFBIG);
    limit(RLIM_INFINITY);
    CHECK(pwrite(fd, bytes, 10000, 0) == 10000 && size_of("f") == 10000);
    /* Inherited, and the default action ends the process. */
    struct rlimit now = {.rlim_cur = 10, .rlim_max = RLIM_INFINITY};
    CHECK(prlimit(0, RLIMIT_FSIZE, &now, NULL) == 0);
    signal(SIGXFSZ, SIG_DFL);
    pid_t pid = fork();
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", "exec dd if=/dev/zero of=child bs=20 count=2 2>/dev/null", (char *)NULL);
        _exit(99);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ);
    CHECK(size_of("child") == 10);
    return 0;
}
