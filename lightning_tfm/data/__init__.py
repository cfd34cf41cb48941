"""Text to batches. Which file belongs to which theme:

what a corpus is     corpus, parallel, builtin, lexicon, chains, trees, treebank
text to a store      prepare, token_store
a store opened       dataset, fingerprint_check
steps                batch_plan, module, batch, prefetcher
"""
