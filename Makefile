# Needs make and Python 3.11 or newer. Everything else is installed into .venv (or .venv-hooks) here.

PYTHON ?= python3
PORT ?= 8790
SERVE_ARGS ?=
PYTEST_ARGS ?=
# One process more than there are cores: some tests wait for processes that they start.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)

# A file of tests stays in one process: its tests share servers. The long files come first (tests/conftest.py).
PYTEST := -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
BIN := .venv/bin
HOOKS_BIN := .venv-hooks/bin
NODE := tests/openapi/node_modules
TORCH := $(shell sed -n "s/^torch==//p" constraints.txt)
PROJECTS := pyproject.toml clients/python/pyproject.toml constraints.txt
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help serve test long test-hooks test-browser test-openapi test-system check lint format generate docs demo bench clean

help: ## say what the targets do
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 15

serve: .venv/installed ## install what is missing and start the service
	$(BIN)/odometer serve --port $(PORT) $(SERVE_ARGS)

test: .venv/installed-dev ## run the tests that need nothing but Python
	$(BIN)/python $(PYTEST) $(PYTEST_ARGS)

long: .venv/installed-dev .venv-hooks/installed ## what is too long for each run: a thousand faults of each kind of store, 10,000 training loops (hours)
	FAULTS=1040 $(BIN)/python -m pytest $(PYTEST_ARGS) tests/durability/test_lost_places.py
	MEMORY_REQUESTS=100000 $(BIN)/python -m pytest $(PYTEST_ARGS) tests/durability/test_memory.py
	GUARD_MODEL_PROGRAMS=10000 $(HOOKS_BIN)/python -m pytest $(PYTEST_ARGS) tests/hooks/test_guard_model.py

test-hooks: .venv-hooks/installed ## run the tests that need torch, Opacus, OpenDP (installs them, 2 to 5 GB)
	$(HOOKS_BIN)/python $(PYTEST) $(PYTEST_ARGS) tests/hooks

test-browser: .venv/installed-browser ## run the tests that need a real Chromium
	@CHROMIUM="$${CHROMIUM:-/usr/bin/chromium}"; test -x "$$CHROMIUM" || { \
	  echo "There is no Chromium at $$CHROMIUM. On Debian: apt-get install chromium. Elsewhere: set CHROMIUM to its path." >&2; \
	  exit 1; }
	$(BIN)/python $(PYTEST) $(PYTEST_ARGS) tests/browser

test-openapi: .venv/installed-dev $(NODE)/installed ## a linter and a generated client on /openapi.json (needs node and npm)
	$(BIN)/python -m pytest $(PYTEST_ARGS) tests/openapi

test-system: .venv/installed-dev ## kill the real server fifty times, watch its system calls, try the proxy, run each benchmark at a tiny size (needs strace, nginx)
	@command -v strace >/dev/null || { echo "There is no strace here. On Debian: apt-get install strace" >&2; exit 1; }
	@PATH="$$PATH:/usr/sbin" command -v nginx >/dev/null || { echo "There is no nginx here. On Debian: apt-get install nginx" >&2; exit 1; }
	$(BIN)/python $(PYTEST) $(PYTEST_ARGS) tests/system tests/bench

check: lint test ## lint and test

lint: .venv/installed-dev ## style, types, import contracts, generated files, words
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/generate.py --check
	$(BIN)/python tools/check_words.py

format: .venv/installed-dev ## format, and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

generate: .venv/installed-dev ## write the files that are generated from the registries
	$(BIN)/python tools/generate.py

docs: generate ## the same: the reference pages are generated

demo: .venv-hooks/installed ## two real jobs against a served ledger, until it refuses
	$(HOOKS_BIN)/python demo/run.py

bench: .venv/installed-dev ## every script in bench/, one after the other; fails if one misses its goal
	@failed=; for script in $$(grep -l "^if __name__" bench/*.py | grep -v _peers); do \
	  echo "== $$script"; $(BIN)/python "$$script" || failed="$$failed $$script"; \
	done; test -z "$$failed" || { echo "missed its goal or failed:$$failed" >&2; exit 1; }

clean: ## remove the environments and caches (never the ledger in data/)
	rm -rf .venv .venv-hooks $(NODE) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis

# A virtual environment at the given place, or a sentence that says what is missing.
define create-venv
	@command -v $(PYTHON) >/dev/null || { \
	  echo "$(PYTHON) was not found. Install Python 3.11 or newer, or say which: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "$(PYTHON) is $$($(PYTHON) -V 2>&1); 3.11 or newer is needed: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) cannot make virtual environments. On Debian: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(1) || { rm -rf $(1); exit 1; }
endef

.venv/bin/python:
	$(call create-venv,.venv)

.venv-hooks/bin/python:
	$(call create-venv,.venv-hooks)

# Each stamp is one install that went through; a changed project file or pin makes it run again.
.venv/installed: $(PROJECTS) | .venv/bin/python
	@echo "installing the service into .venv: a minute or two"
	$(BIN)/python $(PIP_INSTALL) -e clients/python -e '.[redis]'
	@touch $@

.venv/installed-dev: $(PROJECTS) | .venv/bin/python
	@echo "installing what the tests need into .venv: a minute or two"
	$(BIN)/python $(PIP_INSTALL) -e clients/python -e '.[dev]'
	@touch .venv/installed $@

.venv/installed-browser: $(PROJECTS) | .venv/bin/python
	$(BIN)/python $(PIP_INSTALL) -e clients/python -e '.[dev,browser]'
	@touch .venv/installed .venv/installed-dev $@

$(NODE)/installed: tests/openapi/package.json tests/openapi/package-lock.json
	@command -v npm >/dev/null || { echo "There is no npm here. On Debian: apt-get install nodejs npm" >&2; exit 1; }
	cd tests/openapi && npm ci --silent
	@touch $@

# torch first and alone: asked for by another package it may come as a build for graphics cards, of several GB.
.venv-hooks/installed: $(PROJECTS) | .venv-hooks/bin/python
	@echo "installing torch, Opacus and OpenDP into .venv-hooks: several minutes, several GB"
	$(HOOKS_BIN)/python $(PIP_INSTALL) torch==$(TORCH)
	$(HOOKS_BIN)/python $(PIP_INSTALL) -e 'clients/python[opacus,opendp]' -e '.[dev]' scikit-learn
	@$(HOOKS_BIN)/python -c 'import importlib.metadata as m, sys; v = m.version("torch"); \
	  sys.exit(0 if v.split("+")[0] == "$(TORCH)" else f"torch $(TORCH) was replaced by {v}")'
	@touch $@
