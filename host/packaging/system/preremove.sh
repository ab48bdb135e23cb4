#!/bin/sh
# Debian calls this with `remove` or `upgrade`; rpm with the number of versions that will be left.
set -e
case "$1" in
  remove | 0) [ ! -d /run/systemd/system ] || systemctl disable --now gristmill ;;
esac
