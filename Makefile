# The only commands a newcomer needs. Each one sets up first what it needs, which costs nothing the second time.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo test check bench debug venv format docs clean

# cython-lint calls pycodestyle by name.
export PATH := $(CURDIR)/.venv/bin:$(PATH)

# Test processes, each with one thread of torch and numpy: three fill two cores, since many a test waits for what it has
# started, and do no harm on more.
JOBS ?= 3
# The rooms that reach a kernel; the others cannot tell the compiled ones from their numpy twins.
PURE := $(wildcard $(addprefix tests/,kernels codec server worker end_to_end))
PARALLEL = OMP_NUM_THREADS=1 pytest -q -n $(JOBS) --dist worksteal -m "not slow and not big"

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*  ## /\1\t/p' Makefile | expand -t 10

demo: venv  ## a small cluster on this machine that trains to a target accuracy
	@.venv/bin/python -m aiops demo

# Slow tests watch the wall clock, so they run alone, after the others. No slow test at all is no failure (pytest's 5).
test: venv  ## the whole suite: compiled kernels on both loops, then the numpy twins
	$(PARALLEL)
	pytest -q -m "slow and not big" || [ $$? -eq 5 ]
	AIOPS_PURE=1 $(PARALLEL) $(PURE)

check: venv  ## style, types and house rules, in seconds
	ruff check .
	ruff format --check . || { echo 'make format puts this right' >&2; exit 1; }
	mypy
	cython-lint src_ext
	.venv/bin/python -m scripts.wire_page --check
	pytest -q tests/test_architecture.py

format: venv  ## lay out the code as make check wants it
	ruff check --fix .
	ruff format .

# One suite: make bench ONLY=kernels
bench: venv  ## every benchmark; the last results are in benchmarks/README.md
	.venv/bin/python -m aiops bench $(ONLY)

debug: venv  ## the kernels with every check and UBSan, beside the ordinary build, and their tests
	AIOPS_DEBUG=1 .venv/bin/python setup.py -q build --build-lib build/debug --build-temp build/debug-temp
	UBSAN_OPTIONS=print_stacktrace=1 pytest -q -o pythonpath=build/debug tests/kernels tests/transport/test_pump.py

docs: venv  ## the pages that are written from the code
	.venv/bin/python -m scripts.wire_page

venv:  ## set up .venv and nothing else
	@bash scripts/bootstrap.sh

# The stamp goes too: without it the next command builds the kernels anew.
clean:  ## remove what builds and tests leave behind; .venv stays
	rm -rf build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache .venv/aiops.stamp
	rm -f aiops/kernels/*.so aiops/transport/*.so demo.png
	find aiops examples tests -name __pycache__ -prune -exec rm -rf {} +
