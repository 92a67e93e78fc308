"""Exported models for torch alone: a configuration as JSON, the weights, and the entries of the vocabularies.

A configuration may only name classes and functions of PARTS, and those of the caller. So a file can neither import nor run
anything else. Every value must have the type of its field (`phrasemodels/config.py`). Weights are compared with the model
before use, so none is broadcast or cast unasked.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.overrides import TorchFunctionMode

from phrasemodels.config import Decoder, name_of, parts_of, to_json
from phrasemodels.data.formats.lines import LONGEST_NAME, is_name

DTYPES = {  # of safetensors
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
Form = tuple[tuple[int, ...], torch.dtype | None]  # shape and type; None: a type that no model has


def learned(model: nn.Module) -> dict[str, Tensor]:
    """Return the saved part of a model: its parameters and its persistent buffers, tied ones once.

    ValueError: it has other state.
    """
    state = model.state_dict(keep_vars=True)  # alone it says which buffers are persistent; it has tied weights twice
    buffers = {name: buffer for name, buffer in model.named_buffers() if name in state}
    known = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    known |= {name for name, _ in model.named_buffers(remove_duplicate=False)}
    if other := sorted(state.keys() - known):
        raise ValueError(f"{other[0]}: this state of a module cannot be saved; keep it in a buffer")
    return dict(model.named_parameters()) | buffers


def copied(model: nn.Module) -> dict[str, Tensor]:
    """Return a copy of a model's saved part on the CPU."""
    # copy: training goes on to change the weights themselves, and safetensors refuses tensors that share memory
    return {name: x.detach().to("cpu", copy=True).contiguous() for name, x in learned(model).items()}


def forms(weights: Mapping[str, Tensor]) -> dict[str, Form]:
    """Return the shapes and types of weights."""
    return {name: (tuple(weight.shape), weight.dtype) for name, weight in weights.items()}


@torch.no_grad()
def fill(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy fitting weights into a model, cast to its types."""
    for name, own in learned(model).items():
        own.copy_(weights[name])


def check_finite(model: nn.Module) -> None:
    """Raise a ValueError if a parameter of a model is not finite, or a buffer has NaN."""
    if wrong := not_finite(model):
        raise ValueError(f"the weights {wrong[:5]} are not finite; train the model again")


def check_fit(own: Mapping[str, Tensor], given: Mapping[str, Form]) -> None:
    """Raise a ValueError unless weights of these shapes and types fit those of a model, by name."""
    if own.keys() != given.keys():
        raise ValueError(
            f"the weights do not fit the model: {sorted(own.keys() ^ given.keys())[:5]} are only in one of the two"
        )
    for name, parameter in own.items():
        wanted = (tuple(parameter.shape), parameter.dtype)
        if given[name] != wanted:
            (shape, dtype), (its, kind) = wanted, given[name]
            raise ValueError(f"the weights do not fit the model: {name} is {kind} {its}, not {dtype} {shape}")


class Uninitialised(TorchFunctionMode):
    """In this context new models draw no random weights. Drawing takes time and, without memory, torch's compiler."""

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call a function, or return its tensor if it is one of RANDOM."""
        kwargs = kwargs or {}
        if getattr(function, "__name__", "") in RANDOM:
            return args[0] if args else kwargs["tensor"]
        return function(*args, **kwargs)


RANDOM = {"normal_", "uniform_", "trunc_normal_", "kaiming_normal_", "kaiming_uniform_"}  # xavier_* call one of these


def check_header(build: Callable[[], nn.Module], file: Path, cast: bool = False) -> None:
    """Raise a ValueError unless a file of weights has the names, shapes and types of the model. The model gets no memory.

    A model with many more parameters than the file has tensors is not built to its end. cast: allow other types of floating point
    numbers.
    """
    with safe_open(file, "pt") as weights:
        given = {name: weights.get_slice(name) for name in weights.keys()}  # noqa: SIM118  it has no other iterator
        check_form(
            build, {n: (tuple(part.get_shape()), DTYPES.get(part.get_dtype())) for n, part in given.items()}, cast
        )


def check_form(build: Callable[[], nn.Module], shapes: Mapping[str, Form], cast: bool = False) -> None:
    """Raise a ValueError unless weights have the names, shapes and types of the model, as `check_header`."""
    left = 4 * len(shapes) + 100

    def count(module: nn.Module, name: str, parameter: nn.Parameter) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise ValueError(f"the configuration asks for more weights than the {len(shapes)} of the file")

    hook = register_module_parameter_registration_hook(count)
    try:
        with torch.device("meta"), Uninitialised():
            own = learned(build())
    finally:
        hook.remove()
    if cast:
        both = {n for n, (_, dtype) in shapes.items() if dtype and n in own and dtype.is_floating_point}
        both = {n for n in both if own[n].is_floating_point()}
        shapes = {n: (shape, own[n].dtype if n in both else dtype) for n, (shape, dtype) in shapes.items()}
    check_fit(own, shapes)


def not_finite(model: nn.Module) -> list[str]:
    """Return the names of parameters that are not finite, and of buffers with NaN. A buffer may be a mask of infinities."""
    found = {name: parameter.isfinite().all() for name, parameter in model.named_parameters()}
    found |= {name: ~buffer.isnan().any() for name, buffer in model.named_buffers()}
    right = torch.stack(list(found.values())).tolist() if found else []  # read once, as a GPU is waited for
    return [name for name, one in zip(found, right, strict=True) if not one]


def check_names(side: str, names: Sequence[str]) -> None:
    """Raise a ValueError if a tag, label or relation could forge a line of CoNLL-U, a bracket of a tree or a code of a terminal.

    Tags may have brackets, since treebanks use them (German's `$(`). Trees are written without them.
    """
    refused, what = (" ", "blanks") if side.endswith("tags") else (" ()[]", "blanks or brackets")
    for name in names:
        if not is_name(name, refused):
            why = f"a name is printable, without {what}, of {LONGEST_NAME} characters at most"
            raise ValueError(f"{side} has {name[:20]!a}: {why}")


LIBRARY = "library.json"
# The classes and functions that a file may name: configurations, and the functions and classes made for their fields. To
# make one of them reads no file outside the model's folder, opens no connection and runs no code that is not below.
PARTS: Mapping[str, str] = {
    "phrasemodels.encoders.baselines": "AdaSentConfig BiLSTMMaxConfig DisanConfig HConvNetConfig MultiHeadConfig TbcnnConfig",
    "phrasemodels.encoders.hypernode": "HypernodeEncoderConfig softmax_hadamard softmax_within",
    "phrasemodels.encoders.inputs": "CharactersConfig ExportedEncoderConfig TagsConfig WordsConfig",
    "phrasemodels.encoders.parents": "HardParentsConfig NoParentsConfig SoftParentsConfig",
    "phrasemodels.encoders.partitioned": "PartitionedEncoderConfig",
    "phrasemodels.encoders.psan": "Concatenated GatedMemory HighwayMemory PsanConfig Stacked SteadyMemory as_numbered "
    "fine_to_coarse keep_activations recompute_activations",
    "phrasemodels.encoders.recurrent": "LSTMEncoderConfig",
    "phrasemodels.encoders.transformer": "NgramEncoderConfig PooledEncoderConfig PsanTokenEncoderConfig "
    "TransformerEncoderConfig",
    "phrasemodels.layers.attention": "identity sigma_on_heads sigma_on_projection",
    "phrasemodels.layers.attention_weights": "EdgeSegmentWeights MarginalSegmentWeights ReleasedSegmentWeights SegmentWeights "
    "SigmoidWeights SingleRootTreeWeights SoftmaxWeights TreeWeights",
    "phrasemodels.layers.blocks": "AddNorm PreNorm Replace max_over_tokens max_with_padding normal_by_width "
    "standard_normal",
    "phrasemodels.layers.labels": "AsSelfAttention InputQueries LabelAttentionConfig LearnedQueries PerLabel own_query "
    "released_query",
    "phrasemodels.layers.multidim": "itself",
    "phrasemodels.layers.ngrams": "NgramBiLSTM NgramBiRNN NgramMean NgramSum final_states grams_alone residual_gate "
    "states_and_cells",
    "phrasemodels.layers.partitioned": "by_head_width by_model_width",
    "phrasemodels.layers.phrases": "LengthEmbedding MeanInit ZeroInit",
    "phrasemodels.layers.scorers": "from_head from_itself tanh_once tanh_twice",
    "phrasemodels.models.memory": "BinaryPotentials BinaryPotentialsOnce ChainConfig HopsConfig ReleasedPotentials "
    "RowNormalisedPotentials UnaryPotentials bag_of_words by_position",
    "phrasemodels.models.parser": "Jointly LearnedPositions ParserConfig Sinusoids arcs_alone as_released phrases_alone "
    "separately",
    "phrasemodels.models.pretrained_words": "ExportedWordsConfig",
    "phrasemodels.models.recurrent": "RecurrentConfig",
    "phrasemodels.models.sentence_pair": "ClassifierConfig DecomposableConfig FrozenEmbedding LearnedEmbedding LinearClassifier "
    "MixedClassifier SentencePairConfig absolute_difference as_built glorot_uniform signed_difference torch_default",
    "phrasemodels.models.tagger": "TaggerConfig",
    "phrasemodels.models.translation": "TranslationConfig as_attention_is_all_you_need_pytorch as_made",
    "phrasemodels.parsing.splitter": "SplitterConfig",
    "phrasemodels.parsing.words": "sentences universal_sentences",
    "phrasemodels.project": "StudyFile",
}
# Functions of torch that configurations name, by the names that files have.
TORCH = {name_of(f): f for f in (torch.sigmoid, torch.zeros_like, nn.init.xavier_uniform_)}


def own_parts(config: Any) -> list[str]:
    """Return the names "module:class" of a configuration's parts outside of this library. `load` needs them."""
    names = dict.fromkeys(map(name_of, parts_of(config)))
    return [
        name
        for name in names
        if name not in TORCH and name.partition(":")[2] not in PARTS.get(name.partition(":")[0], "").split()
    ]


DAMAGED = (
    LookupError, TypeError, AttributeError, ValueError, ArithmeticError, RuntimeError, AssertionError, ImportError, OSError,
    SafetensorError,
)  # fmt: skip


def first_line(error: BaseException) -> str:
    """Return the first line of an error, at most 200 characters, or the name of its class if it is empty."""
    return (str(error).splitlines() or [""])[0][:200] or type(error).__name__


def part_of_library(name: str) -> Any:
    """Return a class or function of PARTS or TORCH by its name. ValueError: it is in neither."""
    if name in TORCH:
        return TORCH[name]
    module, _, attribute = name.partition(":")
    if attribute not in PARTS.get(module, "").split():
        raise ValueError(
            f"its part {name} is none that a file may name; pass it if it is your own: "
            f"load(folder, {name.rpartition(':')[2]})"
        )
    return getattr(importlib.import_module(module), attribute)


def describe(config: Any, folders: Mapping[str, Path], answers: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the content of LIBRARY: a model's configuration as JSON, and how it answers (`Predictor.described`).

    folders: the parts of the exported folder by name. A path below one of them is written relative to it.
    """
    return {"config": to_json(config, folders), **({"predictor": answers} if answers else {})}


def restored(saved: Any, kind: Any, folder: Path, own: Sequence[Any] = ()) -> Any:
    """Return the configuration of a file, of a type.

    Args:
        folder: Folder of the file. Files named by it must be inside.
        own: Classes and functions allowed beside PARTS.

    Raises:
        ValueError: It names another part, a value has another type or is out of its range, or a file is outside of the folder.
    """
    added = {name_of(part): part for part in own}

    def file(name: str) -> str:
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise ValueError(f"{name} is outside of the folder")
        return str(path)

    decoder = Decoder(lambda name: added.get(name) or part_of_library(name), file)
    return decoder.read(saved, kind, "config")
