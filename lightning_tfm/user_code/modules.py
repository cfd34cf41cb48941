"""The user's modules: how a class of theirs is imported, and what its module reaches by its own imports, whose content
decides what it computes.

Those are read from the source, those inside functions and below `if` too, and found without being imported. A module
whose name is made only while the program runs is not seen; the record says where an environment variable is read.
"""

import ast
import hashlib
import importlib.util
import inspect
import re
import sys
import sysconfig
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import packages_distributions
from itertools import accumulate
from pathlib import Path
from traceback import walk_tb
from typing import Any, TypeVar

from lightning_tfm.errors import UserError
from lightning_tfm.user_code.identity import Reader, Slice
from lightning_tfm.user_code.statements import Statement, imported_names, statements

T = TypeVar("T")
LIBRARIES = ("builtins", "abc", "typing", "torch", "lightning", "lightning_tfm")
"""packages whose version is recorded: their source is not the user's"""
WIDEST = 80
"""characters of an import path that a message shows"""
READS = re.compile(r"(\w+\.)?(getenv|environ(\.(get|pop|setdefault))?)")
_STANDARD = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")}


def see_working_directory() -> None:
    """Let the user's modules be imported from the working directory, as `python -m` does and a script does not."""
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))


def class_at(path: str, what: str) -> Any:
    """What an import path, module.Class or module:Class, names. Raises UserError, in which `what` comes before it."""
    see_working_directory()
    module, _, attribute = path.replace(":", ".").rpartition(".")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError, RecursionError, SyntaxError) as error:
        raise UserError(f"{what}'{path[:WIDEST]}': cannot import it ({error})") from error
    except Exception as error:  # whatever a user's module may raise
        raise UserError(f"{what}'{path[:WIDEST]}': cannot import it ({with_line(error, path)})") from error


def with_line(error: Exception, *paths: str) -> str:
    """An error of user-defined classes at these `paths`, with the user's line that it comes from, else the innermost:
    `NameError: name 'math' is not defined (mine.py:12)`."""
    tops = {path.partition(".")[0] for path in paths}
    frames = [(frame.f_globals.get("__name__", ""), frame.f_code, n) for frame, n in walk_tb(error.__traceback__)]
    of_user = [frame for frame in frames if _is_users(frame[0], Path(frame[1].co_filename), tops)]
    _, code, line = (of_user or frames)[-1]
    return f"{type(error).__name__}: {error} ({code.co_filename}:{line})"


def reachable_sources(names: Iterable[str]) -> dict[str, bytes]:
    """Module -> its file, for the user's modules that the imported modules `names` import, and so on; in order.

    Without `names` themselves. Importing a.b.c runs a and a.b, which count too; the packages around `names` count
    unless they are empty. Raises UserError for a file that is not Python.
    """
    start = {name: sys.modules[name] for name in names}
    wholes = {whole for name in start for whole in _wholes(name)}
    tops = {name.partition(".")[0] for name in start}
    files = {name: getattr(sys.modules.get(name), "__file__", None) for name in sorted(wholes)}
    todo = [(name, Path(file), sys.modules[name].__package__ or "") for name, file in files.items() if file]
    empty = {name for name, file, _ in todo if name not in start and not file.read_bytes().strip()}
    seen, by_module = set(files), {}
    while todo:
        name, file, package = todo.pop()
        by_module[name] = file.read_bytes()
        for target in _parsed(imported_names, file, by_module[name], package) if file.suffix == ".py" else ():
            for whole in _wholes(target):
                empty -= {target}
                if whole not in seen:
                    seen.add(whole)
                    if place := _place(whole, tops):
                        todo.append((whole, *place))
    return {name: by_module[name] for name in sorted(by_module.keys() - start.keys() - empty)}


def code_digest(names: Collection[tuple[str, str]]) -> tuple[str, list[str]]:
    """sha256 of the code that these names, (imported module, name in it), compute by (user_code/identity.py), and the
    modules of which all counts since their source does not say what is used.

    Raises UserError for a module without a source file, and for a file that is not Python.
    """
    for module in dict(names):
        if not getattr(sys.modules[module], "__file__", None):
            raise UserError(f"the module {module} has no source file to identify it by")
    code = Slice(_reader({module for module, _ in names}))
    return code.digest(sorted(names)), sorted(code.unread)


def _reader(start: Collection[str]) -> Reader:
    tops = {name.partition(".")[0] for name in start}

    @cache
    def read(name: str) -> tuple[Statement, ...] | bytes | None:
        place: tuple[Path, str] | None = None
        if name in start:
            place = Path(sys.modules[name].__file__ or ""), sys.modules[name].__package__ or ""
        elif name:
            place = _place(name, tops)
        if place is None:
            return None
        file, package = place
        source = file.read_bytes()
        return source if file.suffix != ".py" else _parsed(statements, file, source, package)

    return read


def _parsed(parse: Callable[[bytes, str], T], file: Path, source: bytes, package: str) -> T:
    try:
        return parse(source, package)
    except (SyntaxError, ValueError) as error:
        raise UserError(f"{file}: your own class imports it, and it is not Python ({error})") from error


def _place(name: str, tops: Collection[str]) -> tuple[Path, str] | None:
    """The file of a module and the package that it is in; None where it is not the user's."""
    spec = _find(name)
    if spec is None or not spec.has_location or not _is_users(name, file := Path(spec.origin or ""), tops):
        return None
    return file, name if spec.submodule_search_locations is not None else name.rpartition(".")[0]


def source_digest(cls: type) -> str:
    """sha256 of the module of an imported class, and of what of the user's own that imports."""
    digest = hashlib.sha256(inspect.getsource(sys.modules[cls.__module__]).encode())
    for name, source in reachable_sources([cls.__module__]).items():
        digest.update(name.encode() + b"\0" + source)
    return digest.hexdigest()


def variables_read(paths: Iterable[str]) -> list[str]:
    """For the list `inexact` of a run's record: environment variables that classes at these import paths read.

    By their names, or by the expressions that make them, in the modules that `reachable_sources` sees.
    """
    names = {path.rpartition(".")[0] for path in paths} & sys.modules.keys()
    files = [Path(sys.modules[name].__file__ or "") for name in names]
    sources = [file.read_bytes() for file in files if file.suffix == ".py"] + [*reachable_sources(names).values()]
    read = {name for source in sources for node in ast.walk(ast.parse(source)) for name in _variable(node)}
    text = "your own class reads the environment variable {}, whose value is not part of the run's name"
    return [text.format(name) for name in sorted(read)]


def _variable(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call) and node.args:
        of, key = node.func, node.args[0]
    elif isinstance(node, ast.Subscript):
        of, key = node.value, node.slice
    else:
        return
    if READS.fullmatch(ast.unparse(of)):
        yield str(key.value) if isinstance(key, ast.Constant) else ast.unparse(key)


def _wholes(name: str) -> list[str]:
    """a, a.b, a.b.c of a.b.c."""
    return list(accumulate(name.split("."), "{}.{}".format))


def _find(name: str) -> ModuleSpec | None:
    """Where `name` would be imported from; None for what is not a module. Imports nothing."""
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


def _is_users(name: str, file: Path, tops: Collection[str]) -> bool:
    """Whether a module is neither ours, Python's own nor of an installed package, unless that is one of `tops`."""
    if name.partition(".")[0] in LIBRARIES or str(file).startswith("<"):
        return False
    if {"site-packages", "dist-packages"} & set(file.parts):
        top = name.partition(".")[0]
        return top in tops or top not in _distributions()
    return not any(file.resolve().is_relative_to(folder) for folder in _STANDARD)


@cache
def _distributions() -> Collection[str]:
    """Modules that come with a distribution, which has a version; others are merely in the same folder."""
    return packages_distributions().keys()
