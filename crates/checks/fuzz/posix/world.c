/* The state of one world, and texts that describe it. */
#include "fuzz.h"
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/xattr.h>

void say(struct world *w, const char *format, ...) {
    va_list list;
    va_start(list, format);
    int n = vsnprintf(w->text + w->used, TEXT - w->used, format, list);
    va_end(list);
    w->used = w->used + (size_t)n < TEXT ? w->used + (size_t)n : TEXT - 1;
}

static void say_errno(struct world *w) {
    int error = errno;
    const char *name = strerrorname_np(error);
    say(w, " = -1 %s", name ? name : "unknown");
}

void say_result(struct world *w, long result) {
    if (result == -1) say_errno(w);
    else say(w, " = %ld", result);
}

void say_success(struct world *w, long result) {
    if (result == -1) say_errno(w);
    else say(w, " = ok");
}

uint64_t hash(const void *bytes, size_t len) {
    const unsigned char *p = bytes;
    uint64_t h = 0xcbf29ce484222325u;
    for (; len >= 8; len -= 8, p += 8) {
        uint64_t x;
        memcpy(&x, p, 8);
        h = (h ^ x) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    for (; len; len--) h = (h ^ *p++) * 0x100000001b3u;
    return h;
}

void say_bytes(struct world *w, const void *bytes, size_t len) {
    say(w, " <%zu:%016llx>", len, (unsigned long long)hash(bytes, len));
}

/* Deeper than any drawn path climbs. */
#define ABOVE "/up/up/up/up"

/* Writes the world's own directory as R, and those above it as A, so that texts are comparable. */
void say_path(struct world *w, const char *text) {
    size_t root = strlen(w->root), above = root - strlen(ABOVE "/root");
    bool in_root = strncmp(text, w->root, root) == 0;
    bool is_above = strncmp(text, w->root, above) == 0;
    const char *rest = text + (in_root ? root : is_above ? above : 0);
    const char *from = in_root ? "R" : is_above ? "A" : "";
    if (strlen(rest) > 250) say(w, " \"%s%.8s(%zu bytes)\"", from, rest, strlen(rest));
    else say(w, " \"%s%s\"", from, rest);
}

void say_stat(struct world *w, const struct stat *st) {
    say(w, " {%o links %u user %u:%u", st->st_mode, (unsigned)st->st_nlink, st->st_uid, st->st_gid);
    if (S_ISREG(st->st_mode)) say(w, " size %lld", (long long)st->st_size);
    if (S_ISCHR(st->st_mode) || S_ISBLK(st->st_mode)) say(w, " device %lx", (long)st->st_rdev);
    say(w, "}");
}

/* Describes an open file: position, attributes. */
void say_fd(struct world *w, int fd) {
    struct stat st;
    if (fstat(fd, &st) != 0) {
        say_errno(w);
        return;
    }
    if (S_ISREG(st.st_mode)) say(w, " at %lld", (long long)lseek(fd, 0, SEEK_CUR));
    say_stat(w, &st);
}

void keep_fd(struct world *w, int at, int fd) {
    if (w->fd[at] >= 0 && w->fd[at] != fd) close(w->fd[at]);
    w->fd[at] = fd;
}

/* Removes a tree without the functions under test that walk trees. */
static void remove_tree(const char *path) {
    DIR *dir = opendir(path);
    if (dir) {
        for (struct dirent *entry; (entry = readdir(dir));) {
            char child[PATH_MAX];
            if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
            snprintf(child, sizeof child, "%s/%s", path, entry->d_name);
            struct stat st;
            if (lstat(child, &st) == 0 && S_ISDIR(st.st_mode)) remove_tree(child);
            else unlink(child);
        }
        closedir(dir);
    }
    rmdir(path);
}

static void close_all(struct world *w) {
    for (int i = 0; i < STREAMS; i++) {
        if (w->stream[i]) fclose(w->stream[i]);
        w->stream[i] = NULL;
        w->last[i] = 0;
    }
    for (int i = 0; i < DIRS; i++) {
        if (w->dir[i]) closedir(w->dir[i]);
        w->dir[i] = NULL;
    }
    for (int i = 0; i < MAPS; i++) {
        if (w->map[i].at) munmap(w->map[i].at, w->map[i].len), close(w->map[i].fd);
        w->map[i].at = NULL;
    }
    for (int i = 0; i < FDS; i++) {
        if (w->fd[i] >= 0) close(w->fd[i]);
        w->fd[i] = -1;
    }
    if (w->cwd >= 0) close(w->cwd);
    w->cwd = -1;
}

void discard(struct world *w) {
    if (chdir("/") != 0) abort();
    close_all(w);
    char top[PATH_MAX];
    snprintf(top, sizeof top, "%.*s", (int)(strlen(w->root) - strlen(ABOVE "/root") + 3), w->root);
    remove_tree(top);
}

static void make(const char *path) {
    if (mkdir(path, 0755) != 0 && errno != EEXIST) {
        fprintf(stderr, "weft: %s: cannot be created: %s; free its place\n", path, strerror(errno));
        exit(2);
    }
}

void reset(struct world *w) {
    discard(w);
    umask(022);
    char path[PATH_MAX + 8];
    strcpy(path, w->root);
    size_t end = strlen(w->root), start = end - strlen(ABOVE "/root");
    for (size_t i = start; i <= end; i++) {
        if (w->root[i] != '/' && w->root[i]) continue;
        path[i] = 0;
        make(path);
        path[i] = w->root[i];
    }
    snprintf(path, sizeof path, "%s/d0", w->root);
    make(path);
    snprintf(path, sizeof path, "%s/d1", w->root);
    make(path);
    snprintf(path, sizeof path, "%s/f0", w->root);
    int fd = open(path, O_CREAT | O_RDWR, 0644);
    if (fd < 0 || write(fd, "a small file\nof two lines\n", 26) != 26) {
        fprintf(stderr, "weft: %s: cannot be written: %s; free its place\n", path, strerror(errno));
        exit(2);
    }
    w->fd[0] = fd;
    w->cwd = open(w->root, O_RDONLY | O_DIRECTORY);
}

void enter(struct world *w) {
    struct stat st;
    /* A mount does not serve removed directories. */
    if (!drawn(RENAMED_CWD) && (fstat(w->cwd, &st) != 0 || st.st_nlink == 0)) {
        close(w->cwd);
        w->cwd = open(w->root, O_RDONLY | O_DIRECTORY);
    }
    if (fchdir(w->cwd) != 0) say(w, " fchdir %s", strerrorname_np(errno));
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void say_contents(struct world *w, const char *path, off_t size) {
    int fd = open(path, O_RDONLY);
    if (fd < 0) {
        say_errno(w);
        return;
    }
    uint64_t all = 0;
    off_t done = 0;
    /* Sparse files may be longer than memory. */
    for (ssize_t n; done < 2 * LONGEST && (n = pread(fd, w->buffer, LONGEST, done)) > 0; done += n)
        all = all * 31 + hash(w->buffer, (size_t)n);
    say(w, " %lld bytes %016llx", (long long)done, (unsigned long long)all);
    if (size > done) {
        ssize_t n = pread(fd, w->buffer, 4096, size > 4096 ? size - 4096 : 0);
        say_bytes(w, w->buffer, n > 0 ? (size_t)n : 0);
    }
    close(fd);
}

static void say_below(struct world *w, char *path, int depth) {
    char *names[64];
    int count = 0;
    DIR *dir = opendir(path);
    if (!dir) {
        say_errno(w);
        return;
    }
    for (struct dirent *entry; count < 64 && (entry = readdir(dir));) names[count++] = strdup(entry->d_name);
    closedir(dir);
    qsort(names, (size_t)count, sizeof *names, by_name);
    size_t end = strlen(path);
    for (int i = 0; i < count; i++) {
        struct stat st;
        bool dots = !strcmp(names[i], ".") || !strcmp(names[i], "..");
        snprintf(path + end, PATH_MAX - end, "/%s", names[i]);
        say(w, "\n%*s%.20s", depth + 1, "", names[i]);
        if (dots) {
        } else if (lstat(path, &st) != 0) {
            say_errno(w);
        } else {
            say_stat(w, &st);
            char text[PATH_MAX + 1];
            ssize_t n;
            if (S_ISLNK(st.st_mode) && (n = readlink(path, text, PATH_MAX)) >= 0) {
                text[n] = 0;
                say_path(w, text);
            }
            if (S_ISREG(st.st_mode)) say_contents(w, path, st.st_size);
            if (S_ISREG(st.st_mode) && (n = getxattr(path, "user.a", text, 4096)) >= 0) say_bytes(w, text, (size_t)n);
            if (S_ISDIR(st.st_mode) && depth < 12) say_below(w, path, depth + 1);
        }
        free(names[i]);
    }
    path[end] = 0;
}

void say_tree(struct world *w) {
    char path[PATH_MAX];
    for (int i = 0; i < STREAMS; i++)
        if (w->stream[i]) fflush(w->stream[i]);
    strcpy(path, w->root);
    say_below(w, path, 0);
}

mode_t kind_of(int fd) {
    struct stat st;
    int flags = on_mount ? fcntl(fd, F_GETFL) : 0;
    if (flags > 0 && flags & O_PATH) return S_IFDIR;
    if (fstat(fd, &st) != 0) return errno == ESTALE ? S_IFDIR : 0;
    return st.st_mode & S_IFMT;
}
