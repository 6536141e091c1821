/* Differences that the documents name, and calls that are not drawn. */
#include "fuzz.h"
#include <fnmatch.h>
#include <sys/utsname.h>

bool on_mount;

static bool masked[AREAS];
static const char *const AREA_NAMES[AREAS] = {
    "bad-pointers", "wide-streams", "shared-maps", "fifos", "ofd-locks", "record-locks", "fork-reads", "sendfile",
    "renamed-cwd", "tree-walks", "proc-fd", "ftell-append", "stream-pointers", "at-flags", "freopen-null", "streams"};

/* Epochs with other users have no set-id bits: Weft clears those under other conditions (posix.md, set-id bits). */
bool other_users;

bool drawn(enum area area) {
    /* By design: a mount serves no removed directories, and pipes are names only under `weft run`. */
    return !masked[area] && area != (on_mount ? RENAMED_CWD : FIFOS);
}

bool kernel_is(int major, int minor) {
    struct utsname name;
    int have[2] = {0, 0};
    return uname(&name) == 0 && sscanf(name.release, "%d.%d", &have[0], &have[1]) == 2 &&
           (have[0] > major || (have[0] == major && have[1] >= minor));
}

bool mask(const char *name) {
    for (int i = 0; i < AREAS; i++)
        if (!strcmp(name, AREA_NAMES[i])) return masked[i] = true;
    return false;
}

struct known {
    /* 1 under `weft run`, 2 on a mount, 3 both. */
    int where;
    /* Patterns of the operation's name, and of its text in both worlds. */
    const char *op, *local, *weft;
    /* Document and row. */
    const char *row;
};

static const struct known KNOWN[] = {
    {3, "fallocate", "*", "*= -1 EOPNOTSUPP*", "preload.md, mount.md: `fallocate`"},
    {3, "fallocate", "*= -1 EOPNOTSUPP*", "*", "tmpfs knows less than `fallocate` of Weft"},
    {3, "*", "*922337203685477580*", "*= -1 EFBIG*", "posix.md: largest file"},
    {2, "open*", "*TMPFILE*", "*TMPFILE*= -1 EOPNOTSUPP*", "mount.md: `O_TMPFILE`"},
    {2, "*", "*= -1 ENOENT*", "*= -1 ESTALE*", "mount.md: an open directory that was removed"},
    {2, "*", "*links 0*", "*= -1 ESTALE*", "mount.md: an open directory that was removed"},
    {2, "readdir", "[[]1](dir?) {*links 0*", "[[]1](dir?)", "mount.md: an open directory that was removed"},
    {2, "xattr", "[[]f*", "[[]f*= -1 ESTALE*", "mount.md: an open directory that was removed"},
    {2, "access", "*= 0", "*= -1 ESTALE", "mount.md: an open directory that was removed"},
    {2, "opendir", "*= ok*", "*= -1 ESTALE*", "mount.md: an open directory that was removed"},
    {2, "open*", "*= ok {2???? *", "*= -1 EACCES*", "mount.md: devices"},
    {2, "open*", "*DIRECT*= -1 EINVAL*", "*DIRECT*= -1 EACCES*", "mount.md: devices"},
    {2, "utimes", "*= 0 mtime *", "*= -1 ESTALE*", "mount.md: an open directory that was removed"},
    {3, "walk", "*= -1 *", "*= -1 *", "posix.md: order of entries"},
    {3, "lock", "[[][24]](*) {*} = 0 {[01] *", "[[][24]](*) {*} = 0 {[01] *", "posix.md: several holders"},
    {3, "foreign", "*= ok {[01] *", "*= ok {[01] *", "posix.md: several holders"},
    {2, "lock", "[[]4](*) {2 *", "[[]4](*) {2 *} = 0 {2 *", "mount.md: `F_OFD_GETLK`"},
    {2, "lseek", "*", "*= -1 ESTALE*", "mount.md: an open directory that was removed"},
};

const char *known_difference(const char *op, const char *local, const char *weft) {
    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++) {
        const struct known *k = &KNOWN[i];
        if ((k->where & (on_mount ? 2 : 1)) && !fnmatch(k->op, op, 0) && !fnmatch(k->local, local, 0) &&
            !fnmatch(k->weft, weft, 0))
            return k->row;
    }
    return NULL;
}
