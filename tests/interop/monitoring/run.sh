#!/bin/sh
# The Prometheus rules and Grafana dashboards against a real host and a real Prometheus.
# Usage: run.sh GRISTMILL_BINARY DIRECTORY_OF_COMPONENTS
set -eu

[ $# -eq 2 ] || { sed -n 3s/..//p "$0" >&2; exit 2; }
gristmill=$1
guests=$2
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

tests=monitoring
. "$here/../../scripts/suites.sh"
need python3 "3.10 or newer" python3 -c "import sys; sys.exit(sys.version_info < (3, 10))"
[ -z "$missing" ] || exit 1

export NO_PROXY=127.0.0.1 no_proxy=127.0.0.1
# Grafana shows a dashboard with mistakes as one with empty panels, so most checks need no Grafana.
if grafana=$(command -v grafana || command -v grafana-server); then
  suite dashboards '^(ok|AssertionError)' python3 "$here/dashboards.py" "$grafana" "$temp"
else
  suite dashboards '^(ok|AssertionError)' python3 "$here/dashboards.py"
  echo "skipped: the test that loads the dashboards needs Grafana (grafana or grafana-server in the PATH)"
fi

if ! command -v promtool >/dev/null || ! command -v prometheus >/dev/null; then
  echo "skipped: the tests of the rules need Prometheus (apt-get install prometheus)"
  finish
fi

suite rules 'SUCCESS|FAILED' promtool check rules "$here/../../../docs/monitoring/prometheus/gristmill.rules.yml"
suite alerts 'SUCCESS|FAILED' promtool test rules "$here/rules.test.yml"

# A host that exports traces has all metrics; this one records no trace.
export OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:9 OTEL_TRACES_SAMPLER=always_off
start_host "$temp/data" 127.0.0.1:0
logged deploy "$gristmill" deploy "$guests/playground.wasm" --name playground
logged deploy "$gristmill" deploy "$guests/http-playground.wasm" --name site
(umask 077 && "$gristmill" keys create --name prometheus --scope metrics --json | sed 's/.*"key": *"\([^"]*\)".*/\1/' >"$temp/key")
suite server '^(ok|AssertionError)' python3 "$here/check.py" "$GRISTMILL_URL" "$temp/key" playground site "$temp" "$GRISTMILL_DATA_DIR/admin.key" '{"op":"fail","message":"on purpose"}'

finish
