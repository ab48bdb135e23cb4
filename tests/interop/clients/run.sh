#!/bin/sh
# Real clients, unmodified and pinned, against a real host.
# Usage: run.sh GRISTMILL_BINARY DIRECTORY_OF_COMPONENTS
set -eu

[ $# -eq 2 ] || { sed -n 3s/..//p "$0" >&2; exit 2; }
gristmill=$1
guests=$2
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

tests=client
. "$here/../../suites.sh"
need cargo "as in rust-toolchain.toml" cargo --version
need curl "with HTTP" curl --version
need_languages 10

# Clients that are installed already, in the versions of the lock files, are kept.
echo "installing the clients"
if ! cat "$here"/python/*.txt | cmp -s - "$here/.venv/installed"; then
  rm -rf "$here/.venv"
  python3 -m venv "$here/.venv"
  logged pip "$here/.venv/bin/pip" install -r "$here/python/requirements.txt" -c "$here/python/constraints.txt"
  cat "$here"/python/*.txt >"$here/.venv/installed"
fi
if ! cmp -s "$here/javascript/package-lock.json" "$here/javascript/node_modules/installed"; then
  logged npm npm --prefix "$here/javascript" ci --no-audit --no-fund
  cp "$here/javascript/package-lock.json" "$here/javascript/node_modules/installed"
fi
logged cargo cargo build --locked --tests --manifest-path "$here/rust/Cargo.toml" --target-dir "$here/rust/target"

export NO_PROXY=127.0.0.1 no_proxy=127.0.0.1

echo "starting a host"
start_host "$temp/sdks" 127.0.0.1:0

deploy() { file=$1; shift; logged deploy "$gristmill" deploy "$guests/$file.wasm" --name "$@"; }
deploy chat chat
deploy echo echo
deploy token_stream token-stream
deploy playground playground
deploy playground hasty --execution-timeout 5000
# Endpoints without workers, so that a job waits as long as a test needs. Each suite has its own, so
# that it cannot purge the queue of another suite.
for suite in python javascript rust; do deploy echo "paused-$suite" --workers-max 0; done

# The first three are settings of the clients.
export RUNPOD_ENDPOINT_BASE_URL="$GRISTMILL_URL/sdk/v2"
export RUNPOD_API_URL="$GRISTMILL_URL/sdk/v2"
export RUNPOD_REST_URL="$GRISTMILL_URL/v1"
key() {
  "$gristmill" keys create --name "$1" --scope "$1" 2>"$temp/key.log" || { cat "$temp/key.log" >&2; return 1; }
}
RUNPOD_API_KEY=$(key submit)
GRISTMILL_MANAGE_KEY=$(key manage)
export RUNPOD_API_KEY GRISTMILL_MANAGE_KEY

suite python '^[0-9]+ (passed|failed)' \
  "$here/.venv/bin/python" -m pytest -q -p no:cacheprovider "$here/python"
suite javascript '^# (tests|pass|fail) ' \
  node --test --test-reporter=tap --test-timeout=120000 "$here"/javascript/*.test.js
suite rust '^test result' \
  cargo test --locked --manifest-path "$here/rust/Cargo.toml" --target-dir "$here/rust/target"

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
document() (
  python=$here/.venv/bin/python
  cd "$temp" && # it leaves files where it runs
    "$python" -c 'import sys, urllib.request; urllib.request.urlretrieve(*sys.argv[1:])' \
      "$GRISTMILL_URL/openapi.json" openapi.json &&
    "$python" -m openapi_spec_validator openapi.json &&
    SCHEMATHESIS_HOOKS=$here/openapi/hooks.py "$here/.venv/bin/st" \
      --config-file "$here/openapi/schemathesis.toml" run "$GRISTMILL_URL/openapi.json" \
      --seed "$GRISTMILL_SEED" --no-color
)
suite openapi '^(Seed: |Steps on jobs: |  [0-9]+ generated| +API Links: )' document

finish
