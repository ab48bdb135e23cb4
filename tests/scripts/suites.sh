# For scripts that run test suites of other languages against a host. A script sets `tests` (the name
# of the suites), `gristmill` (the binary) and `here` (its directory), and then includes this file,
# which includes host.sh.

missing=
# need COMMAND VERSION TEST...: notes when COMMAND is missing or the test of its version fails.
need() {
  tool=$1 version=$2
  shift 2
  if ! command -v "$tool" >/dev/null || ! "$@" >/dev/null 2>&1; then
    echo "the $tests tests need $tool $version" >&2
    missing=1
  fi
}

# need_languages MINOR: Python 3.MINOR or newer, Node, and the host's binary; fails if one of the needed
# programs is missing.
need_languages() {
  need python3 "3.$1 or newer, with venv" python3 -c "import sys, ensurepip; sys.exit(sys.version_info < (3, $1))"
  need node "20.11 or newer" node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 20 || (a == 20 && b >= 11) ? 0 : 1)'
  need npm "with node" npm --version
  [ -x "$gristmill" ] || { echo "no such program: $gristmill" >&2; missing=1; }
  [ -z "$missing" ] || exit 1
}

temp=$(mktemp -d)
host_log=$temp/host.log
# Suites call the management API faster than an operator would.
export GRISTMILL_CONFIG="$here/../../src/host.toml"
. "$here/../../scripts/host.sh"
trap 'stop_host; rm -rf "$temp"' EXIT
trap 'exit 130' INT TERM

# logged NAME COMMAND...: the command's output goes to a file, which is shown when the command fails.
logged() {
  log=$temp/$1.log
  shift
  "$@" >"$log" 2>&1 || { cat "$log"; return 1; }
}

failed=
# suite NAME CLOSING COMMAND...: runs a suite and shows the lines of its output that match CLOSING.
suite() {
  name=$1 closing=$2
  shift 2
  if logged "$name" "$@"; then :; else failed="$failed $name"; fi
  grep -E "$closing" "$log" | sed "s/^/$name: /" || true
}

# finish: ends the script, with 1 when a suite failed.
finish() {
  [ -n "$failed" ] || exit 0
  echo "failed:$failed"
  [ ! -s "$host_log" ] || { echo "the host's log ends with:"; tail -n 50 "$host_log"; }
  exit 1
}
