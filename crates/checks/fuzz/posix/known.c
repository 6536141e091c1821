/* Differences that the documents name, and calls that are not drawn. */
#include "fuzz.h"
#include <fnmatch.h>

bool on_mount;

static bool masked[AREAS];
static const char *const AREA_NAMES[AREAS] = {
    "bad-pointers", "wide-streams", "shared-maps", "fifos", "ofd-locks", "record-locks", "fork-reads", "sendfile",
    "renamed-cwd", "tree-walks", "proc-fd", "ftell-append", "stream-pointers", "at-flags", "freopen-null", "streams"};

/* TEMPORARY: areas that are being mended. Remove an area with the change that mends it. */
static const enum area TEMPORARY_RUN[] = {OFD_LOCKS, RECORD_LOCKS, RENAMED_CWD,
                                          TREE_WALKS, PROC_FD, SHARED_MAPS};

/* Epochs with other users have no set-id bits: Weft clears those under other conditions (posix.md, set-id bits). */
bool other_users;

bool drawn(enum area area) {
    static bool ready, temporary[AREAS];
    if (!ready) {
        ready = true;
        if (!on_mount)
            for (size_t i = 0; i < sizeof TEMPORARY_RUN / sizeof *TEMPORARY_RUN; i++) temporary[TEMPORARY_RUN[i]] = true;
        if (getenv("WEFT_FUZZ_POSIX_ALL")) memset(temporary, 0, sizeof temporary);
        /* By design: removed directories on a mount; under `weft run` pipes are names only, and freopen returns another
         * stream. */
        if (on_mount) temporary[RENAMED_CWD] = true;
        if (!on_mount) temporary[FIFOS] = temporary[STREAM_POINTERS] = true;
    }
    return !masked[area] && !temporary[area];
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
    {3, "*", "*9223372036854775807*", "*= -1 EFBIG*", "posix.md: largest file"},
    {2, "open*", "*TMPFILE*", "*TMPFILE*= -1 EOPNOTSUPP*", "mount.md: `O_TMPFILE`"},
    {2, "*", "*= -1 ENOENT*", "*= -1 ESTALE*", "mount.md: an open directory that was removed"},
    {2, "*", "*links 0*", "*= -1 ESTALE*", "mount.md: an open directory that was removed"},
    {2, "readdir", "[[]1](dir?) {*links 0*", "[[]1](dir?)", "mount.md: an open directory that was removed"},
    {2, "open*", "*= ok {2???? *", "*= -1 EACCES*", "mount.md: devices"},
    {2, "lock", "[[]4](*) {2 *", "[[]4](*) {2 *} = 0 {2 *", "mount.md: `F_OFD_GETLK`"},
    {2, "lseek", "*", "*= -1 ESTALE*", "mount.md: an open directory that was removed"},
    /* TEMPORARY: a link whose target ends in a slash. */
    {1, "open*", "*CREAT*= -1 EISDIR*", "*= -1 ENOTDIR*", "errors of names that cannot be created"},
    {1, "copy", "*", "[[]sendfile]*= -1 EINVAL*", "preload.md: `sendfile`"},
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
