"""The documents: where they are, what stands in them, and the modules in docs/, which is no package."""

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
PAGES = [
    path
    for path in sorted((ROOT / "docs").rglob("*.md"))
    if path.parent.name not in ("also", "preregistration")
    and (path.parent.name != "reference" or path.name == "index.md")
]
"""what people wrote and write; pre-registrations keep the words of their day, docs/generated.py writes the others"""


def load(name: str) -> ModuleType:
    """docs/<name>.py."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look for annotations
    spec.loader.exec_module(module)
    return module


DOCUMENTS = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")), *PAGES]
}
"""name -> text"""


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """Language and content of each fenced block."""
    yield from re.findall(r"^```([\w{}-]*)[^\n]*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def commands(text: str) -> list[str]:
    """The commands of the shell blocks, comments away, continued lines joined."""
    shell = [re.sub(r"\\\n\s*", "", content) for language, content in blocks(text) if language == "sh"]
    lines = [line for content in shell for line in content.splitlines()]
    return [plain for line in lines if (plain := re.sub(r"(^|\s+)#\s.*", "", line).strip())]


def inline(text: str) -> list[str]:
    """Code within a paragraph, each on one line."""
    outside = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", outside)]
