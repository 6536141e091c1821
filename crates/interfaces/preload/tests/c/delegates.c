/* What programs rely on when I/O delegates serve a file: the same as without them. */
#include "check.h"

enum { MANY = 300 * 1000 };

/* Runs in a new image of the program: the descriptor in argv[2] was inherited. */
static int inherited(int fd) {
    char text[16] = "";
    CHECK(pread(fd, text, 5, 0) == 5 && same(text, "first"));
    struct stat st;
    CHECK(fstat(fd, &st) == 0 && st.st_size == 10);
    /* The position is shared. */
    CHECK(lseek(fd, 0, SEEK_CUR) == 10);
    CHECK(write(fd, " image", 6) == 6);
    CHECK(close(fd) == 0);
    return 0;
}

static void sizes(void) {
    int fd = open("sizes", O_CREAT | O_RDWR, 0644);
    CHECK(fd >= 0);
    CHECK(pwrite(fd, "end", 3, MANY) == 3);
    struct stat st;
    CHECK(fstat(fd, &st) == 0 && st.st_size == MANY + 3);
    CHECK(stat("sizes", &st) == 0 && st.st_size == MANY + 3);
    CHECK(lstat("./sizes", &st) == 0 && st.st_size == MANY + 3);
    struct statx more;
    CHECK(statx(AT_FDCWD, "sizes", 0, STATX_BASIC_STATS, &more) == 0 && more.stx_size == MANY + 3);
    CHECK(statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &more) == 0 && more.stx_size == MANY + 3);
    CHECK(fstatat(fd, "", &st, AT_EMPTY_PATH) == 0 && st.st_size == MANY + 3);
    CHECK(lseek(fd, 0, SEEK_END) == MANY + 3);
    char byte = 1;
    CHECK(pread(fd, &byte, 1, 5) == 1 && byte == 0);
    CHECK(pread(fd, &byte, 1, MANY + 3) == 0);
    CHECK(ftruncate(fd, 10) == 0 && fstat(fd, &st) == 0 && st.st_size == 10);
    CHECK(pread(fd, &byte, 1, 10) == 0);
    CHECK(pwrite(fd, "more", 4, 20) == 4);
    CHECK(truncate("sizes", 22) == 0 && fstat(fd, &st) == 0 && st.st_size == 22);
    char text[32] = "";
    CHECK(pread(fd, text, sizeof text, 20) == 2 && same(text, "mo"));
    CHECK(fallocate(fd, 0, 0, 4096) == 0 && fstat(fd, &st) == 0 && st.st_size == 4096);
    CHECK(posix_fallocate(fd, 0, 8192) == 0 && fstat(fd, &st) == 0 && st.st_size == 8192);
    CHECK(fsync(fd) == 0 && fdatasync(fd) == 0 && syncfs(fd) == 0);
    CHECK(close(fd) == 0);
}

/* Another process sees bytes before the file is closed or synced. */
static void other_processes(void) {
    int fd = open("seen", O_CREAT | O_RDWR, 0644);
    CHECK(write(fd, "hello", 5) == 5);
    pid_t child = fork();
    if (child == 0) {
        CHECK(same(get("seen"), "hello"));
        struct stat st;
        CHECK(stat("seen", &st) == 0 && st.st_size == 5);
        int own = open("seen", O_WRONLY | O_APPEND);
        CHECK(own >= 0 && write(own, " world", 6) == 6);
        _exit(0);
    }
    CHECK(child_status(child) == 0);
    char text[32] = "";
    CHECK(pread(fd, text, sizeof text, 0) == 11 && same(text, "hello world"));
    /* A cut by an open takes effect at once. */
    child = fork();
    if (child == 0) {
        int own = open("seen", O_WRONLY | O_TRUNC);
        CHECK(own >= 0 && write(own, "new", 3) == 3);
        _exit(0);
    }
    CHECK(child_status(child) == 0);
    memset(text, 0, sizeof text);
    CHECK(pread(fd, text, sizeof text, 0) == 3 && same(text, "new"));
    CHECK(system("printf next > seen") == 0);
    memset(text, 0, sizeof text);
    CHECK(pread(fd, text, sizeof text, 0) == 4 && same(text, "next"));
    CHECK(close(fd) == 0);
    CHECK(same(get("seen"), "next"));
}

static void shared_descriptors(const char *self) {
    int fd = open("shared", O_CREAT | O_RDWR, 0644);
    int copy = dup(fd);
    CHECK(copy >= 0 && write(copy, "first", 5) == 5);
    int high = fcntl(fd, F_DUPFD, 100);
    CHECK(high >= 100 && write(high, " copy", 5) == 5);
    CHECK(close(copy) == 0);
    char number[16];
    snprintf(number, sizeof number, "%d", fd);
    pid_t child = fork();
    if (child == 0) {
        execl(self, self, ".", number, NULL);
        _exit(9);
    }
    CHECK(child_status(child) == 0);
    CHECK(lseek(fd, 0, SEEK_CUR) == 16);
    /* A forked child uses the descriptor, and shares its position. */
    child = fork();
    if (child == 0) {
        CHECK(write(high, " child", 6) == 6);
        _exit(0);
    }
    CHECK(child_status(child) == 0);
    CHECK(lseek(fd, 0, SEEK_CUR) == 22);
    CHECK(close(high) == 0 && close(fd) == 0);
    CHECK(same(get("shared"), "first copy image child"));
    /* Standard output of a program. */
    child = fork();
    if (child == 0) {
        int out = open("output", O_CREAT | O_WRONLY | O_TRUNC, 0644);
        CHECK(dup2(out, 1) == 1 && close(out) == 0);
        execlp("sh", "sh", "-c", "echo one; echo two >&1", NULL);
        _exit(9);
    }
    CHECK(child_status(child) == 0);
    CHECK(same(get("output"), "one\ntwo\n"));
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "output", O_WRONLY | O_TRUNC, 0);
    char *arguments[] = {"echo", "three", NULL};
    pid_t spawned;
    CHECK(posix_spawnp(&spawned, "echo", &actions, NULL, arguments, environ) == 0);
    posix_spawn_file_actions_destroy(&actions);
    CHECK(child_status(spawned) == 0);
    CHECK(same(get("output"), "three\n"));
}

static void appends(void) {
    put("log", "");
    for (int process = 0; process < 3; process++) {
        pid_t child = fork();
        if (child == 0) {
            int fd = open("log", O_WRONLY | O_APPEND);
            for (int line = 0; line < 20; line++) CHECK(write(fd, "abcdefghi\n", 10) == 10);
            CHECK(close(fd) == 0);
            _exit(0);
        }
    }
    for (int process = 0; process < 3; process++) {
        int status;
        CHECK(wait(&status) > 0 && status == 0);
    }
    const char *text = get("log");
    CHECK(strlen(text) == 600);
    for (int line = 0; line < 60; line++) CHECK(memcmp(text + 10 * line, "abcdefghi\n", 10) == 0);
    int fd = open("log", O_RDWR);
    CHECK(fcntl(fd, F_SETFL, O_APPEND) == 0 && fcntl(fd, F_GETFL) & O_APPEND);
    CHECK(write(fd, "last", 4) == 4 && lseek(fd, 0, SEEK_CUR) == 604);
    CHECK(fcntl(fd, F_SETFL, 0) == 0);
    CHECK(pwrite(fd, "A", 1, 0) == 1);
    CHECK(close(fd) == 0);
    CHECK(get("log")[0] == 'A' && strlen(get("log")) == 604);
}

static void streams(void) {
    FILE *file = fopen("stream", "w");
    CHECK(file && fprintf(file, "%d lines\n", 2) > 0 && fputs("second\n", file) >= 0);
    CHECK(fclose(file) == 0);
    CHECK(same(get("stream"), "2 lines\nsecond\n"));
    file = fopen("stream", "r+");
    char line[32];
    CHECK(file && fgets(line, sizeof line, file) && same(line, "2 lines\n"));
    CHECK(fseek(file, 0, SEEK_END) == 0 && ftell(file) == 15 && fputs("third\n", file) >= 0 && fclose(file) == 0);
    CHECK(same(get("stream"), "2 lines\nsecond\nthird\n"));
    file = fopen("stream", "w");
    CHECK(file && fclose(file) == 0 && same(get("stream"), ""));
    FAILS(fopen("missing/stream", "w") ? 0 : -1, ENOENT);
    FAILS(fopen("stream", "wx") ? 0 : -1, EEXIST);
}

/* Calls on attributes and locks, and calls in which the kernel moves the bytes. */
static void the_kernel(void) {
    int fd = open("kernel", O_CREAT | O_RDWR, 0644);
    CHECK(write(fd, "0123456789", 10) == 10);
    char *map = mmap(NULL, 10, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED && memcmp(map, "0123456789", 10) == 0 && munmap(map, 10) == 0);
    map = mmap(NULL, 10, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    CHECK(map != MAP_FAILED && memcmp(map, "0123456789", 10) == 0 && munmap(map, 10) == 0);
    CHECK(fchmod(fd, 0600) == 0);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 4};
    CHECK(fcntl(fd, F_SETLK, &lock) == 0);
    CHECK(truncate("kernel", 8) == 0);
    pid_t child = fork();
    if (child == 0) {
        FAILS(fcntl(fd, F_SETLK, &lock), EAGAIN);
        _exit(0);
    }
    CHECK(child_status(child) == 0);
    CHECK(flock(fd, LOCK_EX | LOCK_NB) == 0);
    int other = open("kernel", O_RDWR);
    FAILS(flock(other, LOCK_EX | LOCK_NB), EWOULDBLOCK);
    CHECK(close(other) == 0);
    int pipe_of[2];
    CHECK(pipe(pipe_of) == 0);
    off_t at = 2;
    CHECK(sendfile(pipe_of[1], fd, &at, 4) == 4 && at == 6);
    char text[16] = "";
    CHECK(read(pipe_of[0], text, 4) == 4 && same(text, "2345"));
    int copy = open("copy", O_CREAT | O_RDWR, 0600);
    off_t from = 1, to = 3;
    CHECK(copy_file_range(fd, &from, copy, &to, 4, 0) == 4);
    CHECK(pread(copy, text, 7, 0) == 7 && memcmp(text, "\0\0\0" "1234", 7) == 0);
    CHECK(close(copy) == 0);
    struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 2000}};
    CHECK(pwrite(fd, "x", 1, 0) == 1 && futimens(fd, times) == 0);
    CHECK(close(fd) == 0);
    struct stat st;
    CHECK(stat("kernel", &st) == 0 && st.st_mtime == 2000 && (st.st_mode & 0777) == 0600 && st.st_size == 8);
    CHECK(same(get("kernel"), "x1234567"));
    /* The file of a descriptor without a name. */
    fd = open("kernel", O_RDWR);
    CHECK(unlink("kernel") == 0 && pwrite(fd, "y", 1, 0) == 1 && pread(fd, text, 8, 0) == 8 && text[0] == 'y');
    CHECK(fstat(fd, &st) == 0 && st.st_nlink == 0 && close(fd) == 0);
}

static void rights(void) {
    int fd = open("rights", O_CREAT | O_WRONLY, 0444);
    CHECK(fd >= 0 && write(fd, "written once", 12) == 12);
    char byte;
    FAILS(read(fd, &byte, 1), EBADF);
    CHECK(close(fd) == 0 && same(get("rights"), "written once"));
    fd = open("rights", O_RDONLY);
    FAILS(write(fd, "x", 1), EBADF);
    FAILS(ftruncate(fd, 0), EINVAL);
    CHECK(close(fd) == 0);
    CHECK(symlink("rights", "link") == 0 && same(get("link"), "written once"));
    struct stat st;
    CHECK(stat("link", &st) == 0 && st.st_size == 12);
    CHECK(rename("rights", "renamed") == 0 && same(get("renamed"), "written once"));
    char name[] = "temporaryXXXXXX";
    fd = mkstemp(name);
    CHECK(fd >= 0 && write(fd, "tmp", 3) == 3 && stat(name, &st) == 0 && st.st_size == 3 && close(fd) == 0);
    FAILS(read(fd, &byte, 1), EBADF);
}

MAIN
    if (argc == 3) return inherited(atoi(argv[2]));
    char self[PATH_MAX] = "";
    CHECK(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    sizes();
    other_processes();
    shared_descriptors(self);
    appends();
    streams();
    the_kernel();
    rights();
    return 0;
}
