"""Verdicts on printed numbers by runs of your own: intervals over seeds, paired tests, impossible numbers.

Needs numpy and scipy alone.
"""

from phrasemodels.verdicts.judgement import Judged, JudgedGain, Test, Verdict, how_read, judge, judge_gains, judge_table
from phrasemodels.verdicts.printed import Printed, impossible, read_printed
from phrasemodels.verdicts.readers import read
from phrasemodels.verdicts.rule import Judgement, PrintedValue, judge_runs
from phrasemodels.verdicts.scores import Observation, Scores, collected
from phrasemodels.verdicts.significance import Difference, SeedGroup, difference, holm, seed_group
from phrasemodels.verdicts.tables import Names

__all__ = [
    "Difference",
    "Judged",
    "JudgedGain",
    "Judgement",
    "Names",
    "Observation",
    "Printed",
    "PrintedValue",
    "Scores",
    "SeedGroup",
    "Test",
    "Verdict",
    "collected",
    "difference",
    "holm",
    "how_read",
    "impossible",
    "judge",
    "judge_gains",
    "judge_runs",
    "judge_table",
    "read",
    "read_printed",
    "seed_group",
]
