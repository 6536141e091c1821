/* Paths that start above the tree: at descriptors of directories above it, and at a working directory above it. */
#include "check.h"
#include <linux/openat2.h>
static const char *relative; /* the tree's path without its leading slash */

static const char *in(const char *name) {
    static char path[4][PATH_MAX];
    static int turn;
    char *out = path[turn++ % 4];
    snprintf(out, PATH_MAX, "%s/%s", relative, name);
    return out;
}

static const char *text_of(int fd) {
    static char text[100];
    CHECK(fd >= 0);
    ssize_t n = read(fd, text, sizeof text - 1);
    CHECK(n >= 0 && close(fd) == 0);
    text[n] = 0;
    return text;
}

/* Walks from the root one name at a time, never through a link, as rsync does. */
static int walk_to(const char *path) {
    char names[PATH_MAX];
    snprintf(names, sizeof names, "%s", path);
    int at = open("/", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    CHECK(at >= 0);
    for (char *rest = names, *name; (name = strsep(&rest, "/"));) {
        if (!*name) continue;
        int next = openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        CHECK(next >= 0 && close(at) == 0);
        at = next;
    }
    return at;
}

static long openat2(int dir, const char *path, int flags, uint64_t resolve) {
    struct open_how how = {.flags = flags, .mode = flags & O_CREAT ? 0600 : 0, .resolve = resolve};
    return syscall(SYS_openat2, dir, path, &how, sizeof how);
}

MAIN
    relative = argv[1] + 1;
    int root = open("/", O_RDONLY | O_DIRECTORY), named = open("/", O_PATH | O_DIRECTORY);
    CHECK(root >= 0 && named >= 0);
    struct stat st, st2;
    struct statx stx;
    char buf[PATH_MAX];
    put("x", "x's text");
    CHECK(stat("x", &st) == 0);

    /* Every call that takes a directory. */
    int dirs[] = {root, named};
    for (int i = 0; i < 2; i++) {
        int dir = dirs[i];
        CHECK(same(text_of(openat(dir, in("x"), O_RDONLY)), "x's text"));
        CHECK(same(text_of(syscall(SYS_openat, dir, in("x"), O_RDONLY)), "x's text"));
        CHECK(fstatat(dir, in("x"), &st2, 0) == 0 && st2.st_ino == st.st_ino && st2.st_dev == st.st_dev);
        CHECK(fstatat(dir, relative, &st2, 0) == 0 && S_ISDIR(st2.st_mode) && st2.st_dev == st.st_dev);
        CHECK(statx(dir, in("x"), 0, STATX_BASIC_STATS, &stx) == 0 && stx.stx_ino == st.st_ino);
        CHECK(mkdirat(dir, in("d"), 0755) == 0 && stat("d", &st2) == 0 && S_ISDIR(st2.st_mode));
        FAILS(mkdirat(dir, relative, 0755), EEXIST);
        CHECK(symlinkat("x", dir, in("s")) == 0 && readlinkat(dir, in("s"), buf, sizeof buf) == 1 && buf[0] == 'x');
        CHECK(linkat(dir, in("x"), dir, in("h"), 0) == 0 && stat("h", &st2) == 0 && st2.st_ino == st.st_ino);
        CHECK(renameat(dir, in("h"), dir, in("i")) == 0);
        FAILS(renameat2(dir, in("x"), dir, in("i"), RENAME_NOREPLACE), EEXIST);
        CHECK(renameat2(AT_FDCWD, "i", dir, in("h"), RENAME_NOREPLACE) == 0);
        CHECK(faccessat(dir, in("x"), R_OK, 0) == 0 && syscall(SYS_faccessat2, dir, in("x"), R_OK, 0) == 0);
        CHECK(fchmodat(dir, in("h"), 0604, 0) == 0 && stat("x", &st2) == 0 && (st2.st_mode & 0777) == 0604);
        CHECK(fchownat(dir, in("s"), getuid(), getgid(), AT_SYMLINK_NOFOLLOW) == 0);
        struct timespec times[2] = {{.tv_sec = 5}, {.tv_sec = 7}};
        CHECK(utimensat(dir, in("x"), times, 0) == 0 && stat("x", &st2) == 0 && st2.st_mtime == 7);
        CHECK(mknodat(dir, in("n"), S_IFREG | 0600, 0) == 0 && unlinkat(dir, in("n"), 0) == 0);
        CHECK(mkfifoat(dir, in("p"), 0600) == 0 && unlinkat(dir, in("p"), 0) == 0);
        CHECK(unlinkat(dir, in("h"), 0) == 0 && unlinkat(dir, in("s"), 0) == 0);
        CHECK(unlinkat(dir, in("d"), AT_REMOVEDIR) == 0);
        FAILS(fstatat(dir, in("d"), &st2, 0), ENOENT);
        FAILS(openat(dir, in("x/y"), O_RDONLY), ENOTDIR);
        FAILS(openat(dir, in("x"), O_RDONLY | O_DIRECTORY), ENOTDIR);
        /* Up and down again. */
        snprintf(buf, sizeof buf, "usr/../%s/../%s/x", relative, strrchr(relative, '/') ? strrchr(relative, '/') + 1 : relative);
        CHECK(same(text_of(openat(dir, buf, O_RDONLY)), "x's text"));
        snprintf(buf, sizeof buf, "./%s", in("x"));
        CHECK(same(text_of(openat(dir, buf, O_RDONLY)), "x's text"));
    }
    struct file_handle *handle = calloc(1, sizeof *handle + 128);
    handle->handle_bytes = 128;
    int mount;
    if (is_served()) FAILS(name_to_handle_at(root, in("x"), handle, &mount, 0), EOPNOTSUPP);

    /* A walk that follows no links, and calls below its end. */
    int tree = walk_to(argv[1]);
    CHECK(same(text_of(openat(tree, "x", O_RDONLY | O_NOFOLLOW)), "x's text"));
    int made = openat(tree, "made", O_CREAT | O_EXCL | O_WRONLY, 0600);
    CHECK(made >= 0 && write(made, "m", 1) == 1 && close(made) == 0 && same(get("made"), "m"));
    CHECK(symlinkat("made", tree, "link") == 0);
    FAILS(openat(tree, "link", O_RDONLY | O_NOFOLLOW), ELOOP);
    CHECK(renameat(tree, "made", tree, "made2") == 0 && unlinkat(tree, "link", 0) == 0);
    CHECK(unlinkat(tree, "made2", 0) == 0 && fstatat(tree, "x", &st2, AT_SYMLINK_NOFOLLOW) == 0);
    CHECK(fstatat(tree, "", &st2, AT_EMPTY_PATH) == 0 && S_ISDIR(st2.st_mode));

    /* openat2 and its limits. */
    CHECK(mkdir("d", 0755) == 0 && symlink("../x", "d/up") == 0 && symlink("/etc/passwd", "d/out") == 0);
    CHECK(symlink("d", "dl") == 0);
    put("d/y", "y's text");
    tree = open(argv[1], O_RDONLY | O_DIRECTORY);
    int d = open("d", O_RDONLY | O_DIRECTORY);
    CHECK(same(text_of(openat2(root, in("x"), O_RDONLY, 0)), "x's text"));
    CHECK(same(text_of(openat2(root, in("x"), O_RDONLY, RESOLVE_BENEATH)), "x's text"));
    CHECK(same(text_of(openat2(tree, "d/up", O_RDONLY, RESOLVE_BENEATH)), "x's text"));
    CHECK(same(text_of(openat2(tree, "dl/y", O_RDONLY, RESOLVE_BENEATH)), "y's text"));
    CHECK(same(text_of(openat2(tree, "d/../dl/./y", O_RDONLY, RESOLVE_BENEATH)), "y's text"));
    CHECK(same(text_of(openat2(d, "../x", O_RDONLY, RESOLVE_NO_SYMLINKS)), "x's text"));
    FAILS(openat2(tree, "dl/y", O_RDONLY, RESOLVE_NO_SYMLINKS), ELOOP);
    FAILS(openat2(tree, "d/out", O_RDONLY, RESOLVE_BENEATH), EXDEV);
    FAILS(openat2(d, "../x", O_RDONLY, RESOLVE_BENEATH), EXDEV);
    FAILS(openat2(d, "up", O_RDONLY, RESOLVE_BENEATH), EXDEV);
    FAILS(openat2(tree, argv[1], O_RDONLY, RESOLVE_BENEATH), EXDEV);
    FAILS(openat2(tree, "x/y", O_RDONLY, RESOLVE_BENEATH), ENOTDIR);
    FAILS(openat2(tree, "no/y", O_RDONLY, RESOLVE_BENEATH), ENOENT);
    FAILS(openat2(tree, "x", O_RDONLY, 1 << 20), EINVAL);
    CHECK(same(text_of(openat2(d, "/../../y", O_RDONLY, RESOLVE_IN_ROOT)), "y's text"));
    FAILS(openat2(d, "out", O_RDONLY, RESOLVE_IN_ROOT), ENOENT);
    CHECK(close(openat2(tree, "dl/new", O_CREAT | O_EXCL | O_RDWR, RESOLVE_BENEATH)) == 0);
    CHECK(stat("d/new", &st2) == 0 && (st2.st_mode & 0777) == 0600);
    int beneath = openat2(tree, "d", O_RDONLY | O_DIRECTORY, RESOLVE_BENEATH);
    CHECK(beneath >= 0 && same(text_of(openat(beneath, "y", O_RDONLY)), "y's text"));
    CHECK(close(openat2(tree, ".", O_RDONLY | O_DIRECTORY, RESOLVE_BENEATH)) == 0);

    /* After a link, `..` is the parent of the link's target. */
    CHECK(mkdir("p", 0755) == 0 && mkdir("p/q", 0755) == 0 && symlink("p/q", "deep") == 0);
    put("p/x", "p's x");
    CHECK(same(get("deep/../x"), "p's x"));
    snprintf(buf, sizeof buf, "%s/deep/../../x", argv[1]);
    CHECK(same(get(buf), "x's text"));
    snprintf(buf, sizeof buf, "%s/deep/../../../%s/x", argv[1], strrchr(argv[1], '/') + 1);
    CHECK(same(get(buf), "x's text"));
    int deep = open("deep", O_RDONLY | O_DIRECTORY);
    CHECK(same(text_of(openat(deep, "../x", O_RDONLY)), "p's x"));
    CHECK(same(text_of(openat(deep, "../../x", O_RDONLY)), "x's text"));
    /* Also after a foreign link: the parent of its target is not the parent of the link. */
    char foreign[] = "/tmp/weft-above-XXXXXX", link[PATH_MAX], path[2 * PATH_MAX];
    CHECK(mkdtemp(foreign) != NULL);
    snprintf(link, sizeof link, "%s/l", foreign);
    CHECK(symlink("/usr/bin", link) == 0);
    snprintf(path, sizeof path, "%s/../../%s/x", link, relative);
    CHECK(same(get(path), "x's text"));
    snprintf(path, sizeof path, "%s/../../../%s/x", foreign, relative);
    CHECK(same(get(path), "x's text"));
    snprintf(path, sizeof path, "%s/../../..%s/missing/../x", foreign, argv[1]);
    FAILS(open(path, O_RDONLY), ENOENT);
    snprintf(path, sizeof path, "/usr/../no-such-directory/..%s/x", argv[1]);
    FAILS(open(path, O_RDONLY), ENOENT);
    CHECK(unlink(link) == 0 && symlink("/", link) == 0);
    snprintf(path, sizeof path, "%s%s/x", link, argv[1]);
    CHECK(same(get(path), "x's text"));
    CHECK(unlink(link) == 0 && rmdir(foreign) == 0);

    /* At a working directory above. */
    CHECK(chdir("/") == 0 && same(get(in("x")), "x's text"));
    put(in("fresh"), "made from above");
    CHECK(same(get(in("fresh")), "made from above") && access(in("fresh"), R_OK) == 0);
    CHECK(rename(in("fresh"), in("old")) == 0 && unlink(in("old")) == 0 && mkdir(in("e"), 0700) == 0);
    DIR *listing = opendir(in("e"));
    CHECK(listing != NULL && closedir(listing) == 0 && rmdir(in("e")) == 0);
    CHECK(chdir(relative) == 0 && getcwd(buf, sizeof buf) && same(buf, argv[1]) && same(get("x"), "x's text"));
    CHECK(chdir("/") == 0 && fchdir(tree) == 0 && same(get("x"), "x's text"));
    pid_t pid = fork();
    if (pid == 0) {
        CHECK(chdir("/") == 0);
        execl("/bin/cat", "cat", in("x"), (char *)NULL);
        _exit(99);
    }
    CHECK(child_status(pid) == 0);
    return 0;
}
