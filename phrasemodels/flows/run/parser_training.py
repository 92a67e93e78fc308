"""From the folder of a treebank to a parser of raw text.

Its dependencies, tags, words and sentences are learned.
"""

import logging
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, cast

from phrasemodels import project
from phrasemodels.data.corpora.added import add_treebank
from phrasemodels.data.download.manifest import read as read_manifest
from phrasemodels.data.formats.conllu import morphology
from phrasemodels.data.formats.lines import lines
from phrasemodels.data.store.store import Store
from phrasemodels.flows.experiments.catalogue import experiment, resolved
from phrasemodels.flows.results.records import open_store, sources_of
from phrasemodels.flows.run.local import train_experiment
from phrasemodels.folders import check_replaceable, writing_folder
from phrasemodels.infra.settings import Settings
from phrasemodels.parsing.lexicon import Lexicon
from phrasemodels.parsing.parser import Parser
from phrasemodels.parsing.saved import Saved, save
from phrasemodels.tasks.parsers.splitting import (
    RawSentence,
    SplitterTraining,
    raw_scores,
    raw_sentences,
    train_splitter,
)
from phrasemodels.tasks.prepare.corpora import Corpus, JoinedTreebanks
from phrasemodels.tasks.problems.parsing import ParsingRecipe
from phrasemodels.tasks.problems.sentence_data import VectorFile

EXPERIMENT = "004/alone/laptop/arcs"


def word_vectors(name: str, folders: Sequence[Path]) -> VectorFile:
    """Return a file of word vectors by its name in one of the folders. ValueError: none has it, or it begins with no vector."""
    if (path := VectorFile(name, 1).path(folders)) is None:
        places = ", ".join(map(str, folders)) or "none is known: PHRASEMODELS_SUPPLIED may name one"
        raise ValueError(f"no file {name} in the folders of this project and of the settings ({places})")
    first = [line.text.split() for line in islice(lines(path), 2)]
    width = len(first[-1]) - 1 if first else 0
    if width < 1:
        raise ValueError(f"{path}: no word vectors; each line has a word and its numbers, with spaces between them")
    return VectorFile(name, width)


def read_raw(files: list[Path]) -> list[list[RawSentence]]:
    """Return the sentences of CoNLL-U files.

    stderr says how many are left out because their text is not the text of their tokens.

    Raises:
        ValueError: All sentences of a file are left out.
    """
    found = []
    for file in files:
        own = list(raw_sentences(lines(file)))
        found.append([one for one in own if one is not None])
        if own and not found[-1]:
            raise ValueError(
                f"{file}: no sentence has a comment `# text = …` with the text of its tokens; words and sentences are "
                "learned from it"
            )
        if left_out := len(own) - len(found[-1]):
            print(
                f"{file}: {left_out} of {len(own)} sentences left out: # text is not that of the tokens",
                file=sys.stderr,
            )
    return found


def warn_of_shared(train: list[list[RawSentence]], others: dict[str, list[list[RawSentence]]]) -> None:
    """Say on stderr how many sentences of dev and test are also in train."""
    known = {one.text for own in train for one in own}
    for split, every in others.items():
        texts = [one.text for own in every for one in own]
        if shared := sum(text in known for text in texts):
            print(
                f"{split}: {shared} of {len(texts)} sentences are also in train; they are no test of new text",
                file=sys.stderr,
            )


def train_parser(
    folder: Path,
    to: Path,
    updates: int,
    minutes: float,
    seed: int,
    name: str = "",
    vectors: str = "",
    force: bool = False,
) -> Path:
    """Train a splitter and a parser of dependencies on a treebank and write both to a folder.

    The treebank is added to the project folder unless it is there.

    Args:
        minutes: Limit of the splitter's training.
        vectors: A file of word vectors in a folder of the settings.

    Raises:
        ValueError: There is no project folder or the treebank lacks train or dev sentences. Something else is in the
            folder. Or no folder has the file of vectors.
    """
    given = word_vectors(vectors, Settings().mirrors) if vectors else None
    check_replaceable(to, force)
    if (place := project.folder()) is None:
        raise ValueError(f"no {project.FILE} here or above: `phrasemodels init my-study` makes a project folder")
    corpora = place / project.CORPORA
    name = name or folder.resolve().name.lower().replace("-", "_")
    if not (corpora / f"{name}.toml").exists():
        add_treebank(folder, corpora, name)
        project.manifests.cache_clear()  # they were listed without it
    manifest = read_manifest(corpora / f"{name}.toml")
    if manifest.note:
        print(manifest.note, file=sys.stderr)
    if lacking := [split for split in ("train", "dev", "test") if split not in manifest.splits]:
        raise ValueError(
            f"{name} has no {' and no '.join(lacking)} set: a parser is trained on train, and chosen by dev"
        )
    corpus = Corpus(name)
    chosen = experiment(EXPERIMENT, [f"recipe.corpus.name={name}", f"train.steps={updates}"])
    recipe: Any = chosen.recipe
    words = replace(recipe.vocabulary, vectors=given)
    chosen = replace(chosen, recipe=replace(recipe, corpus=JoinedTreebanks(name, (corpus,), corpus), vocabulary=words))
    files = {split: [corpora / name / file for file in own.files.values()] for split, own in manifest.splits.items()}
    train, dev, test = (read_raw(files[split]) for split in ("train", "dev", "test"))
    warn_of_shared(train, {"dev": dev, "test": test})
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    lexicon = Lexicon.learned(word for file in files["train"] for word in morphology(lines(file)))
    result = train_experiment(chosen, seed, local=True)  # first: a second try goes on where this one ended
    started = time.process_time()
    settings = SplitterTraining(seconds=60 * minutes, seed=seed)
    splitter = train_splitter(train, dev, settings)
    print(f"words and sentences learned in {time.process_time() - started:.0f} CPU seconds", file=sys.stderr)
    store = open_store(Settings())
    parser = _trained(store, chosen, seed)
    terms = {"licences": [manifest.licence], "redistributable": manifest.redistributable}
    numbers = {key: result[key] for key in ("seed", "parameters", "train_seconds")}
    scores = {name: round(result["scores"][f"{name}_unicode"]["value"], 2) for name in ("uas", "las")}
    card = {"name": f"{manifest.title}, dependencies", "corpora": manifest.title, "steps": updates, **terms, **numbers}
    card["scores"] = {"test set, gold words": scores}
    own = (parser.original, cast(Any, parser.config), parser.entries, parser.decode)
    with writing_folder(to, force) as made:
        save(Saved(*own, card, splitter, lexicon), made)
        raw = {kind: round(value, 2) for kind, value in raw_scores(Parser.load(made), chain(*test)).items()}
        card["scores"]["test set, raw text"] = raw
        save(Saved(*own, card, splitter, lexicon), made, force=True)
    print("raw text of the test set:", ", ".join(f"{kind} {value}" for kind, value in raw.items()), file=sys.stderr)
    print(f"next: phrasemodels parse {shlex.quote(str(to))} - --format conllu", file=sys.stderr)
    return to


def _trained(store: Store, chosen: Any, seed: int) -> Parser:
    """Return the trained parser of an experiment. ValueError: it was not trained."""
    sources = sources_of(Settings())
    own = resolved(chosen, sources)
    recipe = own.recipe
    assert isinstance(recipe, ParsingRecipe)
    weights, vocabulary = store.find(own.steps(seed).trained), store.find(recipe.data()["vocabulary"])
    if weights is None or vocabulary is None:
        raise ValueError(f"{chosen.name} has not been trained with seed {seed}")
    return recipe.parser(own.model, weights, vocabulary)
