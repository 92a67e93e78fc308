"""Figure 6 of paper 002: phrases of a test set as n-gram heads see them, and the nearest to some of them."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from phrasemodels.data.download.manifest import closest
from phrasemodels.flows.report.attention_plots import neighbours

NEAREST, CENTRES = 30, 2


def gram_figure(grams: pa.Table, phrases: Sequence[str] = ()) -> str:
    """SVG of a table of `gram_vectors`: two principal components, and the 30 nearest by cosine to each of the phrases,
    or to the most frequent ones. ValueError: too few vectors, or a phrase that is not among them."""
    if len(grams) <= NEAREST:
        raise ValueError(f"{len(grams)} phrases: the {NEAREST} nearest can only be drawn among more")
    known = grams["phrase"].to_pylist()
    counts = Counter(known)
    counted = sorted(counts, key=lambda phrase: (-counts[phrase], phrase))
    for phrase in phrases:
        if phrase not in known:
            raise ValueError(f"no phrase {phrase!r} of the test set; {closest(phrase, known)}")
    centres = [known.index(phrase) for phrase in phrases or counted[:CENTRES]]
    places = zip(grams["row"].to_pylist(), grams["last"].to_pylist(), known, strict=True)
    names = [f"({row}, {last}) {phrase}" for row, last, phrase in places]
    return neighbours(np.array(grams["vector"].to_pylist()), names, centres, NEAREST)
