# Shortcuts for long commands. `make help` lists them.
# Any Python from 3.11 on. The pinned versions are tested most with 3.11.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
NEWEST ?= python3.13
RUN := $(VENV)/bin
# An environment variable, so that the constraints also apply to build environments.
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Waiting OpenMP threads spin, which is slow on a machine that also runs other programs.
LOW_SPIN := GOMP_SPINCOUNT=1000
# Tests start many processes, which start faster with cached bytecode.
unexport PYTHONDONTWRITEBYTECODE
# One single-threaded process per core. The tests of a file run in the same process, and
# files start in the order defined in perron_tests/fixtures.py.
XDIST := -n auto --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help

help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(VENV)/.dev ## create .venv with all dependencies of tests, checks and benchmarks

demo: $(VENV)/.demo ## compare pooling methods on real sentences and draw their word graphs
	$(LOW_SPIN) $(RUN)/python examples/demo.py

test: $(VENV)/.dev chromium ## run the tests
	OMP_NUM_THREADS=1 $(RUN)/python -m pytest $(XDIST) -m "not slow and not spark" -rs $(ARGS)

core: $(VENV)/.core ## run the tests of solver, pooling, layers and models in under a minute
	OMP_NUM_THREADS=1 $(RUN)/python -m pytest $(XDIST) -m "not slow" -rs $(ARGS) \
	  tests/solver tests/pooling tests/layers tests/models

newest: ## run the tests with the newest supported Python, in a separate .venv
	$(MAKE) test PYTHON=$(NEWEST) VENV=.venv-$(NEWEST)

slow: $(VENV)/.dev chromium ## run the slow tests (minutes)
	OMP_NUM_THREADS=1 $(RUN)/python -m pytest $(XDIST) -m "slow and not spark" -rs $(ARGS)

spark: $(VENV)/.dev ## install pyspark and run its tests; needs Java 17
	$(RUN)/python -m pip install -q -e '.[spark]'
	$(RUN)/python -m pytest -m spark -rs $(ARGS)

# For the browser tests, which are skipped with a message if it cannot be installed.
chromium:
	@command -v chromium > /dev/null || { \
	  test "$$(id -u)" = 0 && command -v apt-get > /dev/null && \
	  echo "installing chromium for the browser tests" && apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -qqy --no-install-recommends \
	    chromium > /dev/null; \
	} || echo "chromium is not installed and cannot be installed here: skipping browser tests"

check: $(VENV)/.dev ## check lint, formatting and types
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy

BENCHMARKS = solver pair_scores pooling training_step length vectors serve page \
  inference exported_solver training_scale corpus cold_start

bench: $(VENV)/.dev chromium ## run the benchmarks and write docs/benchmarks.md (15 minutes)
	for name in $(BENCHMARKS); do \
	  $(RUN)/python benchmarks/$$name.py --json runs/benchmarks/$$name.json || exit 1; \
	done
	$(RUN)/python benchmarks/write_report.py runs/benchmarks

gpu: $(VENV)/.dev ## run the kernel tests on a GPU, and then the GPU benchmark
	PYTHONPATH=tests/helpers $(RUN)/python -m perron_tests.triton $(ARGS)
	$(RUN)/python benchmarks/gpu.py --json runs/benchmarks/gpu.json $(ARGS)

pictures: $(VENV)/.dev ## regenerate the screenshots in README and docs from the demo's models
	$(RUN)/python docs/make_pictures.py

docs: site/index.html ## build the documentation into site/

DOCUMENTED := $(shell find docs papers src mkdocs.yml -type f -not -path '*/__pycache__/*')

site/index.html: $(VENV)/.dev $(DOCUMENTED)
	NO_MKDOCS_2_WARNING=1 $(RUN)/mkdocs build --strict --quiet
	@echo "built: open $@ in a browser"

clean: ## remove .venv and cached files
	rm -rf .venv .venv-* .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Perron needs Python 3.11 or newer, got $(PYTHON)." \
	    "Select another one with make PYTHON=..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(VENV)/bin/python pyproject.toml constraints.txt
	$(RUN)/python -m pip install -q torch
	$(RUN)/python -m pip install -q -e '.[core]'
	@touch $@

# torch is installed first and alone, so that no dependency selects another build.
$(VENV)/.demo: $(VENV)/bin/python pyproject.toml constraints.txt
	$(RUN)/python -m pip install -q torch
	$(RUN)/python -m pip install -q -e '.[train,serve,hf,demo]'
	@touch $@

$(VENV)/.dev: $(VENV)/.demo
	$(RUN)/python -m pip install -q -e '.[train,documents,serve,hf,ray,export,demo,reproduce,docs,dev]'
	@touch $@

.PHONY: help setup demo test core newest slow spark chromium check bench gpu pictures docs clean
