# `make book` and `make test` are all that a fresh clone needs. `PYTHON=python3 make …` uses an
# interpreter that has everything installed, and makes no .venv.
ifeq ($(origin PYTHON),undefined)
PY := .venv/bin/python
INSTALLED := .venv/installed
INSTALLED_TEST := .venv/installed-test
INSTALLED_BENCH := .venv/installed-bench
else
PY := $(PYTHON)
INSTALLED :=
INSTALLED_TEST :=
INSTALLED_BENCH :=
endif
export PYTHONPATH := $(CURDIR)
unexport PYTHONDONTWRITEBYTECODE # packages are compiled as they are used
JUPYTER_BOOK = $(PY) -c "from jupyter_book.cli.main import main; main()"
WORKERS ?= 2
library unit test-long equivalence zoo strangers mutation: export OMP_NUM_THREADS = 1

.DEFAULT_GOAL := book
.PHONY: book test test-extras constraints course train experiment gpu equivalence zoo strangers bench peers export sync execute render zip pdf lint types check quick library unit notebooks notebooks-for-you elsewhere test-long mutation clean

book: export execute render

test: lint types check render unit notebooks

course: $(INSTALLED_TEST) export
	$(PY) tools/execute.py --all
	$(MAKE) render

# Trains the last chapter's translator on Multi30k, scores it, and replaces its record: hours on a CPU. It stops when ten
# validations in a row were no better. Of the seeds 0, 1 and 2, this one had the best BLEU on the validation set.
# If it is interrupted, the same command goes on. `make train SOURCE=de TARGET=en` makes that of the other direction.
SOURCE = en
TARGET = de
SEED = 1
STEPS = 12000
RUN = runs/multi30k-$(SOURCE)-$(TARGET)
RECORD = records/multi30k-$(SOURCE)-$(TARGET)
TRAIN = python -m transformer_lib train --corpus multi30k --source $(SOURCE) --target $(TARGET) --out $(RUN) --steps $(STEPS) --seed $(SEED)
train: $(INSTALLED_TEST)
	$(PY) $(TRAIN:python%=%) --resume
	$(PY) experiments/record.py $(RUN) $(RECORD) "$(TRAIN)" --source $(SOURCE) --target $(TARGET) --seed $(SEED)
	$(PY) experiments/analysis.py $(RECORD)
	$(PY) experiments/trainings.py $(RECORD)
	$(PY) tools/picture.py

# Trains that recipe changed in one thing, NAME in experiments/trainings.py, and writes its scores into that record.
# NAME=variations trains many, each for a quarter of the time, and writes what they do to the score beside that record.
NAME =
experiment: $(INSTALLED_TEST)
	$(PY) experiments/trainings.py $(RECORD) --train "$(RUN)-$(subst $() $(),-,$(NAME))" $(if $(filter variations,$(NAME)),,--whole "$(NAME)" --steps $(STEPS))

# What a machine with a GPU is for, the most valuable first. What was interrupted goes on; each line may be run alone.
gpu: $(INSTALLED_TEST)
	-$(PY) -m pytest tests/test_devices.py -m "not long"
	$(MAKE) train
	$(MAKE) experiment NAME="seed 0"
	$(MAKE) experiment NAME="seed 2"
	$(MAKE) experiment NAME=variations
	$(MAKE) train SOURCE=de TARGET=en
	$(MAKE) bench

# Measures every cell of the equivalence ladder again, and writes the page that shows it.
equivalence: $(INSTALLED_TEST)
	$(PY) experiments/equivalence.py
	$(PY) tools/pages.py

# Runs `check` on every text model of the installed transformers that can be built small, with three seeds. What is in
# the record for these versions stays; `make zoo SEEDS=0` is the first seed alone.
SEEDS = 0 1 2
zoo: $(INSTALLED_TEST)
	$(PY) experiments/zoo.py $(SEEDS)

# Fetches the public repositories of records/strangers/ with git, runs `check` on each, in minutes, and replaces the
# record. It runs their code. `make strangers CLONES=FOLDER RUNS=nanogpt` takes one from FOLDER/karpathy/nanoGPT. What
# they import besides torch and transformers, such as einops, has to be installed.
CLONES = https://github.com
RUNS =
strangers: $(INSTALLED)
	$(PY) experiments/strangers.py --clones $(CLONES) $(RUNS)

# Times the library beside others, in turn, and replaces the record and the page that shows it. Five minutes, in which
# the machine should have nothing else to do. On a machine with a GPU the record is another file, beside that of the CPU.
bench: $(INSTALLED_BENCH)
	$(PY) -m pytest bench/bench_*.py --benchmark-quiet --benchmark-json=records/bench.part
	mv records/bench.part records/$$($(PY) -c "import torch; print('bench-cuda' if torch.cuda.is_available() else 'bench')").json
	$(PY) tools/pages.py

# Runs two other test suites beside `check` on the models of the tests, in minutes, and replaces the record.
peers: $(INSTALLED_TEST)
	$(PY) -m pip install --quiet --no-deps --upgrade --target .peers --requirement tests/peers.txt
	PYTHONPATH=$(CURDIR):$(CURDIR)/.peers $(PY) experiments/peers.py

# Python compiles what is used when it is used: of all packages that would be a third of the work.
.venv/installed: pyproject.toml constraints.txt
	@echo "Installing PyTorch and what makes the book into .venv, once: a minute of processor time, and the download"
	python3 -m venv .venv
	.venv/bin/python -m pip install --quiet --no-compile --constraint constraints.txt --editable ".[book]"
	touch $@

.venv/installed-test: .venv/installed
	@echo "Installing what the tests need besides, once: a minute of processor time, and the download"
	.venv/bin/python -m pip install --quiet --no-compile --constraint constraints.txt --editable ".[book,test]"
	touch $@

test-extras: $(INSTALLED_TEST)

# Takes the newest versions that fit together, of all that is not installed for one command alone.
constraints:
	rm -rf .venv && python3 -m venv .venv
	.venv/bin/python -m pip install --quiet --editable ".[book,test,bench]" mutmut
	.venv/bin/python -m pip freeze --all --exclude-editable | grep -vE "^(pip|wheel)==" | sed "s/+cpu$$//" >constraints.txt
	touch .venv/installed .venv/installed-test .venv/installed-bench

.venv/installed-bench: .venv/installed-test
	.venv/bin/python -m pip install --quiet --constraint constraints.txt --editable ".[bench]"
	touch $@

export: $(INSTALLED)
	$(PY) tools/export.py
	$(PY) tools/pages.py

# Carries what was edited in transformer_lib/ back into the chapters.
sync: $(INSTALLED)
	$(PY) tools/sync.py

# A page is run with all that is installed for tests, as two of them show tests and models of transformers.
execute: $(INSTALLED)
	$(PY) tools/execute.py || { [ $$? = 3 ] && make test-extras && $(PY) tools/execute.py; }

# The trained translator as a script for the reader's browser: 3.8 MB that follow from the weights, so git ignores it.
LIVE = book/_static/translator_weights.js
$(LIVE): tools/live.py $(addprefix records/multi30k-en-de/,config.json model.safetensors tokenizer.json) | $(INSTALLED)
	$(PY) tools/live.py

# A page that gave a warning is built again only from nothing, so a build that fails leaves nothing behind; nor does one
# with other contents or settings.
render: $(INSTALLED) $(LIVE)
	[ -z "$$(find _toc.yml _config.yml tools/sphinx/*.* book/_static -newer _build/html/index.html 2>&1 | head -1)" ] || rm -rf _build
	$(JUPYTER_BOOK) build . -W --keep-going -n --quiet || { rm -rf _build; exit 1; }
	$(PY) tools/notebooks.py _build/html/_sources/book
	$(PY) tools/course_zip.py _build/html/course.zip
	touch _build/html/index.html
	@echo "The book: _build/html/index.html"

# The rendered book as one file to carry, with the course to install in it: unpack it, and open index.html.
zip: render
	$(PY) -c "import shutil; shutil.make_archive('_build/tested-transformer', 'zip', '_build/html')"

# The same as one PDF to print or to read; it needs Chromium.
pdf: $(INSTALLED_TEST) render
	$(PY) tools/pdf.py

lint: $(INSTALLED_TEST)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check transformer_lib tools experiments records tests bench

types: $(INSTALLED_TEST)
	$(PY) -m mypy

check: $(INSTALLED_TEST)
	$(PY) tools/check.py

# Lint, types and the library's own tests: at most 90 seconds on two cores.
LIBRARY = attention cost data decoding engine files layers masks model multi_head package positions properties shapes store training translation variants
quick: $(INSTALLED_TEST)
	$(MAKE) --jobs 2 lint types library
	@echo "Left to make test: the chapters, their rendered pages, a wheel's installation, and in tests/ $(filter-out $(LIBRARY),$(patsubst tests/test_%.py,%,$(sort $(wildcard tests/test_*.py))))"

library: $(INSTALLED_TEST)
	$(PY) -m pytest -n $(WORKERS) --dist loadfile -m "not long" -k "not wheel" $(LIBRARY:%=tests/test_%.py)

unit: $(INSTALLED_TEST)
	$(PY) -m pytest -n $(WORKERS) --dist loadfile -m "not long"

notebooks: $(INSTALLED_TEST)
	$(PY) -m pytest -n $(WORKERS) --dist loadfile -p no:warnings book

# Writes the chapters into notebooks/ as plain notebooks to work in, in any notebook program. Git does not look there.
notebooks-for-you: $(INSTALLED)
	$(PY) tools/notebooks.py notebooks

# Runs the unit tests and every chapter as if on other processors, with two threads, and beside other work: an hour or
# two. `make elsewhere AS=avx2` does one of them; tools/elsewhere.py has their names.
AS =
elsewhere: $(INSTALLED_TEST)
	$(PY) tools/elsewhere.py $(AS)

test-long: $(INSTALLED_TEST)
	$(PY) -m pytest -n $(WORKERS) --dist loadfile

# Changes the core in a thousand places, one at a time, and runs the tests on each: about half an hour of one CPU core.
mutation: $(INSTALLED_TEST)
	$(PY) -m pip install --quiet --constraint constraints.txt mutmut
	rm -rf mutants
	$(PY) -m mutmut run --max-children $(WORKERS)
	$(PY) experiments/mutants.py

clean:
	rm -rf _build mutants .venv .peers .strangers .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info $(LIVE)
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
