"""Exported models for torch alone: a configuration as JSON, the weights, and the entries of the vocabularies.

A configuration may only name classes and functions of PARTS, and those of the caller. So a file can neither import nor run
anything else. Every value must have the type of its field (`phrasemodels/config.py`). Weights are compared with the model
before use, so none is broadcast or cast unasked.
"""

import importlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import get_ident
from traceback import walk_tb
from typing import Any, Self

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.overrides import TorchFunctionMode

from phrasemodels.config import Decoder, name_of, parts_of, to_json
from phrasemodels.data.formats.lines import LONGEST_NAME, is_name

DTYPES = {  # of safetensors
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U64": torch.uint64, "U32": torch.uint32, "U16": torch.uint16,
    "U8": torch.uint8, "BOOL": torch.bool, "C64": torch.complex64, "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
}  # fmt: skip
Form = tuple[tuple[int, ...], torch.dtype | None]  # shape and type; None: a type that no model has


def learned(model: nn.Module) -> dict[str, Tensor]:
    """Return the saved part of a model: its parameters and its persistent buffers, tied ones once.

    ValueError: it has other state.
    """
    state = model.state_dict(keep_vars=True)  # alone it says which buffers are persistent; it has tied weights twice
    every = [pair for pair in model.named_buffers(remove_duplicate=False) if pair[0] in state]
    known = {name for name, _ in (*model.named_parameters(remove_duplicate=False), *every)}
    if other := sorted(state.keys() - known):
        raise ValueError(f"{other[0]}: this state of a module cannot be saved; keep it in a buffer")
    first = {id(buffer): name for name, buffer in reversed(every)}
    return dict(model.named_parameters()) | {name: buffer for name, buffer in every if first[id(buffer)] == name}


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
        if 0 in own.stride():  # expanded: its elements share memory
            own.data = own.data.clone()
        own.copy_(weights[name])


def check_finite(model: nn.Module) -> None:
    """Raise a ValueError if a parameter of a model is not finite, or a buffer has NaN."""
    if wrong := not_finite(model):
        raise ValueError(f"the weights {wrong[:5]} are not finite; train the model again")


def check_fit(own: Mapping[str, Tensor], given: Mapping[str, Form]) -> None:
    """Raise a ValueError unless weights of these shapes and types fit those of a model, by name."""
    if other := sorted(own.keys() ^ given.keys()):
        wrapped = {part for name in given.keys() - own.keys() for part in name.split(".")} & {"_orig_mod", "module"}
        hint = f"; give the module inside, `.{min(wrapped)}`" if wrapped else ""  # of torch.compile; of DDP or an average
        raise ValueError(f"the weights do not fit the model: {other[:5]} are only in one of the two{hint}")
    for name, parameter in own.items():
        shape, dtype = wanted = (tuple(parameter.shape), parameter.dtype)
        if given[name] != wanted:
            its, kind = given[name]
            wrong = f"the weights do not fit the model: {name} is {kind} {its}, not {dtype} {shape}"
            if its == shape and kind == torch.float32 and torch.get_default_dtype() == dtype:
                raise MisuseError(f"{wrong}, torch's default type here: call torch.set_default_dtype({kind})")
            raise ValueError(f"{wrong}; save it after .float()" if its == shape and dtype == torch.float32 else wrong)


class MisuseError(ValueError):
    """A model can't be built as the process is, or by the caller's code, whatever is in its folder."""


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
    if torch.get_default_device().type == "meta":
        raise MisuseError("torch's default device is meta, which has no memory: load outside of torch.device('meta')")
    with safe_open(file, "pt") as weights:
        given = {name: weights.get_slice(name) for name in weights.keys()}  # noqa: SIM118  it has no other iterator
        check_form(
            build, {n: (tuple(part.get_shape()), DTYPES.get(part.get_dtype())) for n, part in given.items()}, cast
        )


def check_form(build: Callable[[], nn.Module], shapes: Mapping[str, Form], cast: bool = False) -> nn.Module:
    """Return the model without memory. ValueError: weights have not its names, shapes and types, as in `check_header`.

    MisuseError: the model can't be built without memory.
    """
    left, own_thread = 4 * len(shapes) + 100, get_ident()

    def count(module: nn.Module, name: str, parameter: nn.Parameter) -> None:
        nonlocal left
        left -= get_ident() == own_thread  # the hook is called for the models of all threads
        if left < 0 and get_ident() == own_thread:
            raise ValueError(f"the configuration asks for more weights than the {len(shapes)} of the file")

    hook = register_module_parameter_registration_hook(count)
    try:
        with torch.device("meta"), Uninitialised():
            model = build()
    except (RuntimeError, TypeError) as error:
        if "meta" not in str(error).lower():
            raise
        raise MisuseError(
            f"phrasemodels.load builds a model without memory first, but {_place(error)} reads values of tensors: make them "
            f'numbers of Python, or build that part in `with torch.device("cpu")` ({first_line(error)})'
        ) from error
    finally:
        hook.remove()
    own = learned(model)
    if cast:
        both = {n for n, (_, dtype) in shapes.items() if dtype and n in own and dtype.is_floating_point}
        both = {n for n in both if own[n].is_floating_point()}
        shapes = {n: (shape, own[n].dtype if n in both else dtype) for n, (shape, dtype) in shapes.items()}
    check_fit(own, shapes)
    return model


def _place(error: BaseException) -> str:
    """Return the last line outside of torch that an error went through, as "file:line"."""
    passed = [(frame.f_code, line) for frame, line in walk_tb(error.__traceback__)]
    places = [(code.co_filename, line) for code, line in passed if code.co_name != "__torch_function__"]
    own = [place for place in places if not place[0].startswith(str(Path(torch.__file__).parent))]
    file, line = own[-1]
    return f"{Path(file).name}:{line}"


def check_modules(own: nn.Module, made: nn.Module) -> None:
    """Raise a ValueError if a module of the model differs from the one that its configuration makes, in how it prints itself, or in a
    function, hook or real number.

    So a layer without weights that was replaced is seen, like an activation or a dropout.
    """
    given, wanted = dict(own.named_modules()), dict(made.named_modules())
    for name in dict.fromkeys([*given, *wanted]):
        of, like = name or "the model", wanted.get(name)
        one, other = (_settings(modules.get(name), like) for modules in (given, wanted))
        for part in one:
            if one[part] != other.get(part):
                said = f"{part}{of} is {one[part]}, but the configuration makes {other.get(part)}"
                raise ValueError(f"{said}: change the configuration, too")


def _settings(module: nn.Module | None, like: nn.Module | None) -> dict[str, str]:
    """Return how a module prints itself, its hooks and its own forward, and the functions and real numbers that `like` has.

    Integers and booleans are left out: modules count, and switch what doesn't change the result.
    """
    found = {"": _printed(module)}
    if module is not None and like is not None:
        hooks = *module._forward_pre_hooks.values(), *module._forward_hooks.values()
        # gradient checkpointing of transformers hooks the embeddings, and changes no state
        own = [_named(hook) for hook in hooks if not str(getattr(hook, "__module__", "")).startswith("transformers.")]
        found["hook of "] = ", ".join(own) or "none"
        read = [n for n, x in vars(like).items() if n[0] != "_" and (callable(x) or isinstance(x, float))]
        found |= {f"{n} of ": _named(vars(module).get(n)) for n in dict.fromkeys(["forward", *read])}
    return found


def _named(part: Any) -> str:
    """Return the name of a function, with its place if it is in Python, or a number; of other things, the type."""
    if isinstance(part, int | float):
        return str(float(part))
    name, code = getattr(part, "__qualname__", type(part).__name__), getattr(part, "__code__", None)
    return f"{name} at {Path(code.co_filename).name}:{code.co_firstlineno}" if code else str(name)


def _printed(module: nn.Module | None) -> str:
    """Return the name of a module's class with its settings; without these where they print tensors."""
    settings = "" if module is None or isinstance(module, nn.ParameterList | nn.ParameterDict) else module.extra_repr()
    return "nothing" if module is None else f"{type(module).__name__}({'' if 'tensor(' in settings else settings})"


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
    "phrasemodels.layers.labels": "LabelAttentionConfig LearnedQueries PerLabel own_query released_query",
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
_ACTIVATIONS = (torch.sigmoid, torch.tanh, torch.relu, F.relu, F.gelu, F.silu, F.elu, F.leaky_relu, F.softplus)
TORCH = {name_of(f): f for f in (*_ACTIVATIONS, torch.zeros_like, nn.init.xavier_uniform_)}


def importable(name: str) -> tuple[str, str]:
    """Return the module of a part "module:name", and the part as code names it after an import of its first name."""
    module, _, part = name.partition(":")
    return module, part.removeprefix("_VariableFunctionsClass.")  # where torch has its functions


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
            f"load(folder, {importable(name)[1]})"
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


FILES = ("*.json", "*.safetensors", "*.txt", "*.md")  # what is downloaded of a repository


class Pretrained(ABC):
    """A model with methods for saving to a folder, loading from a folder or a hub, and uploading to a hub."""

    card: Mapping[str, Any]

    @abstractmethod
    def save_pretrained(self, folder: str | Path) -> Path:
        """Write the model to a folder for `from_pretrained`. Return the folder."""

    @classmethod
    @abstractmethod
    def _from_folder(cls, folder: Path, *parts: Any) -> Self: ...

    @classmethod
    def from_pretrained(cls, name: str | Path, *parts: Any, revision: str | None = None, **hub: Any) -> Self:
        """Load a model from a folder, or from a repository of a hub, for example "user/model".

        Args:
            parts: Your own classes in the model's configuration.
            revision: A branch, tag or commit.
            hub: Further arguments of `huggingface_hub.snapshot_download`, for example token or cache_dir.

        Raises:
            ValueError: The files are no model of this kind.
            OSError: The repository does not exist.
        """
        if Path(name).is_dir():
            return cls._from_folder(Path(name), *parts)
        folder = _library().snapshot_download(str(name), revision=revision, allow_patterns=[*FILES], **hub)
        return cls._from_folder(Path(folder), *parts)

    def push_to_hub(
        self, name: str, *, private: bool | None = None, message: str = "Upload a model", **hub: Any
    ) -> str:
        """Upload the model to a repository of a hub. Return the address of the commit.

        A missing repository is made.

        Args:
            private: Make a new repository private.
            hub: Arguments of `huggingface_hub.HfApi`, for example token.

        Raises:
            ValueError: The licences of the model's data allow no public copy of it.
        """
        api = _library().HfApi(**hub)
        if not (self.card.get("redistributable", True) or "licence" in self.card):  # of the model itself
            refused = (
                f"its data may not be passed on (licences: {_licences(self.card) or 'unknown'})"
            )
            if not private:
                raise ValueError(f"{refused}: push_to_hub({name!r}, private=True)")
            if api.repo_exists(name) and not api.repo_info(name).private:
                raise ValueError(f"{refused}, and {name} is public: make it private, or name a new one")
        repository = api.create_repo(name, private=private, exist_ok=True).repo_id
        with TemporaryDirectory() as folder:
            self.save_pretrained(Path(folder, "model"))
            said = api.upload_folder(repo_id=repository, folder_path=Path(folder, "model"), commit_message=message)
        return str(said.commit_url)


def _library() -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise ValueError(
            "names on a hub need huggingface_hub: pip install huggingface_hub, or give a folder"
        ) from error
    return huggingface_hub


def readme(card: Mapping[str, Any], loading: str, tag: str) -> str:
    """Return README.md of a model, its card on a hub. loading: the code for loading it. tag: its problem."""
    name = str(card.get("name") or card.get("experiment") or "A model of PhraseModels")
    head = {"library_name": "phrasemodels", "tags": ["phrasemodels", tag], "license": "other"}
    lines = ["---", *(f"{key}: {json.dumps(value)}" for key, value in head.items()), "---", "", f"# {name}", ""]
    if paper := card.get("paper"):
        lines += [f"A system of {paper['name']}: {paper['citation']}", ""]
    said = {
        "Experiment": card.get("experiment", "") if card.get("name") else "",
        "Corpus": card.get("corpora") or card.get("corpus"),
        "Seed, updates, parameters": ", ".join(str(card[k]) for k in ("seed", "steps", "parameters") if k in card),
        "Licences of the data": _licences(card),
        "Licence of the model": card.get("licence", ""),
    }
    lines += [f"- {key}: {value}" for key, value in said.items() if value]
    if card.get("stand_in"):
        lines.append("- The corpus stands in for the paper's: scores cannot be compared with printed ones.")
    lines += ["", *_scores(card.get("scores", {})), "## Use", "", "```python", loading, "```", ""]
    if paper:
        lines += ["## Cite", "", "```bibtex", paper["bibtex"], "```", ""]
    return "\n".join(lines)


def _licences(card: Mapping[str, Any]) -> str:
    named = card.get("licences", ())
    return named if isinstance(named, str) else ", ".join(named)


def _value(value: Any) -> str:
    return ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, Mapping) else str(value)


def _scores(scores: Mapping[str, Any]) -> list[str]:
    """Return a table of scores: of this seed, and the mean of all seeds with half of its 95 % interval, if they are known."""
    rows = []
    for name, score in scores.items():
        if not isinstance(score, Mapping):
            rows.append((name, str(score), "", "1", ""))
        elif "value" in score:
            mean = f"{score['mean']:.2f} ± {score['half_width']:.2f}" if score.get("half_width") is not None else ""
            rows.append((name, f"{score['value']:.2f}", mean, str(score["seeds"]), score["how"]))
        else:  # of several test sets
            rows += [(f"{name}: {metric}", _value(value), "", "1", "") for metric, value in score.items()]
    if not rows:
        return []
    table = [("metric", "this model", "mean of seeds ± half of the 95 % interval", "seeds", "how"), ("---",) * 5, *rows]
    lines = ("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in table)
    return ["## Scores on the test set", "", *lines, ""]
