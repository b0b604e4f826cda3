# The goals of a checkout. `make help` lists them.

.DEFAULT_GOAL := help
.PHONY: help prerequisites envoy build demo test test-long test-long-composition test-long-restarts test-long-walks test-long-package test-long-skew test-long-fleet test-long-chaos test-long-fuzz bench instructions fuzz lint lint-ansible docs deny package test-package-tool clean-tools

target_dir := $(abspath $(or $(CARGO_TARGET_DIR),target))
DENY_VERSION := 0.20.2
DEB_VERSION := 3.8.0
RPM_VERSION := 0.21.1
CYCLONEDX_VERSION := 0.5.9

# ENVOY_BIN and IRONMESH_BIN select programs that this Makefile does not build.
IRONMESH_BIN ?= $(target_dir)/debug/ironmesh
export IRONMESH_BIN

package_tools := $(foreach tool,deb-$(DEB_VERSION) generate-rpm-$(RPM_VERSION) cyclonedx-$(CYCLONEDX_VERSION),.tools/bin/cargo-$(tool))
# The version of the workspace, as in Cargo.toml.
VERSION := $(shell sed -n '/^\[workspace.package\]/,/^$$/s/^version = "\(.*\)"$$/\1/p' Cargo.toml)
test_package := $(target_dir)/debug/package/ironmesh_$(VERSION)-1_amd64.deb

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Debian's gcc may lack the C library's headers, so it exists and cannot link: try it.
prerequisites:
	@missing=; \
	command -v cargo >/dev/null || missing="$$missing cargo"; \
	command -v git >/dev/null || missing="$$missing git"; \
	command -v python3 >/dev/null || missing="$$missing python3"; \
	echo 'int main(void) { return 0; }' | cc -x c -o /dev/null - >/dev/null 2>&1 \
	    || missing="$$missing cc(a-working-C-compiler)"; \
	if [ -n "$$missing" ]; then \
	    echo "missing:$$missing" >&2; \
	    echo "  Debian 12: apt-get install build-essential git python3" >&2; \
	    echo "  Rust: rustup, then 'rustup toolchain install stable'; at least the rust-version in Cargo.toml" >&2; \
	    exit 1; \
	fi

envoy: prerequisites ## Fetch the pinned Envoy into .tools/ (skipped if ENVOY_BIN is set)
	@scripts/get-envoy.sh

# One feature set for all: `make demo` and `make test` share one build (tests/Cargo.toml).
build: prerequisites ## Build everything, debug
	cargo build --workspace --all-targets

# Results go to stdout, everything else to stderr: `make -s demo ARGS="--check --output json" > steps.json`.
demo: envoy ## The bookstore on this machine, with real Envoys, until Ctrl-C; also ARGS="--check"
	@echo "building ironmesh (one to three minutes at first)" >&2
	@cargo build --workspace --bins
	@ENVOY_BIN="$${ENVOY_BIN:-$(CURDIR)/.tools/envoy}" "$(IRONMESH_BIN)" demo $(ARGS)

# `cargo test` does not build the binary for the tests of other packages: they would run a stale one
# or none. Without Envoy, etcd, Consul, Prometheus, schemathesis, Chromium or Debian their tests are skipped, or fail with CI=true.
# The package is for the systemd hosts. xtask runs the suites in parallel, because most of them wait most of the time.
test: prerequisites ## All tests, also those on real Envoys, etcd, Consul, Prometheus, schemathesis and, as root, systemd hosts (fetched once); ARGS=NAME selects some
	@scripts/get-envoy.sh || { [ "$(CI)" != true ] && echo "make test: continuing without Envoy; its tests are skipped" >&2; }
	@scripts/get-etcd.sh || { [ "$(CI)" != true ] && echo "make test: continuing without etcd; its tests are skipped" >&2; }
	@scripts/get-consul.sh || { [ "$(CI)" != true ] && echo "make test: continuing without Consul; its tests are skipped" >&2; }
	@scripts/get-prometheus.sh || { [ "$(CI)" != true ] && echo "make test: continuing without Prometheus; its tests are skipped" >&2; }
	@scripts/get-schemathesis.sh || { [ "$(CI)" != true ] && echo "make test: continuing without schemathesis; its tests are skipped" >&2; }
	@scripts/get-grpcio.sh || { [ "$(CI)" != true ] && echo "make test: continuing without grpcio; its test is skipped" >&2; }
	@scripts/get-debian.sh || { [ "$(CI)" != true ] && echo "make test: continuing without Debian; its tests are skipped" >&2; }
	@scripts/get-debian.sh trixie || { [ "$(CI)" != true ] && echo "make test: continuing without Debian 13; its tests are skipped" >&2; }
	@scripts/get-ansible.sh || { [ "$(CI)" != true ] && echo "make test: continuing without Ansible; its tests are skipped" >&2; }
	cargo build --workspace --all-targets
	@[ "$$(id -u)" != 0 ] || $(MAKE) --no-print-directory "$(test_package)" || { [ "$(CI)" != true ] && echo "make test: continuing without the package; its tests are skipped" >&2; }
	@ENVOY_BIN="$${ENVOY_BIN:-$(CURDIR)/.tools/envoy}" "$(target_dir)/debug/xtask" test $(ARGS)

# Each part is a goal of its own: test-long-NAME. All parts run, even after a failure.
LONG_PARTS := composition restarts walks package skew fleet chaos fuzz
# A different seed for each commit, unless LONG_SEED is set.
LONG_SEED ?= $(shell printf '%d' 0x0$$(git rev-parse --short=7 HEAD 2>/dev/null | cut -c1-7))

test-long: prerequisites ## Longer tests, with a different seed for each commit; LONG_SECONDS=600 for each fuzz target
	@echo "make test-long: LONG_SEED=$(LONG_SEED)" >&2
	@$(MAKE) --keep-going --no-print-directory LONG_SEED=$(LONG_SEED) $(addprefix test-long-,$(LONG_PARTS))

# All pairs of settings on real Envoys.
test-long-composition: envoy
	cargo build --workspace --all-targets
	@ENVOY_BIN="$${ENVOY_BIN:-$(CURDIR)/.tools/envoy}" "$(target_dir)/debug/xtask" test --ignored composition

# Ten hot restarts of each Envoy under load.
test-long-restarts: envoy
	cargo build --workspace --all-targets
	@ENVOY_BIN="$${ENVOY_BIN:-$(CURDIR)/.tools/envoy}" "$(target_dir)/debug/xtask" test --ignored ten_hot_restarts

# Random walks of model clients of the xDS server, and of proxies in a faulty network.
test-long-walks:
	WALK_SEED=$(LONG_SEED) WALK_RUNS=2000 cargo test --workspace --lib --quiet -- fuzzing::
	PROPTEST_RNG_SEED=$(LONG_SEED) PROPTEST_CASES=5000 cargo test --workspace --lib --quiet -- convergence::

# The packages are reproducible and complete, and the .rpm installs.
test-long-package: $(package_tools)
	packaging/check

# Machines and control planes of two versions, on systemd hosts: it needs root. CI combines two versions that differ in name.
test-long-skew: envoy .tools/bin/cargo-deb-$(DEB_VERSION)
	cargo build --workspace --all-targets
	@scripts/get-debian.sh
	@$(MAKE) --no-print-directory "$(test_package)"
	@scripts/get-other-version.sh
	@ENVOY_BIN="$${ENVOY_BIN:-$(CURDIR)/.tools/envoy}" "$(target_dir)/debug/xtask" test --ignored skew_of_one

# Plays that take minutes, on systemd hosts: it needs root.
test-long-fleet: envoy .tools/bin/cargo-deb-$(DEB_VERSION)
	cargo build --workspace --all-targets
	@scripts/get-debian.sh
	@scripts/get-debian.sh trixie
	@scripts/get-ansible.sh
	@$(MAKE) --no-print-directory "$(test_package)"
	@ENVOY_BIN="$${ENVOY_BIN:-$(CURDIR)/.tools/envoy}" "$(target_dir)/debug/xtask" test --ignored playbooks_

# Half an hour of random faults on machines with etcd and control planes, which begin with the pinned version: it needs root.
test-long-chaos: envoy .tools/bin/cargo-deb-$(DEB_VERSION)
	@scripts/get-etcd.sh
	@scripts/get-other-version.sh
	cargo build --workspace --all-targets
	@CHAOS_SEED=$(LONG_SEED) CHAOS_SECONDS=1800 CHAOS_PREDECESSOR="$(CURDIR)/.tools/other-version/ironmesh" ENVOY_BIN="$${ENVOY_BIN:-$(CURDIR)/.tools/envoy}" "$(target_dir)/debug/xtask" test random_faults

test-long-fuzz:
	FUZZ_SEED=$(LONG_SEED) fuzz/run $(or $(LONG_SECONDS),60)

# Builds its own binaries in release: the first build takes minutes, the measurement about six. IRONMESH_BIN
# is the debug build of the tests, so this goal ignores it.
bench: envoy ## Measure with simulated Envoys, next to the floor; ARGS="--part fleets --shape 1000x100 --json FILE --plots DIR"
	@scripts/get-consul.sh || echo "make bench: continuing without Consul; its part is skipped" >&2
	@echo "building for release (up to ten minutes at first)" >&2
	@cargo build --release --package ironmesh --package ironmesh-bench
	@"$(target_dir)/release/ironmesh-bench" run --ironmesh "$(target_dir)/release/ironmesh" $(ARGS)

instructions: prerequisites ## Count the instructions of four hot paths with callgrind, beside the recorded counts
	@cargo build --workspace --all-targets
	@"$(target_dir)/debug/ironmesh-instructions"

fuzz: prerequisites ## Fuzz the parsers of untrusted bytes, and policy; ARGS="60 deframer" sets seconds and targets (fuzz/run)
	@fuzz/run $(ARGS)

# The fuzz targets are a workspace of their own, whose lock file goes stale when dependencies change.
# The last line is the build without the exporter of traces, which the workspace has by its tests.
lint: prerequisites ## Formatting and clippy, warnings are errors
	cargo fmt --all --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	@cargo metadata --locked --manifest-path fuzz/Cargo.toml --format-version 1 >/dev/null || { \
	    echo "make lint: fuzz/Cargo.lock is not current, or the registry is unreachable (see above)" >&2; \
	    echo "  update and commit it: cargo update --workspace --manifest-path fuzz/Cargo.toml" >&2; \
	    exit 1; \
	}
	cargo clippy --workspace --all-targets -- -D warnings
	cargo clippy --package ironmesh-traces -- -D warnings

lint-ansible: ## Checks of deploy-ansible/: yamllint, ansible-lint, and the READMEs of the roles (ansible-lint is fetched once)
	@scripts/lint-ansible.sh

docs: prerequisites ## Rustdoc of the workspace, warnings are errors
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps

package: $(package_tools) ## Build the release into target/package: .deb, .rpm, SBOM, checksums
	packaging/build all "$(target_dir)/package"

# What `make test` needs of them. CI installs it beside the build.
test-package-tool: .tools/bin/cargo-deb-$(DEB_VERSION)

# The package of the test binary, for tests/fleet: by the same recipe, without the release build.
$(test_package): $(IRONMESH_BIN) $(wildcard packaging/* packaging/*/*) cmd/Cargo.toml CHANGELOG.md .tools/bin/cargo-deb-$(DEB_VERSION)
	packaging/build deb "$(IRONMESH_BIN)" "$(@D)"
	@touch $@

deny: .tools/bin/cargo-deny-$(DENY_VERSION) ## Licences, bans and sources of all dependencies (deny.toml)
	PATH="$(CURDIR)/.tools/bin:$$PATH" cargo deny check bans licenses sources

.tools/bin/cargo-deny-$(DENY_VERSION): | prerequisites
	$(call cargo_install,cargo-deny,$(DENY_VERSION))
.tools/bin/cargo-deb-$(DEB_VERSION): | prerequisites
	$(call cargo_install,cargo-deb,$(DEB_VERSION))
.tools/bin/cargo-generate-rpm-$(RPM_VERSION): | prerequisites
	$(call cargo_install,cargo-generate-rpm,$(RPM_VERSION))
.tools/bin/cargo-cyclonedx-$(CYCLONEDX_VERSION): | prerequisites
	$(call cargo_install,cargo-cyclonedx,$(CYCLONEDX_VERSION))

# Without optimization: it builds in half the time, and runs for a few seconds.
define cargo_install
@echo "installing $(1) $(2) into .tools/ (one to three minutes, once)" >&2
cargo install --debug --quiet --locked $(1) --version $(2) --root .tools
@touch $@
endef

clean-tools: ## Remove the fetched tools in .tools/
	rm -rf .tools
