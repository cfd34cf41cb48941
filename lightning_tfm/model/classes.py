"""Classes that an experiment names: one that ships, or one of the user's own by its import path."""

from collections.abc import Mapping
from importlib import import_module
from typing import TypeVar, cast

from lightning_tfm.errors import UserError, nearest

T = TypeVar("T")


def find_class(field: str, name: str, shipped: Mapping[str, type[T]], bases: tuple[type, ...]) -> type[T]:
    """The class that `field` names, or at that import path, `module.Class` or `module:Class`.

    Raises UserError naming the nearest name, what the import said, or the `bases` of which it must have one.
    """
    if name in shipped:
        return shipped[name]
    module, _, attribute = name.replace(":", ".").rpartition(".")
    if not module:
        raise UserError(f"{field}='{name}': {nearest(name, shipped)}, or the import path of a class")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise UserError(f"{field}='{name}': cannot import it ({error})") from error
    if not (isinstance(found, type) and issubclass(found, bases)):
        *first, last = (base.__name__ for base in bases)
        named = f"{', '.join(first)} or {last}" if first else last
        raise UserError(f"{field}='{name}' must derive from {named} ({bases[0].__module__})")
    return cast(type[T], found)
