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
# Options of `make ai`, such as AI="--only sqlite,numpy --interfaces mount".
AI ?=
# Names of tests of `make slurm`, all by default.
SLURM ?=
# Directories of `make install`, which packages change.
LIBDIR ?= $(PREFIX)/lib
PRELOADDIR ?= $(PREFIX)/lib
UNITDIR ?= $(PREFIX)/lib/systemd/system
SYSUSERSDIR ?= $(PREFIX)/lib/sysusers.d
# mount(8) looks for its helpers in /usr/sbin and /sbin only.
MOUNTDIR ?= $(if $(filter /usr /usr/local,$(PREFIX)),/usr/sbin,$(PREFIX)/sbin)
SLURMDIR ?= $(PREFIX)/libexec/weft/slurm
MODULEDIR ?= $(PREFIX)/share/modulefiles
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
MODULE = sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@VERSION@|$(VERSION)|'
# Seed of random tests, so that an unchanged tree passes again.
export PROPTEST_RNG_SEED ?= 1

.PHONY: all demo test fuzz fuzz-posix operations bench ibridge delegates tracing directory plan advice replicas lint install stage uninstall deb slurm container aarch64 \
	monitoring bare python python-test python-bench ai deps clean help

all: ## Build the command and the preload library (release)
	@scripts/deps.sh build
	$(CARGO) build --release -p weft-cli -p weft-preload -p weft-capi

demo: ## Scenes with unmodified MPI programs, checked and measured; each ends with what you saw (5 minutes after the build)
	@scripts/deps.sh demo
	@scripts/demo.sh

test: ## All tests, also with MPI, FUSE, network namespaces, Python; isolated; counts at the end (50 minutes on 2 cores)
	@scripts/deps.sh test
	$(CARGO) build -p weft-cli -p weft-preload
	@CARGO="$(CARGO)" scripts/test.py

fuzz: export WEFT_FUZZ_SEED ?= fresh
fuzz: export WEFT_FUZZ_SECONDS ?= 20
fuzz: ## Fuzz all decoders with fresh seeds (a few minutes)
	@scripts/deps.sh build
	$(CARGO) test -p weft-fuzz

operations: export WEFT_TEST_OUTAGE_S ?= 60
operations: ## A year of administration in network namespaces, under the work of two users (root; 3 minutes after the build)
	@scripts/deps.sh test
	$(CARGO) build --release -p weft-cli -p weft-preload
	scripts/isolated.py $(CARGO) test --release -p weft-cli --test operations

fuzz-posix: export WEFT_TEST_POSIX_SEED ?= fresh
fuzz-posix: export WEFT_TEST_POSIX_OPS ?= 10000000
fuzz-posix: ## Random file calls on Weft and on the kernel's file system, with fresh seeds (hours)
	@scripts/deps.sh test
	$(CARGO) build --release -p weft-cli -p weft-preload
	scripts/isolated.py $(CARGO) test --release -p weft-cli --test posix_fuzz

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

directory: ## A directory of 1,000,000 files: create, ls -l, stat, remove; by weft run, on a mount, local (about 15 minutes)
	@scripts/deps.sh bench
	$(CARGO) build --release -p weft-cli -p weft-preload
	@scripts/directory.py $(BENCH)

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
	@$(MAKE) --no-print-directory stage

# Copies the files of a release build, for `make install` and packages.
stage:
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PRELOADDIR) $(DESTDIR)$(PREFIX)/share/doc/weft
	install -s -m 755 $(TARGET)/release/weft $(DESTDIR)$(PREFIX)/bin/weft
	install -s -m 755 $(TARGET)/release/libweft_preload.so $(DESTDIR)$(PRELOADDIR)/
	crates/interfaces/capi/install.sh --prefix $(PREFIX) --libdir $(LIBDIR) --from $(TARGET)/release \
		$(if $(DESTDIR),--destdir $(DESTDIR))
	$(TARGET)/release/weft man --out $(DESTDIR)$(PREFIX)/share/man/man1
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(PREFIX)/share/zsh/site-functions
	install -d $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	$(TARGET)/release/weft completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/weft
	$(TARGET)/release/weft completions zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_weft
	$(TARGET)/release/weft completions fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/weft.fish
	install -d $(DESTDIR)$(UNITDIR) $(DESTDIR)$(SLURMDIR) $(DESTDIR)$(SYSUSERSDIR)
	for unit in weft@.service weft-mount@.service; do \
		sed 's|ExecStart=weft|ExecStart=$(PREFIX)/bin/weft|' contrib/systemd/$$unit > $(DESTDIR)$(UNITDIR)/$$unit || exit 1; \
	done
	install -m 644 contrib/systemd/weft.sysusers $(DESTDIR)$(SYSUSERSDIR)/weft.conf
	install -d $(DESTDIR)$(MOUNTDIR) $(DESTDIR)$(PREFIX)/share/man/man8
	ln -sfrn $(DESTDIR)$(PREFIX)/bin/weft $(DESTDIR)$(MOUNTDIR)/mount.weft
	install -m 644 contrib/mount/mount.weft.8 $(DESTDIR)$(PREFIX)/share/man/man8/
	install -m 755 contrib/slurm/prolog contrib/slurm/epilog $(DESTDIR)$(SLURMDIR)/
	install -m 644 contrib/slurm/common.sh $(DESTDIR)$(SLURMDIR)/
	install -m 644 contrib/slurm/slurm.conf.example $(DESTDIR)$(PREFIX)/share/doc/weft/
	install -m 644 contrib/logrotate/weft $(DESTDIR)$(PREFIX)/share/doc/weft/logrotate.example
	$(TARGET)/release/weft config example > $(DESTDIR)$(PREFIX)/share/doc/weft/cluster.toml.example
	install -d $(DESTDIR)$(MODULEDIR)/weft
	$(MODULE) contrib/modulefiles/weft.tcl.in > $(DESTDIR)$(MODULEDIR)/weft/$(VERSION)
	$(MODULE) contrib/modulefiles/weft.lua.in > $(DESTDIR)$(MODULEDIR)/weft/$(VERSION).lua

uninstall: ## Remove the installed files
	rm -f $(DESTDIR)$(PREFIX)/bin/weft $(DESTDIR)$(PRELOADDIR)/libweft_preload.so
	rm -f $(DESTDIR)$(LIBDIR)/libweft.so* $(DESTDIR)$(LIBDIR)/libweft.a $(DESTDIR)$(LIBDIR)/pkgconfig/weft.pc
	rm -f $(DESTDIR)$(PREFIX)/include/weft.h $(DESTDIR)$(PREFIX)/share/man/man1/weft.1 $(DESTDIR)$(PREFIX)/share/man/man1/weft-*.1
	rm -f $(DESTDIR)$(PREFIX)/share/bash-completion/completions/weft $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_weft
	rm -f $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/weft.fish
	rm -f $(DESTDIR)$(UNITDIR)/weft@.service $(DESTDIR)$(UNITDIR)/weft-mount@.service $(DESTDIR)$(SYSUSERSDIR)/weft.conf
	rm -f $(DESTDIR)$(MOUNTDIR)/mount.weft $(DESTDIR)$(PREFIX)/share/man/man8/mount.weft.8
	rm -f $(DESTDIR)$(MODULEDIR)/weft/$(VERSION) $(DESTDIR)$(MODULEDIR)/weft/$(VERSION).lua
	rm -f $(DESTDIR)$(SLURMDIR)/prolog $(DESTDIR)$(SLURMDIR)/epilog $(DESTDIR)$(SLURMDIR)/common.sh
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

ai: python ## AI and data programs from PyPI by weft run, on a mount, by weft:// (WEFT_SKIP_TORCH=1 leaves out torch, 3 GB)
	@scripts/deps.sh ai
	$(python_build) $(python_servers)
	@scripts/python.sh ai $(PYTHON_PROFILE) $(AI)

deb: ## Debian packages in target/debian, checked by lintian, installed and removed in a minimal system (root)
	@scripts/deps.sh build deb
	$(CARGO) build --release -p weft-cli -p weft-preload -p weft-capi
	@scripts/deb.sh

slurm: ## Jobs of Debian's Slurm on two nodes get a Weft of their own and leave nothing behind (root)
	@scripts/deps.sh build slurm
	$(CARGO) build -p weft-cli -p weft-preload
	@scripts/slurm.py $(SLURM)

container: ## Build the container image with buildah and run Weft in it (root)
	@scripts/deps.sh container
	@scripts/container.sh

aarch64: ## Compile Weft for 64-bit ARM with the Rust of Debian sid (root)
	@scripts/deps.sh aarch64
	@scripts/aarch64.sh

monitoring: ## Debian's Prometheus scrapes a server and checks the alert rules
	@scripts/deps.sh build monitoring
	$(CARGO) build -p weft-cli
	@scripts/monitoring.py

bare: ## make demo and make test in a minimal Debian system (root, debootstrap; about an hour)
	@scripts/deps.sh bare
	@scripts/bare.sh

deps: ## Install the dependencies of all targets
	@scripts/deps.sh build demo test

clean: ## Remove build output
	$(CARGO) clean

help: ## Show this list
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14
