"""A tree CRF parser: labelled spans over words, trained by the likelihood of trees. Run: python examples/tree_parser.py

Data are arithmetic expressions of numbers and operators of two ranks; the tree is how they bind.
"""

import torch

from phrasemodels.structs.distributions import LabelledSpans

LABELS, WORDS = 3, 4  # of spans: atom, product, sum; words: number, times, plus, padding
LONGEST = 9


def expression(generator: torch.Generator) -> tuple[list[int], list[tuple[int, int, int]]]:
    """Return words and the cells of their binary tree: operators take what is before them, products bind first."""
    numbers = int(torch.randint(2, 6, (1,), generator=generator))
    operators = (1 + torch.randint(2, (numbers - 1,), generator=generator)).tolist()
    words = [0, *(w for operator in operators for w in (operator, 0))]
    cells = [(i, i, 0) for i in range(len(words))]
    stack = [(0, 0)]  # spans that are still to be joined by a sum

    def join(one: tuple[int, int], other: tuple[int, int], label: int) -> tuple[int, int]:
        cells.extend([(other[0] - 1, other[1], label), (one[0], other[1], label)])
        return one[0], other[1]

    for position, operator in enumerate(operators):
        number = (2 * position + 2, 2 * position + 2)
        stack.append(number)
        if operator == 1:
            last = stack.pop()
            stack.append(join(stack.pop(), last, 1))
    whole = stack[0]
    for span in stack[1:]:
        whole = join(whole, span, 2)
    return words, cells


def batch(size: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return words (size, LONGEST), cells (size, 2 · LONGEST - 1, 3) and lengths (size,)."""
    words, trees = torch.full((size, LONGEST), 3), torch.full((size, 2 * LONGEST - 1, 3), -1)
    lengths = []
    for b in range(size):
        given, cells = expression(generator)
        lengths.append(len(given))
        words[b, : len(given)] = torch.tensor(given)
        trees[b, : len(cells)] = torch.tensor(sorted(cells, key=lambda c: (c[0], -c[1])))
    return words, trees, torch.tensor(lengths)


class Parser(torch.nn.Module):
    """Scores of spans by the words at and around both ends, and whether a sum is inside."""

    def __init__(self) -> None:
        super().__init__()
        self.score = torch.nn.Sequential(
            torch.nn.Linear(4 * WORDS + 3, 32), torch.nn.Tanh(), torch.nn.Linear(32, LABELS)
        )

    def forward(self, words: torch.Tensor, lengths: torch.Tensor) -> LabelledSpans:
        one_hot = torch.nn.functional.one_hot(torch.nn.functional.pad(words, (1, 1), value=3), WORDS).float()
        n = words.shape[1]
        i, j = (x.flatten() for x in torch.meshgrid(torch.arange(n), torch.arange(n), indexing="ij"))
        ends = torch.cat([one_hot[:, x] for x in (i, i + 1, j + 1, j + 2)], -1)
        sums = torch.nn.functional.pad((words == 2).cumsum(1), (1, 0))
        inside = (sums[:, j + 1] - sums[:, i])[..., None].clamp(min=0)
        shape = torch.stack([i == j, (j - i) / n], -1).expand(len(words), -1, -1)
        more = torch.cat([inside > 0, shape], -1)
        return LabelledSpans(self.score(torch.cat([ends, more], -1)).view(len(words), n, n, LABELS), lengths)


def main(steps: int = 60) -> dict[str, float]:
    """Return the share of trees of new expressions that are all right, before and after training."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    parser = Parser()
    optimiser = torch.optim.Adam(parser.parameters(), 0.03)
    test = batch(64, generator)

    def right() -> float:
        words, trees, lengths = test
        with torch.no_grad():
            return (parser(words, lengths).mode == trees).flatten(1).all(1).double().mean().item()

    before = right()
    for _ in range(steps):
        words, trees, lengths = batch(32, generator)
        loss = -parser(words, lengths).log_prob(trees).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return {"before": before, "after": right()}


if __name__ == "__main__":
    print(main())
