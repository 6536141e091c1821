/* Many threads on one table of descriptors: opens, closes and reads race, and no thread sees bytes of another file. */
#include "check.h"
enum { THREADS = 8, ROUNDS = 400 };
static volatile int shared_fd = -1;
static void *worker(void *argument) {
    long me = (long)argument;
    char name[20], text[64], buf[64];
    snprintf(name, sizeof name, "t%ld", me);
    for (int i = 0; i < ROUNDS; i++) {
        int len = snprintf(text, sizeof text, "thread %ld round %d", me, i);
        int fd = open(name, O_CREAT | O_RDWR | O_TRUNC, 0600);
        CHECK(fd >= 0 && write(fd, text, len) == len);
        int copy = dup(fd);
        CHECK(copy >= 0 && close(fd) == 0);
        CHECK(pread(copy, buf, sizeof buf, 0) == len && memcmp(buf, text, len) == 0);
        CHECK(close(copy) == 0);
    }
    return NULL;
}
/* Reads a descriptor that another thread opens and closes: the bytes or EBADF, never anything else. */
static void *reader(void *argument) {
    (void)argument;
    char buf[8];
    for (int i = 0; i < 20000; i++) {
        int fd = shared_fd;
        if (fd < 0) continue;
        ssize_t n = pread(fd, buf, 8, 0);
        if (n == 8) CHECK(memcmp(buf, "constant", 8) == 0 || memcmp(buf, "thread", 6) == 0);
        else CHECK(n == 0 || (n == -1 && (errno == EBADF || errno == ESPIPE)) || n > 0);
    }
    return NULL;
}
static void *churner(void *argument) {
    (void)argument;
    for (int i = 0; i < 2000; i++) {
        int fd = open("constant", O_RDONLY);
        CHECK(fd >= 0);
        shared_fd = fd;
        close(fd);
    }
    return NULL;
}
static void *appender(void *argument) {
    int fd = *(int *)argument;
    for (int i = 0; i < 500; i++) CHECK(write(fd, "0123456789abcdef", 16) == 16);
    return NULL;
}
MAIN
    put("constant", "constant");
    pthread_t threads[THREADS + 4];
    for (long i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, worker, (void *)i) == 0);
    for (int i = 0; i < 3; i++) CHECK(pthread_create(&threads[THREADS + i], NULL, reader, NULL) == 0);
    CHECK(pthread_create(&threads[THREADS + 3], NULL, churner, NULL) == 0);
    /* Children forked during the race can use the tree. */
    for (int i = 0; i < 10; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm(20);
            CHECK(strcmp(get("constant"), "constant") == 0);
            _exit(0);
        }
        CHECK(child_status(pid) == 0);
    }
    for (int i = 0; i < THREADS + 4; i++) pthread_join(threads[i], NULL);
    /* Threads that share a position never write overlapping ranges; nor do processes. */
    int fd = open("log", O_CREAT | O_WRONLY, 0600);
    for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, appender, &fd) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        appender(&fd);
        _exit(0);
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    CHECK(child_status(pid) == 0);
    struct stat st;
    CHECK(fstat(fd, &st) == 0 && st.st_size == 5 * 500 * 16);
    FILE *f = fopen("log", "r");
    char block[16];
    while (fread(block, 1, 16, f) == 16) CHECK(memcmp(block, "0123456789abcdef", 16) == 0);
    return 0;
}
