"""Which fields of an experiment may name a user-defined class, and the code that identifies it. No torch."""

from lightning_tfm.config import Experiment
from lightning_tfm.errors import UserError, nearest
from lightning_tfm.registry import KINDS, OWN_WEIGHTS

VERSION = "2"
"""of how own classes start and are identified; before that it was not written"""


def own_classes(experiment: Experiment) -> dict[str, str]:
    """Field -> import path, of those that name a user-defined class. Raises UserError if it does not look like one."""
    classes = {}
    for key in OWN_WEIGHTS:
        shipped = KINDS[key]
        section, _, name = key.partition(".")
        value = getattr(getattr(experiment, section), name)
        if value in shipped:
            continue
        parts = value.replace(":", ".").split(".")
        if len(parts) < 2 or not all(parts):
            raise UserError(f"{key}='{value}': {nearest(value, shipped)} (or the import path of a class, module.Class)")
        classes[key] = value.replace(":", ".")
    return classes


def user_classes(experiment: Experiment) -> dict[str, str]:
    """Import path -> VERSION and sha256 of the code, for the user-defined classes that decide the weights.

    The code is that of the class, of what it inherits from and of what these use, without comments, docstrings and
    layout (user_code/identity.py). A corpus needs no entry: the fingerprint of its text says more. Modules are looked
    up in the working directory too.
    """
    return {path: f"{VERSION}:{digest}" for path, (digest, _) in _codes(experiment).items()}


def whole_modules(experiment: Experiment) -> list[str]:
    """A line for each class of which more counts than what it uses, since a source does not say what that is."""
    text = "{}: the source does not say all that it uses of {}, so any change of its code gives its runs another name"
    return [text.format(path, ", ".join(modules)) for path, (_, modules) in _codes(experiment).items() if modules]


def of_earlier_version(classes: dict[str, str]) -> list[str]:
    """Import paths of those that were identified, and started, as before VERSION."""
    return [path for path, code in classes.items() if not code.startswith(f"{VERSION}:")]


def earlier_words(classes: dict[str, str]) -> str:
    """What to know of those of_earlier_version; empty where there are none."""
    paths = of_earlier_version(classes)
    began = "trained under an earlier version, which drew anew what a constructor had set"
    return f"{', '.join(paths)} {began}; new runs need a study of another name" if paths else ""


def _codes(experiment: Experiment) -> dict[str, tuple[str, list[str]]]:
    return {path: _code(key, path) for key, path in own_classes(experiment).items()}


def _code(key: str, path: str) -> tuple[str, list[str]]:
    from lightning_tfm.user_code.modules import LIBRARIES, class_at, code_digest

    module, _, attribute = path.rpartition(".")
    cls = class_at(path, f"{key}=")
    if not isinstance(cls, type):
        raise UserError(f"{key}='{path}': expected a class, got {cls!r}")
    names = {(c.__module__, c.__qualname__.partition(".")[0]) for c in cls.__mro__}
    try:
        own = {(name, top) for name, top in names if name.partition(".")[0] not in LIBRARIES}
        return code_digest(own | {(module, attribute)})
    except UserError as error:
        raise UserError(f"{key}='{path}': {error}") from error
