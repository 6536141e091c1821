/* Opens, and changes of names. */
#include "fuzz.h"
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1
#define RENAME_EXCHANGE 2
#define RENAME_WHITEOUT 4
#endif

static void op_open(struct world *w, struct draw *d) {
    struct path p;
    char shown[200];
    int how = (int)below(d, 20);
    draw_path(w, d, &p, how > 5);
    int flags = draw_flags(d, shown), at = slot(d, FDS);
    mode_t mode = draw_mode(d);
    errno = 0;
    int fd;
    if (how < 5) {
        say(w, "(%s, %s, %o) fd%d", p.shown, shown, mode, at);
        fd = open(p.pointer, flags, mode);
    } else if (how == 5 && !drawn(FIFOS)) {
        say(w, "[creat](%s, %o) fd%d", p.shown, mode, at);
        fd = creat(p.pointer, mode);
    } else {
        say(w, "[at](%s, %s, %o) fd%d", p.shown, shown, mode, at);
        fd = openat(p.dir, p.pointer, flags, mode);
    }
    say_success(w, fd);
    if (fd < 0) return;
    keep_fd(w, at, fd);
    say_fd(w, fd);
    say(w, " flags %o,%d", fcntl(fd, F_GETFL), fcntl(fd, F_GETFD));
}

static void op_openat2(struct world *w, struct draw *d) {
    struct path p;
    char shown[200];
    draw_path(w, d, &p, true);
    struct open_how how = {0};
    how.flags = (unsigned)draw_flags(d, shown);
    if (how.flags & (O_CREAT | O_TMPFILE)) how.mode = draw_mode(d);
    how.resolve = chance(d, 50) ? 0 : draw(d) & 0x1e;
    int at = slot(d, FDS);
    say(w, "(%s, %s, %llo, resolve %llx) fd%d", p.shown, shown, (long long)how.mode, (long long)how.resolve, at);
    errno = 0;
    int fd = (int)syscall(SYS_openat2, p.dir, p.pointer, &how, sizeof how);
    say_success(w, fd);
    if (fd < 0) return;
    keep_fd(w, at, fd);
    say_fd(w, fd);
}

/* Adds what a name is now. */
static void say_now(struct world *w, const struct path *p) {
    struct stat st;
    if (p->pointer != p->text) return;
    if (fstatat(p->dir, p->text, &st, AT_SYMLINK_NOFOLLOW) == 0) say_stat(w, &st);
}

static void op_mkdir(struct world *w, struct draw *d) {
    struct path p;
    bool at = chance(d, 50);
    draw_path(w, d, &p, at);
    mode_t mode = draw_mode(d) | 0700;
    say(w, "(%s, %o)", p.shown, mode);
    RESULT(w, at ? mkdirat(p.dir, p.pointer, mode) : mkdir(p.pointer, mode));
    say_now(w, &p);
}

static void op_mknod(struct world *w, struct draw *d) {
    struct path p;
    bool at = chance(d, 50);
    draw_path(w, d, &p, at);
    static const mode_t kinds[] = {S_IFREG, 0, S_IFREG, S_IFDIR, S_IFLNK, S_IFIFO, S_IFSOCK, S_IFCHR};
    mode_t mode = kinds[below(d, drawn(FIFOS) ? 8 : 5)] | draw_mode(d);
    dev_t device = (mode & S_IFMT) == S_IFCHR ? makedev(1, 3) : 0;
    say(w, "(%s, %o)", p.shown, mode);
    RESULT(w, at ? mknodat(p.dir, p.pointer, mode, device) : mknod(p.pointer, mode, device));
    say_now(w, &p);
}

static void op_unlink(struct world *w, struct draw *d) {
    struct path p;
    int how = (int)below(d, 5), flags = chance(d, 4) ? 1 : chance(d, 50) ? AT_REMOVEDIR : 0;
    draw_path(w, d, &p, how >= 3);
    static const char *const names[] = {"unlink", "rmdir", "remove", "unlinkat", "unlinkat"};
    say(w, "[%s](%s, %x)", names[how], p.shown, how >= 3 ? flags : 0);
    RESULT(w, how == 0 ? unlink(p.pointer) : how == 1 ? rmdir(p.pointer) : how == 2 ? remove(p.pointer)
                                                                         : unlinkat(p.dir, p.pointer, flags));
}

static void op_rename(struct world *w, struct draw *d) {
    struct path from, to;
    int how = (int)below(d, 3);
    static const unsigned all[] = {0, RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_NOREPLACE | RENAME_EXCHANGE, 8};
    unsigned flags = how == 2 ? all[below(d, 5)] : 0;
    /* Relative paths of both names start at the same directory. */
    draw_path(w, d, &from, how > 0);
    draw_path(w, d, &to, how > 0);
    say(w, "[%u](%s, %s)", flags, from.shown, to.shown);
    RESULT(w, how == 0   ? rename(from.pointer, to.pointer)
              : how == 1 ? renameat(from.dir, from.pointer, to.dir, to.pointer)
                         : renameat2(from.dir, from.pointer, to.dir, to.pointer, flags));
    say_now(w, &from);
    say_now(w, &to);
}

static void op_link(struct world *w, struct draw *d) {
    struct path from, to;
    int how = (int)below(d, 6), flags = 0;
    draw_path(w, d, &from, how > 0);
    draw_path(w, d, &to, how > 0);
    if (how == 2) flags = AT_SYMLINK_FOLLOW;
    if (how == 3 && drawn(AT_FLAGS)) flags = 0x100;
    if (how == 4) {
        char name[16];
        from.dir = draw_fd(w, d, name);
        from.pointer = from.text;
        from.text[0] = 0;
        sprintf(from.shown, "%s:empty", name);
        flags = AT_EMPTY_PATH;
    }
    if (how == 5 && drawn(PROC_FD)) {
        char name[16];
        int fd = draw_fd(w, d, name);
        from.pointer = from.text;
        sprintf(from.text, "/proc/self/fd/%d", fd);
        sprintf(from.shown, "/proc/self/fd/%s", name);
        flags = AT_SYMLINK_FOLLOW;
    }
    say(w, "[%x](%s, %s)", flags, from.shown, to.shown);
    RESULT(w, how == 0 ? link(from.pointer, to.pointer) : linkat(from.dir, from.pointer, to.dir, to.pointer, flags));
    say_now(w, &to);
}

static void op_symlink(struct world *w, struct draw *d) {
    struct path p;
    static char target[2 * PATH_MAX + 512];
    bool at = chance(d, 50);
    draw_target(w, d, target);
    draw_path(w, d, &p, at);
    const char *pointer = drawn(BAD_POINTERS) && chance(d, 2) ? BAD_POINTER : target;
    say_path(w, pointer == target && strlen(target) < 300 ? target : "(odd)");
    say(w, ", %s", p.shown);
    RESULT(w, at ? symlinkat(pointer, p.dir, p.pointer) : symlink(pointer, p.pointer));
    say_now(w, &p);
}

static void op_readlink(struct world *w, struct draw *d) {
    struct path p;
    bool at = chance(d, 50);
    draw_path(w, d, &p, at);
    size_t len = chance(d, 20) ? below(d, 5) : LONGEST;
    memset(w->buffer, 0, 8192);
    say(w, "(%s, %zu)", p.shown, len);
    errno = 0;
    ssize_t n = at ? readlinkat(p.dir, p.pointer, w->buffer, len) : readlink(p.pointer, w->buffer, len);
    if (n < 5) say_result(w, n);
    if (n >= 0) say_path(w, n < 5 ? "" : w->buffer);
}

static void op_tmpfile(struct world *w, struct draw *d) {
    int how = (int)below(d, 5);
    char template[PATH_MAX + 40];
    unsigned kind = below(d, 20);
    sprintf(template, "%s%s/%s", w->root, chance(d, 20) ? "/d0" : kind == 2 ? "/no" : "",
            kind == 0 ? "tXXXXX" : kind == 1 ? "" : "tXXXXXX");
    if (how == 2 || how == 3) strcat(template, ".end");
    int at = slot(d, FDS), fd = -1, suffix = kind == 3 ? 400 : 4;
    static const char *const names[] = {"mkstemp", "mkostemp", "mkstemps", "mkostemps", "mkdtemp"};
    say(w, "[%s](", names[how]);
    say_path(w, template);
    say(w, ", %d)", suffix);
    errno = 0;
    switch (how) {
    case 0: fd = mkstemp(template); break;
    case 1: fd = mkostemp(template, O_APPEND); break;
    case 2: fd = mkstemps(template, suffix); break;
    case 3: fd = mkostemps(template, suffix, O_CLOEXEC); break;
    default: say_success(w, mkdtemp(template) ? 0 : -1);
    }
    if (how < 4) say_success(w, fd);
    struct stat st;
    if (lstat(template, &st) == 0) say_stat(w, &st);
    /* The name is random, so it goes away, and the file stays open. */
    if (fd >= 0) {
        keep_fd(w, at, fd);
        say(w, " unlink %d", unlink(template));
        say_fd(w, fd);
    } else if (how == 4) {
        say(w, " rmdir %d", rmdir(template));
    }
}

const struct operation name_operations[] = {
    {"open", 24, op_open}, {"openat2", 4, op_openat2}, {"mkdir", 4, op_mkdir}, {"mknod", 2, op_mknod},
    {"unlink", 7, op_unlink}, {"rename", 8, op_rename}, {"link", 6, op_link}, {"symlink", 4, op_symlink},
    {"readlink", 3, op_readlink}, {"tmpfile", 2, op_tmpfile}, {NULL, 0, NULL}};
