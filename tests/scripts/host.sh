# For scripts that need a host. They set `gristmill` (the binary) and `host_log` (the file for its
# log), and include this file.

host_pid=

# stop_host [SIGNAL]: ends the host, if there is one, and waits for its end.
stop_host() {
  [ -n "$host_pid" ] || return 0
  kill "${1:--TERM}" "$host_pid" 2>/dev/null || true
  wait "$host_pid" 2>/dev/null || true
  host_pid=
}

# start_host DIRECTORY ADDRESS ARGUMENT...: a host on this data directory, with these further
# arguments of `serve`. Sets `address`, and the environment variables of client commands.
start_host() {
  GRISTMILL_DATA_DIR=$1
  ready=$1.json
  address=$2
  shift 2
  : >"$ready"
  "$gristmill" serve --listen "$address" --data-dir "$GRISTMILL_DATA_DIR" --json "$@" >"$ready" 2>>"$host_log" &
  host_pid=$!
  tries=0
  until grep -q '"ready"' "$ready"; do
    tries=$((tries + 1))
    if [ $tries -gt 300 ] || ! kill -0 "$host_pid" 2>/dev/null; then
      echo "the host did not start:" >&2
      cat "$host_log" >&2
      exit 1
    fi
    sleep 0.1
  done
  address=$(sed 's/.*"addr":"\([^"]*\)".*/\1/' "$ready")
  GRISTMILL_URL=http://$address
  export GRISTMILL_URL GRISTMILL_DATA_DIR
}
