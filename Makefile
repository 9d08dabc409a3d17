# make demo   the main job on embedded data          make test        lint, types, architecture, all tests
# make bench  benchmarks, as ratios in one run       make test-slow   the studies that take minutes
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: demo test test-slow lint bench clean
.DELETE_ON_ERROR:

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "truedrift needs Python 3.11 or newer; $(PYTHON) is older. Name another one: make PYTHON=python3.12" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

# An editable install: only a change of pyproject.toml installs anything again.
$(VENV)/app.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[app]'
	@touch $@

$(VENV)/dev.installed: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@ $(VENV)/app.installed

demo: $(VENV)/app.installed
	$(BIN)/truedrift demo

lint: $(VENV)/dev.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint
	$(BIN)/python -m pytest -n 2

test-slow: lint
	$(BIN)/python -m pytest -n 2 -m 'slow or not slow'

# The package that the grouped loss is compared with lives in a folder of its own, away from the environment.
$(VENV)/compared/drifting_models: | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(VENV)/compared drift-models==0.1.1

bench: $(VENV)/dev.installed $(VENV)/compared/drifting_models
	PYTHONPATH=$(VENV)/compared $(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist
