"""Every table that can be run, by paper and number."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from phrasemodels.data.download.manifest import closest
from phrasemodels.flows.experiments import (
    across,
    paper_000,
    paper_000_tagging,
    paper_001,
    paper_002,
    paper_003,
    paper_003_answering,
    paper_003_syntax,
    paper_004,
)
from phrasemodels.flows.experiments.experiment import Experiment, override
from phrasemodels.tasks.prepare.corpora import SampleCorpus

CORPUS = "recipe.corpus."  # overrides of it
MOST_SEEDS = 1000
PROFILES = ("sample", "laptop", "paper")
MACHINE = ("train.workers=", "train.threads=", "train.gpus=", "train.checkpoint_every=")  # overrides that no score sees
PAPERS = (
    paper_000,
    paper_000_tagging,
    paper_001,
    paper_002,
    paper_003,
    paper_003_answering,
    paper_003_syntax,
    paper_004,
    across,
)
TABLES: dict[tuple[str, str], Callable[[str], list[Experiment]]] = {
    (paper.PAPER, number): make for paper in PAPERS for number, make in paper.TABLES.items()
}


@dataclass(frozen=True)
class Table:
    """A result table of a paper at one size, with the seeds of each row."""

    paper: str
    number: str
    profile: str
    experiments: tuple[Experiment, ...]
    seeds: tuple[int, ...]

    @property
    def title(self) -> str:
        place = f"Paper {self.paper}, Table {self.number}"
        if self.paper == across.PAPER:
            place = f"Across papers, {self.number}"
        named = dict.fromkeys(text for e in self.experiments for text in e.changed if text.startswith(f"{CORPUS}name="))
        return ", ".join((place, f"profile {self.profile}", *named))


def table(
    paper: str, number: str, profile: str, seeds: int, overrides: Sequence[str] = (), rows: Sequence[str] = ()
) -> Table:
    """A table, or only some rows of it, with overrides applied to each; a ValueError names what is unknown."""
    papers = {p for p, _ in TABLES}
    if paper not in papers:
        raise ValueError(f"no paper {paper!r}: {closest(paper, papers)}")
    if (paper, number) not in TABLES:
        raise ValueError(
            f"no table {number!r} of paper {paper}: {closest(number, {t for p, t in TABLES if p == paper})}"
        )
    if profile not in PROFILES:
        raise ValueError(f"no profile {profile!r}: {closest(profile, PROFILES)}")
    if not 1 <= seeds <= MOST_SEEDS:
        raise ValueError(f"{seeds} seeds: at least one is needed, and at most {MOST_SEEDS}")
    experiments = TABLES[paper, number](profile)
    known = [experiment.row for experiment in experiments]
    if unknown := [row for row in rows if row not in known]:
        raise ValueError(f"no row {unknown[0]!r} in this table: {closest(unknown[0], known)}")
    experiments = [e for e in experiments if not rows or e.row in rows]
    for assignment in overrides:
        experiments = [changed(experiment, assignment) for experiment in experiments]
    return Table(paper, number, profile, tuple(experiments), tuple(range(seeds)))


def changed(experiment: Experiment, assignment: str) -> Experiment:
    """An experiment with an override, which it names unless only where it runs was changed; of another corpus than its
    own the paper printed no number, but what is generated stands in for it at any size."""
    made = override(experiment, assignment)
    if made == experiment or assignment.startswith(MACHINE):
        return made
    made = replace(made, changed=(*made.changed, assignment))
    if not assignment.startswith(CORPUS) or isinstance(made.recipe.corpus, SampleCorpus):
        return made
    return replace(made, answers=tuple(replace(answer, cell=None) for answer in made.answers))


def experiments() -> list[Experiment]:
    """All experiments of all tables and profiles."""
    return [experiment for make in TABLES.values() for profile in PROFILES for experiment in make(profile)]


def experiment(name: str) -> Experiment:
    """An experiment by name."""
    found = {known.name: known for known in experiments()}
    if name not in found:
        raise ValueError(f"no experiment {name!r}: {closest(name, found)}")
    return found[name]
