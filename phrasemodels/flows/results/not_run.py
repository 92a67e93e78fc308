"""Why a printed number has no value of ours, and what it would take."""

from collections.abc import Iterable, Mapping
from functools import cache

from phrasemodels.flows.experiments.catalogue import COUNTED, PROFILES, experiments
from phrasemodels.flows.experiments.experiment import Answer, Cell, Experiment
from phrasemodels.flows.experiments.published import published_results
from phrasemodels.flows.results.derived import Derived, derived_from
from phrasemodels.flows.results.impossible import LITERATURE

Columns = Mapping[str, str]  # of data/published_results.csv
NO_RUN, COUNT, THEIRS, ABSENT, OTHER = (
    "no run yet",
    "not counted yet",
    "literature, not ours to run",
    "its corpus is not here",
    "no table computes it",
)

# Absolute figures of other hardware, by metric: nothing that runs elsewhere can be compared with them.
HARDWARE = {
    "training_speed": "a speed of one P100 16 GB: only the ratio of two systems can be compared elsewhere",
    "memory": "memory of the authors' program; what was counted is not said",
}

MSPARS = "no table computes it: it is of train after BPE, and the logical forms of train are not here"
MSPARS_FORMS = (
    "no table computes it: it is of the logical forms, and those of train are not here (those of dev have 14.68 words)"
)

# Corpora that are not here, by paper and data set.
CORPORA = {
    ("000", "PTB POS tagging"): "describes the Penn Treebank, which has a licence and is not here",
    ("001", "SNLI"): "describes SNLI's official training set, which users put in by hand",
    ("002", "MSParS (BPE6k)"): MSPARS,
    ("002", "MSParS"): MSPARS_FORMS,
}

DATA = ("dataset", "dataset statistics")  # systems of rows that describe a corpus


def not_run(row: Columns, same: Iterable[Columns]) -> tuple[str, str, str]:
    """Return the verdict, the reason and the kind of reason of a number without a value of ours. same: the rows of the
    file that are this number."""
    if row["variant"] == LITERATURE:
        return "not run", "not ours to run: a result of others, which the paper repeats", THEIRS
    if row["metric"] in HARDWARE:
        return "not comparable", HARDWARE[row["metric"]], HARDWARE[row["metric"]]
    if pair := asked(same):
        return "not run", *_command(*pair)
    if derived := derived_from(dict(row)):
        both = f"{derived.over.system} and {derived.base.system}"
        return "not run", f"no run of both {both} ({derived.over.table}), whose numbers give it", NO_RUN
    if row["system"] in DATA and (reason := CORPORA.get((row["paper"], row["dataset"]))):
        return "not run", reason, ABSENT
    return "not run", OTHER, OTHER


def _command(experiment: Experiment, answer: Answer) -> tuple[str, str]:
    """Return how to get an answer, or why nobody can, and the kind of reason."""
    table = experiment.table
    if (table.paper, table.number) in COUNTED:
        corpora = COUNTED[table.paper, table.number]
        return f"not counted yet: phrasemodels count{' --corpora' * corpora}", COUNT
    command = (
        f"no run: phrasemodels reproduce --paper {table.paper} --table {table.number} --row {experiment.row} --seeds 3"
    )
    command += f" --profile {PROFILES[-1]}" if experiment.profile == PROFILES[-1] else ""
    return (answer.why_not,) * 2 if answer.why_not else (command, NO_RUN)


def answers(cell: Cell | None, rows: Iterable[Columns]) -> bool:
    """Return whether a cell is one of these rows, which are one number printed in several places; what is empty is any."""
    wanted = cell.wanted if cell else {}
    return bool(wanted) and any(all(row[name] == value for name, value in wanted.items()) for row in rows)


def asked(rows: Iterable[Columns]) -> tuple[Experiment, Answer] | None:
    """Return the experiment at the paper's size, or else another one, that answers a number."""
    same = list(rows)
    found = [(e, a) for e in _experiments() for a in e.answers if answers(a.cell, same)]
    exact = [pair for pair in found if pair[1].exact and not pair[0].recipe.trains]
    largest = [pair for pair in found if pair[0].profile == PROFILES[-1]]
    return next(iter((*exact, *largest, *found)), None)


def compared(derived: Derived) -> list[Experiment]:
    """Return the experiments that a derived number compares, as `asked` finds them."""
    cells = (derived.over.wanted, derived.base.wanted)
    rows = [[r for r in published_results() if all(r[name] == value for name, value in cell.items())] for cell in cells]
    return [pair[0] for same in rows if (pair := asked(same))]


@cache
def _experiments() -> list[Experiment]:
    return experiments()
