/* Every program here runs twice: on a plain directory without the library, and under the mount with it. */
#define _GNU_SOURCE
#include <aio.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            dprintf(2, "%s:%d: %s (errno %d: %s)\n", __FILE__, __LINE__, #condition, errno, strerror(errno)); \
            _exit(1); \
        } \
    } while (0)
/* The call fails with this error. */
#define FAILS(call, error) \
    do { \
        errno = 0; \
        long result_ = (long)(call); \
        if (result_ != -1 || errno != (error)) { \
            dprintf(2, "%s:%d: %s gave %ld, errno %d, not %d\n", __FILE__, __LINE__, #call, result_, errno, error); \
            _exit(1); \
        } \
    } while (0)

extern char **environ;

static int is_served(void) { return getenv("WEFT_TEST_SERVED") != NULL; }

static void put(const char *path, const char *text) {
    int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0644);
    CHECK(fd >= 0);
    CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    CHECK(close(fd) == 0);
}

static const char *get(const char *path) {
    static char text[65536];
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    ssize_t n = read(fd, text, sizeof text - 1);
    CHECK(n >= 0);
    text[n] = 0;
    CHECK(close(fd) == 0);
    return text;
}

static int same(const char *a, const char *b) {
    if (strcmp(a, b) == 0) return 1;
    dprintf(2, "got \"%s\", not \"%s\"\n", a, b);
    return 0;
}

static int child_status(pid_t pid) {
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

static void unused(void) { (void)put; (void)get; (void)same; (void)child_status; (void)is_served; }
#define MAIN int main(int argc, char **argv) { (void)argc; unused(); CHECK(chdir(argv[1]) == 0);
