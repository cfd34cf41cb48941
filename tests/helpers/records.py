"""Records of runs that nobody trained, and rows of their reports."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from lightning_tfm.config import Experiment, evaluation_hash, to_dict, training_hash, training_identity
from lightning_tfm.model.size import count_parameters
from lightning_tfm.report.row import Difference, Scores, SummaryRow
from lightning_tfm.report.summary import Summary
from lightning_tfm.report.wording.claims import ClaimSummary
from lightning_tfm.runs.folder import Attempt
from lightning_tfm.runs.record import Git, Machine, Parameters, RunRecord, Score, Seconds, Texts, to_plain
from lightning_tfm.study.rows import Fingerprints, Paper

SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
DEV = Score(
    split="val",
    weights="last",
    ppl=2.0,
    nll=6.93,
    tokens=10,
    bleu=50.0,
    signature=SIGNATURE,
    sentences=4,
    evaluation_hash="e" * 64,
)
RECORD = RunRecord(
    training_hash="a" * 64,
    identity={"row": "any"},
    parameters=Parameters(total=7),
    V=300,
    steps=6,
    target_tokens=80_000,
    source_tokens=80_000,
    flops=10**11,
    seconds=Seconds(train=1.0, validate=2.0, data=1.0, decode=3.0, total=7.0),
    tokens_per_second=1300.0,
    scores={"dev": DEV},
    hardware=Machine(host="box", cpu="a CPU", cpus=2, processes=1, threads=1),
    versions={"python": "3.11", "torch": "2.13.0"},
    git=Git(commit="0123456789abcdef", changed=False),
    data=Texts(corpus="builtin", store="store", train="t", dev="d"),
    attempts=1,
    started=1.7e9,
    ended=1.7e9 + 66,
)


def record(**changes: Any) -> RunRecord:
    """A finished run. `changes` replace fields of it or of its dev score: record(ppl=3.0, steps=20)."""
    of_score = {f.name for f in fields(Score)}
    dev = replace(DEV, **{key: value for key, value in changes.items() if key in of_score})
    rest = {key: value for key, value in changes.items() if key not in of_score}
    return replace(RECORD, **{"scores": {"dev": dev}} | rest)


def record_of(e: Experiment, prints: Fingerprints, V: int = 300, **changes: Any) -> RunRecord:
    """`record` of an experiment (at the paper's scale), as its run would have identified itself."""
    identity = training_identity(e, prints.train, {})
    exact = e.scaled()
    own = {
        "identity": identity,
        "training_hash": training_hash(identity),
        "experiment": to_dict(exact),
        "parameters": Parameters(**count_parameters(exact.model, V)),
        "evaluation_hash": evaluation_hash(e, prints.dev),
        "steps": exact.training.steps,
        "V": V,
        "data": replace(RECORD.data, train=prints.train),
    }
    return record(**own | changes)


def leave(attempt: Attempt, **changes: Any) -> None:
    """End a run with `record`."""
    named = {"training_hash": attempt.folder.training_hash} | changes
    attempt.write_json(attempt.folder.result, to_plain(record(**named)))


def summary_row(name: str, verdict: str = "", base: bool = False, **numbers: Any) -> SummaryRow:
    """A row of a report with this verdict in perplexity; none for base."""
    other = Difference("undecided", "", None)
    of_ppl, of_bleu = (None, None) if base else (Difference(verdict, "", None, weighed=bool(numbers), **numbers), other)
    ppl, bleu = Scores(5.0, None, {"1": 5.0}, of_ppl), Scores(25.0, None, {"1": 25.0}, of_bleu)
    return SummaryRow(
        "A", name, base, {}, {}, [], None, 1, None, None, Paper(None, None, None), {}, {"ppl": ppl, "bleu": bleu}
    )


def summary(rows: list[SummaryRow], claims: Sequence[ClaimSummary] = ()) -> Summary:
    """A report of these rows."""
    return Summary(
        study="made",
        scale="",
        signature="",
        seeds=[1],
        corpus="builtin",
        languages=["xa", "xb"],
        tested=True,
        clear={},
        finished=len(rows),
        cells=len(rows),
        claims=list(claims),
        rows=rows,
    )
