/* Tests without a cluster: every call rejects NULL and invalid arguments with errno and a message. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <weft.h>

static int failures;

static void refused(const char *call, int failed, int wanted) {
    if (!failed || errno != wanted || weft_error()[0] == '\0') {
        fprintf(stderr, "%s: failed %d, errno %d (wanted %d), \"%s\"\n", call, failed, errno, wanted, weft_error());
        failures++;
    }
    errno = 0;
}

#define REFUSED(call, wanted) (errno = 0, refused(#call, (call) == -1, wanted))
#define REFUSED_PTR(call, wanted) (errno = 0, refused(#call, (call) == NULL, wanted))

int main(void) {
    weft_layout_spec_t spec = WEFT_LAYOUT_SPEC_INIT;
    struct timespec times[2] = {{0, 0}, {0, 0}};
    struct statvfs vfs;
    struct stat st;
    char buf[8];

    if (weft_version()[0] == '\0' || strcmp(weft_error(), "") != 0) {
        fprintf(stderr, "version \"%s\", first sentence \"%s\"\n", weft_version(), weft_error());
        failures++;
    }
    REFUSED_PTR(weft_connect("/no/such/cluster.toml"), EINVAL);
    if (strstr(weft_error(), "/no/such/cluster.toml") == NULL) {
        fprintf(stderr, "the sentence names no file: %s\n", weft_error());
        failures++;
    }
    REFUSED(weft_disconnect(NULL), EINVAL);
    REFUSED(weft_describe(NULL, buf, sizeof buf), EINVAL);
    REFUSED(weft_server_status(NULL, "s0", buf, sizeof buf), EINVAL);
    REFUSED_PTR(weft_open(NULL, "a", O_RDONLY, 0), EINVAL);
    REFUSED_PTR(weft_open_layout(NULL, "a", O_RDONLY, 0, &spec), EINVAL);
    REFUSED_PTR(weft_open_compressed(NULL, "a", O_RDONLY, 0, &spec, "lz4"), EINVAL);
    REFUSED(weft_close(NULL), EINVAL);
    REFUSED(weft_pread(NULL, buf, sizeof buf, 0), EINVAL);
    REFUSED(weft_preadv(NULL, NULL, 0, 0), EINVAL);
    REFUSED(weft_pwrite(NULL, buf, sizeof buf, 0), EINVAL);
    REFUSED(weft_pwritev(NULL, NULL, 0, 0), EINVAL);
    REFUSED(weft_append(NULL, buf, sizeof buf, NULL), EINVAL);
    REFUSED(weft_fsync(NULL), EINVAL);
    REFUSED(weft_ftruncate(NULL, 0), EINVAL);
    REFUSED(weft_size(NULL), EINVAL);
    REFUSED(weft_fstat(NULL, &st), EINVAL);
    REFUSED(weft_lock(NULL, WEFT_LOCK_SHARED, 0, 0, 0), EINVAL);
    REFUSED(weft_unlock(NULL, 0, 0), EINVAL);
    REFUSED(weft_test_lock(NULL, WEFT_LOCK_SHARED, 0, 0, NULL), EINVAL);
    REFUSED(weft_stat(NULL, "a", &st), EINVAL);
    REFUSED(weft_lstat(NULL, "a", &st), EINVAL);
    REFUSED(weft_access(NULL, "a", 0), EINVAL);
    REFUSED(weft_mkdir(NULL, "a", 0777), EINVAL);
    REFUSED(weft_rmdir(NULL, "a"), EINVAL);
    REFUSED(weft_unlink(NULL, "a"), EINVAL);
    REFUSED(weft_rename(NULL, "a", "b"), EINVAL);
    REFUSED(weft_link(NULL, "a", "b"), EINVAL);
    REFUSED(weft_symlink(NULL, "a", "b"), EINVAL);
    REFUSED(weft_readlink(NULL, "a", buf, sizeof buf), EINVAL);
    REFUSED(weft_truncate(NULL, "a", 0), EINVAL);
    REFUSED(weft_chmod(NULL, "a", 0), EINVAL);
    REFUSED(weft_chown(NULL, "a", 0, 0), EINVAL);
    REFUSED(weft_lchown(NULL, "a", 0, 0), EINVAL);
    REFUSED(weft_utimens(NULL, "a", times, 1), EINVAL);
    REFUSED(weft_statvfs(NULL, &vfs), EINVAL);
    REFUSED_PTR(weft_opendir(NULL, "a"), EINVAL);
    REFUSED_PTR(weft_readdir(NULL), EINVAL);
    REFUSED_PTR(weft_readdir_stat(NULL, &st), EINVAL);
    REFUSED(weft_rewinddir(NULL), EINVAL);
    REFUSED(weft_closedir(NULL), EINVAL);
    REFUSED(weft_getxattr(NULL, "a", "user.b", buf, sizeof buf), EINVAL);
    REFUSED(weft_setxattr(NULL, "a", "user.b", buf, sizeof buf, 0), EINVAL);
    REFUSED(weft_listxattr(NULL, "a", buf, sizeof buf), EINVAL);
    REFUSED(weft_removexattr(NULL, "a", "user.b"), EINVAL);
    REFUSED(weft_get_layout(NULL, "a", NULL, 0), EINVAL);
    REFUSED(weft_set_layout(NULL, "a", &spec), EINVAL);
    REFUSED(weft_set_compression(NULL, "a", "lz4"), EINVAL);
    return failures != 0;
}
