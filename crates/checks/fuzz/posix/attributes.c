/* Attributes of files: by path, by descriptor, by both. */
#include "fuzz.h"
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <utime.h>

static int at_flags(struct draw *d) {
    static const int all[] = {0, 0, AT_SYMLINK_NOFOLLOW, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, AT_NO_AUTOMOUNT, 0x40};
    return all[below(d, drawn(AT_FLAGS) ? 7 : 4)];
}

/* Half of the calls with AT_EMPTY_PATH name the directory's descriptor itself. */
static void maybe_empty(struct world *w, struct draw *d, struct path *p, int flags) {
    char name[16];
    if (!(flags & AT_EMPTY_PATH) || chance(d, 50)) return;
    p->dir = draw_fd(w, d, name);
    p->pointer = p->text;
    p->text[0] = 0;
    sprintf(p->shown, "%s:empty", name);
}

static void op_stat(struct world *w, struct draw *d) {
    struct path p;
    struct stat st;
    struct statx stx;
    int how = (int)below(d, 5), flags = at_flags(d);
    bool bad = drawn(BAD_POINTERS) && chance(d, 2);
    struct stat *to = bad ? BAD_POINTER : &st;
    char name[16];
    static const char *const names[] = {"stat", "lstat", "fstat", "fstatat", "statx"};
    draw_path(w, d, &p, how > 2);
    maybe_empty(w, d, &p, how > 2 ? flags : 0);
    int fd = draw_fd(w, d, name);
    say(w, "[%s](%s, %x%s)", names[how], how == 2 ? name : p.shown, how > 2 ? flags : 0, bad ? ", bad" : "");
    errno = 0;
    int result = how == 0   ? stat(p.pointer, to)
                 : how == 1 ? lstat(p.pointer, to)
                 : how == 2 ? fstat(fd, to)
                 : how == 3 ? fstatat(p.dir, p.pointer, to, flags)
                            : statx(p.dir, p.pointer, flags, STATX_BASIC_STATS, bad ? BAD_POINTER : &stx);
    say_result(w, result);
    if (result == 0 && how < 4) say_stat(w, &st);
    if (result == 0 && how == 4) {
        say(w, " %o %u %u:%u", stx.stx_mode, stx.stx_nlink, stx.stx_uid, stx.stx_gid);
        if (S_ISREG(stx.stx_mode)) say(w, " %lld", (long long)stx.stx_size);
    }
}

static void op_access(struct world *w, struct draw *d) {
    struct path p;
    int how = (int)below(d, 3), mask = chance(d, 5) ? 8 : (int)below(d, 8);
    int flags = drawn(AT_FLAGS) ? at_flags(d) : 0;
    draw_path(w, d, &p, how == 2);
    maybe_empty(w, d, &p, how == 2 ? flags : 0);
    say(w, "[%d](%s, %d, %x)", how, p.shown, mask, flags);
    RESULT(w, how == 0 ? access(p.pointer, mask) : how == 1 ? euidaccess(p.pointer, mask)
                                                            : faccessat(p.dir, p.pointer, mask, flags));
}

static void op_chmod(struct world *w, struct draw *d) {
    struct path p;
    char name[16];
    mode_t mode = draw_mode(d);
    /* Whether fchmodat knows AT_EMPTY_PATH depends on the C library. */
    int how = (int)below(d, 3), flags = chance(d, 20) ? 0x40 : chance(d, 50) ? AT_SYMLINK_NOFOLLOW : 0;
    draw_path(w, d, &p, how == 2);
    int fd = draw_fd(w, d, name);
    say(w, "[%d](%s, %o, %x)", how, how == 1 ? name : p.shown, mode, flags);
    RESULT(w, how == 0 ? chmod(p.pointer, mode) : how == 1 ? fchmod(fd, mode)
                                                           : fchmodat(p.dir, p.pointer, mode, flags));
    if (how == 1) say_fd(w, fd);
}

static void op_chown(struct world *w, struct draw *d) {
    struct path p;
    char name[16];
    static const uid_t ids[] = {0, 1000, 4711, (uid_t)-1};
    uid_t user = ids[below(d, 4)];
    gid_t group = ids[below(d, 4)];
    if (!other_users) user = user == (uid_t)-1 ? user : 0, group = group == (gid_t)-1 ? group : 0;
    int how = (int)below(d, 4), flags = at_flags(d);
    draw_path(w, d, &p, how == 3);
    maybe_empty(w, d, &p, how == 3 ? flags : 0);
    int fd = draw_fd(w, d, name);
    say(w, "[%d](%s, %d, %d, %x)", how, how == 2 ? name : p.shown, (int)user, (int)group, how == 3 ? flags : 0);
    RESULT(w, how == 0   ? chown(p.pointer, user, group)
              : how == 1 ? lchown(p.pointer, user, group)
              : how == 2 ? fchown(fd, user, group)
                         : fchownat(p.dir, p.pointer, user, group, flags));
    if (how == 2) say_fd(w, fd);
}

static struct timespec draw_time(struct draw *d) {
    static const long parts[] = {0, 1, 123456789, 999999999, 1000000000, -1, UTIME_OMIT, UTIME_NOW};
    struct timespec at = {(time_t)below(d, 2000000000), parts[below(d, 8)]};
    return at;
}

static void op_utimes(struct world *w, struct draw *d) {
    struct path p;
    char name[16];
    struct timespec at[2] = {draw_time(d), draw_time(d)};
    struct timeval old[2];
    for (int i = 0; i < 2; i++) old[i] = (struct timeval){at[i].tv_sec, at[i].tv_nsec / 1000};
    int how = (int)below(d, 6), flags = at_flags(d);
    draw_path(w, d, &p, how == 0);
    maybe_empty(w, d, &p, how == 0 ? flags : 0);
    int fd = draw_fd(w, d, name);
    bool by_fd = how == 1 || how == 4;
    say(w, "[%d](%s, %ld.%ld, %ld.%ld, %x)", how, by_fd ? name : p.shown, at[0].tv_sec, at[0].tv_nsec, at[1].tv_sec,
        at[1].tv_nsec, how == 0 ? flags : 0);
    errno = 0;
    struct utimbuf buf = {at[0].tv_sec, at[1].tv_sec};
    int result = how == 0   ? utimensat(p.dir, p.pointer, at, flags)
                 : how == 1 ? futimens(fd, at)
                 : how == 2 ? utimes(p.pointer, old)
                 : how == 3 ? lutimes(p.pointer, old)
                 : how == 4 ? futimes(fd, old)
                            : utime(p.pointer, &buf);
    say_result(w, result);
    struct stat st;
    int again = by_fd ? fstat(fd, &st) : how == 0 ? fstatat(p.dir, p.pointer, &st, flags) : -1;
    if (result == 0 && again == 0) {
        if (at[1].tv_nsec >= 0 && at[1].tv_nsec < 1000000000) say(w, " mtime %ld.%ld", st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
        /* Under `weft run`, calls by a path of the host read its links. */
        bool is_read = S_ISLNK(st.st_mode);
        if (at[0].tv_nsec >= 0 && at[0].tv_nsec < 1000000000 && !is_read) say(w, " atime %ld.%ld", st.st_atim.tv_sec, st.st_atim.tv_nsec);
    }
}

static int compare_names(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* The order of attributes is free. */
static void say_list(struct world *w, char *list, ssize_t len) {
    char *names[32];
    int count = 0;
    for (ssize_t at = 0; at < len && count < 32; at += (ssize_t)strlen(list + at) + 1) names[count++] = list + at;
    qsort(names, (size_t)count, sizeof *names, compare_names);
    for (int i = 0; i < count; i++)
        if (strncmp(names[i], "security.", 9)) say(w, " %s", names[i]);
}

static void op_xattr(struct world *w, struct draw *d) {
    static const char *const keys[] = {"user.a", "user.b", "user.long-name-of-an-attribute", "trusted.c", "a", ""};
    struct path p;
    char name[16];
    const char *key = keys[below(d, chance(d, 10) ? 6 : 4)];
    int what = (int)below(d, 4), how = (int)below(d, 3), flags = chance(d, 30) ? (int)below(d, 4) : 0;
    size_t len = chance(d, 85) ? below(d, 40) : chance(d, 50) ? below(d, 1000) : 65537;
    draw_path(w, d, &p, false);
    int fd = draw_fd(w, d, name);
    /* Older kernels look at the file first. */
    if (!*key && !kernel_is(6, 13)) key = "user.b";
    static const char *const names[] = {"set", "get", "list", "remove"}, *const hows[] = {"", "l", "f"};
    say(w, "[%s%s](%s, %s, %zu, %d)", hows[how], names[what], how == 2 ? name : p.shown, key, len, flags);
    char *value = fill(w, d, 65544);
    ssize_t n = 0;
    errno = 0;
    switch (what) {
    case 0:
        RESULT(w, how == 0   ? setxattr(p.pointer, key, value, len, flags)
                  : how == 1 ? lsetxattr(p.pointer, key, value, len, flags)
                             : fsetxattr(fd, key, value, len, flags));
        break;
    case 1:
        n = how == 0 ? getxattr(p.pointer, key, value, len) : how == 1 ? lgetxattr(p.pointer, key, value, len)
                                                                       : fgetxattr(fd, key, value, len);
        say_result(w, n);
        if (n > 0 && len) say_bytes(w, value, (size_t)n);
        break;
    case 2:
        len = len > 30 ? 60000 : 0;
        n = how == 0 ? listxattr(p.pointer, value, len) : how == 1 ? llistxattr(p.pointer, value, len)
                                                                   : flistxattr(fd, value, len);
        /* With security modules, some file systems have more names. */
        say_success(w, n);
        if (n > 0 && len) say_list(w, value, n);
        break;
    default:
        RESULT(w, how == 0 ? removexattr(p.pointer, key) : how == 1 ? lremovexattr(p.pointer, key) : fremovexattr(fd, key));
    }
}

static void op_space(struct world *w, struct draw *d) {
    static const int keys[] = {_PC_NAME_MAX, _PC_PATH_MAX, _PC_PIPE_BUF, _PC_NO_TRUNC, _PC_CHOWN_RESTRICTED, 999};
    struct path p;
    char name[16];
    struct statvfs space;
    int how = (int)below(d, 4), key = keys[below(d, 6)];
    draw_path(w, d, &p, false);
    int fd = draw_fd(w, d, name);
    say(w, "[%d](%s, %d)", how, how % 2 ? name : p.shown, key);
    /* The C library reads the name itself. */
    if (how == 2 && p.pointer != p.text) return;
    if (how == 0) RESULT(w, statvfs(p.pointer, &space));
    else if (how == 1) RESULT(w, fstatvfs(fd, &space));
    else if (how == 2) RESULT(w, pathconf(p.pointer, key));
    else RESULT(w, fpathconf(fd, key));
}

const struct operation attribute_operations[] = {
    {"stat", 8, op_stat}, {"access", 3, op_access}, {"chmod", 4, op_chmod}, {"chown", 3, op_chown},
    {"utimes", 4, op_utimes}, {"xattr", 6, op_xattr}, {"space", 1, op_space}, {NULL, 0, NULL}};
