# make demo: set up and classify encrypted digits through two processes.
# make test: set up and run every test.
# make lint: formatters, linters, documentation and fuzz targets, warnings denied.
# make constant-time: no branch and no address depends on a secret, checked on the binaries (Valgrind, x86-64; minutes).
# make symbols: the extension modules with symbols and line tables, for profilers and debuggers (Linux).
# Where there is no cargo, each gets a Rust toolchain first (scripts/get-rust says from where).

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
SOURCES := $(shell find benchmarks crates -name '*.rs' -o -name Cargo.toml -o -name pyproject.toml) Cargo.toml Cargo.lock pyproject.toml

# The tools of a Rust toolchain that scripts/get-rust found or installed; empty where PATH has cargo.
RUST := $(VENV)/rust
export PATH := $(abspath $(RUST))/bin:$(PATH)
# Quiet for pip, which maturin starts too.
export PIP_QUIET := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
MATURIN := CARGO_TERM_QUIET=true VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin develop --release --quiet

.PHONY: setup rust demo test lint constant-time symbols fuzz clean

setup: rust $(VENV)/.built

rust: $(BIN)/maturin
	@scripts/get-rust $(abspath $(RUST)) $(BIN)/python

$(BIN)/maturin:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is older than 3.11: set PYTHON=python3.11"; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV) || { echo "cannot make a virtual environment: apt install python3-venv"; exit 1; }
	@$(BIN)/pip install 'maturin>=1.16,<2'

$(VENV)/.built: $(SOURCES) | rust
	@echo "building the extension modules (minutes, the first time)"
	@$(MATURIN) --extras dev
	@$(MATURIN) --manifest-path benchmarks/Cargo.toml
	@touch $@

demo: setup
	@$(BIN)/pronghorn demo

test: setup
	cargo test --workspace --exclude pronghorn-python --exclude pronghorn-bench-python --quiet
	$(BIN)/pytest -q -n 2 --dist loadfile

lint: setup
	@cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 || rustup component add rustfmt clippy
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings
	! cargo tree --package pronghorn-python --edges normal,build,features | grep -e test-seed -e toy-protocols -e fixed-keys
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet
	$(FUZZ_CHECK)
	cargo fmt --manifest-path constant-time/Cargo.toml --check
	cargo clippy --locked --manifest-path constant-time/Cargo.toml --target-dir target --quiet -- -D warnings
	$(BIN)/ruff format --check benchmarks/python python scripts tests
	$(BIN)/ruff check benchmarks/python python scripts tests
	$(BIN)/mypy

# The fuzz targets by the stable compiler, beside what is built. Nothing is linked, so the library of libFuzzer, which
# takes a minute to compile, need not exist. A stale fuzz/Cargo.lock is an error.
FUZZ_CHECK := CUSTOM_LIBFUZZER_PATH=/none/libfuzzer.a cargo clippy --locked --manifest-path fuzz/Cargo.toml --target-dir target --bins --quiet -- -D warnings

constant-time: rust
	$(BIN)/python scripts/constant_time.py

# As maturin builds them, but not stripped.
PYO3 = PYO3_BUILD_EXTENSION_MODULE=1 PYO3_CONFIG_FILE=$(firstword $(wildcard $(CURDIR)/target/maturin/pyo3-config-*.txt))
symbols: setup
	$(PYO3) cargo rustc --release --quiet --package pronghorn-python --crate-type cdylib
	cp target/release/lib_native.so python/pronghorn/_native.abi3.so
	$(PYO3) cargo rustc --release --quiet --package pronghorn-bench-python --crate-type cdylib
	cp target/release/lib_core.so benchmarks/python/pronghorn_bench/_core.abi3.so

# Needs the nightly toolchain and cargo-fuzz; a minute a target, or FUZZ_SECONDS.
FUZZ_SECONDS ?= 60
fuzz: setup
	for target in $$(cargo +nightly fuzz list); do cargo +nightly fuzz run $$target -- -max_total_time=$(FUZZ_SECONDS) -len_control=0 -max_len=400 || exit 1; done
	$(BIN)/python fuzz/import_onnx.py --seconds $(FUZZ_SECONDS)

clean:
	cargo clean
	rm -rf $(VENV)
