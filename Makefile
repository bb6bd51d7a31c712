# Every target runs in a virtual environment of the project's own, made when it is first needed.
# PYTHON chooses the interpreter that makes it, VENV its place.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
MINUTES ?= 1
GRAPHS ?= 1000
STEPS ?= 500
READY := $(VENV)/.ready
PEERS := $(VENV)/.peers
SITE := $(VENV)/.docs
STYLE := $(VENV)/.style

.DEFAULT_GOAL := help
.PHONY: help demo test test-all lint types format docs bench fuzz random clean

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test,runtimes,dialect,browser,dev]'
	@touch $@

# What the benchmark alone needs.
$(PEERS): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	@touch $@

# What checks style, without the runtimes that tests compare with.
$(STYLE): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# What the documentation alone needs, and nothing else: it reads the code without importing it.
$(SITE): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

demo: $(READY) ## Run the samples and print what happened
	@for sample in samples/*.py; do echo "== $$sample"; $(BIN)/python $$sample || exit 1; done
	@echo "== bench"; $(BIN)/python -m bench --brief

# A test of every kind, in a few minutes: of many random graphs, settings or networks it takes some.
test: $(READY) ## Run the tests, of those that are alike some
	$(BIN)/python -m pytest -n auto -m "not thorough"

test-all: $(READY) ## Run all tests
	$(BIN)/python -m pytest -n auto

lint: $(STYLE) ## Check style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY) ## Check types
	$(BIN)/mypy

format: $(STYLE) ## Bring the code into its form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(SITE) ## Build the documentation as a site, site/index.html
	$(BIN)/python docs/pictures/draw.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: $(PEERS) ## Measure speed and memory, and write docs/speed.md
	$(BIN)/python -m bench --install --write
	$(BIN)/python -m bench.recomputation

fuzz: $(READY) ## Fuzz the compiler; MINUTES=1 by default
	$(BIN)/python -m fuzz.fuzz --minutes $(MINUTES)

# In the runtimes of a target there are no training steps to compare.
random: $(READY) ## Compare random graphs and training steps with torch, or graphs in the runtimes of a TARGET; GRAPHS=1000 STEPS=500
	cd tests && OMP_NUM_THREADS=1 $(abspath $(BIN))/python -m support.random_graphs --graphs $(GRAPHS) $(TARGET:%=--target %)
	$(if $(TARGET),,cd tests && OMP_NUM_THREADS=1 $(abspath $(BIN))/python -m support.random_steps --steps $(STEPS))

clean: ## Remove what the targets made
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
