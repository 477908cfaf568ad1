# Names for long commands. `make help` lists them.
# Any Python from 3.11 on; 3.11 is what the pinned versions are tested with most.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
NEWEST ?= python3.13
RUN := $(VENV)/bin
# An environment variable, so that the constraints reach build environments too.
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# torch's threads spin while they wait for each other, which is slow on a machine that
# does something else too.
CALM := GOMP_SPINCOUNT=1000
# Tests start many processes; with their modules compiled once they start sooner.
unexport PYTHONDONTWRITEBYTECODE
# One process for each core, with a thread each; the tests of a file stay together, and
# files are begun in the order of perron_tests/fixtures.py.
TOGETHER := -n auto --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help

help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(VENV)/.dev ## make .venv with everything that tests, checks and benchmarks need

demo: $(VENV)/.demo ## train four poolings on real sentences, show what words weigh
	$(CALM) $(RUN)/python examples/demo.py

test: $(VENV)/.dev chromium ## run the tests
	OMP_NUM_THREADS=1 $(RUN)/python -m pytest $(TOGETHER) -m "not slow and not spark" -rs $(ARGS)

core: $(VENV)/.core ## run the tests of solver, pooling, layers and models: under a minute
	OMP_NUM_THREADS=1 $(RUN)/python -m pytest $(TOGETHER) -m "not slow" -rs $(ARGS) \
	  tests/solver tests/pooling tests/layers tests/models

newest: ## run the tests with the newest Python supported, in a .venv of its own
	$(MAKE) test PYTHON=$(NEWEST) VENV=.venv-$(NEWEST)

slow: $(VENV)/.dev chromium ## run the tests that take minutes
	OMP_NUM_THREADS=1 $(RUN)/python -m pytest $(TOGETHER) -m "slow and not spark" -rs $(ARGS)

spark: $(VENV)/.dev ## install pyspark and run its tests; needs Java 17
	$(RUN)/python -m pip install -q -e '.[spark]'
	$(RUN)/python -m pytest -m spark -rs $(ARGS)

# For the browser tests. Where it cannot be had they are skipped, and say so.
chromium:
	@command -v chromium > /dev/null || { \
	  test "$$(id -u)" = 0 && command -v apt-get > /dev/null && \
	  echo "installing chromium for the browser tests" && apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -qqy --no-install-recommends \
	    chromium > /dev/null; \
	} || echo "no chromium, and it cannot be installed here: no browser tests"

check: $(VENV)/.dev ## lint, formatting and types
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy

BENCHMARKS = solver pair_scores pooling training_step length vectors serve page \
  inference exported_solver training_scale corpus

bench: $(VENV)/.dev chromium ## run the benchmarks, write docs/benchmarks.md (a quarter of an hour)
	$(RUN)/python benchmarks/import_time.py
	for name in $(BENCHMARKS); do \
	  $(RUN)/python benchmarks/$$name.py --json runs/benchmarks/$$name.json || exit 1; \
	done
	$(RUN)/python benchmarks/write_report.py runs/benchmarks

pictures: $(VENV)/.dev ## make the screenshots of README and docs, from the demo's models
	$(RUN)/python docs/make_pictures.py

docs: site/index.html ## build the documentation's site, in site/

DOCUMENTED := $(shell find docs papers src mkdocs.yml -type f -not -path '*/__pycache__/*')

site/index.html: $(VENV)/.dev $(DOCUMENTED)
	NO_MKDOCS_2_WARNING=1 $(RUN)/mkdocs build --strict --quiet
	@echo "built: open $@ in a browser"

clean: ## remove .venv and what tools left behind
	rm -rf .venv .venv-* .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Perron needs Python 3.11 or newer, and $(PYTHON) is older:" \
	    "name another one with make PYTHON=..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(VENV)/bin/python pyproject.toml constraints.txt
	$(RUN)/python -m pip install -q torch
	$(RUN)/python -m pip install -q -e '.[core]'
	@touch $@

# torch first and alone, so that nothing else can ask for another one.
$(VENV)/.demo: $(VENV)/bin/python pyproject.toml constraints.txt
	$(RUN)/python -m pip install -q torch
	$(RUN)/python -m pip install -q -e '.[train,serve,demo]'
	@touch $@

$(VENV)/.dev: $(VENV)/.demo
	$(RUN)/python -m pip install -q -e '.[train,documents,serve,hf,ray,export,demo,reproduce,docs,dev]'
	@touch $@

.PHONY: help setup demo test core newest slow spark chromium check bench pictures docs clean
