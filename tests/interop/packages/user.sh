# What a user does with each file of `make dist`; run.sh includes this file. `root` is the system, `dist` the files.

version=$(basename "$dist"/gristmill_*_amd64.deb | cut -d_ -f2)
version=${version%-1}
text='{"text":"to be or not to be"}'

# step NAME COMMAND…: prints its seconds. `ended` shows the output of a step that fails.
step() {
  step=$1 && shift
  begun=$(date +%s.%N)
  "$@" >"$temp/step.log" 2>&1
  printf '  %-46s %5.1f s\n' "$step" "$(echo "$(date +%s.%N) $begun" | awk '{print $1 - $2}')"
}

ended() {
  outcome=$?
  if [ $outcome -ne 0 ]; then
    cat "$temp/step.log" "$temp"/host.log
    echo "failed: $step"
  fi
  old_system
  rm -rf --one-file-system "$temp"
  exit $outcome
}

# A way from the first command to the first job: `first_command`, its steps, and `first_job_done WAY`.
first_command() { way_begun=$(date +%s); }

first_job_done() {
  seconds=$(($(date +%s) - way_begun))
  printf '  %-46s %5d s\n' "$1: from the first command to the first job" $seconds
  step="$1: the first job within 60 s"
  [ $seconds -le 60 ]
}

# refused WORDS COMMAND…: the command fails, and its output has these words.
refused() {
  words=$1 && shift
  ! "$@" >"$temp/refused.log" 2>&1
  grep -q "$words" "$temp/refused.log"
}

old_system() {
  for special in dev proc sys dist; do umount --recursive "$root/$special" 2>/dev/null || true; done
  rm -rf --one-file-system "$root"
}

new_system() {
  old_system
  mkdir "$root"
  tar --extract --file "$roots/$system.tar" --directory "$root"
  for special in dev proc sys; do mount --rbind "/$special" "$root/$special"; done
  mkdir "$root/dist"
  # Read-only, so that no removal of the system can reach the files.
  mount --bind "$dist" "$root/dist"
  mount --options remount,bind,ro "$root/dist"
  # All users start in this directory, which Debian 13 otherwise keeps from others.
  chroot "$root" useradd --create-home --key HOME_MODE=0755 somebody
  ! chroot "$root" sh -c 'command -v cc gcc rustc cargo'
}

# inside USER COMMAND…: in a clean environment, with the key if a host has written one. `emulated` is a command that runs
# the rest in the user namespace where the kernel emulates ARM64.
inside() {
  user=$1 && shift
  ${exec:-} ${emulated:-} chroot "$root" setpriv --reuid "$user" --regid "$user" --init-groups env --chdir "/home/somebody" -i HOME=/home/somebody \
    PATH="${path:-}/usr/local/bin:/usr/bin:/bin" ${key:+GRISTMILL_API_KEY=$key} "$@"
}

# start USER DATA COMMAND…: a host, until it is ready; its key is then used.
start() {
  user=$1 data=$2 && shift 2
  key=
  # Otherwise the first look may find the line of the host before.
  : >"$temp/host.log"
  # The host takes the place of the shell, so that it gets the signal of `stop`.
  (exec=exec && inside "$user" "$@") >"$temp/host.log" 2>&1 &
  host=$!
  for _ in $(seq 300); do
    ! grep -q "is ready on" "$temp/host.log" || break
    kill -0 $host
    sleep 0.1
  done
  grep -q "is ready on" "$temp/host.log"
  key=$(cat "$root$data/admin.key")
}

stop() {
  kill -TERM $host
  wait $host
}

# counted COMMAND…: the sample counts the words of a job. The command is the program.
counted() {
  "$@" submit word-count --input "$text" --wait >"$temp/output"
  cat "$temp/output"
  grep -q '"words":6' "$temp/output"
}

# first_job COMMAND…: a sample is deployed and runs a job. The command is the program.
first_job() {
  inside somebody "$@" deploy --sample word-count
  counted inside somebody "$@"
}

console() {
  node "$here/console.js" "$(inside somebody gristmill console)" word-count
}

waiting_jobs() {
  inside somebody gristmill endpoints update word-count --paused
  for _ in 1 2 3 4 5; do inside somebody gristmill submit word-count --input "$text"; done >"$temp/jobs"
  [ "$(wc -l <"$temp/jobs")" -eq 5 ]
}

jobs_run() {
  inside somebody gristmill endpoints update word-count --paused=false
  while read -r job; do
    for _ in $(seq 100); do
      ! inside somebody gristmill status word-count "$job" --json | grep -q '"COMPLETED"' || break
      sleep 0.1
    done
    inside somebody gristmill status word-count "$job" --json | grep '"COMPLETED"'
  done <"$temp/jobs"
}

few_jobs=
deb_serve="gristmill serve --config /etc/gristmill/gristmill.toml"

deb() {
  first_command
  step ".deb: install" chroot "$root" dpkg --install "/dist/gristmill_$version-1_amd64.deb"
  step ".deb: start" start gristmill /var/lib/gristmill $deb_serve
  step ".deb: deploy a sample, run a job" first_job gristmill
  first_job_done .deb
  step "client alone: run a job" client
  ! command -v chromium >/dev/null || step ".deb: console in Chromium" console
  step ".deb: manual page, completion" test -s "$root/usr/share/man/man1/gristmill-serve.1.gz" -a \
    -s "$root/usr/share/bash-completion/completions/gristmill"
  step ".deb: jobs wait, the host stops" waiting_jobs
  stop
  newer_deb
  step ".deb: upgrade" chroot "$root" dpkg --install /tmp/newer.deb
  step ".deb: start again" start gristmill /var/lib/gristmill $deb_serve
  step ".deb: the waiting jobs run" jobs_run
  stop
  step ".deb: remove" chroot "$root" dpkg --remove gristmill
  [ ! -e "$root/usr/bin/gristmill" ] && [ -s "$root/var/lib/gristmill/store.db" ]
  step ".deb: purge" chroot "$root" dpkg --purge gristmill
  [ ! -e "$root/var/lib/gristmill" ] && [ ! -e "$root/etc/gristmill" ] && ! grep gristmill "$root/etc/passwd"
  if command -v systemd-nspawn >/dev/null; then
    step ".deb: systemctl enable --now, restart" service
  else
    echo "skipped: the service needs systemd-nspawn (apt install systemd-container)"
  fi
}

client() {
  inside somebody tar xf "/dist/gristmill-client-$version-x86_64-linux.tar.xz"
  counted inside somebody "gristmill-client-$version-x86_64-linux/gristmill-client"
}

newer_deb() {
  rm -rf "$temp/newer"
  dpkg-deb --raw-extract "$dist/gristmill_$version-1_amd64.deb" "$temp/newer"
  sed -i "s/^Version: .*/Version: $version-2/" "$temp/newer/DEBIAN/control"
  dpkg-deb --build --root-owner-group -Znone "$temp/newer" "$root/tmp/newer.deb" >/dev/null
}

rpm_package() {
  command -v rpm >/dev/null || { echo "skipped: .rpm needs rpm (apt install rpm)"; return; }
  package=$dist/gristmill-$version-1.x86_64.rpm
  first_command
  step ".rpm: install" rpm --root "$root" --nodeps --install "$package"
  step ".rpm: start" start gristmill /var/lib/gristmill $deb_serve
  step ".rpm: deploy a sample, run a job" first_job gristmill
  first_job_done .rpm
  stop
  step ".rpm: remove" rpm --root "$root" --nodeps --erase gristmill
  [ ! -e "$root/usr/bin/gristmill" ] && [ -s "$root/var/lib/gristmill/store.db" ]
}

# as_somebody WAY DIRECTORY COMMAND…: a user without rights, who has installed by this way, starts the host from this
# directory, and runs a job with the command.
as_somebody() {
  way=$1 path=$2: && shift 2
  step "$way: start" start somebody /home/somebody/gristmill-data gristmill serve $few_jobs
  step "$way: deploy a sample, run a job" first_job "$@"
  first_job_done "$way"
  stop
  rm -rf "$root/home/somebody/gristmill-data"
  path=
}

wheel() {
  first_command
  step "wheel: install" inside somebody sh -c "python3 -m venv venv && venv/bin/pip install --no-index /dist/gristmill-$version-*x86_64*.whl"
  as_somebody wheel /home/somebody/venv/bin gristmill
}

node_package() {
  # The npm of this machine: that of Debian has 400 packages.
  mkdir -p "$root/usr/local/lib/node_modules"
  cp -r "$(npm root --global)/npm" "$root/usr/local/lib/node_modules"
  ln -sf ../lib/node_modules/npm/bin/npm-cli.js "$root/usr/local/bin/npm"
  ln -sf ../lib/node_modules/npm/bin/npx-cli.js "$root/usr/local/bin/npx"
  first_command
  step "npm: install" inside somebody npm install --offline --no-audit --no-fund \
    "/dist/gristmill-$version.tgz" "/dist/gristmill-linux-x64-$version.tgz"
  as_somebody npm /home/somebody/node_modules/.bin npx --offline gristmill
}

# archive WAY PROCESSOR
archive() {
  name=gristmill-$version-$2-linux
  first_command
  step "$1: unpack" inside somebody tar xf "/dist/$name.tar.xz"
  as_somebody "$1" "/home/somebody/$name" gristmill
}

install_script() {
  step "install.sh" inside somebody env GRISTMILL_RELEASES=/dist sh /dist/install.sh
  inside somebody .local/bin/gristmill --version | grep -q "$version"
  mkdir "$root/tampered"
  cp "$dist/SHA256SUMS" "$root/tampered"
  echo tampered >"$root/tampered/gristmill-$version-x86_64-linux.tar.xz"
  step "install.sh: a changed file is refused" refused "is not the file that SHA256SUMS names" \
    inside somebody env GRISTMILL_RELEASES=/tampered sh /dist/install.sh
}

# `systemctl enable --now` in a real systemd, which is the first process of a container.
service() {
  new_system
  chroot "$root" dpkg --install "/dist/gristmill_$version-1_amd64.deb" >/dev/null
  cat >"$root/usr/local/bin/first-job" <<SCRIPT
#!/bin/sh -ex
systemctl enable --now gristmill
for _ in \$(seq 300); do ! gristmill health || break; sleep 0.1; done
export GRISTMILL_DATA_DIR=/var/lib/gristmill
gristmill deploy --sample word-count
gristmill submit word-count --input '$text' --wait
systemctl restart gristmill
for _ in \$(seq 300); do ! gristmill health || break; sleep 0.1; done
gristmill health word-count
systemctl is-active gristmill
systemctl is-enabled gristmill
SCRIPT
  cat >"$root/etc/systemd/system/first-job.service" <<'UNIT'
[Service]
Type=oneshot
ExecStart=/usr/local/bin/first-job
StandardOutput=file:/first-job.log
StandardError=file:/first-job.log
ExecStopPost=/bin/systemctl --no-block poweroff
[Install]
WantedBy=multi-user.target
UNIT
  chmod +x "$root/usr/local/bin/first-job"
  chroot "$root" systemctl enable first-job.service
  for special in dev proc sys dist; do umount --recursive "$root/$special"; done
  # Its exit status is that of the container, which powers itself off.
  timeout 120 systemd-nspawn --quiet --register=no --keep-unit --private-network --boot --directory "$root" || true
  cat "$root/first-job.log"
  for line in '"words":6' '1 completed' '^active$' '^enabled$'; do grep -q "$line" "$root/first-job.log"; done
}

image() {
  command -v buildah >/dev/null || { echo "skipped: the image needs buildah (apt install buildah)"; return; }
  container=$(images from --quiet "oci-archive:$dist/gristmill-$version-image.tar")
  step "image: the host is healthy, runs a job" in_container
}

# images COMMAND…: buildah, with a store that ends with the test.
images() {
  BUILDAH_ISOLATION=chroot buildah --storage-driver vfs --root "$temp/images" --runroot "$temp/images-run" "$@"
}

in_container() {
  images run "$container" -- /usr/bin/gristmill serve >"$temp/host.log" 2>&1 &
  runner=$!
  for _ in $(seq 300); do ! images run "$container" -- /usr/bin/gristmill health || break; sleep 0.1; done
  images run "$container" -- /usr/bin/gristmill deploy --sample word-count
  counted images run "$container" -- /usr/bin/gristmill
  # buildah does not pass a signal on.
  kill -TERM "$(pidof gristmill)"
  wait $runner
}

# The programs for ARM64 run under an emulator. The kernel starts it for each of their files, so a host can start its own
# file, which compiles handlers. The list of such files belongs to a user namespace: that of the machine does not change.
arm64() {
  format=/usr/lib/binfmt.d/qemu-aarch64.conf
  [ -f $format ] || { echo "skipped: ARM64 needs $format (apt install qemu-user-static)"; return; }
  [ -f "$dist/gristmill-$version-aarch64-linux.tar.xz" ] || { echo "skipped: there are no files for ARM64"; return; }
  new_system
  unshare --user --mount sleep infinity &
  emulated="nsenter --target $! --user --mount"
  for map in uid_map gid_map; do
    for _ in $(seq 100); do ! echo "0 0 65536" 2>/dev/null >"/proc/$!/$map" || break; sleep 0.1; done
  done
  formats=/proc/sys/fs/binfmt_misc
  if ! $emulated sh -c "mount -t binfmt_misc binfmt_misc $formats && cat $format >$formats/register"; then
    echo "skipped: ARM64 needs Linux 6.7 or newer, which has a list of formats for each user namespace"
    return
  fi
  emulated="nsenter --target $! --user"
  # The emulator takes 6 MiB of memory for each GiB of addresses that a host reserves for its sandboxes.
  few_jobs="--max-running-jobs 8"
  archive "ARM64 archive" aarch64
  chroot "$root" dpkg --add-architecture arm64
  first_command
  step "ARM64 .deb: install" chroot "$root" dpkg --install "/dist/gristmill_$version-1_arm64.deb"
  step "ARM64 .deb: start" start gristmill /var/lib/gristmill $deb_serve $few_jobs
  step "ARM64 .deb: deploy a sample, run a job" first_job gristmill
  first_job_done "ARM64 .deb"
  stop
  emulated=
  few_jobs=
}
