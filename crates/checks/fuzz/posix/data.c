/* Reads, writes, positions and lengths of open files. */
#include "fuzz.h"
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

/* What a call does with a bad pointer besides EFAULT is free: tmpfs extends the file, FUSE fails at the end of a file.
 * Restores length and position. */
struct before {
    struct stat st;
    off_t at;
};

static struct before before_fault(int fd) {
    struct before b;
    if (fstat(fd, &b.st) != 0 || !S_ISREG(b.st.st_mode)) b.st.st_size = -1;
    b.at = lseek(fd, 0, SEEK_CUR);
    return b;
}

static void after_fault(struct world *w, int fd, struct before b, ssize_t result) {
    int error = errno;
    struct stat st;
    if (b.st.st_size >= 0 && fstat(fd, &st) == 0 && st.st_size > b.st.st_size && ftruncate(fd, b.st.st_size) != 0) say(w, "?");
    if (b.at >= 0) lseek(fd, b.at, SEEK_SET);
    errno = error;
    if (result >= 0 || error == EFAULT) say(w, " = fault");
    else say_result(w, result);
}

#define MAY_FAULT(w, fd, bad, call) do { \
        struct before before_ = before_fault(fd); \
        errno = 0; \
        ssize_t result_ = (call); \
        if (bad) after_fault(w, fd, before_, result_); \
        else say_result(w, result_); \
    } while (0)

static void op_read(struct world *w, struct draw *d) {
    char name[16], buffer[8];
    int fd = draw_fd(w, d, name);
    size_t len = draw_length(d);
    void *to = read_buffer(w, d, len, buffer);
    say(w, "(%s, %s, %zu)", name, buffer, len);
    MAY_FAULT(w, fd, to != w->buffer, read(fd, to, len));
    if (to == w->buffer) say_bytes(w, to, len);
    say_fd(w, fd);
}

static void op_pread(struct world *w, struct draw *d) {
    char name[16], buffer[8];
    int fd = draw_fd(w, d, name);
    size_t len = draw_length(d);
    off_t at = draw_offset(d);
    void *to = read_buffer(w, d, len, buffer);
    say(w, "(%s, %s, %zu, %lld)", name, buffer, len, (long long)at);
    MAY_FAULT(w, fd, to != w->buffer, pread(fd, to, len, at));
    if (to == w->buffer) say_bytes(w, to, len);
    if (chance(d, 20)) say_fd(w, fd);
}

static const void *write_buffer(struct world *w, struct draw *d, size_t len, char *shown) {
    char *from = fill(w, d, len);
    if (drawn(BAD_POINTERS) && chance(d, 3)) {
        from = chance(d, 50) ? NULL : BAD_POINTER;
        strcpy(shown, from ? "bad" : "NULL");
    } else {
        strcpy(shown, "buf");
    }
    return from;
}

/* Sparse files may be long, but offsets that few file systems can store differ by design. */
static off_t writable(struct draw *d) {
    off_t at = draw_offset(d);
    return at > (off_t)1 << 40 && at < INT64_MAX - LONGEST ? (off_t)1 << 33 : at;
}

static void op_write(struct world *w, struct draw *d) {
    char name[16], buffer[8];
    int fd = draw_fd(w, d, name);
    size_t len = draw_length(d);
    const void *from = write_buffer(w, d, len, buffer);
    say(w, "(%s, %s, %zu)", name, buffer, len);
    MAY_FAULT(w, fd, from != w->buffer, write(fd, from, len));
    say_fd(w, fd);
}

static void op_pwrite(struct world *w, struct draw *d) {
    char name[16], buffer[8];
    int fd = draw_fd(w, d, name);
    size_t len = draw_length(d);
    off_t at = writable(d);
    const void *from = write_buffer(w, d, len, buffer);
    say(w, "(%s, %s, %zu, %lld)", name, buffer, len, (long long)at);
    MAY_FAULT(w, fd, from != w->buffer, pwrite(fd, from, len, at));
    if (chance(d, 50)) say_fd(w, fd);
}

/* Splits the buffer into parts, some of them empty or invalid. Returns their count. */
static int parts(struct world *w, struct draw *d, struct iovec *iov, char *shown, bool *bad) {
    unsigned kind = below(d, 100);
    int count = kind < 2 ? -1 : kind < 4 ? 0 : kind < 6 ? IOV_MAX + 1 : 1 + (int)below(d, 5);
    size_t at = 0;
    for (int i = 0; i < count; i++) {
        size_t len = count > 5 ? 1 : chance(d, 15) ? 0 : draw_length(d) / 5;
        iov[i] = (struct iovec){w->buffer + at, len};
        at += len;
    }
    int n = sprintf(shown, "%d parts of %zu", count, at);
    if (count > 0 && count < 6 && drawn(BAD_POINTERS) && chance(d, 5)) {
        iov[0].iov_base = chance(d, 50) ? NULL : BAD_POINTER;
        *bad = iov[0].iov_len > 0;
        sprintf(shown + n, ", first of %zu bad", iov[0].iov_len);
    } else if (count > 0 && chance(d, 2)) {
        iov[0].iov_len = SIZE_MAX / 2 + 5;
        sprintf(shown + n, ", first too long");
    }
    return count;
}

static int vector_flags(struct draw *d) {
    static const int flags[] = {0, 0, 0, RWF_HIPRI, RWF_SYNC, RWF_DSYNC, 1 << 30};
    return flags[below(d, 7)];
}

static void vector(struct world *w, struct draw *d, bool writes) {
    static struct iovec iov[IOV_MAX + 1];
    char name[16], shown[80];
    int fd = draw_fd(w, d, name), how = (int)below(d, 3), flags = 0;
    memset(w->buffer, 0xaa, LONGEST);
    if (writes) fill(w, d, LONGEST);
    bool bad = false;
    int count = parts(w, d, iov, shown, &bad);
    off_t at = writable(d);
    if (how == 2) {
        flags = vector_flags(d);
        if (!writes && flags != 1 << 30) flags &= ~(RWF_SYNC | RWF_DSYNC);
        if (chance(d, 50)) at = -1;
    }
    static const char *const names[] = {"v", "pv", "pv2"};
    say(w, "[%s](%s, %s, %lld, flags %x)", names[how], name, shown, how ? (long long)at : 0, flags);
    if (writes) {
        MAY_FAULT(w, fd, bad, how == 0 ? writev(fd, iov, count) : how == 1 ? pwritev(fd, iov, count, at)
                                                                           : pwritev2(fd, iov, count, at, flags));
    } else {
        MAY_FAULT(w, fd, bad, how == 0 ? readv(fd, iov, count) : how == 1 ? preadv(fd, iov, count, at)
                                                                          : preadv2(fd, iov, count, at, flags));
        if (!bad) say_bytes(w, w->buffer, LONGEST);
    }
    say_fd(w, fd);
}
static void op_readv(struct world *w, struct draw *d) { vector(w, d, false); }
static void op_writev(struct world *w, struct draw *d) { vector(w, d, true); }

static void op_lseek(struct world *w, struct draw *d) {
    static const int whences[] = {SEEK_SET, SEEK_SET, SEEK_CUR, SEEK_END, SEEK_DATA, SEEK_HOLE, 5, -1, 99};
    char name[16];
    int fd = draw_fd(w, d, name), whence = whences[below(d, 9)];
    off_t at = draw_offset(d);
    struct stat st;
    say(w, "(%s, %lld, %d)", name, (long long)at, whence);
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) return;
    /* File systems limit positions differently. */
    if (at > (off_t)1 << 40) at = (off_t)1 << 40;
    errno = 0;
    off_t result = lseek(fd, at, whence);
    /* File systems may report other holes; positions must be the same afterwards. */
    if (whence == SEEK_DATA || whence == SEEK_HOLE) {
        if (result >= 0 || errno == ENXIO) {
            if (result >= 0) say(w, result >= at ? "" : " went back");
            lseek(fd, 0, SEEK_SET);
            return;
        }
    }
    say_result(w, result);
    say_fd(w, fd);
}

static off_t length_of_file(struct draw *d) {
    off_t len = writable(d);
    /* tmpfs has no limit, ext4 and Weft have different ones. */
    return len > (off_t)1 << 40 ? 4097 : len;
}

static void op_ftruncate(struct world *w, struct draw *d) {
    char name[16];
    int fd = draw_fd(w, d, name);
    off_t len = length_of_file(d);
    say(w, "(%s, %lld)", name, (long long)len);
    RESULT(w, ftruncate(fd, len));
    say_fd(w, fd);
}

static void op_truncate(struct world *w, struct draw *d) {
    struct path p;
    draw_path(w, d, &p, false);
    off_t len = length_of_file(d);
    say(w, "(%s, %lld)", p.shown, (long long)len);
    RESULT(w, truncate(p.pointer, len));
    struct stat st;
    if (stat(p.pointer == p.text ? p.text : "", &st) == 0) say_stat(w, &st);
}

static void op_fallocate(struct world *w, struct draw *d) {
    /* FALLOC_FL_PUNCH_HOLE, FALLOC_FL_ZERO_RANGE: tmpfs knows the first only. */
    static const int modes[] = {0, 0, 3, 3, 2, 0x100};
    char name[16];
    int fd = draw_fd(w, d, name), mode = modes[below(d, 6)];
    off_t at = draw_offset(d), len = draw_offset(d);
    if (at > 1 << 20 || len > 1 << 20) at = 0, len = 4097;
    bool posix = chance(d, 20);
    /* A hole keeps the length, and is visible in the bytes alone. */
    if (posix) say(w, "[posix](%s, %lld, %lld)", name, (long long)at, (long long)len);
    else say(w, "(%s, %d, %lld, %lld)", name, mode, (long long)at, (long long)len);
    RESULT(w, posix ? posix_fallocate(fd, at, len) : fallocate(fd, mode, at, len));
    say_fd(w, fd);
}

static void op_sync(struct world *w, struct draw *d) {
    char name[16];
    int fd = draw_fd(w, d, name), how = (int)below(d, 6);
    static const char *const names[] = {"fsync", "fdatasync", "syncfs", "range", "advise", "readahead"};
    off_t at = draw_offset(d), len = draw_offset(d);
    int advice = (int)below(d, 8);
    say(w, "[%s](%s, %lld, %lld, %d)", names[how], name, (long long)at, (long long)len, advice);
    switch (how) {
    case 0: RESULT(w, fsync(fd)); break;
    case 1: RESULT(w, fdatasync(fd)); break;
    case 2: RESULT(w, syncfs(fd)); break;
    case 3: RESULT(w, sync_file_range(fd, at, len, (unsigned)advice)); break;
    case 4: RESULT(w, posix_fadvise(fd, at, len, advice)); break;
    default: RESULT(w, readahead(fd, at, 4096));
    }
}

static void op_copy(struct world *w, struct draw *d) {
    char from[16], to[16];
    int in = draw_fd(w, d, from), out = draw_fd(w, d, to);
    size_t len = draw_length(d);
    off_t in_at = draw_offset(d), out_at = writable(d);
    bool in_given = chance(d, 50), out_given = chance(d, 50), is_sendfile = drawn(SENDFILE) && chance(d, 50);
    unsigned flags = chance(d, 4) ? 1 : 0;
    if (in_at > 1 << 30) in_at = 7;
    /* tmpfs can store a last byte there. */
    if (out_at > (off_t)1 << 40) out_at = INT64_MAX;
    struct stat a, b;
    /* What overlapping ranges of one file become is undefined. */
    if (is_sendfile && fstat(in, &a) == 0 && fstat(out, &b) == 0 && a.st_ino == b.st_ino) return;
    if (is_sendfile) {
        say(w, "[sendfile](%s, %s, %lld, %zu)", to, from, in_given ? (long long)in_at : -7, len);
        RESULT(w, sendfile(out, in, in_given ? &in_at : NULL, len));
    } else {
        say(w, "(%s, %lld, %s, %lld, %zu, %u)", from, in_given ? (long long)in_at : -7, to,
            out_given ? (long long)out_at : -7, len, flags);
        RESULT(w, copy_file_range(in, in_given ? &in_at : NULL, out, out_given ? &out_at : NULL, len, flags));
    }
    say(w, " %lld %lld", (long long)in_at, (long long)out_at);
    say_fd(w, in);
    say_fd(w, out);
}

static void op_ioctl(struct world *w, struct draw *d) {
    char name[16];
    int fd = draw_fd(w, d, name), left = -5;
    mode_t kind = kind_of(fd);
    unsigned long request = chance(d, 70) ? FIONREAD : 0x5401;
    say(w, "(%s, %lx)", name, request);
    if (kind != S_IFREG && kind != 0) return;
    char unused[64];
    RESULT(w, ioctl(fd, request, request == FIONREAD ? (void *)&left : (void *)unused));
    if (request == FIONREAD) say(w, " %d", left);
    errno = 0;
    int tty = isatty(fd);
    say(w, " tty %d %d", tty, errno);
}

static void op_contents(struct world *w, struct draw *d) {
    char name[16];
    int fd = draw_fd(w, d, name);
    say(w, "(%s)", name);
    uint64_t all = 0;
    off_t at = 0;
    ssize_t n = 0;
    errno = 0;
    while (at < 4 * LONGEST && (n = pread(fd, w->buffer, LONGEST, at)) > 0) {
        all = all * 31 + hash(w->buffer, (size_t)n);
        at += n;
    }
    say_result(w, n < 0 ? n : at);
    say(w, " %llx", (unsigned long long)all);
    say_fd(w, fd);
}

const struct operation data_operations[] = {
    {"read", 8, op_read}, {"pread", 8, op_pread}, {"write", 8, op_write}, {"pwrite", 8, op_pwrite},
    {"readv", 4, op_readv}, {"writev", 4, op_writev}, {"lseek", 6, op_lseek}, {"ftruncate", 5, op_ftruncate},
    {"truncate", 4, op_truncate}, {"fallocate", 3, op_fallocate}, {"sync", 2, op_sync}, {"copy", 3, op_copy},
    {"ioctl", 1, op_ioctl}, {"contents", 4, op_contents}, {NULL, 0, NULL}};
