/* A working directory, and an open directory, is an inode: renames and removals do not lead elsewhere. */
#include "check.h"
static char mount[PATH_MAX], path[PATH_MAX * 2], now[PATH_MAX * 3];

static const char *at(const char *name) {
    snprintf(path, sizeof path, "%s/%s", mount, name);
    return path;
}
/* A program and a forked child see the present path of the working directory. */
static int is_here(const char *name) {
    CHECK(getcwd(now, sizeof now));
    if (!same(now, at(name))) return 0;
    pid_t pid = fork();
    if (pid == 0) {
        int right = getcwd(now, sizeof now) && same(now, at(name)) && access("mine", F_OK) == 0;
        if (!right) _exit(1);
        execl("/bin/sh", "sh", "-c", "test -e mine && test \"$(/bin/pwd)\" = \"$0\"", at(name), NULL);
        _exit(1);
    }
    if (child_status(pid) != 0) return 0;
    snprintf(now, sizeof now, "test -e mine && test \"$(/bin/pwd)\" = '%s'", at(name));
    return system(now) == 0;
}
MAIN
    struct stat st, st2;
    CHECK(getcwd(mount, sizeof mount));
    CHECK(mkdir("old", 0755) == 0 && mkdir("old/deep", 0755) == 0 && mkdir("other", 0755) == 0);
    put("old/deep/mine", "1");
    put("old/above", "2");
    int deep = open("old/deep", O_RDONLY | O_DIRECTORY), old = open("old", O_PATH);
    CHECK(deep >= 0 && old >= 0 && chdir("old/deep") == 0 && is_here("old/deep"));

    /* The directory above is renamed, and another takes its name. */
    CHECK(rename(at("old"), "../../new") == 0 && mkdir(at("old"), 0755) == 0 && mkdir(at("old/deep"), 0755) == 0);
    CHECK(is_here("new/deep"));
    put("after", "3");
    put("../beside", "4");
    CHECK(access(at("new/deep/after"), F_OK) == 0 && access(at("new/beside"), F_OK) == 0);
    FAILS(access(at("old/deep/after"), F_OK), ENOENT);
    FAILS(access(at("old/beside"), F_OK), ENOENT);
    CHECK(same(get("../above"), "2") && same(get("../../new/deep/mine"), "1"));
    CHECK(stat(".", &st) == 0 && fstat(deep, &st2) == 0 && st.st_ino == st2.st_ino);
    CHECK(stat("..", &st) == 0 && fstat(old, &st2) == 0 && st.st_ino == st2.st_ino);
    char *real = realpath("../beside", NULL);
    CHECK(real && same(real, at("new/beside")));
    free(real);
    real = realpath(".", NULL);
    CHECK(real && same(real, at("new/deep")));
    free(real);
    real = get_current_dir_name();
    CHECK(real && same(real, at("new/deep")));
    free(real);
    errno = 0;
    CHECK(getcwd(now, 3) == NULL && errno == ERANGE && getcwd(now, 0) == NULL && errno == EINVAL);

    /* The same from open directories, and back to them. */
    int fd = openat(deep, "../beside", O_RDONLY);
    CHECK(fd >= 0 && close(fd) == 0 && mkdirat(old, "made", 0700) == 0 && access(at("new/made"), F_OK) == 0);
    CHECK(fchdir(old) == 0 && getcwd(now, sizeof now) && same(now, at("new")) && fchdir(deep) == 0 && is_here("new/deep"));

    /* Moved to another place, by another process; `..` is the new place above. */
    snprintf(now, sizeof now, "mv '%s/new/deep' '%s/other/moved'", mount, mount);
    CHECK(system(now) == 0 && is_here("other/moved"));
    put("../up", "5");
    CHECK(access(at("other/up"), F_OK) == 0 && rename("after", "../later") == 0 && access(at("other/later"), F_OK) == 0);
    FAILS(access("../beside", F_OK), ENOENT);
    CHECK(chdir("..") == 0 && getcwd(now, sizeof now) && same(now, at("other")));

    /* A link in the place of the renamed directory does not become part of the path. */
    CHECK(chdir("moved") == 0 && rename("../moved", "../renamed") == 0 && symlink("renamed", at("other/moved")) == 0);
    CHECK(is_here("other/renamed") && unlink(at("other/moved")) == 0);

    /* A spawned program, with actions. */
    posix_spawn_file_actions_t actions;
    CHECK(posix_spawn_file_actions_init(&actions) == 0 && posix_spawn_file_actions_addchdir_np(&actions, "../renamed") == 0);
    char *argv2[] = {"sh", "-c", "echo spawned > by", NULL};
    pid_t pid;
    CHECK(posix_spawn(&pid, "/bin/sh", &actions, NULL, argv2, environ) == 0 && child_status(pid) == 0);
    CHECK(same(get(at("other/renamed/by")), "spawned\n"));
    posix_spawn_file_actions_destroy(&actions);
    CHECK(posix_spawn_file_actions_init(&actions) == 0 && posix_spawn_file_actions_addfchdir_np(&actions, old) == 0);
    CHECK(posix_spawn(&pid, "/bin/sh", &actions, NULL, argv2, environ) == 0 && child_status(pid) == 0);
    CHECK(same(get(at("new/by")), "spawned\n"));
    posix_spawn_file_actions_destroy(&actions);

    /* A removed working directory has no path and takes no names, but is still a directory. */
    CHECK(mkdir(at("gone"), 0755) == 0 && chdir(at("gone")) == 0 && rmdir(at("gone")) == 0);
    errno = 0;
    CHECK(getcwd(now, sizeof now) == NULL && errno == ENOENT);
    FAILS(open("f", O_CREAT | O_WRONLY, 0644), ENOENT);
    FAILS(mkdir("d", 0755), ENOENT);
    FAILS(access("f", F_OK), ENOENT);
    CHECK(stat(".", &st) == 0 && S_ISDIR(st.st_mode) && st.st_nlink == 0);
    DIR *dir = opendir(".");
    int seen = 0;
    if (dir) while (readdir(dir)) seen++;
    CHECK(dir && seen <= 2 && closedir(dir) == 0);
    CHECK(mkdir(at("gone"), 0755) == 0);
    FAILS(open("f", O_CREAT | O_WRONLY, 0644), ENOENT);
    CHECK(chdir("..") == 0 && getcwd(now, sizeof now) && same(now, mount));
    return 0;
}
