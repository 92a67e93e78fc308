"""The first ids of every vocabulary: padding, unknown words, and the marks of the beginning and the end of a sentence."""

PAD, UNKNOWN, BEGIN, END = range(4)
SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")  # the entries of a vocabulary with these ids
