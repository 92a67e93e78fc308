"""Translation: any encoder of token states, the Transformer decoder, the loss on real tokens, and batched beam search.

The search has a key/value cache. A beam of 1 is greedy search.

Shapes: B sentences, n source tokens, t target tokens, r target tokens without PAD, k candidates of a beam's next step, V
target vocabulary, d model width.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from phrasemodels import config
from phrasemodels.encoders import EncoderConfig, check_output
from phrasemodels.layers.attention import (
    MultiHeadAttention,
    attention_probe,
    self_attention,
    softmax_with_dropout,
    source_attention,
)
from phrasemodels.layers.blocks import (
    BEGIN,
    END,
    PAD,
    UNKNOWN,
    AddNorm,
    FeedForward,
    Packing,
    Residual,
    ScaledLinear,
    Start,
    TokenEmbedding,
    feed_forward,
    normal_by_width,
    on_device,
    shapes_are_fixed,
    token_mask,
)


def token_loss(
    model: Any,
    source: Tensor,
    lengths: Tensor,
    members: Tensor,
    target: Tensor,
    smoothing: float,
) -> Tensor:
    """Return the sum over the tokens of target (B, t) after BEGIN, without PAD, of the label-smoothed cross entropy (nats).
    Arguments as in `target_scores`."""
    scores, gold = target_scores(model, source, lengths, members, target)
    return smoothed_cross_entropy(scores, gold, smoothing, gold != PAD if shapes_are_fixed() else None)


def target_scores(
    model: Any, source: Tensor, lengths: Tensor, members: Tensor, target: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the scores (r, V) of the words at the r tokens of target (B, t) after BEGIN, and these tokens (r).

    PAD is left out unless shapes are fixed. Only the states of real tokens are projected to scores, so padding costs nothing
    in the widest layer. model: a `Translator` or a `RecurrentTranslator`; source (B, n) ids, lengths (B), members (B, m, k).
    """
    memory, gold = model.encode(source, lengths, members), target[:, 1:]
    packing = Packing.of_real(gold != PAD)
    return model.project(model.states(memory, lengths, target[:, :-1], packing)).float(), packing.pack(gold)


def smoothed_cross_entropy(scores: Tensor, gold: Tensor, smoothing: float, counted: Tensor | None = None) -> Tensor:
    """Return the sum over r tokens of the cross entropy (nats) of scores (r, V) at smoothed labels gold (r).

    The labels give `smoothing` to all V words alike (Szegedy et al. 2016, section 7). counted (r): the tokens in the sum;
    None: all. It can be differentiated once.
    """
    loss: Tensor = _SmoothedCrossEntropy.apply(scores, gold, smoothing, counted)
    return loss


class _SmoothedCrossEntropy(torch.autograd.Function):
    """Computes the gradient, softmax - labels, in the memory of log softmax. `F.cross_entropy` keeps both."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, gold: Tensor, smoothing: float, counted: Tensor | None) -> Tensor:
        logs = scores.log_softmax(-1)
        if counted is not None:
            logs.masked_fill_(~counted.unsqueeze(1), 0.0)
        at = torch.arange(len(gold), device=gold.device), gold
        loss = -(1 - smoothing) * logs[at].sum()
        each = smoothing / scores.shape[-1]
        if smoothing:
            loss = loss - each * logs.sum()
        # in place: log softmax is not needed again
        gradient = logs.exp_().sub_(each) if smoothing else logs.exp_()
        gradient[at] -= 1 - smoothing
        if counted is not None:
            gradient.masked_fill_(~counted.unsqueeze(1), 0.0)
        ctx.save_for_backward(gradient)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        return ctx.saved_tensors[0] * gradient, None, None, None


class IncrementalDecoder(Protocol):
    """A model for decoding token by token. The state of `start` has `select(rows)`, to keep some hypotheses."""

    @property
    def project(self) -> Any: ...
    def encode(self, source: Tensor, lengths: Tensor, members: Tensor) -> Tensor: ...
    def start(self, memory: Tensor, lengths: Tensor) -> Any: ...
    def advance(self, target: Tensor, state: Any, /) -> Tensor: ...


@dataclass(frozen=True)
class BeamSearch:
    """Settings of the search.

    Args:
        beam: Hypotheses per sentence.
        length_penalty: A finished hypothesis y has the score log p(y) / |y|^length_penalty.
        growth: A hypothesis has at most growth · n + extra tokens for a source of n tokens, in any batch.
        extra: Tokens beside growth · n.
        unknown: Allow unknown words in answers.
        reach: An answer has at most so many times the tokens of the longest target of train, so that any model ends. 0: no bound.
    """

    beam: int = 5
    length_penalty: float = 1.0
    growth: float = 1.5
    extra: int = 10
    unknown: bool = False
    reach: float = 0.0

    def __post_init__(self) -> None:
        config.at_least(self, 1, "beam")
        config.at_least(self, 0, "extra")
        config.not_negative(self, "length_penalty", "growth", "reach")

    def within(self, longest: int) -> "BeamSearch":
        """Return the search with the limit of `reach`, where the longest target of train has so many tokens."""
        limit = int(self.reach * longest)
        return replace(self, growth=0.0, extra=min(limit, self.extra)) if limit and not self.growth else self


@dataclass
class FinishedHypotheses:
    """The finished hypotheses of one sentence: how many there are, and the best with its score."""

    limit: int  # largest number of tokens of a hypothesis
    best: list[int] = field(default_factory=list)
    score: float = float("-inf")
    count: int = 0

    def add(self, history: Tensor, last: Sequence[int], score: float) -> None:
        """Add a hypothesis: tokens (t) from BEGIN on, and the last one unless it is END."""
        self.count += 1
        if score > self.score:
            self.best, self.score = [*history[1:].tolist(), *last], score


@torch.inference_mode()
def beam_search(
    model: IncrementalDecoder, source: Tensor, lengths: Tensor, members: Tensor, search: BeamSearch
) -> list[tuple[list[int], float]]:
    """Return the best translation of each sentence, without BEGIN and END, with its normalised log probability.

    source (B, n), lengths (B), members (B, m, words of a phrase). The model should be in eval mode.
    """
    size, beam = source.shape[0], search.beam
    never = torch.tensor([PAD, BEGIN] if search.unknown else [PAD, BEGIN, UNKNOWN], device=source.device)
    cache = model.start(model.encode(source, lengths, members), lengths)
    cache.select(torch.arange(size).repeat_interleave(beam))
    finished = [FinishedHypotheses(int(search.growth * n + search.extra)) for n in lengths.tolist()]
    alive = list(range(size))  # the sentences that are still searched; rows i · beam .. of the cache are alive[i]
    tokens = torch.full((size, beam, 1), BEGIN, device=source.device)
    scores = torch.full((size, beam), float("-inf"), device=source.device)
    scores[:, 0] = 0.0  # all hypotheses are equal before the first token, so only one counts
    while alive:
        logits = model.project(model.advance(tokens[:, :, -1:].flatten(0, 1), cache))[:, -1].float()
        logits.index_fill_(1, never, float("-inf"))
        candidates = scores.unsqueeze(2) + logits.log_softmax(-1).unflatten(0, (len(alive), beam))
        # of all continuations of all hypotheses of a sentence together
        top, flat = candidates.flatten(1).topk(2 * beam, 1)  # twice the beam: enough even if half of it ends
        parents, words = flat // logits.shape[-1], flat % logits.shape[-1]
        # numbers that float64 holds exactly, so that a GPU is waited for once a token
        known = torch.stack([top.double(), parents.double(), words.double()]).cpu()
        unfinished = _finish(search, finished, alive, tokens, known)
        if not unfinished:
            break
        rows = torch.tensor([i for i, _ in unfinished])
        picks = torch.tensor([p for _, p in unfinished])
        parent, chosen = known[1:, rows].long().gather(2, picks.expand(2, -1, -1))
        kept = (rows.unsqueeze(1) * beam + parent).flatten()
        at, picks, chosen = on_device(source.device, kept, (rows.unsqueeze(1) * 2 * beam + picks).flatten(), chosen)
        scores = top.flatten().index_select(0, picks).view(-1, beam)
        history = tokens.flatten(0, 1).index_select(0, at).view(-1, beam, tokens.shape[2])
        tokens = torch.cat([history, chosen.unsqueeze(2)], 2)
        cache.select(kept)
        alive = [alive[i] for i, _ in unfinished]
    return [(f.best, f.score) for f in finished]


def _finish(
    search: BeamSearch,
    finished: list[FinishedHypotheses],
    alive: list[int],
    tokens: Tensor,
    known: Tensor,
) -> list[tuple[int, list[int]]]:
    """Add the ending candidates to `finished`; return the row of each unfinished sentence and its next beam.

    tokens (B, beam, t); known (3, B, k): score, hypothesis and last word of each candidate, best first.
    """
    length = tokens.shape[2]  # of a candidate that ends now, with END but without BEGIN
    scores = known[0].tolist()
    origin, token = known[1:].long().tolist()
    unfinished = []
    for row, sentence in enumerate(alive):
        done = finished[sentence]
        stay: list[int] = []
        for rank, (score, parent, word) in enumerate(zip(scores[row], origin[row], token[row], strict=True)):
            # of 2 · beam candidates, an ending after the first `beam` does not count: else a beam of 1 would not be
            # greedy search
            if word == END and rank < search.beam:
                done.add(tokens[row, parent], (), score / length**search.length_penalty)
            elif word != END and len(stay) < search.beam:
                stay.append(rank)
        best_alive = scores[row][stay[0]]
        if length >= done.limit:
            for rank in stay:
                score = scores[row][rank] / length**search.length_penalty
                done.add(tokens[row, origin[row][rank]], (token[row][rank],), score)
        # goes on while the best unfinished hypothesis, if it ended here, would be the best of all
        elif done.count < search.beam or best_alive / length**search.length_penalty > done.score:
            unfinished.append((row, stay))
    return unfinished


Extend = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # new keys and values -> all keys and values


Draw = Callable[[nn.Module], nn.Module]  # draws weights of a model in place


def as_made(model: nn.Module) -> nn.Module:
    """Leave the weights of a model as its layers drew them."""
    return model


def as_attention_is_all_you_need_pytorch(model: nn.Module) -> nn.Module:
    """Draw the weights as the code attention-is-all-you-need-pytorch did in August 2018, the probable base of paper 000.

    Queries, keys and values are from N(0, 2 / (d + dk)), outputs of heads by Glorot and Bengio (2010) from a normal
    distribution, all others and biases by torch.
    """
    for module in model.modules():
        if isinstance(module, FeedForward):
            for layer in module.modules():
                if isinstance(layer, nn.Linear):
                    layer.reset_parameters()
        if isinstance(module, MultiHeadAttention):
            d = module.query.in_features
            for projection in (module.query, module.key, module.value, module.output):
                projection.reset_parameters()
            for projection in (module.query, module.key, module.value):
                nn.init.normal_(projection.weight, std=(2 / (d + d // module.heads)) ** 0.5)
            nn.init.xavier_normal_(module.output.weight)
    return model


@dataclass(frozen=True)
class TranslationConfig:
    """An encoder, and a Transformer decoder of its width, heads and dropout.

    Args:
        encoder: The configuration of the encoder.
        source_vocabulary, target_vocabulary: Numbers of words, 0 until they are set from the data.
        decoder_layers, decoder_d_ff: Layers of the decoder, and their hidden units.
        tied: The target embedding is the output projection.
        shared: One embedding, and so one vocabulary, for both sides.
        output_bias: The output projection has a bias.
        residual: The residual style of the decoder.
        inner_dropout: Dropout of the decoder's attention weights, and inside its feed-forward part.
        attention_dropout: Dropout of the weights alone.
        start: How embeddings are drawn.
        scaled: Embeddings are their table times √d. Else they are the table, and tied scores are divided by √d: the same
            function of tables, but it learns otherwise.
        embedding_dropout: Dropout of embeddings. None: as in the encoder.
        draw: Draws the other weights again. as_made leaves them.
    """

    encoder: EncoderConfig
    source_vocabulary: int
    target_vocabulary: int
    decoder_layers: int = 6
    decoder_d_ff: int = 2048
    tied: bool = True
    shared: bool = False
    output_bias: bool = False
    residual: type[Residual] = AddNorm
    inner_dropout: float = 0.0
    start: Start = normal_by_width
    attention_dropout: float = 0.0
    scaled: bool = True
    embedding_dropout: float | None = None
    draw: Draw = as_made

    def __post_init__(self) -> None:
        config.at_least(self, 0, "source_vocabulary", "target_vocabulary", "decoder_d_ff")
        config.at_least(self, 1, "decoder_layers")
        config.share(self, "inner_dropout")
        config.share(self, "attention_dropout")
        if self.embedding_dropout is not None:
            config.share(self, "embedding_dropout")
        if self.shared and self.source_vocabulary != self.target_vocabulary:
            sizes = f"{self.source_vocabulary} source and {self.target_vocabulary} target words"
            raise ValueError(f"shared=True: there are {sizes}; make one vocabulary of both sides")

    def build(self) -> "Translator":
        return Translator(self)


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the source, feed-forward."""

    def __init__(self, config: TranslationConfig) -> None:
        super().__init__()
        d, heads = config.encoder.d, config.encoder.heads
        self.itself, self.source = (
            MultiHeadAttention(d, heads, softmax_with_dropout(config.attention_dropout or config.inner_dropout))
            for _ in range(2)
        )
        self.feed_forward = feed_forward(d, config.decoder_d_ff, config.inner_dropout)
        self.residuals = nn.ModuleList(config.residual(d, config.encoder.dropout) for _ in range(3))

    def forward(self, x: Tensor, extend: "Extend | Packing", *given: Any) -> Tensor:
        """Compute `packed` of packed tokens, or `step`."""
        return self.packed(x, extend, *given) if isinstance(extend, Packing) else self.step(x, extend, *given)

    def step(self, x: Tensor, extend: Extend, allowed: Tensor, cross: tuple[Tensor, ...]) -> Tensor:
        """x (B, t, d) -> (B, t, d).

        extend: returns the keys and values of all target tokens so far. allowed (t, all tokens): which of them are attended
        to. cross: keys, values (B, h, n, dk) and mask of the source. x may have several hypotheses of it (DecoderCache).
        """
        x = self.residuals[0](x, lambda y: self.itself(y, extend(*self.itself.keys_values(y)), allowed))
        x = self.residuals[1](x, lambda y: self._from_source(y, *cross))
        return self.residuals[2](x, self.feed_forward)

    def packed(self, x: Tensor, packing: Packing, memory: Tensor, sources: Packing) -> Tensor:
        """Packed target tokens x (T, d) and source tokens memory (M, d) of the same sentences -> (T, d)."""
        x = self.residuals[0](x, lambda y: self_attention(self.itself, y, packing, causal=True))
        x = self.residuals[1](x, lambda y: source_attention(self.source, y, packing, memory, sources))
        return self.residuals[2](x, self.feed_forward)

    def _from_source(self, x: Tensor, keys: Tensor, values: Tensor, valid: Tensor) -> Tensor:
        """Attend from x (B·w, t, d), w hypotheses of each sentence, to keys and values (B, h, n, dk) of the source."""
        queries = x.reshape(keys.shape[0], -1, x.shape[-1])
        attended: Tensor = self.source(queries, (keys, values), valid)
        return attended.reshape(x.shape)


class Translator(nn.Module):
    """Token ids to scores of target tokens. PAD, UNKNOWN, BEGIN and END are the first ids of both vocabularies.

    has_fixed_shapes: with fixed shapes no step of training depends on the data, as CUDA graphs need it.
    """

    def __init__(self, config: TranslationConfig) -> None:
        super().__init__()
        d = config.encoder.d
        drop = config.encoder.dropout if config.embedding_dropout is None else config.embedding_dropout
        embedding = partial(TokenEmbedding, d=d, dropout=drop, start=config.start, scaled=config.scaled)
        self.embed_source = embedding(config.source_vocabulary)
        self.embed_target = self.embed_source if config.shared else embedding(config.target_vocabulary)
        self.encoder = config.encoder.build()
        self.has_fixed_shapes = getattr(self.encoder, "has_fixed_shapes", False)
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.last = config.residual.final_norm(d)
        scale = d**-0.5 if config.tied and not config.scaled else 1.0
        self.project = ScaledLinear(d, config.target_vocabulary, config.output_bias, scale)
        if config.tied:
            # one parameter under two names, which checkpoints have once
            self.project.weight = self.embed_target.table.weight
        config.draw(self)

    @property
    def decoder_layers(self) -> list[DecoderLayer]:
        """The layers of the decoder, first to last."""
        return cast(list[DecoderLayer], list(self.decoder))

    def encode(self, source: Tensor, lengths: Tensor, members: Tensor) -> Tensor:
        """source (B, n) ids, lengths (B), members (B, m, k) -> memory (B, n, d)."""
        x = self.embed_source(source)
        return check_output(self.encoder(x, lengths, members), self.encoder, "B, n, d", *x.shape)

    def start(self, memory: Tensor, lengths: Tensor) -> "DecoderCache":
        """Return the cache before the first target token: memory (B, n, d), lengths (B)."""
        # once a sentence: the source does not change while its translation grows
        cross = [layer.source.keys_values(memory) for layer in self.decoder_layers]
        return DecoderCache(cross, token_mask(lengths, memory.shape[1])[:, None, None, :])

    def forward(self, source: Tensor, lengths: Tensor, members: Tensor, target: Tensor) -> Tensor:
        """Return the scores (B, t, V) of the token after each token of target (B, t). The target begins with BEGIN."""
        return self.project(self.advance(target, self.start(self.encode(source, lengths, members), lengths)))

    def states(self, memory: Tensor, lengths: Tensor, target: Tensor, packing: Packing) -> Tensor:
        """Return the states (r, d) of the tokens after the r real ones among target (B, t): memory (B, n, d), lengths (B)."""
        sources = Packing.of(lengths, memory.shape[1])
        memory, x = sources.pack(memory), packing.pack(self.embed_target(target))
        for layer in self.decoder_layers:
            x = layer(x, packing, memory, sources)
        return self.last(x)

    def advance(self, target: Tensor, cache: "DecoderCache") -> Tensor:
        """Return the states (B, t, d) of the next t target tokens (B, t), and extend the cache by them."""
        x = self.embed_target(target, cache.length)
        t, past = target.shape[1], cache.length
        allowed = torch.ones(t, past + t, dtype=torch.bool, device=target.device).tril(past)
        for index, layer in enumerate(self.decoder_layers):
            x = layer(x, partial(cache.extend, index), allowed, (*cache.cross[index], cache.valid))
        return self.last(x)


class DecoderCache:
    """The keys and values, layer by layer, of the source and of the target tokens so far.

    The hypotheses of a sentence share the states of its source: row r of the target belongs to row r // width of the source.
    """

    def __init__(self, cross: list[tuple[Tensor, Tensor]], valid: Tensor) -> None:
        self.cross = cross
        self.valid = valid
        self.width = 1
        self.past: list[tuple[Tensor, Tensor]] = []

    @property
    def length(self) -> int:
        """The number of target tokens so far."""
        return self.past[-1][0].shape[2] if self.past else 0

    def extend(self, index: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Append keys and values (B, h, t, dk) of t new tokens to layer `index`. Return those of all tokens."""
        if index == len(self.past):
            self.past.append((keys, values))
        else:
            old_keys, old_values = self.past[index]
            self.past[index] = (torch.cat([old_keys, keys], 2), torch.cat([old_values, values], 2))
        return self.past[index]

    def select(self, rows: Tensor) -> None:
        """Repeat, reorder or drop hypotheses: replace the batch by some of its rows, on the CPU."""
        # on the CPU: to know how many hypotheses each sentence keeps, a GPU would be waited for
        sentences, counts = (rows // self.width).unique_consecutive(return_counts=True)
        size = self.valid.shape[0]
        # most tokens of greedy search keep all rows as they are, and need no copy
        if self.past and not _is_range(rows, size * self.width):
            (at,) = on_device(self.valid.device, rows)
            self.past = [(keys[at], values[at]) for keys, values in self.past]
        widths = set(counts.tolist())
        if len(widths) > 1:  # sentences with different numbers of hypotheses: each hypothesis gets its own copy
            sentences, widths = rows // self.width, {1}
        (self.width,) = widths
        if not _is_range(sentences, size):
            (at,) = on_device(self.valid.device, sentences)
            self.cross = [(keys[at], values[at]) for keys, values in self.cross]
            self.valid = self.valid[at]


def _is_range(rows: Tensor, size: int) -> bool:
    """Whether rows (k) are all of `size` rows in their order."""
    return len(rows) == size and torch.equal(rows, torch.arange(size, device=rows.device))


class Sentence(Protocol):
    """A batch of one sentence: ids (1, n), length (1), phrases (1, m, k)."""

    @property
    def source(self) -> Tensor: ...
    @property
    def lengths(self) -> Tensor: ...
    @property
    def members(self) -> Tensor: ...


@torch.inference_mode()
def with_source_words(
    model: Translator, batch: "Sentence", ids: list[int], words: list[str], source: list[str]
) -> list[str]:
    """Replace each unknown word of an answer by the source word with the most attention.

    As in OpenNMT (`-replace_unk`), it is the attention of the first head of the decoder's last layer. batch: the question
    alone; ids, words: the answer; source: the question's words.
    """
    last = f"decoder.{len(model.decoder) - 1}.source"
    target = torch.tensor([[BEGIN, *ids[:-1]]], device=batch.source.device)
    with attention_probe(model) as found:
        model(batch.source, batch.lengths, batch.members, target)
    marks = int(batch.lengths[0]) - len(source)  # <s> and </s>, or none
    weights = found[last][0, 0, :, marks // 2 : marks // 2 + len(source)]
    return [
        source[int(weights[place].argmax())] if number == UNKNOWN and source else word
        for place, (number, word) in enumerate(zip(ids, words, strict=True))
    ]
