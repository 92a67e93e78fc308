"""Structured inference: log Z, marginals, best structures, samples and entropy of chains, trees and spans."""

from phrasemodels.structs.warming import warm as warm
