"""Decoding by `beam_search`, and by CTranslate2 with the same weights: `python benchmarks/decoding.py`. Ratios of CPU time.

Weights are random, so that no hypothesis ends before the limit of 30 tokens and both decode as many. One thread, float32.
"""

import tempfile
from functools import partial
from pathlib import Path

import torch
from structs import Run, compare

from phrasemodels.encoders.transformer import TransformerEncoderConfig
from phrasemodels.inference.export import write_ctranslate2
from phrasemodels.layers.blocks import BEGIN, END, PAD, SPECIAL
from phrasemodels.models.translation import BeamSearch, TranslationConfig, beam_search

LIMIT, WORDS = 30, 4000
SIZES = {"laptop": (192, 4, 3, 768), "paper": (512, 8, 6, 2048)}  # width, heads, layers, feed-forward


def main() -> None:
    import ctranslate2

    torch.manual_seed(0)
    words = [*SPECIAL, *(f"w{i}" for i in range(WORDS - len(SPECIAL)))]
    for name, (d, heads, layers, d_ff) in SIZES.items():
        encoder = TransformerEncoderConfig(d=d, heads=heads, layers=layers, d_ff=d_ff, dropout=0.0)
        config = TranslationConfig(encoder, WORDS, WORDS, layers, d_ff)
        model = config.build().eval()
        with tempfile.TemporaryDirectory() as folder:
            write_ctranslate2(model, config, words, words, True, Path(folder))
            other = ctranslate2.Translator(folder, compute_type="float32", intra_threads=1)
        for B, beam in ((1, 1), (1, 5), (32, 1), (32, 5)):
            ids = torch.randint(4, WORDS, (B, 15))
            source = torch.cat([torch.full((B, 1), BEGIN), ids, torch.full((B, 1), END)], 1)
            search = BeamSearch(beam=beam, growth=0.0, extra=LIMIT)
            given = source, torch.full((B,), 17), torch.empty(B, 0, 1, dtype=torch.long)
            tokens = [[words[i] for i in row] for row in ids.tolist()]
            runs: dict[str, Run] = {
                "ours": partial(beam_search, model, *given, search),
                "CTranslate2": partial(
                    other.translate_batch, tokens, beam_size=beam, max_decoding_length=LIMIT, disable_unk=True,
                    suppress_sequences=[[words[PAD]], [words[BEGIN]]],
                ),
            }  # fmt: skip
            compare(f"{name}, {B} sentences, beam {beam}", runs, 1, 6.0)


if __name__ == "__main__":
    main()
