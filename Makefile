# make table3     train the rows of Table 3 as a miniature and print the table beside the paper's
# make test       the fast tests        make test-long   the slow ones        make lint   ruff, mypy
# make docs       the documents as pages: build/docs/index.html        make screenshots   their pictures, by Chromium
# make wheel      the package as one file for pip: dist/
# make bench      speed, beside the peers that 'make bench ARGS=peers' has installed
#
# PYTHON       interpreter for the virtual environment, 3.11 or later
# VENV         where the environment lives
# TORCH_INDEX  an extra package index for PyTorch. Empty: PyPI's build (with CUDA on Linux). On a machine without a GPU
#              TORCH_INDEX=https://download.pytorch.org/whl/cpu saves some gigabytes.
# ARGS         further arguments of the command, e.g. make table3 ARGS="--workers 4"
PYTHON ?= python3
VENV ?= .venv
TORCH_INDEX ?=
ARGS ?=

.PHONY: install wheel table3 test test-long lint docs screenshots bench own

install: own $(VENV)/.installed

# an environment that another clone installed itself into would be taken away from it, or its code used for this one's
OWN = import importlib.metadata as m, json, os, sys; \
	here = [json.loads(d.read_text("direct_url.json") or "{}").get("url") for d in m.distributions(name="lightning_tfm")]; \
	other = [url for url in here if url and url != "file://" + os.getcwd()]; \
	sys.exit("$(VENV) belongs to the clone in %s: give VENV another folder" % other[0] if other else 0)
own:
	@test ! -x $(VENV)/bin/python || $(VENV)/bin/python -I -c '$(OWN)'

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed, %s is %s: make PYTHON=python3.11" % (sys.executable, sys.version.split()[0]))'
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --constraint constraints.txt $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) --editable '.[dev]'
	touch $@
	@echo 'Next: source $(VENV)/bin/activate, then lightning-tfm demo (half a minute) or make table3 (some fifteen minutes)'

wheel:
	$(PYTHON) -m pip wheel --no-deps --wheel-dir dist .

table3: install
	$(VENV)/bin/lightning-tfm sweep sweeps/table3.yaml $(ARGS)

# what one process has compiled, asserts included, is there for the next one, whatever the shell says
test test-long: export PYTHONDONTWRITEBYTECODE =
TOGETHER = -n auto --dist loadfile --no-loadscope-reorder
test: install
	$(VENV)/bin/python -m pytest -q $(TOGETHER) $(ARGS)

test-long: install
	$(VENV)/bin/python -m pytest -q -m "long and not alone" --durations=20 $(TOGETHER) $(ARGS)
	$(VENV)/bin/python -m pytest -q -m "long and alone" $(ARGS) || test $$? = 5  # 5: ARGS name none of them

lint: install
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

docs: install
	$(VENV)/bin/python -m sphinx -q -W --keep-going -b html docs build/docs
	@echo build/docs/index.html

screenshots: install
	$(VENV)/bin/python docs/screenshots.py

bench: install
	$(VENV)/bin/python -m benchmarks $(if $(ARGS),$(ARGS),all)
