"""Ratios of this machine, and those that are kept by commit."""

import pytest
from running import run_cli

from phrasemodels.flows.run.bench import history, keep, measures


def test_ratios_are_measured_and_kept_by_commit(tmp_path):
    found = list(measures(1, [("experiments", "--help")]))
    assert found[0].what == "phrasemodels experiments --help" and len(found) == 4
    assert all(one.seconds > 0 and 0 < one.ratio < 1000 for one in found)
    keep(found, tmp_path, "0123456789abcdef")
    ((when, ratios),) = history(tmp_path)
    assert when.endswith(" 0123456") and ratios == {one.what: one.ratio for one in found}
    shown = run_cli("bench", "--over-commits", "--history", str(tmp_path))
    assert shown.exit_code == 0 and "0123456" in shown.stdout


def test_a_command_that_fails_is_not_measured():
    with pytest.raises(OSError, match="no-such-command failed: "):
        next(measures(1, [("no-such-command",)]))
