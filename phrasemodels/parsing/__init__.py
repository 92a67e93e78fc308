"""A trained parser for use: text to sentences, words, trees, heads, relations and tags.

Needs torch, numpy, numba and safetensors alone. `phrasemodels.Parser` is the way in. This package imports nothing, since
`words` serves without torch.
"""
