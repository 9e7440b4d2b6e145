SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := test

VENV := .venv
BIN := $(VENV)/bin
DOCS_VENV := .venv-docs
INSTALLED := $(VENV)/.installed
WORKERS ?= 2
PYTEST_ARGS ?=

# The first Python that is recent enough and can create environments; 3.11 first, because DGL has no wheels for later ones.
PYTHON = $(firstword $(foreach python,python3.11 python3 python3.12 python3.13 python3.14,\
	$(shell $(python) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(python))))

# Newer versions of pip read the second one for build dependencies.
export PIP_CONSTRAINT := constraints.txt
export PIP_BUILD_CONSTRAINT := constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Use the published archives beside the checkout if there are any, else the user's own data folder, as `workbench` does.
ifneq ($(wildcard ../shared/data),)
export WORKBENCH_DATA ?= $(abspath ../shared/data)
endif
# Keeps DGL from writing a settings file into the home folder.
export DGLBACKEND := pytorch

# Device and Python of the GPU check; DEVICE=cpu runs it with small sizes on a machine without a GPU.
DEVICE ?= cuda
CHECK_PYTHON ?= $(if $(wildcard $(BIN)/python),$(BIN)/python,python3)
# Of pip's output, the downloads of 10 MB and more, and the number of packages.
STEPS := awk '/(Downloading|Using cached) .*\([0-9.]+ [MG]B\)$$/ {size = substr($$(NF - 1), 2) + 0; \
	if ($$NF == "GB)" || size >= 10) {sub(/^ */, "  "); print}} \
	/^Installing collected/ {print "  Installing", NF - 3, "packages"} {fflush()}'
# smoke (synthetic data, seconds), real (WORKBENCH_DATA, minutes) or paper (a CUDA GPU).
SIZE ?= smoke
# Disables usage reports, and shortens tracebacks of unreachable stores.
export MLFLOW_DISABLE_TELEMETRY := true
export NO_MKDOCS_2_WARNING := true
# The tests start some hundred processes, each of which would compile the library's sources anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: test test-all mutations lint style types format reproduce ui lab notebooks figures bench gpu-check docs clean

# Types and layers are checked beside the tests, because pyright alone would leave a core idle for a minute.
test: $(INSTALLED) style
	$(MAKE) --no-print-directory types & types=$$!; trap 'kill $$types 2>/dev/null || true' EXIT; \
	$(BIN)/python -m pytest -p no:nbval --numprocesses $(WORKERS) --dist worksteal --durations 20 $(PYTEST_ARGS); \
	$(BIN)/python -m pytest notebooks --nbval-lax --nbval-current-env --numprocesses $(WORKERS) --dist loadfile \
		--no-loadscope-reorder; \
	wait $$types || { echo "types or layers are wrong: run make lint" >&2; exit 1; }

# The same with the exhaustive tests (killed processes, long random runs, large grids, statistics), four times the random
# examples, and coverage.
test-all:
	$(MAKE) test PYTEST_ARGS='-m "slow or not slow" --hypothesis-profile=thorough --cov --cov-report term'

# Plants forty faults, one at a time, and tells which of them the tests catch.
mutations: $(INSTALLED)
	$(BIN)/python -m tests.mutations

reproduce: $(INSTALLED)
	$(BIN)/workbench reproduce --size $(SIZE)

ui: $(INSTALLED)
	$(BIN)/python -m workbench.tracking.ui --open

lab: $(INSTALLED)
	$(BIN)/jupyter lab --config notebooks/jupyter_config.py

# Executes all notebooks in place; the static images need chromium.
notebooks: $(INSTALLED)
	PLOTLY_RENDERER=plotly_mimetype+png $(BIN)/jupyter nbconvert --config notebooks/nbconvert_config.py notebooks/*.ipynb notebooks/*/*.ipynb

lint: style types

style: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/lint-imports & imports=$$!; $(BIN)/pyright; wait $$imports

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Regenerates the verdicts, tables and picture of README.md and docs/; the picture needs chromium.
figures: $(INSTALLED)
	$(BIN)/python -m workbench.report.generated_docs --smoke
	$(BIN)/python docs/pictures.py

bench: $(INSTALLED)
	$(BIN)/workbench reproduce performance --size real

# Runs with the Python at hand, so that a machine with a GPU needs the library's core and pytest alone.
gpu-check:
	$(CHECK_PYTHON) -m experiments.gpu_check --device $(DEVICE)

# The site's generator has an environment of its own, because it reads the sources and imports nothing of the library.
docs: $(INSTALLED) $(DOCS_VENV)/.installed
	$(BIN)/python docs/site/pages.py build/pages
	$(DOCS_VENV)/bin/mkdocs build --quiet --config-file build/mkdocs.yml

$(DOCS_VENV)/.installed: docs/site/requirements.txt
	$(PYTHON) -m venv --clear $(DOCS_VENV)
	$(DOCS_VENV)/bin/python -m pip install -qq --requirement $<
	touch $@

clean:
	rm -rf $(VENV) $(DOCS_VENV) build dist *.egg-info .coverage htmlcov .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find workbench tests experiments -name __pycache__ -prune -exec rm -rf {} +

# Without --no-compile, nearly half of the time goes into byte code, most of it of modules that nothing imports.
$(INSTALLED): pyproject.toml constraints.txt
	@python="$(PYTHON)"; if [ -z "$$python" ]; then \
		echo "Python 3.11 or later with venv is needed; install python3.11 (on Debian: python3.11-venv)." >&2; exit 1; fi; \
	echo "environment in $(VENV): some 2 minutes, 2 GB, most of them torch"; $$python -m venv $(VENV)
	@$(BIN)/python -m pip install --no-compile --editable '.[dgl,metis,ogb,lab,dev]' | $(STEPS)
	@touch $@
