# The two commands of the README, and the checks. Everything lives in .venv and .phrasemodels.
PYTHON ?= python3
STAMP := .venv/.installed

.PHONY: install reproduce test slow fire check audit docs clean

install: $(STAMP)

# Installed once; again only when the pins change, so that later runs need no network.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14) and "Python 3.11, 3.12 or 3.13 is needed: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]' --constraint constraints.txt
	touch $(STAMP)

reproduce: $(STAMP)
	.venv/bin/phrasemodels verdicts --count
	.venv/bin/phrasemodels reproduce --seeds 3

check: $(STAMP)
	.venv/bin/ruff check .
	.venv/bin/ruff check --preview --select PLW1514 phrasemodels examples # files read without an encoding
	.venv/bin/mypy
	.venv/bin/lint-imports

# Two files of tests at a time, the longest first (tests/conftest.py); those of one file share what they start.
test: check
	.venv/bin/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder
	TRITON_INTERPRET=1 .venv/bin/python -m pytest --numprocesses 2 tests/structs/test_triton.py

slow: $(STAMP)
	.venv/bin/python -m pytest -m slow

# All that is done to the system on purpose: kills at every point, a cluster, deployments, mutants of the code. Prints a dated
# result.
FIRE = tests/sweeps/test_fire.py tests/infra/test_infra.py tests/sweeps/test_matrix.py tests/infra/test_cluster.py tests/infra/test_deployment.py tests/flows/test_reproduce.py tests/flows/test_campaign.py tests/sweeps/test_mutants.py
fire: $(STAMP)
	@date -u +"under fire: began %F %R UTC, commit $$(git rev-parse --short HEAD)"
	@.venv/bin/python -m pytest -m slow -s -v $(FIRE); status=$$?; \
	  date -u +"under fire: ended %F %R UTC, commit $$(git rev-parse --short HEAD), status $$status"; exit $$status

# The documentation: its chapters run their experiments and ask the kept results. Read build/docs/index.html, without a network.
docs: .venv/.docs
	PYTHONPATH=$(CURDIR) OMP_NUM_THREADS=1 NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict --quiet

.venv/.docs: $(STAMP)
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]' --constraint constraints.txt
	touch .venv/.docs

# Known vulnerabilities of what is pinned. Advisories are on the page of a version, which mirrors of packages often lack:
# asked first for a pip that has some, so that silence is not taken for safety; --strict fails on any pin left out.
audit: $(STAMP)
	@.venv/bin/python -c 'import httpx; page = httpx.get("https://pypi.org/pypi/pip/21.0/json", timeout=20); assert page.raise_for_status().json()["vulnerabilities"]' 2> /dev/null \
	  || { echo "not audited: no advisories within reach"; exit 0; } \
	  && .venv/bin/python -m pip_audit --requirement constraints.txt --no-deps --disable-pip --strict --progress-spinner off

clean:
	rm -rf .venv .phrasemodels
