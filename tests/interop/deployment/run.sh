#!/bin/sh
# The compose files and the Helm chart of host/packaging: their formats, and hosts with the environment that they set.
# Usage: run.sh GRISTMILL_BINARY
set -eu

[ $# -eq 1 ] || { sed -n 3s/..//p "$0" >&2; exit 2; }
gristmill=$1
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$here/../../..

tests=deployment
. "$root/tests/scripts/suites.sh"
. "$root/tests/scripts/cluster.sh"
need python3 "3.11 or newer, with venv" python3 -c "import sys, ensurepip; sys.exit(sys.version_info < (3, 11))"
[ -x "$gristmill" ] || { echo "no such program: $gristmill" >&2; missing=1; }
[ -z "$missing" ] || exit 1

venv=$root/target/deployment
if ! cmp -s "$here/requirements.txt" "$venv/requirements.txt"; then
  echo "installing the packages of requirements.txt"
  [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
  if ! logged pip "$venv/bin/python" -m pip install --quiet -r "$here/requirements.txt"; then
    echo "skipped: the tests of deployment need helm-python-sdk and kubernetes-validate from PyPI"
    exit 0
  fi
  cp "$here/requirements.txt" "$venv/requirements.txt"
fi

compose=$root/host/packaging/compose
lines='^(ok|skipped|AssertionError)'
suite compose '^ok' "$venv/bin/check-jsonschema" --builtin-schema vendor.compose-spec "$compose"/*/compose.yaml
suite files "$lines" "$venv/bin/python" "$here/files.py"
suite chart "$lines" "$venv/bin/python" "$here/chart.py" "$temp"

if command -v promtool >/dev/null; then
  mkdir "$temp/prometheus"
  cp "$compose/two-hosts/prometheus.yml" "$root/docs/monitoring/prometheus/gristmill.rules.yml" "$temp/prometheus"
  suite prometheus 'SUCCESS|FAILED' promtool check config "$temp/prometheus/prometheus.yml"
else
  echo "skipped: the test of Prometheus' configuration needs promtool (apt-get install prometheus)"
fi

export NO_PROXY=127.0.0.1,localhost no_proxy=127.0.0.1,localhost
suite one-host-chart "$lines" "$venv/bin/python" "$here/one_host.py" "$gristmill" "$temp/pod" chart
if command -v caddy >/dev/null; then
  suite one-host-compose "$lines" "$venv/bin/python" "$here/one_host.py" "$gristmill" "$temp/one" compose
else
  echo "skipped: the test of one host behind Caddy needs caddy (apt-get install --no-install-recommends caddy)"
fi

if [ -n "$(ls /usr/lib/postgresql/*/bin/initdb 2>/dev/null || command -v initdb)" ] && command -v haproxy >/dev/null; then
  data=$temp/two
  mkdir "$data"
  chmod 711 "$temp"
  trap 'stop_cluster; rm -rf "$temp"' EXIT
  start_postgres
  for form in compose chart; do
    createdb -h "$data/server" -U mill "$form"
    export DATABASE="postgresql:///$form?user=mill&host=$data/server"
    suite "two-hosts-$form" "$lines" "$venv/bin/python" "$here/two_hosts.py" "$gristmill" "$data/$form" "$form"
  done
else
  echo "skipped: the test of two hosts needs PostgreSQL and HAProxy (apt-get install postgresql haproxy)"
fi

finish
