#!/bin/sh
# The guest SDKs of Python and JavaScript: their own tests, then components of real handlers in a
# real host. Usage: run.sh GRISTMILL_BINARY DIRECTORY_OF_COMPONENTS
set -eu

[ $# -eq 2 ] || { sed -n 3s/..//p "$0" >&2; exit 2; }
gristmill=$1
guests=$2
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(CDPATH='' cd -- "$here/../../.." && pwd)
sdk=$root/guest-sdk
built=$here/built

tests=guest
. "$here/../../scripts/suites.sh"
need_languages 11

# digest PATH...: the digest of all source files below these paths.
digest() {
  find "$@" -type f ! -path '*/node_modules/*' ! -path '*_cache*/*' ! -name '*.wasm' ! -name '*.md' -print0 | sort -z | xargs -0 sha256sum | sha256sum
}

# unless_same FILE DIGEST COMMAND...: runs the command, unless it ran for this digest before.
unless_same() {
  mark=$1 now=$2
  shift 2
  [ "$now" != "$(cat "$mark" 2>/dev/null)" ] || return 0
  rm -f "$mark"
  "$@"
  echo "$now" >"$mark"
}

install_python() {
  rm -rf "$here/.venv"
  python3 -m venv "$here/.venv"
  # The SDK from a wheel, as its users install it.
  set -- -r "$here/python/requirements.txt" -r "$here/python/libraries/requirements.txt" -c "$here/python/constraints.txt"
  for requirements in "$root"/handlers/python/*/requirements.txt; do set -- "$@" -r "$requirements"; done
  logged pip "$here/.venv/bin/pip" install "$sdk/python[build]" "$@"
}
# The SDK's own lock file names the builds of its engine for all platforms, so `npm ci` accepts it. For
# the others `npm ci` fails on a registry that lacks some builds; `install --no-save` keeps to the lock
# file too, and does not write it.
install_javascript() {
  way="install --no-save"
  [ "$1" != "$sdk/javascript" ] || way=ci
  # shellcheck disable=SC2086 # the words are separate arguments
  logged npm npm --prefix "$1" $way --no-audit --no-fund
}

echo "installing the toolchains"
mkdir -p "$built"
unless_same "$here/.venv/.same" "$(digest "$sdk/python" "$root/wit" "$root"/handlers/python/*/*.txt "$here"/python/*.txt "$here"/python/libraries/*.txt)" install_python
for directory in "$sdk/javascript" "$root/handlers/javascript" "$here/javascript"; do
  [ -d "$directory/node_modules" ] || rm -f "$directory/node_modules/.same"
  unless_same "$directory/node_modules/.same" "$(digest "$directory/package-lock.json")" install_javascript "$directory"
done
python=$here/.venv/bin/python

in_directory() ( cd "$1" && shift && "$@" )

suite python-sdk '^(Ran|FAILED)' "$python" -m unittest discover -s "$sdk/python/tests"
suite python-types '^(Success|Found)' in_directory "$sdk/python" "$python" -m mypy --cache-dir "$built/.mypy"
suite sdk-reference '^(Ran|FAILED|FAIL)' "$python" "$here/test_sdk_reference.py"
for handler in "$root"/handlers/python/*/; do
  suite "python-$(basename "$handler")" '^(Ran|FAILED)' in_directory "$handler" "$python" -m unittest
done
export GRISTMILL="$gristmill"
suite python-builds '^(Ran|FAILED|FAIL)' "$python" "$here/test_builds.py"
suite javascript-sdk '^# (tests|fail) ' node --test --test-reporter=tap "$sdk"/javascript/test/*.test.js
suite javascript-types 'error' "$here/javascript/node_modules/.bin/tsc" --project "$here/javascript"
suite javascript-handlers '^# (tests|fail) ' in_directory "$root/handlers/javascript" \
  node --import gristmill-sdk/typescript --test --test-reporter=tap

# component NAME SDK SOURCE COMMAND...: builds built/NAME.wasm with the command and `-o`, if SOURCE,
# the SDK or the WIT file have changed since the last build.
component() {
  name=$1 language=$2 source=$3
  shift 3
  unless_same "$built/$name.digest" "$(digest "$source" "$sdk/$language" "$root/wit")" \
    compile "$name" "$@" "$source" -o "$built/$name.wasm"
}
compile() {
  name=$1
  shift
  began=$(date +%s)
  logged "$name" "$@"
  echo "built $name in $(($(date +%s) - began)) s, $(($(wc -c <"$built/$name.wasm") / 1000)) kB"
}
running=
# also COMMAND...: runs the command beside one other: each of these builds uses a single core.
also() {
  "$@" &
  # shellcheck disable=SC2086 # process ids
  set -- $running $!
  if [ $# -eq 2 ]; then
    wait "$1"
    shift
  fi
  running=$1
}
for name in token-stream sql llm-proxy form; do
  also component "python-$name" python "$root/handlers/python/$name" "$python" -m gristmill.build
done
also component python-features python "$here/python/features" "$python" -m gristmill.build
also component python-libraries python "$here/python/libraries" "$python" -m gristmill.build
# Public handlers for the hosted services' worker, with another import.
[ -d "$built/runpod" ] || logged runpod-workers "$python" "$here/runpod_workers.py" "$built/runpod"
for name in simple concurrent starter; do
  also component "runpod-$name" python "$built/runpod/$name" "$python" -m gristmill.build
done
build() { node "$sdk/javascript/build.js" build "$@"; }
for name in token-stream markdown llm-proxy webhooks; do
  also component "javascript-$name" javascript "$root/handlers/javascript/$name" build
done
also component javascript-platform javascript "$here/javascript/platform" build
also component javascript-openai javascript "$here/javascript/openai" build
also component quickjs-features javascript "$here/javascript/features" build
# Built by `gristmill build`; the project file names the component's path.
build_project() { "$gristmill" build "$1" --engine starlingmonkey; }
also component starlingmonkey-features javascript "$here/javascript/features" build_project
wait "$running"

export NO_PROXY=127.0.0.1 no_proxy=127.0.0.1
start_host "$temp/data" 127.0.0.1:0
GRISTMILL_API_KEY=$(cat "$GRISTMILL_DATA_DIR/admin.key")
GRISTMILL_BUILT=$built
export GRISTMILL_API_KEY GRISTMILL_BUILT
deploy() {
  began=$(date +%s)
  file=$1 name=$2
  shift 2
  logged deploy "$gristmill" deploy "$file" --name "$name" --env MILL=stone "$@"
  seconds=$(($(date +%s) - began))
  [ $seconds -lt 5 ] || echo "deployed $name in $seconds s"
}
for file in "$built"/*.wasm; do deploy "$file" "$(basename "$file" .wasm)" --call-endpoint rust-token-stream; done
for file in "$built"/*-features.wasm; do deploy "$file" "$(basename "$file" .wasm)-reused" --workers-max 1 --reuse 100; done
deploy "$guests/token_stream.wasm" rust-token-stream
suite components '^(Ran|FAILED|ERROR|FAIL)' "$python" "$here/test_components.py"
suite javascript-components '^(not ok|# (tests|fail) )' node --test --test-reporter=tap "$here"/javascript/*.test.js
suite python-libraries '^(Ran|FAILED|ERROR|FAIL)' "$python" "$here/test_libraries.py"

# One file of cases for a handler in three languages, here and deployed.
cases() {
  language=$1
  shift
  suite "$language-cases" '^([0-9]+ passed|FAIL)' "$gristmill" test --cases "$root/handlers/token-stream/tests.json" "$@"
}
cases rust "$guests/token_stream.wasm"
for language in python javascript; do cases "$language" "$built/$language-token-stream.wasm"; done
for language in rust python javascript; do cases "$language" --endpoint "$language-token-stream"; done

# Requests of HTTP, in the sandbox and from a host.
webhooks=$root/handlers/javascript/webhooks/tests.json
suite http-cases '^([0-9]+ passed|FAIL)' "$gristmill" test "$built/javascript-webhooks.wasm" --cases "$webhooks"
suite http-form '<h1>|error' "$gristmill" run "$built/python-form.wasm"

# The commands of docs/guides/handlers-*.md, word for word:
mkdir "$temp/bin"
ln -s "$(realpath "$gristmill")" "$temp/bin/gristmill"
guide() {
  language=$1
  sed -n "/<!-- guide: $language -->/,/^\`\`\`\$/p" "$root/docs/guides/handlers-$language.md" | sed '1,2d;$d' >"$temp/guide.sh"
  [ "$(wc -l <"$temp/guide.sh")" -lt 11 ] || { echo "the guide for $language is long"; return 1; }
  mkdir "$temp/$language"
  ( cd "$temp/$language" && PATH="$temp/bin:$PATH" sh -eu "$temp/guide.sh" )
}
for language in python javascript; do
  began=$(date +%s)
  suite "$language-guide" '^([0-9]+ passed|Ran|.*error|\{"words":6\})' guide "$language"
  ! grep -q "install scripts not yet covered" "$log" || failed="$failed $language-guide-warnings"
  tail -n 1 "$log" | grep -qx '{"words":6}' || failed="$failed $language-guide-answer"
  echo "$language: from nothing to an endpoint in $(($(date +%s) - began)) s"
done

# The commands of each README.md:
suite readmes '^(Ran|FAILED|FAIL|ERROR)' "$python" "$here/test_readmes.py"

finish
