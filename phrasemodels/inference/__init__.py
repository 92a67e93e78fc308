"""Answers of exported models with torch alone: text to tokens and ids, phrases and levels, and back from predictions to text.

`phrasemodels.load(folder).predict([...])` gives the answers of `phrasemodels predict`, without the pipeline.
"""
