"""The commands that run one training: train, prepare."""

import json
from pathlib import Path
from typing import Annotated

import typer

from phrasemodels.flows.cli.options import ExperimentName, Overrides

app = typer.Typer()


@app.command()
def train(
    experiment: ExperimentName,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the run.")] = 0,
    local: Annotated[bool, typer.Option("--local", help="Train in this process, without Ray.")] = False,
    data: Annotated[Path | None, typer.Option(help="With --local: a folder made by `phrasemodels prepare`.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="With --local and --data: the folder for weights, predictions and scores.",
            show_default="the folder results",
        ),
    ] = None,
    set: Overrides = None,
) -> None:
    """Train one experiment with one seed, predict the test set, and score the predictions.

    With --local and prepared data, the libraries torch, pyarrow and sacrebleu are enough.
    Example: phrasemodels train 000/table1/sample/phrase-k2 --seed 1 --local
    """
    from phrasemodels.flows.experiments.catalogue import experiment as find
    from phrasemodels.flows.run.local import train_experiment, train_prepared

    if data is not None and not local:
        raise ValueError("--data needs --local: prepared data is trained on in this process")
    if out is not None and data is None:
        raise ValueError("--out needs --local --data: other trainings are kept in the store")
    chosen = find(experiment, set or [])
    prepared = None if data is None else train_prepared(chosen, seed, data, out or Path("results"))
    print(json.dumps(prepared or train_experiment(chosen, seed, local), indent=1))


@app.command()
def prepare(
    experiment: ExperimentName,
    to: Annotated[Path, typer.Option(help="Folder to make; take it to a machine with a GPU.")],
    set: Overrides = None,
) -> None:
    """Copy the shards that an experiment is trained and tested on into one folder, for `train --local --data`."""
    from phrasemodels.flows.experiments.catalogue import experiment as find
    from phrasemodels.flows.run.local import prepare_folder

    print(prepare_folder(find(experiment, set or []), to))
