"""Structured inference: chains, trees and spans."""
