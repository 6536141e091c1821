#!/usr/bin/env bash
# A distributed file system of other authors on the loopback interface, for tests and measurements: GlusterFS with four
# bricks. Files are sharded and the shards are distributed over the bricks. The mount is kernel FUSE.
#
# usage: scripts/distributed.sh start DIR     starts bricks and mount, and prints the mount point, DIR/mount
#        scripts/distributed.sh status DIR    prints processes and mount; exits with 1 if one is missing
#        scripts/distributed.sh stop DIR      unmounts, ends the processes that `start` started, and removes their files
#
# Needs root (extended attributes of the bricks, the mount) and glusterfs-server. No glusterd runs: bricks and client
# read volume files below DIR. Bricks listen on free ports of 127.0.0.1 only.
#
# Environment: BRICKS is the number of bricks, SHARD the shard size (at least 4 MiB).
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-} dir=${2:-}
bricks=${BRICKS:-4} shard=${SHARD:-4MB}
case $what in start | stop | status) ;; *) dir= ;; esac
if [ -z "$dir" ]; then
    echo "usage: scripts/distributed.sh start|stop|status DIR" >&2
    exit 2
fi

say() { printf 'weft: %s\n' "$*" >&2; }

mounted() { grep -qsF " $dir/mount fuse.glusterfs " /proc/self/mounts; }

# alive PID NAME: whether the process is the one that `start` recorded under this name.
alive() { tr '\0' '\n' <"/proc/$1/cmdline" 2>/dev/null | grep -qxF "$dir/$2.vol"; }

# Prints as many unused ports of 127.0.0.1 as there are bricks.
free_ports() {
    python3 - "$bricks" <<'PYTHON'
import socket, sys
sockets = [socket.socket() for _ in range(int(sys.argv[1]))]
for each in sockets:
    each.bind(("127.0.0.1", 0))
print(*(each.getsockname()[1] for each in sockets))
PYTHON
}

brick_volume() {
    cat <<VOLUME
volume posix
    type storage/posix
    option directory $dir/brick$1
end-volume
volume locks
    type features/locks
    subvolumes posix
end-volume
volume brick
    type performance/io-threads
    subvolumes locks
end-volume
volume server
    type protocol/server
    option transport-type tcp
    option transport.address-family inet
    option transport.socket.bind-address 127.0.0.1
    option transport.socket.listen-port $2
    option auth.addr.brick.allow 127.0.0.1
    subvolumes brick
end-volume
VOLUME
}

client_volume() {
    local id=0 port names=
    for port in "$@"; do
        cat <<VOLUME
volume client$id
    type protocol/client
    option transport-type tcp
    option transport.address-family inet
    option remote-host 127.0.0.1
    option remote-port $port
    option remote-subvolume brick
    option ping-timeout 10
end-volume
VOLUME
        names+=" client$id"
        id=$((id + 1))
    done
    cat <<VOLUME
volume distribute
    type cluster/distribute
    subvolumes$names
end-volume
volume shard
    type features/shard
    option shard-block-size $shard
    subvolumes distribute
end-volume
volume write-behind
    type performance/write-behind
    subvolumes shard
end-volume
VOLUME
}

# launch NAME COMMAND...: starts a process in the background and records it.
launch() {
    local name=$1
    shift
    "$@" </dev/null >>"$dir/$name.log" 2>&1 &
    echo "$! $name" >>"$dir/processes"
}

# eventually WHAT CONDITION...: polls a condition for at most 20 s.
eventually() {
    local what=$1 tries=400
    shift
    until "$@"; do
        tries=$((tries - 1))
        if [ $tries = 0 ]; then
            say "$what does not start; last lines of its logs:"
            tail -n 5 "$dir"/*.log >&2
            return 1
        fi
        sleep 0.05
    done
}

listens() { (: <"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

answers() { mounted && (: >"$dir/mount/.ready") 2>/dev/null && rm "$dir/mount/.ready"; }

start() {
    if [ "$(id -u)" -ne 0 ]; then
        say "$dir: a distributed file system needs root for its mount; run this command as root"
        exit 1
    fi
    scripts/deps.sh distributed
    mkdir -p "$dir"
    dir=$(cd "$dir" && pwd -P)
    if [ -e "$dir/processes" ]; then
        say "$dir: a distributed file system was started here before; run: scripts/distributed.sh stop $dir"
        exit 1
    fi
    trap '[ $? = 0 ] || stop' EXIT
    : >"$dir/processes"
    mkdir -p "$dir/mount"
    local id=0 port ports
    read -ra ports <<<"$(free_ports)"
    for port in "${ports[@]}"; do
        mkdir -p "$dir/brick$id"
        brick_volume "$id" "$port" >"$dir/server$id.vol"
        launch "server$id" glusterfsd --no-daemon --volfile "$dir/server$id.vol" --log-file "$dir/server$id.log" \
            --log-level WARNING --socket-file "$dir/server$id.socket" --pid-file "$dir/server$id.pid"
        id=$((id + 1))
    done
    for port in "${ports[@]}"; do
        eventually "a brick of GlusterFS" listens "$port"
    done
    client_volume "${ports[@]}" >"$dir/client.vol"
    launch client glusterfs --no-daemon --volfile "$dir/client.vol" --log-file "$dir/client.log" --log-level WARNING \
        --pid-file "$dir/client.pid" --fuse-mountopts=noatime "$dir/mount"
    eventually "the mount of GlusterFS" answers
    chmod 1777 "$dir/mount"
    echo "$dir/mount"
}

status() {
    dir=$(cd "$dir" 2>/dev/null && pwd -P) || { say "$dir: there is no such directory"; exit 1; }
    [ -e "$dir/processes" ] || { say "$dir: no distributed file system was started here"; exit 1; }
    local pid name missing=0
    while read -r pid name; do
        if alive "$pid" "$name"; then
            echo "$name runs, process $pid"
        else
            echo "$name is dead"
            missing=1
        fi
    done <"$dir/processes"
    if mounted; then
        df -h --output=fstype,size,avail,target "$dir/mount"
    else
        echo "$dir/mount is not mounted"
        missing=1
    fi
    return $missing
}

stop() {
    dir=$(cd "$dir" 2>/dev/null && pwd -P) || exit 0
    [ -e "$dir/processes" ] || exit 0
    local pid name
    if mounted; then
        umount "$dir/mount" 2>/dev/null || umount -l "$dir/mount"
    fi
    while read -r pid name; do
        alive "$pid" "$name" && kill "$pid" || true
    done <"$dir/processes"
    while read -r pid name; do
        local tries=100
        while alive "$pid" "$name"; do
            tries=$((tries - 1))
            [ $tries -gt 0 ] || kill -KILL "$pid" 2>/dev/null || true
            sleep 0.05
        done
    done <"$dir/processes"
    mounted && { say "$dir/mount: the mount is busy; end its users and run this command again"; exit 1; }
    rm -rf --one-file-system "$dir"/brick[0-9]* "$dir"/server[0-9]*.* "$dir"/client.* "$dir/processes"
    rmdir "$dir/mount"
    rmdir --ignore-fail-on-non-empty "$dir"
}

"$what"
