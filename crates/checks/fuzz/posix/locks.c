/* Locks, as this process and as another process see them. Nothing waits for a lock. */
#include "fuzz.h"
#include <sys/file.h>
#include <sys/wait.h>

static void op_flock(struct world *w, struct draw *d) {
    static const int all[] = {LOCK_SH, LOCK_EX, LOCK_UN, LOCK_EX, 0, LOCK_SH | LOCK_EX};
    char name[16];
    int fd = draw_fd(w, d, name), how = all[below(d, chance(d, 10) ? 6 : 4)];
    say(w, "(%s, %d)", name, how);
    RESULT(w, flock(fd, how | LOCK_NB));
}

static struct flock draw_lock(struct draw *d) {
    static const short types[] = {F_RDLCK, F_WRLCK, F_UNLCK, F_WRLCK, 77}, whences[] = {SEEK_SET, SEEK_CUR, SEEK_END, 9};
    struct flock lock = {.l_type = types[below(d, chance(d, 5) ? 5 : 4)], .l_whence = whences[below(d, chance(d, 5) ? 4 : 3)]};
    lock.l_start = chance(d, 95) ? (off_t)below(d, 200) - (lock.l_whence ? 50 : 0) : draw_offset(d);
    lock.l_len = chance(d, 20) ? 0 : chance(d, 90) ? 1 + below(d, 100) : -(off_t)below(d, 50);
    return lock;
}

/* On a mount, `F_GETLK` has another number for no process, and `F_OFD_GETLK` names none (mount.md, Locks). */
static const char *holder(const struct flock *lock, int command) {
    if (on_mount && (command == F_OFD_GETLK || lock->l_pid == -1)) return "0";
    return lock->l_pid == getpid() ? "self" : lock->l_pid == getppid() ? "parent" : lock->l_pid == 0 ? "0"
         : lock->l_pid == -1       ? "-1" : "other";
}

static void say_lock(struct world *w, const struct flock *lock, int command) {
    say(w, " {%d %d %lld %lld %s}", lock->l_type, lock->l_whence, (long long)lock->l_start, (long long)lock->l_len,
        holder(lock, command));
}

/* Lengths and positions of directories differ between file systems. */
static bool is_directory(int fd) { return kind_of(fd) == S_IFDIR; }

static void op_lock(struct world *w, struct draw *d) {
    char name[16];
    int fd = draw_fd(w, d, name), how = (int)below(d, drawn(OFD_LOCKS) ? 5 : 3);
    struct flock lock = draw_lock(d);
    static const int commands[] = {F_SETLK, F_SETLK, F_GETLK, F_OFD_SETLK, F_OFD_GETLK};
    if (!drawn(RECORD_LOCKS)) return;
    if (lock.l_whence != 9 && is_directory(fd)) lock.l_whence = SEEK_SET;
    /* Older kernels do not look for own locks. */
    if (how == 4 && lock.l_type == F_UNLCK && !kernel_is(6, 6)) lock.l_type = F_RDLCK;
    say(w, "[%d](%s)", how, name);
    say_lock(w, &lock, 0);
    errno = 0;
    int result = fcntl(fd, commands[how], &lock);
    say_result(w, result);
    if (how == 2 || how == 4) say_lock(w, &lock, commands[how]);
}

static void op_lockf(struct world *w, struct draw *d) {
    static const int all[] = {F_TLOCK, F_ULOCK, F_TEST, F_TLOCK, 9};
    char name[16];
    int fd = draw_fd(w, d, name), how = all[below(d, 5)];
    off_t len = chance(d, 70) ? below(d, 100) : draw_offset(d);
    if (!drawn(RECORD_LOCKS) || is_directory(fd)) return;
    say(w, "(%s, %d, %lld)", name, how, (long long)len);
    RESULT(w, lockf(fd, how, len));
}

/* What another process sees. */
static void op_foreign(struct world *w, struct draw *d) {
    struct path p;
    struct flock lock = draw_lock(d);
    if (!drawn(RECORD_LOCKS) || !chance(d, 30)) return;
    int which = slot(d, 3), pipes[2];
    sprintf(p.text, "%s/f%d", w->root, which);
    say(w, "(f%d)", which);
    /* Devices cannot be opened on a mount. */
    struct stat st;
    if (stat(p.text, &st) == 0 && (S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode))) return;
    lock.l_whence = SEEK_SET;
    if (lock.l_start < 0) lock.l_start = 0;
    say_lock(w, &lock, 0);
    if (pipe(pipes) != 0) abort();
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        w->used = 0;
        errno = 0;
        int fd = open(p.text, O_RDWR);
        say_success(w, fd);
        if (fd >= 0) {
            SUCCESS(w, fcntl(fd, F_GETLK, &lock));
            say_lock(w, &lock, F_GETLK);
            RESULT(w, flock(fd, LOCK_EX | LOCK_NB));
            /* After an end without a close, set-id bits differ (posix.md). */
            close(fd);
        }
        _exit(write(pipes[1], w->text, w->used) < 0);
    }
    close(pipes[1]);
    char seen[500];
    ssize_t n = read(pipes[0], seen, sizeof seen - 1);
    close(pipes[0]);
    int status = -1;
    waitpid(child, &status, 0);
    seen[n < 0 ? 0 : n] = 0;
    say(w, " status %x:%s", status, seen);
}

const struct operation lock_operations[] = {
    {"flock", 4, op_flock}, {"lock", 5, op_lock}, {"lockf", 2, op_lockf}, {"foreign", 2, op_foreign}, {NULL, 0, NULL}};
