/* Mappings: of one opener, beside others that write and truncate. */
#include "fuzz.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

static sigjmp_buf back;
static volatile sig_atomic_t guarded;

static void on_bus(int number) {
    if (guarded) siglongjmp(back, 1);
    signal(number, SIG_DFL);
}

static void op_mmap(struct world *w, struct draw *d) {
    char name[16];
    int fd = draw_fd(w, d, name), at = slot(d, MAPS);
    static const int prots[] = {PROT_READ, PROT_READ | PROT_WRITE, PROT_READ | PROT_WRITE, PROT_WRITE, PROT_NONE};
    int prot = prots[below(d, 5)], flags = chance(d, 50) ? MAP_SHARED : chance(d, 95) ? MAP_PRIVATE : 0;
    size_t len = chance(d, 4) ? 0 : 1 + below(d, 70000);
    off_t from = chance(d, 80) ? 0 : chance(d, 80) ? 4096 : 100;
    struct stat st = {0};
    mode_t kind = kind_of(fd);
    if (kind != S_IFREG && kind != 0) return;
    fstat(fd, &st);
    if (flags == MAP_SHARED && prot != PROT_READ && !drawn(SHARED_MAPS)) flags = MAP_PRIVATE;
    say(w, "(%s, %zu, %d, %d, %lld) map%d", name, len, prot, flags, (long long)from, at);
    errno = 0;
    void *got = mmap(NULL, len, prot, flags, fd, from);
    say_success(w, got == MAP_FAILED ? -1 : 0);
    if (got == MAP_FAILED) return;
    struct map *map = &w->map[at];
    if (map->at) munmap(map->at, map->len), close(map->fd);
    /* Under `weft run`, other mappings are copies. */
    bool live = flags == MAP_SHARED && (on_mount || (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR);
    *map = (struct map){got, len, from, fcntl(fd, F_DUPFD_CLOEXEC, 0), prot, live};
    if (!(prot & PROT_READ)) return;
    /* Private pages may be copies of the time of the call, so they are read now. */
    size_t seen = st.st_size > from ? (size_t)(st.st_size - from) : 0;
    say_bytes(w, map->at, seen < len ? seen : len);
}

static void op_use(struct world *w, struct draw *d) {
    int at = slot(d, MAPS), how = (int)below(d, 5);
    struct map *map = &w->map[at];
    say(w, "[%d](map%d)", how, at);
    if (!map->at) return;
    size_t start = below(d, (unsigned)map->len), len = below(d, 5000);
    if (start + len > map->len) len = map->len - start;
    struct stat st;
    if (fstat(map->fd, &st) != 0) return;
    /* What is stored in a page behind the end of its file is undefined; whole pages there are SIGBUS. */
    off_t end = st.st_size - map->from, page_end = (end + 4095) & ~4095L;
    if ((off_t)(start + len) > end && (off_t)start < page_end) len = (off_t)start < end ? (size_t)(end - (off_t)start) : 0;
    /* Copies do not end with their file. */
    if (!on_mount && (off_t)(start + len) > end) return;
    bool shared = map->shared;
    signal(SIGBUS, on_bus);
    if (how == 0) {
        say(w, " unmap");
        SUCCESS(w, munmap(map->at, map->len));
        close(map->fd);
        map->at = NULL;
        return;
    }
    say(w, " %zu+%zu", start, len);
    guarded = 1;
    if (sigsetjmp(back, 1)) {
        say(w, " SIGBUS");
    } else if (how < 3 && (map->prot & PROT_WRITE)) {
        uint64_t x = draw(d);
        memset(map->at + start, (int)x & 0xff, len);
        if (chance(d, 30)) SUCCESS(w, msync(map->at, map->len, chance(d, 50) ? MS_SYNC : MS_ASYNC));
    } else if (shared && map->prot & PROT_READ) {
        say_bytes(w, map->at + start, len);
    } else {
        SUCCESS(w, msync(map->at, map->len, chance(d, 90) ? MS_SYNC : 77));
    }
    guarded = 0;
}

const struct operation map_operations[] = {{"mmap", 4, op_mmap}, {"map_use", 8, op_use}, {NULL, 0, NULL}};
