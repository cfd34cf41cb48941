"""The numbers of a study in one file, without a word of its text: to commit, send, or continue elsewhere.

An archive holds study.json, the looks of `--seeds auto` and, for every finished run, its record, its curve and its
scores by sentence: (nll, pieces) and, in place of the translations, the counts of their n-grams, from which every test
of the report follows; and where lines beyond the training length were scored, their numbers, line by line. Of a run
that diverged it holds what says so. Once unpacked, these runs are finished to every verb that needs no weights: `sweep`
trains what is missing, `report` shows what exists.
"""

import hashlib
import io
import json
import lzma
import re
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path

from lightning_tfm.archives import BROKEN, decompress, fault
from lightning_tfm.atomic_io import to_json, write_atomic
from lightning_tfm.config import training_hash
from lightning_tfm.errors import UserError
from lightning_tfm.metrics import METRICS
from lightning_tfm.report.analyses.layer_table import FILE as LAYERS
from lightning_tfm.report.analyses.length_extrapolation_statistics import scores_by_length
from lightning_tfm.report.records import Cells, FilledCell, counts_file
from lightning_tfm.runs.folder import RunFolder
from lightning_tfm.runs.record import Missing, to_plain, without_folders
from lightning_tfm.runs.record import from_plain as record_of
from lightning_tfm.study.row_tuning import FILE as TUNING
from lightning_tfm.study.rows import Row
from lightning_tfm.study.study import LOOKS, Ablation
from lightning_tfm.study.study_file import folder_of, from_plain, link, save
from lightning_tfm.sums import with_checksum

COPIED = ("result.json", "identity.json", "experiment.json", "metrics.jsonl")
"""files of a run that are copied unchanged"""
DIVERGED = "outcome.json"
"""in place of the first, of a run that ended as its loss was not finite"""
OF_STUDIES = (LOOKS, TUNING, LAYERS)
"""files of a study that travel with its study.json"""
COLLECTED = tuple(f"report/{name}.json" for name in ("softmax", "positions", "heads", "beams", "syntax"))
"""what was computed from a run's weights, only numbers"""
MEMBER = re.compile(
    rf"studies/[^/]+/(study\.json|{'|'.join(map(re.escape, OF_STUDIES))})"
    rf"|runs/[0-9a-f]{{16}}/({'|'.join(map(re.escape, (DIVERGED, *COPIED, *COLLECTED)))}"
    r"|scores/[0-9a-f]{16}/[^/.][^/]*\.(json|sentences\.tsv|counts\.tsv))"
)
"""names that an archive may hold"""
NEW = ".unpacking-"


def pack(cells: Cells, file: Path, folder: Path | None = None) -> int:
    """Write the archive of a study, with what its `folder` says beside it; returns how many runs it holds.

    The same runs give the same bytes.
    Raises UserError where no run is finished, or where n-grams cannot be counted because the references are gone.
    """
    study = cells.study
    if not cells.filled:
        raise UserError(f"study '{study.name}': none of its runs is finished, so there is nothing to pack")
    whole = study.to_plain()
    for key in whole.keys() & {"rows", "hidden"}:
        whole[key] = [row | {"where": without_folders(row["where"])} for row in whole[key]]
    members = {f"studies/{study.name}/study.json": to_json(whole)}
    for name in OF_STUDIES:
        if folder is not None and (folder / name).is_file():
            members[f"studies/{study.name}/{name}"] = (folder / name).read_bytes()
    for cell in cells.filled.values():
        members |= _run(study, cell)
    runs = next(iter(cells.filled.values())).folder.parent
    diverged = [(row, seed) for row in study.every_row for seed in cells.diverged.get(row.name, ())]
    for row, seed in diverged:
        members |= _diverged_run(study, row, runs / study.cell(row, seed).training_hash[:16])
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in sorted(members.items()):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    write_atomic(file, lzma.compress(raw.getvalue(), preset=9))
    return len({name.split("/")[1] for name in members if name.startswith("runs/")})


def _run(study: Ablation, cell: FilledCell) -> dict[str, bytes]:
    counted = [metric for metric in METRICS.values() if metric.counted and metric.of(cell.dev) is not None]
    for metric in counted:
        if metric.name not in cell.sums:
            why = f"counting {metric.label}'s n-grams needs the dev set; run: lightning-tfm data prepare"
            raise UserError(f"run {cell.folder.name}: {why}")
    folder = f"runs/{cell.folder.name}"
    row = next(row for row in study.every_row if row.name == cell.row)
    scores = cell.folder / "scores" / study.evaluation_of(row)[:16]
    split = study.base.data.dev
    read = [metric for metric in METRICS.values() if metric.name in cell.sums and not metric.counted]
    columns = {name: sums for one in read for name, sums in zip(one.columns, cell.sums[one.name].T, strict=True)}
    lines = zip(*columns.values(), strict=True)
    sentences = "".join(
        "\t".join([f"{i}", f"{nll:.9g}", *(f"{int(n)}" for n in counts)]) + "\n"
        for i, (nll, *counts) in enumerate(lines)
    )
    score = (scores / f"{split}.json").read_bytes()
    kept = {f"{split}.sentences.tsv": ("\t".join(["line", *columns]) + f"\n{sentences}").encode()}
    for metric in counted:
        rows = ("\t".join(str(int(x)) for x in row) + "\n" for row in cell.sums[metric.name])
        kept[counts_file(split, metric)] = "".join(rows).encode()
    plain = json.loads(score)
    if "files" in plain:
        files = {name: hashlib.sha256(data).hexdigest() for name, data in kept.items()}
        score = to_json(with_checksum(plain | {"files": files}))
    kept[f"{split}.json"] = score
    whole = {f"{folder}/{name}": (cell.folder / name).read_bytes() for name in COPIED}
    more = [name for name in COLLECTED if (cell.folder / name).is_file()]
    whole |= {f"{folder}/{name}": (cell.folder / name).read_bytes() for name in more}
    whole |= _by_length(cell, study.base.data.long, study.base.data.training_length, folder)
    return whole | {f"{folder}/scores/{scores.name}/{name}": data for name, data in kept.items()}


def _diverged_run(study: Ablation, row: Row, folder: Path) -> dict[str, bytes]:
    """Its curve, and its score or how it ended: none of its sentences is ever read."""
    score = f"scores/{study.evaluation_of(row)[:16]}/{study.base.data.dev}.json"
    last = () if (folder / COPIED[0]).is_file() else (DIVERGED,)
    copied = [name for name in (*COPIED, score, *last) if (folder / name).is_file()]
    return {f"runs/{folder.name}/{name}": (folder / name).read_bytes() for name in copied}


def _by_length(cell: FilledCell, split: str, limit: int, folder: str) -> dict[str, bytes]:
    """The scores of lines beyond the training length with their table of lines, which holds only numbers."""
    files: dict[str, bytes] = {}
    for score in scores_by_length(cell, split, limit) if split else ():
        scores, table = Path("scores") / score.evaluation_hash[:16], f"{split}.sentences.tsv"
        data = (cell.folder / scores / table).read_bytes()
        changed = replace(score, files={table: hashlib.sha256(data).hexdigest()})
        files[f"{folder}/{scores}/{split}.json"] = to_json(with_checksum(to_plain(changed)))
        files[f"{folder}/{scores}/{table}"] = data
    return files


def unpack(file: Path, root: Path) -> tuple[str, int, int]:
    """Put the study and its runs under `root`: (name of the study, runs put there, runs that were there already).

    Existing runs stay, finished or not. Raises UserError if the file is not an archive of ours, which then leaves
    nothing, or if a study of that name is another experiment.
    """
    try:
        study, beside, by_run = _content(file)
    except FileNotFoundError:
        raise UserError(f"{file}: no such file") from None
    except (*BROKEN, ValueError) as error:
        raise UserError(f"{file}: not an archive of a study's records ({error})") from error
    own = [one for cell in study.cells() for one in cell.runs if one.training_hash[:16] in by_run]
    save(study, root)
    for name, data in beside.items():
        if not (target := folder_of(root, study.name) / name).exists():
            write_atomic(target, data)
    there = [run for run in by_run if (root / "runs" / run).exists()]
    for run, files in by_run.items():
        if run not in there:
            _place(RunFolder(root, run).path, files)
    for one in own:
        link(folder_of(root, study.name), one)
    return study.name, len(by_run) - len(there), len(there)


def _place(path: Path, files: dict[str, bytes]) -> None:
    """A run folder, in one step."""
    half = path.with_name(f"{NEW}{path.name}")
    shutil.rmtree(half, ignore_errors=True)
    for name, data in files.items():
        (half / name).parent.mkdir(parents=True, exist_ok=True)
        (half / name).write_bytes(data)
    half.rename(path)


def _content(file: Path) -> tuple[Ablation, dict[str, bytes], dict[str, dict[str, bytes]]]:
    """The study, name -> content of what is beside it, and run -> name -> content of its files.

    Raises UserError, ValueError and BROKEN for what no archive of ours holds.
    """
    members: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(decompress(file.read_bytes())), mode="r:") as archive:
        for entry in archive:
            content = archive.extractfile(entry) if entry.isreg() else None
            if wrong := fault(entry):
                raise ValueError(wrong)
            if content is None or entry.name in members or not MEMBER.fullmatch(entry.name):
                raise ValueError(f"it holds '{entry.name}'{' twice' if entry.name in members else ''}")
            members[entry.name] = content.read()
    studies = [name for name in members if name.endswith("/study.json") and name.startswith("studies/")]
    if len(studies) != 1:
        raise ValueError(f"it holds {len(studies)} studies")
    study = from_plain(json.loads(members.pop(studies[0])), file)
    if not isinstance(study, Ablation):
        raise ValueError(f"it holds a {study.KIND}")
    beside: dict[str, bytes] = {}
    by_run: dict[str, dict[str, bytes]] = {}
    for name, data in members.items():
        kind, owner, rest = name.split("/", 2)
        if kind == "studies" and owner != study.name:
            raise ValueError(f"it holds '{name}' beside the study '{study.name}'")
        (beside if kind == "studies" else by_run.setdefault(owner, {}))[rest] = data
    for run, files in by_run.items():
        if DIVERGED in files:  # it has no record
            name = training_hash(json.loads(files.get("identity.json", b"{}")))
        else:
            record = record_of(json.loads(files.get("result.json", b"{}")))
            name = "" if isinstance(record, Missing) else record.training_hash
        if name[:16] != run:
            raise ValueError(f"it holds no result.json of run {run}")
    return study, beside, by_run
