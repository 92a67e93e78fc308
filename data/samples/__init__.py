"""The sample corpora.

Sentences with trees and translations, entailment pairs, classified sentences, questions with logical forms, stories.
"""

from phrasemodels.data.samples.entailment import SentencePair, pairs
from phrasemodels.data.samples.geography import GeographyQuestion, questions
from phrasemodels.data.samples.polarity import ClassifiedSentence, classified
from phrasemodels.data.samples.rooms import Story, stories
from phrasemodels.data.samples.sentences import Sentence, corpus

__all__ = [
    "ClassifiedSentence",
    "GeographyQuestion",
    "Sentence",
    "SentencePair",
    "Story",
    "classified",
    "corpus",
    "pairs",
    "questions",
    "stories",
]
