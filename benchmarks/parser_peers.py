"""Peers for english_speed.py: networks of benepar and supar of about the English parser's size, with random weights, and Stanza.

The time that a network takes does not depend on its weights; the number of phrases and of sentences whose greedy heads are
no tree do, and are unlike those of trained weights. So supar's heads are timed both greedily and as projective trees. Peers
that are not installed are skipped: `pip install --no-deps supar benepar torch-struct`, and what they import (nltk, dill,
pathos, omegaconf). Each peer is a function from tokenised sentences to its parses, of its own Python interface.
"""

import importlib
import logging
import types
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from phrasemodels.parsing.parser import Limits, Parser, batches

Sentences = Sequence[list[str]]
Parse = Callable[[Sentences], object]
LAYERS, HEADS = 3, 6
BENEPAR = {
    "its layers and width": (3, 192),
    "six layers": (6, 264),
}  # layers, width: fewer parameters than ours, as it has no table of words
BRACKETS = str.maketrans({"(": "-LRB-", ")": "-RRB-"})  # supar reads its words from a tree in brackets
SUPAR_HIDDEN = 160  # with it a parser of 3 layers has as many parameters as ours


def peers(ours: Parser, sentences: Sentences, stanza: str = "") -> dict[str, tuple[Parse, int]]:
    """Return the peers that are installed, by name, and their parameters. stanza: a folder of models, for its pipeline."""
    made: dict[str, tuple[Parse, int]] = {}
    makers = (benepar, supar, lambda *_: stanza_pipeline(stanza), lambda *_: spacy_pipeline())
    for name, make in zip(("benepar", "supar", "Stanza", "spaCy"), makers, strict=True):
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
    """Return supar's biaffine dependency parser and its CRF constituency parser, with words, characters and LSTMs.

    As users call them, and the dependency parser's network and decoder alone, without supar's data sets and loaders.
    """
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

    def built(parser: Any, transform: Any, text: tuple[Any, Any], **sizes: int) -> Any:
        marks = {"pad_index": text[0].pad_index, "unk_index": text[0].unk_index, "char_pad_index": text[1].pad_index}
        args = importlib.import_module("supar.utils").Config(**common, **sizes, **marks, n_chars=len(text[1].vocab))
        return parser(args, parser.MODEL(**args).eval(), transform)

    text = text_fields({})
    relation = fields.Field("rels", bos="<bos>")
    relation.build(types.SimpleNamespace(rels=[list(ours.names.relations)]))
    heads = fields.Field("arcs", bos="<bos>", use_vocab=False, fn=files.CoNLL.get_arcs)
    conll = files.CoNLL(FORM=(text[0], fields.RawField("texts"), text[1]), HEAD=heads, DEPREL=relation)
    arcs = {"n_arc_mlp": 192, "n_rel_mlp": 128, "n_rels": len(relation.vocab)}
    dependency = built(parsers.BiaffineDependencyParser, conll, text, **arcs)

    ended = text_fields({"eos": "<eos>"})
    chart = fields.ChartField("charts")
    chart.build(types.SimpleNamespace(charts=[[list(ours.names.labels)]]))
    trees = files.Tree(WORD=ended, TREE=fields.RawField("trees"), CHART=chart)
    spans = {"n_span_mlp": 192, "n_label_mlp": 128, "n_labels": len(chart.vocab)}
    phrases = built(parsers.CRFConstituencyParser, trees, ended, **spans)

    def decoded(some: Sentences) -> object:
        return [
            _heads(dependency.model, [some[k] for k in rows], text)
            for rows in batches([len(x) for x in some], Limits())
        ]

    def brackets(some: Sentences) -> object:
        return phrases.predict([[word.translate(BRACKETS) for word in own] for own in some], mbr=False, **quiet)

    quiet = {"verbose": False, "batch_size": Limits().together}
    runs = {
        "supar, heads greedily": partial(dependency.predict, **quiet),
        "supar, projective trees": partial(dependency.predict, tree=True, proj=True, **quiet),
        "supar, network and trees alone": decoded,
    }
    found: dict[str, tuple[Parse, int]] = {name: (run, size(dependency.model)) for name, run in runs.items()}
    return found | {"supar, phrases": (brackets, size(phrases.model))}


@torch.no_grad()
def _heads(model: Any, some: Sentences, text: tuple[Any, Any]) -> object:
    words, letters = (field.compose(field.transform(some)) for field in text)
    mask = words.ne(model.args.pad_index)
    mask[:, 0] = False
    return model.decode(*model(words, [letters]), mask, True, True)


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


def spacy_pipeline() -> dict[str, tuple[Parse, int]]:
    """Return spaCy's small English pipeline without names and lemmas: tags and greedy heads."""
    spacy = importlib.import_module("spacy")
    try:
        pipeline = spacy.load("en_core_web_sm", exclude=["ner", "lemmatizer"])
    except OSError as error:
        raise ImportError(str(error)) from error
    networks = [pipe.model for _, pipe in pipeline.pipeline if hasattr(pipe, "model")]
    sizes = {
        id(node): node.get_param(name).size for own in networks for node in own.walk() for name in node.param_names
    }
    return {
        "spaCy small": (
            lambda some: list(pipeline.pipe([spacy.tokens.Doc(pipeline.vocab, words=own) for own in some])),
            sum(sizes.values()),
        )
    }
