# Clusters of four `weft serve` processes on this machine, for scripts that source this file and have $weft.

weft_servers=()

# start_cluster DIR STRIPE_SIZE TARGET [IBRIDGE]: the cluster file is DIR/cluster.toml. TARGET has further lines of each
# [[server.target]], IBRIDGE those of [server.target.ibridge] but the path; without it there is none.
start_cluster() {
    local dir=$1 stripe=$2 target=$3 ibridge=${4-} id ready
    mkdir -p "$dir"
    "$weft" key make "$dir/key" >/dev/null
    {
        echo "[cluster]"
        echo "name = \"$(basename "$dir")\""
        echo "key_file = \"$dir/key\""
        for id in 0 1 2 3; do
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
            echo "class = \"hdd\""
            echo "path = \"$dir/$id/target\""
            echo "$target"
            if [ -n "$ibridge" ]; then
                echo "[server.target.ibridge]"
                echo "path = \"$dir/$id/ssd\""
                echo "$ibridge"
            fi
        done
        echo "[layout]"
        echo "stripe_size = \"$stripe\""
        echo "[client]"
        echo "fragment_threshold = \"1 MiB\""
    } >"$dir/cluster.toml"
    "$weft" config check "$dir/cluster.toml" >/dev/null
    for id in 0 1 2 3; do
        ready=$(mktemp -u "$dir/ready.XXXXXX")
        mkfifo "$ready"
        "$weft" --cluster "$dir/cluster.toml" serve "s$id" --announce >"$ready" &
        weft_servers+=($!)
        if ! grep -qm1 ready <"$ready"; then
            echo "server s$id of $dir does not start:" >&2
            tail -3 "$dir/$id/log" >&2
            return 1
        fi
        rm -f "$ready"
    done
}

# Ends all that start_cluster has started, without writing back what lies on SSDs.
stop_clusters() {
    [ ${#weft_servers[@]} -gt 0 ] || return 0
    kill "${weft_servers[@]}" 2>/dev/null || true
    kill "${weft_servers[@]}" 2>/dev/null || true
    wait "${weft_servers[@]}" 2>/dev/null || true
    weft_servers=()
}
