/* Control of read.py: reads a file with the C interface each time a line arrives, and prints the nanoseconds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <weft.h>

static long long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

int main(int argc, char **argv) {
    if (argc != 4)
        return 2;
    weft_t *weft = weft_connect(argv[1]);
    weft_file_t *file = weft == NULL ? NULL : weft_open(weft, argv[2], O_RDONLY, 0);
    size_t length = strtoull(argv[3], NULL, 10);
    char line[16];
    char *buffer = malloc(length);
    // The same memory as that of an array of numpy: from malloc, with large pages where whole ones fit.
    uintptr_t whole = ((uintptr_t)buffer + 4095) & ~(uintptr_t)4095;
    if (file == NULL || buffer == NULL || madvise((void *)whole, length - 4096, MADV_HUGEPAGE) != 0) {
        fprintf(stderr, "%s\n", weft_error());
        return 1;
    }
    memset(buffer, 1, length);
    while (fgets(line, sizeof line, stdin) != NULL) {
        long long begin = now_ns();
        ssize_t read = weft_pread(file, buffer, length, 0);
        long long took_ns = now_ns() - begin;
        if (read != (ssize_t)length) {
            fprintf(stderr, "%zd bytes: %s\n", read, weft_error());
            return 1;
        }
        printf("%lld\n", took_ns);
        fflush(stdout);
    }
    return weft_close(file) == 0 && weft_disconnect(weft) == 0 ? 0 : 1;
}
