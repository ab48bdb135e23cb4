#!/bin/sh
# Only Debian's `purge` removes data. Other removals keep the jobs and keys, for the next installation.
set -e
[ ! -d /run/systemd/system ] || systemctl daemon-reload
case "$1" in
  purge)
    rm -rf /var/lib/gristmill
    rmdir --ignore-fail-on-non-empty /etc/gristmill 2>/dev/null || true
    getent passwd gristmill >/dev/null && userdel gristmill
    ! getent group gristmill >/dev/null || groupdel gristmill
    ;;
esac
