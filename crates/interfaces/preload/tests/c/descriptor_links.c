/* Links to descriptors and to the working directory: /dev/stdin, /dev/fd/N, /proc/self/fd/N, /proc/self/cwd. */
#include "check.h"
static char mount[PATH_MAX], link_to[PATH_MAX], text[PATH_MAX * 2];

static const char *of(const char *format, int fd) {
    snprintf(link_to, sizeof link_to, format, fd);
    return link_to;
}
static void opens(const char *name, const char *want) {
    int fd = open(name, O_RDONLY);
    char got[100] = "";
    if (fd < 0 || read(fd, got, sizeof got - 1) != (ssize_t)strlen(want) || !same(got, want)) dprintf(2, "by %s\n", name);
    CHECK(fd >= 0 && strcmp(got, want) == 0 && close(fd) == 0);
}
MAIN
    struct stat st, st2;
    struct statx more;
    CHECK(getcwd(mount, sizeof mount));
    put("f", "content");
    put("other", "x");
    int fd = open("f", O_RDONLY);
    CHECK(fd >= 0 && read(fd, text, 3) == 3 && fstat(fd, &st) == 0);
    /* Another description: a position of its own, and the requested access. */
    char pid[100], task[100];
    snprintf(pid, sizeof pid, "/proc/%d/fd/%%d", getpid());
    snprintf(task, sizeof task, "/proc/self/task/%ld/fd/%%d", syscall(SYS_gettid));
    const char *kinds[] = {"/proc/self/fd/%d", "/dev/fd/%d", "/proc/thread-self/fd/%d", "//proc/./self/fd//%d", pid, task};
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        opens(of(kinds[i], fd), "content");
        CHECK(stat(link_to, &st2) == 0 && st2.st_ino == st.st_ino && st2.st_size == 7 && S_ISREG(st2.st_mode));
        CHECK(lstat(link_to, &st2) == 0 && S_ISLNK(st2.st_mode));
        CHECK(statx(AT_FDCWD, link_to, 0, STATX_BASIC_STATS, &more) == 0 && more.stx_ino == st.st_ino);
        CHECK(access(link_to, R_OK | W_OK) == 0 && faccessat(AT_FDCWD, link_to, R_OK, 0) == 0);
        ssize_t n = readlink(link_to, text, sizeof text - 1);
        CHECK(n > 0);
        text[n] = 0;
        char want[PATH_MAX + 10];
        snprintf(want, sizeof want, "%s/f", mount);
        CHECK(same(text, want));
        char *real = realpath(link_to, NULL);
        CHECK(real && same(real, want));
        free(real);
        FAILS(open(link_to, O_RDONLY | O_NOFOLLOW), ELOOP);
        FAILS(open(link_to, O_WRONLY | O_CREAT | O_EXCL, 0644), EEXIST);
        CHECK(unlink(link_to) == -1 && access("f", F_OK) == 0);
        FAILS(open(of("/proc/self/fd/%d/", fd), O_RDONLY), ENOTDIR);
        FAILS(open(of("/proc/self/fd/%d/x", fd), O_RDONLY), ENOTDIR);
    }
    CHECK(lseek(fd, 0, SEEK_CUR) == 3);
    int writer = open(of("/proc/self/fd/%d", fd), O_WRONLY | O_APPEND | O_CREAT, 0600);
    CHECK(writer >= 0 && write(writer, "+", 1) == 1 && close(writer) == 0 && same(get("f"), "content+"));
    CHECK(chmod(of("/dev/fd/%d", fd), 0640) == 0 && stat("f", &st) == 0 && (st.st_mode & 07777) == 0640);
    CHECK(truncate(link_to, 4) == 0 && same(get("f"), "cont"));
    struct timespec times[2] = {{1000, 5}, {2000, 6}};
    CHECK(utimensat(AT_FDCWD, link_to, times, 0) == 0 && stat("f", &st) == 0 && st.st_mtime == 2000 && st.st_atime == 1000);
    CHECK(setxattr(link_to, "user.a", "v", 1, 0) == 0 && getxattr("f", "user.a", text, 10) == 1);
    writer = open(link_to, O_WRONLY | O_TRUNC);
    CHECK(writer >= 0 && close(writer) == 0 && same(get("f"), ""));
    FILE *stream = fopen(link_to, "w");
    CHECK(stream && fputs("by stream", stream) >= 0 && fclose(stream) == 0 && same(get("f"), "by stream"));

    /* Links to the links, on both sides, and relative names. */
    CHECK(symlink(of("/proc/self/fd/%d", fd), "inner") == 0);
    opens("inner", "by stream");
    char outer[] = "/tmp/weft-links-XXXXXX";
    CHECK(mkdtemp(outer) != NULL);
    snprintf(text, sizeof text, "%s/l", outer);
    CHECK(symlink(link_to, text) == 0);
    opens(text, "by stream");
    CHECK(stat(text, &st2) == 0 && fstat(fd, &st) == 0 && st2.st_ino == st.st_ino && st2.st_size == 9);
    CHECK(lstat(text, &st2) == 0 && S_ISLNK(st2.st_mode) && readlink(text, text + 100, 100) > 0);
    CHECK(unlink(text) == 0 && rmdir(outer) == 0 && access("f", F_OK) == 0);
    int proc = open("/proc/self/fd", O_RDONLY | O_DIRECTORY);
    int again = openat(proc, of("%d", fd), O_RDONLY);
    CHECK(again >= 0 && read(again, text, 2) == 2 && close(again) == 0);
    CHECK(fchdir(proc) == 0);
    opens(of("%d", fd), "by stream");
    CHECK(chdir("/dev") == 0);
    opens(of("fd/%d", fd), "by stream");
    CHECK(chdir(mount) == 0);

    /* Unlinked files, and those that never had a name. */
    CHECK(rename("f", "renamed") == 0 && unlink("renamed") == 0);
    opens(of("/proc/self/fd/%d", fd), "by stream");
    CHECK(stat(link_to, &st2) == 0 && st2.st_nlink == 0 && st2.st_size == 9);
    ssize_t n = readlink(link_to, text, sizeof text - 1);
    CHECK(n > 10 && memcmp(text + n - 10, " (deleted)", 10) == 0);
    int unnamed = open(".", O_TMPFILE | O_RDWR, 0600);
    CHECK(unnamed >= 0 && write(unnamed, "no name", 7) == 7);
    opens(of("/dev/fd/%d", unnamed), "no name");
    CHECK(close(unnamed) == 0 && close(fd) == 0);
    FAILS(open(of("/proc/self/fd/%d", fd), O_RDONLY), ENOENT);

    /* Directories, and the working directory. */
    CHECK(mkdir("d", 0755) == 0);
    put("d/in", "inside");
    int dir = open("d", O_PATH);
    opens(of("/proc/self/fd/%d/in", dir), "inside");
    opens(of("/dev/fd/%d/../d/in", dir), "inside");
    DIR *list = opendir(of("/proc/self/fd/%d", dir));
    int seen = 0;
    while (list && readdir(list)) seen++;
    CHECK(seen == 3 && closedir(list) == 0);
    CHECK(rename("d", "e") == 0);
    put(of("/proc/self/fd/%d/new", dir), "n");
    CHECK(access("e/new", F_OK) == 0 && chdir("e") == 0);
    opens("/proc/self/cwd/in", "inside");
    opens("/proc/thread-self/cwd/../e/in", "inside");
    CHECK(stat("/proc/self/cwd", &st) == 0 && stat(".", &st2) == 0 && st.st_ino == st2.st_ino);
    n = readlink("/proc/self/cwd", text, sizeof text - 1);
    char want[PATH_MAX + 10];
    snprintf(want, sizeof want, "%s/e", mount);
    text[n > 0 ? n : 0] = 0;
    CHECK(same(text, want) && chdir(mount) == 0 && chdir(of("/proc/self/fd/%d", dir)) == 0);
    CHECK(getcwd(text, sizeof text) && same(text, want));
    /* Permission is checked again. */
    if (geteuid() != 0) {
        fd = open("in", O_RDONLY);
        CHECK(chmod("in", 0400) == 0);
        FAILS(open(of("/proc/self/fd/%d", fd), O_WRONLY), EACCES);
    }
    return 0;
}
