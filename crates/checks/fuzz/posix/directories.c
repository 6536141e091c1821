/* Listings, walks of trees, the working directory. */
#include "fuzz.h"
#include <fts.h>
#include <ftw.h>
#include <glob.h>
#include <sys/syscall.h>

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Adds names in order, because their order in a directory is free. */
static void say_names(struct world *w, char **names, int count) {
    qsort(names, (size_t)count, sizeof *names, by_name);
    for (int i = 0; i < count; i++) say(w, " %.30s", names[i]);
}

static void say_listing(struct world *w, DIR *dir) {
    char *names[100];
    int count = 0;
    errno = 0;
    for (struct dirent *entry; count < 100 && (entry = readdir(dir));) {
        names[count] = NULL;
        if (asprintf(&names[count++], "%s/%d", entry->d_name, entry->d_type) < 0) abort();
    }
    say(w, " end %d", errno);
    say_names(w, names, count);
    while (count) free(names[--count]);
}

static void op_opendir(struct world *w, struct draw *d) {
    struct path p;
    int at = slot(d, DIRS);
    bool by_fd = chance(d, 30);
    char name[16];
    draw_path(w, d, &p, false);
    int fd = draw_fd(w, d, name);
    say(w, "[%d](%s) dir%d", by_fd, by_fd ? name : p.shown, at);
    /* The C library reads the name itself. */
    if (p.pointer == BAD_POINTER || !p.pointer) return;
    DIR *dir;
    errno = 0;
    if (by_fd) {
        /* Not a duplicate of a directory: its position would be shared, and its values are free. */
        int own = openat(fd, ".", O_RDONLY | O_DIRECTORY);
        if (own < 0) own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        errno = 0;
        dir = fdopendir(own);
        say_success(w, dir ? 0 : -1);
        if (!dir && own >= 0) close(own);
    } else {
        dir = opendir(p.pointer);
        say_success(w, dir ? 0 : -1);
    }
    if (!dir) return;
    if (w->dir[at]) closedir(w->dir[at]);
    w->dir[at] = dir;
}

static void op_readdir(struct world *w, struct draw *d) {
    int at = slot(d, DIRS), how = (int)below(d, 5);
    DIR *dir = w->dir[at];
    say(w, "[%d](dir%d)", how, at);
    if (!dir) return;
    if (how == 0) {
        say(w, " close %d", closedir(dir));
        w->dir[at] = NULL;
        return;
    }
    if (how == 1) {
        struct stat st;
        if (fstat(dirfd(dir), &st) == 0) say_stat(w, &st);
        return;
    }
    rewinddir(dir);
    if (how == 2) {
        /* A position can be returned to: the listing from there is the same. */
        int skip = (int)below(d, 4);
        for (int i = 0; i < skip; i++) readdir(dir);
        long here = telldir(dir);
        struct dirent *entry = readdir(dir);
        char first[300] = "";
        if (entry) strcpy(first, entry->d_name);
        while (readdir(dir)) {}
        seekdir(dir, here);
        entry = readdir(dir);
        say(w, " %s", strcmp(entry ? entry->d_name : "", first) ? "another" : "same");
        return;
    }
    say_listing(w, dir);
}

static void op_getdents(struct world *w, struct draw *d) {
    char name[16];
    int fd = draw_fd(w, d, name);
    say(w, "(%s)", name);
    struct stat st;
    bool is_dir = fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
    if (is_dir) lseek(fd, 0, SEEK_SET);
    errno = 0;
    long n = chance(d, 50) ? getdents64(fd, w->buffer, 8192) : syscall(SYS_getdents64, fd, w->buffer, 8192);
    say_success(w, n < 0 ? -1 : 0);
    char *names[100];
    int count = 0;
    for (long at = 0; at < n && count < 100;) {
        struct dirent64 *entry = (void *)(w->buffer + at);
        names[count++] = entry->d_name;
        at += entry->d_reclen;
    }
    say_names(w, names, count);
    if (is_dir) lseek(fd, 0, SEEK_SET);
}

static struct world *walked;
static char *found[300];
static int found_count;

static void note(const char *path, int kind, int level) {
    size_t root = strlen(walked->root);
    if (strncmp(path, walked->root, root) == 0) path += root;
    if (found_count < 300 && asprintf(&found[found_count++], "%.60s/%d/%d", path, kind, level) < 0) abort();
}
static int visit(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)st;
    note(path, kind, at->level);
    return found_count > 250;
}
static int visit_plain(const char *path, const struct stat *st, int kind) {
    (void)st;
    note(path, kind, 0);
    return found_count > 250;
}
static int not_dots(const struct dirent *entry) { return entry->d_name[0] != '.'; }

static void op_walk(struct world *w, struct draw *d) {
    struct path p;
    int how = (int)below(d, drawn(TREE_WALKS) ? 6 : 3), flags = (int)below(d, 16) & (FTW_PHYS | FTW_MOUNT | FTW_DEPTH);
    draw_path(w, d, &p, how == 1);
    walked = w;
    found_count = 0;
    static const char *const names[] = {"scandir", "scandirat", "glob", "ftw", "nftw", "fts"};
    say(w, "[%s](%s, %d)", names[how], p.shown, flags);
    if (p.pointer != p.text) return;
    errno = 0;
    if (how < 2) {
        struct dirent **list;
        int n = how ? scandirat(p.dir, p.text, &list, not_dots, alphasort) : scandir(p.text, &list, not_dots, alphasort);
        say_result(w, n);
        for (int i = 0; i < n; i++) {
            say(w, " %.30s", list[i]->d_name);
            free(list[i]);
        }
        if (n >= 0) free(list);
        return;
    }
    if (how == 2) {
        static const char *const patterns[] = {"*", "f?", "[dl]*", "*/*", "d0/../*", "{f0,d*}/", ".*", "d*/", "\\f0"};
        glob_t all;
        char pattern[PATH_MAX + 32];
        sprintf(pattern, "%s/%s", w->root, patterns[below(d, 9)]);
        int options = (chance(d, 50) ? GLOB_BRACE : 0) | (chance(d, 30) ? GLOB_MARK : 0) | (chance(d, 20) ? GLOB_ONLYDIR : 0);
        say(w, " pattern %s %x = %d", pattern + strlen(w->root), options, glob(pattern, options, NULL, &all));
        for (size_t i = 0; i < all.gl_pathc && i < 100; i++) say_path(w, all.gl_pathv[i]);
        globfree(&all);
        return;
    }
    if (how == 3) say_result(w, ftw(p.text, visit_plain, 5));
    if (how == 4) say_result(w, nftw(p.text, visit, chance(d, 50) ? 1 : 20, flags));
    /* These visit a directory that links reach under the first name, and end at the first failure. The order is free. */
    bool by_order = how == 3 || (how == 4 && !(flags & FTW_PHYS));
    if (how == 5) {
        char *roots[] = {p.text, NULL};
        FTS *fts = fts_open(roots, (chance(d, 50) ? FTS_PHYSICAL : FTS_LOGICAL) | FTS_NOCHDIR, NULL);
        say(w, fts ? " = ok" : " = none");
        if (!fts) return;
        for (FTSENT *entry; (entry = fts_read(fts)) && found_count < 250;) note(entry->fts_path, entry->fts_info, entry->fts_level);
        fts_close(fts);
    }
    if (!by_order) say_names(w, found, found_count);
    while (found_count) free(found[--found_count]);
}

static void op_realpath(struct world *w, struct draw *d) {
    struct path p;
    char out[PATH_MAX];
    bool own = chance(d, 50);
    draw_path(w, d, &p, false);
    say(w, "(%s)", p.shown);
    /* The C library reads the name itself, and shortens it. */
    if (p.pointer == BAD_POINTER || strlen(p.text) >= PATH_MAX) return;
    errno = 0;
    char *real = own ? realpath(p.pointer, NULL) : realpath(p.pointer, out);
    if (!real) say_result(w, -1);
    else say_path(w, real);
    if (own) free(real);
}

static void op_chdir(struct world *w, struct draw *d) {
    struct path p;
    char name[16], out[PATH_MAX];
    bool by_fd = chance(d, 30);
    draw_path(w, d, &p, false);
    int fd = draw_fd(w, d, name);
    say(w, "[%d](%s)", by_fd, by_fd ? name : p.shown);
    errno = 0;
    enter(w);
    errno = 0;
    int result = by_fd ? fchdir(fd) : chdir(p.pointer);
    say_result(w, result);
    if (result == 0) {
        int here = open(".", O_RDONLY | O_DIRECTORY);
        say_success(w, here);
        if (here >= 0) {
            close(w->cwd);
            w->cwd = here;
        }
    }
    errno = 0;
    char *now = chance(d, 10) ? getcwd(out, 3) : getcwd(out, sizeof out);
    if (!now) say_result(w, -1);
    else say_path(w, now);
}

/* The working directory is an inode: it is renamed, and its name taken by another directory, while in use. */
static void op_moved_cwd(struct world *w, struct draw *d) {
    char a[PATH_MAX + 16], b[PATH_MAX + 16], out[PATH_MAX];
    struct stat st;
    if (!drawn(RENAMED_CWD)) return;
    sprintf(a, "%s/cwd-a", w->root);
    sprintf(b, "%s/%s/cwd-b", w->root, chance(d, 50) ? "d0" : ".");
    int steps = (int)below(d, 4);
    say(w, "(%d)", steps);
    SUCCESS(w, mkdir(a, 0755));
    SUCCESS(w, chdir(a));
    SUCCESS(w, rename(a, b));
    if (steps & 1) SUCCESS(w, mkdir(a, 0755));
    int fd = open("inside", O_CREAT | O_RDWR, 0644);
    say_success(w, fd);
    close(fd);
    SUCCESS(w, mkdir("below", 0755));
    errno = 0;
    char *now = getcwd(out, sizeof out);
    if (!now) say_result(w, -1);
    else say_path(w, now);
    if (steps & 2) {
        SUCCESS(w, unlink("inside"));
        SUCCESS(w, rmdir("below"));
        SUCCESS(w, rmdir(b));
        SUCCESS(w, open("again", O_CREAT | O_RDWR, 0644));
        SUCCESS(w, stat(".", &st));
        errno = 0;
        SUCCESS(w, getcwd(out, sizeof out) ? 0 : -1);
    }
    if (chdir("/") != 0) abort();
    char path[PATH_MAX + 32];
    static const char *const rest[] = {"/below", "/inside", ""};
    for (int i = 0; i < 3; i++) {
        sprintf(path, "%s%s", b, rest[i]);
        SUCCESS(w, remove(path));
    }
    SUCCESS(w, rmdir(a));
}

const struct operation directory_operations[] = {
    {"opendir", 3, op_opendir}, {"readdir", 5, op_readdir}, {"getdents", 1, op_getdents}, {"walk", 3, op_walk},
    {"realpath", 3, op_realpath}, {"chdir", 4, op_chdir}, {"moved_cwd", 1, op_moved_cwd}, {NULL, 0, NULL}};
