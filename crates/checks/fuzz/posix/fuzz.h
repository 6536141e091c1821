/* Differential fuzzer of file calls: the kernel's file system is the model of Weft.
 *
 * Two worlds, a local directory and one on Weft, have the same tables of descriptors, streams, directories and mappings.
 * Each operation is drawn from the seed and its number alone, applied to both worlds, and described by a text. The texts
 * must be equal. So any subset of the operations can be repeated, which is how a failure is shortened. */
#ifndef WEFT_POSIX_FUZZ_H
#define WEFT_POSIX_FUZZ_H
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

/* Operations after which both worlds are compared as a whole and begin anew. */
#define EPOCH 300
#define FDS 6
#define STREAMS 3
#define DIRS 2
#define MAPS 2
/* Longest transfer in bytes; longer than a stripe of 64 KiB and than an inline file. */
#define LONGEST (192 * 1024)
#define TEXT (64 * 1024)
/* A pointer that no process can use. */
#define BAD_POINTER ((void *)8)
/* A number that no descriptor has. */
#define BAD_FD 999

struct map {
    char *at;
    size_t len;
    off_t from;
    /* A duplicate, which tells the length of the file. */
    int fd, prot;
    bool shared;
};

struct world {
    const char *name;
    char root[PATH_MAX];
    int fd[FDS], cwd;
    FILE *stream[STREAMS];
    /* Last transfer of a stream: 'r', 'w' or 0. ISO C wants a seek or a flush in between. */
    char last[STREAMS];
    DIR *dir[DIRS];
    struct map map[MAPS];
    char *buffer;
    /* Description of the running operation and of its results. */
    char text[TEXT];
    size_t used;
};

struct draw {
    uint64_t state;
};

/* Name of a file as a call takes it. */
struct path {
    const char *pointer;
    int dir;
    char text[2 * PATH_MAX + 512], shown[256];
};

struct operation {
    const char *name;
    unsigned weight;
    void (*run)(struct world *, struct draw *);
};

/* What is not drawn: temporarily, or because the interface refuses it by design. */
enum area {
    BAD_POINTERS, WIDE, SHARED_MAPS, FIFOS, OFD_LOCKS, RECORD_LOCKS, FORK_READS, SENDFILE, RENAMED_CWD, TREE_WALKS,
    PROC_FD, FTELL_APPEND, STREAM_POINTERS, AT_FLAGS, FREOPEN_NULL, STREAMS_AREA, AREAS
};
bool drawn(enum area);
bool mask(const char *name);
extern bool on_mount, other_users;

/* draw.c */
uint64_t draw(struct draw *);
unsigned below(struct draw *, unsigned);
bool chance(struct draw *, unsigned percent);
off_t draw_offset(struct draw *);
size_t draw_length(struct draw *);
char *fill(struct world *, struct draw *, size_t len);
void *read_buffer(struct world *, struct draw *, size_t len, char *shown);
int slot(struct draw *, unsigned count);
int draw_fd(struct world *, struct draw *, char *shown);
void draw_path(struct world *, struct draw *, struct path *, bool at);
void draw_target(struct world *, struct draw *, char *target);
mode_t draw_mode(struct draw *);
int draw_flags(struct draw *, char *shown);

/* world.c */
void reset(struct world *);
void discard(struct world *);
void say(struct world *, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Adds the result of a call: a number, or -1 and the name of errno. */
void say_result(struct world *, long result);
/* Adds only whether a call succeeded, for numbers that differ between file systems. */
void say_success(struct world *, long result);
void say_bytes(struct world *, const void *bytes, size_t len);
void say_path(struct world *, const char *text);
void say_stat(struct world *, const struct stat *);
void say_fd(struct world *, int fd);
/* Makes the world's working directory that of the process. */
void enter(struct world *);
void say_tree(struct world *);
void keep_fd(struct world *, int slot, int fd);
/* The kind of the descriptor's file as in st_mode, 0 of no descriptor. A mount serves no removed directories, and no removed
 * files that only O_PATH names: whatever may be one counts as a directory. */
mode_t kind_of(int fd);
uint64_t hash(const void *, size_t);

/* known.c */
/* Whether the kernel, which is the model, has at least this version. */
bool kernel_is(int major, int minor);
const char *known_difference(const char *op, const char *local, const char *weft);

/* Runs a call and adds its result. */
#define RESULT(w, call) do { errno = 0; long result_ = (long)(call); say_result(w, result_); } while (0)
#define SUCCESS(w, call) do { errno = 0; long result_ = (long)(call); say_success(w, result_); } while (0)

#define OPERATIONS(list) extern const struct operation list[]
OPERATIONS(data_operations);
OPERATIONS(name_operations);
OPERATIONS(attribute_operations);
OPERATIONS(directory_operations);
OPERATIONS(stream_operations);
OPERATIONS(descriptor_operations);
OPERATIONS(map_operations);
OPERATIONS(lock_operations);
#endif
