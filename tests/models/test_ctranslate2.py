"""A plain Transformer that CTranslate2 runs gives each word the same probability, and decodes to the same words."""

from pathlib import Path

import pytest
import torch
from running import trained

from phrasemodels.data.store.store import Store
from phrasemodels.encoders.hypernode import HypernodeEncoderConfig
from phrasemodels.encoders.transformer import TransformerEncoderConfig
from phrasemodels.flows.results.models import as_ctranslate2, load
from phrasemodels.inference.export import write_ctranslate2
from phrasemodels.layers.blocks import BEGIN, END, PAD, SPECIAL, AddNorm, PreNorm, Replace
from phrasemodels.models.translation import BeamSearch, TranslationConfig, beam_search

WORDS = [*SPECIAL, *(f"w{i}" for i in range(20))]
NO_PHRASES = torch.empty(1, 0, 1, dtype=torch.long)


def plain(style=AddNorm, shared=False, scaled=True) -> TranslationConfig:
    encoder = TransformerEncoderConfig(d=16, heads=2, layers=2, d_ff=32, dropout=0.0, residual=style)
    size = len(WORDS)
    return TranslationConfig(
        encoder, size, size, 2, 24, residual=style, shared=shared, output_bias=not shared, scaled=scaled
    )


@pytest.mark.parametrize("marks", [True, False])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(("style", "scaled"), [(AddNorm, True), (AddNorm, False), (PreNorm, True)])
def test_probabilities_and_greedy_answers_are_equal(style, scaled, shared, marks, tmp_path: Path) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2", reason="pip install 'phrasemodels[ctranslate2]'")
    torch.manual_seed(0)
    config = plain(style, shared, scaled)
    model = config.build().eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.4)
    other = ctranslate2.Translator(
        str(write_ctranslate2(model, config, WORDS, WORDS, marks, tmp_path)), compute_type="float32"
    )
    sources = [torch.randint(4, len(WORDS), (n,)).tolist() for n in (1, 3, 7, 12)]
    text = [[WORDS[i] for i in source] for source in sources]
    scored = other.score_batch(text, text[::-1])
    answers = other.translate_batch(
        text, beam_size=1, max_decoding_length=9, disable_unk=True, suppress_sequences=[[WORDS[PAD]], [WORDS[BEGIN]]]
    )
    search = BeamSearch(beam=1, growth=0.0, extra=9)
    for source, target, scores, answer in zip(sources, sources[::-1], scored, answers, strict=True):
        ids = torch.tensor([[BEGIN, *source, END] if marks else source])
        inputs = ids, torch.tensor([ids.shape[1]]), NO_PHRASES
        own = model(*inputs, torch.tensor([[BEGIN, *target]])).log_softmax(-1)[0]
        gold = torch.tensor([*target, END])
        torch.testing.assert_close(
            torch.tensor(scores.log_probs), own.gather(1, gold[:, None])[:, 0], rtol=0, atol=2e-5
        )
        ((written, _),) = beam_search(model, *inputs, search)
        found = [WORDS[i] for i in written]
        # our search goes on after </s> where what follows is more probable for its length
        assert answer.hypotheses[0] == found[: len(answer.hypotheses[0])]


def test_what_is_not_a_plain_transformer_is_refused(tmp_path: Path) -> None:
    phrases = TranslationConfig(HypernodeEncoderConfig(d=16, heads=2, layers=1, d_ff=32), 9, 9)
    for config, said in ((phrases, "not HypernodeEncoderConfig"), (plain(Replace), "not Replace"), (3, "not int")):
        with pytest.raises(ValueError, match=said):
            write_ctranslate2(None, config, WORDS, WORDS, True, tmp_path)


def test_a_trained_model_is_exported_with_its_vocabularies(tmp_path: Path) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2", reason="pip install 'phrasemodels[ctranslate2]'")
    store = Store(tmp_path / "store").open()
    model = trained(store, "000/table1/sample/transformer")
    folder = model.export(tmp_path / "exported", [as_ctranslate2])
    translator = ctranslate2.Translator(str(folder / "ctranslate2"), compute_type="float32")
    (own,) = load(folder).predict(["the red house sleeps"])
    (found,) = translator.translate_batch([["the", "red", "house", "sleeps"]], max_decoding_length=9, disable_unk=True)
    vocabulary = set((folder / "vocabulary" / "target.txt").read_text().split("\n"))
    assert own and found.hypotheses[0] and set(found.hypotheses[0]) <= vocabulary
    with pytest.raises(ValueError, match="not HypernodeEncoderConfig"):
        trained(store, "000/table1/sample/phrase-k2").export(tmp_path / "phrases", [as_ctranslate2])
    assert not (tmp_path / "phrases").exists()
