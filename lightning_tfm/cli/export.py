"""`export`: a trained run as one folder that other programs load: safetensors, or CTranslate2."""

from collections.abc import Sequence
from pathlib import Path

from lightning_tfm.cli.arguments import make_parser
from lightning_tfm.cli.score import find


def main(verb: str, argv: Sequence[str]) -> int:
    parser = make_parser(verb, "Write a trained run as one folder that other programs load.")
    parser.add_argument(
        "--to", choices=["safetensors", "ctranslate2"], default="safetensors", help="format of the folder"
    )
    parser.add_argument("--folder", help="new folder to write [a subfolder of the run's named after the format]")
    folder, experiment, settings = find(parser, argv)

    from lightning_tfm.inference.export import to_ctranslate2, to_safetensors
    from lightning_tfm.inference.load import Trained

    target = Path(settings.verb["folder"] or folder.path / settings.verb["to"])
    write = {"safetensors": to_safetensors, "ctranslate2": to_ctranslate2}[settings.verb["to"]]
    print(write(Trained.open(folder, experiment), target))
    return 0
