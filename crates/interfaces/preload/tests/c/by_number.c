/* System calls by number do what the functions do. */
#include "check.h"
#include <sys/inotify.h>
#include <sys/ioctl.h>

MAIN
    put("f", "0123456789");
    CHECK(symlink("f", "l") == 0 && mkdir("d", 0700) == 0);
    int fd = open("f", O_RDWR), dir = open(".", O_RDONLY | O_DIRECTORY);
    char value[8] = "", list[100];
    CHECK(syscall(SYS_setxattr, "f", "user.a", "one", 3, 0) == 0);
    CHECK(syscall(SYS_getxattr, "l", "user.a", value, sizeof value) == 3 && memcmp(value, "one", 3) == 0);
    FAILS(syscall(SYS_setxattr, "f", "user.a", "one", 3, XATTR_CREATE), EEXIST);
    CHECK(syscall(SYS_lgetxattr, "f", "user.a", value, sizeof value) == 3);
    FAILS(syscall(SYS_lgetxattr, "l", "user.a", value, sizeof value), ENODATA);
    FAILS(syscall(SYS_lsetxattr, "l", "user.a", "one", 3, 0), EPERM);
    CHECK(syscall(SYS_listxattr, "f", list, sizeof list) == 7 && strcmp(list, "user.a") == 0);
    CHECK(syscall(SYS_llistxattr, "f", NULL, 0) == 7);
    CHECK(syscall(SYS_fsetxattr, fd, "user.b", "2", 1, 0) == 0);
    CHECK(syscall(SYS_fgetxattr, fd, "user.b", value, sizeof value) == 1 && value[0] == '2');
    CHECK(syscall(SYS_flistxattr, fd, NULL, 0) == 14);
    CHECK(syscall(SYS_fremovexattr, fd, "user.b") == 0 && syscall(SYS_removexattr, "l", "user.a") == 0);
    FAILS(syscall(SYS_lremovexattr, "f", "user.a"), ENODATA);

    struct stat st;
    CHECK(syscall(SYS_mknodat, dir, "pipe", S_IFIFO | 0600, 0) == 0);
    CHECK(lstat("pipe", &st) == 0 && S_ISFIFO(st.st_mode));
    CHECK(syscall(SYS_syncfs, fd) == 0 && syscall(SYS_readahead, fd, 0, 10) == 0);
    CHECK(syscall(SYS_sync_file_range, fd, 0, 10, SYNC_FILE_RANGE_WRITE) == 0);
    FAILS(syscall(SYS_sync_file_range, fd, 0, 10, 0x80), EINVAL);
    CHECK(syscall(SYS_fadvise64, fd, 0, 10, POSIX_FADV_DONTNEED) == 0);
    FAILS(syscall(SYS_fadvise64, fd, 0, 10, 99), EINVAL);
    int ready = -1;
    CHECK(syscall(SYS_ioctl, fd, FIONREAD, &ready) == 0 && ready == 10);
#ifdef SYS_utimes
    struct utimbuf seconds = {100, 200};
    struct timeval times[2] = {{300, 0}, {400, 7}};
    CHECK(syscall(SYS_utime, "f", &seconds) == 0 && stat("f", &st) == 0 && st.st_mtime == 200);
    CHECK(syscall(SYS_utimes, "f", times) == 0 && stat("f", &st) == 0 && st.st_mtime == 400);
    times[1].tv_sec = 500;
    CHECK(syscall(SYS_futimesat, dir, "f", times) == 0 && stat("f", &st) == 0 && st.st_mtime == 500);
    times[1].tv_sec = 600;
    CHECK(syscall(SYS_futimesat, fd, NULL, times) == 0 && stat("f", &st) == 0 && st.st_mtime == 600);
    CHECK(syscall(SYS_mknod, "node", S_IFREG | 0600, 0) == 0 && stat("node", &st) == 0 && S_ISREG(st.st_mode));
#endif
    /* On Weft no inode can be watched, which programs know as the end of a resource. */
    int events = inotify_init1(0);
    errno = 0;
    CHECK(syscall(SYS_inotify_add_watch, events, "f", IN_MODIFY) > 0 || errno == ENOSPC);
    return 0;
}
