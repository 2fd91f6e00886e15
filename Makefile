# Two commands do everything, set-up included: `make train` and `make test`.

PYTHON ?= python3
VENV ?= .venv
WORKERS ?= 2
RUN ?= runs/digits

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)

.PHONY: train test

# Two workers on this machine train on the digits with MultiWorkerMirroredStrategy.
train: $(VENV)/installed-examples
	python -m tfdist.launch --workers=$(WORKERS) --workdir=$(RUN) -- \
		python -m tfdist.train --config=configs/digits.py --workdir=$(RUN) --strategy=multiworker

# Lint, format, types, layers, tests. The long matrix is left out: python -m pytest -m full
test: $(VENV)/installed-test
	ruff check
	ruff format --check
	mypy
	lint-imports
	python -m pytest

$(VENV)/installed-%: pyproject.toml
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing tfdist into $(VENV); TensorFlow is large, so this takes a minute or more."
	$(VENV)/bin/python -m pip install --quiet --upgrade "pip>=24.2,<28" # older ones resolve for many minutes
	$(VENV)/bin/python -m pip install --quiet --editable ".[$*]"
	touch $@
