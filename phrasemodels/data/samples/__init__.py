"""The sample corpora: a grammar generates sentences with trees and translations, entailment pairs, classes, questions, stories."""
