"""Answers of exported models with torch alone.

Text becomes tokens and ids, phrases and levels. Predictions become text. `phrasemodels.load(folder).predict([...])`
gives the answers of `phrasemodels predict` without the pipeline.
"""
