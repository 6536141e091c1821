# Clusters of `weft serve` processes on this machine, for scripts that source this file and set $weft.

weft_servers=()

# start_cluster DIR STRIPE_SIZE TARGET [IBRIDGE]: starts four servers with one disk each. The cluster file is
# DIR/cluster.toml. TARGET has further lines of each [[server.target]]. IBRIDGE has the lines of
# [server.target.ibridge] except path; without it that section is omitted.
start_cluster() {
    local dir=$1 stripe=$2 target
    target="class = \"hdd\"
$3"
    if [ -n "${4-}" ]; then
        target="$target
[server.target.ibridge]
path = \"@/ssd\"
$4"
    fi
    start_targets "$dir" "$stripe" "$target" "$target" "$target" "$target"
}

# start_targets DIR STRIPE_SIZE TARGET...: starts a server for each TARGET, which has the lines of its [[server.target]]
# except id and path. In these lines, @ stands for the directory of the server.
start_targets() {
    local dir=$1 stripe=$2 id=0 target ready
    shift 2
    mkdir -p "$dir"
    "$weft" key make "$dir/key" >/dev/null
    {
        echo "[cluster]"
        echo "name = \"$(basename "$dir")\""
        echo "key_file = \"$dir/key\""
        for target in "$@"; do
            mkdir -p "$dir/$id"
            echo "[[server]]"
            echo "name = \"s$id\""
            echo "address = \"unix:$dir/$id/socket\""
            echo "log = \"$dir/$id/log\""
            if [ "$id" = 0 ]; then
                echo "[server.metadata]"
                echo "path = \"$dir/$id/metadata\""
            fi
            echo "[[server.target]]"
            echo "id = $id"
            echo "path = \"$dir/$id/target\""
            echo "${target//@/$dir/$id}"
            id=$((id + 1))
        done
        echo "[layout]"
        echo "stripe_size = \"$stripe\""
        echo "[client]"
        echo "fragment_threshold = \"1 MiB\""
    } >"$dir/cluster.toml"
    "$weft" config check "$dir/cluster.toml" >/dev/null
    id=0
    for target in "$@"; do
        ready=$(mktemp -u "$dir/ready.XXXXXX")
        mkfifo "$ready"
        "$weft" --cluster "$dir/cluster.toml" serve "s$id" --format --announce >"$ready" &
        weft_servers+=($!)
        if ! grep -qm1 ready <"$ready"; then
            echo "server s$id of $dir does not start:" >&2
            tail -3 "$dir/$id/log" >&2
            return 1
        fi
        rm -f "$ready"
        id=$((id + 1))
    done
}

# Ends all servers that start_cluster has started, without write-back of dirty bytes on SSDs.
stop_clusters() {
    [ ${#weft_servers[@]} -gt 0 ] || return 0
    kill "${weft_servers[@]}" 2>/dev/null || true
    kill "${weft_servers[@]}" 2>/dev/null || true
    wait "${weft_servers[@]}" 2>/dev/null || true
    weft_servers=()
}
