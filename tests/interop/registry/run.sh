#!/bin/sh
# Fetches Debian's docker-registry, without installing it, and runs the test of the host against it: an image is pushed
# to a registry that is not ours and fetched from it, with a password and without.
set -eu
here=$(cd "$(dirname "$0")/../../.." && pwd)
folder=$here/target/foreign-registry
mkdir -p "$folder"
if [ ! -x "$folder/usr/bin/docker-registry" ]; then
  (cd "$folder" && apt-get download docker-registry && dpkg -x docker-registry_*.deb .)
fi
export GRISTMILL_FOREIGN_REGISTRY="$folder/usr/bin/docker-registry"
cd "$here" && exec "${CARGO:-cargo}" test --locked -p gristmill-tests --test e2e -- --ignored --nocapture a_foreign_registry
