# For scripts that need Go; sets `go`. If the PATH has no Go, or one older than 1.MINOR, Debian's
# Go is unpacked below target, without installing it. Include it with `root`, the repository's directory, set.

# need_go MINOR PACKAGE...: `go` is Go 1.MINOR or newer. PACKAGES are Debian's, used when there is none; without them
# a missing Go is an error.
need_go() {
  minor=$1
  shift
  for go in go "$root"/target/go/usr/lib/go-*/bin/go; do
    command -v "$go" >/dev/null || continue
    "$go" version | awk -v least="$minor" '{ split($3, v, "."); exit !(v[1] > "go1" || v[2] + 0 >= least + 0) }' && return
  done
  mkdir -p "$root/target/go"
  (
    [ $# -gt 0 ] && cd "$root/target/go" && apt-get download "$@" &&
      for package in *.deb; do dpkg -x "$package" . && rm "$package"; done
  ) || { echo "this needs Go 1.$minor or newer" >&2; return 1; }
  # Debian's sources are beside the compiler's directory, and linked to by absolute paths.
  for share in "$root"/target/go/usr/share/go-*; do
    lib=$root/target/go/usr/lib/${share##*/}
    for link in "$lib"/*; do
      [ ! -L "$link" ] || ln -sfn "$share/${link##*/}" "$link"
    done
    go=$lib/bin/go
  done
  "$go" version
}
