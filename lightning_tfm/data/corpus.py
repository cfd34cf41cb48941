"""What a corpus is."""

from abc import ABC, abstractmethod
from collections.abc import Iterator


class Corpus(ABC):
    """Parallel text, or only text. Attributes: `source` and `target`, the language codes; where `source` is empty, so
    is that side of every pair, and `target` is the suffix of its files."""

    source: str
    target: str

    @abstractmethod
    def lines(self, split: str) -> Iterator[tuple[str, str]]:
        """Raw pairs of a split, in order, without line ends.

        Bytes that are not UTF-8 come as surrogates (`errors="surrogateescape"`); `prepare` reports them.
        """

    @abstractmethod
    def fingerprint(self, split: str) -> str:
        """Text that changes whenever `lines(split)` would: cheap, as it is needed at every start.

        The source of your own class is added by `corpus_fingerprint`; name what is outside: files, a seed.
        """

    @abstractmethod
    def name(self, split: str, language: str) -> str:
        """What errors call one side of a split, e.g. the path of its file."""
