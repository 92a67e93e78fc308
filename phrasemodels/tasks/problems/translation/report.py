"""The figure of recurrent translators: attention to the source, one panel a model (paper 003)."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from phrasemodels.layers.ids import BEGIN, END
from phrasemodels.models.recurrent import RecurrentTranslator
from phrasemodels.tasks.prepare.tokenise import Tokeniser
from phrasemodels.tasks.prepare.vocabulary import ids_of, read_words
from phrasemodels.tasks.problems.report import Heatmap, Heatmaps, TrainedModel, check_size
from phrasemodels.tasks.problems.translation.objective import TranslationObjective
from phrasemodels.tasks.train.checkpoints import load_trained


def attention_figure(
    models: Sequence[TrainedModel], objective: TranslationObjective, tokeniser: Tokeniser, languages: tuple[str, str],
    text: str, target: str, marks: bool,
) -> Heatmaps:  # fmt: skip
    """Return the attention of several translators to a text, while they write `target`, or else the last one's answer.
    marks: the source stands between <s> and </s>.

    ValueError: the models have different vocabularies.
    """
    vocabulary = models[0].artifacts["vocabulary"]
    source = tokeniser(text, languages[0])
    tokens = tokeniser(target or models[-1].predict([text])[0], languages[1])
    if any(model.artifacts["vocabulary"].key != vocabulary.key for model in models):
        raise ValueError("models with other vocabularies cannot stand side by side; name models of one source")
    numbers = ids_of(source, read_words(vocabulary, "source"))
    ids = (
        torch.tensor([BEGIN, *numbers, END] if marks else numbers),
        torch.tensor([BEGIN, *ids_of(tokens, read_words(vocabulary, "target"))]),
    )
    loaded = {
        model.variant.partition(",")[0]: load_trained(objective, model.config, model.artifacts) for model in models
    }
    return attention_panels(loaded, ["<s>", *source, "</s>"] if marks else source, [*tokens, "</s>"], ids)


def attention_panels(
    models: Mapping[str, RecurrentTranslator], source: Sequence[str], target: Sequence[str], ids: tuple[Tensor, Tensor]
) -> Heatmaps:
    """Return a panel for each model: rows are the target's tokens, columns the source's.

    ids: of the source (n), and of the target (t) with BEGIN in front instead of its last token. ValueError: too many words.
    """
    n, t = len(ids[0]), len(ids[1])
    check_size(t, n)
    inputs = (ids[0][None], torch.tensor([n]), torch.zeros(1, 0, 2).long(), ids[1][None])
    panels = [
        Heatmap(model.eval().attention(*inputs)[0].numpy(), target, source, name) for name, model in models.items()
    ]
    return Heatmaps(panels, f"Attention to {' '.join(source)}: " + ", ".join(models))
