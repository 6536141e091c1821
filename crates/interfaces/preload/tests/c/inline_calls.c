/* System calls by machine instructions in the program itself, as programs without the C library's functions make them. */
#include "check.h"
#include <sys/ioctl.h>
#if defined(__x86_64__)
static long call(long number, long a, long b, long c, long d) {
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = 0;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8) : "rcx", "r11", "memory");
    return result;
}
/* The number stands before the instruction, as compilers put it there. */
static long rename_inline(const char *from, const char *to) {
    long result;
    __asm__ volatile("mov $82, %%eax\n\tsyscall" : "=a"(result) : "D"(from), "S"(to) : "rcx", "r11", "memory");
    return result;
}
static void on_signal(int signal) { (void)signal; }
static void *in_thread(void *name) {
    CHECK(call(SYS_mkdirat, AT_FDCWD, (long)name, 0755, 0) == 0);
    struct stat st;
    CHECK(stat(name, &st) == 0 && S_ISDIR(st.st_mode));
    return NULL;
}
MAIN
    struct stat st, again;
    long fd = call(SYS_openat, AT_FDCWD, (long)"a", O_CREAT | O_RDWR, 0600);
    CHECK(fd >= 0 && stat("a", &st) == 0 && S_ISREG(st.st_mode));
    CHECK(call(SYS_write, fd, (long)"inline", 6, 0) == 6 && call(SYS_lseek, fd, 0, SEEK_SET, 0) == 0);
    char buf[16];
    CHECK(call(SYS_read, fd, (long)buf, 16, 0) == 6 && memcmp(buf, "inline", 6) == 0);
    CHECK(call(SYS_pwrite64, fd, (long)"I", 1, 0) == 1 && call(SYS_pread64, fd, (long)buf, 6, 0) == 6 && buf[0] == 'I');
    CHECK(call(SYS_fstat, fd, (long)&again, 0, 0) == 0 && again.st_ino == st.st_ino && again.st_size == 6);
    CHECK(call(SYS_ftruncate, fd, 3, 0, 0) == 0 && call(SYS_fsync, fd, 0, 0, 0) == 0);
    CHECK(call(SYS_stat, (long)"a", (long)&again, 0, 0) == 0 && again.st_size == 3);
    long copy = call(SYS_dup, fd, 0, 0, 0);
    CHECK(copy >= 0 && call(SYS_close, copy, 0, 0, 0) == 0 && call(SYS_close, fd, 0, 0, 0) == 0);
    CHECK(rename_inline("a", "b") == 0 && rename_inline("a", "b") == -ENOENT && access("b", F_OK) == 0);
    CHECK(call(SYS_renameat, AT_FDCWD, (long)"b", AT_FDCWD, (long)"c") == 0);
    CHECK(call(SYS_link, (long)"c", (long)"d", 0, 0) == 0 && call(SYS_symlink, (long)"d", (long)"e", 0, 0) == 0);
    CHECK(call(SYS_readlink, (long)"e", (long)buf, 16, 0) == 1 && buf[0] == 'd');
    CHECK(call(SYS_newfstatat, AT_FDCWD, (long)"e", (long)&again, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(again.st_mode));
    CHECK(call(SYS_access, (long)"d", R_OK, 0, 0) == 0 && call(SYS_unlink, (long)"d", 0, 0, 0) == 0);
    CHECK(call(SYS_unlink, (long)"d", 0, 0, 0) == -ENOENT && call(SYS_mkdir, (long)"dir", 0755, 0, 0) == 0);
    long dir = call(SYS_open, (long)".", O_RDONLY | O_DIRECTORY, 0, 0);
    char names[4096];
    long len = call(SYS_getdents64, dir, (long)names, sizeof names, 0);
    int found = 0;
    for (long at = 0; at < len; at += ((struct dirent64 *)(names + at))->d_reclen)
        found += strcmp(((struct dirent64 *)(names + at))->d_name, "dir") == 0;
    CHECK(found == 1 && call(SYS_close, dir, 0, 0, 0) == 0 && call(SYS_rmdir, (long)"dir", 0, 0, 0) == 0);
    /* Attributes, nodes and requests to files. */
    CHECK(call(SYS_mknod, (long)"node", S_IFREG | 0600, 0, 0) == 0 && call(SYS_mknodat, AT_FDCWD, (long)"node", 0, 0) == -EEXIST);
    CHECK(call(SYS_setxattr, (long)"node", (long)"user.a", (long)"abc", 3) == 0);
    CHECK(call(SYS_getxattr, (long)"node", (long)"user.a", (long)buf, 16) == 3 && memcmp(buf, "abc", 3) == 0);
    CHECK(call(SYS_lgetxattr, (long)"node", (long)"user.b", (long)buf, 16) == -ENODATA);
    fd = call(SYS_open, (long)"node", O_RDWR, 0, 0);
    CHECK(call(SYS_fsetxattr, fd, (long)"user.b", (long)"", 0) == 0 && call(SYS_flistxattr, fd, (long)names, 99, 0) == 14);
    CHECK(call(SYS_listxattr, (long)"node", (long)names, 99, 0) == 14 && call(SYS_llistxattr, (long)"e", 0, 0, 0) == 0);
    CHECK(call(SYS_fgetxattr, fd, (long)"user.b", (long)buf, 16) == 0 && call(SYS_fremovexattr, fd, (long)"user.b", 0, 0) == 0);
    CHECK(call(SYS_removexattr, (long)"node", (long)"user.a", 0, 0) == 0 && call(SYS_listxattr, (long)"node", 0, 0, 0) == 0);
    CHECK(call(SYS_lremovexattr, (long)"node", (long)"user.a", 0, 0) == -ENODATA);
    int number = 1;
    CHECK(call(SYS_ioctl, fd, FIONBIO, (long)&number, 0) == 0 && (fcntl(fd, F_GETFL) & O_NONBLOCK));
    CHECK(call(SYS_write, fd, (long)"12345", 5, 0) == 5 && call(SYS_lseek, fd, 1, SEEK_SET, 0) == 1);
    CHECK(call(SYS_ioctl, fd, FIONREAD, (long)&number, 0) == 0 && number == 4);
    CHECK(call(SYS_fadvise64, fd, 0, 0, POSIX_FADV_DONTNEED) == 0 && call(SYS_fadvise64, fd, 0, 0, 77) == -EINVAL);
    CHECK(call(SYS_readahead, fd, 0, 5, 0) == 0 && call(SYS_sync_file_range, fd, 0, 5, 7) == 0 && call(SYS_syncfs, fd, 0, 0, 0) == 0);
    CHECK(call(SYS_close, fd, 0, 0, 0) == 0);
    /* Calls for the kernel. */
    CHECK(call(SYS_getpid, 0, 0, 0, 0) == getpid() && call(SYS_openat, AT_FDCWD, (long)"/dev/null", O_RDONLY, 0) >= 0);
    /* A thread, a forked process, a blocked signal mask, and a handler that a call interrupts. */
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, in_thread, "from-thread") == 0 && pthread_join(thread, NULL) == 0);
    sigset_t all, old;
    sigfillset(&all);
    CHECK(pthread_sigmask(SIG_BLOCK, &all, &old) == 0 && call(SYS_access, (long)"c", F_OK, 0, 0) == 0);
    CHECK(pthread_sigmask(SIG_SETMASK, &old, NULL) == 0);
    struct sigaction action = {.sa_handler = on_signal};
    sigfillset(&action.sa_mask);
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0 && call(SYS_kill, getpid(), SIGUSR1, 0, 0) == 0);
    pid_t child = fork();
    if (child == 0) _exit(call(SYS_mkdir, (long)"from-child", 0755, 0, 0) == 0 && access("from-child", F_OK) == 0 ? 0 : 1);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0 && access("from-child", F_OK) == 0);
    child = call(SYS_fork, 0, 0, 0, 0);
    if (child == 0) _exit(7);
    CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
    return 0;
}
#else
MAIN
    return 0;
}
#endif
