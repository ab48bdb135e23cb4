#!/bin/sh
# The official SDKs, unmodified, and the conformance suite against two hosts on one database, behind HAProxy, which
# sends each call to either of them at random.
# Usage: run.sh GRISTMILL_BINARY DIRECTORY_OF_COMPONENTS
set -eu

[ $# -eq 2 ] || { sed -n 4s/..//p "$0" >&2; exit 2; }
gristmill=$1
guests=$2
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

tests=cluster
. "$here/../../scripts/suites.sh"
. "$here/../clients/sdks.sh"
. "$here/../../scripts/cluster.sh"
need haproxy "2.4 or newer" haproxy -v
need_clients
install_clients

data=$temp/cluster
mkdir "$data"
chmod 711 "$temp"
first_pid='' second_pid='' haproxy_pid=''
trap 'stop_cluster $first_pid $second_pid $haproxy_pid; rm -rf "$temp"' EXIT

echo "starting PostgreSQL, two hosts and HAProxy"
start_postgres
start one
first_pid=$pid first=$address
start two
second_pid=$pid second=$address
# HAProxy does not report a port that it chose itself.
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
# The file that docs/guides/containers.md recommends; calls reach the host that stands by, too.
ONE=$first TWO=$second BIND=127.0.0.1:$port CHECK=/livez \
  haproxy -db -f "$here/../../../host/packaging/compose/two-hosts/haproxy.cfg" >"$data/haproxy.log" 2>&1 &
haproxy_pid=$!
GRISTMILL_URL=http://127.0.0.1:$port
GRISTMILL_DATA_DIR=$data/one
host_log=$data/one.log
export GRISTMILL_URL GRISTMILL_DATA_DIR
wait_for 30 curl --silent --fail "$GRISTMILL_URL/livez"

deploy_for_clients
# HAProxy closes the connection of a client whose call was answered before its body was read.
PYTEST_ADDOPTS='-k "not test_curl_goes_on_after_a_refusal"'
export PYTEST_ADDOPTS
run_clients

# Connections that the suite opens itself go to the host that stands by.
GRISTMILL_TEST_KEY=$(cat "$data/one/admin.key")
GRISTMILL_TEST_URL=$GRISTMILL_URL
GRISTMILL_TEST_ADDRESS=$second
export GRISTMILL_TEST_KEY GRISTMILL_TEST_URL GRISTMILL_TEST_ADDRESS
# A standby reads an answer before its client does, so calls whose answers no client reads are not concurrent; and a test
# reads the files of its host.
suite conformance '^test result' cargo test --locked -p gristmill-tests --test conformance -- \
  --skip concurrency:: --skip keys::kinds_and_keeping

finish
