#!/bin/sh
# The demo of several hosts: PostgreSQL, two hosts, and jobs that outlive the host that runs them.
# Usage: demo-cluster.sh GRISTMILL_BINARY DIRECTORY_OF_COMPONENTS
set -eu

gristmill=$1
guests=$2
data=$(mktemp -d)
first_pid='' second_pid=''
. "$(dirname -- "$0")/cluster.sh"
finish() { stop_cluster $first_pid $second_pid; }
trap finish EXIT
trap 'exit 130' INT TERM

if [ -t 1 ]; then bold=$(printf '\033[1m') plain=$(printf '\033[0m'); else bold='' plain=''; fi
title() { printf '\n%s%s%s\n' "$bold" "$1" "$plain"; }

title "A PostgreSQL server"
start_postgres

title "Two hosts: one has the queue, the other stands by and runs jobs too"
start one --max-running-jobs 2
first_pid=$pid
GRISTMILL_API_KEY=$(cat "$data/one/admin.key")
export GRISTMILL_API_KEY
start two --max-running-jobs 2
second_pid=$pid
# All commands call the host that stands by.
export GRISTMILL_URL="$url"

# submit MS VALUE: a job of this length. Prints its id.
submit() { "$gristmill" submit playground --input "{\"op\":\"sleep\",\"ms\":$1,\"value\":$2}"; }
both_run() { "$gristmill" cluster status | grep -q "standby  2 of 2"; }

title "Deploy, and wait until both hosts have compiled the handler"
"$gristmill" deploy "$guests/playground.wasm" --name playground --workers-max 4 >"$data/deploy.out" 2>&1 ||
  { cat "$data/deploy.out" >&2; exit 1; }
jobs=''
for value in 1 2 3 4; do jobs="$jobs $(submit 300000 $value)"; done
wait_for 120 both_run
for job in $jobs; do "$gristmill" cancel playground "$job" >/dev/null; done

title "Submit twelve jobs of three seconds each, which run on both hosts"
jobs=''
for value in 1 2 3 4 5 6 7 8 9 10 11 12; do jobs="$jobs $(submit 3000 $value)"; done
wait_for 60 both_run
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
start one --max-running-jobs 2
first_pid=$pid
echo
echo "$ended of 12 jobs COMPLETED"
