/* Runs operations on both worlds in a worker process; watches it, and shortens what failed. */
#include "fuzz.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>

enum outcome { EQUAL, DIFFERS, CRASHED, HANGS };

/* What the worker tells, also when it crashes or hangs. */
struct report {
    uint64_t progress, epoch, known;
    unsigned operation, device;
    char op[32], local[TEXT], weft[TEXT];
    bool keep[EPOCH];
};

static struct report *report;
static struct world worlds[2] = {{.name = "local"}, {.name = "weft"}};
static const char *directories[2];
static uint64_t seed = 1, operations = 100000, only_epoch = UINT64_MAX;
static unsigned failures_wanted = 1, hang_seconds = 30;
static bool shortening = true;

static const struct operation *const LISTS[] = {data_operations,      name_operations,       attribute_operations,
                                                directory_operations, stream_operations,     descriptor_operations,
                                                map_operations,       lock_operations};

static const struct operation *draw_operation(struct draw *d) {
    static const struct operation *wheel[1000];
    static unsigned spokes;
    if (!spokes)
        for (size_t i = 0; i < sizeof LISTS / sizeof *LISTS; i++)
            for (const struct operation *op = LISTS[i]; op->name; op++)
                for (unsigned n = 0; n < op->weight; n++) wheel[spokes++] = op;
    return wheel[below(d, spokes)];
}

static struct draw draw_of(uint64_t epoch, unsigned operation) {
    struct draw d = {seed * 0x9e3779b97f4a7c15u ^ epoch << 20 ^ operation};
    draw(&d);
    return d;
}

static void start_worlds(void) {
    for (int i = 0; i < 2; i++) {
        struct world *w = &worlds[i];
        snprintf(w->root, sizeof w->root, "%s/up/up/up/up/root", directories[i]);
        w->buffer = malloc(2 * LONGEST + 64);
        memset(w->fd, -1, sizeof w->fd);
        w->cwd = -1;
    }
    struct stat st;
    if (on_mount && stat(directories[1], &st) == 0) report->device = minor(st.st_dev);
}

/* Returns false at the first difference. */
static bool run_epoch(uint64_t epoch, bool verbose) {
    for (int i = 0; i < 2; i++) reset(&worlds[i]);
    report->epoch = epoch;
    other_users = epoch % 2;
    for (unsigned n = 0; n <= EPOCH; n++) {
        if (n < EPOCH && !report->keep[n]) continue;
        struct draw first = draw_of(epoch, n);
        const struct operation *op = n < EPOCH ? draw_operation(&first) : NULL;
        const char *name = op ? op->name : "tree";
        report->operation = n;
        report->progress++;
        strcpy(report->op, name);
        char *texts[] = {report->local, report->weft};
        report->local[0] = report->weft[0] = 0;
        for (int i = 0; i < 2; i++) {
            struct world *w = &worlds[i];
            struct draw d = first;
            w->used = 0;
            w->text[0] = 0;
            /* Visible to the watching process if the operation never returns. */
            strcpy(texts[i], "(running)");
            if (op) op->run(w, &d);
            else say_tree(w);
            memcpy(texts[i], w->text, w->used + 1);
        }
        if (verbose) printf("%u %s%s\n", n, name, report->local);
        if (strcmp(report->local, report->weft) == 0) continue;
        if (known_difference(name, report->local, report->weft)) {
            report->known++;
            for (int i = 0; i < 2; i++) reset(&worlds[i]);
            continue;
        }
        return false;
    }
    return true;
}

/* Releases everything that waits for a reply of the mount. */
static void abort_connection(void) {
    char path[64];
    snprintf(path, sizeof path, "/sys/fs/fuse/connections/%u/abort", report->device);
    int fd = open(path, O_WRONLY);
    if (fd >= 0 && write(fd, "1", 1) == 1) fprintf(stderr, "weft: the mount's connection was aborted\n");
    if (fd >= 0) close(fd);
}

static void pause_shortly(void) { nanosleep(&(struct timespec){0, 5000000}, NULL); }

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* Runs epochs in a process of its own, so that a crash or a hang is a result, too. */
static enum outcome run_worker(uint64_t from, uint64_t to, bool verbose) {
    fflush(NULL);
    pid_t worker = fork();
    if (worker == 0) {
        signal(SIGXFSZ, SIG_IGN);
        signal(SIGPIPE, SIG_IGN);
        start_worlds();
        bool equal = true;
        for (uint64_t epoch = from; epoch < to && equal; epoch++) equal = run_epoch(epoch, verbose);
        fflush(NULL);
        if (equal)
            for (int i = 0; i < 2; i++) discard(&worlds[i]);
        _exit(equal ? 0 : 1);
    }
    uint64_t seen = report->progress;
    double since = now();
    int status;
    while (waitpid(worker, &status, WNOHANG) == 0) {
        if (seen != report->progress) seen = report->progress, since = now();
        if (now() - since > hang_seconds) {
            if (on_mount) abort_connection();
            kill(worker, SIGKILL);
            waitpid(worker, &status, 0);
            return HANGS;
        }
        pause_shortly();
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 2) exit(2);
    return !WIFEXITED(status) ? CRASHED : WEXITSTATUS(status) == 0 ? EQUAL : WEXITSTATUS(status) == 1 ? DIFFERS : CRASHED;
}

/* Drops operations while the same kind of operation fails the same way. */
static void shorten(uint64_t epoch, enum outcome outcome) {
    char op[32];
    unsigned last = report->operation;
    strcpy(op, report->op);
    for (unsigned n = last + 1; n < EPOCH; n++) report->keep[n] = false;
    for (unsigned step = 128; step; step /= 2) {
        for (unsigned start = 0; start < last; start += step) {
            bool former[EPOCH], any = false;
            memcpy(former, report->keep, sizeof former);
            for (unsigned n = start; n < start + step && n < last; n++) any |= report->keep[n], report->keep[n] = false;
            if (!any) continue;
            if (run_worker(epoch, epoch + 1, false) != outcome || strcmp(report->op, op))
                memcpy(report->keep, former, sizeof former);
        }
    }
}

/* Prints where two texts begin to differ, with the line before. */
static void print_difference(void) {
    size_t at = 0;
    while (report->local[at] && report->local[at] == report->weft[at]) at++;
    size_t line = at;
    while (line > 0 && report->local[line] != '\n') line--;
    size_t start = at > line + 600 ? at - 600 : line;
    printf("  local: ...%.*s\n  weft:  ...%.*s\n", 1200, report->local + start, 1200, report->weft + start);
}

static void describe(uint64_t epoch, enum outcome outcome) {
    static const char *const names[] = {"equal", "difference", "crash", "hang"};
    printf("\nweft: %s at operation %u (%s) of epoch %llu, seed %llu\n", names[outcome], report->operation, report->op,
           (unsigned long long)epoch, (unsigned long long)seed);
    print_difference();
    if (!shortening || outcome == HANGS) return;
    shorten(epoch, outcome);
    printf("  shortened:\n");
    outcome = run_worker(epoch, epoch + 1, true);
    printf("  %s: %u %s\n", names[outcome], report->operation, report->op);
    print_difference();
    printf("  repeat: --seed %llu --epoch %llu\n", (unsigned long long)seed, (unsigned long long)epoch);
    fflush(stdout);
}

static int usage(void) {
    fprintf(stderr, "usage: posix-fuzz LOCAL WEFT [--mount] [--seed N] [--ops N] [--epoch N] [--failures N]\n"
                    "                  [--hang SECONDS] [--no-shorten] [--mask AREA]...\n");
    return 2;
}

int main(int argc, char **argv) {
    if (argc < 3) return usage();
    directories[0] = argv[1];
    directories[1] = argv[2];
    for (int i = 3; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--mount")) on_mount = true;
        else if (!strcmp(argv[i], "--no-shorten")) shortening = false;
        else if (i + 1 == argc) return usage();
        else if (!strcmp(argv[i], "--seed")) seed = strtoull(value, NULL, 10), i++;
        else if (!strcmp(argv[i], "--ops")) operations = strtoull(value, NULL, 10), i++;
        else if (!strcmp(argv[i], "--epoch")) only_epoch = strtoull(value, NULL, 10), i++;
        else if (!strcmp(argv[i], "--failures")) failures_wanted = (unsigned)atoi(value), i++;
        else if (!strcmp(argv[i], "--hang")) hang_seconds = (unsigned)atoi(value), i++;
        else if (!strcmp(argv[i], "--mask") && mask(value)) i++;
        else return usage();
    }
    report = mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (report == MAP_FAILED) return perror("weft: memory"), 2;
    uint64_t from = only_epoch == UINT64_MAX ? 0 : only_epoch;
    uint64_t to = only_epoch == UINT64_MAX ? (operations + EPOCH - 1) / EPOCH : from + 1;
    unsigned failures = 0;
    while (from < to) {
        memset(report->keep, true, sizeof report->keep);
        enum outcome outcome = run_worker(from, to, false);
        if (outcome == EQUAL) break;
        uint64_t epoch = report->epoch;
        describe(epoch, outcome);
        if (++failures >= failures_wanted) break;
        from = epoch + 1;
    }
    printf("weft: seed %llu: %llu operations, %llu documented differences, %u failures\n", (unsigned long long)seed,
           (unsigned long long)report->progress, (unsigned long long)report->known, failures);
    return failures ? 1 : 0;
}
