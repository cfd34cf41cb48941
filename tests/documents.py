"""docs/generated.py, which is no package's."""

import importlib.util
from pathlib import Path
from types import ModuleType


def load_generated() -> ModuleType:
    """The module that writes the reference."""
    path = Path(__file__).parents[1] / "docs" / "generated.py"
    spec = importlib.util.spec_from_file_location("generated", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
