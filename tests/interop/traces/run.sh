#!/bin/sh
# The traces of a real host, decoded by the official classes of OpenTelemetry.
# Usage: run.sh GRISTMILL_BINARY DIRECTORY_OF_COMPONENTS
set -eu

[ $# -eq 2 ] || { sed -n 3s/..//p "$0" >&2; exit 2; }
gristmill=$1
guests=$2
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

tests=traces
. "$here/../../scripts/suites.sh"
need python3 "3.10 or newer, with venv" python3 -c "import sys, ensurepip; sys.exit(sys.version_info < (3, 10))"
[ -z "$missing" ] || exit 1

python=$here/.venv/bin/python
# installed FILE: these packages are in the virtual environment; 1 when PyPI does not have them for this machine.
installed() {
  ! cmp -s "$here/$1" "$here/.venv/$1" || return 0
  echo "installing the packages of $1"
  [ -x "$python" ] || python3 -m venv "$here/.venv"
  logged pip "$python" -m pip install --quiet -r "$here/$1" || return 1
  cp "$here/$1" "$here/.venv/$1"
}
if ! installed requirements.txt; then
  echo "skipped: the tests of traces need opentelemetry-proto from PyPI"
  exit 0
fi

export NO_PROXY=127.0.0.1 no_proxy=127.0.0.1
GRISTMILL=$gristmill
GRISTMILL_COMPONENTS=$(cd "$guests" && pwd)
TRACES_SPANS=$temp/spans.jsonl
TRACES_CALLS=$temp/calls.jsonl
export GRISTMILL GRISTMILL_COMPONENTS TRACES_SPANS TRACES_CALLS

servers=
trap 'stop_host; for server in $servers; do kill "$server" 2>/dev/null || true; done; rm -rf "$temp"' EXIT
# until_true WHAT COMMAND...: waits until the command succeeds, for half a minute.
until_true() {
  what=$1 tries=0
  shift
  until "$@"; do
    tries=$((tries + 1))
    [ $tries -le 300 ] || { echo "$what did not start" >&2; exit 1; }
    sleep 0.1
  done
}
# start_server NAME: starts NAME.py, which writes its URL to $temp/NAME.
start_server() {
  "$python" "$here/$1.py" "$temp/$1" &
  servers="$servers $!"
  until_true "the $1" test -s "$temp/$1"
}
start_server collector
start_server receiver
collector=$(cat "$temp/collector")
TRACES_RECEIVER=$(cat "$temp/receiver")
OTEL_BSP_SCHEDULE_DELAY=100
export TRACES_RECEIVER OTEL_BSP_SCHEDULE_DELAY
receiver=${TRACES_RECEIVER#http://}

# spans NAME COLLECTOR: the tests against a host that exports to this URL.
spans() {
  OTEL_EXPORTER_OTLP_ENDPOINT=$2
  export OTEL_EXPORTER_OTLP_ENDPOINT
  start_host "$temp/data" 127.0.0.1:0 --webhook-allow "$receiver"
  if [ -z "${GRISTMILL_ADMIN_KEY-}" ]; then
    GRISTMILL_ADMIN_KEY=$(cat "$GRISTMILL_DATA_DIR/admin.key")
    export GRISTMILL_ADMIN_KEY
    deploy_samples
  fi
  suite "$1" '^(Ran|OK|FAILED|FAIL:|ERROR:)' "$python" "$here/test_spans.py"
  stop_host
}
deploy_samples() {
  deploy() {
    handler=$1
    shift
    logged deploy "$gristmill" deploy "$guests/$handler.wasm" --name "$@"
  }
  deploy echo echo
  deploy echo paused --workers-max 0
  deploy playground playground
  deploy fetch fetch
  deploy fetch fetch-open --allow-host "$receiver" --propagate-traces
  deploy fetch fetch-closed --allow-host "$receiver"
  deploy fetch fetch-any --allow-host 127.0.0.1:1 --allow-host "$receiver"
}

spans spans "$collector"
export OTEL_EXPORTER_OTLP_COMPRESSION=gzip TRACES_ENCODING=gzip
spans spans-gzip "$collector"

# Rotel is a collector of another project, in Rust: it decodes the batches and sends its own to the collector of
# these tests.
if installed requirements-collector.txt; then
  rotel=$("$python" -c 'import os, rotel; print(os.path.join(os.path.dirname(rotel.__file__), "rotel-agent"))')
  free_ports=$("$python" -c 'import socket; s = [socket.create_server(("127.0.0.1", 0)) for _ in "12"]; print(*(x.getsockname()[1] for x in s))')
  http=${free_ports% *} grpc=${free_ports#* }
  "$rotel" start --otlp-http-endpoint "127.0.0.1:$http" --otlp-grpc-endpoint "127.0.0.1:$grpc" \
    --exporter otlp --otlp-exporter-protocol http --otlp-exporter-endpoint "$collector" >"$temp/rotel.log" 2>&1 &
  servers="$servers $!"
  until_true Rotel "$python" -c 'import socket, sys; sys.exit(socket.socket().connect_ex(("127.0.0.1", int(sys.argv[1]))) != 0)' "$http"
  spans spans-rotel "http://127.0.0.1:$http"
else
  echo "skipped: the tests with a collector of another project need rotel from PyPI"
fi

finish
