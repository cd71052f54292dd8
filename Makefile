# The few words a newcomer needs. `make` alone explains them.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PACKAGES := protos services/common services/embedding services/llm services/memory services/insights \
            services/assistant gateway sdk/python cli
PROTO_SOURCES := $(shell find protos/loom -name '*.proto') protos/generate.py
# Two workers, each file on one of them since its tests share what they start; whole systems first, they take longest.
PYTEST_ARGS ?= -n 2 --dist loadfile --no-loadscope-reorder
LOOM_ARGS ?=
# A word of this file, not a setting: Loom would refuse it as a variable that it does not know.
unexport LOOM_ARGS
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Images often set it. Without the bytecode of the start before, every start compiles a thousand modules: two seconds.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run test lint type proto bench bench-quick docs lock clean setup setup-run

help: ## Says what each word does.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: setup-run ## Sets up what is needed and starts Loom on loopback; LOOM_ARGS="--port 9000" passes options on.
	@exec $(BIN)/loom up $(LOOM_ARGS)

test: setup ## Runs the whole test suite; PYTEST_ARGS="-k search" narrows it.
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: setup ## Checks style, import rules and the contract.
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@PYTHONPATH=. $(BIN)/lint-imports
	@$(BIN)/python scripts/lint_contract.py

type: setup ## Checks types.
	@$(BIN)/python scripts/check_types.py

proto: setup ## Generates the contract's Python modules again where a source changed.
	@$(BIN)/python protos/generate.py
	@$(BIN)/python sdk/python/generate_client.py

bench: setup ## Runs the benchmarks and writes their results to docs/benchmarks.md.
	@$(BIN)/python -m bench $(BENCH_ARGS)

bench-quick: setup ## Judges thirty answers of the configured models; needs their keys.
	@$(BIN)/python -m bench quick $(BENCH_ARGS)

docs: setup ## Writes the generated reference pages: settings, errors, operations.
	@$(BIN)/python scripts/generate_docs.py

lock: setup ## Writes the lock files again from the packages' own dependencies.
	@scripts/lock --upgrade

clean: ## Removes everything that was generated or installed here; data directories stay.
	@rm -rf $(VENV) protos/gen protos/gen.new sdk/python/loom_client/_generated build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

setup: $(VENV)/.dev ## Sets up .venv with everything for development.
setup-run: $(VENV)/.run ## Sets up .venv with what running needs.

# The environment is made anew when a lock or a package's own file changed.
$(VENV)/.run: requirements/cli.txt requirements/build.txt $(PACKAGES:%=%/pyproject.toml) $(PROTO_SOURCES)
	@if [ -f $(VENV)/.dev ]; then $(MAKE) --no-print-directory $(VENV)/.dev; \
	else scripts/setup "$(PYTHON)" requirements/cli.txt requirements/build.txt -- $(PACKAGES); fi
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(PACKAGES:%=%/pyproject.toml) $(PROTO_SOURCES)
	@scripts/setup "$(PYTHON)" requirements/dev.txt -- $(PACKAGES)
	@touch $@ $(VENV)/.run
