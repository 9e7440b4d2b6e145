SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := test

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
WORKERS ?= 2
PYTEST_ARGS ?=

# The first Python that is new enough and can make environments. 3.11 comes first: DGL has no wheel for later ones.
PYTHON = $(firstword $(foreach python,python3.11 python3 python3.12 python3.13 python3.14,\
	$(shell $(python) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(python))))

# Newer versions of pip read the second one for the packages a build needs.
export PIP_CONSTRAINT := constraints.txt
export PIP_BUILD_CONSTRAINT := constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Published archives beside the checkout; without them the data folder is the user's own, as for the `workbench` command.
ifneq ($(wildcard ../shared/data),)
export WORKBENCH_DATA ?= $(abspath ../shared/data)
endif
# Else DGL writes a settings file into the home folder.
export DGLBACKEND := pytorch

# smoke (synthetic data, seconds), real (WORKBENCH_DATA, minutes) or paper (a CUDA GPU).
SIZE ?= smoke
# No reports to the outside, and short tracebacks of unreachable stores.
export MLFLOW_DISABLE_TELEMETRY := true

.PHONY: test lint format reproduce ui lab notebooks bench docs clean

test: lint
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --cov --cov-report term --durations 20 $(PYTEST_ARGS)
	$(BIN)/python -m pytest notebooks --nbval-lax --nbval-current-env --numprocesses $(WORKERS) --dist loadfile

reproduce: $(INSTALLED)
	$(BIN)/workbench reproduce --size $(SIZE)

ui: $(INSTALLED)
	$(BIN)/python -m workbench.tracking.server --open

lab: $(INSTALLED)
	$(BIN)/jupyter lab --config notebooks/jupyter_config.py

# Runs all in place; the static images need chromium.
notebooks: $(INSTALLED)
	PLOTLY_RENDERER=plotly_mimetype+png $(BIN)/jupyter nbconvert --config notebooks/nbconvert_config.py notebooks/*.ipynb notebooks/*/*.ipynb

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(INSTALLED)
	$(BIN)/python -m experiments.performance

docs: $(INSTALLED)
	$(BIN)/pdoc --docformat google --output-directory build/docs workbench

clean:
	rm -rf $(VENV) build dist *.egg-info .coverage htmlcov .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find workbench tests experiments -name __pycache__ -prune -exec rm -rf {} +

$(INSTALLED): pyproject.toml constraints.txt
	@python="$(PYTHON)"; if [ -z "$$python" ]; then \
		echo "Python 3.11 or later with venv is needed; install python3.11 (on Debian: python3.11-venv)." >&2; exit 1; fi; \
	set -x; $$python -m venv $(VENV)
	$(BIN)/python -m pip install -qq --editable '.[dgl,metis,ogb,lab,dev]'
	touch $@
