/* Shared mappings: stored bytes can be read, and written bytes are in the memory, also in other processes. */
#include "check.h"
enum { LEN = 64 * 1024 };
static void fill(int fd) {
    char buf[LEN];
    for (int i = 0; i < LEN; i++) buf[i] = (char)('a' + i % 23);
    CHECK(pwrite(fd, buf, LEN, 0) == LEN);
}
/* Both directions, through two opens. */
static void coherent(int fd, int other, char *map) {
    char buf[16];
    for (int i = 0; i < 200; i++) {
        size_t at = (size_t)(i * 7919) % (LEN - 16), to = (size_t)(i * 104729) % (LEN - 16);
        snprintf(map + at, 16, "m%08d", i);
        CHECK(pread(fd, buf, 16, at) == 16 && memcmp(buf, map + at, 9) == 0);
        CHECK(pread(other, buf, 16, at) == 16 && memcmp(buf, map + at, 9) == 0);
        snprintf(buf, 16, "w%08d", i);
        CHECK(pwrite(fd, buf, 9, to) == 9 && memcmp(map + to, buf, 9) == 0);
    }
}
static volatile int ended;
static void note(int signal) {
    (void)signal;
    ended++;
}
static void *store(void *at) {
    for (int i = 0; i < 500; i++) memcpy((char *)at + i % 16 * 4096, "MMMMMMMM", 8);
    return NULL;
}
MAIN
    int fd = open("f", O_CREAT | O_RDWR, 0600), other = open("f", O_RDONLY);
    fill(fd);
    /* The program notices no child of the library. */
    signal(SIGCHLD, note);
    struct stat st, named;
    char *map = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED && map[0] == 'a' && map[LEN - 1] == 'a' + (LEN - 1) % 23);
    CHECK(ended == 0 && waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
    signal(SIGCHLD, SIG_DFL);
    char *view = mmap(NULL, LEN, PROT_READ, MAP_SHARED, other, 0);
    CHECK(view != MAP_FAILED);
    coherent(fd, other, map);
    CHECK(memcmp(map, view, LEN) == 0);
    /* The file is the same for stat, and locks are those of the file. */
    CHECK(fstat(fd, &st) == 0 && stat("f", &named) == 0 && st.st_ino == named.st_ino && st.st_dev == named.st_dev);
    CHECK(flock(fd, LOCK_EX) == 0 && st.st_size == LEN);
    FAILS(flock(other, LOCK_EX | LOCK_NB), EWOULDBLOCK);
    CHECK(flock(fd, LOCK_UN) == 0);
    /* Stores of a thread and writes beside them, in the same pages. */
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, store, map) == 0);
    for (int i = 0; i < 500; i++) CHECK(pwrite(fd, "WWWWWWWW", 8, i % 16 * 4096 + 2048) == 8);
    CHECK(pthread_join(thread, NULL) == 0);
    for (int i = 0; i < 16; i++) CHECK(memcmp(map + i * 4096, "MMMMMMMM", 8) == 0 && memcmp(map + i * 4096 + 2048, "WWWWWWWW", 8) == 0);
    /* A forked process shares the memory, and reads and writes the same bytes. */
    memcpy(map + 100, "parent", 6);
    if (fork() == 0) {
        char buf[6];
        CHECK(pread(fd, buf, 6, 100) == 6 && memcmp(buf, "parent", 6) == 0);
        memcpy(map + 100, "childs", 6);
        CHECK(pwrite(fd, "written", 7, 200) == 7);
        _exit(0);
    }
    int status;
    CHECK(wait(&status) > 0 && status == 0);
    CHECK(memcmp(map + 100, "childs", 6) == 0 && memcmp(map + 200, "written", 7) == 0);
    /* Programs without the mapping write and close: the memory shows it when they have ended. */
    for (int i = 0; i < 8; i++) {
        char command[100], now[8];
        snprintf(command, sizeof command, "printf 'now%d' | dd of=f bs=1 seek=%d conv=notrunc status=none", i, 300 + 5000 * i);
        snprintf(now, sizeof now, "now%d", i);
        CHECK(system(command) == 0 && memcmp(map + 300 + 5000 * i, now, 4) == 0);
    }
    /* Append, growth and a shorter file. */
    int end = open("f", O_WRONLY | O_APPEND);
    CHECK(write(end, "appended", 8) == 8 && fstat(fd, &st) == 0 && st.st_size == LEN + 8);
    char *more = mremap(map, LEN, 2 * LEN, MREMAP_MAYMOVE);
    CHECK(more != MAP_FAILED && memcmp(more + LEN, "appended", 8) == 0 && more[LEN + 8] == 0);
    CHECK(ftruncate(fd, 2 * LEN) == 0);
    memcpy(more + 2 * LEN - 4, "last", 4);
    char four[4];
    CHECK(pread(other, four, 4, 2 * LEN - 4) == 4 && memcmp(four, "last", 4) == 0);
    CHECK(ftruncate(fd, 5000) == 0 && pread(fd, four, 4, 4998) == 2 && more[5000] == 0);
    CHECK(ftruncate(fd, LEN) == 0 && more[5000] == 0 && more[4999] != 0);
    memcpy(more + 8192, "kept", 4);
    CHECK(msync(more, LEN, MS_SYNC) == 0 && munmap(more, 2 * LEN) == 0 && munmap(view, LEN) == 0);
    CHECK(pread(other, four, 4, 8192) == 4 && memcmp(four, "kept", 4) == 0);
    CHECK(close(fd) == 0 && close(end) == 0);
    /* Without msync and after close; a part of the mapping ends first. */
    fd = open("f", O_RDWR);
    map = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED && close(fd) == 0);
    memcpy(map, "head", 4), memcpy(map + LEN - 4, "tail", 4);
    CHECK(munmap(map, 4096) == 0 && pread(other, four, 4, LEN - 4) == 4 && memcmp(four, "tail", 4) == 0);
    CHECK(munmap(map + 4096, LEN - 4096) == 0);
    CHECK(pread(other, four, 4, 0) == 4 && memcmp(four, "head", 4) == 0);
    /* A mapping becomes writable later, and shows writes before. */
    fd = open("f", O_RDWR);
    map = mmap(NULL, LEN, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED && pwrite(fd, "seen", 4, 12000) == 4 && memcmp(map + 12000, "seen", 4) == 0);
    CHECK(mprotect(map, LEN, PROT_READ | PROT_WRITE) == 0);
    memcpy(map + 50, "late", 4);
    CHECK(pread(other, four, 4, 50) == 4 && memcmp(four, "late", 4) == 0 && munmap(map, LEN) == 0 && close(fd) == 0);
    /* Files without a name. */
    fd = open("g", O_CREAT | O_RDWR, 0600);
    CHECK(unlink("g") == 0 && ftruncate(fd, 8192) == 0);
    int unnamed = open(".", O_TMPFILE | O_RDWR, 0600);
    CHECK(unnamed >= 0 && ftruncate(unnamed, 8192) == 0);
    int both[2] = {fd, unnamed};
    for (int i = 0; i < 2; i++) {
        map = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, both[i], 0);
        CHECK(map != MAP_FAILED && map[8191] == 0);
        memcpy(map + 4096, "gone", 4);
        CHECK(pread(both[i], four, 4, 4096) == 4 && memcmp(four, "gone", 4) == 0 && munmap(map, 8192) == 0);
    }
    /* Refused as by the kernel. */
    FAILS(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, other, 0), EACCES);
    return 0;
}
