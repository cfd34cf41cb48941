"""Text to batches. Which file belongs to which theme:

what a corpus is     corpus, corpora, parallel, builtin, lexicon, chains, lines, scan, trees, treebank, gold
text to a store      prepare, build, cleaning, vocabulary, tokenizer, word_encoder, split_writer, store, card
a store opened       prepared, long, textset, same_text
steps                plan, module, batch, prefetcher
"""
