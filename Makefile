# `make demo` and `make test` set everything up by themselves, in a virtual environment of their own.
PYTHON ?= python3
# Installed before everything else: a bare `torch` would fetch several GB of CUDA.
TORCH  ?= torch==2.13.0
JOBS   ?= 2

BIN   := .venv/bin
READY := .venv/.ready

.PHONY: demo test test-all corpus conformance judges lint typecheck bench bench-search bench-train docs site \
    wheel setup opencl browser mlir clean

demo: $(READY)
	@$(BIN)/python -m bench.demo

bench: $(READY)
	@$(BIN)/weft bench cpu

bench-search: $(READY)
	@$(BIN)/python -m bench.search --json bench/results/search.json

bench-train: $(READY)
	@$(BIN)/python -m bench.train --json bench/results/train.json

PYTEST := $(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile --no-loadscope-reorder --durations=10

# Of tests that take long a fixed part of the cases (tests/part.py).
test: lint typecheck opencl browser mlir
	@echo "pytest, $(JOBS) processes"
	@$(PYTEST) --part

# Every case. `python -m tests.part build/tests.xml` notes how long tests took.
test-all: lint typecheck opencl browser mlir
	@echo "pytest, $(JOBS) processes"
	@$(PYTEST) --junitxml=build/tests.xml

corpus: $(READY)
	@$(BIN)/python -W ignore -m tests.gpu.corpus --jobs $(JOBS)

conformance: $(READY)
	@$(BIN)/python -W ignore -m tests.conformance --jobs $(JOBS)
	@$(BIN)/python -W ignore -m tests.conformance.training
	@$(BIN)/python -m tests.conformance.native
	@$(BIN)/python -W ignore -m tests.conformance.mlir
	@$(BIN)/python -W ignore -m tests.conformance.triton
	@$(BIN)/python -W ignore -m tests.conformance.jax
	@$(BIN)/python -m tests.conformance.export --target cpu
	@$(BIN)/python -m tests.conformance.export --target cpu --models

judges: $(READY)
	@$(BIN)/python -m tests.judges

lint: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

typecheck: $(READY)
	@echo "pyright"
	@$(BIN)/pyright

docs: $(READY)
	@$(BIN)/python -m pytest -q tests/test_docs.py --update-golden

# The pages of docs/ and the references that docs/reference.py writes, as build/site/index.html.
site: $(READY)
	@$(BIN)/python -m sphinx -W --keep-going -q -b html -d build/site-cache docs build/site

# The wheel, as an index would have it, in an environment that has nothing else; a program there
# needs each kind of file that is not Python: headers, C, the page, tables of workloads.
WHEEL := build/wheel
wheel: $(READY)
	@echo "wheel 1/3: built and checked in dist"
	@rm -rf build/lib build/bdist.* $(WHEEL) dist
	@$(BIN)/python -m pip wheel -qq --no-deps -w dist .
	@$(BIN)/twine check --strict dist/*.whl
	@echo "wheel 2/3: installed in $(WHEEL), with $(TORCH)"
	@$(PYTHON) -m venv $(WHEEL)
	@$(WHEEL)/bin/pip install -qq --disable-pip-version-check "$(TORCH)"
	@$(WHEEL)/bin/pip install -qq --disable-pip-version-check dist/*.whl
	@echo "wheel 3/3: used there"
	@cd $(WHEEL) && sh "$(CURDIR)/tests/wheel.sh"

setup: $(READY) opencl browser mlir

INSTALL := DEBIAN_FRONTEND=noninteractive timeout 300 apt-get -qq -y --no-install-recommends install

# The suite runs OpenCL kernels on the CPU by PoCL. Where there is no driver and none can be
# installed (by root, with apt-get), those tests are skipped and say so.
DRIVERS := /etc/OpenCL/vendors
POCL    := $(INSTALL) pocl-opencl-icd
opencl:
	@if [ -z "$$(ls $(DRIVERS)/*.icd 2>/dev/null)" ] && [ "$$(id -u)" = 0 ] \
	    && command -v apt-get >/dev/null; then \
	    echo "setup: PoCL, for the tests of OpenCL"; \
	    { $(POCL) || { timeout 120 apt-get -qq update && $(POCL); }; } >/dev/null 2>&1 \
	    || echo "setup: PoCL cannot be installed: tests that run OpenCL are skipped"; \
	fi

# It opens the pages of `weft explain` in a browser, which is found or installed in the same way.
CHROMIUM := $(INSTALL) chromium
browser:
	@if ! { command -v chromium || command -v chromium-browser || command -v google-chrome; } \
	    >/dev/null && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "setup: Chromium, for the tests of pages"; \
	    { $(CHROMIUM) || { timeout 120 apt-get -qq update && $(CHROMIUM); }; } >/dev/null 2>&1 \
	    || echo "setup: Chromium cannot be installed: tests that open a page are skipped"; \
	fi

# It lowers the loop level by MLIR's own tools, installed in the same way.
MLIR := $(INSTALL) mlir-22-tools
mlir:
	@if ! { command -v mlir-opt-22 || command -v mlir-opt; } >/dev/null && [ "$$(id -u)" = 0 ] \
	    && command -v apt-get >/dev/null; then \
	    echo "setup: MLIR's tools, for the tests of --ir mlir"; \
	    { $(MLIR) || { timeout 120 apt-get -qq update && $(MLIR); }; } >/dev/null 2>&1 \
	    || echo "setup: MLIR's tools cannot be installed: tests that run MLIR are skipped"; \
	fi

$(READY): pyproject.toml
	@echo "setup 1/3: virtual environment in .venv"
	@$(PYTHON) -m venv .venv
	@echo "setup 2/3: $(TORCH)"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check "$(TORCH)"
	@echo "setup 3/3: weft and its tools"
	@$(BIN)/python -m pip install -qq --disable-pip-version-check --editable ".[dev,bench]"
	@touch $@

clean:
	rm -rf .venv build dist docs/reference .pytest_cache .ruff_cache .hypothesis *.egg-info
