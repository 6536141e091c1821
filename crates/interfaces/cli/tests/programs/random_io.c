/* Random operations on one file, compared with a model in memory.
 *
 *   random_io FILE SEED OPERATIONS LEN_MAX     creates FILE; exits with 1 at the first difference
 *
 * A failure prints the operation, the first wrong byte, and the latest operations.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KEPT = 24, LINE = 120 };

static char latest[KEPT][LINE];
static uint64_t step, state;
static const char *name;
static unsigned char *model, *buffer;
static uint64_t len, len_max;
static int file;

static uint64_t next(void) {
    state += 0x9e3779b97f4a7c15u;
    uint64_t x = state;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t below(uint64_t bound) { return next() % bound; }

static void fail(const char *what, uint64_t at) {
    printf("step %llu: %s at %llu (length %llu): %s\n", (unsigned long long)step, what, (unsigned long long)at,
           (unsigned long long)len, strerror(errno));
    for (uint64_t i = step > KEPT ? step - KEPT + 1 : 0; i <= step; i++) printf("  %s\n", latest[i % KEPT]);
    exit(1);
}

#define NOTE(...) snprintf(latest[step % KEPT], LINE, __VA_ARGS__)

/* Bytes of four kinds: text, zeros, random bytes, and long repetitions. */
static void fill(unsigned char *out, uint64_t count) {
    uint64_t kind = below(4), repeated = next();
    for (uint64_t i = 0; i < count; i++) {
        if (kind == 0) out[i] = "the quick brown fox 0123456789\n"[(i * 7 + (next() & 3)) % 31];
        else if (kind == 1) out[i] = 0;
        else if (kind == 2) out[i] = (unsigned char)(next() >> 24);
        else out[i] = (unsigned char)(repeated >> (8 * (i % 5)));
    }
}

/* A position that is often at or beside the border of a chunk. */
static uint64_t place(void) {
    uint64_t at = below(len_max);
    if (below(3) == 0) at = at / 16384 * 16384;
    if (below(6) == 0 && at > 0) at -= 1;
    return at;
}

static uint64_t extent(uint64_t at) {
    static const uint64_t often[] = {1, 512, 4096, 16384, 47008, 65536, 131072};
    uint64_t count = below(2) ? often[below(7)] : 1 + below(100000);
    return count < len_max - at ? count : len_max - at;
}

static void put(uint64_t at, uint64_t count) {
    memcpy(model + at, buffer, count);
    if (at + count > len) len = at + count;
}

static void compare(uint64_t at, uint64_t count) {
    uint64_t got = 0;
    while (got < count) {
        ssize_t more = pread(file, buffer + got, count - got, (off_t)(at + got));
        if (more < 0) fail("read fails", at + got);
        if (more == 0) break;
        got += (uint64_t)more;
    }
    uint64_t wanted = at >= len ? 0 : count < len - at ? count : len - at;
    if (got != wanted) fail("a read of another length", at + got);
    for (uint64_t i = 0; i < got; i++)
        if (buffer[i] != model[at + i]) fail("a wrong byte", at + i);
}

/* Every byte in a hole is zero, and data and holes alternate up to the end. */
static void holes(void) {
    off_t at = 0;
    while ((uint64_t)at < len) {
        off_t data = lseek(file, at, SEEK_DATA);
        if (data < 0 && errno != ENXIO) fail("SEEK_DATA fails", (uint64_t)at);
        uint64_t end = data < 0 ? len : (uint64_t)data;
        if (end > len) fail("data behind the end", end);
        for (uint64_t i = (uint64_t)at; i < end; i++)
            if (model[i] != 0) fail("bytes in a hole", i);
        if (data < 0) return;
        at = lseek(file, data, SEEK_HOLE);
        if (at <= data || (uint64_t)at > len) fail("SEEK_HOLE", (uint64_t)data);
    }
}

static void again(int flags) {
    if (close(file) != 0) fail("close", 0);
    file = open(name, O_RDWR | flags);
    if (file < 0) fail("open", 0);
}

static void one(void) {
    uint64_t at = place(), count = extent(at), to;
    struct stat found;
    off_t from, into;
    switch (below(20)) {
    case 0: case 1: case 2: case 3: case 4: case 5:
        NOTE("write %llu at %llu", (unsigned long long)count, (unsigned long long)at);
        fill(buffer, count);
        if (pwrite(file, buffer, count, (off_t)at) != (ssize_t)count) fail("write", at);
        put(at, count);
        break;
    case 6:
        if (len + count > len_max) { NOTE("no append"); return; }
        NOTE("append %llu at %llu", (unsigned long long)count, (unsigned long long)len);
        again(O_APPEND);
        fill(buffer, count);
        if (write(file, buffer, count) != (ssize_t)count) fail("append", len);
        put(len, count);
        again(0);
        break;
    case 7: case 8:
        to = below(4) ? place() : below(len + 1);
        NOTE("truncate %llu to %llu", (unsigned long long)len, (unsigned long long)to);
        if (ftruncate(file, (off_t)to) != 0) fail("truncate", to);
        if (to < len) memset(model + to, 0, len - to);
        len = to;
        break;
    case 9: case 10:
        NOTE("punch %llu at %llu", (unsigned long long)count, (unsigned long long)at);
        if (fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)count) != 0) fail("punch", at);
        memset(model + at, 0, count);
        break;
    case 11:
        NOTE("zero %llu at %llu", (unsigned long long)count, (unsigned long long)at);
        if (fallocate(file, FALLOC_FL_ZERO_RANGE, (off_t)at, (off_t)count) != 0) fail("zero", at);
        memset(model + at, 0, count);
        if (at + count > len) len = at + count;
        break;
    case 12:
        NOTE("extend to %llu", (unsigned long long)(at + count));
        if (fallocate(file, 0, (off_t)at, (off_t)count) != 0) fail("fallocate", at);
        if (at + count > len) len = at + count;
        break;
    case 13:
        to = place();
        NOTE("no copy");
        if (at >= len) return;
        if (count > len_max - to) count = len_max - to;
        if (count > len - at) count = len - at;
        if (to < at + count && at < to + count) return;
        NOTE("copy %llu from %llu to %llu", (unsigned long long)count, (unsigned long long)at, (unsigned long long)to);
        from = (off_t)at, into = (off_t)to;
        for (uint64_t left = count; left > 0;) {
            ssize_t copied = copy_file_range(file, &from, file, &into, left, 0);
            if (copied <= 0) fail("copy", at);
            left -= (uint64_t)copied;
        }
        memcpy(buffer, model + at, count);
        put(to, count);
        break;
    case 14:
        NOTE("close and open");
        again(0);
        break;
    case 15:
        NOTE("sync");
        if (fsync(file) != 0) fail("sync", 0);
        break;
    case 16:
        NOTE("holes");
        holes();
        break;
    default:
        NOTE("read %llu at %llu", (unsigned long long)count, (unsigned long long)at);
        compare(at, count);
    }
    if (fstat(file, &found) != 0 || (uint64_t)found.st_size != len) fail("fstat: another length", (uint64_t)found.st_size);
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    name = argv[1];
    state = strtoull(argv[2], NULL, 10);
    uint64_t steps = strtoull(argv[3], NULL, 10);
    len_max = strtoull(argv[4], NULL, 10);
    model = calloc(len_max, 1);
    buffer = malloc(len_max + 1);
    file = open(name, O_RDWR | O_CREAT | O_EXCL, 0644);
    if (!model || !buffer || file < 0) fail("open", 0);
    for (step = 0; step < steps; step++) {
        one();
        if (step % 500 == 499) compare(0, len_max);
    }
    compare(0, len_max);
    holes();
    return close(file) != 0;
}
