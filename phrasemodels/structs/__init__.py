"""Structured inference: log Z, marginals, best structures, samples and entropy of chains, trees and spans."""
