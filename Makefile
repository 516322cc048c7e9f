# make run | more | snapshot | compare | bundle | test | lint | bench | campaign | fuzz | deepspeed | horovod: each prepares .venv first, which takes minutes once and then nothing.
#
#   PYTHON=python3.12     another interpreter, 3.11 or newer
#   CORES=4               how many cores Snakemake may use
#   WORKERS=4             how many tests run at a time
#   CPU_ONLY=1            PyTorch's CPU build (0.2 GB instead of 5.8 GB), for laptops without an NVIDIA GPU
#   ARGS="--config partial=true"   more arguments for snakemake
#   PRESET=workflow/experiments/every_strategy.yaml   a configuration over config.yaml, wherever config.yaml is read
#   SEEDS=20              make campaign: how many
#   CONFIGS=30000         make fuzz: how many
#   MORE=5 MOST=30        make more: intervals at most 5 % of the epoch time wide, by 30 repeats of a cell at most
#   NAME=before           make snapshot: what the result set is called; without it, those that are kept are listed
#   BEFORE=a AFTER=b      make compare: two snapshots; without AFTER, the first and the present results
#   NAME=before TARGETS=quickstart   make bundle: what the archive is called, and what of the results is in it; without, all
#
# CPU_ONLY=1 is remembered by the .venv that it made.

PYTHON ?= python3
CPU_ONLY ?= $(if $(wildcard .venv/cpu-only),1)
CORES ?= 2
WORKERS ?= 2
ARGS ?=
BIN := .venv/bin
PRESET ?=
OVER = $(if $(PRESET),--configfile $(PRESET))
SEEDS ?= 20
CONFIGS ?= 30000
MORE ?= 5
MOST ?= 30
NAME ?=
TARGETS ?=
BEFORE ?= before
AFTER ?= $(if $(filter /%,$(RESULTS)),,./)$(RESULTS)
RESULTS = $(or $(shell awk '$$1 == "results_dir:" {last = $$2} END {print last}' config.yaml $(PRESET)),results)

# The full lock was made on Linux x86-64; elsewhere, and for the CPU build, the direct pins.
ifeq ($(CPU_ONLY)$(shell uname -sm),Linux x86_64)
LOCKS := envs/requirements.txt envs/requirements-dev.txt envs/requirements-deepspeed.txt
else
LOCKS := envs/requirements.in envs/requirements-dev.in envs/requirements-deepspeed.in
endif
RUN_LOCK := $(word 1,$(LOCKS))
DEV_LOCK := $(word 2,$(LOCKS))
DEEPSPEED_LOCK := $(word 3,$(LOCKS))

.PHONY: run reprobe more snapshot compare bundle test lint format bench campaign fuzz deepspeed horovod schema lock clean

run: .venv/run-ready
	@$(BIN)/python scripts/read_configs.py $(ARGS) $(OVER)
	@$(BIN)/python scripts/unlock.py
	@$(BIN)/python scripts/set_aside.py $(RESULTS)
	$(BIN)/snakemake --cores $(CORES) --rerun-incomplete $(ARGS) $(OVER)
	$(BIN)/snakemake --cores $(CORES) --report $(RESULTS)/report.partial.html $(ARGS) $(OVER) \
		&& $(BIN)/python scripts/label_report.py $(RESULTS)/report.partial.html \
		&& mv -f $(RESULTS)/report.partial.html $(RESULTS)/report.html || { rm -f $(RESULTS)/report.partial.html; exit 1; }
	@$(BIN)/python scripts/show.py $(RESULTS)/*/tables/summary.csv --report $(RESULTS)/report.html

# Once what was missing is there: trials that were unavailable run again, and what is made from them.
reprobe: .venv/run-ready
	@found="$$($(BIN)/python scripts/unavailable.py config.yaml $(wildcard more.yaml) $(PRESET))" || exit 1; \
	if [ -z "$$found" ]; then echo "no planned trial is unavailable"; \
	else $(BIN)/snakemake --cores $(CORES) --rerun-incomplete $(ARGS) --forcerun $$found $(OVER); fi

# More launches of the cells whose interval is too wide, and of no others. more.yaml keeps how many: delete it to go back.
more: .venv/run-ready
	@found="$$($(BIN)/python scripts/more.py config.yaml $(PRESET) --percent=$(MORE) --most=$(MOST) --out=more.yaml)" || exit 1; \
	if [ -z "$$found" ]; then echo "nothing to repeat"; \
	else $(BIN)/snakemake $$found --cores $(CORES) --rerun-incomplete $(ARGS) $(OVER); fi

# The present result set under a name of its own, without the times of single steps: some kB per trial.
snapshot: .venv/run-ready
	@$(BIN)/python scripts/snapshot.py $(NAME) --results=$(RESULTS) --config config.yaml $(wildcard more.yaml) $(PRESET)

# What became faster or slower: 3 is the exit code of a slow-down, 2 says that something can't be compared (make adds 2).
compare: .venv/run-ready
	@$(BIN)/python scripts/compare.py $(BEFORE) $(AFTER) --out=$(RESULTS)/comparisons/$(BEFORE)/$(subst /,-,$(patsubst ./%,%,$(AFTER)))

# One archive for a repository of research data: all that the targets are made of, if it is there and up to date.
bundle: .venv/run-ready
	@$(BIN)/python scripts/bundle.py $(or $(NAME),dpscale-results) --config config.yaml $(wildcard more.yaml) $(PRESET) --targets $(TARGETS)

test: .venv/dev-ready
	$(BIN)/pytest -n $(WORKERS) --dist loadscope -m "not alone"
	$(BIN)/pytest -m alone

lint: .venv/dev-ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/snakemake --lint

format: .venv/dev-ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/snakefmt Snakefile workflow

bench: .venv/dev-ready
	$(BIN)/python tests/bench/run.py

# The same 12 trials under the faults of each seed (tests/campaign): 1 to 2 minutes a seed on two quiet cores.
campaign: .venv/dev-ready
	PYTHONPATH=scripts:tests $(BIN)/python -m campaign --seeds=$(SEEDS)

# Configurations that no run before has tried, each of which must be planned or refused in words: minutes.
fuzz: .venv/dev-ready
	DPSCALE_FUZZ_CONFIGS=$(CONFIGS) $(BIN)/pytest -n $(WORKERS) --hypothesis-profile=others tests/test_fuzz.py -k changed_preset

# Optional: what the strategy `deepspeed` needs; without it, that strategy is unavailable and says so.
deepspeed: .venv/deepspeed-ready

schema: .venv/run-ready
	$(BIN)/python scripts/schema.py > workflow/schemas/config.schema.json

# After a change of a .in file. CI tests that locks, .in files and conda environment agree.
lock: .venv/dev-ready
	$(BIN)/pip install --quiet pip-tools
	$(BIN)/pip-compile $(LOCK_FLAGS) --output-file envs/requirements.txt envs/requirements.in
	$(BIN)/pip-compile $(LOCK_FLAGS) --output-file envs/requirements-dev.txt --constraint envs/requirements.txt envs/requirements-dev.in
	$(BIN)/pip-compile $(LOCK_FLAGS) --output-file envs/requirements-deepspeed.txt --constraint envs/requirements.txt envs/requirements-deepspeed.in
LOCK_FLAGS := --quiet --strip-extras --no-header --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --no-emit-options

# Horovod's last release, built against the torch of .venv: minutes. Not part of CI.
horovod: .venv/run-ready
	envs/horovod.sh $(BIN)/python

clean:
	rm -rf .venv .snakemake .mypy_cache .pytest_cache .ruff_cache

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "dpscale needs Python 3.11 or newer: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=23.2"
ifeq ($(CPU_ONLY),1)
	@touch .venv/cpu-only
	$(BIN)/python -m pip install --disable-pip-version-check --index-url https://download.pytorch.org/whl/cpu $$(grep -E '^torch(vision)?==' envs/requirements.in)
endif

.venv/run-ready: $(RUN_LOCK) | .venv/bin/python
	@echo "Installing $(RUN_LOCK): some minutes, once"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r $(RUN_LOCK)
	@touch $@

.venv/dev-ready: $(DEV_LOCK) .venv/run-ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r $(DEV_LOCK)
	@touch $@

.venv/deepspeed-ready: $(DEEPSPEED_LOCK) .venv/run-ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r $(DEEPSPEED_LOCK)
	@touch $@
