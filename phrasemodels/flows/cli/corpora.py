"""`phrasemodels corpora`: list, add, fetch, verify, show and export corpora."""

import json
import re
import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from phrasemodels.flows.cli.terminal import Force, Json, clean, file_sources, print_json, writable_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from phrasemodels.data.corpora.added import Written
    from phrasemodels.data.download.manifest import Manifest, Sources
    from phrasemodels.data.store.artifacts import Artifact
    from phrasemodels.data.store.store import Step, Store

T = TypeVar("T")
MOST_SHOWN = 20  # labels or groups of a corpus that is added
app = typer.Typer(help="The corpora: list, add, fetch, verify, show, export.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="A corpus, as `phrasemodels corpora list` names it.")]
Names = Annotated[list[str] | None, typer.Argument(help="Corpora; without names, all.")]


@app.command(name="list")
def list_corpora(as_json: Json = False) -> None:
    """List every corpus, and whether it has been fetched."""
    writable_store(), file_sources()  # a wrong setting is said once, not for each corpus
    manifests, failed = _loaded([])
    rows = _each(manifests, _summary, failed)
    if as_json:
        print_json(rows)
    else:
        for row in rows:
            marks = [mark for mark in ("fetched", "stand_in", "by_hand") if row[mark]]
            terms = row["licence"] if row["redistributable"] else f"{row['licence']}, not passed on"
            usual = [str(row["splits"].get(split) or "-") for split in ("train", "dev", "test")]
            sizes = " / ".join(usual) if set(usual) != {"-"} else f"{len(row['splits'])} splits"
            print(clean(f"{row['name']:20} {row['schema']:9} {sizes:>21}  {', '.join([terms, *marks])}"))
    if failed:
        raise typer.Exit(1)


@app.command()
def add(
    file: Annotated[
        Path,
        typer.Argument(
            help="A file, whose rows are divided into train, dev and test; or the folder of a treebank of Universal Dependencies."
        ),
    ],
    reader: Annotated[
        str, typer.Option(help="How it is read: columns (source, tab, target), labelled (sentence, tab, label).")
    ] = "columns",
    name: Annotated[str, typer.Option(help="The name of the corpus; by default the name of the file or folder.")] = "",
    schema: Annotated[str, typer.Option(help="Its record type, by default bitext; of labelled: sentences.")] = "",
    option: Annotated[
        list[str] | None, typer.Option(help="An option of the reader, as NAME=VALUE; repeatable.")
    ] = None,
    languages: Annotated[str, typer.Option(help="Source and target of parallel text, like en-de.")] = "",
    tokeniser: Annotated[str, typer.Option(help="Of parallel text: moses, spaces or characters.")] = "spaces",
    by: Annotated[
        str, typer.Option(help="Keep rows with an equal value of this column in one split, like source or group.")
    ] = "id",
    dev: Annotated[
        int | None, typer.Option(min=1, help="Rows of dev; by default a tenth of all, but at most 5000.")
    ] = None,
    test: Annotated[
        int | None, typer.Option(min=1, help="Rows of test; by default a tenth of all, but at most 5000.")
    ] = None,
    bad_lines: Annotated[
        str,
        typer.Option(help="stop: lines that cannot be read are an error, which lists them. skip: they are left out."),
    ] = "stop",
    max_bad: Annotated[
        float | None, typer.Option(min=0, max=1, help="With skip: the share of bad lines that is left out at most.")
    ] = None,
    max_words: Annotated[
        int | None,
        typer.Option(
            min=1, help="Of a treebank: a longer sentence is an error; by default none is, and they are counted."
        ),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the corpus of this name and its manifest.")
    ] = False,
) -> None:
    """Add a file or a treebank to the corpora of the project folder.

    It is copied to corpora/NAME/, and corpora/NAME.toml has its digest.

    stderr shows the rows of each split, how many of them are also in train, and how many occur twice. Equal rows can be in
    train and in test, unless --by keeps them together. --bad-lines skip lists lines that cannot be read in
    corpora/NAME/FILE.bad.tsv.

    Labels are listed with their rows. Each has its share of dev and test; a label of two rows is in train. Errors: labels
    that differ in case alone, a label that train lacks, and a first line with names of columns.

    A treebank is named like its folder: UD_German-GSD is ud_german_gsd. It may have a test set alone. Its sentences with two
    roots, with cycles or without heads are counted.

    Example: phrasemodels corpora add reviews.tsv --reader labelled
    """
    from phrasemodels import project
    from phrasemodels.data.corpora.added import Added, add_treebank
    from phrasemodels.data.corpora.added import add as add_to

    if (folder := project.folder()) is None:
        raise ValueError(f"no {project.FILE} here or above: `phrasemodels init my-study` makes a project folder")
    corpora = folder / project.CORPORA
    if file.is_dir():
        changed = option or languages or dev or test or max_bad is not None
        if changed or (reader, schema, tokeniser, by, bad_lines) != ("columns", "", "spaces", "id", "stop"):
            raise ValueError(
                f"{file} is a treebank's folder: of the options it takes --name, --max-words and --replace"
            )
        _print_added(add_treebank(file, corpora, name, replace, max_words))
        return
    if max_words is not None:
        raise ValueError("--max-words is of a treebank's folder")
    schema = schema or ("sentences" if reader == "labelled" else "bitext")
    pair = tuple(languages.split("-")) if languages else ()
    if len(pair) not in (0, 2):
        raise ValueError(f"--languages {languages}: name two, like en-de")
    given: dict[str, str | float] = dict(one.partition("=")[::2] for one in option or [])
    if max_bad is not None and bad_lines == "stop":
        raise ValueError("--max-bad bounds what --bad-lines skip leaves out: give both")
    if bad_lines != "stop":
        given |= {"bad_lines": bad_lines} | ({} if max_bad is None else {"max_bad": max_bad})
    name = name or re.sub(r"\W+", "_", file.stem.lower())
    described = Added(name, reader, schema, given, pair, tokeniser, by)
    _print_added(add_to(file, described, corpora, replace, dev, test))


def _print_added(written: "Written") -> None:
    """Print the manifest of a corpus that was added, and on stderr its splits, labels and groups."""
    from phrasemodels.data.download.manifest import read as read_manifest
    from phrasemodels.flows.results.lineage import counts_line

    print(written.path)
    manifest = read_manifest(written.path)
    for name in written.splits:
        print(counts_line(manifest.name, name, written.splits), file=sys.stderr)
    for kind, found in (("label", written.labels), ("group", written.groups)):
        for value, rows in sorted(found.items())[:MOST_SHOWN]:
            counted = ", ".join(f"{rows.get(split, 0)} in {split}" for split in written.splits)
            print(clean(f"{manifest.name}\t{kind} {value or '(none)'}\t{counted}"), file=sys.stderr)
        if len(found) > MOST_SHOWN:
            print(f"{manifest.name}\tand {len(found) - MOST_SHOWN} more {kind}s", file=sys.stderr)
    if manifest.note:
        print(clean(manifest.note), file=sys.stderr)
    print(f'in study.py: table(…, corpus="{manifest.name}")', file=sys.stderr)


@app.command()
def fetch(names: Names = None) -> None:
    """Download corpora, or copy them from a mirror, and verify them.

    Example: phrasemodels corpora fetch multi30k gum
    """
    manifests, failed = _loaded(names)
    store, sources = writable_store(), file_sources()
    for manifest in manifests if names else [manifest for manifest in manifests if manifest.files]:
        print(f"fetching {manifest.name}", file=sys.stderr, flush=True)
        try:
            if changed := _changed(manifest):
                raise ValueError(changed)
            print(f"{manifest.name}\t{_artifact(store, manifest, sources).path}", flush=True)
        except (ValueError, OSError) as error:
            failed.append(manifest.name)
            print(clean(f"{manifest.name}: {error}"), file=sys.stderr)
    if failed:
        raise typer.Exit(1)


@app.command()
def verify(names: Names = None) -> None:
    """Compare fetched corpora with their manifests.

    It also counts the test records that are in train.

    Exit status 1 if one is damaged, or a named one has not been fetched.
    """
    from phrasemodels.flows.results.lineage import verified

    manifests, broken = _loaded(names)
    store, sources = writable_store(), file_sources()
    steps = _each(manifests, lambda manifest: (manifest, _step(manifest, sources)), broken)
    fetched, failed = [], bool(broken)
    for manifest, step in steps:
        if changed := _changed(manifest):
            failed = True
            print(f"{manifest.name}: {changed}", file=sys.stderr)
            continue
        if (artifact := store.find(step)) is not None:
            fetched.append((manifest, artifact))
            continue
        is_damaged = store.find(step, verify=False) is not None
        state = "damaged" if is_damaged else "not fetched"
        print(f"{manifest.name}: {state}: phrasemodels corpora fetch {manifest.name}", file=sys.stderr)
        failed = failed or is_damaged or bool(names)
    for manifest, artifact in fetched:
        lines, whole = verified(manifest, artifact)
        print("".join(f"{clean(line)}\n" for line in lines), end="", flush=True)
        failed = failed or not whole
    if failed:
        raise typer.Exit(1)


@app.command()
def show(
    name: Name,
    head: Annotated[int, typer.Option(min=0, help="Print this many records.")] = 0,
    split: Annotated[str, typer.Option(help="The split of these records; by default the first.")] = "",
    as_json: Json = False,
) -> None:
    """Print the title, licence and splits of a corpus.

    With --head it prints the first records too, and fetches them if necessary.

    Example: phrasemodels corpora show gum --split test --head 2
    """
    from phrasemodels.data.corpora.readers import blocks
    from phrasemodels.data.download.manifest import find_corpus

    manifest = find_corpus(name)
    description = _summary(manifest) | _details(manifest)
    if head or split:
        chosen = split or next(iter(manifest.splits))
        every = blocks(manifest, chosen, _artifact(writable_store(), manifest, file_sources()).folder())
        records = list(islice((record for rows in every for record in rows.slice(0, head).to_pylist()), head))
        description |= {"split": chosen, "head": records}
    if as_json:
        print_json(description)
        return
    for key in ("title", "licence", "licence_text", "citation", "homepage", "note"):
        print(clean(f"{key:13} {description[key]}"))
    for text in description["by_hand_instructions"]:
        print(clean(f"by hand       {text}"))
    for row in description["splits"]:
        print(
            clean(f"split         {row['split']:16} {row['schema']:9} {row['rows'] or '?':>6} rows  {row['licence']}")
        )
    for record in description.get("head", ()):
        print(clean(json.dumps(record, ensure_ascii=False)))


@app.command()
def export(
    name: Name,
    to: Annotated[Path, typer.Argument(help="Folder to write one Parquet file per split to.")],
    split: Annotated[list[str] | None, typer.Option(help="Only this split; repeatable.")] = None,
    force: Force = False,
) -> None:
    """Write the records of a corpus as Parquet.

    The metadata holds the terms of the corpus.

    Example: phrasemodels corpora export gum gum-parquet && duckdb -c "select count(*) from 'gum-parquet/*.parquet'"
    """
    from phrasemodels.data.corpora.readers import blocks
    from phrasemodels.data.download.manifest import find_corpus
    from phrasemodels.data.formats.shards import write_parquet
    from phrasemodels.folders import check_replaceable

    manifest = find_corpus(name)
    for chosen in split or list(manifest.splits):
        check_replaceable(to / f"{chosen}.parquet", force)
    artifact = _artifact(writable_store(), manifest, file_sources())
    to.mkdir(parents=True, exist_ok=True)
    for chosen in split or list(manifest.splits):
        terms = {key: str(value) for key, value in manifest.terms(chosen)._asdict().items()}
        tables = (rows.replace_schema_metadata(terms) for rows in blocks(manifest, chosen, artifact.folder()))
        write_parquet(to / f"{chosen}.parquet", tables)
        print(to / f"{chosen}.parquet")


def _changed(manifest: "Manifest") -> str:
    """Say that a file of a corpus of the project folder is not the one that was added; empty if all are."""
    from phrasemodels import project
    from phrasemodels.data.download.manifest import is_added
    from phrasemodels.data.store.artifacts import sha256_of

    for file in manifest.files if is_added(manifest.name) else ():
        for folder in project.corpora_folders():
            path = folder / file.mirror
            if path.suffix == Path(file.name).suffix and path.is_file() and sha256_of(path) != file.sha256:
                what = "FILE, with its other options," if len(manifest.files) == 1 else "FOLDER, the treebank's,"
                again = f"phrasemodels corpora add {what} and --name {manifest.name} --replace"
                return clean(f"{path} has changed since it was added: put it back, or {again}")
    return ""


def _summary(manifest: "Manifest") -> dict[str, Any]:
    step = _step(manifest, file_sources())
    return {
        "name": manifest.name,
        "title": manifest.title,
        "schema": manifest.schema_,
        "splits": {name: split.rows for name, split in manifest.splits.items()},
        "licence": manifest.licence,
        "redistributable": manifest.redistributable,
        "stand_in": manifest.stand_in,
        "by_hand": not manifest.files,
        "fetched": writable_store().find(step, verify=False) is not None,
    }


def _details(manifest: "Manifest") -> dict[str, Any]:
    splits = []
    for name, split in manifest.splits.items():
        terms = manifest.terms(name)
        schema = split.schema_ or manifest.schema_
        splits.append({"split": name, "schema": schema, "rows": split.rows, **terms._asdict()})
    return {
        "licence_text": manifest.licence_text,
        "citation": manifest.citation,
        "homepage": manifest.homepage,
        "note": manifest.note,
        "by_hand_instructions": [f"{source.name}: {source.instructions}" for source in manifest.sources],
        "splits": splits,
    }


def _step(manifest: "Manifest", sources: "Sources") -> "Step":
    """Return the step that fetches a corpus; digests of user files are part of its key."""
    from phrasemodels.data.download.manifest import digests
    from phrasemodels.tasks.prepare.corpora import fetched

    return fetched(manifest.name, digests(manifest, sources))


def _loaded(names: list[str] | None) -> tuple[list["Manifest"], list[str]]:
    """Return the manifests of some corpora, or of all, and the names of those that cannot be read; print why they cannot."""
    from phrasemodels.data.download.manifest import corpus_names as all_names
    from phrasemodels.data.download.manifest import find_corpus

    manifests, failed = [], []
    for name in names or all_names():
        try:
            manifests.append(find_corpus(name))
        except ValueError as error:
            failed.append(name)
            print(clean(error), file=sys.stderr)
    return manifests, failed


def _each(manifests: "list[Manifest]", ask: "Callable[[Manifest], T]", failed: list[str]) -> "list[T]":
    """Return what `ask` says of each manifest; print why it cannot say it of some, and add their names to `failed`."""
    found = []
    for manifest in manifests:
        try:
            found.append(ask(manifest))
        except (ValueError, OSError) as error:
            failed.append(manifest.name)
            print(clean(f"{manifest.name}: {error}"), file=sys.stderr)
    return found


def _artifact(store: "Store", manifest: "Manifest", sources: "Sources") -> "Artifact":
    from phrasemodels.data.download.manifest import digests, how_to_supply
    from phrasemodels.data.store.store import Executor

    if not digests(manifest, sources):
        raise OSError(how_to_supply(manifest, manifest.sources[0]))
    return store.run(_step(manifest, sources), Executor(sources=sources))
