/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * weft.h - the C interface to Weft, a user-space parallel file system.
 *
 *     #include <weft.h>
 *     cc program.c $(pkg-config --cflags --libs weft)
 *
 * IN GENERAL
 *
 * Calls are named after the system calls that they correspond to, and behave alike unless this file says otherwise.
 *
 * Errors: a call that fails returns -1 or NULL and sets errno. weft_error() then returns a message that names path,
 * server and remedy. The comments below list only errors with a special meaning. Each call may also fail with the
 * errors of the corresponding system call (ENOENT, EACCES, ENOSPC, ...), and with
 *     EFAULT  a pointer that must not be NULL is;
 *     EINVAL  an object (connection, file, directory) is NULL, or a number is out of its range;
 *     EIO     a server does not answer, or a device failed; weft_error() names it and the remedy;
 *     EXDEV   a symbolic link on the way leads out of the file system.
 * After a successful call, errno is undefined, and the message is still that of the last failure.
 *
 * Paths: relative to the root of the file system, with or without a leading slash. The mount prefix of the cluster
 * ("/weft" by default) is removed from the start of a path, so that a program may pass on the paths that it gets:
 * "/weft/run/out", "/run/out" and "run/out" name the same file.
 *
 * Threads: any number of threads may use a connection and its files concurrently. A weft_dir_t must be used by one
 * thread at a time. The message of weft_error() belongs to the calling thread.
 *
 * fork: connections and open files stay usable in the child. At their first use, the child creates its own
 * connections and reopens the files. It does not inherit locks (as with fcntl), and a close in the child does not
 * affect the parent. A directory stream continues at the parent's position. In a multithreaded program, POSIX allows
 * the child only few calls before exec; this restriction also applies to this library.
 *
 * Consistency: a read that starts after a write has returned sees the written data, on every node. Data survives the
 * end of any process once the write has returned, and a power failure once weft_fsync() has returned.
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
 * ~/.config/weft/cluster.toml, else /etc/weft/cluster.toml, else the embedded cluster created by `weft run`.
 * A program needs only one connection for all its threads.
 * If WEFT_DELEGATES is set, as by `weft run --delegates`, bytes of files go through the I/O delegates of the job.
 * EINVAL: the cluster file is invalid; the message contains file, line and remedy.
 * EIO: the delegates of the job do not answer.
 */
weft_t *weft_connect(const char *cluster_file);

/*
 * Releases the connection. Files and directories that are still open stay usable. The session with the servers and its
 * locks end when the last of them is closed.
 */
int weft_disconnect(weft_t *weft);

/*
 * Returns the message of the last failed call in this thread, in UTF-8; "" if none has failed. It is valid until the
 * next call in this thread.
 */
const char *weft_error(void);

/* Returns the version of the library, such as "0.1.0". */
const char *weft_version(void);

/* ------------------------------------------------------------------------------------------------------ cluster */

/*
 * Stores the cluster file as one JSON object: "cluster" (its name), "file", "mount", "embedded", "emulated" and
 * "servers", each with "name", "addresses", "metadata" (whether it has that role) and "targets" with "id" and "class".
 * Asks no server. Returns the length without a terminating zero; SIZE 0 stores nothing. ERANGE: SIZE is too small.
 */
ssize_t weft_describe(weft_t *weft, char *json, size_t size);

/*
 * Asks SERVER, a name of the cluster file, for its state, and stores it as one JSON object with the fields that
 * `weft status --json` shows under "status". Returns the length as weft_describe() does; it may differ between calls.
 * EIO: the server has not answered within 2.5 seconds. ENOENT: the cluster file does not name the server.
 */
ssize_t weft_server_status(weft_t *weft, const char *server, char *json, size_t size);

/* ------------------------------------------------------------------------------------------------------ layouts */

/* A target, and its number of bytes in each round of the striping. */
typedef struct weft_strip {
    uint32_t target;   /* id in the cluster file */
    uint32_t reserved; /* 0 */
    uint64_t stripe_size;
} weft_strip_t;

/*
 * Requested layout of a new file. Fields with their initial value are decided by the directory's default, then by the
 * cluster file. Initialize it with WEFT_LAYOUT_SPEC_INIT.
 */
typedef struct weft_layout_spec {
    uint64_t stripe_size;      /* in bytes; 0: not specified */
    uint32_t stripe_count;     /* number of targets; 0: not specified */
    int32_t first;             /* index of the first target among the eligible ones; -1: not specified */
    const char *class_name;    /* class of all targets, such as "ssd"; NULL: not specified */
    const weft_strip_t *strips; /* exact targets and stripe sizes, overrides the rest; NULL: not specified */
    size_t strip_count;        /* number of strips */
} weft_layout_spec_t;

#define WEFT_LAYOUT_SPEC_INIT {0, 0, -1, NULL, NULL, 0}

/*
 * One column of the layout of a file. Component number COMPONENT covers the file from START to END (UINT64_MAX: no
 * end). In each round of its striping, this column comes at position COLUMN and holds STRIPE_SIZE bytes.
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
 * Stores up to COUNT columns of the layout of PATH in COLUMNS. Returns the total number of columns, which may be larger
 * than COUNT; COUNT 0 only counts them. An object without data, such as a directory, has none.
 */
ssize_t weft_get_layout(weft_t *weft, const char *path, weft_column_t *columns, size_t count);

/*
 * Sets the layout of an empty file without writers, or the default for new files in a directory.
 * EINVAL: no target is eligible. EEXIST: the file has been written. EBUSY: the file is open for writing.
 */
int weft_set_layout(weft_t *weft, const char *path, const weft_layout_spec_t *spec);

/*
 * Sets the compression of an empty file without writers, or of new files and directories in a directory. SETTING is
 * "off", "lz4", "zstd", "zstd:1" to "zstd:19" or "auto", with the length of chunks if it is not 64KiB, such as
 * "zstd:3/256KiB"; NULL removes the setting. The attribute "user.weft.compress" has the setting of a file or directory.
 * EINVAL: SETTING is none of these. EEXIST: the file has been written. EBUSY: the file is open for writing.
 */
int weft_set_compression(weft_t *weft, const char *path, const char *setting);

/* -------------------------------------------------------------------------------------------------------- files */

/*
 * Opens PATH. FLAGS as for open(2): O_RDONLY, O_WRONLY or O_RDWR, with any of O_CREAT, O_EXCL, O_TRUNC, O_APPEND,
 * O_DIRECTORY, O_NOFOLLOW, O_SYNC, O_DSYNC; O_PATH and O_TMPFILE are rejected, others are ignored. MODE is used with
 * O_CREAT and modified by the process's umask.
 * There is no file offset: reads and writes specify their position.
 * With O_APPEND, weft_pwrite() and weft_pwritev() write at the end of the file and ignore the offset, as on Linux.
 * ENXIO: a named pipe, a socket or a device.
 */
weft_file_t *weft_open(weft_t *weft, const char *path, int flags, mode_t mode);

/* Like weft_open(), with the layout of the file if this call creates it; SPEC may be NULL. */
weft_file_t *weft_open_layout(weft_t *weft, const char *path, int flags, mode_t mode, const weft_layout_spec_t *spec);

/* Like weft_open_layout(), also with the compression of the file if this call creates it; SETTING may be NULL. */
weft_file_t *weft_open_compressed(weft_t *weft, const char *path, int flags, mode_t mode,
                                  const weft_layout_spec_t *spec, const char *setting);

/*
 * Closes the file and releases its locks, but does not sync it. FILE is released even if the call fails.
 */
int weft_close(weft_file_t *file);

/*
 * Read up to COUNT bytes from OFFSET; fewer only at the end of the file, 0 after it. Holes read as zeros.
 * The second form fills IOVCNT (at most 1024) buffers in order.
 */
ssize_t weft_pread(weft_file_t *file, void *buf, size_t count, off_t offset);
ssize_t weft_preadv(weft_file_t *file, const struct iovec *iov, int iovcnt, off_t offset);

/*
 * Write COUNT bytes at OFFSET: all of them, unless the call fails or COUNT is above 0x7ffff000. If a write over several
 * servers fails, a part of it may have been written.
 */
ssize_t weft_pwrite(weft_file_t *file, const void *buf, size_t count, off_t offset);
ssize_t weft_pwritev(weft_file_t *file, const struct iovec *iov, int iovcnt, off_t offset);

/*
 * Writes at the current end of the file. Appends from different nodes do not overlap. Stores the position of the bytes
 * in OFFSET unless that is NULL.
 */
ssize_t weft_append(weft_file_t *file, const void *buf, size_t count, off_t *offset);

/* Makes all writes to the file, from any node, durable. */
int weft_fsync(weft_file_t *file);

/* Cuts the file, or extends it with a hole. EINVAL: the file is not open for writing. */
int weft_ftruncate(weft_file_t *file, off_t length);

/* Returns the current length of the file, including writes from other nodes. */
off_t weft_size(weft_file_t *file);

/* Returns attributes. st_ino is the inode number; st_dev is the same for all files of a cluster. */
int weft_fstat(weft_file_t *file, struct stat *st);

/* -------------------------------------------------------------------------------------------------------- locks */

#define WEFT_LOCK_SHARED 0
#define WEFT_LOCK_EXCLUSIVE 1

/* A conflicting lock. */
typedef struct weft_lock_info {
    int kind;     /* WEFT_LOCK_SHARED or WEFT_LOCK_EXCLUSIVE */
    uint32_t pid; /* process id on the holder's node; 0: unknown */
    off_t start;
    off_t len; /* 0: to the end of the file, however long */
} weft_lock_info_t;

/*
 * Locks LEN bytes from START (0: to the end of the file, however long) for this open file. Locks of two open files
 * conflict, even within one process, and they conflict with fcntl locks of other programs. An existing lock of this
 * open file on part of the range is replaced. TIMEOUT_MS: 0 does not wait, -1 waits forever; other values are rounded
 * up to about a quarter of a second.
 * EAGAIN: another owner holds the lock. EDEADLK: waiting would cause a deadlock.
 */
int weft_lock(weft_file_t *file, int kind, off_t start, off_t len, int timeout_ms);

/* Releases the file's locks in the range. */
int weft_unlock(weft_file_t *file, off_t start, off_t len);

/*
 * Tests for a conflicting lock. Returns 1 if there is one, and stores it in INFO unless that is NULL; returns 0
 * otherwise.
 */
int weft_test_lock(weft_file_t *file, int kind, off_t start, off_t len, weft_lock_info_t *info);

/* -------------------------------------------------------------------------------------------------------- names */

int weft_stat(weft_t *weft, const char *path, struct stat *st);
int weft_lstat(weft_t *weft, const char *path, struct stat *st);

/* Checks permissions. MODE: F_OK, or any of R_OK, W_OK and X_OK. */
int weft_access(weft_t *weft, const char *path, int mode);

/* The process's umask modifies MODE. */
int weft_mkdir(weft_t *weft, const char *path, mode_t mode);
int weft_rmdir(weft_t *weft, const char *path);
int weft_unlink(weft_t *weft, const char *path);
int weft_rename(weft_t *weft, const char *from, const char *to);
int weft_link(weft_t *weft, const char *from, const char *to);

/*
 * Stores TARGET as given. This library follows an absolute target under the mount prefix.
 */
int weft_symlink(weft_t *weft, const char *target, const char *path);

/* Returns the number of bytes stored in BUF, at most SIZE, without a terminating zero. */
ssize_t weft_readlink(weft_t *weft, const char *path, char *buf, size_t size);

int weft_truncate(weft_t *weft, const char *path, off_t length);
int weft_chmod(weft_t *weft, const char *path, mode_t mode);

/* (uid_t)-1 and (gid_t)-1 keep the current value. */
int weft_chown(weft_t *weft, const char *path, uid_t uid, gid_t gid);
int weft_lchown(weft_t *weft, const char *path, uid_t uid, gid_t gid);

/*
 * Sets the times of last access (TIMES[0]) and modification (TIMES[1]), with UTIME_NOW and UTIME_OMIT as for
 * utimensat(2); NULL sets both to the current time. FOLLOW: whether to follow a symbolic link in the last component.
 */
int weft_utimens(weft_t *weft, const char *path, const struct timespec times[2], int follow);

/* Returns the space on all reachable targets; f_files counts inodes, f_ffree estimates how many more fit. */
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
 * Returns the next name, in byte order and without "." and ".."; NULL with errno 0 at the end. The result is valid
 * until the next call with DIR. Names created or removed meanwhile may appear or not; all others appear exactly once.
 */
const weft_dirent_t *weft_readdir(weft_dir_t *dir);

/*
 * Like weft_readdir(), and stores the attributes of the name as weft_lstat() does, in few requests for all names.
 * st_mode is 0 if they are not known: the name was removed meanwhile, the caller may not search the directory, a server
 * does not answer, or it is a file whose bytes go through delegates. weft_lstat() then returns them or the reason.
 */
const weft_dirent_t *weft_readdir_stat(weft_dir_t *dir, struct stat *st);

/* Restarts at the first name. */
int weft_rewinddir(weft_dir_t *dir);
int weft_closedir(weft_dir_t *dir);

/* ------------------------------------------------------------------------------------------ extended attributes */

/* Returns the length of the value; SIZE 0 stores nothing. ENODATA: no such attribute. ERANGE: SIZE is too small. */
ssize_t weft_getxattr(weft_t *weft, const char *path, const char *name, void *value, size_t size);

/* FLAGS: 0, XATTR_CREATE or XATTR_REPLACE of <sys/xattr.h>. */
int weft_setxattr(weft_t *weft, const char *path, const char *name, const void *value, size_t size, int flags);

/* Stores the names, each followed by a zero; returns the length of the list. SIZE 0 stores nothing. */
ssize_t weft_listxattr(weft_t *weft, const char *path, char *list, size_t size);
int weft_removexattr(weft_t *weft, const char *path, const char *name);

#ifdef __cplusplus
}
#endif

#endif
