#!/bin/sh
# Real clients, unmodified and pinned, against a real host.
# Usage: run.sh GRISTMILL_BINARY DIRECTORY_OF_COMPONENTS
set -eu

[ $# -eq 2 ] || { sed -n 3s/..//p "$0" >&2; exit 2; }
gristmill=$1
guests=$2
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

tests=client
. "$here/../../scripts/suites.sh"
. "$here/sdks.sh"
. "$here/generated.sh"
need_clients
install_clients
install_generators

echo "starting a host"
start_host "$temp/sdks" 127.0.0.1:0
deploy_for_clients
run_clients

# Every operation of the OpenAPI document, with valid and invalid data. This deletes objects, so it
# has its own host.
stop_host
start_host "$temp/openapi" 127.0.0.1:0 --config "$here/openapi/host.toml"
deploy echo echo
deploy playground playground
deploy playground paused --workers-max 0
GRISTMILL_ADMIN_KEY=$(cat "$GRISTMILL_DATA_DIR/admin.key")
GRISTMILL_OTHER_KEY=$("$gristmill" keys create --name other --owner other --scope manage,submit 2>"$temp/key.log")
GRISTMILL_ENDPOINTS="echo playground paused"
GRISTMILL_COMPONENT=$(cd "$guests" && pwd)/echo.wasm
GRISTMILL_SEED=${GRISTMILL_SEED:-7}
export GRISTMILL_ADMIN_KEY GRISTMILL_OTHER_KEY GRISTMILL_ENDPOINTS GRISTMILL_COMPONENT GRISTMILL_SEED
curl -sSf -o "$temp/openapi.json" "$GRISTMILL_URL/openapi.json"
suite generated '^[0-9]+ passed' \
  generated_clients "$temp/openapi.json" "$GRISTMILL_URL" "$GRISTMILL_ADMIN_KEY" echo:latest
document() (
  python=$here/.venv/bin/python
  cd "$temp" && # it leaves files where it runs
    "$python" -m openapi_spec_validator openapi.json &&
    SCHEMATHESIS_HOOKS=$here/openapi/hooks.py "$here/.venv/bin/st" \
      --config-file "$here/openapi/schemathesis.toml" run "$GRISTMILL_URL/openapi.json" \
      --seed "$GRISTMILL_SEED" --no-color
)
suite openapi '^(Seed: |Steps on jobs: |  [0-9]+ generated| +API Links: )' document

finish
