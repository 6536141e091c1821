/* fork, exec, spawn: what is shared, what is inherited, what is closed. */
#include "check.h"
static const char *self;
static int again(const char *what) {
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        execl(self, self, ".", what, (char *)NULL);
        _exit(99);
    }
    return child_status(pid);
}
static int spawned(const char *script, posix_spawn_file_actions_t *actions) {
    char *args[] = {"sh", "-c", (char *)script, NULL};
    pid_t pid;
    int error = posix_spawnp(&pid, "sh", actions, NULL, args, environ);
    if (error) return 2000 + error;
    return child_status(pid);
}
MAIN
    self = argv[0];
    char buf[100];
    if (argc > 2) { /* executed again: the descriptors 50 and 51 and the working directory are there */
        if (strcmp(argv[2], "inherits") == 0) {
            CHECK(read(50, buf, 4) == 4 && memcmp(buf, "cdef", 4) == 0);
            CHECK(pwrite(50, "Z", 1, 0) == 1 && fcntl(51, F_GETFD) == -1 && errno == EBADF);
            CHECK((fcntl(50, F_GETFL) & O_ACCMODE) == O_RDWR);
            CHECK(getcwd(buf, sizeof buf) && access("f", R_OK) == 0);
            return 7;
        }
        if (strcmp(argv[2], "args") == 0) {
            CHECK(argc == 10 && same(argv[9], "g"));
            return 8;
        }
        if (strcmp(argv[2], "lock") == 0) {
            int fd = open("f", O_RDWR);
            struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
            return fcntl(fd, F_SETLK, &lock) == 0 ? 0 : errno == EAGAIN || errno == EACCES ? 11 : 12;
        }
        return 98;
    }
    put("f", "abcdefghij");
    int fd = open("f", O_RDWR);
    /* A forked child shares the position, and its writes are visible. */
    pid_t pid = fork();
    if (pid == 0) {
        CHECK(read(fd, buf, 2) == 2 && pwrite(fd, "A", 1, 0) == 1);
        put("child", "was here");
        _exit(5);
    }
    CHECK(child_status(pid) == 5 && lseek(fd, 0, SEEK_CUR) == 2 && same(get("f"), "Abcdefghij"));
    CHECK(same(get("child"), "was here"));
    /* A close in the child does not affect the parent, with vfork too. */
    pid = vfork();
    if (pid == 0) {
        close(fd);
        _exit(6);
    }
    CHECK(child_status(pid) == 6 && pread(fd, buf, 1, 0) == 1);

    CHECK(dup2(fd, 50) == 50 && dup3(fd, 51, O_CLOEXEC) == 51);
    CHECK(again("inherits") == 7 && lseek(fd, 0, SEEK_CUR) == 6 && same(get("f"), "Zbcdefghij"));
    pid = fork();
    if (pid == 0) {
        execlp(self, self, ".", "args", "a", "b", "c", "d", "e", "f", "g", (char *)NULL);
        _exit(99);
    }
    CHECK(child_status(pid) == 8);
    close(50), close(51);

    /* Record locks belong to the process: a child does not have them, and closing any descriptor releases them. */
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    CHECK(fcntl(fd, F_SETLK, &lock) == 0 && again("lock") == 11);
    int other = open("f", O_RDONLY);
    close(other);
    CHECK(again("lock") == 0);

    /* Spawned with file actions. */
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "f", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, "spawned", O_CREAT | O_WRONLY | O_TRUNC, 0600);
    CHECK(spawned("cat; exit 3", &actions) == 3 && same(get("spawned"), "Zbcdefghij"));
    posix_spawn_file_actions_destroy(&actions);
    posix_spawn_file_actions_init(&actions);
    CHECK(lseek(fd, 1, SEEK_SET) == 1);
    posix_spawn_file_actions_adddup2(&actions, fd, 0);
    posix_spawn_file_actions_addclose(&actions, fd);
    CHECK(spawned("read x; test \"$x\" = bcdefghij", &actions) == 0);
    posix_spawn_file_actions_destroy(&actions);
    char *args[] = {"missing", NULL};
    CHECK(posix_spawn(&pid, "./missing", NULL, NULL, args, environ) == ENOENT);
    CHECK(spawned("test -e f && cat f > copied", NULL) == 0 && same(get("copied"), "Zbcdefghij"));
    CHECK(system("cp copied again && mkdir made && cd made && echo in > here") == 0);
    CHECK(same(get("again"), "Zbcdefghij") && same(get("made/here"), "in\n"));
    FILE *pipe = popen("cat f", "r");
    CHECK(pipe && fgets(buf, sizeof buf, pipe) && same(buf, "Zbcdefghij") && pclose(pipe) == 0);
    /* A program file in the tree. */
    put("script", "#!/bin/sh\ntest \"$1\" = one && exit 42\n");
    CHECK(chmod("script", 0755) == 0);
    CHECK(WEXITSTATUS(system("./script one")) == 42);
    char *script[] = {"script", "one", NULL};
    for (int way = 0; way < 3; way++) {
        pid = fork();
        if (pid == 0) {
            int here = open(".", O_PATH | O_DIRECTORY);
            if (way == 0) execveat(here, "script", script, environ, 0);
            if (way == 1) syscall(SYS_execveat, AT_FDCWD, "script", script, environ, 0);
            if (way == 2) syscall(SYS_execveat, open("script", O_RDONLY), "", script, environ, AT_EMPTY_PATH);
            _exit(23);
        }
        CHECK(child_status(pid) == 42);
    }
    pid = fork();
    if (pid == 0) {
        execl("./f", "./f", (char *)NULL);
        _exit(errno == EACCES ? 21 : 22);
    }
    CHECK(child_status(pid) == 21);
    /* After closing all descriptors, later calls work. */
    closefrom(3);
    FAILS(read(fd, buf, 1), EBADF);
    CHECK(same(get("f"), "Zbcdefghij"));
    for (int i = 3; i < 5000; i++) close(i);
    put("after", "all closed");
    CHECK(same(get("after"), "all closed"));
    return 0;
}
