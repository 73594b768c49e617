# Two commands do everything on a fresh machine: `make demo` and `make test`. Both set up $(VENV) first, once.

PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test setup lint types docs fresh clean

demo: $(READY)  ## Compare graph and eager on the bundled model.
	$(BIN)/cudagraph-doctor diff reference

test: $(READY)  ## Run the tests.
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(JOBS) --dist loadfile

setup: $(READY)

lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(READY)
	$(BIN)/mypy

docs: $(READY)  ## Build the site into site/.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

fresh: $(READY)  ## Put the commands' real output into README and docs.
	$(BIN)/python docs/regenerate.py

# Installed again only when what is to be installed has changed.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "cudagraph-doctor needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build site .mypy_cache .pytest_cache .ruff_cache
