# Each target works in a fresh clone that has nothing but make and Python 3.11 or newer.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# A lock names all there is to install. With --no-deps pip takes it at its word: of a dependency that is
# asked for with an extra it would look at the newest version instead, and refuse that for having no hash.
LOCKED := --no-deps --require-hashes --only-binary=:all:
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--custom-compile-command "make lock"

RUNTIME := $(VENV)/.installed-runtime
DEV := $(VENV)/.installed-dev

# One worker a core, and one more: some tests wait for other processes. WORKERS=0 is for debugging.
WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
PYTEST := $(BIN)/python -m pytest
PARALLEL := -n $(WORKERS) --dist worksteal
# Hundreds of processes are started, and each would compile anew what it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run test check cover fix soak lock clean
.DEFAULT_GOAL := help

help: ## show this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1|\2/p' Makefile | column -t -s '|' 2>/dev/null \
		|| sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1: \2/p' Makefile

run: ARGS ?= run "hello"
run: $(RUNTIME) ## install what running needs, and run an agent (ARGS='run "hello"')
	@$(BIN)/holdfast $(ARGS)

test: $(DEV) ## run the tests (ARGS='tests/core -k stop')
	@$(PYTEST) -q $(PARALLEL) $(ARGS)

check: $(DEV) ## all that must pass before a change goes in: format, lint, types, layers, tests
	@echo "format" && $(BIN)/ruff format --check --quiet .
	@echo "lint" && $(BIN)/ruff check --quiet .
	@echo "spelling" && $(BIN)/codespell
	@# Meanwhile the tests are read once, and kept as read: each worker would do it for itself.
	@echo "types" && { $(PYTEST) -qq --collect-only >/dev/null 2>&1 & \
		$(BIN)/python -m mypy; code=$$?; wait; exit $$code; }
	@echo "layers" && $(BIN)/lint-imports --no-cache
	@echo "tests" && $(PYTEST) -q $(PARALLEL)

cover: $(DEV) ## which lines and branches the tests reach; the seeds are not traced, they take long
	@$(PYTEST) -q $(PARALLEL) -m "not soak and not seeds" --cov --cov-report=term

fix: $(DEV) ## format the code and mend what a tool can mend
	@$(BIN)/ruff check --quiet --fix . ; $(BIN)/ruff format .

soak: $(DEV) ## run the long tests, without a time limit (ARGS as for test)
	@$(PYTEST) -q $(PARALLEL) -m soak -o timeout=0 -o faulthandler_timeout=0 $(ARGS) \
		|| { [ $$? -eq 5 ] && echo "there are no soak tests to run"; }

lock: $(BIN)/uv ## pin all dependencies again (LOCK='--upgrade' to take newer ones)
	@echo "resolving dependencies ..."
	@$(COMPILE) $(LOCK) --group build pyproject.toml -o requirements.lock
	@$(COMPILE) $(LOCK) --group dev -c requirements.lock pyproject.toml -o requirements-dev.lock

clean: ## remove all that these targets have made
	rm -rf $(VENV) build dist htmlcov .coverage .coverage.* .hypothesis .*_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { \
		echo "there is no $(PYTHON) here; install Python 3.11 or newer, or name one with PYTHON=" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "$(PYTHON) is $$($(PYTHON) -V 2>&1), and Holdfast needs 3.11 or newer; name one with PYTHON=" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "$(PYTHON) cannot make virtual environments; install its venv package (Debian: apt install python3-venv)" >&2; exit 1; }
	@echo "creating $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)

$(BIN)/uv: | $(BIN)/python
	@echo "installing uv ..."
	@$(PIP) install --only-binary=:all: uv

$(RUNTIME): requirements.lock pyproject.toml | $(BIN)/python
	@echo "installing what running needs ..."
	@$(PIP) install $(LOCKED) -r requirements.lock
	@$(PIP) install --no-deps --no-build-isolation -e .
	@$(PIP) check
	@touch $@

$(DEV): requirements-dev.lock pyproject.toml | $(BIN)/python
	@echo "installing what development needs ..."
	@# Most of it is never imported, so it is compiled when it is.
	@$(PIP) install --no-compile $(LOCKED) -r requirements-dev.lock
	@$(PIP) install --no-deps --no-build-isolation -e .
	@$(PIP) check
	@touch $(RUNTIME) $@
