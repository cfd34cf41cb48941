"""Plain data, as YAML and JSON hold them, as dataclasses: no other types, no infinite numbers, errors in words.

Every file that is read goes through here, and so do single settings of an experiment (config.py:from_dict).
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar, cast, get_args, get_type_hints

from annotated_types import Gt, Lt

from lightning_tfm.errors import UserError, nearest

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from pydantic_core import SchemaValidator

Kind = TypeVar("Kind")
Number = Annotated[int, Gt(-(10**300)), Lt(10**300)] | Annotated[float, Gt(-1e300), Lt(1e300)]
"""as written in the file: a whole number for a fraction stays one. Pydantic holds a union's limits in Python"""
INFINITE = "Infinity"
"""how JSON, which has no such number, holds one that overflowed, such as a perplexity; float() reads it"""
OPTIONAL = {"optional": True}
"""of a finding's field that is missing in JSON where it is None (report/serialize.py)"""
WIDEST = 80
"""characters of a value that a message shows"""


def infinite_as_text(value: Any) -> Any:
    """`value` with INFINITE for every infinity in it."""
    if isinstance(value, dict):
        return {key: infinite_as_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return [infinite_as_text(item) for item in value]
    return INFINITE if value == math.inf else value


class _Overflowing:
    """Marks a number that is INFINITE in the file where it overflowed."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema as core

        infinite = core.no_info_after_validator_function(float, core.literal_schema([INFINITE]))
        as_text = core.plain_serializer_function_ser_schema(infinite_as_text, when_used="json")
        return core.union_schema([handler(source), infinite], serialization=as_text)


Overflowing = Annotated[Number, _Overflowing()]


CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""what a terminal may obey instead of showing it, and halves of letters, which no file can hold"""


def with_control(plain: Any) -> str | None:
    """The first text in plain data that holds a control character; None where there is none."""
    parts = [plain]
    for part in parts:  # which grows by what each holds
        if isinstance(part, str):
            if CONTROL.search(part):
                return part
        elif isinstance(part, dict):
            parts += [*part, *part.values()]
        elif isinstance(part, list):
            parts += part
    return None


class Schema:
    """Base of dataclasses that say what a user's file holds, and no other keys."""

    __slots__ = ()
    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "strict": True, "allow_inf_nan": False}
    REFUSED: ClassVar[dict[str, str]] = {}
    """keys known elsewhere, and why they are refused here"""


class Kept(Schema):
    """Base of dataclasses that say what one of our files holds; later versions may write more."""

    __slots__ = ()
    __pydantic_config__: ClassVar[dict[str, Any]] = Schema.__pydantic_config__ | {"extra": "ignore"}


class Flaw(ValueError):
    """What is wrong in plain data, at the value that `keys` lead to."""

    def __init__(self, keys: Sequence[str], reason: str) -> None:
        super().__init__(reason)
        self.keys = keys


EXPECTED = {
    "string_type": "text",
    "string_too_short": "text",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "list_type": "a list",
    "too_short": "a non-empty list",
    "dict_type": "keys and values",
    "greater_than_equal": "a whole number of at least {ge}",
    "greater_than": "a number above {gt:g}",
    "less_than": "a number below {lt:g}",
}
"""pydantic's type of an error -> what was expected; one that is not listed keeps pydantic's words"""


def make_from(kind: type[Kind], plain: Any, at: str = "", parsed: bool = False) -> Kind:
    """`plain` as a `kind`, a dataclass of Schema. Raises Flaw naming key, value and the nearest valid key.

    `at`: the key that leads to it; `parsed`: it was read from JSON, so that all in it is as JSON has it.
    """
    from pydantic import ValidationError  # here, as just importing it takes longer than most of --help

    try:
        if parsed:
            return cast(Kind, _of_parsed(cast(Any, kind)).validate_python(plain))
        return cast(Kind, _adapter(cast(Any, kind)).validate_json(json.dumps(plain, default=str)))
    except ValidationError as error:
        flaws = error.errors(include_url=False)
    # a misspelt key is also missing; where a fraction is allowed, "not a whole number" says less
    flaws.sort(key=lambda flaw: (flaw["type"] != "unexpected_keyword_argument", flaw["type"].startswith("int_")))
    raise _in_our_words(kind, plain, flaws[0], at)


def read_kept(
    kind: type[Kind], path: Path, what: str, content: Callable[[Any], Any] = lambda plain: plain
) -> Kind | None:
    """Our file `path` as a `kind`; None where there is none. Raises UserError: it is not `what`.

    `content`: what a `kind` is made of, from what the file holds.
    """
    try:
        return make_from(kind, content(json.loads(path.read_bytes())))
    except FileNotFoundError:
        return None
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: not {what} ({error})") from error


def as_json(value: Kept, without: str) -> bytes:
    """Its fields but one, without those that hold their defaults."""
    return _adapter(cast(Any, type(value))).dump_json(value, exclude_defaults=True, exclude={without})


@cache
def _adapter(kind: Any) -> "TypeAdapter[Any]":
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


@cache
def _of_parsed(kind: Any) -> "SchemaValidator":
    """For Python objects the strict rules want dataclasses instead of dicts: here only their fields are strict."""
    from pydantic_core import SchemaValidator

    def with_dicts(schema: Any) -> Any:
        if isinstance(schema, list):
            return [with_dicts(part) for part in schema]
        if not isinstance(schema, dict):
            return schema
        own = {"strict": False} if schema.get("type") == "dataclass" else {}
        return {key: with_dicts(part) for key, part in schema.items()} | own

    return SchemaValidator(with_dicts(_adapter(kind).core_schema))


def _in_our_words(kind: Any, plain: Any, flaw: Mapping[str, Any], at: str) -> Flaw:
    value, keys = flaw["input"], _keys(plain, flaw["loc"])
    if flaw["type"] == "missing":
        return Flaw(keys, f"the key '{'.'.join([*keys, flaw['loc'][-1]])}' is missing")
    path, text_of = ".".join(filter(None, (at, *keys))), repr(value)[:WIDEST]
    above = _kind_at(kind, keys[:-1])
    if flaw["type"] == "unexpected_keyword_argument":
        reason = above.REFUSED.get(keys[-1])
        what = f"'{path}' (value {text_of})" if reason else f"unknown key '{path}' (value {text_of})"
        return Flaw(keys, f"{what}: {reason or nearest(keys[-1], _names(above))}")
    if flaw["type"] == "dataclass_type":
        what = f"{path}={text_of}" if path else text_of
        return Flaw(keys, f"{what}: expected the keys {', '.join(_names(_kind_at(kind, keys)))}")
    if flaw["type"] == "literal_error":
        of_key = flaw["loc"][-1] == "[key]"
        choices = get_args(get_args(above)[0] if of_key else _kind_at(kind, keys))
        what = f"unknown key '{path}'" if of_key else f"{path}={text_of}"
        reason = nearest(str(value), choices) if len(choices) > 1 else f"expected {choices[0]}"
        return Flaw(keys, f"{what}: {reason}")
    expected = EXPECTED[flaw["type"]].format(**flaw.get("ctx", {})) if flaw["type"] in EXPECTED else flaw["msg"]
    return Flaw(keys, f"{path}={text_of}: expected {expected}")


def _keys(plain: Any, place: Sequence[int | str]) -> list[str]:
    """The keys of `plain` on the way to a place; a member of a union, or pydantic's mark of a key, is not one."""
    keys = []
    for key in place:
        try:
            plain = plain[key]
        except (KeyError, IndexError, TypeError):
            break
        keys += [key] if isinstance(key, str) else []
    return keys


def _names(schema: Any) -> list[str]:
    return [f.name for f in fields(schema)]


def _kind_at(kind: Any, keys: Sequence[str]) -> Any:
    """The type that a schema has at a path of keys, without `| None`; of a list that of its items."""
    for key in keys:
        kind = get_type_hints(kind)[key] if is_dataclass(kind) else get_args(kind)[-1]
        if NoneType in get_args(kind):
            kind = next(part for part in get_args(kind) if part is not NoneType)
        if not is_dataclass(kind) and getattr(kind, "__origin__", None) is list and is_dataclass(get_args(kind)[0]):
            kind = get_args(kind)[0]
    return kind
