# Two commands need nothing before them: `make demo` and `make test`. `make help` lists the rest.
.DEFAULT_GOAL := help
SHELL := /bin/bash

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.ready
COMPILED := .venv/.compiled

.PHONY: help setup apps demo addresses payments wallpapers pulse soak test proof test-fast test-dev test-django flakes lint format types mypy pyright docs package stranger release reference bench chaos chaos-ha mutants lock clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1|/' | awk -F'|' '{printf "  make %-10s %s\n", $$1, $$2}'

setup: $(STAMP) ## create the virtual environment (.venv)

$(STAMP): requirements.lock pyproject.toml
	@PYTHON="$(PYTHON)" tools/setup.sh

demo: setup ## recover from a day of downtime, and check the result (KEEP=1: keep running until Ctrl-C)
	@$(BIN)/trueup demo $(if $(KEEP),--keep)

addresses: setup ## demo: a chain reorganisation and a killed instance; checks the books (SECONDS_OF_TRAFFIC=60)
	@$(BIN)/python -m apps.addresses demo --seconds $${SECONDS_OF_TRAFFIC:-60}

payments: setup ## demo: payments on a chain and a killed replica; checks the books (SECONDS_OF_TRAFFIC=90)
	@$(BIN)/python -m apps.payments demo --seconds $${SECONDS_OF_TRAFFIC:-90}

wallpapers: setup ## demo: uploads interrupted at every step and a storage outage; checks that each event is published once (SECONDS_OF_TRAFFIC=60)
	@$(BIN)/python -m apps.wallpapers demo --seconds $${SECONDS_OF_TRAFFIC:-60}

pulse: setup ## demo: cron jobs under Redis locks, a killed holder and a Redis restart; checks that each tick ran once (SECONDS_OF_TRAFFIC=60)
	@$(BIN)/python -m apps.pulse demo --seconds $${SECONDS_OF_TRAFFIC:-60}

apps: setup ## run all five demos in turn; fails unless every check passes (SECONDS_OF_TRAFFIC=60)
	@failed=; for each in demo addresses payments wallpapers pulse; do \
	  echo "== $$each"; $(MAKE) --no-print-directory $$each || failed="$$failed $$each"; \
	done; \
	if [ -n "$$failed" ]; then echo "The proof does not hold:$$failed"; exit 1; fi; echo "All five proofs hold."

soak: setup ## run one application for minutes, repeat the faults of its demo, and check the result independently (APP=payments MINUTES=10)
	@if [ "$(or $(APP),payments)" = birthdays ]; then \
	  $(BIN)/trueup demo --rate 30 --users $$((30 * 60 * $(or $(MINUTES),10))); \
	else \
	  $(BIN)/python -m apps.$(or $(APP),payments) demo --seconds $$((60 * $(or $(MINUTES),10))); \
	fi

# The tests start hundreds of processes: what one has compiled, none of the others should have to. Options of the interpreter do not
# reach the processes that pytest starts; variables do. Development mode as a whole costs an eighth more time (decision 0049).
PYTEST := env -u PYTHONDONTWRITEBYTECODE PYTHONWARNINGS=default::ResourceWarning PYTHONFAULTHANDLER=1 $(BIN)/python -m pytest $(if $(WORKERS),-n $(WORKERS))

test: setup ## run lint, types, and every test against real servers, with a covering selection of large matrices (WORKERS=2: two at a time)
	@$(MAKE) --no-print-directory -j3 --output-sync=target lint mypy pyright $(COMPILED)
	@$(PYTEST)

# What tests import is compiled once, beside the checks of types: the workers of pytest, which start together, would each do it (22
# seconds of CPU time in a new clone instead of 7). What changes later is little. If this fails, the tests say why.
$(COMPILED): $(STAMP)
	@$(PYTEST) -n 0 --collect-only -q >/dev/null 2>&1 || true
	@touch $@

proof: setup ## run every test with every cell of its matrix, as the nightly run does; takes longer than make test
	@$(PYTEST) --proof

AROUND := apps django docs embedded support_tests

test-fast: setup ## run the first case of each quick test of the engine: a minute or two, for after each change
	@$(PYTEST) -m "not slow" --one-of-each -x $(AROUND:%=--ignore tests/%)

flakes: setup ## repeat the slow tests while the processors and the disk are busy; lists those that failed (RUNS=5 TESTS=tests/crash)
	@$(BIN)/python -m tools.flakes --runs $${RUNS:-5} $${TESTS:-tests}

test-dev: setup ## run the tests of make test with Python's development mode in every process
	@PYTHONDEVMODE=1 $(PYTEST)

test-django: setup ## run the tests of trueup.django on other releases of Django (DJANGO="4.2 5.2"; 6.1 needs Python 3.12)
	@for release in $${DJANGO:-4.2}; do \
	  made=.cache/django-$$release; echo "== Django $$release"; \
	  $(BIN)/uv venv --quiet --clear --python $(BIN)/python $$made && \
	  $(BIN)/uv pip install --quiet --python $$made/bin/python --require-hashes -r requirements.lock && \
	  $(BIN)/uv pip install --quiet --python $$made/bin/python "django==$$release.*" && \
	  $(BIN)/uv pip install --quiet --python $$made/bin/python --no-deps --no-build-isolation --editable . && \
	  $$made/bin/python -m pytest tests/django || exit 1; \
	done

lint: setup ## check style, formatting and the layering of the packages
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-cache

format: setup ## format the files
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: setup ## check the types of src/ strictly with mypy, and user code (tests/typing) with mypy and pyright
	@$(MAKE) --no-print-directory -j2 --output-sync=target mypy pyright

mypy:
	@$(BIN)/mypy

pyright:
	@$(BIN)/pyright --project pyproject.toml --pythonpath $(BIN)/python

docs: setup ## build the documentation into site/ (SERVE=1: serve it on a local port while you write)
	@$(BIN)/zensical $(if $(SERVE),serve,build --strict)

bench: setup ## measure throughput and latency as ratios to raw SQL and to other job queues in the same run
	@$(BIN)/python -m bench.jobs
	@$(BIN)/python -m bench.reconcile
	@$(BIN)/python -m bench.peers

chaos: setup ## inject random faults into jobs, schedules, leases, rows, webhooks, a pooler and two releases (MINUTES=5 SEED=7 JSON=file)
	@$(BIN)/python -m tests.crash.chaos --minutes $(or $(MINUTES),5) $(if $(SEED),--seed $(SEED)) $(if $(JSON),--json $(JSON))

chaos-ha: setup ## test failover on a real cluster (Patroni, etcd) under load: six faults, with checks after each (PARTS=kill,lagging JSON=file)
	@$(BIN)/python -m tests.ha $(if $(PARTS),--parts $(PARTS)) $(if $(JSON),--json $(JSON))

package: setup ## build sdist and wheel into dist/, check them, and run the quick start from the wheel in a fresh environment
	@$(BIN)/python -m tools.release package

stranger: setup ## time a new user's path: a fresh environment, the README, every tutorial, a new reconciler
	@$(BIN)/python -m tools.stranger

release: setup lint types docs ## fold changes/ into the changelog, then make package; commit and push the tag it names
	@$(BIN)/python -m tools.release fold
	@$(BIN)/python -m tools.release package
	@echo "Commit this as $$($(BIN)/python -m tools.release version), then push the tag v$$($(BIN)/python -m tools.release version)."

mutants: setup ## mutation tests: make one small mistake at a time, and check that the tests fail (MUTANTS="id id")
	@nice -n 15 $(BIN)/python -m tools.mutants $(MUTANTS)

reference: setup ## regenerate schema.sql, the reference pages and the diagrams
	@$(BIN)/python -m tools.schema
	@$(BIN)/python -m tools.reference
	@$(BIN)/python -m tools.diagrams
	@$(BIN)/python -m tests.model.page

lock: setup ## resolve the dependencies into requirements.lock
	@tools/lock.sh

clean: ## remove all generated files
	@rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist site
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
