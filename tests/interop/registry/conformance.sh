#!/bin/sh
# The test suite of the OCI distribution specification, unmodified, against a real host. The build needs Go 1.24, or Go 1.21
# with the network, which fetches a newer one. OCI_SUITE=PROGRAM runs a suite that was built before.
# Usage: conformance.sh GRISTMILL_BINARY
set -eu

[ $# -eq 1 ] || { sed -n 4s/..//p "$0" >&2; exit 2; }
gristmill=$1
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
commit=967efdc079b91785ad18c77cc4f8991a47feefbf
folder=$root/target/oci-conformance
suite=${OCI_SUITE:-$folder/suite-$commit}

if [ ! -x "$suite" ]; then
  . "$root/tests/scripts/go.sh"
  need_go 21
  mkdir -p "$folder"
  [ -d "$folder/source" ] || git init --quiet "$folder/source"
  git -C "$folder/source" fetch --quiet --depth 1 https://github.com/opencontainers/distribution-spec "$commit"
  git -C "$folder/source" checkout --quiet "$commit"
  (cd "$folder/source/conformance" && GOTOOLCHAIN=auto "$go" build -o "$suite" .)
fi

temp=$(mktemp -d)
host_log=$temp/host.log
. "$root/tests/scripts/host.sh"
trap 'stop_host; rm -rf "$temp"' EXIT
trap 'exit 130' INT TERM
start_host "$temp/data" 127.0.0.1:0

export OCI_VERSION=1.1 OCI_REGISTRY="$address" OCI_TLS=disabled OCI_REPO1=conformance1 OCI_REPO2=conformance2
export OCI_USERNAME=any OCI_RESULTS_DIR="$folder/results" NO_PROXY=127.0.0.1
OCI_PASSWORD=$(cat "$GRISTMILL_DATA_DIR/admin.key")
export OCI_PASSWORD
# The suite cannot find out that a registry supports only SHA-256.
export OCI_DATA_SHA512=false
rm -rf "$OCI_RESULTS_DIR"
mkdir -p "$OCI_RESULTS_DIR"
# The suite ends with 1 because of the deliberate differences; the report lists all failures.
"$suite" >"$OCI_RESULTS_DIR/output.txt" 2>&1 || true
python3 "$root/tests/interop/registry/conformance.py" "$OCI_RESULTS_DIR/junit.xml"
