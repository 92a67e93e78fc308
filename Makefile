# The two commands of the README, and the checks. Everything lives in .venv and .phrasemodels.
PYTHON ?= python3
STAMP := .venv/.installed

.PHONY: install reproduce test slow check clean

install: $(STAMP)

# Installed once; again only when the pins change, so that later runs need no network.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13) and "Python 3.11 or 3.12 is needed: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]' --constraint constraints.txt
	touch $(STAMP)

reproduce: $(STAMP)
	.venv/bin/phrasemodels reproduce

check: $(STAMP)
	.venv/bin/ruff check .
	.venv/bin/mypy
	.venv/bin/lint-imports

test: check
	.venv/bin/python -m pytest

slow: $(STAMP)
	.venv/bin/python -m pytest -m slow

clean:
	rm -rf .venv .phrasemodels
