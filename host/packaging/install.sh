#!/bin/sh
# Installs the program `gristmill` without root: to ~/.local/bin, or to the directory that GRISTMILL_BIN names.
# GRISTMILL_RELEASES is the address, or the directory, of the files of a release; with minisign installed,
# GRISTMILL_PUBLIC_KEY (the key of the releases) checks their signature too.
set -eu

version=@VERSION@
releases=${GRISTMILL_RELEASES:-@RELEASES@}
bin=${GRISTMILL_BIN:-$HOME/.local/bin}

fail() {
  echo "error: $1" >&2
  exit 1
}

[ -n "$releases" ] || fail "set GRISTMILL_RELEASES to the address or the directory of the release's files"
[ "$(uname -s)" = Linux ] || fail "Gristmill runs on Linux, not on $(uname -s): use a virtual machine or a container"
case "$(uname -m)" in
  x86_64 | amd64) arch=x86_64 ;;
  aarch64 | arm64) arch=aarch64 ;;
  *) fail "there is no program for the processor $(uname -m), only for x86_64 and aarch64" ;;
esac
for program in sha256sum tar xz; do
  command -v "$program" >/dev/null || fail "\`$program\` is needed: install it (Debian: apt install xz-utils coreutils tar)"
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# get FILE: from a directory, or over the network.
get() {
  if [ -d "$releases" ]; then
    cp "$releases/$1" "$work/$1" || fail "there is no $releases/$1"
  elif command -v curl >/dev/null; then
    curl --fail --silent --show-error --location --output "$work/$1" "$releases/$1" || fail "cannot get $releases/$1"
  else
    wget --quiet --output-document "$work/$1" "$releases/$1" || fail "cannot get $releases/$1"
  fi
}

name=gristmill-$version-$arch-linux
get SHA256SUMS
if [ -n "${GRISTMILL_PUBLIC_KEY:-}" ]; then
  command -v minisign >/dev/null || fail "GRISTMILL_PUBLIC_KEY needs \`minisign\`: install it, or unset the variable"
  get SHA256SUMS.minisig
  minisign -V -q -P "$GRISTMILL_PUBLIC_KEY" -m "$work/SHA256SUMS" || fail "the sums are not signed with GRISTMILL_PUBLIC_KEY"
fi
get "$name.tar.xz"
(cd "$work" && grep " $name.tar.xz\$" SHA256SUMS | sha256sum --check --status -) ||
  fail "$name.tar.xz is not the file that SHA256SUMS names: try again, and report it if it happens again"
tar --extract --file "$work/$name.tar.xz" --directory "$work"
mkdir -p "$bin"
# A running program keeps its file; the new one takes its name.
mv "$work/$name/gristmill" "$bin/.gristmill.new" && mv "$bin/.gristmill.new" "$bin/gristmill"

echo "installed gristmill $version to $bin"
case ":$PATH:" in
  *":$bin:"*) ;;
  *) echo "add it to the path: export PATH=\"$bin:\$PATH\"" ;;
esac
echo "next: gristmill serve"
