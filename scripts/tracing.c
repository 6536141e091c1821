/* Load generator of tracing.sh and replicas.sh.
 *
 * calls FILE                        processor time of each kind of call on a file in the page cache, in ns
 * work FILE KIND LEN CALLS          a worker: CALLS calls for each byte from descriptor 3; their time to descriptor 4. KIND
 *                                   is pread, pwrite, read, write, sync or open (without a transfer)
 * turns COUNT CALLS WORKER WORKER   two alternating workers (commands for sh), COUNT turns each: the median ratio of the
 *                                   second worker's time to the first one's, the ratio of the sums, and the time of a call
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SPAN (16 << 20)
static char buffer[1 << 20];
static const char *path;

static void check(int good, const char *what) {
    if (!good) {
        perror(what);
        exit(1);
    }
}

static double spent(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e9 + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e3;
}

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1e9 + at.tv_nsec;
}

static int filled(const char *name) {
    path = name;
    int fd = open(path, O_RDWR | O_CREAT, 0644);
    check(fd >= 0, path);
    for (long at = 0; at < SPAN; at += sizeof buffer) check(pwrite(fd, buffer, sizeof buffer, at) > 0, "pwrite");
    return fd;
}

/* Performs the n-th call of a kind. Returns -1 if it was not complete. */
static long call(const char *kind, int fd, long len, long n) {
    long places = SPAN / len, at = n * 7 % places * len;
    if (!strcmp(kind, "pread")) return pread(fd, buffer, len, at);
    if (!strcmp(kind, "pwrite")) return pwrite(fd, buffer, len, at);
    if (!strcmp(kind, "sync")) return pwrite(fd, buffer, len, at) == len && fdatasync(fd) == 0 ? len : -1;
    if (!strcmp(kind, "open")) return close(open(path, O_RDONLY)) == 0 ? len : -1;
    if (n % places == 0) lseek(fd, 0, SEEK_SET);
    return !strcmp(kind, "read") ? read(fd, buffer, len) : write(fd, buffer, len);
}

static int calls(char **argv) {
    int fd = filled(argv[2]);
    const char *kinds[] = {"pread", "pwrite", "read", "write"};
    long lens[] = {4096, 65536, 1048576}, counts[] = {400000, 60000, 4000};
    for (int kind = 0; kind < 4; kind++)
        for (int size = 0; size < 3; size++) {
            double before = spent();
            for (long n = 0; n < counts[size]; n++) check(call(kinds[kind], fd, lens[size], n) == lens[size], kinds[kind]);
            printf("%s-%ldk %.0f\n", kinds[kind], lens[size] >> 10, (spent() - before) / counts[size]);
        }
    return 0;
}

static int work(char **argv) {
    int fd = filled(argv[2]);
    long len = atol(argv[4]), count = atol(argv[5]), n = 0;
    char token;
    while (read(3, &token, 1) == 1) {
        double before = now();
        for (long end = n + count; n < end; n++) check(call(argv[3], fd, len, n) == len, argv[3]);
        double took = now() - before;
        check(write(4, &took, sizeof took) == sizeof took, "write");
    }
    return 0;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *list, int count) {
    qsort(list, count, sizeof *list, ascending);
    return list[count / 2];
}

static int turns(char **argv) {
    int count = atoi(argv[2]), to[2], from[2];
    double per = atof(argv[3]), *times[2], *ratios = calloc(count, sizeof *ratios), sums[2] = {0, 0};
    pid_t children[2];
    for (int which = 0; which < 2; which++) {
        int there[2], back[2];
        check(pipe2(there, O_CLOEXEC) == 0 && pipe2(back, O_CLOEXEC) == 0, "pipe");
        children[which] = fork();
        check(children[which] >= 0, "fork");
        if (children[which] == 0) {
            /* Moved to higher numbers first, because either may have the number that the other one needs. */
            int in = fcntl(there[0], F_DUPFD, 20), out = fcntl(back[1], F_DUPFD, 20);
            dup2(in, 3);
            dup2(out, 4);
            close(in);
            close(out);
            execl("/bin/sh", "sh", "-c", argv[4 + which], (char *)0);
            _exit(127);
        }
        close(there[0]);
        close(back[1]);
        to[which] = there[1];
        from[which] = back[0];
        times[which] = calloc(count, sizeof(double));
    }
    for (int turn = -1; turn < count; turn++)
        for (int step = 0; step < 2; step++) {
            int which = step ^ (turn & 1);
            double took;
            check(write(to[which], "x", 1) == 1, "a worker");
            check(read(from[which], &took, sizeof took) == sizeof took, "a worker's answer");
            if (turn >= 0) {
                times[which][turn] = took;
                sums[which] += took;
            }
        }
    for (int turn = 0; turn < count; turn++) ratios[turn] = times[1][turn] / times[0][turn];
    double first = median(times[0], count), second = median(times[1], count);
    printf("%.3f %.3f %.2f %.2f\n", median(ratios, count), sums[1] / sums[0], first / per / 1e3, second / per / 1e3);
    for (int which = 0; which < 2; which++) {
        close(to[which]);
        waitpid(children[which], 0, 0);
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "calls")) return calls(argv);
    if (argc == 6 && !strcmp(argv[1], "work")) return work(argv);
    if (argc == 6 && !strcmp(argv[1], "turns")) return turns(argv);
    fputs("see the head of scripts/tracing.c\n", stderr);
    return 2;
}
