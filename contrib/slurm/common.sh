# shellcheck shell=bash
# Functions of Weft's prolog and epilog for Slurm, which source this file. Both run as root.
#
# Directories of a job on each node:
#
#   /run/weft-jobs/JOB/             root, 0755: exists while the job has a cluster
#     cluster.toml                  root, 0644: `weft` finds it by SLURM_JOB_ID
#     failed                        why the cluster was not started
#   SCRATCH/weft-job-JOB/           root, 0755
#     owner                         root: user, group and job
#     data/                         user, 0700: everything that the user can change
#       cluster.key                 user, 0600
#       run/                        socket and log of the server
#       metadata/ target/
#
# Root never changes anything below data/ once it belongs to the user. Servers, signals and the removal of files run as
# the user, so a link or a foreign process there gives the user nothing that the user did not have. Files there may also
# block forever (a FIFO, a FUSE mount), so root sets a time limit for programs that open them.

set -u
umask 022
# slurmd sets no search path.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
LC_ALL=C
export PATH LC_ALL

CONFIG=/etc/weft/slurm.conf
# The same path is in crates/fs/config/src/scheduled.rs.
JOBS=/run/weft-jobs
# Seconds that the servers of a job may take to end after SIGKILL, and that a lock may take.
KILL_TIMEOUT=20
LOCK_TIMEOUT=60
# Bytes of a program's output that go into messages.
OUTPUT_BYTES=4096
# Words before a function of this file and its arguments, for programs that run another program.
FUNCTION=(bash -c '. "$0" && "$@"' "${BASH_SOURCE[0]}")

SCRATCH=
SELECT=constraint:weft
PORTS=20000-29999
ADDRESS=%n
SECURITY=mac
RESERVE='5 %'
SITE_KEY=/etc/weft/slurm.key
EXTRA=/etc/weft/slurm-cluster.toml
START_TIMEOUT=60
CLEAN_TIMEOUT=120
ON_FAILURE=job
WEFT=weft
SCONTROL=scontrol
LOG=/var/log/weft/slurm.log

job=${SLURM_JOB_ID:-}
uid=${SLURM_JOB_UID:-}
node=${SLURMD_NODENAME:-$(uname -n)}

# Writes a line to the log file and to standard error.
log() {
    local line
    line="$(date +%FT%T) ${0##*/}: job ${job:-?}: $*"
    printf 'weft: %s\n' "$line" >&2
    mkdir -p -m 750 "${LOG%/*}" 2>/dev/null && printf '%s\n' "$line" 2>/dev/null >>"$LOG"
    return 0
}

# Ends the script after an error that concerns no single job. Slurm then drains the node.
give_up() {
    log "error: $*"
    exit 1
}

# Whether a path belongs to root and no other user may change it.
is_of_root() {
    local found
    [ ! -L "$1" ] && found=$(stat -c '%u %f' -- "$1" 2>/dev/null) || return 1
    [ "${found% *}" = 0 ] && (((0x${found#* } & 022) == 0))
}

# Whether no other user than root may rename or replace entries of a directory.
holds_entries() {
    local found
    [ -d "$1" ] && [ ! -L "$1" ] && found=$(stat -c '%u %f' -- "$1") || return 1
    [ "${found% *}" = 0 ] && (((0x${found#* } & 022) == 0 || (0x${found#* } & 01000) != 0))
}

read_config() {
    if [ -e "$CONFIG" ]; then
        is_of_root "$CONFIG" || give_up "$CONFIG: it must belong to root, and no other user may write it; chown and chmod it"
        # shellcheck source=/dev/null
        . "$CONFIG" || give_up "$CONFIG: bash cannot read it; correct it"
    fi
    [[ $job =~ ^[0-9]+$ && $uid =~ ^[0-9]+$ ]] ||
        give_up "SLURM_JOB_ID=$job SLURM_JOB_UID=$uid: not the environment of a prolog; set Prolog and Epilog in slurm.conf"
}

# Prints the scratch directories of this node, one a line.
scratch_dirs() {
    local entry
    for entry in $SCRATCH; do
        printf '%s\n' "${entry%:*}"
    done
}

# Acquires the lock of this node for creating and renaming the directories of jobs.
lock_jobs() {
    [ -d "$JOBS" ] || mkdir -m 755 "$JOBS" 2>/dev/null
    is_of_root "$JOBS" || give_up "$JOBS: not a directory of root only; remove it"
    # No other user may open it, because an open file can be locked.
    (umask 077 && : >>"$JOBS/.lock")
    exec 9>"$JOBS/.lock" && flock -w "$LOCK_TIMEOUT" 9 || give_up "$JOBS/.lock: not acquired within $LOCK_TIMEOUT s; which process holds it?"
}

unlock_jobs() {
    exec 9>&-
}

# as_user UID GID COMMAND...: runs a command with the rights of a user, without root's environment and root's lock.
as_user() {
    local as_uid=$1 as_gid=$2
    shift 2
    env -i PATH="$PATH" LC_ALL=C setpriv --reuid="$as_uid" --regid="$as_gid" --clear-groups --inh-caps=-all --no-new-privs -- "$@" 9>&-
}

# within SECONDS COMMAND...: runs a program and prints the first OUTPUT_BYTES of its output and errors. Fails with 124
# after SECONDS, even if the program does not end then: no signal interrupts a request that a FUSE server has and does
# not answer.
within() {
    local seconds=$1 output='' code from
    shift
    # A program that does not end must keep neither the lock nor the caller's standard error, for whose end slurmd waits.
    exec {from}< <(
        exec 2>/dev/null 9>&-
        timeout -k 1 "$seconds" "$@" 2>&1 </dev/null | { head -c "$OUTPUT_BYTES"; cat >/dev/null; } |
            tr -cd '\11\12\40-\176\200-\377'
        printf '\n%s' "${PIPESTATUS[0]}"
    )
    # Later than `timeout -k`, which waits for the program.
    IFS='' read -r -d '' -t $((seconds + 3)) -u "$from" output
    code=$?
    exec {from}<&-
    if ((code > 128)); then
        code=124
    else
        code=${output##*$'\n'}
        output=${output%$'\n'*}
        [[ $code =~ ^[0-9]+$ ]] || code=124
    fi
    if ((code == 124 || code == 137)); then
        code=124
        output+="${output:+$'\n'}not finished within $seconds s"
    fi
    printf '%s\n' "${output%$'\n'}"
    return "$code"
}

# owner_of DIR: sets owner_uid, owner_gid and owner_job from the record of a directory of a job. Fails if Weft has not
# made that directory.
owner_of() {
    is_of_root "$1" && is_of_root "$1/owner" && [ -f "$1/owner" ] || return 1
    read -r owner_uid owner_gid owner_job 2>/dev/null <"$1/owner" &&
        [[ $owner_uid =~ ^[0-9]+$ && $owner_gid =~ ^[0-9]+$ && $owner_job =~ ^[0-9]+$ ]]
}

# Prints the processes of the job's user that serve the job on this node, one a line.
servers() {
    pgrep ${uid:+-u "$uid"} -f -- "serve --cluster $JOBS/$job/cluster\\.toml( |\$)"
}

# Ends the server of the job on this node at once, because its data is not needed any more.
kill_servers() {
    local pid pids owner end=$((SECONDS + KILL_TIMEOUT))
    while pids=$(servers); do
        for pid in $pids; do
            owner=$(stat -c '%u %g' "/proc/$pid" 2>/dev/null) || continue
            # With the rights of its own user: another process with the same arguments loses nothing else.
            within 5 "${FUNCTION[@]}" as_user "${owner% *}" "${owner#* }" kill -KILL "$pid" >/dev/null
        done
        if ((SECONDS >= end)); then
            log "error: not ended within $KILL_TIMEOUT s after SIGKILL: processes ${pids//$'\n'/ }; is a disk stuck?"
            return 1
        fi
        sleep 0.05
    done
}

# retire DIR: gives a directory of an ended job another name, which no job uses. Requires the lock.
retire() {
    local to
    if ! owner_of "$1"; then
        log "error: $1: Weft has not made it, so it stays; remove it"
        return 1
    fi
    to="${1%/*}/.weft-ended-${1##*-}-$$-$RANDOM"
    mv -nT -- "$1" "$to" && [ ! -e "$1" ]
}

# Retires the directories of jobs that have no directory in $JOBS: the node was restarted, or an epilog did not finish.
# Requires the lock.
retire_forgotten() {
    local dir found
    while read -r dir; do
        for found in "$dir"/weft-job-*; do
            [[ ${found##*-} =~ ^[0-9]+$ && ! -e $JOBS/${found##*-} ]] && owner_of "$found" && retire "$found"
        done
    done < <(scratch_dirs)
}

# Removes all retired directories within $CLEAN_TIMEOUT. What is left stays for the next epilog.
remove_retired() {
    local dir found why end=$((SECONDS + CLEAN_TIMEOUT))
    while read -r dir; do
        holds_entries "$dir" || continue
        for found in "$dir"/.weft-ended-*; do
            if [ -e "$found" ] && owner_of "$found"; then
                why=$(remove_dir "$found" $((end - SECONDS))) ||
                    # Another epilog may have removed it.
                    [ ! -e "$found" ] || log "warning: $found: not removed completely: ${why%%$'\n'*}; the next epilog continues"
            fi
        done
    done < <(scratch_dirs)
}

# remove_dir DIR SECONDS: removes a retired directory of owner_uid and owner_gid, or prints why it stays.
remove_dir() {
    if (($2 <= 0)); then
        echo "no time is left of CLEAN_TIMEOUT=$CLEAN_TIMEOUT s"
        return 1
    fi
    # In a mount namespace of its own. A user may put a link in the path while root unmounts there, and root then
    # unmounts another directory. In the namespace that changes no mount of the node.
    within "$2" unshare --mount --propagation private -- "${FUNCTION[@]}" remove_without_mounts "$1" "$owner_uid" "$owner_gid"
}

# mount_below DIR: sets mounted_at to a mount below a directory, one that lies below no other such mount. Fails if there
# is none. Accesses no file below the directory, because its mount may not answer.
mount_below() {
    local at
    mounted_at=
    while read -r _ _ _ _ at _; do
        printf -v at %b "$at"
        [[ $at == "$1"/* ]] && [[ -z $mounted_at || ${#at} -lt ${#mounted_at} ]] && mounted_at=$at
    done </proc/self/mountinfo
    [ -n "$mounted_at" ]
}

# remove_without_mounts DIR UID GID: removes a directory and nothing in mounts below it: as its user what the user could
# change, as root the rest. Requires a mount namespace of its own. When a mount point of another namespace is removed,
# Linux (3.18 or later) unmounts it there lazily.
remove_without_mounts() {
    local delete='find . -xdev -mindepth 1 -delete'
    cd -P -- "$1" || return
    # Lazily, which includes all mounts below it and needs no answer of a FUSE server.
    while mount_below "$PWD"; do
        umount --lazy --internal-only --no-canonicalize -- "$mounted_at" || return
    done
    if [ -d data ] && [ ! -L data ] && ! rmdir data 2>/dev/null; then
        as_user "$2" "$3" sh -c "cd data && $delete" 2>/dev/null ||
            # Directories without permissions for their owner.
            as_user "$2" "$3" sh -c "cd data && { chmod -R u+rwX . 2>/dev/null; $delete; }"
        rmdir data || return
    fi
    rm -f owner && rmdir -- "$1"
}
