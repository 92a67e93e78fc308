"""Translation: from parallel sentences to BLEU."""
