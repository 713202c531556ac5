# Every target makes its own environment first: `make run` and `make test` need nothing done before them.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

.PHONY: run test check test-long bench clean

run: $(STAMP)  ## WordCount on a local Ray, with a live table
	@$(BIN)/rstream run topologies/wordcount.py

test: $(STAMP)  ## everything that fits in minutes
	@$(BIN)/python -m tests.run

check: $(STAMP)  ## lint, types, unit tests: the quick loop
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -q -m "not long and not cluster" tests/unit tests/behaviour tests/test_tidy.py

test-long: $(STAMP)  ## kills, soaks and large inputs
	@$(BIN)/python -m tests.run --long

bench: $(STAMP)  ## every benchmark, with ratios to a reference measured in the same run
	@$(BIN)/python -m benchmarks

clean:  ## what the other targets and the tools leave
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage \
		spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml
	@echo "setting up $(VENV) (a few minutes, once) ..."
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "rstream needs Python 3.11 or newer: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[spark,bench,dev]'
	@touch $(STAMP)
