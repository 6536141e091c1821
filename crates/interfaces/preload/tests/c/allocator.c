/* A program with its own allocator: it must start, allocate in threads, and use files of the mount. */
#include "check.h"
/* A function that only the intended allocator has; its absence shows that another one was linked. */
int OWN();
static void *work(void *seed) {
    unsigned state = (unsigned)(uintptr_t)seed;
    void *kept[64] = {0};
    for (int i = 0; i < 20000; i++) {
        void **slot = &kept[(state = state * 1103515245 + 12345) >> 16 & 63];
        free(*slot);
        size_t len = state >> 20 & 0xfff;
        *slot = calloc(1, len + 1);
        CHECK(*slot != NULL);
    }
    for (int i = 0; i < 64; i++) free(kept[i]);
    char name[20];
    snprintf(name, sizeof name, "t%u", (unsigned)(uintptr_t)seed);
    int fd = open(name, O_CREAT | O_RDWR, 0600);
    CHECK(fd >= 0 && write(fd, name, strlen(name)) == (ssize_t)strlen(name) && close(fd) == 0);
    return NULL;
}
MAIN
    CHECK((void *)OWN != NULL);
    if (argc > 2) { /* executed again, with a working directory and an open file that were inherited */
        char text[8];
        CHECK(read(60, text, 2) == 2 && memcmp(text, "t1", 2) == 0 && same(get("t2"), "t2"));
        return 7;
    }
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, work, (void *)(i + 1)) == 0);
    for (int i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(same(get("t1"), "t1") && same(get("t4"), "t4"));
    char path[64];
    FAILS(readlink("/etc/there-is-no-such-link", path, sizeof path), ENOENT);
    CHECK(dup2(open("t1", O_RDONLY), 60) == 60);
    pid_t pid = fork();
    if (pid == 0) {
        execl(argv[0], argv[0], ".", "again", (char *)NULL);
        _exit(99);
    }
    CHECK(child_status(pid) == 7);
    pid = fork();
    if (pid == 0) {
        put("child", "was here");
        _exit(0);
    }
    CHECK(child_status(pid) == 0 && same(get("child"), "was here"));
    CHECK(system("cat t3 > copied") == 0 && same(get("copied"), "t3"));
    return 0;
}
