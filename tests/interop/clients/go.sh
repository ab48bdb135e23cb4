#!/bin/sh
# Go's net/http against a real host: how it handles answers that are sent before the body was read.
# Usage: go.sh GRISTMILL_BINARY DIRECTORY_OF_COMPONENTS
set -eu

[ $# -eq 2 ] || { sed -n 3s/..//p "$0" >&2; exit 2; }
gristmill=$1
guests=$2
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)

. "$root/tests/scripts/go.sh"
need_go 19 golang-1.19-go golang-1.19-src
(cd "$root/tests/interop/clients/go" && GO111MODULE=off GOCACHE="$root/target/go-cache" "$go" build -o "$root/target/early_answers" early_answers.go)

temp=$(mktemp -d)
host_log=$temp/host.log
. "$root/tests/scripts/host.sh"
trap 'stop_host; rm -rf "$temp"' EXIT
trap 'exit 130' INT TERM
start_host "$temp/data" 127.0.0.1:0
"$gristmill" deploy "$guests/echo.wasm" --name echo
RUNPOD_API_KEY=$("$gristmill" keys create --name submit --scope submit)
export RUNPOD_API_KEY NO_PROXY=127.0.0.1
"$root/target/early_answers"
