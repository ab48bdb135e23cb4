#!/bin/sh
# The traces of a real host, decoded by the official classes of OpenTelemetry.
# Usage: run.sh GRISTMILL_BINARY DIRECTORY_OF_COMPONENTS
set -eu

[ $# -eq 2 ] || { sed -n 3s/..//p "$0" >&2; exit 2; }
gristmill=$1
guests=$2
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

tests=traces
. "$here/../../suites.sh"
need python3 "3.10 or newer, with venv" python3 -c "import sys, ensurepip; sys.exit(sys.version_info < (3, 10))"
[ -z "$missing" ] || exit 1

python=$here/.venv/bin/python
if ! cmp -s "$here/requirements.txt" "$here/.venv/installed"; then
  echo "installing the classes of OpenTelemetry"
  python3 -m venv "$here/.venv"
  if ! logged pip "$python" -m pip install --quiet -r "$here/requirements.txt"; then
    echo "skipped: the tests of traces need opentelemetry-proto from PyPI"
    exit 0
  fi
  cp "$here/requirements.txt" "$here/.venv/installed"
fi

export NO_PROXY=127.0.0.1 no_proxy=127.0.0.1
GRISTMILL=$gristmill
GRISTMILL_COMPONENTS=$(cd "$guests" && pwd)
TRACES_ADDRESS=$temp/collector
TRACES_SPANS=$temp/spans.jsonl
export GRISTMILL GRISTMILL_COMPONENTS TRACES_ADDRESS TRACES_SPANS
"$python" "$here/collector.py" &
collector=$!
trap 'stop_host; kill "$collector" 2>/dev/null || true; rm -rf "$temp"' EXIT
tries=0
until [ -s "$TRACES_ADDRESS" ]; do
  tries=$((tries + 1))
  [ $tries -le 300 ] || { echo "the collector did not start" >&2; exit 1; }
  sleep 0.1
done
OTEL_EXPORTER_OTLP_ENDPOINT=$(cat "$TRACES_ADDRESS")
OTEL_BSP_SCHEDULE_DELAY=100
export OTEL_EXPORTER_OTLP_ENDPOINT OTEL_BSP_SCHEDULE_DELAY
spans() {
  suite "$1" '^(Ran|OK|FAILED|FAIL:|ERROR:)' "$python" "$here/test_spans.py"
}
start_host "$temp/data" 127.0.0.1:0
GRISTMILL_ADMIN_KEY=$(cat "$GRISTMILL_DATA_DIR/admin.key")
export GRISTMILL_ADMIN_KEY
logged deploy "$gristmill" deploy "$guests/echo.wasm" --name echo
logged deploy "$gristmill" deploy "$guests/fetch.wasm" --name fetch
logged deploy "$gristmill" deploy "$guests/echo.wasm" --name paused --workers-max 0
spans spans
stop_host
export OTEL_EXPORTER_OTLP_COMPRESSION=gzip TRACES_ENCODING=gzip
start_host "$temp/data" 127.0.0.1:0
spans spans-gzip

finish
