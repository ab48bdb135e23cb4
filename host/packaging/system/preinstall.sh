#!/bin/sh
# The user of the service owns files of the package, so it is made before they are unpacked.
set -e
getent group gristmill >/dev/null || groupadd --system gristmill
getent passwd gristmill >/dev/null || useradd --system --gid gristmill --home-dir /var/lib/gristmill \
  --no-create-home --shell /usr/sbin/nologin --comment Gristmill gristmill
