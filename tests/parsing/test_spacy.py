"""The component of spaCy."""

import spacy


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
