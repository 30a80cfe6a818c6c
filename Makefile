# `make demo` and `make test` do all of their own set-up: a .venv in this folder, with the versions of constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
export PYTHONUTF8 = 1

.PHONY: dist help demo test test-slow test-oldest check-method docs figures gallery lint bench clean

help:
	@echo "make demo   find the wrong labels of handwritten digits, print a table of all rivals, draw a picture"
	@echo "make test   run the tests"
	@echo "make test-slow   run the proofs that take long and seldom change"
	@echo "make test-oldest run tests with the oldest versions that pyproject.toml allows"
	@echo "make check-method NAME=mrbo   run the tests that concern one method"
	@echo "make docs   write what is made from the code into docs/, and build the site into site/"
	@echo "make figures   draw the pictures and write the tables of docs/ again, from what was measured"
	@echo "make gallery   run the examples, and draw their pictures again"
	@echo "make dist   build the wheel and the source archive into dist/"
	@echo "make lint   check the format, the style and the types"
	@echo "make bench  measure the speed, next to the machine's limit, to plain JAX and to PyTorch (an hour)"
	@echo "make clean  remove the environment and what was generated"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "bilax needs Python 3.11 or newer; try: make PYTHON=python3.12 demo"; exit 1; }
	@echo "Setting up $(VENV) (about a minute, once)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	@$(INSTALL) --editable '.[all]'
	@touch $@

$(VENV)/.test: pyproject.toml constraints.txt | $(BIN)/python
	@$(INSTALL) --editable '.[dev]'
	@touch $@ $(VENV)/.demo

demo: $(VENV)/.demo
	@$(BIN)/bilax demo

test: $(VENV)/.test
	$(BIN)/python -m pytest --numprocesses 2 --dist loadgroup --durations 10 -m 'not slow'

# The lower bounds of pyproject.toml hold.
test-oldest: $(VENV)/.test
	$(BIN)/python .ci/package.py --oldest

test-slow: $(VENV)/.test
	$(BIN)/python -m pytest --numprocesses 2 --dist loadgroup --durations 10 -m slow

NAME ?= mrbo
check-method: $(VENV)/.test
	$(BIN)/python -m pytest --numprocesses 2 --method $(NAME) tests bilax/algorithms

docs: $(VENV)/.test
	$(BIN)/python -c 'from pathlib import Path; from bilax.cli import catalogue; catalogue.write(Path("docs/methods.md"))'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@echo "open it: $(BIN)/python -m http.server --bind 127.0.0.1 --directory site"

figures: $(VENV)/.test
	$(BIN)/python website/figures.py

# NAME=... draws one of them: the name of its file, without .py.
gallery: $(VENV)/.test
	$(BIN)/python website/thumbnails.py $(if $(filter command line,$(origin NAME)),$(NAME))

dist: $(VENV)/.test
	$(BIN)/python -m build --outdir dist

lint: $(VENV)/.test
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/pyright

# PyTorch is only compared with.
$(VENV)/.bench: constraints.txt | $(VENV)/.test
	@$(INSTALL) torch==2.13.0
	@touch $@

bench: $(VENV)/.bench
	$(BIN)/python benchmarks/speed.py
	$(BIN)/python benchmarks/peer.py
	$(BIN)/python benchmarks/profiling.py
	$(BIN)/python benchmarks/blocks.py
	$(BIN)/python benchmarks/measuring.py
	$(BIN)/python benchmarks/tricks.py
	$(BIN)/python benchmarks/sweeps.py
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/devices.py
	$(BIN)/python benchmarks/scale_model.py
	$(BIN)/python benchmarks/streaming.py
	$(BIN)/python benchmarks/unrolling.py
	$(BIN)/python benchmarks/convolutions.py
	$(BIN)/python benchmarks/readings.py
	$(BIN)/python benchmarks/show.py  # and with --page, the tables of docs/performance.md

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis bilax-demo.png bilax-bench site
