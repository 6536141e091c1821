/* ftw, nftw and fts over a tree with links to directories above. Each walk's report is compared. */
#include "check.h"
#include <fts.h>
static char said[8192];
static int stop_at, action, action_kind = -1;
static const char *action_name = "";

static void say(const char *format, ...) {
    va_list rest;
    va_start(rest, format);
    size_t used = strlen(said);
    vsnprintf(said + used, sizeof said - used, format, rest);
    va_end(rest);
}
static int compare_words(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }
/* The order of entries is not defined. */
static const char *sorted(void) {
    static char out[8192];
    char *words[400], *rest = NULL;
    int count = 0;
    for (char *word = strtok_r(said, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) words[count++] = word;
    qsort(words, count, sizeof *words, compare_words);
    out[0] = 0;
    for (int i = 0; i < count; i++) strcat(strcat(out, i ? " " : ""), words[i]);
    strcpy(said, out);
    return said;
}
static int calls;
static int visit(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)st;
    say("%s:%d:%d ", path, kind, at->level);
    CHECK(at->base == 0 || path[at->base - 1] == '/');
    if (kind == action_kind && strcmp(path + at->base, action_name) == 0) return action;
    return stop_at && ++calls == stop_at ? 7 : 0;
}
static int enters(const char *path, const struct stat *st, int kind, struct FTW *at) {
    struct stat here;
    (void)kind;
    if (kind != FTW_DP) CHECK(lstat(path + at->base, &here) == 0 && (here.st_ino == st->st_ino || S_ISLNK(here.st_mode)));
    say("%s ", path + at->base);
    return 0;
}
static int plain(const char *path, const struct stat *st, int kind) {
    (void)st;
    say("%s:%d ", path, kind);
    return 0;
}
static const char *walk(const char *path, int flags, int want) {
    said[0] = 0;
    calls = 0;
    int result = nftw(path, visit, 4, flags);
    if (result != want) dprintf(2, "nftw gave %d, not %d: %s\n", result, want, said);
    CHECK(result == want);
    return sorted();
}
static int by_name(const FTSENT **a, const FTSENT **b) { return strcmp((*a)->fts_name, (*b)->fts_name); }
static const char *tree(char **paths, int options, int instruction, const char *name) {
    said[0] = 0;
    FTS *walk = fts_open(paths, options, by_name);
    CHECK(walk != NULL);
    FTSENT *entry;
    while (errno = 0, (entry = fts_read(walk))) {
        say("%s:%d:%d ", entry->fts_path, entry->fts_info, entry->fts_level);
        CHECK(entry->fts_pathlen == strlen(entry->fts_path) && entry->fts_namelen == strlen(entry->fts_name));
        struct stat st;
        if (entry->fts_info == FTS_F) CHECK(stat(entry->fts_accpath, &st) == 0 && st.st_ino == entry->fts_statp->st_ino);
        if (entry->fts_info == FTS_DC) CHECK(entry->fts_cycle && entry->fts_cycle->fts_ino == entry->fts_ino);
        if (instruction && entry->fts_info != FTS_DP && strcmp(entry->fts_name, name) == 0) {
            CHECK(fts_set(walk, entry, instruction) == 0);
            instruction = 0;
        }
    }
    CHECK(errno == 0 && fts_close(walk) == 0);
    return said;
}
MAIN
    CHECK(mkdir("t", 0755) == 0 && mkdir("t/a", 0755) == 0 && mkdir("t/b", 0755) == 0 && mkdir("t/b/c", 0755) == 0);
    put("t/a/file", "x");
    put("t/b/c/deep", "y");
    CHECK(symlink("..", "t/a/up") == 0 && symlink("../a", "t/b/other") == 0 && symlink("..", "t/b/up") == 0);
    CHECK(symlink("missing", "t/dangling") == 0 && symlink("a/file", "t/tofile") == 0);

    /* Links followed: each directory once. Which path leads to t/a first depends on the order of names. */
    said[0] = 0;
    CHECK(nftw("t", visit, 4, 0) == 0);
    const char *seen = sorted();
    CHECK(same(seen, strstr(seen, "other") ? "t/b/c/deep:0:3 t/b/c:1:2 t/b/other/file:0:3 t/b/other:1:2 t/b:1:1 t/dangling:6:1 t/tofile:0:1 t:1:0"
                                           : "t/a/file:0:2 t/a:1:1 t/b/c/deep:0:3 t/b/c:1:2 t/b:1:1 t/dangling:6:1 t/tofile:0:1 t:1:0"));
    const char *physical = "t/a/file:0:2 t/a/up:4:2 t/a:%d:1 t/b/c/deep:0:3 t/b/c:%d:2 t/b/other:4:2 t/b/up:4:2 t/b:%d:1 t/dangling:4:1 "
                           "t/tofile:4:1 t:%d:0";
    char want[2000];
    snprintf(want, sizeof want, physical, 1, 1, 1, 1);
    CHECK(same(walk("t", FTW_PHYS, 0), want) && same(walk("t//", FTW_PHYS | FTW_MOUNT, 0), want));
    snprintf(want, sizeof want, physical, 5, 5, 5, 5);
    CHECK(same(walk("t", FTW_PHYS | FTW_DEPTH, 0), want));
    stop_at = 3;
    walk("t", FTW_PHYS, 7);
    stop_at = 0;
    action = FTW_SKIP_SUBTREE, action_kind = FTW_D, action_name = "b";
    CHECK(same(walk("t", FTW_PHYS | FTW_ACTIONRETVAL, 0), "t/a/file:0:2 t/a/up:4:2 t/a:1:1 t/b:1:1 t/dangling:4:1 t/tofile:4:1 t:1:0"));
    action = FTW_SKIP_SIBLINGS, action_kind = FTW_F, action_name = "deep";
    snprintf(want, sizeof want, physical, 1, 1, 1, 1);
    CHECK(same(walk("t", FTW_PHYS | FTW_ACTIONRETVAL, 0), want));
    action = FTW_STOP;
    walk("t", FTW_PHYS | FTW_ACTIONRETVAL, FTW_STOP);
    action_kind = -1;
    CHECK(same(walk("t/dangling", 0, 0), "t/dangling:6:0") && same(walk("t/tofile", FTW_PHYS, 0), "t/tofile:4:0"));
    FAILS(nftw("t/none", visit, 4, 0), ENOENT);
    FAILS(nftw("t", visit, 4, 64), EINVAL);
    char before[PATH_MAX], after[PATH_MAX];
    CHECK(getcwd(before, sizeof before));
    said[0] = 0;
    CHECK(nftw("t/b", enters, 4, FTW_CHDIR | FTW_PHYS) == 0 && getcwd(after, sizeof after) && same(after, before));
    CHECK(same(sorted(), "b c deep other up"));
    said[0] = 0;
    CHECK(nftw("t/b", enters, 4, FTW_CHDIR | FTW_DEPTH) == 0 && getcwd(after, sizeof after) && same(after, before));
    said[0] = 0;
    CHECK(ftw("t/b/c", plain, 4) == 0 && same(sorted(), "t/b/c/deep:0 t/b/c:1"));
    said[0] = 0;
    CHECK(ftw("t/dangling", plain, 4) == 0 && same(sorted(), "t/dangling:3"));

    char *paths[] = {"t", NULL}, *two[] = {"t/b/c", "t/a", NULL}, *slash[] = {"t/a/", NULL}, *none[] = {"t/none", NULL}, *link[] = {"t/b/other", NULL};
    const char *down = "t:1:0 t/a:1:1 t/a/file:8:2 t/a/up:12:2 t/a:6:1 t/b:1:1 t/b/c:1:2 t/b/c/deep:8:3 t/b/c:6:2 t/b/other:12:2 "
                       "t/b/up:12:2 t/b:6:1 t/dangling:12:1 t/tofile:12:1 t:6:0 ";
    CHECK(same(tree(paths, FTS_PHYSICAL, 0, ""), down) && getcwd(after, sizeof after) && same(after, before));
    CHECK(same(tree(paths, FTS_PHYSICAL | FTS_NOCHDIR, 0, ""), down) && same(tree(paths, FTS_PHYSICAL | FTS_XDEV, 0, ""), down));
    CHECK(same(tree(paths, FTS_LOGICAL, 0, ""),
               "t:1:0 t/a:1:1 t/a/file:8:2 t/a/up:2:2 t/a:6:1 t/b:1:1 t/b/c:1:2 t/b/c/deep:8:3 t/b/c:6:2 t/b/other:1:2 t/b/other/file:8:3 "
               "t/b/other/up:2:3 t/b/other:6:2 t/b/up:2:2 t/b:6:1 t/dangling:13:1 t/tofile:8:1 t:6:0 "));
    CHECK(same(tree(two, FTS_PHYSICAL, 0, ""), "t/a:1:0 t/a/file:8:1 t/a/up:12:1 t/a:6:0 t/b/c:1:0 t/b/c/deep:8:1 t/b/c:6:0 "));
    CHECK(same(tree(slash, FTS_PHYSICAL | FTS_SEEDOT, 0, ""), "t/a/:1:0 t/a/.:5:1 t/a/..:5:1 t/a/file:8:1 t/a/up:12:1 t/a/:6:0 "));
    CHECK(same(tree(none, FTS_PHYSICAL, 0, ""), "t/none:10:0 "));
    CHECK(same(tree(link, FTS_PHYSICAL, 0, ""), "t/b/other:12:0 "));
    CHECK(same(tree(link, FTS_PHYSICAL | FTS_COMFOLLOW, 0, ""), "t/b/other:1:0 t/b/other/file:8:1 t/b/other/up:12:1 t/b/other:6:0 "));
    CHECK(same(tree(two, FTS_PHYSICAL, FTS_SKIP, "c"), "t/a:1:0 t/a/file:8:1 t/a/up:12:1 t/a:6:0 t/b/c:1:0 t/b/c:6:0 "));
    CHECK(same(tree(two, FTS_PHYSICAL, FTS_AGAIN, "file"), "t/a:1:0 t/a/file:8:1 t/a/file:8:1 t/a/up:12:1 t/a:6:0 t/b/c:1:0 t/b/c/deep:8:1 t/b/c:6:0 "));
    CHECK(same(tree(link, FTS_PHYSICAL, FTS_FOLLOW, "other"), "t/b/other:12:0 t/b/other:1:0 t/b/other/file:8:1 t/b/other/up:12:1 t/b/other:6:0 "));
    CHECK(getcwd(after, sizeof after) && same(after, before));
    errno = 0;
    CHECK(fts_open(paths, 0x10000, NULL) == NULL && errno == EINVAL);

    /* Children before the walk descends, as names only and in full. */
    FTS *walk = fts_open(paths, FTS_PHYSICAL, by_name);
    FTSENT *entry = fts_children(walk, 0);
    CHECK(entry && same(entry->fts_name, "t") && entry->fts_link == NULL);
    CHECK((entry = fts_read(walk)) && entry->fts_info == FTS_D);
    CHECK((entry = fts_children(walk, FTS_NAMEONLY)) && same(entry->fts_name, "a") && same(entry->fts_link->fts_name, "b"));
    CHECK((entry = fts_children(walk, 0)) && entry->fts_info == FTS_D && same(entry->fts_name, "a"));
    CHECK((entry = fts_read(walk)) && same(entry->fts_path, "t/a") && (entry = fts_read(walk)) && same(entry->fts_path, "t/a/file"));
    CHECK(fts_children(walk, 0) == NULL && errno == 0 && fts_close(walk) == 0);
    CHECK(getcwd(after, sizeof after) && same(after, before));
    return 0;
}
