# Two commands: `make demo` shows it, `make test` proves it. Both install what they need into .venv.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: setup demo test lint bench docs clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,docs]'
	touch $@

demo: setup
	$(BIN)/thinwire demo

test: setup
	$(BIN)/python -m pytest

lint: setup
	$(BIN)/ruff check src tests examples
	$(BIN)/ruff format --check src tests examples
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup
	$(BIN)/thinwire bench

docs: setup
	$(BIN)/sphinx-build -q -W -b html docs docs/_build/html

clean:
	rm -rf .venv build dist docs/_build
