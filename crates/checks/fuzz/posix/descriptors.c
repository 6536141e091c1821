/* Descriptors as such: duplicates, flags, other processes. */
#include "fuzz.h"
#include <aio.h>
#include <sys/wait.h>

static void op_close(struct world *w, struct draw *d) {
    int at = slot(d, FDS);
    say(w, "(fd%d)", at);
    RESULT(w, close(w->fd[at] >= 0 ? w->fd[at] : BAD_FD));
    w->fd[at] = -1;
}

static void op_dup(struct world *w, struct draw *d) {
    char name[16];
    int fd = draw_fd(w, d, name), at = slot(d, FDS), how = (int)below(d, 7), to = w->fd[at];
    int flags = chance(d, 80) ? (chance(d, 50) ? O_CLOEXEC : 0) : O_APPEND;
    static const int starts[] = {0, 50, -1, 1 << 30};
    int start = starts[chance(d, 90) ? below(d, 2) : below(d, 4)];
    static const char *const names[] = {"dup", "dup2", "dup3", "F_DUPFD", "F_DUPFD_CLOEXEC", "dup2 bad", "dup2"};
    say(w, "[%s](%s, fd%d, %x, %d)", names[how], name, at, how == 2 ? flags : 0, how == 3 || how == 4 ? start : 0);
    errno = 0;
    int got;
    switch (how) {
    case 0: got = dup(fd); break;
    case 1:
    case 6: got = to >= 0 ? dup2(fd, to) : dup(fd); break;
    case 2: got = to >= 0 ? dup3(fd, to, flags) : dup(fd); break;
    case 3: got = fcntl(fd, F_DUPFD, start); break;
    case 4: got = fcntl(fd, F_DUPFD_CLOEXEC, start); break;
    default: got = dup2(fd, -1);
    }
    say_success(w, got);
    if (got < 0) return;
    keep_fd(w, at, got);
    say_fd(w, got);
    say(w, " cloexec %d", fcntl(got, F_GETFD));
}

static void op_fcntl(struct world *w, struct draw *d) {
    char name[16];
    static const int commands[] = {F_GETFL, F_SETFL, F_SETFL, F_GETFD, F_SETFD, F_GETPIPE_SZ, 9999};
    static const int flags[] = {0, O_APPEND, O_NONBLOCK, O_APPEND | O_NONBLOCK, O_NOATIME, O_RDWR | O_CREAT, O_SYNC};
    int fd = draw_fd(w, d, name), command = commands[below(d, 7)], flag = flags[below(d, 7)];
    say(w, "(%s, %d, %o)", name, command, flag);
    RESULT(w, fcntl(fd, command, command == F_SETFD ? flag & 1 : flag));
    say(w, " %o %d", fcntl(fd, F_GETFL), fcntl(fd, F_GETFD));
}

/* A forked process shares positions. */
static void op_fork(struct world *w, struct draw *d) {
    char name[16];
    int fd = draw_fd(w, d, name), how = (int)below(d, drawn(FORK_READS) ? 5 : 3), pipes[2];
    /* The process that keeps locks for both has the files open, too, and so decides about set-id bits. */
    if (!other_users || !chance(d, 20)) return;
    size_t len = below(d, 5000);
    off_t at = below(d, 5000);
    say(w, "[%d](%s, %zu, %lld)", how, name, len, (long long)at);
    if (pipe(pipes) != 0) abort();
    char *bytes = fill(w, d, len + 8);
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        long out[2];
        errno = 0;
        out[0] = how == 0 ? lseek(fd, at, SEEK_SET) : how == 1 ? write(fd, bytes, len) : how == 2 ? ftruncate(fd, at)
                                                                                                  : read(fd, bytes, len);
        out[1] = errno;
        _exit(write(pipes[1], out, sizeof out) != sizeof out);
    }
    close(pipes[1]);
    long out[2] = {-9, -9};
    if (read(pipes[0], out, sizeof out) < 0) abort();
    close(pipes[0]);
    int status = -1;
    waitpid(child, &status, 0);
    say(w, " status %x: %ld %ld", status, out[0], out[1]);
    say_fd(w, fd);
}

static void op_aio(struct world *w, struct draw *d) {
    char name[16];
    int fd = draw_fd(w, d, name);
    size_t len = below(d, 9000);
    struct aiocb cb = {.aio_fildes = fd, .aio_offset = below(d, 9000), .aio_nbytes = len, .aio_buf = w->buffer};
    struct stat st;
    bool writes = chance(d, 50);
    if (!chance(d, 20) || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) return;
    fill(w, d, len + 8);
    say(w, "[%d](%s, %zu, %lld)", writes, name, len, (long long)cb.aio_offset);
    errno = 0;
    int result = writes ? aio_write(&cb) : aio_read(&cb);
    say_result(w, result);
    if (result != 0) return;
    const struct aiocb *list[] = {&cb};
    int error;
    while ((error = aio_error(&cb)) == EINPROGRESS) aio_suspend(list, 1, NULL);
    say(w, " error %d", error);
    errno = 0;
    say_result(w, aio_return(&cb));
    say_bytes(w, w->buffer, len);
    say_fd(w, fd);
}

static void op_umask(struct world *w, struct draw *d) {
    static const mode_t masks[] = {0, 022, 077, 0777, 027};
    mode_t mask = masks[below(d, 5)];
    static mode_t former;
    /* Both worlds are one process, so the mask is restored at once. */
    char path[PATH_MAX + 16];
    struct stat st;
    former = umask(mask);
    sprintf(path, "%s/umask", w->root);
    say(w, "(%o)", mask);
    int fd = open(path, O_CREAT | O_RDWR | O_EXCL, draw_mode(d));
    say_success(w, fd);
    if (fd >= 0) {
        say_fd(w, fd);
        close(fd);
    }
    say(w, " %d", unlink(path));
    SUCCESS(w, mkdir(path, draw_mode(d)));
    if (stat(path, &st) == 0) say_stat(w, &st);
    say(w, " %d", rmdir(path));
    umask(former);
}

const struct operation descriptor_operations[] = {
    {"close", 5, op_close}, {"dup", 4, op_dup}, {"fcntl", 3, op_fcntl}, {"fork", 2, op_fork}, {"aio", 2, op_aio},
    {"umask", 1, op_umask}, {NULL, 0, NULL}};
