/* Fills a small file system through delegates: argv[1] is a directory on it. The error reaches the program. */
#include "check.h"

MAIN
    int fd = open("full", O_CREAT | O_WRONLY, 0644);
    CHECK(fd >= 0);
    static char block[64 * 1024];
    memset(block, 'x', sizeof block);
    int failed = 0;
    for (int number = 0; number < 200 && !failed; number++) {
        errno = 0;
        if (write(fd, block, sizeof block) < (ssize_t)sizeof block) failed = errno;
    }
    errno = 0;
    if (fsync(fd) != 0 && !failed) failed = errno;
    errno = 0;
    if (close(fd) != 0 && !failed) failed = errno;
    CHECK(failed == ENOSPC);
    printf("no space\n");
    return 0;
}
