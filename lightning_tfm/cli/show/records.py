"""`records`: pack | unpack: the numbers of a study in one file, without its text."""

from collections.abc import Sequence
from pathlib import Path

from lightning_tfm.cli.arguments import make_parser, parse_plain
from lightning_tfm.errors import UserError
from lightning_tfm.plural_words import plural


def main(verb: str, argv: Sequence[str]) -> int:
    about = "Pack the records of a study's finished runs into one file, without text or weights, or unpack one."
    parser = make_parser(verb, about, experiment=False)
    parser.add_action("pack", "unpack", text="pack STUDY FILE | unpack FILE")
    parser.add_argument("names", nargs="+", help="the study's name and the file, or the file")
    options = parse_plain(parser, argv)
    action, names, root = options["action"], options["names"], Path(options["out"])
    if len(names) != (2 if action == "pack" else 1):
        raise UserError(f"records {action} needs {'a study and a file' if action == 'pack' else 'one file'}")
    from lightning_tfm.report import archive
    from lightning_tfm.report.records import read_cells, with_sentences
    from lightning_tfm.study.study import Ablation
    from lightning_tfm.study.study_file import folder_of, load_as

    if action == "pack":
        study, file = load_as(Ablation, root, names[0]), Path(names[1])
        count = archive.pack(with_sentences(read_cells(study, root)), file, folder_of(root, study.name))
        print(f"{file}: {plural(count, 'run')} of {study.name}, {file.stat().st_size / 1024:,.0f} KiB")
    else:
        name, new, there = archive.unpack(Path(names[0]), root)
        print(f"{name}: {plural(new, 'run')} unpacked, {there} already there")
    return 0
