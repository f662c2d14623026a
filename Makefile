# Everything here sets itself up: from a fresh clone, `make study` and `make test` are enough.
PYTHON ?= python3
OUT ?= runs/quick
BIN := .venv/bin
STAMP := .venv/.installed
# Without bytecode each process that a test starts compiles torch and transformers: 15 seconds instead of 5.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: venv study test lint bounds coverage fuzz real-servers oldest next bench docs release clean
.DELETE_ON_ERROR:

venv: $(STAMP)

# Python compiles the modules that it imports; pip would compile 21,000, over a minute of processor time.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile

# The kernels are compiled while all else is installed, so that the first study does not wait for them.
# torch goes alone and before that, so that a CPU build at hand is taken before anything asks for another.
$(STAMP): pyproject.toml constraints.txt
	@echo "1 of 3: robustok and its core, half a minute"
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) -c constraints.txt -e .
	@echo "2 of 3: torch; 3 of 3: all other packages. Two to three minutes, kernels are compiled meanwhile"
	$(BIN)/python -c 'from robustok.kernel_warmup import warmup; warmup()' & warmup=$$!; \
	$(PIP) torch==2.13.0 && $(PIP) -c constraints.txt -e '.[all,dev]' && wait $$warmup
	touch $@

study: $(STAMP)
	$(BIN)/robustok study quick --out $(OUT)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/python .ci/cycles.py
	$(BIN)/python .ci/complexity.py

test: lint
	$(BIN)/python -m pytest -n 2 --dist worksteal

# The kernels as plain Python, whose lines coverage can count.
coverage: $(STAMP)
	mkdir -p build
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m coverage run -m pytest -q tests/kernels tests/lattice \
	tests/guard/test_guard.py tests/samplers/test_laws.py tests/samplers/test_walks.py \
	tests/samplers/test_bpe_dropout.py
	$(BIN)/python -m coverage report

# The kernels with every array access checked.
bounds: $(STAMP)
	OMP_NUM_THREADS=1 NUMBA_BOUNDSCHECK=1 \
	$(BIN)/python -m pytest -n 2 --dist worksteal -q tests/samplers tests/tokenizer tests/guard \
	tests/lattice

# The same calls everywhere, about a minute a target; more with SCALE=100.
SCALE ?= 1
fuzz: $(STAMP)
	for run in "api 60000" "bodies 40000" "tokenizers 1500"; do set -- $$run; \
	OMP_NUM_THREADS=1 $(BIN)/python -m fuzz.run --workers 2 --target $$1 --calls $$(($$2 * $(SCALE))) \
	|| exit 1; done

# Real vLLM, in an environment of its own, and the unpacked package of SGLang, which is only read:
# make real-servers VLLM=PATH/bin/python SGLANG=FOLDER/sglang
VLLM ?=
SGLANG ?=
real-servers: $(STAMP)
	ROBUSTOK_VLLM=$(VLLM) ROBUSTOK_SGLANG=$(SGLANG) $(BIN)/python -m pytest -q -rs tests/real_servers

# The core with the oldest release of each dependency; tests that need an extra are skipped.
OLDEST := build/oldest/bin
oldest:
	$(PYTHON) -m venv --clear build/oldest
	$(OLDEST)/python -m pip install --quiet --disable-pip-version-check uv
	$(OLDEST)/uv pip install --quiet --python $(OLDEST)/python --resolution lowest-direct -e .
	$(OLDEST)/uv pip install --quiet --python $(OLDEST)/python pytest hypothesis pyyaml
	OMP_NUM_THREADS=1 $(OLDEST)/python -m pytest -q tests/test_checks.py tests/test_ragged.py \
	tests/lattice tests/tokenizer tests/guard

# The core with the release candidate of tokenizers 1.0, of which pip knows only as a pre-release. Tests
# build tokenizers with the parts of 0.2x, so one file of tests reads tokenizers from their JSON.
NEXT := build/next/bin
next:
	$(PYTHON) -m venv --clear build/next
	$(NEXT)/python -m pip install --quiet --disable-pip-version-check numpy numba filelock pytest hypothesis \
	regex 'tokenizers==1.0.0rc3'
	PYTHONPATH=src OMP_NUM_THREADS=1 $(NEXT)/python -m pytest -q tests/tokenizer/test_core.py

# Those behind docs/speed.md; the others have options of their own (--help).
bench: $(STAMP)
	for name in sampling encoding first_call; do $(BIN)/python benchmarks/$$name.py || exit 1; done

docs: $(STAMP)
	for script in docs/diagrams/*.py; do $(BIN)/python $$script || exit 1; done
	$(BIN)/python docs/generate.py
	$(BIN)/zensical build --strict --config-file mkdocs.yml
	@echo build/site/index.html

# The wheel and the source as a user gets them, in an empty environment of each Python at hand.
release: $(STAMP)
	rm -rf build/dist
	$(BIN)/python -m build --no-isolation --outdir build/dist . >/dev/null
	$(BIN)/python .ci/release.py build/dist

clean:
	rm -rf .venv build dist runs
