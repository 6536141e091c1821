/* Streams over directories, and the functions that walk inside the C library. */
#include "check.h"
static int count, files, deepest;
static int visit(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)path, (void)st;
    count++;
    files += kind == FTW_F;
    deepest = at->level > deepest ? at->level : deepest;
    return 0;
}
static int erase(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)st, (void)kind, (void)at;
    return remove(path);
}
static int plain(const char *path, const struct stat *st, int kind) {
    (void)path, (void)st, (void)kind;
    count++;
    return 0;
}
static int wanted(const struct dirent *entry) { return entry->d_name[0] == 'e'; }
MAIN
    CHECK(mkdir("d", 0755) == 0);
    char name[300];
    for (int i = 0; i < 250; i++) {
        snprintf(name, sizeof name, "d/e%03d", i);
        put(name, "x");
    }
    CHECK(mkdir("d/sub", 0755) == 0);
    put("d/sub/deep", "y");
    DIR *dir = opendir("d");
    CHECK(dir && dirfd(dir) >= 0 && (fcntl(dirfd(dir), F_GETFD) & FD_CLOEXEC));
    struct dirent *entry;
    int seen = 0, dots = 0, kinds = 0;
    long place = -1;
    char after[300] = "";
    while (errno = 0, (entry = readdir(dir))) {
        seen++;
        dots += entry->d_name[0] == '.';
        kinds += entry->d_type == DT_REG || entry->d_type == DT_UNKNOWN;
        struct stat st;
        CHECK(fstatat(dirfd(dir), entry->d_name, &st, 0) == 0);
        if (entry->d_name[0] != '.') CHECK(st.st_ino == entry->d_ino);
        if (seen == 100) place = telldir(dir);
        if (seen == 101) strcpy(after, entry->d_name);
    }
    CHECK(errno == 0 && seen == 253 && dots == 2 && kinds == 250);
    seekdir(dir, place);
    entry = readdir(dir);
    CHECK(entry && same(entry->d_name, after));
    rewinddir(dir);
    for (seen = 0; readdir(dir); seen++) {}
    CHECK(seen == 253);
    /* Removing while reading visits everything once. */
    rewinddir(dir);
    for (seen = 0; (entry = readdir(dir));)
        if (entry->d_name[0] == 'e' && entry->d_name[3] == '7') {
            CHECK(unlinkat(dirfd(dir), entry->d_name, 0) == 0);
            seen++;
        }
    CHECK(seen == 25 && closedir(dir) == 0);
    int fd = open("d", O_RDONLY | O_DIRECTORY);
    char block[4096];
    ssize_t n;
    for (seen = 0; (n = getdents64(fd, block, sizeof block)) > 0;)
        for (ssize_t at = 0; at < n; seen++) at += ((struct dirent64 *)(block + at))->d_reclen;
    CHECK(n == 0 && seen == 228);
    /* Seeking to an entry's offset returns the next entry; children share the position. */
    CHECK(lseek(fd, 0, SEEK_SET) == 0 && getdents64(fd, block, sizeof block) > 0);
    struct dirent64 *first = (struct dirent64 *)block, *second = (struct dirent64 *)(block + first->d_reclen);
    char again[4096];
    CHECK(lseek(fd, first->d_off, SEEK_SET) == first->d_off && getdents64(fd, again, sizeof again) > 0);
    CHECK(same(((struct dirent64 *)again)->d_name, second->d_name));
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    FAILS(getdents64(fd, block, 1), EINVAL);
    dir = fdopendir(fd);
    CHECK(dir && dirfd(dir) == fd);
    for (seen = 0; readdir(dir); seen++) {}
    CHECK(seen == 228 && closedir(dir) == 0);
    CHECK(opendir("missing") == NULL && errno == ENOENT && opendir("d/e000") == NULL && errno == ENOTDIR);

    struct dirent **list;
    CHECK(scandir("d", &list, wanted, alphasort) == 225 && same(list[0]->d_name, "e000"));
    CHECK(same(list[224]->d_name, "e249"));
    CHECK(nftw("d", visit, 10, FTW_PHYS) == 0 && count == 228 && files == 226 && deepest == 2);
    count = 0;
    CHECK(ftw("d", plain, 10) == 0 && count == 228);
    glob_t found;
    CHECK(glob("d/e00*", 0, NULL, &found) == 0 && found.gl_pathc == 9 && same(found.gl_pathv[0], "d/e000"));
    globfree(&found);
    snprintf(name, sizeof name, "%s/*/sub/d*p", argv[1]);
    CHECK(glob(name, 0, NULL, &found) == 0 && found.gl_pathc == 1);
    globfree(&found);
    CHECK(glob("d/none*", 0, NULL, &found) == GLOB_NOMATCH);
    CHECK(nftw("d", erase, 10, FTW_PHYS | FTW_DEPTH) == 0 && access("d", F_OK) == -1 && errno == ENOENT);
    return 0;
}
