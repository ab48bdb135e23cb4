#!/bin/sh
# Writes host/console/assets/vendor from the packages of npm, in pinned versions. Usage: vendor.sh
# The result is committed; the hashes in VENDORED.md show that it was not edited.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
vendor=$here/../../../host/console/assets/vendor
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT
mkdir -p "$vendor"

# fetch PACKAGE VERSION: unpacks it into $temp/PACKAGE.
fetch() {
  mkdir -p "$temp/$1"
  archive=$(cd "$temp" && npm pack --silent "$1@$2")
  tar xzf "$temp/$archive" -C "$temp/$1" --strip-components=1
}
# take PACKAGE FILE NAME: copies a module, with a first line that keeps the type checker out of it. Bare names of modules become relative ones, since an import
# map would be an inline script, and the comment that names a source map goes.
take() {
  sed -e 's#"preact/hooks"#"./hooks.js"#g; s#"preact"#"./preact.js"#g; s#"@preact/signals-core"#"./signals-core.js"#g' \
    -e '1s#^#// @ts-nocheck\n#' -e '/^\/\/# sourceMappingURL/d' "$temp/$1/$2" >"$vendor/$3"
}

fetch preact 11.2.0
fetch htm 3.1.1
fetch @preact/signals-core 1.14.5
fetch @preact/signals 2.11.4
fetch uplot 1.6.32
take preact dist/preact.mjs preact.js
take preact hooks/dist/hooks.mjs hooks.js
take htm dist/htm.module.js htm.js
take @preact/signals-core dist/signals-core.mjs signals-core.js
take @preact/signals dist/signals.mjs signals.js
# uPlot's small build is a script; the last line makes a module of it.
take uplot dist/uPlot.iife.min.js uplot.js
printf '\nexport default uPlot;\n' >>"$vendor/uplot.js"
cp "$temp/uplot/dist/uPlot.min.css" "$vendor/uplot.css"
for package in preact htm @preact/signals-core @preact/signals uplot; do
  printf '%s\n\n' "== $package"
  cat "$temp/$package/LICENSE"
  printf '\n'
done >"$vendor/LICENSES.txt"
(cd "$vendor" && sha256sum ./*.js ./*.css LICENSES.txt)
