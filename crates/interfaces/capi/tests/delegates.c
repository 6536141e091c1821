/* Tests against a running cluster under `weft run --delegates`: bytes of the C interface and of plain POSIX calls, which
 * the preload library serves, go through the same delegates. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft.h>

#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "%s:%d: %s: errno %d, \"%s\"\n", __FILE__, __LINE__, #what, errno, weft_error());          \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

enum { RECORD = 4700, RECORDS = 200, SIZE = RECORD * RECORDS };

static char out[SIZE], back[SIZE + RECORD];
static const char path[] = "/weft/shared";

static void check_sizes(weft_t *weft, weft_file_t *file, int fd, off_t size) {
    struct stat found;
    CHECK(weft_size(file) == size);
    CHECK(weft_fstat(file, &found) == 0 && found.st_size == size);
    CHECK(weft_stat(weft, path, &found) == 0 && found.st_size == size);
    CHECK(fstat(fd, &found) == 0 && found.st_size == size);
    CHECK(stat(path, &found) == 0 && found.st_size == size);
}

int main(void) {
    weft_t *weft = weft_connect(NULL);
    CHECK(weft != NULL);
    for (int i = 0; i < SIZE; i++)
        out[i] = (char)(i * 7 + i / 251);
    weft_file_t *file = weft_open(weft, path, O_RDWR | O_CREAT | O_EXCL, 0644);
    CHECK(file != NULL);
    int fd = open(path, O_RDWR);
    CHECK(fd >= 0);

    /* Nothing is synced or closed: only the delegates have the bytes. */
    for (int i = RECORDS - 1; i >= 0; i--)
        CHECK(weft_pwrite(file, out + i * RECORD, RECORD, (off_t)i * RECORD) == RECORD);
    CHECK(pread(fd, back, sizeof back, 0) == SIZE && memcmp(back, out, SIZE) == 0);
    check_sizes(weft, file, fd, SIZE);

    CHECK(pwrite(fd, "posix", 5, 10000) == 5);
    CHECK(weft_pread(file, back, 5, 10000) == 5 && memcmp(back, "posix", 5) == 0);
    off_t at = 0;
    CHECK(weft_append(file, "end", 3, &at) == 3 && at == SIZE);
    CHECK(pread(fd, back, 10, SIZE) == 3 && memcmp(back, "end", 3) == 0);
    check_sizes(weft, file, fd, SIZE + 3);

    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(weft_pread(file, back, 5, 10000) == 5 && memcmp(back, "posix", 5) == 0);
        CHECK(weft_pwrite(file, "child", 5, 20000) == 5);
        CHECK(weft_close(file) == 0 && weft_disconnect(weft) == 0);
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(pread(fd, back, 5, 20000) == 5 && memcmp(back, "child", 5) == 0);
    CHECK(weft_pread(file, back, 5, 20000) == 5 && memcmp(back, "child", 5) == 0);

    CHECK(weft_ftruncate(file, 15000) == 0);
    check_sizes(weft, file, fd, 15000);
    CHECK(weft_truncate(weft, path, 12000) == 0);
    check_sizes(weft, file, fd, 12000);
    CHECK(weft_fsync(file) == 0 && weft_lock(file, WEFT_LOCK_EXCLUSIVE, 0, 0, 0) == 0 && weft_unlock(file, 0, 0) == 0);

    weft_file_t *cut = weft_open(weft, path, O_WRONLY | O_TRUNC, 0);
    CHECK(cut != NULL);
    check_sizes(weft, file, fd, 0);
    CHECK(weft_pwrite(cut, "last", 4, 0) == 4 && weft_close(cut) == 0);
    CHECK(pread(fd, back, 10, 0) == 4 && memcmp(back, "last", 4) == 0);
    CHECK(close(fd) == 0 && weft_close(file) == 0 && weft_disconnect(weft) == 0);
    puts("both see the bytes of the other");
    return 0;
}
