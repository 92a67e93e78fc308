"""The component of spaCy."""

import pickle

import pytest
import spacy
import torch
from spacy.language import Language
from spacy.tokens import Doc


def test_a_pipeline_of_spacy_has_phrases_heads_tags_and_sentences() -> None:
    from spacy import displacy

    import phrasemodels.spacy_component  # noqa: F401

    nlp = spacy.blank("en")
    nlp.add_pipe("phrasemodels")
    doc = nlp("The old man doesn't see a dog.\n\nIt sleeps (here).")
    first, second = doc.sents
    assert first.text.strip() == "The old man doesn't see a dog." and second[0].text == "It"
    assert [t.head.text for t in first[:3]] == ["man", "man", "see"] and first.root.text == "see"
    assert doc[2].dep_ == "nsubj" and doc[2].tag_ == "NN" and doc[2].pos_ == "NOUN" and doc[5].dep_ == "ROOT"
    assert doc[3].lemma_ == "do" and doc[3].morph.get("Tense") == ["Pres"] and not doc[8].morph
    (noun,) = [own for own in doc._.phrases if own.label_ == "NP" and own.start == 0]
    assert noun.text == "The old man" and noun._.labels == ["NP"] and noun._.parent.label_ in ("S", "ROOT")
    assert noun._.parse_string == "(NP (DT The) (JJ old) (NN man))" and noun in noun._.parent._.children
    assert second._.parse_string.startswith("(ROOT") and "-LRB-" in second._.parse_string
    assert len(displacy.parse_deps(doc)["arcs"]) > 8
    again = spacy.tokens.Doc(nlp.vocab).from_bytes(doc.to_bytes())
    assert [own.text for own in again._.phrases] == [own.text for own in doc._.phrases]
    given = spacy.blank("en")
    given.add_pipe("sentencizer")
    given.add_pipe("phrasemodels")
    docs = list(given.pipe(["It rains. it pours.", "", "  ", "Yes"]))
    assert [len(list(one.sents)) for one in docs] == [2, 0, 1, 1] and docs[1]._.phrases == []
    assert [[str(chunk) for chunk in one.noun_chunks] for one in docs[1:3]] == [[], []]


@pytest.fixture
def english() -> Language:
    nlp = spacy.blank("en")
    nlp.add_pipe("phrasemodels")
    return nlp


@pytest.mark.parametrize(
    ("text", "chunks"),
    [
        ("The house of the rich man was sold by a young banker.", "The house/the rich man/a young banker"),
        ("The dog chased the black cat. He is not a teacher.", "The dog/the black cat/He/a teacher"),
        ("Barack Obama gave his wife's friend a big, red apple.", "Barack Obama/his wife's friend/a big, red apple"),
        ("There is a cat which we saw in New York City, of course.", "a cat/which/we/New York City"),
    ],
)
def test_noun_chunks_are_base_noun_phrases(text: str, chunks: str, english: Language) -> None:
    doc = pickle.loads(pickle.dumps(english(text)))
    for own in (doc, spacy.tokens.Doc(english.vocab).from_bytes(doc.to_bytes()), doc[:].as_doc()):
        assert "/".join(chunk.text for chunk in own.noun_chunks) == chunks
    assert [chunk for one in doc.sents for chunk in one.noun_chunks] == list(doc.noun_chunks)
    with pytest.raises(ValueError, match="E029"):
        list(english.make_doc(text).noun_chunks)


def test_phrases_follow_the_tokens(english: Language) -> None:
    doc, other = english("My old dog saw the black cat there.  "), english("It rained.")
    whole, seen = [own.text for own in doc._.phrases], next(iter(doc.sents))._.parse_string
    both = Doc.from_docs([other, doc])
    assert [one._.parse_string for one in both.sents][1] == seen
    last = list(both.sents)[1].as_doc(copy_user_data=True)
    assert [own.text for own in last._.phrases][2:] == whole[2:] and next(iter(last.sents))._.parse_string == seen
    with pytest.raises(ValueError, match="copy_user_data=True"):
        print(list(both.sents)[1].as_doc()._.phrases)
    with doc.retokenize() as tokens:
        tokens.split(doc[1], ["o", "ld"], heads=[(doc[1], 1), doc[2]])
    assert [own.text for own in doc._.phrases] == whole
    with doc.retokenize() as tokens:
        tokens.merge(doc[5:8])
        tokens.merge(doc[2:4])
    assert doc[4].text == "the black cat" and doc[4:5]._.labels == ["NP"] and "My old dog" in whole
    assert "(NN the\u2423black\u2423cat)" in next(iter(doc.sents))._.parse_string
    english.add_pipe("merge_noun_chunks")
    merged = english("The red house stood there. My old dog barked loudly at the cat.")
    assert [token.text for token in merged][-3:] == ["at", "the cat", "."]
    assert [own.text for own in merged._.phrases if own.label_ == "NP"] == ["The red house", "My old dog", "the cat"]


def test_forked_processes_find_sentences_in_one_thread(english: Language) -> None:
    """OpenMP's threads are gone after a fork: `n_process=2` would wait for them for ever."""
    found, before = [], torch.get_num_threads()
    splitter = english.get_pipe("phrasemodels").parser.split  # type: ignore[attr-defined]
    splitter.model.register_forward_pre_hook(lambda *_: found.append(torch.get_num_threads()))
    torch.set_num_threads(2)
    try:
        english("It rained.")
    finally:
        torch.set_num_threads(before)
    assert found == [1]
