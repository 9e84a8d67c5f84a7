# Two commands do everything: `make demo` and `make test`. Each target sets up .venv by itself.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
READY_TO_RUN := .venv/.ready-to-run
# The packages of development include all that the demo needs. Where they are installed, nothing is installed again.
READY_FOR_DEMO := $(if $(wildcard $(READY)),$(READY),$(READY_TO_RUN))
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
FITTING_PYTHON = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "NoETL needs Python 3.11 or newer (set PYTHON=...)"; exit 2; }

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow test-attacks check bench lock verify clean

help: ## Show what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(READY): requirements-dev.lock pyproject.toml
	@$(FITTING_PYTHON)
	@echo "[1/3] Make .venv (about 5 seconds)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "[2/3] Install the $$(grep -c '^[a-z].*==' requirements-dev.lock) packages of development, Spark and Java among them (usually 2 to 8 minutes)"
	@$(INSTALL) --require-hashes --no-deps -r requirements-dev.lock
	@echo "[3/3] Install NoETL from this directory (about 5 seconds)"
	@$(INSTALL) --no-build-isolation --no-deps --editable .
	@touch $@

$(READY_TO_RUN): requirements.lock requirements-build.lock pyproject.toml
	@$(FITTING_PYTHON)
	@echo "[1/4] Make .venv (about 5 seconds)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "[2/4] Install the $$(grep -c '^[a-z].*==' requirements.lock) packages that NoETL needs, Spark and Java among them (usually 1 to 5 minutes)"
	@$(INSTALL) --require-hashes --no-deps -r requirements.lock
	@echo "[3/4] Install the $$(grep -c '^[a-z].*==' requirements-build.lock) small packages that build NoETL (about 5 seconds)"
	@$(INSTALL) --require-hashes --no-deps -r requirements-build.lock
	@echo "[4/4] Install NoETL from this directory (about 5 seconds)"
	@$(INSTALL) --no-build-isolation --no-deps --editable .
	@touch $@

setup: $(READY) ## Make .venv from the lock file of development
	@echo "ready: $(BIN)/noetl --help"

demo: $(READY_FOR_DEMO) ## Run the example pipeline on embedded defaults, change it, go back, and prove the first answer
	$(BIN)/python -m examples.clinic.demo

# Hundreds of processes are started by tests, and where PYTHONDONTWRITEBYTECODE is set each would compile everything anew.
# Three at once on two cores: much of the time is spent waiting for leases, servers and processes (20 minutes instead of 23).
test: $(READY) ## Run the tests, with the servers they need
	@$(BIN)/python -m compileall -q src
	$(BIN)/python -m pytest -n 3 --max-worker-restart 0 --dist loadgroup -m "not slow" $(ARGS)

test-slow: $(READY) ## Run the tests that start Spark over and over: clusters, drivers, kills, the ledger on them
	@$(BIN)/python -m compileall -q src
	$(BIN)/python -m pytest -n 2 --max-worker-restart 0 --dist loadgroup -o faulthandler_timeout=1300 -m slow --ignore tests/attacks $(ARGS)

test-attacks: $(READY) ## Run every attack, the long ones too: forged reports, hostile input, damaged files, floods
	@$(BIN)/python -m compileall -q src
	$(BIN)/python -m pytest -n 2 --max-worker-restart 0 --dist loadgroup -o faulthandler_timeout=1300 tests/attacks $(ARGS)

check: $(READY) ## Lint, types, layers, generated files, invariants
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/check_repository.py

verify: $(READY) ## Write generated files anew and show what changed
	$(BIN)/python tools/generate.py
	git status --short docs schemas src/noetl/schema

bench: $(READY) ## Measure all figures against their floors (ARGS="append --json" for some)
	$(BIN)/python -m bench $(or $(ARGS),all)

# What runs in production is what the tests ran with: the development lock is resolved first and binds the other two.
LOCK := $(BIN)/pip-compile --quiet --generate-hashes --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-strip-extras --no-header --allow-unsafe --upgrade
lock: $(READY) ## Resolve the lock files anew
	$(LOCK) --extra dev -o requirements-dev.lock pyproject.toml
	$(LOCK) -c requirements-dev.lock -o requirements.lock pyproject.toml
	$(LOCK) -c requirements-dev.lock --only-build-deps --build-deps-for editable -o requirements-build.lock pyproject.toml

clean: ## Remove the environment and caches; the data in .noetl stay
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
