"""Which fields of an experiment may name a user-defined class, and the sources that identify it. No torch."""

import hashlib
import inspect
import sys
from importlib import import_module
from pathlib import Path

from lightning_tfm.config import Experiment
from lightning_tfm.errors import UserError, nearest
from lightning_tfm.parts import KINDS, OWN_WEIGHTS


def own_classes(experiment: Experiment) -> dict[str, str]:
    """Field -> import path, of those that name a user-defined class. Raises UserError if it does not look like one."""
    found = {}
    for key in OWN_WEIGHTS:
        shipped = KINDS[key]
        section, _, name = key.partition(".")
        value = getattr(getattr(experiment, section), name)
        if value in shipped:
            continue
        parts = value.replace(":", ".").split(".")
        if len(parts) < 2 or not all(parts):
            raise UserError(
                f"{key}='{value}': {nearest(value, shipped)} Or give the import path of a class, module.Class"
            )
        found[key] = value.replace(":", ".")
    return found


def user_classes(experiment: Experiment) -> dict[str, str]:
    """Import path -> sha256 of the source, for the user-defined classes that decide the weights.

    The source is that of the module that the path names, of every user module that the class inherits from, of
    the packages around them, and of those that they import (user_modules.py). A corpus needs no entry: the fingerprint
    of its text says more. Modules are looked up in the working directory too.
    """
    found = own_classes(experiment)
    if found:
        from lightning_tfm.user_modules import see_working_directory

        see_working_directory()
    return {path: _source(key, path) for key, path in found.items()}


def _source(key: str, path: str) -> str:
    from lightning_tfm.user_modules import LIBRARIES, reached

    module, _, attribute = path.rpartition(".")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, RecursionError) as error:
        raise UserError(f"{key}='{path}': cannot import it ({error})") from error
    if not isinstance(found, type):
        raise UserError(f"{key}='{path}': expected a class, got {found!r}")
    sources = {}
    for name in {module, *(c.__module__ for c in found.__mro__)}:
        if name.partition(".")[0] in LIBRARIES:
            continue
        source = inspect.getsourcefile(sys.modules[name]) if getattr(sys.modules[name], "__file__", None) else None
        if source is None:
            raise UserError(f"{key}='{path}': the module {name} has no source file to identify it by")
        sources[name] = Path(source).read_bytes()
    sources |= reached(sources)
    return hashlib.sha256(b"".join(name.encode() + b"\0" + sources[name] for name in sorted(sources))).hexdigest()
