# make demo   the main job on embedded data          make test        lint, types, architecture, all tests
# make bench  benchmarks, as ratios in one run       make test-slow   the studies that take minutes
# make test-chaos BUDGET=900   kill, damage and mislead every command for that many seconds; docs/reliability.md
# make docs   the documentation site, in site/       make notebooks   the notebooks of examples/, with their outputs
# make release-check   sdist and wheel in dist/, and every extra in a clean environment; EXTRAS="app slurm" checks these
# make browser  Chromium for the tests of the report's page, where apt-get can install it
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --disable-pip-version-check

.PHONY: demo test test-slow test-chaos lint bench docs notebooks release-check browser clean
.DELETE_ON_ERROR:

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "truedrift needs Python 3.11 or newer; $(PYTHON) is older. Name another one: make PYTHON=python3.12" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

# An editable install: only a change of pyproject.toml installs anything again.
$(VENV)/app.installed: pyproject.toml | $(BIN)/python
	@echo "installing truedrift and its dependencies into $(VENV): about 1.6 GB, several GB more if pip takes torch for CUDA"
	$(PIP) --editable '.[app]'
	@touch $@

$(VENV)/dev.installed: pyproject.toml | $(BIN)/python
	@echo "installing truedrift and the tools of its development into $(VENV): about 3 GB, several GB more if pip takes torch for CUDA"
	$(PIP) --editable '.[dev]'
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

BUDGET ?= 900
SEED   ?= 0
test-chaos: $(VENV)/dev.installed
	$(BIN)/python -m tests.chaos --budget $(BUDGET) --seed $(SEED)

docs: $(VENV)/dev.installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "open site/index.html"

notebooks: $(VENV)/dev.installed
	$(BIN)/python tools/notebooks.py

release-check: $(VENV)/dev.installed
	$(BIN)/python tools/release_check.py $(if $(EXTRAS),--extras $(EXTRAS))

# The package that the grouped loss is compared with lives in a folder of its own, away from the environment.
$(VENV)/compared/drifting_models: | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(VENV)/compared drift-models==0.1.1

bench: $(VENV)/dev.installed $(VENV)/compared/drifting_models
	PYTHONPATH=$(VENV)/compared $(BIN)/python -m benchmarks

# Root installs as it is; others by sudo if it asks for no password. It fails where that cannot be, and says what to do.
browser:
	@if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then echo "chromium and chromedriver are there"; exit 0; fi; \
	if [ "$$(id -u)" = 0 ]; then as=; else as="sudo -n"; fi; \
	get() { $$as env DEBIAN_FRONTEND=noninteractive apt-get -o Acquire::Retries=1 -o Acquire::http::Timeout=30 "$$@"; }; \
	install() { get install --yes --no-install-recommends chromium chromium-driver; }; \
	if command -v apt-get >/dev/null && { install || { get update && install; }; }; then exit 0; fi; \
	echo "no browser was installed; the page's tests in a browser are skipped. Get the Debian packages chromium and" \
	  "chromium-driver, or Chromium with its chromedriver on the PATH, and run make browser again" >&2; exit 1

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist site
