"""Waits and kernels of every part of the project on the fake device of `fake_cuda`: `python tests/cuda_parts.py [--keep] [PART ...]`.

Parts are an update, an update by bfloat16 autocast and an evaluation of each configuration of the sample tables, the searches, and
each operation of each structure and distribution, forward and, where there is one, backward. A table is printed. --keep writes it
to cuda_parts.tsv, which `test_cuda_parts.py` compares with. Of parts that are named, the lines that wait are printed, too. An
operation that is reached with bfloat16 must be in cuda_kernels.tsv, which --kernels writes from torch's own list of operations
(it needs expecttest). Exit code 1: a part failed, an operation has no such kernel, or got tensors of both devices; 2: there is no
compiler for what torch asks of CUDA.
"""

import argparse
import dataclasses
import re
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from fake_cuda import GPU, FakeCuda, fake_cuda, tensors, torch  # before all that imports torch
from fake_graphs import FakeGraph, fake_graphs

from phrasemodels.data.store.store import Executor, Step, Store
from phrasemodels.flows.experiments.catalogue import experiment, experiments
from phrasemodels.models.translation import BeamSearch, beam_search
from phrasemodels.structs import (
    alignment,
    chain,
    distributions,
    eisner,
    joint,
    nonprojective,
    pcfg,
    spans,
    structure,
)
from phrasemodels.structs.kernels import gpu
from phrasemodels.structs.semimarkov import segmentations
from phrasemodels.tasks.prepare.sharded import shards
from phrasemodels.tasks.train.batches import batches_from
from phrasemodels.tasks.train.recorded import RecordedPasses, few_sizes
from phrasemodels.tasks.train.trainer import Trainer, Training

KEPT = Path(__file__).with_suffix(".tsv")
SMALL = (
    "recipe.corpus.train=16",
    "recipe.corpus.dev=6",
    "recipe.corpus.test=6",
    "train.batch_tokens=150",
    "train.batch_rows=4",
)
KERNELS = KEPT.with_name("cuda_kernels.tsv")
INTERNAL = {  # names of operations within those of torch's list
    "_foreach_copy_": "to", "_log_softmax": "log_softmax", "_to_copy": "to", "convolution": "conv2d",
    "convolution_backward": "conv2d", "index": "__getitem__",
    "masked_scatter_backward": "masked_scatter", "native_dropout": "dropout", "slice_backward": "__getitem__",
    "threshold_backward": "relu",
}  # fmt: skip
SEARCHES = "000/table1/sample/transformer", "000/table1/sample/phrase-k2", "003/tablenmt/sample/char-simple"
# a CUDA graph cannot wait
RECORDED = SEARCHES[0], SEARCHES[1], "000/table1-switches/sample/switch-3", "002/table2/sample/atis-model-1"
B, N = 2, 4
STRUCTURES: dict[str, tuple[Any, list[tuple[int, ...]]]] = {
    "chain": (chain.linear_chain, [(B, N, 3), (3, 3)]),
    "chain, by position": (chain.linear_chain, [(B, N, 3), (B, N - 1, 3, 3)]),
    "chain of order 2": (chain.HigherOrder(2), [(B, N, 2), (2, 2, 2)]),
    "semimarkov": (segmentations, [(B, N, 2, 3), (3, 3)]),
    "warping": (alignment.warping, [(B, N, N)]),
    "frames": (alignment.frames, [(B, N, N)]),
    "ctc": (alignment.ctc, [(B, N, N), (B, N, 3)]),
    "eisner, many roots": (eisner.multi_root, [(B, N + 1, N + 1)]),
    "eisner, one root": (eisner.single_root, [(B, N + 1, N + 1)]),
    "nonprojective, many roots": (nonprojective.multi_root, [(B, N + 1, N + 1)]),
    "nonprojective, one root": (nonprojective.single_root, [(B, N + 1, N + 1)]),
    "spans": (spans.labelled_spans, [(B, N, N, 2)]),
    "joint": (joint.joint_trees, [(B, N, N, 2), (B, N + 1, N + 1)]),
    "pcfg": (pcfg.trees, [(B, N, 2), (2, 4, 4), (2,)]),
}
OPERATIONS: dict[str, dict[str, int]] = {
    name: {} for name in ("log_partition", "expected_parts", "entropy", "argmax", "minimum_risk")
}
OPERATIONS |= {"topk": {"k": 2}, "sample": {"k": 2}}
OF_DISTRIBUTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "log_prob": lambda p, _: p.log_prob(p.mode),
    "cross_entropy": lambda p, q: p.cross_entropy(q),
    "kl_divergence": lambda p, q: torch.distributions.kl_divergence(p, q),
    "perturbed mode": lambda p, _: p.perturbed().mode,
    "relaxed_sample": lambda p, _: p.relaxed_sample(1.0),
}


def configurations() -> list[str]:
    """Return one row of the sample tables for each configuration of a model, but for its numbers."""
    chosen: dict[str, str] = {}
    for each in experiments():
        if "/sample/" in each.name and each.recipe.trains:
            chosen.setdefault(re.sub(r"[\d.]+|True|False", "", re.sub(r" at 0x\w+", "", repr(each.model))), each.name)
    return list(chosen.values())


def trainings(store: Store, names: list[str]) -> Iterator[tuple[str, Training]]:
    """Yield rows with their trainings on little data."""
    for name in names:
        step = experiment(name, SMALL).steps(0).trained
        inputs = {part: store.run(value, Executor()) for part, value in step.inputs.items() if isinstance(value, Step)}
        model = step.settings.objective.configure(step.settings.model, inputs["vocabulary"])
        train, dev = (tuple(shard.path for shard in shards(inputs[split])) for split in ("train", "dev"))
        yield (
            name,
            Training(step.settings.objective, model, step.settings.config, 0, train, dev, store.root / name, "key"),
        )


def of_training(name: str, training: Training) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the parts of a training, each with what runs it. An update is not the first, which also looks for NaN."""
    trainer = Trainer(training)
    config = trainer.config
    limits = config.batch_tokens, 0, config.batch_rows, config.arrange, config.equal_sides
    rows = next(batches_from(trainer.data, 0, 0, *limits))[2]
    trainer.update(rows)
    yield f"update {name}", lambda: trainer.update(rows)
    yield f"evaluation {name}", trainer.dev_loss
    trainer.config = dataclasses.replace(config, precision="bfloat16")
    yield f"update in bfloat16 {name}", lambda: trainer.update(rows)
    if name in RECORDED:
        passes, scale = RecordedPasses(trainer.alone, trainer.precision), torch.full((), 0.1, device=GPU)
        padded = trainer.data.batch(rows).padded_to(few_sizes).to(GPU)
        yield f"recorded passes {name}", lambda: passes.gradients(padded, scale)
    if name in SEARCHES:
        batch = trainer.dev.batch(torch.arange(3).numpy()).to(GPU)
        inputs = batch.source, batch.lengths, batch.members
        yield f"search {name}", lambda: beam_search(trainer.model.eval(), *inputs, BeamSearch(extra=0))
    if name in RECORDED:
        trainer.config = config
        with fake_graphs(), mock.patch.object(FakeGraph, "replay", as_one_kernel(FakeGraph.replay)):
            trainer.record()
            for _ in range(2):  # the second records the step
                trainer.update(rows)
            yield f"recorded update {name}", lambda: trainer.update(rows)


def as_one_kernel(replay: Callable[[FakeGraph], None]) -> Callable[[FakeGraph], None]:
    """Return the replay of a graph that counts as one kernel."""

    def replayed(graph: FakeGraph) -> None:
        cuda = FakeCuda.current
        before = cuda.kernels + Counter(graph=1), cuda.waits.copy()
        replay(graph)
        cuda.kernels, cuda.waits = before

    return replayed


def of_structures() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the operations of structures and distributions, each with what runs it."""
    for name, (functions, shapes) in STRUCTURES.items():
        draw = torch.Generator().manual_seed(0)
        scores = [torch.randn(shape, generator=draw).to(GPU).requires_grad_() for shape in shapes]
        lengths = torch.tensor([[N] * functions.length_axes, [N - 1] * functions.length_axes]).squeeze(1).to(GPU)
        for operation, options in OPERATIONS.items():
            run = partial(getattr(functions, operation), *scores, lengths=lengths, **options)
            yield f"{operation} {name}", partial(_both, run)
        p, q = (distributions.Structured.__new__(distributions.Structured) for _ in range(2))
        for each, by in ((p, 1.0), (q, 0.5)):
            each.event = lambda: torch.Size(())  # type: ignore[method-assign]
            distributions.Structured.__init__(each, functions, tuple(s * by for s in scores), lengths)
        for operation, of in OF_DISTRIBUTIONS.items():
            yield f"{operation} {name}", partial(_both, partial(of, p, q))


def _both(run: Callable[[], Any]) -> None:
    """Run an operation, and differentiate what can be."""
    results = run()
    some = [x for x in tensors(list(results) if isinstance(results, tuple) else [results]) if x.requires_grad]
    if some:
        sum(x.sum() for x in some).backward(retain_graph=True)


def measured(
    parts: Iterator[tuple[str, Callable[[], Any]]], cuda: FakeCuda, wanted: list[str]
) -> Iterator[tuple[str, int, int]]:
    """Run parts; yield the waits and kernels of each."""
    for part, run in parts:
        if wanted and not any(x in part for x in wanted):
            continue
        cuda.forget()
        structure._schedules.clear()  # so that no figure depends on the parts before
        try:
            run()
        except Exception as error:
            WRONG[f"{part}: {type(error).__name__}: {str(error).splitlines()[0]}"] += 1
            if wanted:
                traceback.print_exc()
            continue
        REACHED.update(name for name, dtype in cuda.reached if dtype == torch.bfloat16)
        yield part, sum(cuda.waits.values()), sum(cuda.kernels.values())
        for (operation, line), times in cuda.mixed.items():
            WRONG[f"{part}: {operation} of tensors of both devices, {line}"] += times
        if wanted:
            print(
                *(f"    waits {n}: {operation}, {line}" for (operation, line), n in cuda.waits.most_common()), sep="\n"
            )
            print("   ", *(f"{n} {operation}" for operation, n in cuda.kernels.most_common(12)))


WRONG: Counter[str] = Counter()
REACHED: set[str] = set()  # operations with tensors of bfloat16


def with_kernels(names: set[str]) -> set[str]:
    """Return the operations that have a CUDA kernel for bfloat16, by the tests of torch itself."""
    from torch.testing._internal.common_methods_invocations import op_db

    known = set()
    for each in op_db:
        if torch.bfloat16 in each.dtypesIfCUDA:
            known |= {each.aten_name, each.name.split(".")[-1], *(alias.name for alias in each.aliases)}
        if torch.bfloat16 in each.backward_dtypesIfCUDA:
            known.add(each.aten_backward_name)
    return {name for name in names if INTERNAL.get(name, name.rstrip("_").removeprefix("_foreach_")) in known}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help="words of the names of parts; none: all")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--kernels", action="store_true")
    chosen = parser.parse_args()
    names = [name for name in configurations() if not chosen.parts or any(x.split()[-1] in name for x in chosen.parts)]
    rows: list[tuple[str, int, int]] = []
    gpu._programs = lambda: None  # Triton would look for a real GPU
    with tempfile.TemporaryDirectory() as folder:
        for name, training in trainings(Store(Path(folder)).open(), names):
            with fake_cuda() as cuda:
                rows += measured(of_training(name, training), cuda, chosen.parts)
    with fake_cuda() as cuda:
        rows += measured(of_structures(), cuda, chosen.parts)
    if chosen.kernels:
        KERNELS.write_text("".join(f"{name}\n" for name in sorted(with_kernels(REACHED))), encoding="utf-8")
    known = set(KERNELS.read_text(encoding="utf-8").split())
    WRONG.update(f"{name}: no CUDA kernel for bfloat16 is known, see --kernels" for name in sorted(REACHED - known))
    lines = ["part\twaits\tkernels", *(f"{part}\t{waits}\t{count}" for part, waits, count in rows)]
    print(*lines, *WRONG, sep="\n")
    if chosen.keep:
        KEPT.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return 1 if WRONG else 0


if __name__ == "__main__":
    sys.exit(main())
