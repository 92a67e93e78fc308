"""Networks of benepar and supar of about the size of the English parser, with random weights, and Stanza's pipeline.

The time that a network takes does not depend on its weights; the number of phrases and of sentences whose greedy heads are
no tree do, and are unlike those of trained weights. So supar's heads are timed both greedily and as projective trees. Peers
that are not installed are skipped: `pip install --no-deps supar benepar torch-struct`, and what they import (nltk, dill,
pathos, omegaconf). Each peer is a function from tokenised sentences to its parses, of its own Python interface.
"""

import importlib
import logging
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from phrasemodels.parsing.parser import Parser

Sentences = Sequence[list[str]]
Parse = Callable[[Sentences], object]
LAYERS, HEADS = 3, 6
BENEPAR = {"its layers and width": (3, 192), "its parameters": (6, 264)}  # layers, width
BRACKETS = str.maketrans({"(": "-LRB-", ")": "-RRB-"})  # supar reads its words from a tree in brackets
SUPAR_HIDDEN = 160  # with it a parser of 3 layers has as many parameters as ours


def peers(ours: Parser, sentences: Sentences, stanza: str = "") -> dict[str, tuple[Parse, int]]:
    """Return the peers that are installed, by name, and their parameters. stanza: a folder of models, for its pipeline."""
    made: dict[str, tuple[Parse, int]] = {}
    for name, make in (("benepar", benepar), ("supar", supar), ("Stanza", lambda *_: stanza_pipeline(stanza))):
        try:
            made |= make(ours, sentences)
        except ImportError as missing:
            print(f"skipped {name}: {missing}")
    return made


def size(model: torch.nn.Module) -> int:
    """Return the number of parameters."""
    return sum(p.numel() for p in model.parameters())


def benepar(ours: Parser, sentences: Sentences) -> dict[str, tuple[Parse, int]]:
    """Return benepar's chart parser with characters, its tagger, and partitioned layers of two sizes."""
    chart, form, settings = (importlib.import_module(f"benepar.{m}") for m in ("parse_chart", "char_lstm", "nkutil"))
    example = importlib.import_module("benepar").InputSentence
    labels = {label: k for k, label in enumerate(["", *ours.names.labels[1:]])}
    tags = {tag: k for k, tag in enumerate(ours.names.tags)}
    letters = form.RetokenizerForCharLSTM.build_vocab(sentences)

    def made(layers: int, width: int) -> tuple[Parse, int]:
        zero = dict.fromkeys(
            "morpho_emb_dropout relu_dropout residual_dropout attention_dropout char_lstm_input_dropout".split(), 0.0
        )
        sizes = {"d_model": width, "d_kv": 32, "d_ff": 512, "num_heads": HEADS, "num_layers": layers, "d_char_emb": 64}
        hidden = {"d_label_hidden": 128, "d_tag_hidden": 128, "tag_loss_scale": 1.0, "encoder_max_len": 512}
        flags = {"use_chars_lstm": True, "use_pretrained": False, "use_encoder": True, "predict_tags": True}
        values = settings.HParams(**zero, **sizes, **hidden, **flags, force_root_constituent=False)
        model = chart.ChartParser(tags, labels, letters, values).eval()
        return lambda some: model.parse(
            [example(words=own, escaped_words=own) for own in some], subbatch_max_tokens=2000
        ), size(model)

    return {f"benepar, {name}": made(*sizes) for name, sizes in BENEPAR.items()}


def supar(ours: Parser, sentences: Sentences) -> dict[str, tuple[Parse, int]]:
    """Return supar's biaffine dependency parser and its CRF constituency parser, with words, characters and LSTMs."""
    parsers, fields, files = (
        importlib.import_module(f"supar.{m}") for m in ("parsers", "utils.field", "utils.transform")
    )
    logging.getLogger("supar").setLevel(logging.WARNING)
    words = types.SimpleNamespace(words=sentences, chars=sentences)
    common = {"n_embed": 96, "n_pretrained": 96, "n_feat_embed": 96, "n_char_embed": 64, "n_char_hidden": 96}
    common |= {"n_lstm_hidden": SUPAR_HIDDEN, "n_lstm_layers": LAYERS, "n_words": len(ours.ids.ids["words"])}

    def text_fields(end: Mapping[str, str]) -> tuple[Any, Any]:
        marks = {"pad": "<pad>", "unk": "<unk>", "bos": "<bos>", **end}
        own = fields.Field("words", lower=True, **marks), fields.SubwordField("chars", fix_len=20, **marks)
        for field in own:
            field.build(words)
        return own

    def built(parser: Any, transform: Any, word: Any, letter: Any, **sizes: int) -> Any:
        marks = {"pad_index": word.pad_index, "unk_index": word.unk_index, "char_pad_index": letter.pad_index}
        args = importlib.import_module("supar.utils").Config(**common, **sizes, **marks, n_chars=len(letter.vocab))
        return parser(args, parser.MODEL(**args).eval(), transform)

    word, letter = text_fields({})
    relation = fields.Field("rels", bos="<bos>")
    relation.build(types.SimpleNamespace(rels=[list(ours.names.relations)]))
    heads = fields.Field("arcs", bos="<bos>", use_vocab=False, fn=files.CoNLL.get_arcs)
    conll = files.CoNLL(FORM=(word, fields.RawField("texts"), letter), HEAD=heads, DEPREL=relation)
    arcs = {"n_arc_mlp": 192, "n_rel_mlp": 128, "n_rels": len(relation.vocab)}
    dependency = built(parsers.BiaffineDependencyParser, conll, word, letter, **arcs)

    word, letter = text_fields({"eos": "<eos>"})
    chart = fields.ChartField("charts")
    chart.build(types.SimpleNamespace(charts=[[list(ours.names.labels)]]))
    trees = files.Tree(WORD=(word, letter), TREE=fields.RawField("trees"), CHART=chart)
    spans = {"n_span_mlp": 192, "n_label_mlp": 128, "n_labels": len(chart.vocab)}
    phrases = built(parsers.CRFConstituencyParser, trees, word, letter, **spans)
    quiet = {"verbose": False, "batch_size": 2000}
    return {
        "supar, heads greedily": (lambda some: dependency.predict(some, **quiet), size(dependency.model)),
        "supar, projective trees": (
            lambda some: dependency.predict(some, tree=True, proj=True, **quiet),
            size(dependency.model),
        ),
        "supar, phrases": (
            lambda some: phrases.predict(
                [[word.translate(BRACKETS) for word in own] for own in some], mbr=False, **quiet
            ),
            size(phrases.model),
        ),
    }


def stanza_pipeline(models: str) -> dict[str, tuple[Parse, int]]:
    """Return Stanza's tagger, lemmatiser, dependency and constituency parsers from a folder of models; {} without one."""
    if not models:
        return {}
    library = importlib.import_module("stanza")
    pipeline = library.Pipeline(
        "en",
        dir=models,
        processors="tokenize,pos,lemma,depparse,constituency",
        tokenize_pretokenized=True,
        download_method=None,
        use_gpu=False,
        verbose=False,
    )
    parts = [pipeline.processors[name].trainer.model for name in ("pos", "depparse")]
    parts.append(pipeline.processors["constituency"]._model)
    return {"Stanza": (lambda some: pipeline([list(own) for own in some]), sum(map(size, parts)))}
