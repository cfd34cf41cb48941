"""Corpora that are fetched: WMT 2014 English-German and English-French, Multi30k, at the parts that papers use.

A folder holds the archives, and the texts taken out of them under `text/`; `checksums.json` says what each was when it
was first used. Reading never fetches: `lightning-tfm data prepare` does, and a run on a machine without internet needs
only the store that it made.
"""

import errno
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from lightning_tfm.atomic_io import locked, write_atomic
from lightning_tfm.config import Data
from lightning_tfm.data.corpus import Corpus
from lightning_tfm.data.parallel import read_pairs
from lightning_tfm.data.wmt.checksums import Checksums
from lightning_tfm.data.wmt.download import Remote, Say, fetch
from lightning_tfm.data.wmt.manifest import SOURCES, Part, Source
from lightning_tfm.data.wmt.unpack import extract
from lightning_tfm.errors import NotHere, UserError, nearest
from lightning_tfm.sums import sha256

MIRROR = "LIGHTNING_TFM_MIRROR"
"""environment variable: an address whose folder holds the archives under their names, asked before all others"""


def folder_of(data: Data) -> Path:
    """Where the texts of a fetched corpus are: data.folder, or data/<corpus>."""
    return Path(data.folder).expanduser() if data.folder else Path("data") / data.corpus


class OfficialCorpus(Corpus):
    """A corpus of the manifest. Split `train` is all training parts; a part's own name is a split too."""

    def __init__(self, data: Data):
        self._name, self._manifest, self._folder = data.corpus, SOURCES[data.corpus], folder_of(data)
        self.source, self.target = data.source, data.target
        for language in (data.source, data.target):
            if language not in self._manifest.languages:
                raise UserError(
                    f"data.corpus={data.corpus} has no '{language}': {nearest(language, self._manifest.languages)}"
                )
        if data.source == data.target:
            raise UserError(f"data.source and data.target are both '{data.source}'")
        self._checksums = Checksums(self._folder)

    def parts(self, split: str) -> tuple[Part, ...]:
        by_name = {part.name: (part,) for part in self._manifest.parts} | self._manifest.splits
        if split not in by_name:
            raise UserError(f"data.corpus={self._name} has no split '{split}': {nearest(split, by_name)}")
        return by_name[split]

    def lines(self, split: str) -> Iterator[tuple[str, str]]:
        for part in self.parts(split):
            count = 0
            for pair in read_pairs(*self._paths(part), self._digests_of(part)):
                count += 1
                yield pair
            if part.lines and count != part.lines:
                raise UserError(f"{self._paths(part)[0]}: {count} lines, but {part.name} has {part.lines}")

    def fingerprint(self, split: str) -> str:
        """The recorded checksums: the texts themselves need not be here."""
        return " ".join(sha256 for part in self.parts(split) for sha256 in self._digests_of(part))

    def _digests_of(self, part: Part) -> list[str]:
        digests = []
        for language in (self.source, self.target):
            name = text_name(part, language)
            record = self._checksums.find(name)
            if record is None:
                raise NotHere(f"{self._folder / name} is missing: lightning-tfm data prepare {self._name} fetches it")
            digests.append(record["sha256"])
        return digests

    @property
    def vocabulary(self) -> Path | None:
        """The vocabulary file of a corpus in pieces, unpacked."""
        part = self._manifest.vocabulary
        return None if part is None else self._folder / text_name(part, next(iter(part.members)))

    @property
    def vocabulary_sha256(self) -> str | None:
        """Its recorded checksum: the file itself need not be here."""
        part = self._manifest.vocabulary
        record = None if part is None else self._checksums.find(text_name(part, next(iter(part.members))))
        return None if record is None else str(record["sha256"])

    def name(self, split: str, language: str) -> str:
        return ", ".join(str(self._folder / text_name(part, language)) for part in self.parts(split))

    def _paths(self, part: Part) -> tuple[Path, Path]:
        for language in (self.source, self.target):
            name = text_name(part, language)
            if not self._checksums.whole(name):
                raise NotHere(f"{self._folder / name} is missing: lightning-tfm data prepare {self._name} fetches it")
        source, target = (self._folder / text_name(part, language) for language in (self.source, self.target))
        return source, target


def text_name(part: Part, language: str) -> str:
    """The file of one side of a part, relative to the corpus's folder."""
    if not part.archive:
        return part.members[language]
    return f"text/{part.name}.{language}" + (".gz" if part.members[language].endswith(".gz") else "")


def obtain(data: Data, splits: list[str], say: Say) -> None:
    """Fetch and unpack what `splits` need and lack; resumes where it was interrupted."""
    corpus, source = OfficialCorpus(data), SOURCES[data.corpus]
    try:
        for part in dict.fromkeys(part for split in splits for part in corpus.parts(split)):
            _obtain_part(part, source, folder_of(data), (data.source, data.target), say)
        if source.vocabulary is not None:
            _obtain_part(source.vocabulary, source, folder_of(data), tuple(source.vocabulary.members), say)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise UserError(
            f"{folder_of(data)}: no space left; free some space and run the same command again: it resumes"
        ) from error


def _obtain_part(part: Part, source: Source, folder: Path, languages: tuple[str, ...], say: Say) -> None:
    checksums = Checksums(folder)
    names = {language: text_name(part, language) for language in languages}
    if all(checksums.whole(name) for name in names.values()):
        return
    remotes = {remote.name: remote for remote in source.remotes}
    if not part.archive:
        for name in names.values():
            fetch(_with_mirror(remotes[name]), folder, say)
        return
    archive = fetch(_with_mirror(remotes[part.archive]), folder, say)
    with locked(folder / ".text.lock", waiting=lambda: say(f"{part.name}: another process is unpacking it; waiting")):
        missing = {language: name for language, name in names.items() if not checksums.whole(name)}
        if missing:
            _unpack(part, archive, folder, missing, say)


def _unpack(part: Part, archive: Path, folder: Path, names: dict[str, str], say: Say) -> None:
    say(f"{part.name}: unpacking")
    checksums = Checksums(folder)
    with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=folder) as temporary:
        paths = {language: Path(temporary) / f"{part.name}.{language}" for language in names}
        extract(archive, {part.members[language]: path for language, path in paths.items()})
        for language, path in paths.items():
            if part.test:
                lines = read_segments(path)
                if part.lines and len(lines) != part.lines:
                    raise UserError(
                        f"{archive}: {part.members[language]} has {len(lines)} segments, {part.name} has {part.lines}"
                        + _other(len(lines))
                    )
                write_atomic(path, "".join(f"{line}\n" for line in lines).encode())
        for language, path in paths.items():
            target = folder / names[language]
            target.parent.mkdir(parents=True, exist_ok=True)
            digest, size = sha256(path), path.stat().st_size
            os.replace(path, target)
            checksums.add(
                names[language], sha256=digest, bytes=size, archive=part.archive, member=part.members[language]
            )


def _other(lines: int) -> str:
    names = {part.lines: part.name for source in SOURCES.values() for part in source.parts if part.test}
    return f": this is {names[lines]}" if lines in names else ""


def _with_mirror(remote: Remote) -> Remote:
    mirror = os.environ.get(MIRROR)
    if not mirror:
        return remote
    return Remote(remote.name, (f"{mirror.rstrip('/')}/{remote.name}", *remote.urls), remote.md5, remote.sha256)


SEGMENT = re.compile(r"<seg\b[^>]*>(.*?)</seg\s*>", re.DOTALL | re.IGNORECASE)


def read_segments(path: Path) -> list[str]:
    """Sentences of a `.sgm` or plain file: blanks collapsed, character references left unchanged.

    That is the text that sacreBLEU makes of the same file.

    Raises UserError where the file is not UTF-8, or its segments are damaged.
    """
    raw = path.read_bytes()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}:{raw[: error.start].count(10) + 1}: not UTF-8") from error
    if is_sgm(text):
        segments = SEGMENT.findall(text)
        opened = len(re.findall(r"<seg\b", text, re.IGNORECASE))
        if opened != len(segments):
            raise UserError(f"{path}: {opened} segments begin, {len(segments)} end: the file is damaged")
    else:
        segments = text.removesuffix("\n").split("\n")
    return [" ".join(line.split()) for line in segments]


def is_sgm(text: str) -> bool:
    """Whether the text begins as an SGM or XML test set does."""
    return (
        re.match(r"\s*(<\?xml[^>]*>\s*)?(<!DOCTYPE[^>]*>\s*)?<(srcset|refset|tstset|mteval)\b", text, re.I) is not None
    )
