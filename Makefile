# Every target runs in a virtual environment of the project's own, made when it is first needed.
# PYTHON chooses the interpreter that makes it, VENV its place.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
MINUTES ?= 1
GRAPHS ?= 1000
STEPS ?= 500
SHARE ?= 0/1
COMPILER := $(VENV)/.compiler
READY := $(VENV)/.ready
PEERS := $(VENV)/.peers
SITE := $(VENV)/.docs
STYLE := $(VENV)/.style
INSTALL := -m pip install --quiet --disable-pip-version-check
# The package and groups of its dependencies, which pip knows since 25.1.
PIP := $(INSTALL) --upgrade 'pip>=25.1'
with_groups = $(INSTALL) --editable . $(foreach group,$(1),--group $(group))

# What is tested with the oldest and the newest versions of other packages.
GROUPS := test runtimes models dialect
SUITES := tests/frontends tests/interop tests/targets tests/training tests/test_pages.py \
	tests/test_readme.py tests/test_packaging.py tests/test_samples.py tests/test_training_samples.py

# What a release of torch may change first, at its edges.
MODULES := tests/frontends/test_torch_modules_as_written.py
MODULES_oldest := 20
MODULES_newest := 300

.DEFAULT_GOAL := help
.PHONY: help demo npm samples test test-all test-oldest test-newest locks dist lint types format docs bench fuzz random clean

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The compiler, as a user installs it.
$(COMPILER): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(INSTALL) --editable '.[onnx]'
	@touch $@

$(READY): $(COMPILER) locks/measured.txt
	$(BIN)/python $(PIP)
	$(BIN)/python $(call with_groups,test runtimes dialect browser dev) --constraint locks/measured.txt
	@touch $@

# What the benchmark alone needs.
$(PEERS): $(READY)
	$(BIN)/python $(call with_groups,bench) --constraint locks/measured.txt
	@touch $@

# What checks style, without the runtimes that tests compare with.
$(STYLE): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP)
	$(BIN)/python $(call with_groups,dev)
	@touch $@

# What the documentation alone needs, and nothing else: it reads the code without importing it.
$(SITE): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP)
	$(BIN)/python $(call with_groups,docs)
	@touch $@

demo: $(COMPILER) ## Differentiate two samples, check the gradients, and show a backward graph
	$(BIN)/nnef-grad samples/mlp.onnx -o $(VENV)/mlp_bwd.onnx --force --check
	$(BIN)/nnef-grad samples/linear.nnef --check

# The scripts of packages build nothing that the samples need.
npm: samples/web/node_modules ## Install the packages of samples/web/, for its tests

samples/web/node_modules: samples/web/package-lock.json
	npm ci --prefix samples/web --ignore-scripts
	@touch $@

samples: $(READY) ## Run the scripts of samples/, and a benchmark in brief
	@for sample in samples/*.py; do echo "== $$sample"; $(BIN)/python $$sample || exit 1; done
	@echo "== bench"; $(BIN)/python -m bench --brief

# A test of every kind, in a few minutes: of many random graphs, settings or networks it takes some.
test: $(READY) ## Run the tests, but of similar ones only a part
	$(BIN)/python -m pytest -n auto -m "not thorough"

# SHARE=K/N: beside those of `make test` only one in N of the others.
test-all: $(READY) ## Run all tests, or a share of them; SHARE=0/1 by default
	$(BIN)/python -m pytest -n auto --share $(SHARE)

# Beside packages of certain versions, in an environment of their own: fewer of what is alike.
test-oldest: $(VENV)/oldest/.ready ## Test with the oldest versions of other packages that are supported
test-newest: $(VENV)/newest/.ready ## Test with the newest versions of other packages

test-oldest test-newest: test-%:
	$(VENV)/$*/bin/python -m pytest -n auto -m "not thorough" --some 2 $(SUITES)
	$(VENV)/$*/bin/python -m pytest -n auto -m "not thorough" --some $(MODULES_$*) $(MODULES)

$(VENV)/%/.ready: locks/%.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)/$*
	$(VENV)/$*/bin/python $(PIP)
	$(VENV)/$*/bin/python $(call with_groups,$(GROUPS)) --constraint $<
	@touch $@

# For all Pythons that are supported; a file that is there would keep its versions.
locks: $(STYLE) ## Look for the oldest and the newest versions of other packages
	@for how in oldest:lowest-direct newest:highest; do \
		$(BIN)/uv pip compile pyproject.toml --upgrade --universal --python-version 3.10 --no-annotate \
			$(foreach group,$(GROUPS),--group $(group)) --resolution $${how#*:} \
			--custom-compile-command 'make locks' --quiet --output-file locks/$${how%:*}.txt || exit 1; done

dist: $(STYLE) ## Build the wheel and the sdist, and try the wheel alone
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/twine check --strict dist/*
	$(PYTHON) -m venv --clear $(VENV)/bare
	$(VENV)/bare/bin/python $(INSTALL) "$$(echo dist/*.whl)[onnx]"
	cp samples/mlp.onnx $(VENV)/bare
	cd $(VENV)/bare && bin/nnef-grad mlp.onnx -o mlp_bwd.onnx --check

lint: $(STYLE) ## Check style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml

types: $(READY) ## Check types
	$(BIN)/mypy

format: $(STYLE) ## Format the code
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
