# Entry points for users and CI. Each target installs its dependencies, or names them if it is not allowed to.

PREFIX ?= /usr/local
CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
# Further options of the measurements, such as BENCH="--json --rounds 5".
BENCH ?=
# Options of `make advice`, such as ADVICE="--only btio --times 9".
ADVICE ?=
# Build of the library and of the servers for the Python package: release or debug.
PYTHON_PROFILE ?= release
# Packages of `make test` beside the library: together with them, cargo reuses what it has built for `make test`.
python_build = $(CARGO) build $(if $(filter release,$(PYTHON_PROFILE)),--release) -p weft-capi
python_servers = -p weft-cli -p weft-preload
# Options of `make python-test` (pytest) and `make python-bench`, such as PYTHON_OPTIONS="-k locks".
PYTHON_OPTIONS ?=
# Seed of random tests, so that an unchanged tree passes again.
export PROPTEST_RNG_SEED ?= 1

.PHONY: all demo test fuzz bench ibridge delegates tracing plan advice replicas lint install uninstall monitoring bare python python-test \
	python-bench deps clean help

all: ## Build the command and the preload library (release)
	@scripts/deps.sh build
	$(CARGO) build --release -p weft-cli -p weft-preload -p weft-capi

demo: ## Two unmodified MPI programs on four servers, checked, with the layout shown
	@scripts/deps.sh demo
	@scripts/demo.sh

test: ## All tests, including those with MPI, FUSE and network namespaces, with an empty home directory
	@scripts/deps.sh test
	$(CARGO) build -p weft-cli -p weft-preload
	scripts/isolated.py $(CARGO) test --workspace --lib --bins --tests
	scripts/isolated.py $(CARGO) test --workspace --doc
	scripts/isolated.py $(CARGO) test -p weft-twin -p weft-store -p weft-client \
		--features weft-twin/mutants,weft-store/mutants,weft-client/mutants \
		--test search_mutants --test sealed_reads --test compressed --test replicas
	scripts/isolated.py $(CARGO) test -p weft-client --features weft-client/mutants --test all seeded_bugs
	$(if $(WEFT_SKIP_PYTHON),@echo "weft: tests of the Python package skipped: WEFT_SKIP_PYTHON is set",$(MAKE) python-test PYTHON_PROFILE=debug)

fuzz: export WEFT_FUZZ_SEED ?= fresh
fuzz: export WEFT_FUZZ_SECONDS ?= 20
fuzz: ## Fuzz all decoders with fresh seeds (a few minutes)
	@scripts/deps.sh build
	$(CARGO) test -p weft-fuzz

bench: ## Measurements, as ratios to the plain local directory in the same run
	@scripts/deps.sh bench
	$(CARGO) build --release -p weft-cli -p weft-preload
	@scripts/bench.sh $(BENCH)

ibridge: ## Gain (emulated devices) and cost (plain directories) of SSDs; scripts/ibridge.sh profiles: gain by disk
	@scripts/deps.sh bench
	$(CARGO) build --release -p weft-cli -p weft-preload
	@scripts/ibridge.sh gain $(BENCH)
	@scripts/ibridge.sh cost $(BENCH)

delegates: ## MPI programs with and without I/O delegates: a local directory, Weft, GlusterFS; alternating runs
	@scripts/deps.sh bench distributed
	$(CARGO) build --release -p weft-cli -p weft-preload
	@scripts/delegates.py $(BENCH)

tracing: ## Cost of tracing: single calls, and alternating processes with and without tracing
	@scripts/deps.sh bench
	$(CARGO) build --release -p weft-cli -p weft-preload
	@scripts/tracing.sh $(BENCH)

plan: ## Trace, plan, apply and run again in real time on emulated disks and SSDs (BTIO and an HDF5 program)
	@scripts/deps.sh demo
	$(CARGO) build --release -p weft-cli -p weft-preload
	@scripts/plan.sh

advice: ## Sign of the planner's advice: plans tried in real time, 72 cases on plain and emulated devices (about 13 minutes)
	@scripts/deps.sh bench
	$(CARGO) build --release -p weft-cli -p weft-preload
	@scripts/advice.py $(ADVICE)

replicas: ## Programs with and without a replica (emulated disks of Weft, GlusterFS); cost for files without one
	@scripts/deps.sh demo
	$(CARGO) build --release -p weft-cli -p weft-preload
	@scripts/replicas.sh

lint: ## Formatting; warnings of the compiler, clippy and rustdoc as errors
	@scripts/deps.sh lint
	$(CARGO) fmt --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps

install: all ## Install under PREFIX (default /usr/local)
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib
	install -d $(DESTDIR)$(PREFIX)/share/doc/weft
	install -s -m 755 $(TARGET)/release/weft $(DESTDIR)$(PREFIX)/bin/weft
	install -s -m 755 $(TARGET)/release/libweft_preload.so $(DESTDIR)$(PREFIX)/lib/
	crates/interfaces/capi/install.sh --prefix $(PREFIX) --from $(TARGET)/release $(if $(DESTDIR),--destdir $(DESTDIR))
	$(TARGET)/release/weft man --out $(DESTDIR)$(PREFIX)/share/man/man1
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(PREFIX)/share/zsh/site-functions
	install -d $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	$(TARGET)/release/weft completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/weft
	$(TARGET)/release/weft completions zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_weft
	$(TARGET)/release/weft completions fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/weft.fish
	install -d $(DESTDIR)$(PREFIX)/lib/systemd/system
	sed 's|ExecStart=weft|ExecStart=$(PREFIX)/bin/weft|' contrib/systemd/weft@.service > $(DESTDIR)$(PREFIX)/lib/systemd/system/weft@.service
	$(TARGET)/release/weft config example > $(DESTDIR)$(PREFIX)/share/doc/weft/cluster.toml.example

uninstall: ## Remove the installed files
	rm -f $(DESTDIR)$(PREFIX)/bin/weft $(DESTDIR)$(PREFIX)/lib/libweft_preload.so
	rm -f $(DESTDIR)$(PREFIX)/lib/libweft.so* $(DESTDIR)$(PREFIX)/lib/libweft.a $(DESTDIR)$(PREFIX)/lib/pkgconfig/weft.pc
	rm -f $(DESTDIR)$(PREFIX)/include/weft.h $(DESTDIR)$(PREFIX)/share/man/man1/weft.1 $(DESTDIR)$(PREFIX)/share/man/man1/weft-*.1
	rm -f $(DESTDIR)$(PREFIX)/share/bash-completion/completions/weft $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_weft
	rm -f $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/weft.fish
	rm -f $(DESTDIR)$(PREFIX)/lib/systemd/system/weft@.service
	rm -rf $(DESTDIR)$(PREFIX)/share/doc/weft

python: ## Wheel of the Python package weft-fs, in target/python/dist
	@scripts/deps.sh build python
	$(python_build) $(if $(filter debug,$(PYTHON_PROFILE)),$(python_servers))
	@scripts/python.sh wheel $(PYTHON_PROFILE)

python-test: python ## Tests of the built wheel (about a minute), on a cluster of the same profile; part of `make test`
	$(python_build) $(python_servers)
	@scripts/python.sh test $(PYTHON_PROFILE) $(PYTHON_OPTIONS)

python-bench: python ## Reading 64 MiB into numpy beside the C interface, in turn
	$(python_build) $(python_servers)
	@scripts/python.sh bench $(PYTHON_PROFILE) $(PYTHON_OPTIONS)

monitoring: ## Debian's Prometheus scrapes a server and checks the alert rules
	@scripts/deps.sh build monitoring
	$(CARGO) build -p weft-cli
	@scripts/monitoring.py

bare: ## Build in a minimal Debian system (root, debootstrap; about 10 minutes)
	@scripts/bare.sh

deps: ## Install the dependencies of all targets
	@scripts/deps.sh build demo test

clean: ## Remove build output
	$(CARGO) clean

help: ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14
