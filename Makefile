# What a person runs. `make` alone tells.
.DEFAULT_GOAL := help
.PHONY: help setup lock collector demo test chaos bench clean
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# The first Python on the PATH that is new enough; `make setup PYTHON=/path/to/python3` names another.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON := $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c '$(NEW_ENOUGH)' 2>/dev/null && { command -v $$p; break; }; done)

help:  ## say what there is
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 16

setup: $(READY)  ## make .venv: everything pinned and checked by hash; nothing to do when it is there

$(READY): requirements/dev.txt pyproject.toml
	@'$(or $(PYTHON),false)' -c '$(NEW_ENOUGH)' 2>/dev/null || { echo 'Fluvial needs Python 3.11 or newer, and $(or $(PYTHON),the PATH) has none: install one, or name it with make setup PYTHON=/path/to/python3.' >&2; exit 1; }
	@echo "Making $(VENV) with $$('$(PYTHON)' --version); the first time this takes a minute or two."
	@if command -v uv >/dev/null; then \
		uv venv --quiet --allow-existing --python '$(PYTHON)' $(VENV); \
		uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements/dev.txt; \
		uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .; \
	else \
		'$(PYTHON)' -m venv $(VENV); \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r requirements/dev.txt; \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .; \
	fi
	@touch $@

lock:  ## write requirements/*.txt and streams/broker_jars.lock anew from pyproject.toml (needs uv)
	@command -v uv >/dev/null || { echo 'make lock needs uv: pip install uv.' >&2; exit 1; }
	uv pip compile $(LOCK) pyproject.toml --group dev -o requirements/dev.txt
	uv pip compile $(LOCK) pyproject.toml -c requirements/dev.txt -o requirements/runtime.txt
	echo 'hatchling' | uv pip compile $(LOCK) - -c requirements/dev.txt -o requirements/build.txt
	$(MAKE) setup
	$(BIN)/python requirements/lock_jars.py
LOCK := --quiet --no-header --universal --python-version 3.11 --generate-hashes

COLLECTOR := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/fluvial/collector-0.165.0/collector

collector: $(COLLECTOR)  ## build the OpenTelemetry Collector that a test uses where it is there (needs Go 1.26)

$(COLLECTOR): tests/collector/main.go tests/collector/go.mod tests/collector/go.sum
	@echo "Building the OpenTelemetry Collector 0.165.0; this takes about two minutes."
	cd tests/collector && CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o '$@' .

demo: setup  ## a real market, agents that trade on it, and what is learnt: about two minutes
	@$(BIN)/python examples/demo/run.py

test: setup  ## all that CI runs: lint, types, import contracts, tests on a real Apache Kafka
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest

chaos: setup  ## the long storms: 20 rounds of all that can happen to the river, 50,000 events through two hops
	FLUVIAL_CHAOS=long $(BIN)/python -m pytest -s tests/chaos

bench: setup  ## every measure of benchmarks/, one after the other
	@for measure in benchmarks/*.py; do echo "== $$measure"; $(BIN)/python "$$measure"; done

clean:  ## remove .venv, caches and what was built; data folders stay
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
