"""Verdicts on printed numbers by runs of one's own: intervals over seeds, paired tests, numbers that cannot be what they say.

Needs numpy and scipy alone.
"""

from phrasemodels.verdicts.judgement import Verdict, judge
from phrasemodels.verdicts.significance import Difference, SeedGroup, difference, holm, seed_group

__all__ = ["Difference", "SeedGroup", "Verdict", "difference", "holm", "judge", "seed_group"]
