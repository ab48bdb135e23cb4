# The suites of the official SDKs, for scripts that include suites.sh and set `guests`.

clients=$(CDPATH='' cd -- "$here/../clients" && pwd)

need_clients() {
  need cargo "as in rust-toolchain.toml" cargo --version
  need curl "with HTTP" curl --version
  need_languages 10
}

# Clients that are installed already, in the versions of the lock files, are kept.
install_clients() {
  echo "installing the clients"
  if ! cat "$clients"/python/*.txt | cmp -s - "$clients/.venv/installed"; then
    rm -rf "$clients/.venv"
    python3 -m venv "$clients/.venv"
    logged pip "$clients/.venv/bin/pip" install -r "$clients/python/requirements.txt" -c "$clients/python/constraints.txt"
    cat "$clients"/python/*.txt >"$clients/.venv/installed"
  fi
  if ! cmp -s "$clients/javascript/package-lock.json" "$clients/javascript/node_modules/installed"; then
    logged npm npm --prefix "$clients/javascript" ci --no-audit --no-fund
    cp "$clients/javascript/package-lock.json" "$clients/javascript/node_modules/installed"
  fi
  logged cargo cargo build --locked --tests --manifest-path "$clients/rust/Cargo.toml" --target-dir "$clients/rust/target"
}

deploy() { file=$1; shift; logged deploy "$gristmill" deploy "$guests/$file.wasm" --name "$@"; }

deploy_for_clients() {
  deploy chat chat
  deploy echo echo
  deploy token_stream token-stream
  deploy playground playground
  deploy playground hasty --execution-timeout 5000
  # Endpoints without workers, so that a job waits as long as a test needs. Each suite has its own, so
  # that it cannot purge the queue of another suite.
  for suite in python javascript rust; do deploy echo "paused-$suite" --workers-max 0; done
}

key() {
  "$gristmill" keys create --name "$1" --scope "$1" 2>"$temp/key.log" || { cat "$temp/key.log" >&2; return 1; }
}

# run_clients: runs the suites against the host at $GRISTMILL_URL.
run_clients() {
  export NO_PROXY=127.0.0.1 no_proxy=127.0.0.1
  # The first three are settings of the clients.
  export RUNPOD_ENDPOINT_BASE_URL="$GRISTMILL_URL/sdk/v2"
  export RUNPOD_API_URL="$GRISTMILL_URL/sdk/v2"
  export RUNPOD_REST_URL="$GRISTMILL_URL/v1"
  RUNPOD_API_KEY=$(key submit)
  GRISTMILL_MANAGE_KEY=$(key manage)
  export RUNPOD_API_KEY GRISTMILL_MANAGE_KEY
  suite python '^[0-9]+ (passed|failed)' \
    "$clients/.venv/bin/python" -m pytest -q -p no:cacheprovider "$clients/python"
  suite javascript '^# (tests|pass|fail) ' \
    node --test --test-reporter=tap --test-timeout=120000 "$clients"/javascript/*.test.js
  suite rust '^test result' \
    cargo test --locked --manifest-path "$clients/rust/Cargo.toml" --target-dir "$clients/rust/target"
}
