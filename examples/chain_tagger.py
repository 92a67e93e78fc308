"""A chain tagger: a CRF over words learns tags whose order matters. Run: python examples/chain_tagger.py

Data are drawn from a hidden Markov model with ambiguous words, so that a tagger without transitions must err.
"""

import torch

from phrasemodels.structs.distributions import LinearChain

TAGS, WORDS, LENGTH = 4, 12, 8


def corpus(sentences: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return words and tags (sentences, LENGTH), and lengths: tag t is mostly followed by t + 1, and shares its words with it."""
    tags = torch.zeros(sentences, LENGTH, dtype=torch.int64)
    tags[:, 0] = torch.randint(TAGS, (sentences,), generator=generator)
    for t in range(1, LENGTH):
        stays = torch.rand(sentences, generator=generator) < 0.1
        tags[:, t] = torch.where(stays, tags[:, t - 1], (tags[:, t - 1] + 1) % TAGS)
    words = (tags * 3 + torch.randint(6, tags.shape, generator=generator)) % WORDS
    return words, tags, torch.randint(2, LENGTH + 1, (sentences,), generator=generator)


def main(steps: int = 60) -> dict[str, float]:
    """Train by the likelihood of tags; return the accuracy of the best sequences, and of tags by their words alone."""
    generator = torch.Generator().manual_seed(0)
    words, tags, lengths = corpus(64, generator)
    scores = torch.zeros(WORDS, TAGS, requires_grad=True)
    transitions = torch.zeros(TAGS, TAGS, requires_grad=True)
    optimiser = torch.optim.Adam([scores, transitions], 0.1)
    inside = torch.arange(LENGTH) < lengths[:, None]
    gold = tags.masked_fill(~inside, -1)
    for _ in range(steps):
        loss = -LinearChain(scores[words], transitions, lengths).log_prob(gold).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    words, tags, lengths = corpus(64, generator)
    inside = torch.arange(LENGTH) < lengths[:, None]
    with torch.no_grad():
        best = LinearChain(scores[words], transitions, lengths).mode
        alone = scores[words].argmax(-1)
    return {name: (x == tags)[inside].double().mean().item() for name, x in (("chain", best), ("words alone", alone))}


if __name__ == "__main__":
    print(main())
