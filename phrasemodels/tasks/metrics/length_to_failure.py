"""Length to failure: how far a predicted sequence is right (paper 003, tree transduction)."""


def length_to_failure(hypothesis: list[str], reference: list[str]) -> float:
    """Return the share of the reference, in percent, that stands before the first wrong token; 100: both are equal.

    A hypothesis that goes on after the whole reference fails at the token after it.
    """
    right = 0
    for ours, theirs in zip(hypothesis, reference, strict=False):
        if ours != theirs:
            break
        right += 1
    longer = right == len(reference) < len(hypothesis)
    return 100 * right / (len(reference) + longer)
