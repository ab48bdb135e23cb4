#!/bin/sh
# The demo of several hosts: PostgreSQL, two hosts, and jobs that outlive the host that runs them.
# Usage: demo-cluster.sh GRISTMILL_BINARY DIRECTORY_OF_COMPONENTS
set -eu

gristmill=$1
guests=$2
data=$(mktemp -d)
first_pid='' second_pid='' server_pid=''
finish() {
  for pid in $first_pid $second_pid; do kill -9 "$pid" 2>/dev/null || true; done
  [ -z "$server_pid" ] || { kill -QUIT "$server_pid" 2>/dev/null; wait "$server_pid" 2>/dev/null || true; }
  rm -rf "$data"
}
trap finish EXIT
trap 'exit 130' INT TERM

if [ -t 1 ]; then bold=$(printf '\033[1m') plain=$(printf '\033[0m'); else bold='' plain=''; fi
title() { printf '\n%s%s%s\n' "$bold" "$1" "$plain"; }

# The programs of the newest PostgreSQL of Debian, or of the path. The server refuses to run as root.
bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)
[ -z "$bin" ] || PATH=$bin:$PATH
command -v initdb >/dev/null || { echo "PostgreSQL is not installed: apt install postgresql" >&2; exit 1; }
as_user=''
if [ "$(id -u)" = 0 ]; then
  as_user='setpriv --reuid postgres --regid postgres --clear-groups --'
  mkdir "$data/server" && chown postgres "$data/server" && chmod 711 "$data"
else
  mkdir "$data/server"
fi

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

title "A PostgreSQL server"
$as_user initdb -D "$data/server/data" -A trust -U mill -N >"$data/initdb.log" 2>&1
$as_user postgres -D "$data/server/data" -k "$data/server" -c listen_addresses= >"$data/server.log" 2>&1 &
server_pid=$!
wait_for 60 pg_isready -h "$data/server"
createdb -h "$data/server" -U mill mill
export GRISTMILL_DATABASE="postgresql:///mill?user=mill&host=$data/server"
export GRISTMILL_SECRETS_KEY="$data/secrets.key"
sql() { psql -h "$data/server" -U mill -d mill -c "SET search_path = gristmill" -c "$1" | grep -v '^SET$'; }

# start NAME: starts a host, and waits for its ready line. Sets `url`.
start() {
  "$gristmill" serve --listen 127.0.0.1:0 --cluster-listen 127.0.0.1:0 --max-running-jobs 2 --data-dir "$data/$1" --json \
    >"$data/$1.json" 2>"$data/$1.log" &
  pid=$!
  wait_for 60 grep -q '"ready"' "$data/$1.json"
  url=$(sed -n '1s/.*"url":"\([^"]*\)".*/\1/p' "$data/$1.json")
  echo "host $1: $url, $(sed -n '1s/.*"role":"\([^"]*\)".*/\1/p' "$data/$1.json")"
}

title "Two hosts: one has the queue, the other stands by and runs jobs too"
start one
first_pid=$pid
GRISTMILL_API_KEY=$(cat "$data/one/admin.key")
export GRISTMILL_API_KEY
start two
second_pid=$pid
# All commands call the host that stands by.
export GRISTMILL_URL="$url"

title "Deploy, and submit twelve jobs of three seconds each, which run on both hosts"
"$gristmill" deploy "$guests/playground.wasm" --name playground --workers-max 4 >"$data/deploy.out" 2>&1 ||
  { cat "$data/deploy.out" >&2; exit 1; }
jobs=''
for value in 1 2 3 4 5 6 7 8 9 10 11 12; do
  jobs="$jobs $("$gristmill" submit playground --input "{\"op\":\"sleep\",\"ms\":3000,\"value\":$value}")"
done
# The second host compiles the handler before its first job.
wait_for 20 sh -c '"$0" cluster status | grep -q "standby  2 of 2"' "$gristmill"
"$gristmill" cluster status
sql "SELECT status, count(*) FROM jobs GROUP BY status ORDER BY status"

title "kill -9 of the host that has the queue"
kill -9 "$first_pid"
killed=$(date +%s%N)
first_pid=''
wait_for 60 curl --silent --fail "$GRISTMILL_URL/readyz"
echo "the other host is active after $((($(date +%s%N) - killed) / 1000000)) ms"

title "Every job ends on the other host"
ended=0
for job in $jobs; do
  wait_for 60 sh -c '"$0" status playground "$1" | grep -q COMPLETED' "$gristmill" "$job"
  ended=$((ended + 1))
done
sql "SELECT status, count(*) FROM jobs GROUP BY status ORDER BY status"
sql "SELECT session, is_alive, is_clean FROM session ORDER BY session"

title "The killed host stands by after its next start"
start one
first_pid=$pid
echo
echo "$ended of 12 jobs COMPLETED"
