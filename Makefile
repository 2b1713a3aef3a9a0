# Every verb of the project. `make help` lists them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
BUILD := build/lib
CUDA := build/cuda-toolchain
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(JOBS)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

SOURCES := $(shell find cuda cmake python bindings.h CMakeLists.txt pyproject.toml -type f -not -name '*.pyc' 2>/dev/null)
C_FILES := $(shell find cuda tests python -name '*.[ch]' -o -name '*.cpp' 2>/dev/null)
TESTS ?= tests

.PHONY: help run test lib cuda-toolchain bench interop asan tsan fmt generate lint lock clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-14s %s\n", $$1, $$2 }'

run: $(VENV)/.run ## train a small model on text that every machine has (TEXT=folder: on yours) and let it write
	$(BIN)/nncuda demo --out runs/demo $(if $(TEXT),--text "$(TEXT)")

test: $(VENV)/.test ## all tests; needs nothing but Python, a C compiler and CMake (TESTS=path for some)
	$(BIN)/python -m pytest $(TESTS)

lib: ## the library alone: build/lib/libnncuda.so
	cmake -S . -B $(BUILD)
	cmake --build $(BUILD)

cuda-toolchain: $(CUDA)/13/.ready $(CUDA)/12/.ready ## the CUDA compiler from PyPI, for machines without one (needs no root and no GPU)

bench: $(VENV)/.test ## time every kernel and the training step against this machine's ceilings
	$(BIN)/nncuda bench

interop: .venv-interop/.interop ## the tests against torch and transformers, which it installs; writes what `make test` checks
	NNCUDA_INTEROP=live .venv-interop/bin/python -m pytest tests/interop

asan: $(VENV)/.test ## the tests of the ABI under AddressSanitizer and UndefinedBehaviorSanitizer
	PYTHON=$(CURDIR)/$(BIN)/python tests/abi/sanitize.sh address

tsan: ## the worker pool, contexts and streams under ThreadSanitizer
	tests/abi/sanitize.sh thread

fmt: $(VENV)/.test ## format C and Python
	$(BIN)/clang-format -i $(C_FILES)
	$(BIN)/ruff format python tests
	$(BIN)/ruff check --fix python tests

lint: $(VENV)/.test ## check formatting and style, change nothing
	$(BIN)/clang-format --dry-run --Werror $(C_FILES)
	$(BIN)/ruff format --check python tests
	$(BIN)/ruff check python tests

generate: $(VENV)/.test ## write what is made from bindings.h and committed: type stubs and the ABI's reference
	$(BIN)/python -m nncuda.binding.stubs python/nncuda/kernels.pyi
	$(BIN)/python -m nncuda.binding.docs docs/abi.md

lock: ## make requirements/*.txt anew (needs uv)
	for file in run:3.10 test:3.10 interop:3.11 cuda:3.10 cuda12:3.10 wheel:3.10; do \
	  (cd requirements && uv pip compile --universal --python-version $${file#*:} --generate-hashes --upgrade \
	    --custom-compile-command "make lock" -q $${file%:*}.in -o $${file%:*}.txt) || exit 1; \
	done

clean: ## remove what was built and installed here; runs/ stays
	rm -rf build $(VENV) .venv-interop .pytest_cache .ruff_cache

# The virtual environment: locked packages, then this one, built from the sources as they are. What the tests need
# contains what a run needs, so either serves `make run`.
%/.packages-run: requirements/run.txt
	$(PYTHON) -m venv $*
	$*/bin/python -m pip install --quiet --require-hashes -r $<
	@touch $@

%/.packages-test: requirements/test.txt
	$(PYTHON) -m venv $*
	$*/bin/python -m pip install --quiet --require-hashes -r $<
	@touch $@ $*/.packages-run

%/.packages-interop: requirements/interop.txt
	$(PYTHON) -m venv $*
	$*/bin/python -m pip install --quiet --require-hashes -r $<
	@touch $@

define install
	$*/bin/python -m pip install --quiet --no-deps --no-build-isolation --force-reinstall .
	@touch $@
endef

%/.run: %/.packages-run $(SOURCES)
	$(install)

%/.test: %/.packages-test $(SOURCES)
	$(install)
	@touch $*/.run

%/.interop: %/.packages-interop $(SOURCES)
	$(install)

# Each CUDA toolkit comes as several packages, which make one folder as CUDA_HOME is one.
$(CUDA)/13/.ready: requirements/cuda.txt
$(CUDA)/12/.ready: requirements/cuda12.txt
$(CUDA)/13/.ready $(CUDA)/12/.ready: | $(BIN)/python
	rm -rf $(@D) $(@D).packages
	$(BIN)/python -m pip install --quiet --require-hashes --no-deps --no-compile --target $(@D).packages -r $<
	mkdir -p $(@D)
	for folder in $(@D).packages/nvidia/*/; do cp -a "$$folder". $(@D) || exit 1; done
	rm -rf $(@D).packages
	ln -sfn lib $(@D)/lib64
	@touch $@

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

.PRECIOUS: %/.packages-run %/.packages-test %/.packages-interop
