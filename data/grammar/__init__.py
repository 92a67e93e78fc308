"""The sample corpora.

Sentences with trees and translations, entailment pairs, classified sentences, questions with logical forms, stories.
"""

from data.grammar.entailment import SentencePair, pairs
from data.grammar.geography import GeographyQuestion, questions
from data.grammar.polarity import ClassifiedSentence, classified
from data.grammar.rooms import Story, stories
from data.grammar.sentences import Sentence, corpus

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
