"""A text to score that is not in a run's store: encoded in memory with the run's tokenizer."""

import hashlib
from dataclasses import replace

from lightning_tfm.config import Data
from lightning_tfm.data.sources.files import make_corpus
from lightning_tfm.data.text.cleaning import flaw
from lightning_tfm.data.text.tokenizer import PieceTokenizer, Tokenizer
from lightning_tfm.data.token_store import EncodedText
from lightning_tfm.errors import UserError
from lightning_tfm.registry import CORPORA


class TextSet:
    """As `dataset.Prepared`, with the one split `name`: a split of the run's corpus, or CORPUS:SPLIT of another.

    Raises UserError where it is not there or has broken lines.
    """

    def __init__(self, name: str, data: Data, tokenizer: Tokenizer | PieceTokenizer):
        self.name, self.tokenizer = name, tokenizer
        corpus_name, _, split = name.rpartition(":")
        if corpus_name and corpus_name != data.corpus:
            if corpus_name not in CORPORA:
                raise UserError(f"--set {name}: no corpus '{corpus_name}'; valid: {', '.join(sorted(CORPORA))}")
            if CORPORA[corpus_name].source != data.translated:
                lacks = "no source, and the run translates" if data.translated else "a source, and the run takes none"
                raise UserError(f"--set {name}: {corpus_name} has {lacks}")
            data = replace(data, corpus=corpus_name, folder="")
        corpus = make_corpus(data)
        pairs = list(corpus.lines(split))
        for number, pair in enumerate(pairs, 1):
            if wrong := flaw(pair, bool(corpus.source)):
                rule, side = wrong
                path = corpus.name(split, (corpus.source, corpus.target)[side])
                raise UserError(f"{path}:{number}: broken line ({rule}): correct it: held-out pairs are never dropped")
        sources, targets = [tokenizer.encode([pair[side] for pair in pairs]) for side in (0, 1)]
        plain = [(tokenizer.plain(source), tokenizer.plain(target)) for source, target in pairs]
        self._text = EncodedText(sources, targets, plain)
        text = hashlib.sha256("".join(f"{source}\n{target}\n" for source, target in pairs).encode()).hexdigest()
        self._fingerprint = hashlib.sha256(f"{text} {tokenizer.fingerprint}".encode()).hexdigest()

    def split(self, split: str) -> EncodedText:
        return self._text

    def fingerprint(self, split: str) -> str:
        """The same as if the text were in the run's store."""
        return self._fingerprint
