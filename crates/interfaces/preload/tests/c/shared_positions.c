/* Processes and threads that share an open file description read each byte exactly once. */
#include "check.h"
enum { RECORDS = 3000, READERS = 3 };
static unsigned *seen;
static int room[2];

static void note(uint64_t one) {
    CHECK(one < RECORDS);
    __sync_fetch_and_add(&seen[one], 1);
}

static void begin(int fd) {
    memset(seen, 0, RECORDS * sizeof *seen);
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
}

static void all_once(const char *how, int fd) {
    for (int i = 0; i < RECORDS; i++)
        if (seen[i] != 1) dprintf(2, "%s: record %d was read %u times\n", how, i, seen[i]), _exit(1);
    CHECK(lseek(fd, 0, SEEK_CUR) == RECORDS * 8);
}

/* Each way to read the next records; returns 0 at the end. */
static int by_read(int fd) {
    uint64_t one;
    ssize_t n = read(fd, &one, 8);
    CHECK(n == 8 || n == 0);
    if (n) note(one);
    return n;
}
static int by_readv(int fd) {
    uint64_t one[3];
    struct iovec parts[2] = {{one, 8}, {one + 1, 16}};
    ssize_t n = readv(fd, parts, 2);
    CHECK(n >= 0 && n % 8 == 0);
    for (int i = 0; i < n / 8; i++) note(one[i]);
    return n;
}
static int by_preadv2(int fd) {
    uint64_t one[2];
    struct iovec part = {one, 16};
    ssize_t n = preadv2(fd, &part, 1, -1, 0);
    CHECK(n >= 0 && n % 8 == 0);
    for (int i = 0; i < n / 8; i++) note(one[i]);
    return n;
}
static int by_syscall(int fd) {
    uint64_t one;
    long n = syscall(SYS_read, fd, &one, 8);
    CHECK(n == 8 || n == 0);
    if (n) note(one);
    return n;
}
static int by_sendfile(int fd) {
    uint64_t one;
    ssize_t n = sendfile(room[1], fd, NULL, 8);
    CHECK(n == 8 || n == 0);
    if (n) {
        /* Any record that a reader put there. */
        CHECK(read(room[0], &one, 8) == 8);
        note(one);
    }
    return n;
}
/* A relative seek takes its turn, too: it never lies behind the end while others read. */
static int by_seek(int fd) {
    off_t at = lseek(fd, 0, SEEK_CUR);
    CHECK(at >= 0 && at <= RECORDS * 8 && at % 8 == 0);
    return by_read(fd);
}

struct way { const char *name; int (*next)(int); } ways[] = {
    {"read", by_read}, {"readv", by_readv}, {"preadv2", by_preadv2}, {"syscall", by_syscall},
    {"sendfile", by_sendfile}, {"lseek", by_seek},
};

struct job { struct way *way; int fd; };
static void *thread(void *job) {
    struct job *mine = job;
    while (mine->way->next(mine->fd)) ;
    return NULL;
}

static void in_processes(struct way *way, int fd) {
    begin(fd);
    pid_t reader[READERS];
    for (int i = 0; i < READERS; i++)
        if ((reader[i] = fork()) == 0) {
            while (way->next(fd)) ;
            _exit(0);
        }
    for (int i = 0; i < READERS; i++) CHECK(child_status(reader[i]) == 0);
    all_once(way->name, fd);
}

static void in_threads(struct way *way, int fd) {
    begin(fd);
    pthread_t reader[READERS];
    struct job jobs[READERS];
    for (int i = 0; i < READERS; i++) {
        jobs[i] = (struct job){way, i ? dup(fd) : fd};
        CHECK(pthread_create(&reader[i], NULL, thread, &jobs[i]) == 0);
    }
    for (int i = 0; i < READERS; i++) {
        CHECK(pthread_join(reader[i], NULL) == 0);
        if (i) close(jobs[i].fd);
    }
    all_once(way->name, fd);
}

/* Started by exec with one descriptor under two numbers. */
static int executed(int fd) {
    seen = calloc(RECORDS, sizeof *seen);
    while (by_read(fd)) ;
    ssize_t n = 0;
    for (uint64_t i = 0; i < RECORDS; i++)
        if (seen[i]) {
            CHECK(seen[i] == 1 && write(1, &i, 8) == 8);
            n++;
        }
    return n == 0;
}

MAIN
    if (argc > 2) return executed(0);
    seen = mmap(NULL, RECORDS * sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(seen != MAP_FAILED && pipe(room) == 0);
    int fd = open("records", O_CREAT | O_RDWR, 0600);
    static uint64_t all[RECORDS];
    for (int i = 0; i < RECORDS; i++) all[i] = i;
    CHECK(write(fd, all, sizeof all) == sizeof all);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        /* Linux takes no turn for these. */
        if (ways[i].next == by_sendfile && !is_served()) continue;
        in_threads(&ways[i], fd), in_processes(&ways[i], fd);
    }

    /* Programs that inherit the description. */
    int out[2], status;
    char self[PATH_MAX] = "";
    CHECK(readlink("/proc/self/exe", self, sizeof self - 1) > 0 && pipe(out) == 0);
    begin(fd);
    for (int i = 0; i < READERS; i++)
        if (fork() == 0) {
            dup2(fd, 0), dup2(out[1], 1), close(out[0]), close(out[1]);
            execl(self, self, ".", "again", (char *)NULL);
            _exit(9);
        }
    close(out[1]);
    uint64_t one;
    while (read(out[0], &one, 8) == 8) note(one);
    while (wait(&status) > 0) CHECK(WIFEXITED(status) && WEXITSTATUS(status) <= 1);
    all_once("exec", fd);

    /* Writers and a reader of one position: what the reader gets was written before, and nothing is overwritten. */
    int both = open("both", O_CREAT | O_RDWR, 0600);
    pid_t writer[READERS];
    for (int i = 0; i < READERS; i++)
        if ((writer[i] = fork()) == 0) {
            for (uint64_t k = 1; k <= 200; k++) {
                CHECK(write(both, &k, 8) == 8);
                if (k % 10 == 0) CHECK(read(both, &one, 8) == 0);
            }
            _exit(0);
        }
    for (int i = 0; i < READERS; i++) CHECK(child_status(writer[i]) == 0);
    struct stat st;
    CHECK(fstat(both, &st) == 0 && st.st_size == READERS * 200 * 8 && lseek(both, 0, SEEK_CUR) == st.st_size);
    for (off_t at = 0; at < st.st_size; at += 8) CHECK(pread(both, &one, 8, at) == 8 && one >= 1 && one <= 200);

    /* Flags belong to the description, too. */
    pid_t changer = fork();
    if (changer == 0) _exit(fcntl(both, F_SETFL, O_APPEND) != 0);
    CHECK(child_status(changer) == 0 && (fcntl(both, F_GETFL) & O_APPEND) && lseek(both, 0, SEEK_SET) == 0);
    CHECK(write(both, &one, 8) == 8 && fstat(both, &st) == 0 && st.st_size == READERS * 200 * 8 + 8);

    /* At the end of the file the position stays, whatever the length asked for. */
    char buf[100];
    CHECK(lseek(fd, -4, SEEK_END) == RECORDS * 8 - 4 && read(fd, buf, 100) == 4 && read(fd, buf, 100) == 0);
    CHECK(lseek(fd, 0, SEEK_CUR) == RECORDS * 8);
    CHECK(lseek(fd, 100, SEEK_END) == RECORDS * 8 + 100 && read(fd, buf, 100) == 0);
    CHECK(lseek(fd, 0, SEEK_CUR) == RECORDS * 8 + 100);

    /* A copy without offsets moves both positions. */
    int copy = open("copy", O_CREAT | O_RDWR, 0600);
    begin(fd);
    pid_t copier[READERS];
    for (int i = 0; i < READERS; i++)
        if ((copier[i] = fork()) == 0) {
            while (copy_file_range(fd, NULL, copy, NULL, 80, 0) > 0) ;
            _exit(0);
        }
    for (int i = 0; i < READERS; i++) CHECK(child_status(copier[i]) == 0);
    CHECK(lseek(copy, 0, SEEK_SET) == 0);
    if (is_served()) {
        while (by_read(copy)) ;
        all_once("copy_file_range", fd);
    }

    /* Names of a directory. */
    CHECK(mkdir("many", 0700) == 0);
    for (int i = 0; i < 200; i++) {
        snprintf(buf, sizeof buf, "many/%d", i);
        put(buf, "");
    }
    int dir = open("many", O_RDONLY | O_DIRECTORY);
    memset(seen, 0, RECORDS * sizeof *seen);
    for (int i = 0; i < READERS; i++)
        if ((copier[i] = fork()) == 0) {
            char names[200];
            long n;
            while ((n = syscall(SYS_getdents64, dir, names, sizeof names)) > 0)
                for (long at = 0; at < n; at += ((struct dirent64 *)(names + at))->d_reclen) {
                    const char *name = ((struct dirent64 *)(names + at))->d_name;
                    if (name[0] != '.') note(atoi(name));
                }
            _exit(n != 0);
        }
    for (int i = 0; i < READERS; i++) CHECK(child_status(copier[i]) == 0);
    for (int i = 0; i < 200; i++) CHECK(seen[i] == 1);

    /* A stream over the directory, by processes and by two streams. */
    DIR *names = opendir("many");
    struct dirent *entry;
    memset(seen, 0, RECORDS * sizeof *seen);
    for (int i = 0; i < READERS; i++)
        if ((copier[i] = fork()) == 0) {
            while ((entry = readdir(names)))
                if (entry->d_name[0] != '.') note(atoi(entry->d_name));
            _exit(0);
        }
    for (int i = 0; i < READERS; i++) CHECK(child_status(copier[i]) == 0);
    for (int i = 0; i < 200; i++) CHECK(seen[i] == 1);
    CHECK(readdir(names) == NULL);
    DIR *again = fdopendir(dup(dirfd(names)));
    CHECK(again && readdir(again) == NULL);
    rewinddir(again);
    int count = 0;
    long place = 0;
    while ((entry = readdir(again))) {
        if (count++ == 100) place = telldir(again);
    }
    CHECK(count == 202);
    seekdir(again, place);
    for (count = 0; readdir(again); count++) ;
    CHECK(count == 101 && closedir(again) == 0 && closedir(names) == 0);

    /* A reader that dies in the middle does not stop the others. */
    begin(fd);
    pid_t victim = fork();
    if (victim == 0) for (;;) if (!by_read(fd)) lseek(fd, 0, SEEK_SET);
    while (lseek(fd, 0, SEEK_CUR) == 0) ;
    CHECK(kill(victim, SIGKILL) == 0 && waitpid(victim, &status, 0) == victim);
    CHECK(lseek(fd, 0, SEEK_SET) == 0 && by_read(fd) == 8 && lseek(fd, 0, SEEK_CUR) == 8);

    /* Buffered streams over one description, without buffers. */
    begin(fd);
    FILE *f = fdopen(fd, "r");
    CHECK(f && setvbuf(f, NULL, _IONBF, 0) == 0);
    for (int i = 0; i < READERS; i++)
        if ((copier[i] = fork()) == 0) {
            while (fread(&one, 8, 1, f) == 1) note(one);
            _exit(!feof(f));
        }
    for (int i = 0; i < READERS; i++) CHECK(child_status(copier[i]) == 0);
    all_once("fread", fd);
    return 0;
}
