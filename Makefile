# Two commands: `make demo` shows it, `make test` proves it. Both install what they need into .venv.
# While you work: `make quick`, `make lint`, `make docs`.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

PAPERS := gtopk ok-topk dragonn deepreduce s2

.PHONY: $(PAPERS:%=paper-%) setup system demo test test-gpu test-ray versions soak soak-gpu fuzz quick examples lint docs bench bench-converge bench-gpu bench-converge-gpu clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,docs]'
	touch $@

demo: setup
	$(BIN)/thinwire demo

# A worker that is done takes over what the other still has: files with few and slow tests come last.
test: setup system
	$(BIN)/python -m pytest -n 2 --dist worksteal

QUICK := tests/contracts/test_quick.py tests/test_house.py tests/test_pipeline.py \
  tests/test_settings.py tests/test_thinwire.py tests/test_types.py tests/cookbook tests/feedback \
  tests/sparsify/test_contract.py tests/units/test_unit.py tests/units/test_stats.py

# Under 90 s on 2 cores: laws 1 and 2 at P = 1, 2, 3 for every piece and recipe, and the unit tests
# of what needs no processes.
quick: setup
	$(BIN)/python -m pytest -n 2 --dist loadfile $(QUICK)

# Every file in examples/, with two processes. `make test` runs them too.
examples: setup
	$(BIN)/python -m pytest tests/test_examples.py

# What runs on a GPU, with the Python that has CUDA: make test-gpu PYTHON=python3. The kernels first,
# then real NCCL ranks, 2 and 4 on one card. JOBS: processes for the first part.
LOG ?= docs/results/test-gpu.log
JOBS ?= 4
test-gpu:
	PYTHONPATH=src:tests $(PYTHON) -m gpu --log $(LOG) --jobs $(JOBS)

# Ray Train, in an environment of its own: 0.6 GB, and some minutes on two cores.
RAY_LOG ?= docs/results/test-ray.log
test-ray:
	$(PYTHON) -m venv .venv-ray
	.venv-ray/bin/pip install --quiet -c constraints.txt -e '.[ray]' transformers pytest pytest-timeout hypothesis pillow
	.venv-ray/bin/pip freeze | grep -E '^(ray|torch|transformers)==' > $(RAY_LOG)
	.venv-ray/bin/python -m pytest tests/frontends/test_ray.py -v -o addopts= --no-header --disable-warnings >> $(RAY_LOG)

# The front ends' tests with the versions of one environment: a row of docs/results/versions.json.
# make versions PYTHON=/an/environment/bin/python NAME=lowest
NAME ?= as it is
versions:
	PYTHONPATH=src:tests $(PYTHON) scripts/versions.py "$(NAME)"

# STEPS with random delays for each recipe, over NCCL as it comes, in BUDGET_S seconds at most.
# Then FAULT_S seconds of ranks that die or stall. CONTROL: kills in plain sums of NCCL, with MPS and without.
# A short look: make soak-gpu PYTHON=python3 STEPS=200 BUDGET_S=90. `python -m support.soak --gpu` is the same.
SOAK_LOG ?= docs/results/soak-gpu.log
STEPS ?= 1000
BUDGET_S ?= 480
FAULT_S ?= 120
CONTROL ?= 0
soak-gpu:
	PYTHONPATH=src:tests $(PYTHON) -m support.soak --gpu --log $(SOAK_LOG) --steps $(STEPS) --budget-s $(BUDGET_S) \
	  --fault-s $(FAULT_S) --control $(CONTROL)

# Random faults over random recipes, and the seed to have them again; MINUTES of it. FLAT=100000: so many small steps.
MINUTES ?= 15
FLAT ?= 0
soak: setup
	PYTHONPATH=tests $(BIN)/python -m support.soak --minutes $(MINUTES) --flat $(FLAT)

# FUZZ altered payloads, FUZZ altered parts for each codec, FUZZ altered messages of each form that is no codec's, and FUZZ altered
# states for the loader: an hour on an idle core.
FUZZ ?= 200000
FUZZ_LOG ?= docs/results/fuzz.log
fuzz: setup
	PYTHONPATH=tests $(BIN)/python -m support.codec.fuzz --payloads $(FUZZ) > $(FUZZ_LOG)
	PYTHONPATH=tests $(BIN)/python -m support.codec.part_fuzz --parts $(FUZZ) >> $(FUZZ_LOG)
	PYTHONPATH=tests $(BIN)/python -m support.collective.message_fuzz --messages $(FUZZ) >> $(FUZZ_LOG)
	PYTHONPATH=tests $(BIN)/python -m support.state_fuzz --states $(FUZZ) >> $(FUZZ_LOG)

# Chromium, where it may be installed; the tests that need it skip without.
system:
	@scripts/system-packages

lint: setup
	$(BIN)/ruff check src tests examples scripts
	$(BIN)/ruff format --check src tests examples scripts
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: setup
	$(BIN)/python -m pytest -q tests/report/test_blocks.py  # tables that differ from their files
	$(BIN)/sphinx-build -q -W -b html docs docs/_build/html

# All of docs/results but the GPU's and convergence-*.json, in about half an hour on an idle machine
# with 2 cores. Shaped links need root or user namespaces; without them use --rates none.
RESULTS := docs/results
SYNC := $(BIN)/thinwire bench sync
TRAIN := $(BIN)/thinwire bench train
PEERS := torch-fp16,torch-bf16,torch-powersgd-1,torch-powersgd-4,torch-topk,torch-dgc,torch-gaussiank,torch-oktopk
SPARSE := topk,topk-dsa,gtopk,ok-topk,union,omnireduce
HALVED := union(0.001, dtype='bf16'),omnireduce(0.001, codec='rice+bf16')

bench: setup
	$(SYNC) --n 25.6m --workers 8 --rates 1gbit,100mbit --density 0.01 --recipes $(SPARSE) \
	  --json $(RESULTS)/sync-8-workers.json
	$(SYNC) --n 4m --workers 4,8,16 --rates none --density 0.01 --steps 3 \
	  --recipes topk,gtopk,ok-topk --json $(RESULTS)/sync-scaling.json
	$(SYNC) --n 25.6m --workers 4 --rates 1gbit,100mbit --density 0.001 \
	  --recipes "$(PEERS),$(SPARSE),$(HALVED)" --json $(RESULTS)/sync-peers-4.json
	$(SYNC) --n 25.6m --workers 8 --rates 1gbit --density 0.001 \
	  --recipes $(PEERS),$(SPARSE) --json $(RESULTS)/sync-peers-8.json
	$(SYNC) --n 1m,8m,25.6m --workers 4 --rates none --density 0.01 --steps 31 \
	  --recipes dense,auto,$(SPARSE) --json $(RESULTS)/sync-auto-loopback.json
	$(SYNC) --n 1m,8m,25.6m --workers 4 --rates 1gbit --density 0.01 --steps 9 \
	  --recipes dense,auto,$(SPARSE) --json $(RESULTS)/sync-auto-fast.json
	$(SYNC) --n 1m,8m,25.6m --workers 4 --rates 100mbit --density 0.01 --steps 3 --warmup 1 \
	  --recipes dense,auto,$(SPARSE) --json $(RESULTS)/sync-auto-slow.json
	$(TRAIN) --models resnet18 --workers 4 --rates 1gbit --steps 6 --density 0.001 \
	  --recipes "dgc,dragonn(batched=False),dragonn,dragonn(selective=True)" \
	  --json $(RESULTS)/train-dragonn.json
	$(TRAIN) --models resnet18 --workers 4 --rates 1gbit --overlap on,off \
	  --recipes torch-bf16,topk,ok-topk,union,auto --json $(RESULTS)/train-resnet18.json
	$(TRAIN) --models resnet18 --workers 4 --rates none --steps 40 --recipes dense,auto \
	  --json $(RESULTS)/train-loopback.json
	$(TRAIN) --models vgg16,gpt2 --workers 4 --rates 1gbit --steps 3 \
	  --recipes torch-bf16,topk,ok-topk,union --json $(RESULTS)/train-large.json
	$(TRAIN) --models digits,text --workers 4 --rates 100mbit \
	  --recipes torch-bf16,torch-powersgd-1,topk,ok-topk,union --json $(RESULTS)/train-tasks.json
	$(TRAIN) --models words --workers 8 --rates 100mbit --steps 30 \
	  --recipes "parallax,dense(coo='union'),dense(coo='sketch-allreduce'),s2,dense" \
	  --json $(RESULTS)/train-embedding.json
	$(BIN)/thinwire bench kernels --device cpu --n 25.6m --density 0.001,0.01 --threads 1,2 \
	  --json $(RESULTS)/kernels-cpu.json --png $(RESULTS)/kernels-cpu.png
	$(BIN)/thinwire bench kernels --device cpu --n 25.6m --density 0.001,0.01 --threads 1 --seconds 1 \
	  --ops "encode topk;encode dgc;encode dragonn;encode ok-topk;encode union" --json $(RESULTS)/encode-cpu.json
	$(BIN)/thinwire bench kernels --device cpu --n 65536,131072,262144,524288,1048576,4194304 --density 0.001 \
	  --threads 1 --seconds 1 --ops "encode topk;encode dgc;encode dragonn" --json $(RESULTS)/encode-sizes-cpu.json
	$(BIN)/thinwire bench kernels --device cpu --n 25.6m --density 0.001,0.01 --threads 1 \
	  --ops "bloom encode;bloom decode" --json $(RESULTS)/bloom-cpu.json
	$(BIN)/thinwire bench codecs --json $(RESULTS)/codecs.json --png $(RESULTS)/codecs.png

# A paper's figures and tables again, with what holds of them, and its page: make paper-gtopk. Under 15 minutes each.
PAGE_OF_s2 := s2-reducer
$(PAPERS:%=paper-%): paper-%: setup
	$(BIN)/thinwire reproduce $* --json $(RESULTS)/paper-$*.json --png $(RESULTS)/paper-$*.png \
	  --page docs/papers/$(or $(PAGE_OF_$*),$*).md --page docs/papers/index.md

# Time to a loss on the CPU, small; RESUME=--resume goes on with what an interrupted run has done.
CONVERGE := torch-dense,torch-powersgd-4,int8,int4,powersgd,powersgd(16),optim:topk,topk,dgc,union,optim:union,chunk-topk
RESUME ?=
bench-converge: setup
	$(BIN)/thinwire bench converge --model transformer-small --optimizer adamw --workers 2 --seeds 3 \
	  --steps 200 --lrs 1e-3,3e-3,1e-2,3e-2 --rates 100mbit,1gbit --recipes '$(CONVERGE)' --check warn \
	  --verify topk@100mbit $(RESUME) --json $(RESULTS)/converge-cpu.json

# The GPU's part, with the Python that has CUDA: make bench-gpu PYTHON=python3. What it wrote is drawn where there is
# matplotlib: thinwire report docs/results/train-gpu.json --sheet docs/results/train-gpu.png \
#   --page docs/results/index.md
GPU := PYTHONPATH=src $(PYTHON) -m thinwire.cli.app bench
bench-gpu:
	$(GPU) train --device cuda --models gpt2,resnet50 --rates 1gbit,10gbit,25gbit,100gbit --workers 4 \
	  --steps 100 --warm-up 20 --check warn --json $(RESULTS)/train-gpu.json
	$(GPU) kernels --device cuda --n 2^27 --density 0.001,0.01 --json $(RESULTS)/kernels-h200.json

# Time to a loss on the GPU: make bench-converge-gpu PYTHON=python3 BUDGET=500 RESUME=--resume, again until it is done.
BUDGET ?= 1100
bench-converge-gpu:
	$(GPU) converge --device cuda --models gpt2,transformer25m --optimizer adamw --workers 4 --seeds 3 --check warn \
	  --times $(RESULTS)/train-gpu.json --budget-s $(BUDGET) $(RESUME) --json $(RESULTS)/converge-gpu.json

clean:
	rm -rf .venv .venv-ray build dist docs/_build
