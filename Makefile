# Two commands need nothing before them: `make demo` and `make test`. `make help` lists the rest.
.DEFAULT_GOAL := help
SHELL := /bin/bash

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.ready
COMPILED := .venv/.compiled

.PHONY: help setup apps demo addresses payments wallpapers pulse soak test proof test-fast test-dev test-django flakes lint format types mypy pyright docs package stranger release reference bench chaos chaos-ha mutants lock clean

help: ## list what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1|/' | awk -F'|' '{printf "  make %-10s %s\n", $$1, $$2}'

setup: $(STAMP) ## make the private virtual environment (.venv)

$(STAMP): requirements.lock pyproject.toml
	@PYTHON="$(PYTHON)" tools/setup.sh

demo: setup ## a day of downtime survived, and the proof of it (KEEP=1: everything runs on, until Ctrl-C)
	@$(BIN)/trueup demo $(if $(KEEP),--keep)

addresses: setup ## a chain that is reorganised, a fleet of which one is killed, and books that balance (SECONDS_OF_TRAFFIC=60)
	@$(BIN)/python -m apps.addresses demo --seconds $${SECONDS_OF_TRAFFIC:-60}

payments: setup ## payments on a chain, watched by replicas of which one is killed, and books that balance (SECONDS_OF_TRAFFIC=90)
	@$(BIN)/python -m apps.payments demo --seconds $${SECONDS_OF_TRAFFIC:-90}

wallpapers: setup ## uploads interrupted at every step, storage that goes away, and every event told once (SECONDS_OF_TRAFFIC=60)
	@$(BIN)/python -m apps.wallpapers demo --seconds $${SECONDS_OF_TRAFFIC:-60}

pulse: setup ## a cron suite under Redis locks: a holder is killed, Redis restarts, and every tick ran once (SECONDS_OF_TRAFFIC=60)
	@$(BIN)/python -m apps.pulse demo --seconds $${SECONDS_OF_TRAFFIC:-60}

apps: setup ## all five demos, one after the other; fails unless every proof holds (SECONDS_OF_TRAFFIC=60)
	@failed=; for each in demo addresses payments wallpapers pulse; do \
	  echo "== $$each"; $(MAKE) --no-print-directory $$each || failed="$$failed $$each"; \
	done; \
	if [ -n "$$failed" ]; then echo "The proof does not hold:$$failed"; exit 1; fi; echo "All five proofs hold."

soak: setup ## one application for minutes, with the faults of its demo over and over and an independent check at the end (APP=payments MINUTES=10)
	@if [ "$(or $(APP),payments)" = birthdays ]; then \
	  $(BIN)/trueup demo --rate 30 --users $$((30 * 60 * $(or $(MINUTES),10))); \
	else \
	  $(BIN)/python -m apps.$(or $(APP),payments) demo --seconds $$((60 * $(or $(MINUTES),10))); \
	fi

# The tests start hundreds of processes: what one has compiled, none of the others should have to. Options of the interpreter do not
# reach the processes that pytest starts; variables do. Development mode as a whole costs an eighth more time (decision 0049).
PYTEST := env -u PYTHONDONTWRITEBYTECODE PYTHONWARNINGS=default::ResourceWarning PYTHONFAULTHANDLER=1 $(BIN)/python -m pytest $(if $(WORKERS),-n $(WORKERS))

test: setup ## lint, types, and every test against real servers; of large matrices a covering selection (WORKERS=2: that many at a time)
	@$(MAKE) --no-print-directory -j3 --output-sync=target lint mypy pyright $(COMPILED)
	@$(PYTEST)

# What tests import is compiled once, beside the checks of types: the workers of pytest, which start together, would each do it (22
# seconds of CPU time in a new clone instead of 7). What changes later is little. If this fails, the tests say why.
$(COMPILED): $(STAMP)
	@$(PYTEST) -n 0 --collect-only -q >/dev/null 2>&1 || true
	@touch $@

proof: setup ## every test with every cell of its matrix, as each night; lasts longer than make test
	@$(PYTEST) --proof

AROUND := apps django docs embedded support_tests

test-fast: setup ## of the engine, the first case of every test function that is not slow: a minute or two, to run after each change
	@$(PYTEST) -m "not slow" --one-of-each -x $(AROUND:%=--ignore tests/%)

flakes: setup ## the slow tests over and over while the processors and the disk are busy; says which failed (RUNS=5 TESTS=tests/crash)
	@$(BIN)/python -m tools.flakes --runs $${RUNS:-5} $${TESTS:-tests}

test-dev: setup ## the tests of make test in Python's development mode, in every process of it
	@PYTHONDEVMODE=1 $(PYTEST)

test-django: setup ## the tests of trueup.django on other releases of Django (DJANGO="4.2 5.2"; 6.1 needs Python 3.12)
	@for release in $${DJANGO:-4.2}; do \
	  made=.cache/django-$$release; echo "== Django $$release"; \
	  $(BIN)/uv venv --quiet --clear --python $(BIN)/python $$made && \
	  $(BIN)/uv pip install --quiet --python $$made/bin/python --require-hashes -r requirements.lock && \
	  $(BIN)/uv pip install --quiet --python $$made/bin/python "django==$$release.*" && \
	  $(BIN)/uv pip install --quiet --python $$made/bin/python --no-deps --no-build-isolation --editable . && \
	  $$made/bin/python -m pytest tests/django || exit 1; \
	done

lint: setup ## style, formatting and the layering of the packages
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-cache

format: setup ## rewrite the files the way lint wants them
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: setup ## strict type checking of src/ with mypy, and of the API as users write it with mypy and pyright
	@$(MAKE) --no-print-directory -j2 --output-sync=target mypy pyright

mypy:
	@$(BIN)/mypy

pyright:
	@$(BIN)/pyright --project pyproject.toml --pythonpath $(BIN)/python

docs: setup ## build the documentation into site/ (SERVE=1: serve it on a local port while you write)
	@$(BIN)/zensical $(if $(SERVE),serve,build --strict)

bench: setup ## throughput and latency as ratios against the raw-SQL limit and other job queues in the same run
	@$(BIN)/python -m bench.jobs
	@$(BIN)/python -m bench.reconcile
	@$(BIN)/python -m bench.peers

chaos: setup ## all faults mixed at random over jobs, schedules, leases, rows, webhooks, a pooler and two releases (MINUTES=5 SEED=7 JSON=file)
	@$(BIN)/python -m tests.crash.chaos --minutes $(or $(MINUTES),5) $(if $(SEED),--seed $(SEED)) $(if $(JSON),--json $(JSON))

chaos-ha: setup ## failover on a real cluster (Patroni, etcd) under load: six faults, and what must hold after each (PARTS=kill,lagging JSON=file)
	@$(BIN)/python -m tests.ha $(if $(PARTS),--parts $(PARTS)) $(if $(JSON),--json $(JSON))

package: setup ## build sdist and wheel into dist/, check them, and run the quick start from the wheel in a fresh environment
	@$(BIN)/python -m tools.release package

stranger: setup ## the path of a new user, timed: a fresh environment, the README, every tutorial, a reconciler of one's own
	@$(BIN)/python -m tools.stranger

release: setup lint types docs ## fold changes/ into the changelog, then make package; commit and tag what it tells you
	@$(BIN)/python -m tools.release fold
	@$(BIN)/python -m tools.release package
	@echo "Commit this as $$($(BIN)/python -m tools.release version), then push the tag v$$($(BIN)/python -m tools.release version)."

mutants: setup ## make small mistakes on purpose, one at a time, and see that the tests notice (MUTANTS="id id")
	@nice -n 15 $(BIN)/python -m tools.mutants $(MUTANTS)

reference: setup ## regenerate schema.sql, the reference pages and the diagrams
	@$(BIN)/python -m tools.schema
	@$(BIN)/python -m tools.reference
	@$(BIN)/python -m tools.diagrams
	@$(BIN)/python -m tests.model.page

lock: setup ## resolve the dependencies anew into requirements.lock
	@tools/lock.sh

clean: ## remove everything that was made
	@rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist site
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
