/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * weft.h - the C interface to Weft, a user-space parallel file system.
 *
 *     #include <weft.h>
 *     cc program.c $(pkg-config --cflags --libs weft)
 *
 * IN GENERAL
 *
 * Calls are named after the system calls whose work they do, and do it in the same way unless said otherwise here.
 *
 * Errors: a call that fails returns -1 or NULL, sets errno, and leaves a sentence that names path, server and remedy,
 * which weft_error() gives. Those named below are the ones that have a meaning of their own here; beside them each
 * call may fail with what the system call of its name fails with (ENOENT, EACCES, ENOSPC, ...), and with
 *     EFAULT  a pointer that must not be NULL is;
 *     EINVAL  an object (connection, file, directory) is NULL, or a number is out of its range;
 *     EIO     a server does not answer, or a device failed; weft_error() says which and what to do;
 *     EXDEV   a symbolic link on the way leads out of the file system.
 * After a call that succeeded errno means nothing, and the sentence is still that of the last failure.
 *
 * Paths: from the root of the file system, with or without a leading slash. A path that begins with the mount prefix
 * of the cluster ("/weft" unless the cluster file says otherwise) means what lies below it, so that a program may use
 * the paths that it is given: "/weft/run/out", "/run/out" and "run/out" are one file.
 *
 * Threads: any number of threads may use a connection and its files at a time. A weft_dir_t is used by one thread at
 * a time. The sentence of weft_error() belongs to the thread.
 *
 * fork: in the child, connections and open files made before the fork go on working: at their first use the child
 * makes connections of its own and opens the files again. It does not inherit locks (as with fcntl), and closing in
 * the child closes nothing of the parent's. A directory stream goes on where the parent's stood. After a fork in a
 * program of several threads, POSIX lets the child call little before exec, and that holds for this library too.
 *
 * Consistency: a read that begins after a write has returned sees what was written, from any node. Data survives the
 * end of any process once the write has returned, and a loss of power once weft_fsync() has.
 */
#ifndef WEFT_H
#define WEFT_H

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A connection to a cluster, an open file, a directory stream. */
typedef struct weft weft_t;
typedef struct weft_file weft_file_t;
typedef struct weft_dir weft_dir_t;

/* ------------------------------------------------------------------------------------------------ connections */

/*
 * Connects to the cluster that CLUSTER_FILE describes; NULL means the one that WEFT_CLUSTER names, else
 * ~/.config/weft/cluster.toml, else /etc/weft/cluster.toml, else the embedded cluster that `weft run` made.
 * A program needs one connection, however many threads it has.
 * EINVAL: the cluster file cannot be used; the sentence has file, line and remedy.
 */
weft_t *weft_connect(const char *cluster_file);

/*
 * Gives the connection back. Files and directories that are still open can be used and closed as before; the session
 * with the servers, and its locks, end with the last of them.
 */
int weft_disconnect(weft_t *weft);

/*
 * Why the last call in this thread that failed did: one sentence in UTF-8, "" when none has. It holds until the next
 * call in this thread.
 */
const char *weft_error(void);

/* The version of the library, such as "0.1.0". */
const char *weft_version(void);

/* ------------------------------------------------------------------------------------------------------ layouts */

/* A target, and how many bytes of each round of the striping it takes. */
typedef struct weft_strip {
    uint32_t target;   /* its id in the cluster file */
    uint32_t reserved; /* 0 */
    uint64_t stripe_size;
} weft_strip_t;

/*
 * The layout that a new file shall have. What is left at its initial value is decided by the directory's default, and
 * then by the cluster file. Begin with WEFT_LAYOUT_SPEC_INIT.
 */
typedef struct weft_layout_spec {
    uint64_t stripe_size;      /* in bytes; 0: not said */
    uint32_t stripe_count;     /* number of targets; 0: not said */
    int32_t first;             /* index of the first target among those that fit; -1: not said */
    const char *class_name;    /* only targets of this class, such as "ssd"; NULL: not said */
    const weft_strip_t *strips; /* exactly these targets and stripe sizes, whatever the rest says; NULL: not said */
    size_t strip_count;        /* how many strips there are */
} weft_layout_spec_t;

#define WEFT_LAYOUT_SPEC_INIT {0, 0, -1, NULL, NULL, 0}

/*
 * One column of the layout of a file: in the range of the file from START up to END (UINT64_MAX: without end), which
 * is component number COMPONENT, it is the COLUMN-th in a round and takes STRIPE_SIZE bytes of each.
 */
typedef struct weft_column {
    uint64_t start;
    uint64_t end;
    uint64_t stripe_size;
    uint32_t target;
    uint16_t component;
    uint16_t column;
} weft_column_t;

/*
 * Fills COLUMNS with up to COUNT columns of the layout of PATH, and returns how many there are, which may be more;
 * with COUNT 0 it only counts. Something without bytes, such as a directory, has none.
 */
ssize_t weft_get_layout(weft_t *weft, const char *path, weft_column_t *columns, size_t count);

/*
 * Sets the layout of an empty file that nobody writes, or the default for new files in a directory.
 * EINVAL: no target fits. EEXIST: the file was written before. EBUSY: somebody has it open for writing.
 */
int weft_set_layout(weft_t *weft, const char *path, const weft_layout_spec_t *spec);

/* -------------------------------------------------------------------------------------------------------- files */

/*
 * Opens PATH. FLAGS as for open(2): O_RDONLY, O_WRONLY or O_RDWR, with any of O_CREAT, O_EXCL, O_TRUNC, O_APPEND,
 * O_DIRECTORY, O_NOFOLLOW, O_SYNC, O_DSYNC; O_PATH and O_TMPFILE are refused, others change nothing. MODE is for
 * O_CREAT; the process's umask is taken off.
 * There is no file offset: reads and writes say where.
 * With O_APPEND, weft_pwrite() and weft_pwritev() write at the end of the file whatever the offset, as on Linux.
 * ENXIO: a named pipe, a socket or a device.
 */
weft_file_t *weft_open(weft_t *weft, const char *path, int flags, mode_t mode);

/* As weft_open(), with the layout of the file if this call makes it; SPEC may be NULL. */
weft_file_t *weft_open_layout(weft_t *weft, const char *path, int flags, mode_t mode, const weft_layout_spec_t *spec);

/*
 * Closes the file; its locks go. FILE is given back even when the call fails. It does not sync.
 */
int weft_close(weft_file_t *file);

/*
 * Read up to COUNT bytes from OFFSET; fewer only at the end of the file, 0 behind it. Holes read as zeros.
 * The second form fills IOVCNT (at most 1024) buffers in order.
 */
ssize_t weft_pread(weft_file_t *file, void *buf, size_t count, off_t offset);
ssize_t weft_preadv(weft_file_t *file, const struct iovec *iov, int iovcnt, off_t offset);

/*
 * Write COUNT bytes at OFFSET; all of them, unless it fails or COUNT is above 0x7ffff000. When a write over several
 * servers fails, some of it may have been written.
 */
ssize_t weft_pwrite(weft_file_t *file, const void *buf, size_t count, off_t offset);
ssize_t weft_pwritev(weft_file_t *file, const struct iovec *iov, int iovcnt, off_t offset);

/*
 * Writes at the end of the file, wherever that is: no two appends overlap, from any node. Where the bytes went is
 * stored in OFFSET unless that is NULL.
 */
ssize_t weft_append(weft_file_t *file, const void *buf, size_t count, off_t *offset);

/* Returns when everything that anybody wrote to the file survives a loss of power. */
int weft_fsync(weft_file_t *file);

/* Cuts the file, or extends it with a hole. EINVAL: not open for writing. */
int weft_ftruncate(weft_file_t *file, off_t length);

/* The length of the file now, whoever writes it. */
off_t weft_size(weft_file_t *file);

/* Attributes. st_ino is the number of the inode; st_dev is the same for all files of a cluster. */
int weft_fstat(weft_file_t *file, struct stat *st);

/* -------------------------------------------------------------------------------------------------------- locks */

#define WEFT_LOCK_SHARED 0
#define WEFT_LOCK_EXCLUSIVE 1

/* A lock that somebody holds. */
typedef struct weft_lock_info {
    int kind;     /* WEFT_LOCK_SHARED or WEFT_LOCK_EXCLUSIVE */
    uint32_t pid; /* of the process on its own node; 0: unknown */
    off_t start;
    off_t len; /* 0: to the end, however far */
} weft_lock_info_t;

/*
 * Locks LEN bytes from START (0: to the end, however far), for this open file: two open files exclude each other, in
 * one process too, on whatever nodes; fcntl locks of programs and these see each other. A lock that the file has on
 * part of the range is replaced. TIMEOUT_MS: 0 does not wait, -1 waits for ever, else so many milliseconds, rounded
 * up to about a quarter of a second.
 * EAGAIN: somebody else has it. EDEADLK: waiting would never end.
 */
int weft_lock(weft_file_t *file, int kind, off_t start, off_t len, int timeout_ms);

/* Gives up what the file has locked of the range. */
int weft_unlock(weft_file_t *file, off_t start, off_t len);

/*
 * Whether a lock could not be had now: 1 when somebody is in the way, whose lock is stored in INFO unless that is
 * NULL, and 0 when nobody is.
 */
int weft_test_lock(weft_file_t *file, int kind, off_t start, off_t len, weft_lock_info_t *info);

/* -------------------------------------------------------------------------------------------------------- names */

int weft_stat(weft_t *weft, const char *path, struct stat *st);
int weft_lstat(weft_t *weft, const char *path, struct stat *st);

/* Whether the caller may do what MODE says: F_OK, or any of R_OK, W_OK and X_OK. */
int weft_access(weft_t *weft, const char *path, int mode);

/* The process's umask is taken off MODE. */
int weft_mkdir(weft_t *weft, const char *path, mode_t mode);
int weft_rmdir(weft_t *weft, const char *path);
int weft_unlink(weft_t *weft, const char *path);
int weft_rename(weft_t *weft, const char *from, const char *to);
int weft_link(weft_t *weft, const char *from, const char *to);

/*
 * TARGET is kept as given. An absolute one is followed by this library when it lies under the mount prefix.
 */
int weft_symlink(weft_t *weft, const char *target, const char *path);

/* The number of bytes stored in BUF, at most SIZE; no zero is added. */
ssize_t weft_readlink(weft_t *weft, const char *path, char *buf, size_t size);

int weft_truncate(weft_t *weft, const char *path, off_t length);
int weft_chmod(weft_t *weft, const char *path, mode_t mode);

/* (uid_t)-1 and (gid_t)-1 leave one as it is. */
int weft_chown(weft_t *weft, const char *path, uid_t uid, gid_t gid);
int weft_lchown(weft_t *weft, const char *path, uid_t uid, gid_t gid);

/*
 * Sets the times of last access (TIMES[0]) and change (TIMES[1]), with UTIME_NOW and UTIME_OMIT as for utimensat(2);
 * NULL sets both to now. FOLLOW: whether a symbolic link at the end is followed.
 */
int weft_utimens(weft_t *weft, const char *path, const struct timespec times[2], int follow);

/* Room on all targets that answer; f_files counts inodes, f_ffree estimates how many more fit. */
int weft_statvfs(weft_t *weft, struct statvfs *st);

/* -------------------------------------------------------------------------------------------------- directories */

/* A name in a directory. */
typedef struct weft_dirent {
    uint64_t ino;
    unsigned char type; /* DT_REG, DT_DIR, DT_LNK, ... of <dirent.h> */
    char name[256];
} weft_dirent_t;

weft_dir_t *weft_opendir(weft_t *weft, const char *path);

/*
 * The next name, in the order of their bytes and without "." and "..". It holds until the next call with DIR.
 * NULL with errno 0 at the end. Names made or removed meanwhile may be there or not; no other is missed or repeated.
 */
const weft_dirent_t *weft_readdir(weft_dir_t *dir);

/* The next name is the first again. */
int weft_rewinddir(weft_dir_t *dir);
int weft_closedir(weft_dir_t *dir);

/* ------------------------------------------------------------------------------------------ extended attributes */

/* The length of the value; with SIZE 0 nothing is stored. ENODATA: there is none of this name. ERANGE: no room. */
ssize_t weft_getxattr(weft_t *weft, const char *path, const char *name, void *value, size_t size);

/* FLAGS: 0, XATTR_CREATE or XATTR_REPLACE of <sys/xattr.h>. */
int weft_setxattr(weft_t *weft, const char *path, const char *name, const void *value, size_t size, int flags);

/* The names, each with a zero behind it; the length of the list. With SIZE 0 nothing is stored. */
ssize_t weft_listxattr(weft_t *weft, const char *path, char *list, size_t size);
int weft_removexattr(weft_t *weft, const char *path, const char *name);

#ifdef __cplusplus
}
#endif

#endif
