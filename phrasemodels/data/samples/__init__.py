"""The sample corpora. A grammar generates sentences with trees and translations, entailment pairs, classes, questions, stories."""
