#!/bin/sh
# Components of other people, unmodified, as HTTP endpoints of a real host. Those of crates.io are built
# here; README.md has the way to build others, which are read from DIRECTORY. H2SPEC=PROGRAM tests both
# listeners with h2spec as well.
# Usage: run.sh GRISTMILL_BINARY [DIRECTORY]
set -eu

[ $# -ge 1 ] && [ $# -le 2 ] || { sed -n 5s/..//p "$0" >&2; exit 2; }
gristmill=$1
others=${2:-}
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(CDPATH='' cd -- "$here/../../.." && pwd)
cargo=${CARGO:-cargo}

tests=http
. "$here/../../scripts/suites.sh"
need python3 "3.10 or newer" python3 -c "import sys; sys.exit(sys.version_info < (3, 10))"
[ -x "$gristmill" ] || { echo "no such program: $gristmill" >&2; missing=1; }
[ -z "$missing" ] || exit 1

# The manifest names its sources below this folder; cargo knows where the crates are.
folder=$root/target/http-components
mkdir -p "$folder/sources"
if ! "$cargo" metadata --locked --format-version 1 --filter-platform wasm32-wasip2 \
  --manifest-path "$here/components/Cargo.toml" >"$temp/metadata.json" 2>"$temp/cargo.log"; then
  cat "$temp/cargo.log" >&2
  echo "skipped: the components need crates of crates.io"
  exit 0
fi
python3 "$here/sources.py" "$folder/sources" <"$temp/metadata.json"
echo "building components"
logged build "$cargo" build --locked --bins --examples --target wasm32-wasip2 \
  --manifest-path "$here/components/Cargo.toml" --target-dir "$folder/build"

echo "starting a host"
export NO_PROXY=127.0.0.1 no_proxy=127.0.0.1
start_host "$temp/data" 127.0.0.1:0 --http-listen 127.0.0.1:0 --http-domain localhost
HTTP_ADDRESS=$(sed 's/.*"httpAddr":"\([^"]*\)".*/\1/' "$ready")
GRISTMILL_API_KEY=$(cat "$GRISTMILL_DATA_DIR/admin.key")
python3 "$here/upstream.py" >"$temp/upstream" &
upstream_pid=$!
trap 'stop_host; kill "$upstream_pid" 2>/dev/null || true; rm -rf "$temp"' EXIT
until [ -s "$temp/upstream" ]; do
  kill -0 "$upstream_pid"
  sleep 0.1
done
HTTP_UPSTREAM=$(cat "$temp/upstream")
HTTP_DEPLOYED=
export HTTP_ADDRESS HTTP_UPSTREAM GRISTMILL_API_KEY

# deploy FILE NAME OPTION...
deploy() {
  file=$1 name=$2
  shift 2
  logged "$name" "$gristmill" deploy "$file" --name "$name" "$@"
  HTTP_DEPLOYED="$HTTP_DEPLOYED $name"
}
built=$folder/build/wasm32-wasip2/debug
deploy "$built/wstd-http-server.wasm" wstd-http-server
deploy "$built/wstd-axum-hello-world.wasm" wstd-axum-hello-world
for example in wasi-http-proxy wasip2-http-proxy wasip2-http-proxy-no-std; do
  deploy "$built/examples/$(echo $example | tr - _).wasm" $example
done
# The proxy has no key for its target.
logged public "$gristmill" endpoints update wstd-http-server --public
deploy "$built/wstd-http-server-proxy.wasm" wstd-http-server-proxy --allow-host "$address" \
  --env "TARGET_URL=$GRISTMILL_URL/http/wstd-http-server/"
for file in ${others:+"$others"/*.wasm}; do
  name=$(basename "$file" .wasm)
  case $name in
  p2-cli-serve-echo-env) deploy "$file" "$name" --env FOO=bar ;;
  p2-cli-serve-sleep) deploy "$file" "$name" --execution-timeout 5000 ;;
  p2-cli-serve-config | p2-cli-serve-keyvalue)
    # The host has no such interfaces.
    if logged "$name" "$gristmill" deploy "$file" --name "$name" >/dev/null; then failed="$failed $name"; fi ;;
  py-http | p2-api-proxy-streaming | p2-api-proxy-forward-request)
    deploy "$file" "$name" --allow-host "$HTTP_UPSTREAM" ;;
  *) deploy "$file" "$name" ;;
  esac
done
export HTTP_DEPLOYED

export PYTHONDONTWRITEBYTECODE=1
[ -z "${H2SPEC:-}" ] || suite h2spec 'tests, ' python3 "$here/h2spec.py" "$H2SPEC"
cd "$here"
suite crates '^(Ran |OK|FAILED)' python3 -m unittest test_crates
[ -z "$others" ] || suite sources '^(Ran |OK|FAILED)' python3 -m unittest test_sources test_wasmtime

finish
