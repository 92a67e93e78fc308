"""Conditional random fields as modules, with the methods that users of pytorch-crf and supar know.

`CRF` has the parameters of pytorch-crf, by the same names, so that its state dicts load. Shapes: B sequences, T positions, C tags,
n words. What is unknown in a gold structure, a tag or head of -1 or of -100, PyTorch's ignore index, is summed over, as in
training on partially annotated data (Tsuboi et al. 2008). A gold structure without probability, as heads that are no tree or tags
that a constraint forbids, is an error that names the sentence; with `validate_args=False` its log likelihood is -inf.

    tags = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
    crf = CRF(len(tags), batch_first=True, constraints=tag_constraints(tags))
    loss = -crf(emissions, gold, mask)
"""

import warnings
from collections.abc import Sequence
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from phrasemodels.structs import eisner
from phrasemodels.structs.dispatch import Unscripted, as_numbers, check_lengths, not_traced, refuse_tracing, transformed
from phrasemodels.structs.distributions import DependencyTree, LinearChain, Structured, log_probability
from phrasemodels.structs.eisner import Projective
from phrasemodels.structs.nonprojective import NonProjective

Reduction = Literal["none", "sum", "mean", "token_mean"]
UNKNOWN = -1, -100


class CRF(Unscripted):
    """A linear chain with scores of transitions, of the first and of the last tag.

    Shapes of arguments: emissions (T, B, C), tags (T, B) and mask (T, B), true inside of sequences; with `batch_first` (B, T, C), (B, T).

    Args:
        constraints: Booleans (C+1, C+1) that allow a transition [from, to]; the last row is the start, the last column the end
            (see `tag_constraints`). They are a buffer, so that parameters stay finite, which `AveragedModel` copies; it cannot
            average booleans, so leave its use_buffers=False. None: all transitions are allowed.
        validate_args: Refuse gold tags without probability, and to decode a sentence that has no tags.
    """

    constraints: Tensor | None

    def __init__(
        self, num_tags: int, batch_first: bool = False, constraints: Tensor | None = None, validate_args: bool = True
    ):
        super().__init__()
        if num_tags < 1:
            raise ValueError(f"num_tags={num_tags}: must be at least 1")
        wanted = (num_tags + 1, num_tags + 1)
        if constraints is not None and not isinstance(constraints, Tensor):
            constraints = torch.tensor(constraints, device="cpu")  # also where tensors are built on the meta device
        if constraints is not None and (constraints.shape != wanted or constraints.dtype != torch.bool):
            raise ValueError(
                f"constraints must be booleans {wanted}, not {tuple(constraints.shape)} of {constraints.dtype}"
            )
        self.num_tags, self.batch_first, self.validate_args = num_tags, batch_first, validate_args
        self.register_buffer("constraints", constraints)
        self._given = constraints  # `to_empty`, after a build on the meta device, forgets buffers
        self.register_load_state_dict_pre_hook(_keep_constraints)
        self.start_transitions = nn.Parameter(torch.empty(num_tags))
        self.end_transitions = nn.Parameter(torch.empty(num_tags))
        self.transitions = nn.Parameter(torch.empty(num_tags, num_tags))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all scores from U(-0.1, 0.1), and set the constraints that were given."""
        if self.constraints is not None and self._given is not None:
            self.constraints.copy_(self._given)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -0.1, 0.1)

    @not_traced
    def forward(
        self, emissions: Tensor, tags: Tensor, mask: Tensor | None = None, reduction: Reduction = "sum"
    ) -> Tensor:
        """Return the log likelihood of tags, (B,) or reduced: sum, mean over sequences, or mean over positions (token_mean).

        The mean of nothing, as of an empty batch, is 0.
        """
        chain = self.distribution(emissions, mask)
        tags = tags if self.batch_first else tags.T
        if tags.shape != chain.scores[0].shape[:2]:
            raise ValueError(f"tags must be {tuple(chain.scores[0].shape[:2])}, not {tuple(tags.shape)}")
        inside = _inside(chain.lengths, tags.shape[1], tags.device)
        known = _known(tags, inside, self.num_tags, "tags")
        value = chain.log_prob(torch.where(inside, tags.long(), -1))
        if transformed() or (inside & ~known).any():
            unary, pairwise = chain.scores
            given = torch.arange(self.num_tags, device=tags.device) == tags[..., None]
            allowed = unary.masked_fill((inside & known)[..., None] & ~given, -torch.inf)
            value = log_probability(LinearChain(allowed, pairwise, chain.lengths).log_partition, chain.log_partition)
        if self.validate_args:
            _refuse_impossible(value, "tags")
        return _reduced(value, inside, reduction)

    @not_traced
    def decode(self, emissions: Tensor, mask: Tensor | None = None) -> list[list[int]]:
        """Return the best tags of each sequence."""
        with torch.no_grad():
            chain = self.distribution(emissions, mask)
        lengths = [chain.scores[0].shape[1]] * len(chain.scores[0]) if chain.lengths is None else chain.lengths
        return [tags[:n] for tags, n in zip(_mode(chain, self.validate_args, "tags").tolist(), lengths, strict=True)]

    @not_traced
    def distribution(self, emissions: Tensor, mask: Tensor | None = None) -> LinearChain:
        """Return the distribution over tags (B, T), with its marginals, samples, k best and entropy."""
        refuse_tracing()
        if emissions.dim() != 3 or emissions.shape[2] != self.num_tags:
            raise ValueError(
                f"emissions must have 3 dimensions, the last of {self.num_tags} tags, not {tuple(emissions.shape)}"
            )
        mask = _booleans(mask)
        if not self.batch_first:
            emissions, mask = emissions.transpose(0, 1), None if mask is None else mask.mT
        B, T, _ = emissions.shape
        lengths = check_lengths(mask, B, T, emissions.device)
        at = torch.arange(T, device=emissions.device)
        first, last = (at == 0)[:, None], (at == lengths - 1)[..., None]
        start, end, transitions = map(_whole, (self.start_transitions, self.end_transitions, self.transitions))
        if self.constraints is not None:
            allowed = self.constraints
            start, end = (
                x.masked_fill(~y, -torch.inf) for x, y in ((start, allowed[-1, :-1]), (end, allowed[:-1, -1]))
            )
            transitions = transitions.masked_fill(~allowed[:-1, :-1], -torch.inf)
        else:
            transitions = transitions.clone()  # numpy's view of a parameter would keep FSDP from freeing its memory
        unary = emissions + torch.where(first, start, 0) + torch.where(last, end, 0)
        return LinearChain(unary, transitions, lengths[:, 0])

    def extra_repr(self) -> str:
        """Return what `repr` shows."""
        constrained = "" if self.constraints is None else ", with constraints"
        return f"num_tags={self.num_tags}, batch_first={self.batch_first}{constrained}"


def tag_constraints(tags: Sequence[str], scheme: Literal["BIO", "BIOES"] = "BIO") -> Tensor:
    """Return the transitions [from, to] that a scheme of tags allows, as `CRF` takes them, (C+1, C+1).

    Args:
        tags: Names in the order of the tags' numbers: O, or a letter of the scheme, a hyphen and a label, as B-PER.
        scheme: BIO: I-x follows B-x or I-x. BIOES: a phrase is S-x, or B-x, any number of I-x, and E-x.

    Raises:
        ValueError: The scheme is another one, or a name does not belong to it.
    """
    if scheme not in ("BIO", "BIOES"):
        raise ValueError(f"scheme {scheme!r}: BIO or BIOES (also called IOBES); rename the tags of another one")
    for tag in tags:
        if tag != "O" and (tag[:1] not in set(scheme) - {"O"} or tag[1:2] != "-"):
            raise ValueError(f"tag {tag!r}: {scheme} has O, and {', '.join(f'{x}-label' for x in scheme if x != 'O')}")
    # the start and the end are outside of phrases, as O is
    letters = [(tag[0], tag[2:]) for tag in (*tags, "O")]
    inside, goes_on = {"B", "I"} if scheme == "BIOES" else set(), {"I", "E"}

    def allows(one: tuple[str, str], other: tuple[str, str]) -> bool:
        continued = other[0] in goes_on
        if continued or one[0] in inside:
            return continued and one[0] in {"B", "I"} and one[1] == other[1]
        return True

    return torch.tensor([[allows(one, other) for other in letters] for one in letters], device="cpu")


def first_pieces(emissions: Tensor, tags: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Leave out the positions whose tag is -100, such as all word pieces of a word but the first.

    Args:
        emissions: Scores (B, T, C).
        tags: Gold tags (B, T).

    Returns:
        Emissions (B, W, C), tags (B, W) and a mask (B, W), for a `CRF` with `batch_first`.
    """
    left = tags != UNKNOWN[1]
    order = (~left).long().sort(stable=True, dim=1).indices[:, : max(left.sum(1).tolist(), default=0)]
    return (
        emissions.gather(1, order[..., None].expand(*order.shape, emissions.shape[2])),
        tags.gather(1, order),
        left.gather(1, order),
    )


class TreeCRF(Unscripted):
    """Dependency trees, by default projective with one root arc; `trees` is `single_root` or `multi_root` of `eisner` or
    `nonprojective`. validate_args: refuse gold heads that are no tree.

    Shapes of arguments: arcs (B, n+1, n+1) as in `eisner`, heads (B, n+1), of which the root's at 0 is not read, mask (B, n).
    """

    def __init__(self, trees: Projective | NonProjective = eisner.single_root, validate_args: bool = True):
        super().__init__()
        self.trees, self.validate_args = trees, validate_args

    def extra_repr(self) -> str:
        """Return the trees that `repr` shows."""
        return f"{self.trees!r}"

    @not_traced
    def forward(self, arcs: Tensor, heads: Tensor, mask: Tensor | None = None, reduction: Reduction = "sum") -> Tensor:
        """Return the log likelihood of heads, (B,) or reduced as in `CRF`."""
        tree = self.distribution(arcs, mask)
        if heads.shape != arcs.shape[:2]:
            raise ValueError(f"heads must be {tuple(arcs.shape[:2])}, with the root at 0, not {tuple(heads.shape)}")
        words = _inside(tree.lengths, arcs.shape[1] - 1, arcs.device)
        inside = nn.functional.pad(words, (1, 0))
        known = _known(heads, inside, arcs.shape[1], "heads")
        value = tree.log_prob(torch.where(inside, heads.long(), -1))
        if transformed() or (inside & ~known).any():
            given = torch.arange(arcs.shape[1], device=arcs.device)[:, None] == heads[:, None]
            allowed = arcs.masked_fill((inside & known)[:, None] & ~given, -torch.inf)
            value = log_probability(DependencyTree(allowed, tree.lengths, self.trees).log_partition, tree.log_partition)
        if self.validate_args:
            _refuse_impossible(value, f"heads, of {self.trees!r},")
        return _reduced(value, words, reduction)

    @not_traced
    def decode(self, arcs: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the heads (B, n+1) of the best trees, -1 at the root and in the padding."""
        return _mode(self.distribution(arcs, mask), self.validate_args, "heads")

    @not_traced
    def distribution(self, arcs: Tensor, mask: Tensor | None = None) -> DependencyTree:
        """Return the distribution over trees, with its marginals, samples, k best and entropy."""
        refuse_tracing()
        lengths = check_lengths(_booleans(mask), len(arcs), arcs.shape[1] - 1, arcs.device)
        return DependencyTree(arcs, lengths[:, 0], self.trees)


def _whole(parameter: Tensor) -> Tensor:
    """Return a parameter, gathered if FSDP has divided it among processes. RuntimeError: its gradient would not be gathered."""
    if not hasattr(parameter, "full_tensor"):
        return parameter
    if torch.is_grad_enabled():
        raise RuntimeError(
            "CRF: FSDP gathers its parameters in `forward` alone; call this method there, under torch.no_grad(), or after "
            "torch.distributed.fsdp.register_fsdp_forward_method"
        )
    whole: Tensor = parameter.full_tensor()
    return whole


def _keep_constraints(model: Any, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Let a state dict without constraints, as of pytorch-crf, load into a CRF that has some; warn of others."""
    if (own := model.constraints) is not None:
        given = state.setdefault(f"{prefix}constraints", own)
        if not own.is_meta and given.shape == own.shape and not torch.equal(given.to(own.device), own):
            warnings.warn("CRF: the constraints of the state dict replace other ones, of the constructor", stacklevel=2)


def _booleans(mask: object) -> Tensor | None:
    """Return a mask of any type as booleans. ValueError: it does not have two dimensions."""
    if mask is None:
        return None
    given = as_numbers(mask)
    if given.dim() != 2:
        raise ValueError(f"mask must have 2 dimensions, as tags or heads have, not {tuple(given.shape)}")
    return given.bool()


def _inside(lengths: object, longest: int, device: torch.device) -> Tensor:
    """Return which positions (B, longest) are inside of sentences."""
    return torch.arange(longest, device=device) < torch.as_tensor(lengths, device=device)[:, None]


def _known(gold: Tensor, inside: Tensor, count: int, name: str) -> Tensor:
    """Return which numbers of a gold structure are known. ValueError: one inside of a sentence is out of range."""
    unknown = (gold == UNKNOWN[0]) | (gold == UNKNOWN[1])
    if transformed():
        return ~unknown
    if gold.is_floating_point() or (inside & ~unknown & ((gold < 0) | (gold >= count))).any():
        raise ValueError(f"{name} must be integers in 0..{count - 1}, or -1 or -100 for unknown ones")
    return ~unknown


def _refuse_impossible(value: Tensor, name: str) -> None:
    """ValueError: a sentence's structure has the score -inf or NaN; under a transform of `torch.func` it stays so."""
    if not transformed() and (wrong := ~(value > -torch.inf)).any():
        raise ValueError(
            f"{name} of sentence {int(wrong.nonzero()[0])} have no probability: they are no such structure, a score of -inf "
            "forbids them, or a score is NaN; validate_args=False gives -inf or NaN"
        )


def _mode(p: Structured, validate_args: bool, name: str) -> Tensor:
    """Return the best structures. ValueError: a sentence has none, if `validate_args`."""
    best, rows = p.functions.argmax(*p.scores, lengths=p.lengths)
    if validate_args:
        _refuse_impossible(best, name)
    return cast(Tensor, rows)


def _reduced(value: Tensor, inside: Tensor, reduction: Reduction) -> Tensor:
    if reduction == "none":
        return value
    if reduction == "token_mean":
        return value.sum() / inside.sum().clamp(min=1)
    if reduction not in ("sum", "mean"):
        raise ValueError(f"reduction={reduction!r}: must be none, sum, mean or token_mean")
    return value.sum() if reduction == "sum" or not len(value) else value.mean()
