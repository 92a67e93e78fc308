# The two commands of the README, and the checks. Everything lives in .venv and .phrasemodels.
PYTHON ?= python3
STAMP := .venv/.installed

.PHONY: install reproduce test slow check audit clean

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

# Known vulnerabilities of what is pinned; says so where no index with advisories is within reach.
audit: $(STAMP)
	@.venv/bin/python -c 'import httpx; httpx.get("https://pypi.org/pypi/pip/json", timeout=20).raise_for_status()' 2> /dev/null \
	  || { echo "not audited: no advisories within reach"; exit 0; } \
	  && .venv/bin/python -m pip_audit --requirement constraints.txt --no-deps --disable-pip --progress-spinner off

clean:
	rm -rf .venv .phrasemodels
