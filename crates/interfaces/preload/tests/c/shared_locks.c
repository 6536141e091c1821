/* flock belongs to the open file description: it lasts until the last descriptor is closed, whichever process
 * acquired it. */
#include "check.h"
static const char *self;
/* Whether another open of the file could acquire the lock now, tested by a separate program. */
static int is_free(void) {
    pid_t pid = fork();
    if (pid == 0) {
        for (int fd = 3; fd < 100; fd++) close(fd);
        execl(self, self, ".", "try", (char *)NULL);
        _exit(99);
    }
    int status = child_status(pid);
    CHECK(status == 0 || status == 1);
    return status == 0;
}
/* The end of a lock in another process becomes visible after a moment. */
static int becomes_free(void) {
    for (int i = 0; i < 1000; i++) {
        if (is_free()) return 1;
        usleep(10000);
    }
    return 0;
}
/* A program that locks the inherited descriptor `fd`, and ends. */
static int locks(int fd, const char *how) {
    char number[16];
    snprintf(number, sizeof number, "%d", fd);
    pid_t pid = fork();
    if (pid == 0) {
        execl(self, self, ".", how, number, (char *)NULL);
        _exit(99);
    }
    return child_status(pid);
}
/* Whether the process goes to sleep in a system call, or ends, within ten seconds. */
static int falls_asleep(pid_t pid) {
    char name[64], text[512];
    snprintf(name, sizeof name, "/proc/%d/stat", pid);
    for (int i = 0; i < 10000; i++) {
        FILE *file = fopen(name, "r");
        size_t len = file ? fread(text, 1, sizeof text - 1, file) : 0;
        if (file) fclose(file);
        text[len] = 0;
        /* The state follows the name of the program, which is in parentheses. */
        const char *end = strrchr(text, ')');
        if (end && end[1] == ' ' && (end[2] == 'S' || end[2] == 'Z')) return 1;
        usleep(1000);
    }
    return 0;
}
static volatile int ended;
static void note(int signal) {
    (void)signal;
    ended++;
}
/* A process of the library holds the lock from the fork on; the program notices no end of a child. */
static void unnoticed(void) {
    signal(SIGCHLD, note);
    int fd = open("unnoticed", O_CREAT | O_RDWR, 0600);
    CHECK(fd >= 0 && flock(fd, LOCK_EX) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(60);
        pause();
        _exit(0);
    }
    CHECK(ended == 0 && waitpid(-1, NULL, WNOHANG) == 0);
    CHECK(kill(pid, SIGKILL) == 0 && waitpid(-1, NULL, 0) == pid && close(fd) == 0);
    signal(SIGCHLD, SIG_DFL);
}
MAIN
    char path[PATH_MAX], byte;
    self = realpath("/proc/self/exe", path);
    if (argc > 2) {
        int fd = argc > 3 ? atoi(argv[3]) : open("f", O_RDWR);
        if (strcmp(argv[2], "try") == 0) return flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno == EWOULDBLOCK ? 1 : 2;
        if (strcmp(argv[2], "hold") == 0) return read(0, &byte, 1) == 0 ? 0 : 3;
        int how = strcmp(argv[2], "ex") == 0 ? LOCK_EX : strcmp(argv[2], "sh") == 0 ? LOCK_SH : LOCK_UN;
        return flock(fd, how) == 0 ? 0 : errno;
    }
    put("f", "text");
    CHECK(is_free());
    unnoticed();

    /* Acquired by an executed child that has ended. */
    int fd = open("f", O_RDWR), again = dup(fd);
    CHECK(locks(fd, "ex") == 0 && !is_free());
    CHECK(locks(fd, "ex") == 0 && flock(again, LOCK_EX | LOCK_NB) == 0 && !is_free());
    CHECK(pwrite(fd, "T", 1, 0) == 1 && same(get("f"), "Text"));
    CHECK(locks(fd, "un") == 0 && is_free());
    CHECK(locks(fd, "ex") == 0 && close(fd) == 0 && !is_free());
    CHECK(close(again) == 0 && becomes_free());

    /* Released by the parent and by another child; converted to shared and back to exclusive. */
    fd = open("f", O_RDWR);
    CHECK(locks(fd, "ex") == 0 && flock(fd, LOCK_UN) == 0 && is_free() && flock(fd, LOCK_UN) == 0);
    CHECK(locks(fd, "sh") == 0 && !is_free());
    int other = open("f", O_RDONLY);
    CHECK(flock(other, LOCK_SH | LOCK_NB) == 0 && close(other) == 0);
    CHECK(locks(fd, "ex") == 0 && !is_free());
    other = open("f", O_RDONLY);
    FAILS(flock(other, LOCK_SH | LOCK_NB), EWOULDBLOCK);
    CHECK(flock(fd, LOCK_SH) == 0 && flock(other, LOCK_SH | LOCK_NB) == 0 && close(other) == 0 && close(fd) == 0);
    CHECK(becomes_free());

    /* Acquired by a parent that ends before its forked child. */
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        fd = open("f", O_RDWR);
        CHECK(flock(fd, LOCK_EX) == 0);
        pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            close(ends[1]);
            _exit(read(ends[0], &byte, 1) != 0);
        }
        _exit(0);
    }
    CHECK(child_status(pid) == 0 && !is_free());
    close(ends[1]), close(ends[0]);
    CHECK(becomes_free());

    /* Acquired before an exec, and held across it. */
    CHECK(pipe(ends) == 0);
    pid = fork();
    if (pid == 0) {
        fd = open("f", O_RDWR);
        CHECK(flock(fd, LOCK_EX) == 0 && dup2(ends[0], 0) == 0 && close(ends[0]) == 0 && close(ends[1]) == 0);
        execl(self, self, ".", "hold", (char *)NULL);
        _exit(99);
    }
    close(ends[0]);
    for (int i = 0; i < 1000 && is_free(); i++) usleep(10000);
    CHECK(!is_free());
    CHECK(close(ends[1]) == 0 && child_status(pid) == 0 && becomes_free());

    /* Close-on-exec ends it at the exec; two files have separate locks; a killed process holds no lock. */
    pid = fork();
    if (pid == 0) {
        fd = open("f", O_RDWR | O_CLOEXEC);
        put("g", "");
        other = open("g", O_RDWR);
        CHECK(flock(fd, LOCK_EX) == 0 && flock(other, LOCK_EX) == 0 && !is_free());
        CHECK(close(other) == 0 && !is_free() && close(fd) == 0 && becomes_free());
        fd = open("f", O_RDWR | O_CLOEXEC);
        CHECK(flock(fd, LOCK_EX) == 0);
        execl("/bin/sleep", "sleep", "60", (char *)NULL);
        _exit(99);
    }
    /* Before the acquisition and after the release, the sleeping program does not hold it. */
    int status;
    for (int i = 0; i < 1000; i++) {
        char name[64], text[64] = "";
        snprintf(name, sizeof name, "/proc/%d/comm", pid);
        FILE *comm = fopen(name, "r");
        if (comm && fgets(text, sizeof text, comm) && strcmp(text, "sleep\n") == 0) i = 1000;
        if (comm) fclose(comm);
        usleep(10000);
    }
    CHECK(becomes_free() && kill(pid, 0) == 0 && kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid);

    /* Waiting for a lock that a child left behind ends when that lock ends. */
    fd = open("f", O_RDWR);
    CHECK(locks(fd, "ex") == 0 && pipe(ends) == 0);
    pid = fork();
    if (pid == 0) {
        close(fd);
        int own = open("f", O_RDWR);
        CHECK(own >= 0 && write(ends[1], "", 1) == 1);
        _exit(flock(own, LOCK_EX) == 0 ? 0 : errno);
    }
    /* After the byte, the child sleeps only where it waits for the lock. */
    CHECK(close(ends[1]) == 0 && read(ends[0], &byte, 1) == 1 && close(ends[0]) == 0 && falls_asleep(pid));
    CHECK(waitpid(pid, &status, WNOHANG) == 0 && close(fd) == 0 && child_status(pid) == 0);

    /* Record locks belong to the process: a forked child has none of them. */
    fd = open("f", O_RDWR);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    CHECK(fcntl(fd, F_SETLK, &lock) == 0);
    pid = fork();
    if (pid == 0) _exit(fcntl(fd, F_SETLK, &lock) == -1 && (errno == EAGAIN || errno == EACCES) ? 0 : 1);
    CHECK(child_status(pid) == 0);
    /* A lock of a description fails if it cannot be held for all processes that share the description. */
    lock.l_type = F_UNLCK;
    CHECK(fcntl(fd, F_SETLK, &lock) == 0);
    lock.l_type = F_WRLCK;
    pid = fork();
    if (pid == 0) {
        if (is_served()) FAILS(fcntl(fd, F_OFD_SETLK, &lock), ENOLCK);
        _exit(0);
    }
    CHECK(child_status(pid) == 0 && fcntl(fd, F_OFD_SETLK, &lock) == 0);

    /* A process that keeps a lock has no files of the program: neither descriptors nor mappings. */
    char name[] = "/tmp/weft-kept-XXXXXX";
    int first = mkstemp(name), second = open(name, O_RDWR);
    CHECK(first >= 0 && second >= 0 && ftruncate(first, 10) == 0 && close(first) == 0);
    int kept;
    for (int flag = MAP_SHARED; flag <= MAP_PRIVATE; flag++) {
        int foreign = open(name, O_RDWR);
        kept = open("f", O_RDWR);
        void *map = mmap(NULL, 10, PROT_READ | PROT_WRITE, flag, foreign, 0);
        CHECK(kept >= 0 && map != MAP_FAILED && flock(foreign, LOCK_EX) == 0 && flock(kept, LOCK_EX) == 0);
        if ((pid = fork()) == 0) _exit(0);
        CHECK(child_status(pid) == 0 && munmap(map, 10) == 0 && close(foreign) == 0);
        CHECK(flock(second, LOCK_EX | LOCK_NB) == 0 && flock(second, LOCK_UN) == 0);
        CHECK(flock(kept, LOCK_UN) == 0 && close(kept) == 0);
    }
    CHECK(unlink(name) == 0 && (kept = open("f", O_RDWR)) >= 0 && flock(kept, LOCK_EX) == 0);
    /* A lock that the description has is taken again at once, also while its keeper starts. */
    for (int i = 0; i < 20; i++) CHECK(flock(kept, (i % 2 ? LOCK_SH : LOCK_EX) | LOCK_NB) == 0 && flock(kept, LOCK_UN) == 0);
    for (int i = 0; i < 5; i++) CHECK(flock(kept, LOCK_EX | LOCK_NB) == 0);
    CHECK(close(kept) == 0);
    return 0;
}
