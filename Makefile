# make demo: set up and classify encrypted digits through two processes.
# make test: set up and run every test.
# make lint: formatters and linters, warnings denied.

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
SOURCES := $(shell find benchmarks crates -name '*.rs' -o -name Cargo.toml -o -name pyproject.toml) Cargo.toml Cargo.lock .cargo/config.toml pyproject.toml

# The tools of a Rust toolchain that scripts/get-rust found or installed; empty where PATH has cargo.
RUST := $(VENV)/rust
export PATH := $(abspath $(RUST))/bin:$(PATH)
# Quiet for pip, which maturin starts too.
export PIP_QUIET := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
MATURIN := VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin develop --release --quiet

.PHONY: setup rust demo test lint fuzz clean

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
	$(BIN)/pytest -q

lint: setup
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings
	! cargo tree --package pronghorn-python --edges normal,build,features | grep -e test-seed -e toy-protocols
	$(BIN)/ruff format --check benchmarks/python python tests
	$(BIN)/ruff check benchmarks/python python tests
	$(BIN)/mypy

# Needs the nightly toolchain and cargo-fuzz; a minute a target.
FUZZ_SECONDS ?= 60
fuzz: setup
	for target in $$(cargo +nightly fuzz list); do cargo +nightly fuzz run $$target -- -max_total_time=$(FUZZ_SECONDS) -len_control=0 -max_len=400 || exit 1; done
	$(BIN)/python fuzz/import_onnx.py --seconds $(FUZZ_SECONDS)

clean:
	cargo clean
	rm -rf $(VENV)
