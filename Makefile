# make demo: set up and classify encrypted digits through two processes.
# make test: set up and run every test.
# make lint: formatters and linters, warnings denied.

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
SOURCES := $(shell find benchmarks crates -name '*.rs' -o -name Cargo.toml -o -name pyproject.toml) Cargo.toml Cargo.lock .cargo/config.toml pyproject.toml

.PHONY: setup demo test lint fuzz clean

setup: $(VENV)/.built

$(VENV)/.built: $(SOURCES)
	@command -v cargo >/dev/null || { echo "cargo is missing: install Rust 1.95 or later (https://rustup.rs)"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is older than 3.11: set PYTHON=python3.11"; exit 1; }
	test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV) || { echo "cannot make a virtual environment: apt install python3-venv"; exit 1; }
	$(BIN)/pip install --quiet --disable-pip-version-check 'maturin>=1.16,<2'
	VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin develop --release --quiet --extras dev
	VIRTUAL_ENV=$(abspath $(VENV)) $(BIN)/maturin develop --release --quiet --manifest-path benchmarks/Cargo.toml
	touch $@

demo: setup
	$(BIN)/pronghorn demo

test: setup
	cargo test --workspace --exclude pronghorn-python --exclude pronghorn-bench-python --quiet
	$(BIN)/pytest -q

lint: setup
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings
	! cargo tree --package pronghorn-python --edges normal,build,features | grep test-seed
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
