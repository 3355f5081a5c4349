# `make demo` and `make test` set up all they need; see `make help`.

# The interpreter (3.11 or newer), for example PYTHON=python3.13.
PYTHON ?= python3
# Another NumPy than the pinned one, for example NUMPY='numpy==2.0.*'.
NUMPY ?=
# Not ?=, because the set-up deletes this folder, and must not delete one that the environment names.
VENV = .venv
# Minutes of `make fuzz`, and calls of `make soak`.
MINUTES ?= 10
CALLS ?= 200000
# The Python of the machine with the GPU.
KIT_PYTHON ?= 3.12
# The wheels of `make wheels`, for example PLATFORM=win_amd64 PYTHONS='3.12 3.13'; empty: all.
PLATFORM ?=
PYTHONS ?=
# Further arguments of the command, for example ARGS='-k argmax'.
ARGS ?=

export PYTHON NUMPY PLATFORM PYTHONS
bin = $(VENV)/bin
parallel = -n auto --maxprocesses 4 --dist worksteal
shaders = $(wildcard shaders/*.comp shaders/*/*.glsl)

.PHONY: help demo quick test large test-adapters test-numpy2 pytest validation fuzz soak bench docs wheels portability gpu-kit lint format clean
.DEFAULT_GOAL := help

help: ## show this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /  make \1\t/p' Makefile | expand -t 22

demo: ## set up, and run operators on a photograph
	@sh .ci/setup $(VENV) demo
	$(bin)/dmlgpu demo $(ARGS)
	@echo "Next: README.md from \"Use\" on, with $(bin)/python; $(bin)/dmlgpu --help"

quick: lint ## `make lint`, tests of plans, and a case of every kernel on lavapipe: about a minute
	DMLGPU_TEST_ONLY=lvp $(bin)/python -m pytest -q $(parallel) tests/host/test_plans.py tests/host/test_operators.py \
		tests/device/test_mappings.py -k 'not (CPU-1 or CPU-256)'

test: pytest ## set up, run the suite, then its tests of calls and batches under the validation layer
	$(bin)/python -m tests.validation core,sync tests/device/test_reuse.py

test-adapters: ## set up .venv-adapters with PyTorch, JAX and other large packages, and run the tests that need them
	@sh .ci/setup .venv-adapters test .ci/adapters.txt
	.venv-adapters/bin/python -m pytest $(parallel) $(ARGS) tests/adapters
	.venv-adapters/bin/python -m pytest $(ARGS) tests/process/test_benchmarks.py -k agrees

# The first NumPy that has wheels for a Python: 2.0, or a later one.
oldest = $(shell $(PYTHON) -c 'import sys; print({13: "2.1", 14: "2.3"}.get(sys.version_info[1], "2.0"))')
test-numpy2: ## set up .venv-numpy2 with the oldest NumPy 2 of this Python, and run on lavapipe the tests that depend on it
	@$(MAKE) --no-print-directory pytest VENV=.venv-numpy2 NUMPY='numpy==$(oldest).*' ARGS='-k "not swiftshader" \
		$(patsubst %,tests/host/test_%.py,dtypes messages parsers reference tensor) $(patsubst %,tests/device/test_%.py, \
		array_api chunked chunks device_tensors functions layouts onnx out readme values verification)'

pytest: ## set up and run the suite once
	@sh .ci/setup $(VENV) test
	$(bin)/python -m pytest $(parallel) $(ARGS)

validation: ## set up and run the device tests under the validation layer three times
	@sh .ci/setup $(VENV) test
	$(bin)/python -m tests.validation core
	$(bin)/python -m tests.validation sync
	$(bin)/python -m tests.validation gpu

fuzz: ## set up, and compute random operators for MINUTES=10 on each driver
	@sh .ci/setup $(VENV) test
	$(bin)/python -m tests.fuzz $(MINUTES)

soak: ## set up and make CALLS=200000 mixed calls in one process on each driver
	@sh .ci/setup $(VENV) test
	$(bin)/python -m tests.soak $(CALLS)

large: ## set up and compare every operator with the oracle on arrays of up to 1.5 GiB
	@sh .ci/setup $(VENV) test
	$(bin)/python -m tests.large $(ARGS)

bench: ## set up, and measure dmlgpu and all peers that are installed
	@sh .ci/setup $(VENV) test
	$(bin)/python -m benchmarks $(ARGS)

docs: ## set up .venv-docs, and make the documentation's site in dist/site, for which its notebook runs
	@sh .ci/setup .venv-docs demo .ci/docs/packages.txt
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict -f .ci/docs/mkdocs.yml

wheels: ## build wheels into dist/, for PLATFORM= and PYTHONS=, or all
	@sh .ci/wheels

# The arm64 system is Debian 12, with this Python.
portability: PYTHON = python3.11
portability: ## build the wheels for Windows and arm64, and test them under Wine and qemu
	@$(MAKE) --no-print-directory wheels PLATFORM='win_amd64 manylinux_aarch64' PYTHONS=3.11
	@bash .ci/windows/run tests/host tests/device tests/process
	@sh .ci/arm64/run

gpu-kit: ## set up, and make dist/gpu-kit for a machine that has only a GPU and Python KIT_PYTHON=3.12
	@sh .ci/setup $(VENV) test
	@sh .ci/gpu-kit $(KIT_PYTHON) dist/gpu-kit

lint: ## ruff, clang-format and mypy
	@sh .ci/setup $(VENV) dev
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/clang-format --dry-run -Werror $(shaders)
	$(bin)/mypy --strict dmlgpu benchmarks shaders/build.py

format: ## format Python with ruff, and shaders with clang-format
	@sh .ci/setup $(VENV) dev
	$(bin)/ruff check --fix .
	$(bin)/ruff format .
	$(bin)/clang-format -i $(shaders)

clean: ## remove all that was built, except .cache, which has Kompute's wheels and pip's downloads
	rm -rf .venv* build dist dmlgpu/spirv .hypothesis .mypy_cache .pytest_cache .ruff_cache
