/* Draws arguments. */
#include "fuzz.h"

uint64_t draw(struct draw *d) {
    uint64_t z = d->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

unsigned below(struct draw *d, unsigned limit) { return (unsigned)(draw(d) % limit); }
bool chance(struct draw *d, unsigned percent) { return below(d, 100) < percent; }

/* Around the ends of pages, stripes and inline files, where code decides. */
static off_t near_border(struct draw *d) {
    static const off_t borders[] = {0, 512, 4096, 8192, 16384, 65536, 131072, 262144};
    off_t at = borders[below(d, 8)] + (off_t)below(d, 7) - 3;
    return at < 0 ? 0 : at;
}

off_t draw_offset(struct draw *d) {
    unsigned kind = below(d, 100);
    if (kind < 50) return below(d, 9000);
    if (kind < 85) return near_border(d);
    if (kind < 92) return below(d, 300000);
    if (kind < 96) return -(off_t)below(d, 10000);
    static const off_t odd[] = {-1, INT64_MAX, INT64_MIN, INT64_MAX - 1, INT32_MAX, (off_t)UINT32_MAX + 1};
    return odd[below(d, 6)];
}

size_t draw_length(struct draw *d) {
    unsigned kind = below(d, 100);
    if (kind < 8) return 0;
    if (kind < 60) return below(d, 600);
    if (kind < 80) return (size_t)near_border(d) % LONGEST;
    if (kind < 95) return below(d, 9000);
    return below(d, LONGEST);
}

char *fill(struct world *w, struct draw *d, size_t len) {
    uint64_t x = draw(d) | 1;
    for (size_t i = 0; i < len; i += 8) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        memcpy(w->buffer + i, &x, 8);
    }
    return w->buffer;
}

void *read_buffer(struct world *w, struct draw *d, size_t len, char *shown) {
    if (drawn(BAD_POINTERS) && chance(d, 3)) {
        bool null = chance(d, 50);
        strcpy(shown, null ? "NULL" : "bad");
        return null ? NULL : BAD_POINTER;
    }
    strcpy(shown, "buf");
    memset(w->buffer, 0xaa, len);
    return w->buffer;
}

int slot(struct draw *d, unsigned count) { return (int)below(d, count); }

int draw_fd(struct world *w, struct draw *d, char *shown) {
    unsigned kind = below(d, 100);
    if (kind < 2) {
        strcpy(shown, kind ? "-1" : "bad fd");
        return kind ? -1 : BAD_FD;
    }
    int first = slot(d, FDS);
    for (int i = 0; i < FDS; i++) {
        int at = (first + i) % FDS;
        if (w->fd[at] >= 0 || kind < 5) {
            sprintf(shown, "fd%d", at);
            return w->fd[at];
        }
    }
    strcpy(shown, "no fd");
    return BAD_FD;
}

static const char *const NAMES[] = {"f0", "f1", "f2", "d0", "d1", "l0", "l1", "f3", "d2", "x"};

static void add_names(struct draw *d, char *text) {
    int count = chance(d, 60) ? 1 : chance(d, 70) ? 2 : 3;
    for (int i = 0; i < count; i++) {
        const char *name = NAMES[below(d, 10)];
        if (i + 1 < count && chance(d, 70)) name = chance(d, 50) ? "d0" : "d1";
        if (i > 0 && chance(d, 5)) name = chance(d, 50) ? "." : "..";
        if (i > 0) strcat(text, chance(d, 3) ? "//" : "/");
        strcat(text, name);
    }
    if (chance(d, 5)) strcat(text, chance(d, 60) ? "/" : chance(d, 50) ? "/." : "//");
}

void draw_path(struct world *w, struct draw *d, struct path *path, bool at) {
    path->dir = AT_FDCWD;
    path->pointer = path->text;
    path->text[0] = 0;
    char *shown = path->shown;
    unsigned place = below(d, 100), odd = below(d, 200);
    const char *from = "R/";
    if (place < 60) {
        sprintf(path->text, "%s/", w->root);
    } else if (!at || place < 75) {
        from = "cwd:";
        enter(w);
    } else {
        char name[16];
        path->dir = draw_fd(w, d, name);
        sprintf(shown, "%s:", name);
        from = shown;
    }
    size_t prefix = strlen(path->text);
    if (from != shown) strcpy(shown, from);
    size_t before = strlen(shown);
    if (odd == 0 && drawn(BAD_POINTERS)) {
        path->pointer = chance(d, 50) ? NULL : BAD_POINTER;
        strcat(shown, path->pointer ? "bad pointer" : "NULL");
    } else if (odd == 1) {
        path->text[0] = 0;
        strcat(shown, "empty");
    } else if (odd == 2) {
        memset(path->text + prefix, 'n', 256);
        path->text[prefix + 256] = 0;
        strcat(shown, "(256 bytes)");
    } else if (odd == 3) {
        while (strlen(path->text) < PATH_MAX) strcat(path->text, "./");
        strcat(path->text, "f0");
        strcat(shown, "(longer than PATH_MAX)");
    } else if (odd == 4) {
        for (int i = 0; i < 1500; i++) strcat(path->text, "./");
        strcat(path->text, "f0");
        strcat(shown, "././...f0");
    } else if (odd == 5) {
        memset(path->text + prefix, 'n', 255);
        path->text[prefix + 255] = 0;
        strcat(shown, "(255 bytes)");
    } else if (odd == 6) {
        if (prefix) path->text[prefix - 1] = 0;
        else strcpy(path->text, ".");
        strcat(shown, "root");
    } else {
        add_names(d, path->text);
        strcpy(shown + before, path->text + prefix);
    }
}

/* Draws where a symbolic link leads: to a neighbor, upward, to an absolute path, to itself. */
void draw_target(struct world *w, struct draw *d, char *target) {
    target[0] = 0;
    unsigned kind = below(d, 100);
    if (kind < 25) sprintf(target, "%s/", w->root);
    else if (kind < 35) strcpy(target, "../");
    else if (kind < 37) return;
    else if (kind < 39) {
        memset(target, 't', PATH_MAX + 1);
        target[chance(d, 50) ? PATH_MAX - 1 : 300] = 0;
        target[PATH_MAX + 1] = 0;
        return;
    }
    add_names(d, target);
}

mode_t draw_mode(struct draw *d) {
    static const mode_t modes[] = {0644, 0600, 0755, 0777, 0, 0444, 0200, 01777, 04755, 02755, 06711, 02644};
    mode_t mode = chance(d, 90) ? modes[below(d, 12)] : (mode_t)draw(d) & 07777;
    return other_users ? mode & 01777 : mode;
}

int draw_flags(struct draw *d, char *shown) {
    static const struct { int flag; unsigned percent; const char *name; } all[] = {
        {O_CREAT, 50, "CREAT"}, {O_EXCL, 10, "EXCL"}, {O_TRUNC, 12, "TRUNC"}, {O_APPEND, 15, "APPEND"},
        {O_DIRECTORY, 8, "DIRECTORY"}, {O_NOFOLLOW, 8, "NOFOLLOW"}, {O_PATH, 5, "PATH"}, {O_DIRECT, 2, "DIRECT"},
        {O_CLOEXEC, 10, "CLOEXEC"}, {O_SYNC, 2, "SYNC"}, {O_DSYNC, 2, "DSYNC"}, {O_NOATIME, 2, "NOATIME"},
        {O_NOCTTY, 2, "NOCTTY"}, {O_TMPFILE, 3, "TMPFILE"}, {O_NONBLOCK, 4, "NONBLOCK"}, {0x40000000, 1, "UNKNOWN"},
    };
    static const char *const access[] = {"RDONLY", "WRONLY", "RDWR", "ACCMODE"};
    unsigned kind = below(d, 100);
    int flags = kind < 25 ? O_RDONLY : kind < 45 ? O_WRONLY : kind < 99 ? O_RDWR : O_ACCMODE;
    strcpy(shown, access[flags]);
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        if (chance(d, all[i].percent)) {
            flags |= all[i].flag;
            strcat(strcat(shown, "|"), all[i].name);
        }
    }
    if (drawn(FIFOS)) flags |= O_NONBLOCK;
    return flags;
}
