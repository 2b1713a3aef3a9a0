# Every verb of the project. `make help` lists them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
BUILD := build/lib
PREFIX ?= /usr/local
CUDA := build/cuda-toolchain
AARCH64 := $(CURDIR)/build/aarch64
WITH_AARCH64 = NNCUDA_AARCH64=$(AARCH64)/libnncuda.so
WHEEL := build/wheel
SM_70 ?= check
EMULATE ?= $(if $(shell command -v $(CXX)),90)
CUDA_ARCHITECTURES ?= all
EMULATED := build/emulated/libnncuda_emulated_
SANITIZER = $(if $(shell PATH="$$PATH:$$CUDA_HOME/bin:/usr/local/cuda/bin" command -v compute-sanitizer),,$(CUDA)/sanitizer/.ready)
empty :=
space := $(empty) $(empty)
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(JOBS)
MAKEFLAGS += --no-print-directory
# Whole suites run in as many processes as JOBS; tests of one file run in one process, which makes what they share once.
PARALLEL := -n $(JOBS) --dist loadfile --no-loadscope-reorder
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# Go and Rust: compilers of this machine, or those that make puts into build/toolchain when they are missing or too old.
TOOLCHAIN := $(CURDIR)/build/toolchain
export PATH := $(TOOLCHAIN)/bin:$(PATH)
export CARGO_TARGET_DIR ?= $(CURDIR)/build/rust
GO_NEEDED := $(shell sed -n 's/^go //p' go/go.mod)
RUST_NEEDED := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' rust/Cargo.toml)
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
CARGO := cargo --locked
BINARIES := $(CURDIR)/build/bin
# The library is built once, when pip installs the Python package; all languages load that file.
LIBRARY = $(shell echo $(CURDIR)/$(VENV)/lib/python3.*/site-packages/nncuda/libnncuda.so)
WITH_LIBRARY = NNCUDA_LIBRARY=$(LIBRARY)
# Beside what pip built last: a library of the same objects, in which one thread plays all.
CUTS = $(firstword $(shell ls -td build/cp*/ 2>/dev/null))libnncuda_cuts.so
LLGUIDANCE := $(CURDIR)/build/lib/libllguidance.so
LLGUIDANCE_PROFILE ?= release

SOURCES := $(shell find cuda cmake python bindings.h CMakeLists.txt pyproject.toml -type f -not -name '*.pyc' 2>/dev/null)
C_FILES := $(shell find cuda tests python -name '*.[ch]' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' 2>/dev/null)
TESTS ?= tests
FUZZ_SECONDS ?= 60
FUZZ_TARGETS ?=
SEED ?= 0
COUNT ?= 12
RANKS ?= 2
# What `make test` is made of; .ci/run times each.
PARTS := python-test go-test rust-test parity packages
SLOW ?= lint docs emulated-70 emulated-75 emulated-80 emulated-89 emulated-90 aarch64 aarch64-go aarch64-rust aarch64-wheel asan tsan ranks faults fuzz interop cuda newcomer crates wheel rust-wheel-release mutants

.PHONY: help run test test-all python-test go llguidance go-test rust rust-test rust-wheel rust-wheel-release parity ranks packages crates lib cuts cuts-library install emulated emulated-70 emulated-75 emulated-80 emulated-89 emulated-90 aarch64 aarch64-go aarch64-rust aarch64-wheel aarch64-library \
  aarch64-toolchain cuda \
  cuda-toolchain gpu-verify gpu-sanitize gpu-bundle wheel bench bench-languages bench-ranks bench-serving interop interop-curve interop-large schema-suite docs asan tsan faults fuzz mutants newcomer \
  fmt generate abi lint lock clean go-toolchain rust-toolchain

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-18s %s\n", $$1, $$2 }'

run: $(VENV)/.run ## train a small model on text that every machine has (TEXT=folder: on yours; DEVICE=cuda) and let it write
	$(BIN)/nncuda demo --out runs/demo $(if $(TEXT),--text "$(TEXT)") $(if $(DEVICE),--device "$(DEVICE)")

test: $(if $(filter tests,$(TESTS)),$(PARTS),python-test) ## every test of the three languages; sets up what it needs (TESTS=path for some of Python's)

test-all: test ## the same and all slow tests, for hours: before a release (SLOW="asan fuzz" for some)
	@failed=; for verb in $(SLOW); do \
	  echo "---- make $$verb"; $(MAKE) $$verb || failed="$$failed $$verb"; \
	done; [ -z "$$failed" ] || { echo "failed:$$failed" >&2; exit 1; }

python-test: $(VENV)/.test cuts-library $(if $(filter tests,$(TESTS)),emulated)
	$(BIN)/python -m pytest $(TESTS) $(if $(filter tests,$(TESTS)),$(PARALLEL) --ignore tests/parity --ignore tests/packages)

go: go-toolchain $(VENV)/.test ## the Go module, and build/bin/nncuda-go
	cd go && go build ./...
	cd go && go build -o $(BINARIES)/nncuda-go ./cmd/nncuda-go

llguidance: rust-toolchain ## the library that constrains texts in Go: build/lib/libllguidance.so
	cd rust && $(CARGO) build --profile $(LLGUIDANCE_PROFILE) --package llguidance
	mkdir -p $(dir $(LLGUIDANCE)) && cp $(CARGO_TARGET_DIR)/$(LLGUIDANCE_PROFILE:dev=debug)/libllguidance.so $(LLGUIDANCE)

go-test: go llguidance
	cd go && go vet ./...
	cd go && $(WITH_LIBRARY) NNCUDA_LLGUIDANCE=$(LLGUIDANCE) go test -race -count=1 ./...
	for example in serve-go embed-go; do (cd examples/$$example && go vet ./... && go test -race -count=1 ./...) || exit 1; done

rust: rust-toolchain $(VENV)/.test ## the Rust workspace, and build/bin/nncuda-rs
	cd rust && $(WITH_LIBRARY) $(CARGO) build --workspace --exclude nn-py
	mkdir -p $(BINARIES) && cp $(CARGO_TARGET_DIR)/debug/nncuda-rs $(BINARIES)/nncuda-rs

rust-test: rust
	cd rust && $(WITH_LIBRARY) $(CARGO) test --workspace --exclude nn-py

rust-wheel: rust ## the Rust model and trainer as the Python module nncuda_rs, in .venv
	rm -rf build/nn-py
	cd rust/nn-py && $(WITH_LIBRARY) $(CURDIR)/$(BIN)/maturin build --locked --profile dev --quiet \
	  --interpreter $(CURDIR)/$(BIN)/python --out $(CURDIR)/build/nn-py
	$(BIN)/python -m pip install --quiet --no-deps --force-reinstall build/nn-py/*.whl

rust-wheel-release: rust ## dist/nncuda_rs-*.whl: that module for every machine and Python >= 3.10, tried out
	rm -rf $(WHEEL)/rust
	cd rust/nn-py && NNCUDA_LIBRARY= NNCUDA_NO_BUILD=1 $(CURDIR)/$(BIN)/maturin build --locked --release --quiet \
	  --interpreter $(CURDIR)/$(BIN)/python --out $(CURDIR)/$(WHEEL)/rust
	$(WITH_LIBRARY) NNCUDA_RUST_WHEEL=$(WHEEL)/rust $(BIN)/python -m pytest tests/packages/test_rust_wheel.py
	mkdir -p dist && cp $(WHEEL)/rust/*.whl dist/

parity: go llguidance rust rust-wheel ## the same bits from Python, Go and Rust: the table is in build/parity/report.txt
	$(WITH_LIBRARY) NNCUDA_PARITY=required $(BIN)/python -m pytest $(PARALLEL) tests/parity

ranks: go rust ## one job on 1 to 8 ranks under MPI, in one language and in three: the bits of one rank (`make parity` tries a few)
	$(WITH_LIBRARY) NNCUDA_RANKS=all NNCUDA_PARITY=required $(BIN)/python -m pytest tests/parity/test_parity_ranks.py

packages: go rust ## the Go module and the crates, as far as it takes no build of the library: what they hold and declare
	$(WITH_LIBRARY) NNCUDA_PACKAGES=required $(BIN)/python -m pytest tests/packages

crates: rust ## dist/*.crate, each built from what it holds, the library among it
	cd rust && $(WITH_LIBRARY) $(CARGO) package --workspace --exclude train-rust --exclude embed-rust --allow-dirty --quiet
	NNCUDA_CRATES=$(CARGO_TARGET_DIR)/package $(BIN)/python -m pytest tests/packages/test_crates_elsewhere.py
	mkdir -p dist && cp $(CARGO_TARGET_DIR)/package/*.crate dist/

emulated: ## the GPU engine with the CPU in place of a GPU, for tests: build/emulated (EMULATE="70 75 80 86 89 90")
	@rm -f $(filter-out $(EMULATE:%=$(EMULATED)%.so),$(wildcard $(EMULATED)*.so)) # tests take what they find: nothing old
	@$(if $(EMULATE),,echo "The GPU engine is not emulated: EMULATE is empty, as where there is no C++ compiler.")
	$(if $(EMULATE),cmake -S . -B build/emulated -DNNCUDA_CUDA=OFF -DNNCUDA_ISAS=baseline -DNNCUDA_EMULATE="$(subst $(space),;,$(EMULATE))")
	$(if $(EMULATE),cmake --build build/emulated --target $(EMULATE:%=nncuda_emulated_%))

emulated-70: ## the GPU engine's tests on an emulated sm_70; `make test` has most of them on sm_90
emulated-75: ## the same on an emulated sm_75
emulated-80: ## the same on an emulated sm_80
emulated-90: ## the same on an emulated sm_90, with what `make test` leaves out
emulated-70 emulated-75 emulated-80 emulated-90: $(VENV)/.test
	$(MAKE) emulated EMULATE=$(@:emulated-%=%)
	NNCUDA_EMULATED=all $(BIN)/python -m pytest tests/emulator/test_emulated_gpu.py tests/emulator/test_instructions.py \
	  $(if $(filter %-90,$@),tests/emulator/test_session.py)

emulated-89: $(VENV)/.test ## products in 8 bits on an emulated sm_89, which alone has instructions for them
	$(MAKE) emulated EMULATE=89
	NNCUDA_LIBRARY=$(EMULATED)89.so $(BIN)/python -m pytest tests/gpu/test_gpu_large.py tests/gpu/test_gpu_golden.py -k fp8

cuts: $(VENV)/.test ## how evenly kernels cut their work for 2 to 128 threads, by one core (MODEL=file.gguf, THREADS=2,64, JSON=file)
	$(MAKE) cuts-library
	NNCUDA_LIBRARY=$(CUTS) $(BIN)/python -m tools.cuts $(if $(MODEL),--model "$(MODEL)") $(if $(THREADS),--threads $(THREADS)) \
	  $(if $(JSON),--json "$(JSON)")

cuts-library: $(VENV)/.test
	cmake --build $(dir $(CUTS)) --target nncuda_cuts

aarch64: aarch64-library ## the library for AArch64, build/aarch64/libnncuda.so, by Debian's cross compiler; its bits under qemu-user, which are those of AVX2
	$(WITH_AARCH64) $(BIN)/python -m pytest tests/aarch64

aarch64-go: aarch64-library go-toolchain ## nncuda-go for AArch64, build/aarch64-go; what it computes under qemu-user
	cd go && GOOS=linux GOARCH=arm64 CGO_ENABLED=1 CC=aarch64-linux-gnu-gcc go build -o $(AARCH64)-go/nncuda-go ./cmd/nncuda-go
	$(WITH_AARCH64) NNCUDA_AARCH64_GO=$(AARCH64)-go/nncuda-go $(BIN)/python -m pytest tests/aarch64 -k go

aarch64-rust: aarch64-library rust-toolchain $(AARCH64)-rustc/.ready ## nncuda-rs for AArch64, by Debian's rustc; what it computes under qemu-user
	cd rust && RUSTC=$(AARCH64)-rustc/rustc CARGO_TARGET_DIR=$(AARCH64)-rust NNCUDA_LIBRARY= NNCUDA_NO_BUILD=1 \
	  CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc \
	  $(CARGO) build --target aarch64-unknown-linux-gnu --package nn-cli
	$(WITH_AARCH64) NNCUDA_AARCH64_RUST=$(AARCH64)-rust/aarch64-unknown-linux-gnu/debug/nncuda-rs $(BIN)/python -m pytest tests/aarch64 -k rust

aarch64-wheel: aarch64-toolchain $(VENV)/.packages-test $(AARCH64)-python/.ready .venv-wheel/.packages-wheel ## dist/*_aarch64.whl: the Python package for Linux on AArch64, built here, tried out under qemu-user
	rm -rf $(WHEEL)/aarch64
	tests/aarch64/wheel.sh $(AARCH64)-python $(CURDIR)/.venv-wheel $(WHEEL)/aarch64
	NNCUDA_AARCH64_WHEEL=$(CURDIR)/$(WHEEL)/aarch64/tagged $(BIN)/python -m pytest tests/aarch64/test_aarch64_wheel.py
	mkdir -p dist && cp $(WHEEL)/aarch64/tagged/*.whl dist/

aarch64-library: aarch64-toolchain $(VENV)/.test $(AARCH64)-python/.ready
	cmake -S . -B $(AARCH64) $(if $(wildcard $(AARCH64)/CMakeCache.txt),,-DCMAKE_TOOLCHAIN_FILE=cmake/aarch64.cmake) -DNNCUDA_CUDA=OFF \
	  -DCMAKE_COMPILE_WARNING_AS_ERROR=ON
	cmake --build $(AARCH64) --target nncuda

AARCH64_PACKAGES := gcc-aarch64-linux-gnu g++-aarch64-linux-gnu qemu-user-static
have_aarch64 := command -v aarch64-linux-gnu-gcc && command -v aarch64-linux-gnu-g++ && command -v qemu-aarch64-static
aarch64-toolchain:
	@{ $(have_aarch64); } >/dev/null || [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null || { \
	  echo "installing $(AARCH64_PACKAGES)"; apt-get update -qq && \
	  apt-get install -qq -y --no-install-recommends $(AARCH64_PACKAGES) libc6-dev-arm64-cross >/dev/null; }
	@{ $(have_aarch64); } >/dev/null || \
	  { echo "in Debian: apt-get install $(AARCH64_PACKAGES)" >&2; exit 1; }

$(AARCH64)-python/.ready: tests/aarch64/python.sh tests/aarch64/pinned_wheels.py tests/gpu/wheels.py requirements/test.txt | $(VENV)/.packages-test
	tests/aarch64/python.sh $(@D) $(CURDIR)/$(BIN)/python $(CURDIR)/requirements/test.txt

$(AARCH64)-rustc/.ready: tests/aarch64/rust.sh
	tests/aarch64/rust.sh $(@D)

lib: ## the library alone: build/lib/libnncuda.so
	cmake -S . -B $(BUILD)
	cmake --build $(BUILD)

install: lib ## the library for programs in C and C++: PREFIX=folder (/usr/local without), DESTDIR=staging
	DESTDIR="$(abspath $(DESTDIR))" cmake --install $(BUILD) --prefix "$(abspath $(PREFIX))"

cuda: cuda-toolchain $(VENV)/.packages-test ## the library for every GPU architecture, build/cuda/libnncuda.so, and its checks (CUDA_ARCHITECTURES="80-real;90-real;90a-real;90-virtual" for some; SM_70= leaves out clang's)
	cmake -S . -B build/cuda -DNNCUDA_CUDA=ON -DNNCUDA_CUDA_ARCHITECTURES="$(CUDA_ARCHITECTURES)" -DNNCUDA_CUDA_COMPRESS=balance \
	  -DCMAKE_COMPILE_WARNING_AS_ERROR=ON
	cmake --build build/cuda --target nncuda
	$(if $(SM_70),cmake --build build/cuda --target sm_70)
	$(BIN)/python cmake/ptxas_report.py build/cuda cuda/kernels
	$(BIN)/python cmake/kernel_table.py --check build/cuda docs/gpu.md
	PYTHONPATH=python NNCUDA_LIBRARY=build/cuda/libnncuda.so $(BIN)/python -m pytest -q tests/cuda tests/abi/test_header.py

cuda-toolchain: $(CUDA)/13/.ready $(CUDA)/12/.ready ## the CUDA compiler from PyPI, for machines without one (needs no root and no GPU)

gpu-verify: $(VENV)/.test ## on a machine with a GPU: the golden tests, recorded in tests/gpu/verified.json, and tests/gpu
	status=0; $(BIN)/nncuda verify --device cuda --record tests/gpu/verified.json || status=1; \
	  $(BIN)/python -m pytest tests/gpu || status=1; exit $$status

gpu-sanitize: $(VENV)/.test $(SANITIZER) ## there too: the golden tests under compute-sanitizer (TOOLS="memcheck racecheck initcheck")
	PYTHON=$(CURDIR)/$(BIN)/python tests/gpu/sanitize.sh $(TOOLS)

gpu-bundle: cuda-toolchain $(VENV)/.packages-test ## build/gpu-bundle: what tests/gpu/session.sh takes to a bare machine with a Hopper GPU (BUNDLE="--python 3.12")
	$(BIN)/python tests/gpu/bundle.py build/gpu-bundle $(BUNDLE)

wheel: cuda-toolchain .venv-wheel/.packages-wheel ## dist/*.whl: for machines with this Python, with or without a GPU
	rm -rf $(WHEEL)/raw $(WHEEL)/tagged
	.venv-wheel/bin/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir $(WHEEL)/raw . \
	  -C build-dir=$(WHEEL)/build -C cmake.define.NNCUDA_CUDA=ON -C cmake.define.NNCUDA_CUDA_ARCHITECTURES=all
	PATH="$(CURDIR)/.venv-wheel/bin:$$PATH" auditwheel repair --wheel-dir $(WHEEL)/tagged $(WHEEL)/raw/*.whl
	$(PYTHON) -m venv --clear $(WHEEL)/venv
	$(WHEEL)/venv/bin/python -m pip install --quiet --require-hashes --no-deps -r requirements/run.txt
	$(WHEEL)/venv/bin/python -m pip install --quiet --no-deps $(WHEEL)/tagged/*.whl
	cd $(WHEEL) && venv/bin/nncuda doctor && venv/bin/nncuda verify
	@! find $(WHEEL)/tagged -size +60000000c | grep . || { echo "that wheel is larger than 60 MB" >&2; exit 1; }
	mkdir -p dist && cp $(WHEEL)/tagged/*.whl dist/

bench: $(VENV)/.test ## time every kernel and the training step against this machine's ceilings, then what each language costs
	$(BIN)/nncuda bench
	$(MAKE) bench-languages

define rust_release
cd rust && $(WITH_LIBRARY) $(CARGO) build --release --package nn-cli
cp $(CARGO_TARGET_DIR)/release/nncuda-rs $(BINARIES)/nncuda-rs
endef

bench-languages: go rust ## the same training step, decoding and call from Python, Go and Rust
	$(rust_release)
	$(WITH_LIBRARY) $(BIN)/python -m tools.language_bench $(BINARIES)/nncuda-go $(BINARIES)/nncuda-rs

bench-serving: .venv-load/.packages-load go rust ## one model served by Python, Go and Rust, and by llama.cpp (LLAMA_SERVER=path), to 1 to 64 clients of guidellm
	$(rust_release)
	[ -d build/tinyllama ] || $(BIN)/python -m nncuda.bench.random_model build/tinyllama --shape tinyllama
	[ -f build/tinyllama-q4_0.gguf ] || $(BIN)/nncuda quantize build/tinyllama build/tinyllama-q4_0.gguf --format q4_0
	$(WITH_LIBRARY) $(BIN)/python -m tools.serving_bench build/tinyllama-q4_0.gguf build/tinyllama \
	  $(BINARIES)/nncuda-go $(BINARIES)/nncuda-rs $(if $(LLAMA_SERVER),--llama-server $(LLAMA_SERVER))

bench-ranks: $(VENV)/.test ## what several ranks on this machine cost beside one: a step, sums of gradients, bytes, a checkpoint (RANKS=2)
	$(BIN)/mpiexec -n $(RANKS) $(BIN)/nncuda bench ranks

interop: .venv-interop/.interop go llguidance rust ## the tests against torch, transformers, llama.cpp, candle, lm-evaluation-harness and clients of OpenAI's API (needs npm), which it installs; writes what `make test` checks
	cd tests/interop/candle && $(CARGO) build --release
	NNCUDA_INTEROP=live NNCUDA_CANDLE=$(CARGO_TARGET_DIR)/release/candle-logits .venv-interop/bin/python -m pytest tests/interop
	$(WITH_LIBRARY) NNCUDA_INTEROP=live NNCUDA_PARITY=required $(BIN)/python -m pytest tests/parity/test_parity_clients.py tests/parity/test_parity_lm_eval.py \
	  $(if $(LLAMA_TESTS),tests/parity/test_parity_llama_tests.py) $(if $(OPEN_RESPONSES),tests/parity/test_parity_open_responses.py)
	$(MAKE) schema-suite

schema-suite: $(VENV)/.test ## JSON Schema's own tests against constrained output, and a tenth of JSONSchemaBench (SCHEMA_BENCH=path)
	rm -rf build/schemas && mkdir -p build/schemas
	$(BIN)/python -m pip download --quiet --no-deps --no-binary jsonschema --require-hashes -r requirements/schemas.txt -d build/schemas
	tar -xzf build/schemas/jsonschema-*.tar.gz -C build/schemas
	NNCUDA_SCHEMA_SUITE=$$(echo $(CURDIR)/build/schemas/jsonschema-*/json/tests) $(BIN)/python -m pytest tests/serve/test_serve_schema_suite.py \
	  $(if $(SCHEMA_BENCH),tests/serve/test_serve_schema_bench.py)

interop-curve: .venv-interop/.interop $(VENV)/.run ## a run's configuration trained beside torch in f32 and bf16, from the same weights and batches, and a picture (RUN=runs/demo STEPS=1000; an hour)
	mkdir -p build/curve
	for precision in f32 bf16; do for follow in 0 50; do \
	  .venv-interop/bin/python tests/interop/curve.py $(or $(RUN),runs/demo) --steps $(or $(STEPS),1000) --precision $$precision \
	    --follow $$follow --out build/curve/$$precision-$$follow.json || exit 1; \
	done; done
	$(BIN)/python tests/interop/draw_curve.py build/curve/*-0.json build/curve/*-50.json --out build/curve/curves.svg

interop-large: .venv-interop/.interop ## models of the shapes of TinyLlama and of BitNet 2B-4T against transformers in f32 (9 GB of memory, 10 GB of disk)
	.venv-interop/bin/python -m nncuda.bench.random_model build/tinyllama --shape tinyllama --dtype f32
	NNCUDA_INTEROP=live NNCUDA_LARGE=build/tinyllama .venv-interop/bin/python -m pytest -s tests/interop/test_llama_live.py -k large
	.venv-interop/bin/python -m nncuda.bench.random_model build/bitnet-2b-4t --shape bitnet-2b-4t --dtype bf16
	NNCUDA_INTEROP=live NNCUDA_LARGE_BITNET=build/bitnet-2b-4t .venv-interop/bin/python -m pytest -s tests/interop/test_bitnet_live.py -k large

docs: .venv-docs/.packages-docs go-toolchain rust-toolchain ## the site in build/site: these pages, with links and anchors checked, and the three references
	cd rust && NNCUDA_LIBRARY= NNCUDA_NO_BUILD=1 RUSTDOCFLAGS="-D warnings" $(CARGO) doc --quiet --no-deps \
	  --package nn-cuda --package nn-ffi --package nn-core
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict --config-file web/mkdocs.yml
	cp -R $(CARGO_TARGET_DIR)/doc build/site/rust
	for crate in nn_cuda nn_ffi nn_core; do test -f build/site/rust/$$crate/index.html || exit 1; done

asan: $(VENV)/.test ## the tests of the ABI under AddressSanitizer and UndefinedBehaviorSanitizer
	PYTHON=$(CURDIR)/$(BIN)/python tests/abi/sanitize.sh address

faults: go rust ## what may go wrong in a run, at every point: each allocation of a step fails, 200 kills, 200 of a rank, 10,000 bad clients of each server (`make test` tries a few)
	$(WITH_LIBRARY) NNCUDA_FAULTS=all NNCUDA_PARITY=required $(BIN)/python -m pytest -s tests/faults \
	  tests/parity/test_parity_faults.py tests/parity/test_parity_endurance.py tests/parity/test_parity_serve_fuzz.py tests/comm/test_mpi_runs.py \
	  tests/python/test_run.py::test_killed_at_random_moments_it_always_continues

fuzz: .venv-fuzz/.packages-fuzz ## every reader of outside files, on files that are meant to mislead it (FUZZ_SECONDS=60 each, FUZZ_TARGETS="gguf config")
	PYTHONPATH=python .venv-fuzz/bin/python tests/fuzz/fuzz_run.py --seconds $(FUZZ_SECONDS) --jobs $(JOBS) $(FUZZ_TARGETS)

mutants: $(VENV)/.test ## plant mistakes in a copy of the sources and name those that no test notices (SEED=0 COUNT=12)
	$(BIN)/python tests/mutants/mutants_run.py --seed $(SEED) --count $(COUNT) $(if $(FILES),--files "$(FILES)") \
	  $(if $(FAR),--far) $(if $(FAIL_OVER),--fail-over $(FAIL_OVER))

newcomer: $(VENV)/.packages-test ## every command of the README and the pages, in order, in a fresh copy, as a new user meets them (PAGES=docs/go.md)
	$(BIN)/python tests/newcomer/walk.py $(PAGES:%=--page %)

tsan: ## the worker pool, contexts and streams under ThreadSanitizer
	tests/abi/sanitize.sh thread

fmt: $(VENV)/.test go-toolchain rust-toolchain ## format C, Python, Go and Rust
	$(BIN)/clang-format -i $(C_FILES)
	$(BIN)/ruff format python tools tests cmake web
	$(BIN)/ruff check --fix python tools tests cmake web
	gofmt -w go examples
	cd rust && cargo fmt --all

lint: $(VENV)/.test go-toolchain rust-toolchain ## check formatting and style, change nothing
	$(BIN)/clang-format --dry-run --Werror $(C_FILES)
	$(BIN)/ruff format --check python tools tests cmake web
	$(BIN)/ruff check python tools tests cmake web
	$(BIN)/mypy
	@unformatted=$$(gofmt -l go examples); [ -z "$$unformatted" ] || { echo "gofmt: $$unformatted" >&2; exit 1; }
	cd go && go vet ./... && go run $(STATICCHECK) ./...
	for example in serve-go embed-go; do (cd examples/$$example && go vet ./... && go run $(STATICCHECK) ./...) || exit 1; done
	cd rust && cargo fmt --all --check
	cd rust && $(WITH_LIBRARY) $(CARGO) clippy --workspace --all-targets -- -D warnings

generate: $(VENV)/.packages-test ## write what is made and committed: each language's bindings and the reference of the ABI from bindings.h, the page of tuning constants
	PYTHONPATH=python $(BIN)/python -m tools.generate

abi: $(VENV)/.packages-test ## write the list of the ABI's symbols (tests/abi/symbols) after a change of bindings.h that is meant, or say which version it needs
	PYTHONPATH=python $(BIN)/python -m tools.symbols

lock: ## make requirements/*.txt anew (needs uv)
	for file in run:3.10 test:3.10 interop:3.11 fuzz:3.10 cuda:3.10 cuda12:3.10 sanitizer:3.10 wheel:3.10 go:3.10 docs:3.10 load:3.11 schemas:3.10; do \
	  (cd requirements && uv pip compile --universal --python-version $${file#*:} --generate-hashes --upgrade \
	    --custom-compile-command "make lock" -q $${file%:*}.in -o $${file%:*}.txt) || exit 1; \
	done

clean: ## remove what was built and installed here; runs/ stays
	rm -rf build dist $(VENV) .venv-interop .venv-wheel .venv-fuzz .venv-docs .venv-load .pytest_cache .ruff_cache .mypy_cache

# The virtual environment: locked packages, then this one, built from the sources as they are. What the tests need
# contains what a run needs, so either serves `make run`. A lock is whole, so pip resolves nothing (--no-deps): where one
# package asks for another's extra, it would take that one's newest release, which has no hash here.
define environment
$*/bin/python -c 'import ssl' 2>/dev/null || $(PYTHON) -m venv --clear $*
endef

define packages
$(environment)
	$*/bin/python -m pip install --quiet --require-hashes --no-deps -r $<
	@touch $@
endef

%/.packages-run: requirements/run.txt
	$(packages)

%/.packages-test: requirements/test.txt
	$(packages)
	@touch $*/.packages-run

%/.packages-wheel: requirements/wheel.txt
	$(packages)

%/.packages-docs: requirements/docs.txt
	$(packages)

%/.packages-fuzz: requirements/fuzz.txt
	$(packages)

%/.packages-load: requirements/load.txt
	$(packages)

# llama.cpp is built from source here, as it is meant to be for the machine that it runs on.
%/.packages-interop: requirements/interop.txt tests/interop/amx_tiles.h
	$(environment)
	CXXFLAGS="-include $(CURDIR)/tests/interop/amx_tiles.h" $*/bin/python -m pip install --quiet --require-hashes --no-deps -r $<
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
$(CUDA)/sanitizer/.ready: requirements/sanitizer.txt
$(CUDA)/13/.ready $(CUDA)/12/.ready $(CUDA)/sanitizer/.ready: | $(BIN)/python
	cmp -s $< $@ || { rm -rf $(@D) $(@D).packages && \
	  $(BIN)/python -m pip install --quiet --require-hashes --no-deps --no-compile --target $(@D).packages -r $< && \
	  mkdir -p $(@D) && for folder in $(@D).packages/nvidia/*/; do cp -a "$$folder". $(@D) || exit 1; done && \
	  rm -rf $(@D).packages && ln -sfn lib $(@D)/lib64; }
	@cp $< $@

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# at_least(needed, command that prints a version): whether it prints that one or a newer one.
at_least = have=$$($(2)) && [ -n "$$have" ] && printf '%s\n%s\n' "$(1)" "$$have" | sort -VC
have_go := $(call at_least,$(GO_NEEDED),go env GOVERSION 2>/dev/null | sed s/^go//)
have_rust := $(call at_least,$(RUST_NEEDED),rustc --version 2>/dev/null | cut -d' ' -f2)

go-toolchain: | $(BIN)/python
	@{ $(have_go); } || { echo "Go $(GO_NEEDED) or newer is not here; installing it in build/toolchain"; \
	  rm -rf $(TOOLCHAIN)/go && $(BIN)/python -m pip install --quiet --require-hashes --no-deps --no-compile \
	    --target $(TOOLCHAIN)/go -r requirements/go.txt && \
	  mkdir -p $(TOOLCHAIN)/bin && ln -sfn ../go/go/bin/go ../go/go/bin/gofmt $(TOOLCHAIN)/bin/; }
	@{ $(have_go); } || { echo "Go $(GO_NEEDED) or newer is needed: https://go.dev/doc/install" >&2; exit 1; }

rust-toolchain:
	@{ $(have_rust) && cargo --version >/dev/null; } || [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null || { \
	  echo "Rust $(RUST_NEEDED) or newer is not here; installing Debian's"; apt-get update -qq && \
	  apt-get install -qq -y --no-install-recommends rustc-web cargo-web rust-web-clippy rustfmt-web >/dev/null; }
	@{ $(have_rust) && cargo --version >/dev/null; } || \
	  { echo "Rust $(RUST_NEEDED) or newer is needed: https://rustup.rs installs it" >&2; exit 1; }

.PRECIOUS: %/.packages-load %/.packages-run %/.packages-wheel %/.packages-test %/.packages-interop %/.packages-fuzz %/.packages-docs
