"""Files of the dashboard's own, outside the results, which it only reads."""

import os
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path


@dataclass(frozen=True)
class OwnFiles:
    """Of one results folder."""

    cache: Path
    """what finished runs are (watch/memory.py); may be lost at any time"""
    marks: Path
    """stars and notes"""

    @classmethod
    def of(cls, root: Path) -> "OwnFiles":
        """The user's; the same for all ways to write the path `root`."""
        whole = root.resolve()
        name = f"{whole.name}-{blake2b(bytes(whole), digest_size=6).hexdigest()}"
        return cls(
            _folder("XDG_CACHE_HOME", ".cache") / f"{name}.jsonl",
            _folder("XDG_DATA_HOME", ".local/share") / f"{name}.json",
        )


def _folder(variable: str, usual: str) -> Path:
    return Path(os.environ.get(variable) or Path.home() / usual) / "lightning_tfm"
