"""The modules of a user's own that a module reaches by its imports: what they hold decides what its classes compute.

They are read from the source, those inside functions and below `if` too, and found without being imported. A module
that is named only while the program runs (importlib.import_module) is not seen.
"""

import ast
import importlib.util
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib.machinery import ModuleSpec, PathFinder
from itertools import accumulate
from pathlib import Path

from lightning_tfm.errors import UserError

LIBRARIES = ("builtins", "abc", "typing", "torch", "lightning", "lightning_tfm")
"""packages whose version is recorded: their source is no user's"""
_STANDARD = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")}


def reached(names: Iterable[str]) -> dict[str, bytes]:
    """Module -> its file, for those of the user's own that the imported modules `names` import, and so on; in order.

    Without `names` themselves. Importing a.b.c runs a and a.b, which count too; the packages around `names` count
    where an import names them. Raises UserError for a file that is no Python.
    """
    start = {name: sys.modules[name] for name in names}
    around = {whole for name in start for whole in _wholes(name)} - start.keys()
    files = {name: Path(module.__file__ or "") for name, module in start.items() if getattr(module, "__file__", None)}
    todo = [(name, file, start[name].__package__ or "") for name, file in files.items() if _is_users(file)]
    seen, found = set(start), {}
    while todo:
        name, file, package = todo.pop()
        found[name] = file.read_bytes()
        for target in _imports(file, found[name], package) if file.suffix == ".py" else ():
            for whole in _wholes(target):
                if whole in seen or (whole in around and whole != target):
                    continue
                seen.add(whole)
                spec = _find(whole)
                if spec is not None and spec.has_location and _is_users(Path(spec.origin or "")):
                    inside = whole if spec.submodule_search_locations is not None else whole.rpartition(".")[0]
                    todo.append((whole, Path(spec.origin or ""), inside))
    return {name: found[name] for name in sorted(found.keys() - start.keys())}


def _wholes(name: str) -> list[str]:
    """a, a.b, a.b.c of a.b.c."""
    return list(accumulate(name.split("."), "{}.{}".format))


def _find(name: str) -> ModuleSpec | None:
    """Where `name` would be imported from; None for what is no module. Imports nothing."""
    top, *wholes = _wholes(name)
    if top in LIBRARIES:
        return None
    loaded = sys.modules.get(top)
    spec = importlib.util.find_spec(top) if loaded is None else loaded.__spec__
    for whole in wholes:
        if spec is None or spec.submodule_search_locations is None:
            return None
        spec = PathFinder.find_spec(whole, spec.submodule_search_locations)
    return spec


def _is_users(file: Path) -> bool:
    """Whether a module's file is neither Python's own nor installed."""
    installed = {"site-packages", "dist-packages"} & set(file.parts)
    return not installed and not any(file.resolve().is_relative_to(folder) for folder in _STANDARD)


def _imports(file: Path, source: bytes, package: str) -> frozenset[str]:
    try:
        return _named(source, package)
    except (SyntaxError, ValueError) as error:
        raise UserError(f"{file}: a class of your own imports it, and it is no Python ({error})") from error


@lru_cache(1024)
def _named(source: bytes, package: str) -> frozenset[str]:
    """What the imports of a module inside `package` name: modules, and what they take from them."""
    return frozenset(name for node in ast.walk(ast.parse(source)) for name in _of(node, package) if name)


def _of(node: ast.AST, package: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        yield from (alias.name.partition(".")[0] for alias in node.names if not alias.asname)  # the name that it binds
    elif isinstance(node, ast.ImportFrom):
        parts = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
        base = ".".join([*parts, *([node.module] if node.module else [])])
        yield base
        yield from (f"{base}.{alias.name}" for alias in node.names if alias.name != "*")
