"""Tiny encoders of the transformers library with random weights and a tokeniser of letters; skipped where it is missing."""

from pathlib import Path

import pytest
import torch

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    *"abcdefghijklmnopqrstuvwxyz'.?",
    *(f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz'"),
    *'()"',
]


def save(kind: str, folder: Path, **other: str | None) -> str:
    """Save a tiny encoder and its tokeniser of single letters, and return the folder. other: special pieces."""
    tokeniser = tokenizers.Tokenizer(
        tokenizers.models.WordPiece({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    tokeniser.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    named = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokeniser, **named | other).save_pretrained(folder)
    torch.manual_seed(0)
    small = {"vocab_size": len(WORDS), "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    if kind == "xlnet":
        config = transformers.XLNetConfig(vocab_size=len(WORDS), d_model=16, n_layer=2, n_head=2, d_inner=32)
        transformers.XLNetModel(config).save_pretrained(folder)
    elif kind == "modernbert":
        special = dict(zip(("pad_token_id", "cls_token_id", "sep_token_id"), (0, 2, 3), strict=True))
        config = transformers.ModernBertConfig(**small, **special, bos_token_id=2, eos_token_id=3, intermediate_size=32)
        transformers.ModernBertModel(config).save_pretrained(folder)
    else:
        transformers.BertModel(transformers.BertConfig(**small, intermediate_size=32)).save_pretrained(folder)
    return str(folder)
