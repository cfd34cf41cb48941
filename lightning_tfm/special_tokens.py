"""Ids of the special pieces, in every vocabulary: what the text and the model agree on."""

PAD, UNK, BOS, EOS = 0, 1, 2, 3
