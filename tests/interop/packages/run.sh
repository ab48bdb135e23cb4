#!/bin/sh
# Each file of `make dist`, installed in a Debian without compiler and network, up to the first job. Prints the seconds
# of each step. Needs root, mmdebstrap, iproute2 and, for all parts, chromium, buildah, rpm, systemd-container and
# qemu-user-static.
# Usage: run.sh DIST [SYSTEM…]
set -eu

[ $# -ge 1 ] || { sed -n 5s/..//p "$0" >&2; exit 2; }
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
case "$1" in
  --alone) shift ;;
  *)
    dist=$(CDPATH='' cd -- "$1" && pwd) && shift
    [ "$(id -u)" -eq 0 ] || { echo "the tests of packages need root, for systems of their own" >&2; exit 2; }
    roots=$here/../../../target/packages
    mkdir -p "$roots"
    [ $# -gt 0 ] || set -- bookworm trixie
    for system; do
      [ -f "$roots/$system.tar" ] || mmdebstrap --quiet --variant=minbase --mode=root --dpkgopt=force-unsafe-io \
        --include=nodejs,python3-venv,systemd,systemd-sysv,xz-utils "$system" "$roots/$system.tar"
    done
    [ -d "$here/../console/node_modules" ] || npm --prefix "$here/../console" ci --no-audit --no-fund >/dev/null
    # From here on loopback is the only network, and no process outlives the test.
    exec unshare --net --mount --pid --fork --kill-child "$here/run.sh" --alone "$dist" "$roots" "$@"
    ;;
esac
dist=$1 roots=$2
shift 2
mount -t proc proc /proc
ip link set lo up

temp=$(mktemp -d)
root=$temp/root
. "$here/user.sh"
trap ended EXIT

for system; do
  echo "$system:"
  new_system
  deb
  new_system
  rpm_package
  new_system
  wheel
  node_package
  archive archive x86_64
  install_script
done
echo "image:"
image
echo "ARM64, under an emulator:"
arm64
echo "ok"
