"""A trained parser for use: text to sentences, words, trees, heads, relations and tags. Needs torch, numpy, numba and
safetensors alone. `phrasemodels.Parser` is the way in; this package imports nothing, as `words` serves without torch."""
