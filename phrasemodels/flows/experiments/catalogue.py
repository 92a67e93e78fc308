"""The catalogue: every runnable table by paper and number, with users' files resolved to their digests.

A paper is imported when it is named.
"""

import dataclasses
import importlib
import inspect
import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import phrasemodels.infra.environment  # noqa: F401  before transformers
from phrasemodels import project
from phrasemodels.data.download.manifest import Sources, closest, digests, find_corpus
from phrasemodels.encoders.inputs import PretrainedConfig, content_of, load_pretrained
from phrasemodels.flows.experiments.experiment import PROFILE as COUNTED_PROFILE
from phrasemodels.flows.experiments.experiment import Answer, Cell, Experiment
from phrasemodels.flows.experiments.overrides import overridden
from phrasemodels.flows.experiments.published import CHANGE, divided, file_name
from phrasemodels.parsing.ids import Pieces
from phrasemodels.tasks.prepare.corpora import Corpus
from phrasemodels.tasks.problems.sentence_data import VectorFile

MOST_SEEDS, LARGEST_SEED = 1000, 2**31 - 1
PROFILES = ("sample", "laptop", "paper")
ACROSS = "across"
PAPERS = {**{paper: f"paper_{paper}" for paper in ("000", "001", "002", "003", "004")}, ACROSS: "across"}  # by name
Make = Callable[[str], list[Experiment]]


def _module(paper: str) -> Any:
    """Import one of PAPERS."""
    return importlib.import_module(f"phrasemodels.flows.experiments.{PAPERS[paper]}")


def _added(name: str) -> Mapping[str, Make]:
    """Return the tables of a user's paper. ValueError: its module is no such paper."""
    module = project.part("papers", name)
    if getattr(module, "PAPER", name) != name or not isinstance(getattr(module, "TABLES", None), Mapping):
        raise ValueError(
            f"{module.__file__}: a paper has TABLES = {{number: table(...) or a function of a profile}}, and PAPER, if it says "
            f"its name, is {name!r}"
        )
    if name in PAPERS:
        raise ValueError(f"{module.__file__}: there is a paper {name!r} already; choose another name")
    return {str(number): _bound(make, name, str(number), module.__doc__) for number, make in module.TABLES.items()}


def _bound(make: Any, paper: str, number: str, about: str | None) -> Make:
    """Return a function of a profile. A `StudyTable` doesn't know its names, so it gets them here."""
    if not hasattr(make, "experiments"):
        return make

    def rows(profile: str) -> list[Experiment]:
        found: list[Experiment] = make.experiments(paper, number, profile)
        return found

    rows.__doc__ = about
    return rows


def all_papers() -> tuple[str, ...]:
    """Return the names of all papers: the five, the tables across them and users' own."""
    return (*PAPERS, *project.parts("papers"))


@cache
def tables_of(paper: str) -> Mapping[str, Make]:
    """Return the functions from a profile to a paper's tables, by number. ValueError: a user's module is no paper."""
    return _added(paper) if paper in project.parts("papers") else _module(paper).TABLES


@cache
def counted(paper: str) -> Mapping[str, bool]:
    """Return the tables of a paper that need no training, by whether they read corpora.

    They have one size and need one run.
    """
    made = getattr(_module(paper), "COUNTED_TABLES", {}) if paper in PAPERS else {}
    return {number: any(row.recipe.data() for row in make(COUNTED_PROFILE)) for number, make in made.items()}


@dataclass(frozen=True)
class Table:
    """A result table of a paper at one size, with the seeds of each row.

    how: replaces the overrides in its title if each row has its own. trials: all settings tried by a tuning for each row, as
    `tuned` in flows/run/tune.py makes them.
    """

    paper: str
    number: str
    profile: str
    experiments: tuple[Experiment, ...]
    seeds: tuple[int, ...]
    how: str = ""
    trials: tuple[Mapping[str, Any], ...] = field(default=(), hash=False)

    @property
    def changed(self) -> tuple[str, ...]:
        """The overrides of any row that change scores."""
        return tuple(dict.fromkeys(text for experiment in self.experiments for text in experiment.changed))

    @property
    def title(self) -> str:
        """The paper's table, the size and all changes of its definition."""
        place = f"Paper {self.paper}, Table {self.number}"
        if self.paper == ACROSS:
            place = f"Across papers, {self.number}"
        return ", ".join((place, f"profile {self.profile}", *self._how))

    @property
    def slug(self) -> str:
        """The name of the table's files, such as its report."""
        return file_name(CHANGE.join((f"{self.paper}-table{self.number}-{self.profile}", *self._how)))

    @property
    def _how(self) -> tuple[str, ...]:
        return (self.how,) if self.how else self.changed


@dataclass(frozen=True)
class Request:
    """A user's request: a table, its size, its seeds from the first one on, its rows and their overrides.

    rows: none means all. like: the row to copy for a row of the user's own. `rows` then names the own row, too. The
    overrides are for the own row alone. sweep: fields with several values, like train.dropout=0.1,0.2. Each row becomes
    a row for each combination.
    """

    paper: str = "000"
    table: str = "1"
    profile: str = "sample"
    seeds: int = 2
    set: Sequence[str] = ()
    rows: Sequence[str] = ()
    first_seed: int = 0
    like: str = ""
    sweep: Sequence[str] = ()

    def resolve(self) -> Table:
        """Return the table with its overrides. ValueError: a name is unknown (the nearest one is named), or a value wrong."""
        if self.paper not in all_papers():
            raise ValueError(f"no paper {self.paper!r}: {closest(self.paper, all_papers())}")
        if self.table not in (tables := tables_of(self.paper)):
            raise ValueError(f"no table {self.table!r} of paper {self.paper}: {closest(self.table, tables)}")
        if self.profile not in PROFILES:
            raise ValueError(f"no profile {self.profile!r}: {closest(self.profile, PROFILES)}")
        if not 1 <= self.seeds <= MOST_SEEDS:
            raise ValueError(f"{self.seeds} seeds: must be from 1 to {MOST_SEEDS}")
        if not 0 <= self.first_seed <= LARGEST_SEED:
            raise ValueError(f"first_seed={self.first_seed}: must be from 0 to {LARGEST_SEED}")
        experiments = made_by(self.paper, self.table, self.profile)
        if not experiments:
            raise ValueError(f"table {self.table!r} of paper {self.paper} has no rows at profile {self.profile!r}")
        known = [experiment.row for experiment in experiments]
        if twice := [row for row, count in Counter(known).items() if count > 1]:
            raise ValueError(
                f"paper {self.paper}, table {self.table}: several rows are called {twice[0]!r}; give each its own slug"
            )
        unknown = [row for row in (*self.rows, *([self.like] if self.like else ())) if row not in known]
        if self.like in known and len(unknown) == 1:
            chosen = self._with_own_row(experiments, unknown[0])
        elif self.like and self.like not in known:
            raise ValueError(f"--like {self.like}: no row of this table: {closest(self.like, known)}")
        elif unknown or self.like:
            raise ValueError(
                f"no row {unknown[0]!r} in this table: {closest(unknown[0], known)}" if unknown else OWN_ROW
            )
        else:
            chosen = [e for e in experiments if not self.rows or e.row in self.rows]
            chosen = [self._overridden(experiment) for experiment in chosen]
        chosen = [one for experiment in chosen for one in swept(experiment, self.sweep)]
        if self.table in counted(self.paper):
            return Table(self.paper, self.table, COUNTED_PROFILE, tuple(chosen), (0,))
        seeds = range(self.first_seed, self.first_seed + self.seeds)
        return Table(self.paper, self.table, self.profile, tuple(chosen), tuple(seeds))

    def _with_own_row(self, experiments: Sequence[Experiment], own: str) -> list[Experiment]:
        """Return the chosen rows or else the copied row and its baseline. The own row comes last."""
        (like,) = (one for one in experiments if one.row == self.like)
        if not self.set:
            raise ValueError(
                f"--row {own} --like {self.like}: nothing differs; say what by --set, like model.encoder=NAME"
            )
        beside = {*self.rows} - {own} or {self.like, like.baseline or experiments[0].row}
        made = beside_its_row(like, own, self._overridden(like))
        return [*(one for one in experiments if one.row in beside), made]

    def _overridden(self, experiment: Experiment) -> Experiment:
        try:
            return overridden(experiment, *self.set)
        except ValueError as error:
            raise ValueError(f"{experiment.row}: {error}") from error


OWN_ROW = "--like needs a row of your own: name it by --row, like --row mine --like phrase-k2 --set model.encoder=mine"
MOST_ROWS = 200  # of a sweep


def beside_its_row(row: Experiment, name: str, changed: Experiment) -> Experiment:
    """Return an overridden row as a row with another name beside the row as it is defined.

    It answers no printed number.
    """
    how = ", ".join(changed.changed)
    answers = tuple(replace(answer, cell=None, reading=None) for answer in changed.answers)
    return replace(changed, row=name, like=row.row, system=name, variant=f"{row.row} with {how}", answers=answers)


def swept(row: Experiment, sweep: Sequence[str]) -> list[Experiment]:
    """Return a row for each combination of values of a sweep (train.clip=1,5) or else the row itself.

    Semicolons divide the values of a field with several (for example a pair). ValueError: a field has no values or
    there are too many rows.
    """
    fields = [
        (path, text.split(";" if ";" in text else ",")) for path, _, text in (one.partition("=") for one in sweep)
    ]
    if empty := [path for path, values in fields if not all(values)]:
        raise ValueError(f"--sweep {empty[0]}: write it like train.learning_rate=0.001,0.002")
    if (count := math.prod(len(values) for _, values in fields)) > MOST_ROWS:
        raise ValueError(f"--sweep: {count} rows of {row.row}; at most {MOST_ROWS}")
    if not fields:
        return [row]
    made = {}
    for values in itertools.product(*(values for _, values in fields)):
        texts = [f"{path}={value}" for (path, _), value in zip(fields, values, strict=True)]
        fields_named = (f"{path.split('.')[-1]}={value}" for (path, _), value in zip(fields, values, strict=True))
        name = "-".join((row.row, *fields_named))
        try:
            changed = overridden(row, *texts)
        except ValueError as error:
            raise ValueError(f"{row.row}: {error}") from error
        # the row's own value changes nothing: it is the row as it is defined
        made[changed.name] = beside_its_row(row, name, changed) if changed.changed != row.changed else row
    return list(made.values())


def experiments(paper: str = "") -> list[Experiment]:
    """Return all experiments of all tables and profiles, or the experiments of one paper."""
    wanted = [one for one in all_papers() if paper in ("", one)]
    found = ((of, table, profile) for of in wanted for table in tables_of(of) for profile in PROFILES)
    made = (experiment for one in found for experiment in made_by(*one))
    return list({experiment.name: experiment for experiment in made}.values())


def made_by(paper: str, table: str, profile: str) -> list[Experiment]:
    """Return the experiments of a table at a profile. ValueError: a user's table fails, or makes something else."""
    if paper not in project.parts("papers"):
        return tables_of(paper)[table](profile)

    def printed_or_alone(answer: Answer) -> Answer:
        """Return an answer without its cell if printed.csv has no such number."""
        return answer if answer.cell is None or answer.cell.is_printed else replace(answer, cell=None)

    found = _made(paper, table, profile)
    return [replace(one, answers=tuple(map(printed_or_alone, one.answers))) for one in found]


def asked_for(paper: str) -> list[Cell]:
    """Return the numbers that the rows of a user's study ask for, printed or not."""
    made = (one for table in tables_of(paper) for profile in PROFILES for one in _made(paper, table, profile))
    return [answer.cell for one in made for answer in one.answers if answer.cell]


def _made(paper: str, table: str, profile: str) -> list[Experiment]:
    """Return the experiments of a user's table as its function makes them."""
    make = tables_of(paper)[table]
    where = f"{paper}, table {table}, profile {profile}"
    try:
        found = make(profile)
    except (ValueError, OSError):
        raise
    except Exception as error:
        raise ValueError(f"{where} cannot be made: {type(error).__name__}: {error}{project.line_of(error)}") from error
    if not isinstance(found, list) or not all(isinstance(one, Experiment) for one in found):
        raise ValueError(f"{where}: the function has to return a list of Experiment")
    return found


def space_of(paper: str) -> Mapping[str, Any]:
    """Return the additions of a user's study to the space of --tune: SPACE of its module, values or a factor by field."""
    return getattr(project.part("papers", paper), "SPACE", {}) if paper in project.parts("papers") else {}


def about(paper: str, table: str) -> str:
    """Return the subject of a table: the first sentence of its function's docstring."""
    return " ".join((inspect.getdoc(tables_of(paper)[table]) or "").split()).partition(". ")[0].rstrip(".")


def experiment(name: str, overrides: Sequence[str] = ()) -> Experiment:
    """Return an experiment by name, with further overrides. The name may hold some (`ROW+train.steps=2`).

    ValueError: there is none of this name.
    """
    row, own = divided(name)
    known = {one.name: one for one in experiments(row.partition("/")[0])}
    if row not in known:
        raise ValueError(f"no experiment {row!r}: {closest(row, {one.name for one in experiments()})}")
    return overridden(known[row], *own, *overrides)


Find = Callable[[Any, Sources], Any]  # from a part that names a file to one that has its digest


def with_user_files(table: Table, sources: Sources) -> Table:
    """Return the table with all its experiments resolved."""
    return dataclasses.replace(table, experiments=tuple(resolved(e, sources) for e in table.experiments))


def resolved(experiment: Experiment, sources: Sources) -> Experiment:
    """Return the experiment with its corpora, word vectors and encoders resolved to files in folders of the sources.

    Missing word vectors are learned. `compare-settings` says so.
    """
    recipe = replaced(experiment.recipe, FINDERS, sources)
    return dataclasses.replace(experiment, recipe=recipe, model=replaced(experiment.model, FINDERS, sources))


def with_encoders(part: Any, sources: Sources) -> Any:
    """Return a recipe or a trained model with its pretrained encoders resolved, and nothing else."""
    return replaced(part, ENCODERS, sources)


def reads_encoders(experiment: Experiment) -> bool:
    """Return whether an experiment names a pretrained encoder."""
    found: list[Any] = []
    note = dict.fromkeys(ENCODERS, lambda part, sources: found.append(part))
    replaced((experiment.recipe, experiment.model), note, Sources())
    return bool(found)


def missing_vectors(experiment: Experiment, sources: Sources) -> list[str]:
    """Return an experiment's files of word vectors absent from all folders. It is trained without them."""
    missing: set[str] = set()

    def note(file: VectorFile, sources: Sources) -> VectorFile:
        if file.locate(sources.mirrors) is None:
            missing.add(file.name)
        return file

    replaced((experiment.recipe, experiment.model), {VectorFile: note}, sources)
    return sorted(missing)


def missing_encoders(experiment: Experiment) -> set[str]:
    """Return the pretrained encoders without a folder here that the hub does not offer."""
    parts = getattr(experiment.model, "inputs", ())
    return {part.name for part in parts if isinstance(part, PretrainedConfig) and not _exists(part)}


def _exists(part: PretrainedConfig) -> bool:
    try:
        return bool(part.folder or load_pretrained("AutoConfig", part.name, offline=part.offline))
    except ValueError:
        return False


def replaced(value: Any, finders: Mapping[type, Callable[[Any, Any], Any]], sources: Any) -> Any:
    """Return a value of nested dataclasses and tuples with each part of a type of `finders` replaced by the finder's result.

    A part with a method `locate` has the type `Located`.
    """
    if find := finders.get(type(value)) or (finders.get(Located) if hasattr(value, "locate") else None):
        return find(value, sources)
    if type(value) is tuple:
        return tuple(replaced(part, finders, sources) for part in value)
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    parts = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    new = {name: replaced(part, finders, sources) for name, part in parts.items()}
    changed = {name: part for name, part in new.items() if part is not parts[name]}
    return dataclasses.replace(value, **changed) if changed else value


def _corpus(corpus: Corpus, sources: Sources) -> Corpus:
    found = _digests(corpus.name, sources)
    return dataclasses.replace(corpus, supplied=found) if found else corpus


@cache
def _digests(corpus: str, sources: Sources) -> dict[str, str]:
    """Digests of the user's files of a corpus."""
    manifest = find_corpus(corpus)
    known = {file.name for file in manifest.files}
    return {name: digest for name, digest in digests(manifest, sources).items() if name not in known}


class Located(Protocol):
    """Files of the user that find themselves, such as word vectors."""

    def locate(self, folders: Sequence[Path]) -> Any:
        """Return the files with their digests if one of the folders has them."""


def _encoder(part: PretrainedConfig | Pieces, sources: Sources) -> PretrainedConfig | Pieces:
    """Resolve a pretrained encoder to its folder, or leave it to the hub. The folder's digest becomes part of its name."""
    folders = (folder / part.name for folder in (*sources.mirrors, Path()))
    folder = next((folder for folder in folders if (folder / "config.json").is_file()), None)
    if folder is None:
        return dataclasses.replace(part, offline=sources.offline)
    name = f"{folder.name}@{content_of(folder)}"
    return dataclasses.replace(part, name=name, folder=str(folder.absolute()), offline=sources.offline)


ENCODERS: Mapping[type, Find] = {PretrainedConfig: _encoder, Pieces: _encoder}


FINDERS: Mapping[type, Find] = {
    Corpus: _corpus,
    Located: lambda part, sources: part.locate(sources.mirrors),
    **ENCODERS,
}
