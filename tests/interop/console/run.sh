#!/bin/sh
# The web console in a real Chromium, against a real host; the types and the sizes of its files.
# Usage: run.sh GRISTMILL_BINARY DIRECTORY_OF_COMPONENTS
set -eu

[ $# -eq 2 ] || { sed -n 3s/..//p "$0" >&2; exit 2; }
gristmill=$1
guests=$2
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)

tests=console
. "$here/../../scripts/suites.sh"
need_languages 10

if ! cmp -s "$here/package-lock.json" "$here/node_modules/installed"; then
  echo "installing the tools"
  logged npm npm --prefix "$here" ci --no-audit --no-fund
  cp "$here/package-lock.json" "$here/node_modules/installed"
fi

[ -n "${GRISTMILL_SCREENSHOTS:-}${GRISTMILL_CONSOLE_IDLE:-}" ] || suite types 'error' "$here/node_modules/.bin/tsc" --project "$here"
[ -n "${GRISTMILL_SCREENSHOTS:-}${GRISTMILL_CONSOLE_IDLE:-}" ] || suite files '^# (tests|pass|fail) ' node --test --test-reporter=tap "$here/json.test.js" "$here/schema.test.js" "$here/env.test.js" "$here/format.test.js" "$here/markdown.test.js" "$here/files.test.js"

GRISTMILL_CHROMIUM=${GRISTMILL_CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)}
export GRISTMILL_CHROMIUM
if [ -z "$GRISTMILL_CHROMIUM" ]; then
  echo "skipped: the browser tests of the console need Chromium (apt-get install chromium)"
  finish
fi

export NO_PROXY=127.0.0.1 no_proxy=127.0.0.1
start_host "$temp/data" 127.0.0.1:0
GRISTMILL_ADMIN_KEY=$(cat "$GRISTMILL_DATA_DIR/admin.key")
GRISTMILL_COMPONENTS=$(cd "$guests" && pwd)
GRISTMILL=$gristmill
export GRISTMILL GRISTMILL_ADMIN_KEY GRISTMILL_COMPONENTS
if [ -n "${GRISTMILL_SCREENSHOTS:-}" ]; then
  node "$here/screenshots.js" "$GRISTMILL_SCREENSHOTS" "${GRISTMILL_SCREENSHOTS_SECONDS:-240}"
  finish
fi
if [ -n "${GRISTMILL_CONSOLE_IDLE:-}" ]; then
  logged deploy "$gristmill" deploy "$guests/echo.wasm" --name echo
  node "$here/idle.js" "$host_pid" "$GRISTMILL_CONSOLE_IDLE"
  finish
fi
deploy() { file=$1; shift; logged deploy "$gristmill" deploy "$guests/$file.wasm" --name "$@"; }
deploy playground playground
deploy echo echo
deploy chat chat
deploy token_stream token-stream
suite browser '^(# (tests|pass|fail|first paint|the page was busy|.*busy for) |not ok)' node --test --test-reporter=tap --test-concurrency=1 --test-timeout=600000 "$here"/browser/*.test.js

finish
