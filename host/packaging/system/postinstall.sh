#!/bin/sh
# Debian calls this with `configure` and the old version, which is empty for a first installation; rpm with the number
# of versions that are installed.
set -e
install -d -m 0700 -o gristmill -g gristmill /var/lib/gristmill
[ ! -d /run/systemd/system ] || systemctl daemon-reload
case "$1 $2" in
  "configure "?* | [2-9]*)
    [ ! -d /run/systemd/system ] || systemctl try-restart gristmill
    ;;
  *)
    echo "start Gristmill: systemctl enable --now gristmill; its first key: /var/lib/gristmill/admin.key"
    ;;
esac
