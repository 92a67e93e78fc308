"""An unsupervised hidden Markov model: words without tags, by the gradient of their likelihood.
Run: python examples/unsupervised_hmm.py
"""

import torch

from phrasemodels.structs.distributions import HiddenMarkov

STATES, WORDS, LENGTH = 3, 9, 12


def main(steps: int = 80) -> dict[str, float]:
    """Return the loss (nats per word) before and after, that of the true model, and the entropy of states given the words."""
    torch.manual_seed(0)
    initial = torch.full((STATES,), 1 / STATES).log()
    transition = (0.05 + 0.85 * torch.eye(STATES).roll(1, 1)).log_softmax(-1)
    emission = (3.0 * torch.eye(STATES).repeat_interleave(3, 1)).log_softmax(-1)
    states = torch.randint(STATES, (64,))
    observed = torch.empty(64, LENGTH, dtype=torch.int64)
    for t in range(LENGTH):
        observed[:, t] = torch.multinomial(emission.exp()[states], 1)[:, 0]
        states = torch.multinomial(transition.exp()[states], 1)[:, 0]

    parameters = [(0.5 * torch.randn(x.shape)).requires_grad_() for x in (initial, transition, emission)]
    optimiser = torch.optim.Adam(parameters, 0.1)
    losses = []
    for _ in range(steps):
        model = HiddenMarkov(*(x.log_softmax(-1) for x in parameters), observed)
        loss = -model.log_partition.mean() / LENGTH
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    truth = -HiddenMarkov(initial, transition, emission, observed).log_partition.mean() / LENGTH
    return {"first": losses[0], "last": losses[-1], "truth": truth.item(), "entropy": model.entropy().mean().item()}


if __name__ == "__main__":
    print(main())
