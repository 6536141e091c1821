# Weft: what people and CI call. Each target installs what it needs where it may, and names it where it may not.

PREFIX ?= /usr/local
CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
# What else to tell weft bench, such as BENCH="--json --rounds 5".
BENCH ?=
# Where random tests begin, so that a tree that was not changed passes as it did before.
export PROPTEST_RNG_SEED ?= 1

.PHONY: all demo test fuzz bench ibridge tracing plan lint install uninstall deps clean help

all: ## Build the command and the preload library (release)
	@scripts/deps.sh build
	$(CARGO) build --release -p weft-cli -p weft-preload -p weft-capi

demo: ## Two unmodified MPI programs on four servers, checked, with the layout shown
	@scripts/deps.sh demo
	@scripts/demo.sh

test: ## All tests, those with MPI, FUSE and network namespaces among them, with an empty home directory
	@scripts/deps.sh test
	$(CARGO) build -p weft-cli -p weft-preload
	scripts/isolated.py $(CARGO) test --workspace
	scripts/isolated.py $(CARGO) test -p weft-twin --features plants --test search_plants

fuzz: export WEFT_FUZZ_SEED ?= fresh
fuzz: export WEFT_FUZZ_SECONDS ?= 20
fuzz: ## Everything that decodes bytes, from fresh seeds, some minutes
	@scripts/deps.sh build
	$(CARGO) test -p weft-fuzz

bench: ## Measurements as ratios to the plain local directory in the same run
	@scripts/deps.sh bench
	$(CARGO) build --release -p weft-cli -p weft-preload
	@scripts/bench.sh $(BENCH)

ibridge: ## What SSDs beside disks give (emulated devices) and cost (plain directories): with and without, in turns
	@scripts/deps.sh bench
	$(CARGO) build --release -p weft-cli -p weft-preload
	@scripts/ibridge.sh gain $(BENCH)
	@scripts/ibridge.sh cost $(BENCH)

tracing: ## What recording a program costs: calls, and processes in turns with and without
	@scripts/deps.sh bench
	$(CARGO) build --release -p weft-cli -p weft-preload
	@scripts/tracing.sh $(BENCH)

plan: ## Trace, plan, apply and run again, in real time on emulated disks and SSDs: BTIO and an HDF5 program
	@scripts/deps.sh demo
	$(CARGO) build --release -p weft-cli -p weft-preload
	@scripts/plan.sh

lint: ## Formatting, warnings of the compiler, of clippy and of the documentation as errors
	@scripts/deps.sh lint
	$(CARGO) fmt --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps

install: all ## Install under PREFIX (default /usr/local)
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/lib
	install -d $(DESTDIR)$(PREFIX)/share/doc/weft
	install -m 755 $(TARGET)/release/weft $(DESTDIR)$(PREFIX)/bin/weft
	install -m 755 $(TARGET)/release/libweft_preload.so $(DESTDIR)$(PREFIX)/lib/
	crates/capi/install.sh --prefix $(PREFIX) --from $(TARGET)/release $(if $(DESTDIR),--destdir $(DESTDIR))
	$(TARGET)/release/weft man --out $(DESTDIR)$(PREFIX)/share/man/man1
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions $(DESTDIR)$(PREFIX)/share/zsh/site-functions
	install -d $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	$(TARGET)/release/weft completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/weft
	$(TARGET)/release/weft completions zsh > $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_weft
	$(TARGET)/release/weft completions fish > $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/weft.fish
	$(TARGET)/release/weft config example > $(DESTDIR)$(PREFIX)/share/doc/weft/cluster.toml.example

uninstall: ## Remove what install put there
	rm -f $(DESTDIR)$(PREFIX)/bin/weft $(DESTDIR)$(PREFIX)/lib/libweft_preload.so
	rm -f $(DESTDIR)$(PREFIX)/lib/libweft.so* $(DESTDIR)$(PREFIX)/lib/libweft.a $(DESTDIR)$(PREFIX)/lib/pkgconfig/weft.pc
	rm -f $(DESTDIR)$(PREFIX)/include/weft.h $(DESTDIR)$(PREFIX)/share/man/man1/weft.1 $(DESTDIR)$(PREFIX)/share/man/man1/weft-*.1
	rm -f $(DESTDIR)$(PREFIX)/share/bash-completion/completions/weft $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_weft
	rm -f $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/weft.fish
	rm -rf $(DESTDIR)$(PREFIX)/share/doc/weft

deps: ## Install everything that any target needs
	@scripts/deps.sh build demo test

clean: ## Remove what was built
	$(CARGO) clean

help: ## This list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12
