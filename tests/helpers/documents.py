"""The modules in docs/, which is no package."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def load(name: str) -> ModuleType:
    """docs/<name>.py."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parents[2] / "docs" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look for annotations
    spec.loader.exec_module(module)
    return module
