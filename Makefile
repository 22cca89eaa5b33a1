# Two commands: `make demo` shows it, `make test` proves it. Both install what they need into .venv.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: setup system demo test lint bench docs clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,docs]'
	touch $@

demo: setup
	$(BIN)/thinwire demo

test: setup system
	$(BIN)/python -m pytest -n 2 --dist loadfile

# iproute2 and Chromium, where they may be installed; the tests that need them skip without.
system:
	@scripts/system-packages

lint: setup
	$(BIN)/ruff check src tests examples
	$(BIN)/ruff format --check src tests examples
	$(BIN)/mypy
	$(BIN)/lint-imports

# About five minutes. Shaped links need root and iproute2; without them use --rates none.
bench: setup
	$(BIN)/thinwire bench sync --n 25.6m --workers 8 --rates 1gbit,100mbit --density 0.01 \
	  --recipes topk,topk-dsa,gtopk,ok-topk,union,omnireduce --json docs/results/sync-8-workers.json
	$(BIN)/thinwire bench sync --n 4m --workers 4,8,16 --rates none --density 0.01 --steps 3 \
	  --recipes topk,gtopk,ok-topk --json docs/results/sync-scaling.json

docs: setup
	$(BIN)/sphinx-build -q -W -b html docs docs/_build/html

clean:
	rm -rf .venv build dist docs/_build
