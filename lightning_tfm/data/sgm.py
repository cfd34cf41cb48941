"""Test sets in the layouts that WMT publishes: SGM, one <seg> a sentence, or plain lines; equal text from both."""

import re
from pathlib import Path

from lightning_tfm.errors import UserError

SEGMENT = re.compile(r"<seg\b[^>]*>(.*?)</seg\s*>", re.DOTALL | re.IGNORECASE)


def read_segments(path: Path) -> list[str]:
    """Sentences of a `.sgm` or plain file: blanks collapsed, character references left as they stand.

    That is the text that sacreBLEU makes of the same file.

    Raises UserError where the file is not UTF-8, or its segments are damaged.
    """
    raw = path.read_bytes()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}:{raw[: error.start].count(10) + 1}: not UTF-8") from error
    if is_sgm(text):
        found = SEGMENT.findall(text)
        opened = len(re.findall(r"<seg\b", text, re.IGNORECASE))
        if opened != len(found):
            raise UserError(f"{path}: {opened} segments begin, {len(found)} end: the file is damaged")
    else:
        found = text.removesuffix("\n").split("\n")
    return [" ".join(line.split()) for line in found]


def is_sgm(text: str) -> bool:
    """Whether the text begins as an SGM or XML test set does."""
    return (
        re.match(r"\s*(<\?xml[^>]*>\s*)?(<!DOCTYPE[^>]*>\s*)?<(srcset|refset|tstset|mteval)\b", text, re.I) is not None
    )
