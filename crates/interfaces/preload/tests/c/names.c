/* Names: links, renames, relative and climbing paths, attributes, times. */
#include "check.h"
#include <sys/ipc.h>
static char mount[PATH_MAX];
MAIN
    struct stat st, st2;
    CHECK(getcwd(mount, sizeof mount) != NULL && same(mount, argv[1]));
    umask(027);
    CHECK(mkdir("a", 0777) == 0 && stat("a", &st) == 0 && S_ISDIR(st.st_mode) && (st.st_mode & 07777) == 0750);
    put("a/f", "text");
    CHECK(stat("a/f", &st) == 0 && (st.st_mode & 07777) == 0640 && st.st_nlink == 1 && st.st_size == 4);
    FAILS(mkdir("a", 0777), EEXIST);
    FAILS(mkdir("no/b", 0777), ENOENT);
    FAILS(mkdir("a/f/b", 0777), ENOTDIR);
    FAILS(rmdir("a"), ENOTEMPTY);
    FAILS(rmdir("a/f"), ENOTDIR);
    FAILS(unlink("a"), EISDIR);
    FAILS(stat("", &st), ENOENT);
    FAILS(stat("a/f/", &st), ENOTDIR);
    FAILS(unlink("missing"), ENOENT);

    /* Hard links. */
    CHECK(link("a/f", "g") == 0 && stat("g", &st2) == 0 && st2.st_ino == st.st_ino && st2.st_nlink == 2);
    FAILS(link("a/f", "g"), EEXIST);
    /* Symbolic links. */
    CHECK(symlink("a/f", "s") == 0 && lstat("s", &st2) == 0 && S_ISLNK(st2.st_mode) && st2.st_size == 3);
    CHECK(stat("s", &st2) == 0 && st2.st_ino == st.st_ino);
    char buf[PATH_MAX];
    ssize_t n = readlink("s", buf, sizeof buf);
    CHECK(n == 3 && memcmp(buf, "a/f", 3) == 0 && readlink("s", buf, 2) == 2);
    FAILS(readlink("g", buf, 10), EINVAL);
    FAILS(open("s", O_RDONLY | O_NOFOLLOW), ELOOP);
    CHECK(symlink("loop2", "loop1") == 0 && symlink("loop1", "loop2") == 0);
    FAILS(stat("loop1", &st2), ELOOP);
    CHECK(same(get("s"), "text"));
    CHECK(realpath("s", buf) != NULL);
    char want[PATH_MAX];
    snprintf(want, sizeof want, "%s/a/f", mount);
    CHECK(same(buf, want));
    char *fresh = canonicalize_file_name("a/../a/./f");
    CHECK(fresh && same(fresh, want));
    free(fresh);

    /* An absolute link back into the same tree, one to a foreign file, and a foreign one into the tree. */
    CHECK(symlink(want, "abs") == 0 && same(get("abs"), "text"));
    CHECK(symlink("/etc/hostname", "out") == 0 && strlen(get("out")) > 0 && stat("out", &st2) == 0);
    CHECK(symlink("/etc", "etc") == 0 && stat("etc/passwd", &st2) == 0 && stat("/etc/passwd", &st) == 0);
    CHECK(st2.st_ino == st.st_ino);
    char foreign[] = "/tmp/weft-links-XXXXXX", path[PATH_MAX];
    CHECK(mkdtemp(foreign) != NULL);
    snprintf(path, sizeof path, "%s/l", foreign);
    CHECK(symlink(want, path) == 0 && same(get(path), "text") && stat(path, &st2) == 0);
    CHECK(unlink(path) == 0);
    CHECK(symlink(mount, path) == 0);
    char deep[PATH_MAX + 10];
    snprintf(deep, sizeof deep, "%s/a/f", path);
    CHECK(same(get(deep), "text"));
    snprintf(deep, sizeof deep, "%s/made", path);
    put(deep, "through");
    CHECK(same(get("made"), "through") && unlink("made") == 0 && unlink(path) == 0 && rmdir(foreign) == 0);
    FAILS(stat("/etc/weft-is-not-here", &st2), ENOENT);

    /* Renames. */
    CHECK(rename("g", "h") == 0 && access("g", F_OK) == -1 && same(get("h"), "text"));
    put("i", "other");
    CHECK(rename("i", "h") == 0 && same(get("h"), "other"));
    CHECK(mkdir("b", 0755) == 0 && rename("b", "a/b") == 0 && rename("a/b", "c") == 0);
    FAILS(rename("a", "a/sub"), EINVAL);
    FAILS(rename("h", "c"), EISDIR);
    FAILS(rename("c", "h"), ENOTDIR);
    FAILS(rename("c", "a"), ENOTEMPTY);
    FAILS(rename("missing", "x"), ENOENT);
    FAILS(renameat2(AT_FDCWD, "h", AT_FDCWD, "s", RENAME_NOREPLACE), EEXIST);
    put("p", "P"), put("q", "Q");
    CHECK(renameat2(AT_FDCWD, "p", AT_FDCWD, "q", RENAME_EXCHANGE) == 0 && same(get("p"), "Q"));
    if (is_served()) {
        FAILS(rename("h", "/tmp/weft-elsewhere"), EXDEV);
        FAILS(link("/etc/hostname", "x"), EXDEV);
    }

    /* Names relative to a directory, also after a rename of the directory. */
    int dir = open("c", O_RDONLY | O_DIRECTORY);
    CHECK(dir >= 0 && mkdirat(dir, "sub", 0755) == 0 && symlinkat("../h", dir, "up") == 0);
    CHECK(fstatat(dir, "up", &st, 0) == 0 && st.st_size == 5 && fstatat(dir, "up", &st, AT_SYMLINK_NOFOLLOW) == 0);
    CHECK(S_ISLNK(st.st_mode) && fstatat(dir, "", &st, AT_EMPTY_PATH) == 0 && S_ISDIR(st.st_mode));
    FAILS(fstatat(dir, "", &st, 0), ENOENT);
    CHECK(rename("c", "cc") == 0);
    CHECK(faccessat(dir, "sub", R_OK, 0) == 0 && fstatat(dir, "../h", &st, 0) == 0);
    CHECK(linkat(dir, "../h", dir, "hard", 0) == 0 && unlinkat(dir, "hard", 0) == 0);
    CHECK(unlinkat(dir, "sub", AT_REMOVEDIR) == 0 && readlinkat(dir, "up", buf, 10) == 4);
    CHECK(renameat(dir, "up", AT_FDCWD, "up") == 0 && unlink("up") == 0);
    struct statx sx;
    CHECK(statx(AT_FDCWD, "h", 0, STATX_BASIC_STATS, &sx) == 0 && sx.stx_size == 5 && S_ISREG(sx.stx_mode));
    CHECK(statx(dir, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &sx) == 0 && S_ISDIR(sx.stx_mode));

    /* The working directory, and paths that climb out of the tree and back. */
    CHECK(chdir("cc") == 0 && getcwd(buf, sizeof buf));
    snprintf(want, sizeof want, "%s/cc", mount);
    CHECK(same(buf, want));
    CHECK(stat("../h", &st) == 0 && st.st_size == 5 && stat(".", &st) == 0 && S_ISDIR(st.st_mode));
    char up[PATH_MAX] = "";
    for (const char *at = want; *at; at++) if (*at == '/') strcat(up, "../");
    snprintf(path, sizeof path, "%setc/passwd", up);
    CHECK(stat(path, &st) == 0 && stat("/etc/passwd", &st2) == 0 && st.st_ino == st2.st_ino);
    snprintf(path, sizeof path, "/tmp/../%s//h", mount);
    CHECK(stat(path, &st) == 0 && st.st_size == 5);
    FAILS(getcwd(buf, 3) ? 0 : -1, ERANGE);
    CHECK(chdir("/tmp") == 0 && getcwd(buf, sizeof buf) && same(buf, "/tmp"));
    snprintf(path, sizeof path, "..%s/h", mount);
    CHECK(stat(path, &st) == 0 && st.st_size == 5);
    CHECK(fchdir(dir) == 0 && getcwd(buf, sizeof buf) && same(buf, want) && chdir("..") == 0);
    FAILS(chdir("h"), ENOTDIR);
    FAILS(chdir("missing"), ENOENT);
    char *whole = get_current_dir_name();
    CHECK(whole && same(whole, mount));
    free(whole);

    /* Out of a directory that another process has removed. */
    CHECK(mkdir("gone", 0755) == 0 && chdir("gone") == 0 && system("rmdir ../gone") == 0);
    CHECK(chdir("..") == 0 && stat("h", &st) == 0);

    /* Attributes and times. */
    CHECK(chmod("h", 0604) == 0 && stat("h", &st) == 0 && (st.st_mode & 07777) == 0604);
    int fd = open("h", O_RDWR);
    CHECK(fchmod(fd, 0600) == 0 && fchmodat(AT_FDCWD, "h", 0644, 0) == 0 && fchown(fd, -1, -1) == 0);
    CHECK(chown("h", getuid(), getgid()) == 0 && lchown("s", -1, -1) == 0);
    struct timespec times[2] = {{1000000000, 123456789}, {1100000000, 987654321}};
    CHECK(utimensat(AT_FDCWD, "h", times, 0) == 0 && stat("h", &st) == 0);
    CHECK(st.st_atime == 1000000000 && st.st_mtime == 1100000000 && st.st_mtim.tv_nsec == 987654321);
    times[0].tv_nsec = UTIME_OMIT, times[1].tv_nsec = UTIME_NOW;
    CHECK(futimens(fd, times) == 0 && fstat(fd, &st) == 0 && st.st_atime == 1000000000 && st.st_mtime > 1700000000);
    struct timeval tv[2] = {{5, 6}, {7, 8}};
    CHECK(utimes("h", tv) == 0 && stat("h", &st) == 0 && st.st_mtim.tv_nsec == 8000);
    struct utimbuf ub = {9, 10};
    CHECK(utime("h", &ub) == 0 && stat("h", &st) == 0 && st.st_atime == 9 && st.st_mtime == 10);
    CHECK(futimes(fd, tv) == 0 && lutimes("s", tv) == 0);
    CHECK(access("h", R_OK | W_OK) == 0 && euidaccess("h", R_OK) == 0 && access("h", F_OK) == 0);
    CHECK(mknod("fifo", S_IFIFO | 0600, 0) == 0 && lstat("fifo", &st) == 0 && S_ISFIFO(st.st_mode));
    CHECK(mkfifo("fifo2", 0600) == 0 && remove("fifo") == 0 && remove("fifo2") == 0 && remove("cc") == 0);
    CHECK(pathconf("h", _PC_NAME_MAX) == 255);
    char longest[300];
    memset(longest, 'n', 299), longest[299] = 0;
    FAILS(open(longest, O_CREAT | O_WRONLY, 0600), ENAMETOOLONG);

    /* Extended attributes. */
    if (setxattr("h", "user.color", "blue", 4, 0) == 0) {
        CHECK(getxattr("h", "user.color", buf, 100) == 4 && memcmp(buf, "blue", 4) == 0);
        CHECK(getxattr("h", "user.color", NULL, 0) == 4);
        FAILS(getxattr("h", "user.color", buf, 2), ERANGE);
        FAILS(setxattr("h", "user.color", "x", 1, XATTR_CREATE), EEXIST);
        FAILS(setxattr("h", "user.none", "x", 1, XATTR_REPLACE), ENODATA);
        CHECK(fsetxattr(fd, "user.size", "big", 3, 0) == 0 && fgetxattr(fd, "user.size", buf, 9) == 3);
        CHECK(listxattr("h", buf, sizeof buf) >= 21 && removexattr("h", "user.color") == 0);
        FAILS(getxattr("h", "user.color", buf, 100), ENODATA);
    }
    /* Temporary names. */
    char t1[] = "tXXXXXX", t2[] = "tXXXXXX.txt", t3[] = "dXXXXXX";
    int one = mkstemp(t1), two = mkstemps(t2, 4);
    CHECK(one >= 0 && two >= 0 && fstat(one, &st) == 0 && (st.st_mode & 07777) == 0600);
    CHECK(strcmp(t1, "tXXXXXX") != 0 && strcmp(t2 + 7, ".txt") == 0 && access(t2, F_OK) == 0);
    CHECK(mkdtemp(t3) && stat(t3, &st) == 0 && S_ISDIR(st.st_mode));
    char bad[] = "short";
    FAILS(mkstemp(bad), EINVAL);
    /* Through absolute links: into the same tree, and out of it. */
    CHECK(mkdir("t", 0700) == 0 && mkdtemp(strcpy(foreign, "/tmp/weft-links-XXXXXX")));
    snprintf(path, sizeof path, "%s/t", mount);
    CHECK(symlink(path, "t-in") == 0 && symlink(foreign, "t-out") == 0);
    for (int i = 0; i < 2; i++) {
        char file[] = "t-xxx/fXXXXXX.a", dir[] = "t-xxx/dXXXXXX", below[] = "t-xxx/XXXXXX/b", slash[] = "t-xxx/eXXXXXX/";
        char *const templates[] = {file, dir, below, slash};
        for (int t = 0; t < 4; t++) memcpy(templates[t], i ? "t-out" : "t-in/", 5);
        CHECK((one = mkstemps(file, 2)) >= 0 && access(file, F_OK) == 0 && strcmp(file + 13, ".a") == 0 && close(one) == 0);
        CHECK(mkdtemp(dir) == dir && stat(dir, &st) == 0 && S_ISDIR(st.st_mode));
        FAILS(mkstemps(below, 2), ENOENT);
        FAILS(mkstemps(slash, 1), EISDIR);
        CHECK(unlink(file) == 0 && rmdir(dir) == 0);
    }
    CHECK(rmdir(foreign) == 0);
    /* Patterns with braces and a tilde, and functions that look at a path inside the C library. */
    CHECK(mkdir("gl", 0755) == 0 && mkdir("gl/dir", 0755) == 0);
    put("gl/one", ""), put("gl/two", "");
    glob_t found;
    snprintf(path, sizeof path, "{%s/gl/one,%s/gl/t*,%s/gl/none*}", mount, mount, mount);
    CHECK(glob(path, GLOB_BRACE, NULL, &found) == 0 && found.gl_pathc == 2 && strstr(found.gl_pathv[1], "/gl/two"));
    globfree(&found);
    CHECK(glob("gl/*", GLOB_MARK, NULL, &found) == 0 && found.gl_pathc == 3 && same(found.gl_pathv[0], "gl/dir/"));
    globfree(&found);
    CHECK(glob("gl/*", GLOB_ONLYDIR, NULL, &found) == 0 && found.gl_pathc >= 1 && same(found.gl_pathv[0], "gl/dir"));
    globfree(&found);
    const char *home = getenv("HOME");
    char kept[PATH_MAX];
    snprintf(kept, sizeof kept, "%s", home ? home : "/");
    CHECK(setenv("HOME", mount, 1) == 0 && glob("~/gl/o*", GLOB_TILDE, NULL, &found) == 0 && found.gl_pathc == 1);
    globfree(&found);
    CHECK(setenv("HOME", kept, 1) == 0);
    CHECK(ftok("gl/one", 1) != -1 && ftok("gl/one", 1) == ftok("gl/../gl/one", 1) && ftok("gl/one", 1) != ftok("gl/two", 1));
    FAILS(ftok("gl/none", 1), ENOENT);
    CHECK(unsetenv("TMPDIR") == 0);
    char *fresh_name = tempnam("gl", "prefix");
    CHECK(fresh_name && strncmp(fresh_name, "gl/prefi", 8) == 0 && access(fresh_name, F_OK) == -1 && errno == ENOENT);
    free(fresh_name);
    return 0;
}
