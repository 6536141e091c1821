/* Tests against a running cluster, whose file is the argument. */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <weft.h>

#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "%s:%d: %s: errno %d, \"%s\"\n", __FILE__, __LINE__, #what, errno, weft_error());          \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
#define FAILS(call, wanted) CHECK((call) == -1 && errno == (wanted) && weft_error()[0] != '\0')
#define FAILS_PTR(call, wanted) CHECK((call) == NULL && errno == (wanted) && weft_error()[0] != '\0')

enum { BIG = 3 * 1024 * 1024 + 17 };

static weft_t *weft;

static void bytes(void) {
    char *out = malloc(BIG), *back = malloc(BIG);
    for (int i = 0; i < BIG; i++)
        out[i] = (char)(i * 7 + i / 251);
    weft_file_t *file = weft_open(weft, "/weft/c/big", O_RDWR | O_CREAT | O_EXCL, 0644);
    CHECK(file != NULL);
    FAILS_PTR(weft_open(weft, "c/big", O_RDWR | O_CREAT | O_EXCL, 0644), EEXIST);
    CHECK(weft_pwrite(file, out, BIG, 5) == BIG);
    CHECK(weft_size(file) == BIG + 5);
    CHECK(weft_pread(file, back, BIG, 5) == BIG && memcmp(out, back, BIG) == 0);
    CHECK(weft_pread(file, back, 10, 0) == 10 && memcmp(back, "\0\0\0\0\0", 5) == 0 && memcmp(back + 5, out, 5) == 0);
    CHECK(weft_pread(file, back, BIG, BIG) == 5);
    CHECK(weft_pread(file, back, 1, BIG + 5) == 0);
    CHECK(weft_pread(file, NULL, 0, 0) == 0 && weft_pwrite(file, NULL, 0, 0) == 0);
    struct iovec iov[3] = {{out, 3}, {NULL, 0}, {out + 3, 100000}};
    CHECK(weft_pwritev(file, iov, 3, 1000000) == 100003);
    struct iovec into[2] = {{back, 50000}, {back + 50000, 50003}};
    CHECK(weft_preadv(file, into, 2, 1000000) == 100003 && memcmp(out, back, 100003) == 0);
    CHECK(weft_fsync(file) == 0);

    FAILS(weft_pread(file, back, 1, -1), EINVAL);
    FAILS(weft_pread(file, NULL, 1, 0), EFAULT);
    FAILS(weft_pwrite(file, NULL, 1, 0), EFAULT);
    FAILS(weft_preadv(file, into, -1, 0), EINVAL);
    FAILS(weft_preadv(file, into, 1025, 0), EINVAL);
    FAILS(weft_preadv(file, NULL, 1, 0), EFAULT);
    iov[1].iov_len = 1;
    FAILS(weft_pwritev(file, iov, 3, 0), EFAULT);
    FAILS(weft_fstat(file, NULL), EFAULT);
    FAILS(weft_ftruncate(file, -1), EINVAL);

    CHECK(weft_ftruncate(file, 100) == 0 && weft_size(file) == 100);
    CHECK(weft_truncate(weft, "c/big", 200) == 0 && weft_size(file) == 200);
    struct stat st;
    CHECK(weft_fstat(file, &st) == 0 && st.st_size == 200 && S_ISREG(st.st_mode) && (st.st_mode & 0777) == 0640);
    CHECK(st.st_uid == geteuid() && st.st_nlink == 1 && st.st_ino != 0 && st.st_dev != 0);
    CHECK(weft_close(file) == 0);
    CHECK(weft_stat(weft, "c/big", &st) == 0 && st.st_size == 200);

    file = weft_open(weft, "c/big", O_RDONLY, 0);
    CHECK(file != NULL);
    FAILS(weft_pwrite(file, out, 1, 0), EBADF);
    CHECK(weft_close(file) == 0);
    file = weft_open(weft, "c/big", O_WRONLY | O_TRUNC, 0);
    CHECK(file != NULL && weft_size(file) == 0);
    FAILS(weft_pread(file, out, 1, 0), EBADF);
    CHECK(weft_close(file) == 0);
    free(out);
    free(back);
}

static void appends(void) {
    off_t at = -1;
    weft_file_t *one = weft_open(weft, "c/log", O_WRONLY | O_CREAT | O_SYNC, 0666);
    weft_file_t *two = weft_open(weft, "c/log", O_RDWR | O_APPEND, 0);
    CHECK(one != NULL && two != NULL);
    CHECK(weft_append(one, "one", 3, &at) == 3 && at == 0);
    CHECK(weft_append(two, "two", 3, &at) == 3 && at == 3);
    CHECK(weft_pwrite(two, "end", 3, 0) == 3);
    CHECK(weft_append(one, "!", 1, NULL) == 1);
    char back[16];
    CHECK(weft_pread(two, back, sizeof back, 0) == 10 && memcmp(back, "onetwoend!", 10) == 0);
    CHECK(weft_close(one) == 0 && weft_close(two) == 0);
}

static void names(void) {
    struct stat st, other;
    char buf[64];
    CHECK(weft_mkdir(weft, "c/d", 0777) == 0);
    CHECK(weft_stat(weft, "c/d", &st) == 0 && S_ISDIR(st.st_mode) && (st.st_mode & 0777) == 0750);
    FAILS(weft_mkdir(weft, "c/d", 0777), EEXIST);
    FAILS(weft_stat(weft, "c/none", &st), ENOENT);
    CHECK(strstr(weft_error(), "c/none") != NULL);
    FAILS(weft_stat(weft, "", &st), ENOENT);
    FAILS(weft_stat(weft, NULL, &st), EFAULT);
    FAILS(weft_stat(weft, "c", NULL), EFAULT);
    FAILS(weft_rmdir(weft, "c"), ENOTEMPTY);
    FAILS(weft_unlink(weft, "c/none"), ENOENT);
    CHECK(weft_link(weft, "c/log", "c/d/hard") == 0);
    CHECK(weft_stat(weft, "c/log", &st) == 0 && weft_stat(weft, "c/d/hard", &other) == 0);
    CHECK(st.st_ino == other.st_ino && st.st_nlink == 2);
    CHECK(weft_rename(weft, "c/d/hard", "c/moved") == 0);
    FAILS(weft_stat(weft, "c/d/hard", &st), ENOENT);
    FAILS(weft_rename(weft, "c/none", ""), ENOENT);

    CHECK(weft_symlink(weft, "../log", "c/d/soft") == 0);
    CHECK(weft_symlink(weft, "/weft/c/d", "c/absolute") == 0);
    CHECK(weft_symlink(weft, "/etc/passwd", "c/out") == 0);
    CHECK(weft_readlink(weft, "c/d/soft", buf, sizeof buf) == 6 && memcmp(buf, "../log", 6) == 0);
    CHECK(weft_readlink(weft, "c/d/soft", buf, 2) == 2);
    FAILS(weft_readlink(weft, "c/d/soft", buf, 0), EINVAL);
    FAILS(weft_readlink(weft, "c/log", buf, sizeof buf), EINVAL);
    CHECK(weft_lstat(weft, "c/d/soft", &st) == 0 && S_ISLNK(st.st_mode));
    CHECK(weft_stat(weft, "c/absolute/soft", &st) == 0 && S_ISREG(st.st_mode) && st.st_ino == other.st_ino);
    FAILS(weft_stat(weft, "c/out", &st), EXDEV);
    CHECK(weft_rename(weft, "c/absolute/soft", "c/absolute/soft2") == 0);
    CHECK(weft_lstat(weft, "c/d/soft2", &st) == 0);
    FAILS_PTR(weft_open(weft, "c/d/soft2", O_RDONLY | O_NOFOLLOW, 0), ELOOP);

    struct timespec times[2] = {{1000, 5}, {0, UTIME_OMIT}};
    CHECK(weft_stat(weft, "c/log", &other) == 0);
    CHECK(weft_utimens(weft, "c/log", times, 1) == 0 && weft_stat(weft, "c/log", &st) == 0);
    CHECK(st.st_atim.tv_sec == 1000 && st.st_atim.tv_nsec == 5 && st.st_mtim.tv_sec == other.st_mtim.tv_sec);
    times[1].tv_nsec = 0;
    times[1].tv_sec = -7;
    CHECK(weft_utimens(weft, "c/log", times, 1) == 0 && weft_stat(weft, "c/log", &st) == 0);
    CHECK(st.st_mtim.tv_sec == -7);
    CHECK(weft_utimens(weft, "c/log", NULL, 1) == 0 && weft_stat(weft, "c/log", &st) == 0);
    CHECK(st.st_mtim.tv_sec > 1000000);
    times[0].tv_nsec = 1000000000;
    FAILS(weft_utimens(weft, "c/log", times, 1), EINVAL);

    CHECK(weft_chmod(weft, "c/log", 0600) == 0 && weft_stat(weft, "c/log", &st) == 0 && (st.st_mode & 07777) == 0600);
    CHECK(weft_chown(weft, "c/log", (uid_t)-1, getegid()) == 0);
    CHECK(weft_lchown(weft, "c/out", (uid_t)-1, (gid_t)-1) == 0);
    CHECK(weft_access(weft, "c/log", R_OK | W_OK) == 0);
    FAILS(weft_access(weft, "c/log", 8), EINVAL);
    struct statvfs vfs;
    CHECK(weft_statvfs(weft, &vfs) == 0 && vfs.f_blocks > 0 && vfs.f_bavail <= vfs.f_blocks && vfs.f_files > 0);
}

static void directories(void) {
    enum { MANY = 1500 };
    char name[64];
    CHECK(weft_mkdir(weft, "c/many", 0700) == 0);
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "c/many/%04d", i);
        CHECK(weft_symlink(weft, "x", name) == 0);
    }
    weft_dir_t *dir = weft_opendir(weft, "c/many");
    CHECK(dir != NULL);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < MANY; i++) {
            const weft_dirent_t *entry = weft_readdir(dir);
            CHECK(entry != NULL);
            snprintf(name, sizeof name, "%04d", i);
            CHECK(strcmp(entry->name, name) == 0 && entry->type == DT_LNK && entry->ino != 0);
        }
        CHECK(weft_readdir(dir) == NULL && errno == 0);
        CHECK(weft_rewinddir(dir) == 0);
    }
    CHECK(weft_rewinddir(dir) == 0);
    for (int i = 0; i < MANY; i++) {
        struct stat st;
        // Pages without and with attributes follow each other.
        const weft_dirent_t *entry = i % 700 == 699 ? weft_readdir(dir) : weft_readdir_stat(dir, &st);
        CHECK(entry != NULL);
        snprintf(name, sizeof name, "%04d", i);
        CHECK(strcmp(entry->name, name) == 0);
        CHECK(i % 700 == 699 || (S_ISLNK(st.st_mode) && st.st_ino == entry->ino && st.st_size == 1));
    }
    struct stat none;
    CHECK(weft_readdir_stat(dir, &none) == NULL && errno == 0);
    CHECK(weft_closedir(dir) == 0);
    // The size of a file that is open and being written is that of all bytes.
    weft_file_t *open = weft_open(weft, "c/single-file", O_RDWR | O_CREAT, 0600);
    CHECK(open != NULL && weft_pwrite(open, "x", 1, 999999) == 1);
    dir = weft_opendir(weft, "c");
    CHECK(dir != NULL);
    const weft_dirent_t *found;
    while ((found = weft_readdir_stat(dir, &none)) != NULL && strcmp(found->name, "single-file") != 0)
        ;
    CHECK(found != NULL && S_ISREG(none.st_mode) && none.st_size == 1000000);
    CHECK(weft_closedir(dir) == 0 && weft_close(open) == 0 && weft_unlink(weft, "c/single-file") == 0);
    FAILS_PTR(weft_opendir(weft, "c/log"), ENOTDIR);
    FAILS_PTR(weft_opendir(weft, "c/none"), ENOENT);
}

static void cluster(void) {
    static char json[65536];
    char small[2];
    ssize_t len = weft_describe(weft, NULL, 0);
    CHECK(len > 0 && weft_describe(weft, json, sizeof json) == len && json[0] == '{' && json[len - 1] == '}');
    json[len] = '\0';
    CHECK(strstr(json, "\"servers\":[{") != NULL && strstr(json, "\"targets\":[{") != NULL);
    CHECK(strstr(json, "\"embedded\":true") != NULL);
    FAILS(weft_describe(weft, small, sizeof small), ERANGE);
    // The first server's name follows its addresses.
    char *name = strstr(json, "\"name\":\"");
    CHECK(name != NULL);
    name += strlen("\"name\":\"");
    *strchr(name, '"') = '\0';
    static char status[65536];
    len = weft_server_status(weft, name, status, sizeof status - 1);
    CHECK(len > 0 && status[0] == '{' && status[len - 1] == '}');
    CHECK(strstr(status, name) != NULL && strstr(status, "\"bytes_written\":") != NULL);
    FAILS(weft_server_status(weft, "nobody", status, sizeof status), ENOENT);
    CHECK(strstr(weft_error(), name) != NULL);
    FAILS(weft_server_status(weft, name, small, sizeof small), ERANGE);
    FAILS(weft_server_status(weft, NULL, status, sizeof status), EFAULT);
}

static void attributes(void) {
    char buf[64];
    CHECK(weft_setxattr(weft, "c/log", "user.one", "value", 5, XATTR_CREATE) == 0);
    FAILS(weft_setxattr(weft, "c/log", "user.one", "value", 5, XATTR_CREATE), EEXIST);
    FAILS(weft_setxattr(weft, "c/log", "user.two", "", 0, XATTR_REPLACE), ENODATA);
    FAILS(weft_setxattr(weft, "c/log", "user.two", "", 0, 77), EINVAL);
    FAILS(weft_setxattr(weft, "c/log", NULL, "", 0, 0), EFAULT);
    CHECK(weft_setxattr(weft, "c/log", "user.two", "", 0, 0) == 0);
    CHECK(weft_getxattr(weft, "c/log", "user.one", NULL, 0) == 5);
    CHECK(weft_getxattr(weft, "c/log", "user.one", buf, sizeof buf) == 5 && memcmp(buf, "value", 5) == 0);
    FAILS(weft_getxattr(weft, "c/log", "user.one", buf, 4), ERANGE);
    FAILS(weft_getxattr(weft, "c/log", "user.three", buf, 4), ENODATA);
    CHECK(weft_listxattr(weft, "c/log", buf, sizeof buf) == 18 && memcmp(buf, "user.one\0user.two", 18) == 0);
    CHECK(weft_removexattr(weft, "c/log", "user.one") == 0);
    FAILS(weft_getxattr(weft, "c/log", "user.one", buf, 4), ENODATA);
}

static void layouts(void) {
    weft_strip_t strips[2] = {{1, 0, 4096}, {0, 0, 47008}};
    weft_layout_spec_t spec = WEFT_LAYOUT_SPEC_INIT;
    weft_column_t columns[4];
    spec.strips = strips;
    spec.strip_count = 2;
    weft_file_t *file = weft_open_layout(weft, "c/striped", O_RDWR | O_CREAT, 0600, &spec);
    CHECK(file != NULL && weft_pwrite(file, "x", 1, 200000) == 1 && weft_close(file) == 0);
    CHECK(weft_get_layout(weft, "c/striped", NULL, 0) == 2);
    CHECK(weft_get_layout(weft, "c/striped", columns, 4) == 2);
    CHECK(columns[0].target == 1 && columns[0].stripe_size == 4096 && columns[0].column == 0);
    CHECK(columns[1].target == 0 && columns[1].stripe_size == 47008 && columns[1].column == 1);
    CHECK(columns[0].start == 0 && columns[0].end == UINT64_MAX && columns[0].component == 0);
    FAILS(weft_get_layout(weft, "c/striped", NULL, 1), EFAULT);
    FAILS(weft_set_layout(weft, "c/striped", &spec), EEXIST);

    weft_layout_spec_t one = WEFT_LAYOUT_SPEC_INIT;
    one.stripe_count = 1;
    one.stripe_size = 8192;
    CHECK(weft_mkdir(weft, "c/single", 0700) == 0 && weft_set_layout(weft, "c/single", &one) == 0);
    file = weft_open(weft, "c/single/file", O_RDWR | O_CREAT, 0600);
    CHECK(file != NULL && weft_close(file) == 0);
    CHECK(weft_get_layout(weft, "c/single/file", columns, 4) == 1 && columns[0].stripe_size == 8192);
    CHECK(weft_get_layout(weft, "c/single", columns, 4) == 0);
    one.class_name = "no such class";
    FAILS_PTR(weft_open_layout(weft, "c/nowhere", O_RDWR | O_CREAT, 0600, &one), EINVAL);
    spec.strips = NULL;
    FAILS_PTR(weft_open_layout(weft, "c/nowhere", O_RDWR | O_CREAT, 0600, &spec), EFAULT);
}

static void compression(void) {
    char setting[64];
    weft_file_t *file = weft_open_compressed(weft, "c/small", O_RDWR | O_CREAT, 0600, NULL, "zstd:3/128KiB");
    CHECK(file != NULL && weft_pwrite(file, "x", 1, 200000) == 1 && weft_close(file) == 0);
    CHECK(weft_getxattr(weft, "c/small", "user.weft.compress", setting, sizeof setting) == 13);
    CHECK(memcmp(setting, "zstd:3/128KiB", 13) == 0);
    FAILS(weft_set_compression(weft, "c/small", "off"), EEXIST);
    FAILS_PTR(weft_open_compressed(weft, "c/nowhere", O_RDWR | O_CREAT, 0600, NULL, "gzip"), EINVAL);

    CHECK(weft_mkdir(weft, "c/smaller", 0700) == 0 && weft_set_compression(weft, "c/smaller", "lz4") == 0);
    file = weft_open(weft, "c/smaller/file", O_RDWR | O_CREAT, 0600);
    CHECK(file != NULL && weft_close(file) == 0);
    CHECK(weft_getxattr(weft, "c/smaller/file", "user.weft.compress", setting, sizeof setting) == 9);
    CHECK(memcmp(setting, "lz4/64KiB", 9) == 0);
    CHECK(weft_set_compression(weft, "c/smaller", NULL) == 0);
    FAILS(weft_getxattr(weft, "c/smaller", "user.weft.compress", setting, sizeof setting), ENODATA);
}

static void locks(void) {
    weft_file_t *one = weft_open(weft, "c/log", O_RDWR, 0);
    weft_file_t *two = weft_open(weft, "c/log", O_RDWR, 0);
    weft_lock_info_t info;
    CHECK(one != NULL && two != NULL);
    CHECK(weft_lock(one, WEFT_LOCK_EXCLUSIVE, 10, 10, 0) == 0);
    FAILS(weft_lock(two, WEFT_LOCK_SHARED, 19, 1, 0), EAGAIN);
    FAILS(weft_lock(two, WEFT_LOCK_SHARED, 0, 0, 300), EAGAIN);
    CHECK(weft_lock(two, WEFT_LOCK_SHARED, 20, 0, -1) == 0);
    CHECK(weft_test_lock(two, WEFT_LOCK_SHARED, 0, 0, &info) == 1);
    CHECK(info.kind == WEFT_LOCK_EXCLUSIVE && info.start == 10 && info.len == 10);
    CHECK(weft_test_lock(two, WEFT_LOCK_SHARED, 0, 10, NULL) == 0);
    CHECK(weft_unlock(one, 15, 5) == 0 && weft_lock(two, WEFT_LOCK_EXCLUSIVE, 15, 5, 0) == 0);
    FAILS(weft_lock(two, WEFT_LOCK_EXCLUSIVE, 14, 1, 0), EAGAIN);
    CHECK(weft_close(one) == 0);
    CHECK(weft_lock(two, WEFT_LOCK_EXCLUSIVE, 0, 0, 2000) == 0);
    FAILS(weft_lock(two, 7, 0, 0, 0), EINVAL);
    FAILS(weft_lock(two, WEFT_LOCK_SHARED, -1, 0, 0), EINVAL);
    CHECK(weft_close(two) == 0);
}

static void forks(void) {
    char back[3];
    weft_file_t *file = weft_open(weft, "c/forked", O_RDWR | O_CREAT, 0600);
    CHECK(file != NULL && weft_pwrite(file, "abc", 3, 0) == 3);
    pid_t child = fork();
    if (child == 0) {
        struct stat st;
        CHECK(weft_pread(file, back, 3, 0) == 3 && memcmp(back, "abc", 3) == 0);
        CHECK(weft_pwrite(file, "def", 3, 3) == 3);
        CHECK(weft_stat(weft, "c/forked", &st) == 0 && st.st_size == 6);
        CHECK(weft_close(file) == 0 && weft_disconnect(weft) == 0);
        _exit(0);
    }
    int status = -1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    CHECK(weft_pread(file, back, 3, 3) == 3 && memcmp(back, "def", 3) == 0);
    CHECK(weft_pwrite(file, "ghi", 3, 6) == 3 && weft_size(file) == 9);
    CHECK(weft_close(file) == 0);
}

static weft_file_t *shared;

static void *writer(void *number) {
    char block[1000];
    long me = (long)number;
    for (int i = 0; i < 50; i++) {
        memset(block, (int)me + 1, sizeof block);
        CHECK(weft_pwrite(shared, block, sizeof block, (off_t)(i * 4 + me) * 1000) == 1000);
        FAILS(weft_pread(shared, NULL, 1, 0), EFAULT);
    }
    return NULL;
}

static void threads(void) {
    pthread_t all[4];
    char block[1000];
    shared = weft_open(weft, "c/shared", O_RDWR | O_CREAT, 0600);
    CHECK(shared != NULL);
    for (long i = 0; i < 4; i++)
        CHECK(pthread_create(&all[i], NULL, writer, (void *)i) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(all[i], NULL) == 0);
    CHECK(weft_size(shared) == 200000);
    for (int i = 0; i < 200; i++) {
        CHECK(weft_pread(shared, block, 1000, (off_t)i * 1000) == 1000);
        CHECK(block[0] == i % 4 + 1 && memcmp(block, block + 1, 999) == 0);
    }
    CHECK(weft_close(shared) == 0);
}

int main(int argc, char **argv) {
    umask(027);
    weft = weft_connect(argc > 1 ? argv[1] : NULL);
    CHECK(weft != NULL);
    CHECK(weft_mkdir(weft, "c", 0777) == 0);
    bytes();
    appends();
    names();
    directories();
    cluster();
    attributes();
    layouts();
    compression();
    locks();
    forks();
    threads();
    weft_file_t *last = weft_open(weft, "c/log", O_RDONLY, 0);
    CHECK(last != NULL && weft_disconnect(weft) == 0);
    CHECK(weft_size(last) == 10 && weft_close(last) == 0);
    puts("all calls did what weft.h says");
    return 0;
}
