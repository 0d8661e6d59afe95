# target               purpose                                                          option (example)                 duration
#
# make run             build and serve https://localhost:8443                           ARGS='--upstream http://127.0.0.1:8080'
# make test            all tests                                                        TEST='h2': tests with h2 in their name
# make optimised       brisk with a profile of the load `bench/plans/training.toml`                                    three times `make build`
# make chaos           two gateways under a plan of faults, with clients that check every byte   SECONDS=3600 SEED=7 FAULTS='delay upgrades'
# make chaos-defects   proof that these runs find five deliberate defects                                             minutes
# make flakes          behaviour tests again and again, beside busy loops               N=30 TEST=h2 PROGRAMS=plain       hours
# make fuzz            every fuzz target for 20 seconds                                 FUZZ_SECONDS=600 TARGET=path
# make check           formatting, lints, documentation
# make check-lanes     100,000 operations of each kind in lanes, compared with AWS-LC, also on portable lanes   2 minutes
# make check-timing    search for a dependence on secrets in the time of RSA, X25519 and ECDSA in lanes         minutes, quiet
# make kernels         cycles of the SIMD kernels by llvm-mca, and a check of their machine code
# make httpwg          loona's test suite for HTTP/2 servers (crate httpwg-cli)         1 minute, and 2 for its installation
# make sbom            bill of materials (CycloneDX)                                    SBOM=brisk.cdx.json FEATURES=brisk-cli/cuda
#
# Measurements; "quiet" means that the machine must have no other load. ARGS are the options of all of them and of `make peers`;
# `bench/measure NAME --help` lists those of the measurement NAME. The page is written into docs/results.
#
# make peers           comparison of eleven servers with brisk bench                    PLAN=peers-http ARGS='--html peers.html'
# make results         all plans, into docs/results                                     RESULTS='resumption ciphers'     1 hour, quiet
# make clients         results of TLS clients with brisk                                ARGS='--only curl'               10 minutes
# make connections     latency and memory of 10,000 HTTP/2 connections on one core      ARGS='--minutes 2'               12 minutes, quiet
# make flood           latency of requests during a flood of RSA handshakes             ARGS='--rounds 15'               10 minutes, quiet
# make instructions    instructions of a request and of a handshake, by callgrind     ARGS='--only HTTP/2'               2 minutes
# make live-fuzz       mutated input for every listener of a running brisk              ARGS='--seconds 600'             1 minute
# make neighbours      responses of four servers with broken upstreams                  ARGS='--case reset'              1 minute
# make page            cost of HTTPS for a page in Chromium, and effect of each feature ARGS='--only loss'               15 minutes
# make soak            steady load beside 10,000 slow clients, resets and floods        ARGS='--minutes 5'               30 minutes, quiet
# make soak-http3      memory beside HTTP/3 clients that connect, resume, migrate       ARGS='--minutes 5'               1 hour
# make strangers       cost of attacks for brisk, nginx, HAProxy and Envoy              ARGS='--attack resets'           11 minutes
# make visits          a million visits with a hidden effect; 30 days of 100 hosts                                       minutes
# make worst           memory and a visitor's requests beside all attacks on memory     ARGS='--addresses 1'             7 minutes, quiet
# make gitea           Gitea behind brisk: clone, push, pages. Builds Gitea                                              minutes, once
#
# Each target installs missing programs on Debian with tools/setup, from the list tools/programs.

export CACHE ?= $(HOME)/.cache/brisk
export CARGO_TARGET_DIR ?= $(CACHE)/target
export PATH := $(CACHE)/bin:$(PATH):/usr/sbin:/sbin
BRISK := $(CARGO_TARGET_DIR)/release/brisk

# Options of brisk serve, of brisk bench compare, and of a measurement.
ARGS ?=
# A measurement is a file of this folder.
MEASUREMENTS := $(notdir $(basename $(wildcard bench/measures/*.py)))

# Output file of the bill of materials, and the features of the brisk that it describes.
SBOM ?= $(CARGO_TARGET_DIR)/brisk.cdx.json
FEATURES ?= brisk-cli/tools

# A plan of bench/plans.
PLAN ?= peers
RESULTS ?= resumption certificates stapling ciphers peers peers-http

# Output of the last run of the tests, with durations.
TEST_TIMES := $(CARGO_TARGET_DIR)/test-times

# Number of runs of `make flakes`, and its test programs.
N ?= 10
export PROGRAMS ?= plain debian browsers

# Time of a chaos run in seconds, its seed, and the names of its faults: all of them by default.
SECONDS ?= 60
SEED ?= 1
FAULTS ?=

# Running time of each fuzz target in seconds, and the name of a single target.
FUZZ_SECONDS ?= 20
TARGET ?=

# The library whose machine code is checked. The kernels exist for x86-64 only.
KERNELS := $(CARGO_TARGET_DIR)/kernels/libbrisk_lanes.rlib
HAS_KERNELS := $(filter x86_64,$(shell uname -m))

# Targets with a command, and the purposes of the programs that it needs (tools/programs).
PURPOSES := build
COMMANDS := $(MEASUREMENTS) peers results optimised flakes chaos chaos-defects fuzz gitea check-lanes check-timing visits \
  client-packages kernels check-kernels httpwg sbom setup

.PHONY: run build test check $(COMMANDS)

# Without optimisation across crates: `make build` takes twice as long, and gives the program to install.
run:
	@tools/setup build
	cargo build --locked --profile quick --package brisk-cli
	@exec $(CARGO_TARGET_DIR)/quick/brisk serve $(ARGS)

build:
	@tools/setup build
	cargo build --locked --release --package brisk-cli --features tools

# Every test program runs under tools/timed, and the twenty slowest tests are listed at the end.
test: client-packages
	@tools/setup test
	@: > $(TEST_TIMES)
	BRISK_NVRTC=$(CACHE)/nvrtc/nvidia/cu13/lib TEST_TIMES=$(TEST_TIMES) \
	  cargo test --locked --workspace --features brisk-cli/tools --lib --bins --tests --no-fail-fast --config 'target."cfg(all())".runner="tools/timed"' -- $(TEST) \
	  || { echo "the failures again:"; sed -n '/^failures:$$/,/^test result:/p' $(TEST_TIMES) | tail -n 100; exit 1; } >&2
	@echo "the slowest tests, in seconds:"
	@sed -nE 's/^test (.*) \.\.\. .* <([0-9.]+)s>$$/\2 \1/p' $(TEST_TIMES) | sort -rn | head -20
ifeq ($(TEST),)
	@$(MAKE) --no-print-directory check-kernels
	@tools/client-packages test
endif

check:
	@tools/setup build
	cargo fmt --all --check
	cargo fmt --manifest-path clients/rust/Cargo.toml --check
	cargo clippy --locked --workspace --all-targets -- --deny warnings
	cargo clippy --locked --manifest-path clients/rust/Cargo.toml --target-dir $(CARGO_TARGET_DIR)/clients --all-targets -- --deny warnings
	cargo clippy --locked --workspace --all-targets --features brisk-cli/cuda,brisk-behaviour/cuda -- --deny warnings
	cargo clippy --locked --package brisk-defects --package brisk-chaos --all-targets --features brisk-defects/enabled,brisk-chaos/defects \
	  -- --deny warnings
	RUSTFLAGS='--cfg fuzzing' cargo check --locked --manifest-path fuzz/Cargo.toml --target-dir $(CARGO_TARGET_DIR)/fuzzing
	RUSTDOCFLAGS='--deny warnings' cargo doc --locked --workspace --no-deps

$(COMMANDS):
	@tools/setup $(PURPOSES)
	$(COMMAND)

# Every measurement of bench/measures by its name, which also names its programs.
$(MEASUREMENTS) peers results httpwg: build
$(MEASUREMENTS): COMMAND = bench/measure $@ --prepare && bench/measure $@ --results $(ARGS)

peers results: PURPOSES = peers
peers: COMMAND = $(BRISK) bench compare bench/plans/$(PLAN).toml $(ARGS)
results: COMMAND = set -e; for plan in $(RESULTS); do \
  $(BRISK) bench compare bench/plans/$$plan.toml --html docs/results/$$plan.html --markdown docs/results/$$plan.md; done

# The program is $(CARGO_TARGET_DIR)/optimised/brisk.
optimised: PURPOSES = build peers
optimised: COMMAND = tools/optimise

# Tests that fail only sometimes: behaviour tests, again and again beside busy loops.
flakes: client-packages
flakes: PURPOSES = build test
flakes: COMMAND = tools/flakes $(N) $(TEST)

fuzz gitea check-lanes check-timing visits chaos chaos-defects: COMMAND = cargo test --locked $(TESTS)
chaos chaos-defects: PURPOSES = build test
chaos: export BRISK_CHAOS_SECONDS = $(SECONDS)
chaos: export BRISK_CHAOS_SEED = $(SEED)
chaos: export BRISK_CHAOS_FAULTS = $(FAULTS)
chaos: TESTS = --workspace --features brisk-cli/tools --bins --test chaos -- --ignored chaos_of_a_seed --nocapture
chaos-defects: TESTS = --workspace --features brisk-cli/tools,brisk-cli/defects,brisk-chaos/defects --bins --test chaos \
  -- each_deliberate_defect --nocapture
fuzz: export BRISK_FUZZ_SECONDS = $(FUZZ_SECONDS)
fuzz: TESTS = --workspace --features brisk-cli/tools --lib --bins -- --test-threads 2 --nocapture fuzz_$(TARGET)
gitea: PURPOSES = build gitea
gitea: TESTS = --workspace --features brisk-cli/tools --bins --test browsers -- --ignored gitea
# Ignored tests, which take minutes: a million visits with a hidden effect and 30 days of 100 hosts are those of `visits`.
check-lanes: TESTS = --release --package brisk-lanes --lib -- --ignored a_hundred_thousand
check-timing: TESTS = --release --package brisk-keys --package brisk-lanes --lib -- --ignored timing_reveals --nocapture --test-threads 1
visits: TESTS = --release --package brisk-visits --lib -- --ignored a_million thirty_days --nocapture --test-threads 1

# Programs of the packages in `clients`, for the behaviour tests.
client-packages: COMMAND = tools/client-packages build

kernels: check-kernels
kernels: PURPOSES = kernels
kernels: COMMAND = tools/kernels cycles $(KERNELS)
check-kernels: PURPOSES = build
check-kernels: COMMAND = $(if $(HAS_KERNELS),cargo build --locked --profile kernels --package brisk-lanes --lib && tools/kernels check $(KERNELS))

httpwg: PURPOSES = strangers
httpwg: COMMAND = BRISK_PROGRAM=$(BRISK) tools/httpwg

sbom: PURPOSES = sbom
sbom: COMMAND = mkdir -p $(dir $(SBOM)) && tools/sbom --features '$(FEATURES)' > $(SBOM) && echo $(SBOM)

# The programs of the tests, and the hook that checks the form of commit messages.
setup: PURPOSES = build test
setup: COMMAND = tools/hook
