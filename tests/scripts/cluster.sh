# For scripts that need several hosts on one PostgreSQL database. They set `gristmill` (the binary) and `data` (an
# empty directory), include this file, and call stop_cluster when they end.

server_pid=

# wait_for SECONDS COMMAND...: repeats the command until it succeeds.
wait_for() {
  tries=$(($1 * 10))
  shift
  until "$@" >/dev/null 2>&1; do
    tries=$((tries - 1))
    [ $tries -gt 0 ] || { echo "this did not succeed: $*" >&2; tail -n 20 "$data"/*.log >&2; exit 1; }
    sleep 0.1
  done
}

# start_postgres: a server with an empty database, whose URL is in GRISTMILL_DATABASE. Also sets the file of the key
# that the hosts share.
start_postgres() {
  # The programs of the newest PostgreSQL of Debian, or of the path. The server refuses to run as root.
  bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)
  [ -z "$bin" ] || PATH=$bin:$PATH
  command -v initdb >/dev/null || { echo "PostgreSQL is not installed: apt install postgresql" >&2; exit 1; }
  as_user=
  mkdir "$data/server"
  if [ "$(id -u)" = 0 ]; then
    as_user='setpriv --reuid postgres --regid postgres --clear-groups --'
    chown postgres "$data/server" && chmod 711 "$data"
  fi
  $as_user initdb -D "$data/server/data" -A trust -U mill -N >"$data/initdb.log" 2>&1
  $as_user postgres -D "$data/server/data" -k "$data/server" -c listen_addresses= >"$data/server.log" 2>&1 &
  server_pid=$!
  wait_for 60 pg_isready -h "$data/server"
  createdb -h "$data/server" -U mill mill
  export GRISTMILL_DATABASE="postgresql:///mill?user=mill&host=$data/server"
  export GRISTMILL_SECRETS_KEY="$data/secrets.key"
}

sql() { psql -h "$data/server" -U mill -d mill -c "SET search_path = gristmill" -c "$1" | grep -v '^SET$'; }

# start NAME ARGUMENT...: starts a host, and waits for its ready line. Sets `pid`, `address` and `url`.
start() {
  name=$1
  shift
  "$gristmill" serve --listen 127.0.0.1:0 --cluster-listen 127.0.0.1:0 --data-dir "$data/$name" --json "$@" \
    >"$data/$name.json" 2>"$data/$name.log" &
  pid=$!
  wait_for 60 grep -q '"ready"' "$data/$name.json"
  address=$(sed -n '1s/.*"addr":"\([^"]*\)".*/\1/p' "$data/$name.json")
  url=http://$address
  echo "host $name: $url, $(sed -n '1s/.*"role":"\([^"]*\)".*/\1/p' "$data/$name.json")"
}

# stop_cluster PID...: ends these hosts and the server, and deletes the directory.
stop_cluster() {
  for pid; do kill -9 "$pid" 2>/dev/null || true; done
  [ -z "$server_pid" ] || { kill -QUIT "$server_pid" 2>/dev/null; wait "$server_pid" 2>/dev/null || true; }
  rm -rf "$data"
}
