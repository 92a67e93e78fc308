"""The weights that the released parser of paper 004 starts with, where they differ from those of our layers.

The release keeps the matrices of all heads or labels in one tensor (heads, inputs, outputs) and draws it by Xavier's rule. The
rule takes the first size for that of the outputs and the last one for that of a filter, so that weights start smaller than in
matrices by themselves: the label layer's with a standard deviation of 0.0071 in place of 0.059.
"""

import torch
from torch import nn
from torch.nn import init

from phrasemodels.layers.labels import LabelMatrices, LearnedQueries, PerLabel
from phrasemodels.layers.partitioned import PartitionedAttention, PartitionedFeedForward
from phrasemodels.layers.scorers import BiaffineArcScorer, RelationScorer, SpanScorer


@torch.no_grad()
def as_released(parser: nn.Module) -> None:
    """Draw the weights of attention, label layer, feed-forward layers and scorers again, as in the released code."""
    for module in parser.modules():
        if isinstance(module, PartitionedAttention):
            for part in (module.query, module.key, module.value):
                for linear in (part.content, part.position):
                    _as_heads(linear, module.heads)
            _plainly(module.output)
        elif isinstance(module, PartitionedFeedForward | PerLabel):
            _plainly(module)
        elif isinstance(module, LabelMatrices):
            init.xavier_normal_(module.content)
            init.xavier_normal_(module.position)
        elif isinstance(module, LearnedQueries) and "query" in dict(module.named_parameters()):
            for half in module.query.chunk(2, -1):  # content and position are two matrices there
                half.copy_(init.xavier_normal_(torch.empty_like(half)))
        elif isinstance(module, BiaffineArcScorer | RelationScorer | SpanScorer):
            _scorer(module)


def _as_heads(linear: nn.Linear, heads: int) -> None:
    """Draw the matrices (d, width) of all heads, which one linear map (heads · width, d) holds."""
    drawn = init.xavier_normal_(linear.weight.new_empty(heads, linear.in_features, linear.out_features // heads))
    linear.weight.copy_(drawn.transpose(1, 2).flatten(0, 1))


def _plainly(module: nn.Module) -> None:
    """Draw the weights of linear maps by PyTorch's default."""
    for linear in module.modules():
        if isinstance(linear, nn.Linear):
            linear.reset_parameters()


def _scorer(module: BiaffineArcScorer | RelationScorer | SpanScorer) -> None:
    if isinstance(module, SpanScorer):
        bound = module.project.in_features**-0.5
        module.bias.uniform_(-bound, bound)
    elif isinstance(module, BiaffineArcScorer):
        init.xavier_uniform_(module.weight)
    else:  # a tensor of pairs, two matrices of single words, and a bias
        weight = module.weight
        for part in (weight[:, :-1, :-1], weight[:, :-1, -1], weight[:, -1, :-1]):
            part.copy_(init.xavier_uniform_(torch.empty_like(part)))
        weight[:, -1, -1] = 0.0
