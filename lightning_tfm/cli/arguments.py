"""The command line as settings of an experiment and a verb's own options, with errors in the user's words.

Files (`--config`) and single settings (`--model.h 16`) merge left to right (study/settings.py), checked before anything
heavy is imported.
"""

import argparse
import ast
import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NoReturn, cast, get_args

import yaml

from lightning_tfm.config import WORDS, Data, Experiment, Hardware, from_dict, to_dict
from lightning_tfm.errors import UserError, nearest
from lightning_tfm.gone import refuse
from lightning_tfm.registry import KINDS as PARTS
from lightning_tfm.study.ratios import HOLD, KINDS, SEEN
from lightning_tfm.study.settings import (
    APPENDED,
    PLAIN,
    SECTIONS,
    SMOKE_STEPS,
    TYPED,
    Setting,
    Settings,
    in_file,
    merge,
    smoke_test,
)
from lightning_tfm.yaml_files import read_word

ALL = "all"
"""topic of --help: all of them"""
MODES = ("off", "offline", "online")
"""of W&B"""
SUFFIXES = {".csv": "csv", ".json": "json", ".tex": "latex", ".md": "markdown", ".html": "html"}
"""of files -> --format"""
HELP = {
    "row": "a row by name: the experiment becomes this row's (see experiments/table3.yaml)",
    "seed": "short for --training.seed",
    "out": "root folder of data, runs and studies [results]",
}


class Parser(argparse.ArgumentParser):
    """argparse that raises UserError and keeps the order in which settings were given."""

    def __init__(self, prog: str, description: str) -> None:
        super().__init__(prog, description=description, allow_abbrev=False, formatter_class=_Help, add_help=False)
        for kind in (int, float):
            self.register("type", kind, partial(_word, kind))
        self.set_defaults(given=())
        self.add_argument("-h", "--help", action=_Topic, nargs="?", help=argparse.SUPPRESS)

    def format_help(self, topic: str = "") -> str:
        """A verb's own options and its topics (groups of further options); or those of a topic, or of `all`."""
        first, topics = self._action_groups[:2], {str(group.title): group for group in self._action_groups[2:]}
        if topic not in ("", ALL, *topics):
            raise UserError(f"{self.prog.split()[-1]} --help {topic}: {nearest(topic, (ALL, *topics))}")
        groups = [topics[topic]] if topic in topics else [*first, *topics.values()] if topic else first
        formatter = _Help(f"{self.prog} [options]")
        if topic not in topics:
            formatter.add_usage(None, first[0]._group_actions, [])
            formatter.add_text(self.description)
        for group in groups:
            formatter.start_section(group.title)
            formatter.add_text(group.description)
            formatter.add_arguments(group._group_actions)
            formatter.end_section()
        if topics and not topic:
            formatter.start_section(f"more, by --help TOPIC or --help {ALL}")
            formatter.add_arguments([argparse.Action([], key, help=topics[key].description) for key in topics])
            formatter.end_section()
        return formatter.format_help()

    def complete(self) -> None:
        """Offer a shell, which waits for it, every option with its values."""
        from argcomplete import autocomplete
        from argcomplete.completers import ChoicesCompleter

        for action in self._actions:
            parts: Iterable[str] = PARTS.get(action.dest, {})
            offered = [*(action.choices or parts)]
            if not offered and str(action.metavar).startswith("{"):
                offered = str(action.metavar).strip("{}").split(",")
            if offered:
                vars(action)["completer"] = ChoicesCompleter(cast(Any, offered))
        autocomplete(self, always_complete_options=False)

    def add_fields(self, section: str, cls: Any) -> None:
        """An option `--section.field` for every field of a dataclass, its docstring the help."""
        group = self.add_argument_group(section, cls.__doc__.splitlines()[0])
        for f in fields(cls):
            text = documentation(cls.__module__).get((cls.__name__, f.name), "").replace("%", "%%")
            choices = ("true", "false") if f.type is bool else get_args(f.type)
            words = f"{text} (" if choices else f"{text} ({WORDS[f.type]}, "
            default = f.default if f.default and isinstance(f.default, str) else json.dumps(f.default)
            group.add_argument(
                f"--{section}.{f.name}",
                action=_Given,
                type=partial(_field, cls, section, f.name),
                default=f.default,
                metavar=f"{{{','.join(choices)}}}" if choices else f.name.upper(),
                help=f"{words}default: {default})".strip(),
            )

    def add_action(self, *actions: str, text: str = "") -> None:
        """A first word that says what the verb does."""
        verb = self.prog.split()[-1]
        check, text = partial(_action, verb, actions), text or " | ".join(actions)
        self.add_argument("action", type=check, choices=actions, metavar="action", help=text)

    def error(self, message: str) -> NoReturn:
        message = message.removeprefix("argument ").replace(": expected one argument", " needs a value")
        raise UserError("command line: " + message.replace(": '", "='", 1))

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """`null` resets an optional value."""
        given = arg_string != "null" or action.default is not None or not action.option_strings
        return super()._get_value(action, arg_string) if given else None

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in (*action.choices, action.default):
            refuse(f"{self.prog.split()[-1]} {'/'.join(action.option_strings)}={value}")
            raise argparse.ArgumentError(action, f"{value!r}: {nearest(value, action.choices)}")

    def check_options(self, argv: Sequence[str]) -> None:
        """Raise UserError naming the nearest option where `argv` has one that does not exist."""
        options = self._option_string_actions
        for token, following in zip(argv, [*argv, ""][1:], strict=True):
            key, equals, value = token.partition("=")
            if token == "--":
                return
            if token.startswith("--") and " " not in key and key not in options:
                from lightning_tfm.suggestions import suggestion

                refuse(f"{self.prog.split()[-1]} {key}", key.removeprefix("--"))
                value = value if equals else following * (not following.startswith("--"))
                of_value = f" (value '{value}')" * bool(value)
                raise UserError(f"unknown option '{key}'{of_value} on the command line: {suggestion(key, options)}")


class _Help(argparse.HelpFormatter):
    def _get_help_string(self, action: argparse.Action) -> str:
        notes = [WORDS[action.type]] if action.type in (int, float) else []
        if action.default not in (None, "", False, argparse.SUPPRESS, []):
            notes += ["default: %(default)s"]
        own = isinstance(action, _Given) or not notes
        return (action.help or "") + ("" if own else f" ({', '.join(notes)})")


class _Topic(argparse.Action):
    """`--help`, or `--help TOPIC`."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        print(parser.format_help(values or ""), end="")
        parser.exit()


class _Given(argparse.Action):
    """Stores a value, and keeps its place among the others that were given."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        setattr(namespace, self.dest, values)
        namespace.given = (*namespace.given, (self.dest, values))


def _word(kind: type, text: str) -> Any:
    value = read_word(kind, text)
    value = float(value) if kind is float and type(value) is int else value
    if type(value) is not kind:
        raise argparse.ArgumentTypeError(f"{text!r}: expected {WORDS[kind]}")
    return value


def _field(cls: type, section: str, name: str, text: str) -> Any:
    kind = next(f.type for f in fields(cls) if f.name == name)
    try:
        return getattr(from_dict(cls, {name: read_word(kind, text)}, section), name)
    except UserError as error:
        raise UserError(f"command line: {error}") from None


def _action(verb: str, actions: Sequence[str], word: str) -> str:
    if word not in actions:
        refuse(f"{verb} {word}")
        raise UserError(f"{verb} {word}: {nearest(word, actions)}")
    return word


def words(text: str) -> list[str]:
    """A word, or `[several, of them]`: a type for options that are repeated, with action="extend"."""
    value = read_word(list, text)
    return [str(item) for item in value] if isinstance(value, list) else [text]


@cache
def documentation(module: str) -> dict[tuple[str, str], str]:
    """(class, field) -> the text below the field, of the dataclasses of a module that is imported."""
    texts = {}
    for node in ast.parse(Path(sys.modules[module].__file__ or "").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            for line, below in zip(node.body, node.body[1:], strict=False):
                if isinstance(line, ast.AnnAssign) and isinstance(below, ast.Expr):
                    assert isinstance(line.target, ast.Name)
                    text, field = ast.literal_eval(below.value), f"{node.name.lower()}.{line.target.id}"
                    texts[node.name, line.target.id] = text.replace("{parts}", ", ".join(PARTS.get(field, ())))
    return texts


def make_parser(
    verb: str, description: str, *, experiment: bool = True, of_run: bool = False, of_study: bool = False
) -> Parser:
    """A parser with --out and, for verbs that take an `experiment`, --config, every field, --row, --rows, --seed and,
    unless a trained run brings its own (`of_run`), --print_config. `of_study`: a file has the rows and seeds."""
    parser = Parser(f"lightning-tfm {verb}", description)
    if not experiment:
        parser.add_argument("--out", default="results", help=HELP["out"].removesuffix(" [results]"))
        return parser
    text = "YAML file; several merge left to right"
    parser.add_argument("--config", action=_Given, default=argparse.SUPPRESS, metavar="FILE", help=text)
    about = "Options of a single run; a study takes rows and seeds from its file."
    single: argparse._ActionsContainer = parser.add_argument_group("single", about) if of_study else parser
    for name, kind in PLAIN.items():
        (parser if name == "out" else single).add_argument(f"--{name}", action=_Given, type=kind, help=HELP[name])
    if not of_run:
        single.add_argument("--print_config", action="store_true", help="print the experiment as YAML and exit")
        text = "try it all: ten steps of base and of every row or trial, in the folder smoke of <out>"
        parser.add_argument("--smoke", action="store_true", help=text)
    text = "file with your own rows; may be repeated"
    parser.add_argument("--rows", action=_Given, type=words, dest=APPENDED, default=[], metavar="FILE", help=text)
    for section, cls in SECTIONS.items():
        parser.add_fields(section, cls)
    group = parser.add_argument_group(
        "ratios", "Steps, data and learning rate that follow from the paper's ratios (docs/howto/ratios.md)."
    )
    text = "ratios: text, steps, warm-up and rate of a miniature follow from the paper's"
    group.add_argument(f"--{HOLD}", action=_Given, default=argparse.SUPPRESS, choices=KINDS, help=text)
    text = "share of the paper's training tokens per parameter, with --miniature.hold [1]"
    group.add_argument(f"--{SEEN}", action=_Given, default=argparse.SUPPRESS, type=float, help=text)
    return parser


def settings_from(parser: Parser, argv: Sequence[str], base: Experiment | None = None) -> Settings:
    """Settings from arguments, over `base` instead of the paper's, held values not yet derived. Raises UserError;
    exits for --help."""
    options = _parse_argv(parser, argv)
    given = options.pop("given")
    own = {key: value for key, value in options.items() if key not in (*SECTIONS, *PLAIN, APPENDED, "config")}
    files, typed = tuple(value for key, value in given if key == "config"), frozenset(key for key, _ in given)
    settings = replace(merge(_settings(given), base), verb=own, files=files, typed=typed)
    _check_out(settings.out)
    return settings


def parse(parser: Parser, argv: Sequence[str], base: Experiment | None = None) -> Settings:
    """Settings from arguments, as in `written`, with held values derived from the text."""
    settings = settings_from(parser, argv, base)
    if settings.verb.get("smoke"):
        shortened = smoke_test(settings)
        print(f"smoke test: {SMOKE_STEPS} steps of everything, in {shortened.out}; scores say nothing", file=sys.stderr)
        return shortened
    if settings.held is None:
        return settings
    from lightning_tfm.study.ratios import hold

    def count(data: Data) -> tuple[int, int]:
        from lightning_tfm.data.prepare import target_pieces  # after what is wrong without a text

        return target_pieces(data, settings.out)

    regime = hold(settings.base, settings.held, count)
    return replace(settings, base=regime.base, regime=regime)


def check_trainer(settings: Settings, verb: str, *takes: str) -> None:
    """Raise UserError where the command line asks for hardware that the verb ignores.

    `takes`: fields that it uses, or `field=value`. What a file says about hardware is for training.
    """
    for f in fields(Hardware):
        value = getattr(settings.hardware, f.name)
        setting = f"{f.name}={str(value).lower()}"
        if f"trainer.{f.name}" in settings.typed and value != f.default and not {f.name, setting} & set(takes):
            why = f"of trainer.… it uses only {', '.join(takes)}" if takes else "it uses nothing of trainer.…"
            raise UserError(f"--trainer.{setting}: {verb} ignores it, {why}: remove it")


def check_action(verb: str, action: str, options: dict[str, Any], belongs: Mapping[str, tuple[str, ...]]) -> None:
    """Raise UserError where an option is given that `belongs` to other actions of the verb."""
    for name, actions in belongs.items():
        if options[name] is not False and options[name] not in (None, "", []) and action not in actions:
            raise UserError(f"--{name}: belongs to {verb} {' and '.join(actions)}, not to {verb} {action}")


def check_together(
    parser: Parser, options: Mapping[str, Any], needs: Mapping[str, str], apart: Mapping[str, Collection[str]]
) -> None:
    """Raise UserError where an option is given without the one that it `needs`, or beside one from which it is `apart`:
    it would say nothing."""
    given = {key for key, value in options.items() if value != parser.get_default(key)}
    for key, need in needs.items():
        if key in given and need not in given:
            raise UserError(f"--{key}: goes with {need.upper() if need == 'study' else f'--{need}'}")
    for key, others in apart.items():
        for other in others if key in given else ():
            if other in given:
                raise UserError(f"--{key}: not together with {other.upper() if other == 'study' else f'--{other}'}")


def parse_own(parser: Parser, argv: Sequence[str]) -> dict[str, Any]:
    """A verb's own arguments, before the sweep file that they name is read; under `given` the settings beside them, in
    their order. Raises UserError; exits for --help."""
    return {key: value for key, value in _parse_argv(parser, argv).items() if key not in (*SECTIONS, *PLAIN, APPENDED)}


def parse_plain(parser: Parser, argv: Sequence[str]) -> dict[str, Any]:
    """The arguments of a verb without an experiment. Raises UserError; exits for --help."""
    options = _parse_argv(parser, argv)
    del options["given"]
    if "out" in options:
        _check_out(Path(options["out"]))
    if not 0 <= (options.get("port") or 0) <= 65535:
        raise UserError(f"--port={options['port']}: a port is between 0 and 65535; 0 takes any free one")
    to, now = options.get("to"), options.get("format")
    if now and (kind := SUFFIXES.get(Path(to or "").suffix, now)) != now:
        raise UserError(f"--to={to}: give --format {kind}, too, or another name: it is {now} now")
    return options


def _check_out(root: Path) -> None:
    """Raise UserError where a file is in the way of the results folder, or none can be made there."""
    for path in (root, *root.parents):
        if path.is_symlink() and not path.exists():
            raise UserError(f"--out={root}: {path} is a link that leads nowhere; name a folder")
        if path.exists() and not path.is_dir():
            raise UserError(f"--out={root}: {path} is a file; name a folder, which is made if missing")
    if root.resolve().is_relative_to("/proc"):
        raise UserError(f"--out={root}: no folder can be made in /proc")


def _settings(given: Sequence[tuple[str, Any]]) -> Iterator[Setting]:
    for key, value in given:
        if key == "config":
            yield from in_file(value)
        elif key.partition(".")[0] in (*SECTIONS, *PLAIN, APPENDED):
            yield key, value, TYPED


def _parse_argv(parser: Parser, argv: Sequence[str]) -> dict[str, Any]:
    """All arguments by name, those of `--section.field` in a separate dict."""
    if "_ARGCOMPLETE" in os.environ:
        parser.complete()
    parser.check_options(argv)
    options: dict[str, Any] = {}
    asks_help = any(word.partition("=")[0] in ("-h", "--help") for word in argv)
    # intermixed: `runs remove --force RUN`, where parse_args would end the words at the first option
    arguments_of = parser.parse_args if asks_help else parser.parse_intermixed_args
    for key, value in vars(arguments_of(list(argv))).items():
        section, dot, name = key.partition(".")
        if dot:
            options.setdefault(section, {})[name] = value
        else:
            options[key] = value
    return options


def prints_config(settings: Settings) -> bool:
    """Whether --print_config asks for the experiment, which is then printed; the verb does nothing else."""
    if settings.verb["print_config"]:
        print(settings_text(settings), end="")
    return bool(settings.verb["print_config"])


def settings_text(settings: Settings) -> str:
    """YAML of the settings, row and seed applied, that --config reads back."""
    comments = [f"# {line}\n" for line in settings.regime.lines] if settings.regime else []
    return "".join(comments) + yaml.safe_dump(
        to_dict(settings.experiment) | {"trainer": to_dict(settings.hardware)}, sort_keys=False
    )


def progress_of(name: str) -> Callable[[str], None]:
    """Prints lines of progress about `name`, immediately, where they do not mix with results."""
    return lambda line: print(f"{name}: {line}", file=sys.stderr, flush=True)
