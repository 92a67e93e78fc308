"""Verdicts on printed numbers by runs of one's own: intervals over seeds, paired tests, numbers that cannot be what they say.

Needs numpy and scipy alone.
"""

from phrasemodels.verdicts.judgement import Verdict, judge
from phrasemodels.verdicts.paper import Printed, impossible, read_printed
from phrasemodels.verdicts.readers import read
from phrasemodels.verdicts.scores import Observation, Scores, collected
from phrasemodels.verdicts.significance import Difference, SeedGroup, difference, holm, seed_group
from phrasemodels.verdicts.table import Judged, Test, judge_table

__all__ = [
    "Difference",
    "Judged",
    "Observation",
    "Printed",
    "Scores",
    "SeedGroup",
    "Test",
    "Verdict",
    "collected",
    "difference",
    "holm",
    "impossible",
    "judge",
    "judge_table",
    "read",
    "read_printed",
    "seed_group",
]
