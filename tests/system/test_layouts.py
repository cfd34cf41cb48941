"""The experiment is not the hardware: the same gradient, curve and scores on any number of processes and parts."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import lightning.pytorch as pl
import numpy as np
import pytest
import torch

from lightning_tfm.config import Experiment, Hardware, override
from lightning_tfm.data.module import StepLoader, TranslationData
from lightning_tfm.data.prepare import prepare
from lightning_tfm.registry import LAYERS, SCHEMES
from lightning_tfm.runs.process.ranks import fork_ranks
from lightning_tfm.runs.trainer import make_trainer
from lightning_tfm.study.settings import load_experiment
from lightning_tfm.training.module import TransformerModule
from tests.helpers.tiny import LINES, experiment, in_child, metrics, train, write_corpus, write_lines

LAYOUTS = [(1, 1), (2, 2), (4, 1), (1, 4)]
"""processes, micro-batches in a step; the second has several of both, and is fast"""
BOUND = {"float64": 1e-12, "float32": 1e-5}


class Watch(pl.Callback):
    """Gradients of the first step, and the loss of every step."""

    def __init__(self) -> None:
        self.gradients: dict[str, np.ndarray] = {}
        self.losses: list[float] = []

    def on_before_optimizer_step(self, trainer, module, optimizer) -> None:
        if not self.gradients:
            self.gradients = {n: p.grad.detach().double().numpy().copy() for n, p in module.named_parameters()}

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx) -> None:
        self.losses.append(float(module.take_sums()[0]) / batch.target_tokens)


def micro_limit(data: TranslationData, world: int, parts: int) -> int:
    """The largest micro-batch limit that cuts the first step into `parts` or more for each rank."""
    plan = data.plan()
    for limit in range(int(plan.tokens), 1, -1):
        if len(plan.micro_batches(0, 0, world, limit)) >= parts:
            return limit
    raise AssertionError(f"no limit gives {parts} micro-batches or more")


def follow(e: Experiment, root: Path, world: int, parts: int) -> Watch:
    """Train on this rank, without a record. A collective."""
    data = TranslationData(e, prepare(e.data, root))
    watch = Watch()
    trainer = make_trainer(e, Hardware(accelerator="cpu", devices=world), [watch])
    module = TransformerModule(e, data.prepared.tokenizer.V)
    limit = micro_limit(data, world, parts) if parts > 1 else 0
    split = data.prepared.split(e.data.train)
    trainer.fit(module, train_dataloaders=StepLoader(data.plan(), split, 0, trainer.global_rank, world, limit))
    return watch


def on_ranks(world: int, work: Callable[[], object], out: Path) -> object:
    """What `work()` returns on rank 0 of `world` processes."""

    def rank() -> None:
        found = work()
        if world == 1 or torch.distributed.get_rank() == 0:
            torch.save(found, out)

    if world == 1:
        in_child(rank)
    else:
        fork_ranks(rank, world, threads=1)
    return torch.load(out, weights_only=False)


def follow_all(experiments: dict[str, Experiment], root: Path, world: int, parts: int) -> dict[str, Watch]:
    """Several trainings one after the other in the same processes: starting them costs more than a tiny training."""

    def work() -> dict[str, tuple]:
        watches = {name: follow(e, root, world, parts) for name, e in experiments.items()}
        return {name: (watch.gradients, watch.losses) for name, watch in watches.items()}

    return on_ranks(world, work, root / "followed")


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """A corpus with some sentences longer than the first table of positions, prepared."""
    root = tmp_path_factory.mktemp("layouts")
    write_corpus(root / "text", pairs=60, longest=45)
    write_lines(root / "lines")
    for e in (experiment(root / "text"), experiment(root / "lines", **(LINES | {"data__max_words": 20}))):
        prepare(e.data, root)
    return root


MODERN = {
    "model__feed_forward": "swiglu", "model__norm": "sandwich", "model__norm_kind": "rms",
    "training__optimizer": "muon", "training__weight_decay": 0.01, "training__schedule": "cosine",
}  # fmt: skip


STACKS = {
    "prefix": {"model__stack": "prefix", "model__P_attention": 0.1, "model__P_ff": 0.1},
    "causal": {"model__stack": "causal", "model__positions": "learned", "model__tie": "none"},
}
TEXTS = ("language-model",)
"""text without a source"""
TYPES = ("lstm",)
"""layer types trained on every layout; all are cut into micro-batches in tests/training/test_dropout.py"""


def variants(root: Path, steps: int) -> dict[str, Experiment]:
    modern = {"training__precision": "float64", "training__steps": steps, "training__warmup": 4, "data__max_len": 100}
    named = {"modern": MODERN} | STACKS | {name: {"model__layer": name, "model__neighbourhood": 5} for name in TYPES}
    found = {f"float64-{name}": experiment(root / "text", **modern, **change) for name, change in named.items()}
    alone = LINES | {"model__positions": "rotary", "data__max_words": 20}
    found["float64-language-model"] = experiment(root / "lines", **(modern | alone))
    return found | {
        f"{precision}-{P_drop}": experiment(
            root / "text",
            model__P_drop=P_drop,
            training__precision=precision,
            training__steps=steps,
            training__warmup=40,
            data__max_len=100,
        )
        for precision in ("float64", "float32")
        for P_drop in (0.0, 0.1)
    }


STEPS = 14
"""more than an epoch"""


FAST = ("float64-0.0", "float64-0.1", "float64-modern", "float64-causal", "float64-language-model")
SLOW = ("float32-0.0", "float32-0.1", "float64-prefix", *(f"float64-{name}" for name in TYPES))


def test_every_variant_is_followed(root):
    assert {*FAST, *SLOW} == variants(root, STEPS).keys()


@pytest.fixture(scope="module")
def followed(root) -> Callable[[str, tuple[int, int]], tuple]:
    """Gradients of the first step, and the losses, of a variant on a layout; its group is trained when first asked."""

    @cache
    def group(names: tuple[str, ...], layout: tuple[int, int]) -> dict[str, tuple]:
        every = variants(root, STEPS)
        return follow_all({name: every[name] for name in names}, root, *layout)

    return lambda name, layout: group(FAST if name in FAST else SLOW, layout)[name]


@pytest.mark.parametrize(
    "layout",
    [pytest.param(x, marks=[pytest.mark.long] * (x != (2, 2)), id=f"{x[0]}x{x[1]}") for x in LAYOUTS[1:]],
)
@pytest.mark.parametrize("name", [*FAST, *(pytest.param(name, marks=pytest.mark.long) for name in SLOW)])
class TestShort:
    def test_gradient_of_one_step(self, followed, layout, name):
        """No tensor is left out: without attention biases none has a gradient that is zero by mathematics."""
        ours, theirs = followed(name, (1, 1))[0], followed(name, layout)[0]
        for tensor, g in ours.items():
            assert np.abs(g).max() > 1e-9, tensor
            assert np.abs(theirs[tensor] - g).max() <= BOUND[name.split("-")[0]] * np.abs(g).max(), tensor

    def test_curve(self, followed, layout, name):
        ours, theirs = followed(name, (1, 1))[1], followed(name, layout)[1]
        assert len(ours) == STEPS and ours[-1] < ours[0]
        bound = {"float64": 1e-9, "float32": 1e-5}[name.split("-")[0]]
        assert np.abs(np.subtract(ours, theirs))[:10].max() <= bound


@pytest.mark.long
def test_every_layer_type_and_scheme_has_one_gradient_on_two_ranks(root):
    changes = [{"model__layer": name, "model__neighbourhood": 5} for name in LAYERS]
    changes += [{"model__positions": name} for name in SCHEMES if name != "none"]
    changes += [{"model__scores": name} for name in ("unscaled", "additive", "cosine")]
    sizes = {"training__precision": "float64", "training__steps": 2, "training__warmup": 4, "data__max_len": 100}
    every = {str(change): experiment(root / "text", **sizes, **change) for change in changes}
    one, two = (follow_all(every, root, world, 1) for world in (1, 2))
    for name, (gradients, losses) in one.items():
        assert np.abs(np.subtract(losses, two[name][1])).max() <= 1e-12, name
        for tensor, g in gradients.items():
            off = np.abs(two[name][0][tensor] - g).max()
            assert off <= max(BOUND["float64"] * np.abs(g).max(), 1e-16), f"{name}: {tensor}"  # FIRE's last bias: 0


# --- the scores of whole runs, and worlds that do not fit ---


def scores(run: Path) -> dict:
    return json.loads((run / "result.json").read_bytes())["scores"]


@pytest.mark.parametrize("text", ["text", pytest.param("lines", marks=pytest.mark.long)])
def test_dev_scores_are_identical_on_one_two_and_three_ranks(root, tmp_path, text):
    """The same weights, scored on any number of ranks: not nearly the same, the same."""
    from lightning_tfm.data import module as data_module
    from lightning_tfm.data.module import evaluation_batches
    from lightning_tfm.training.evaluate import evaluate_lines

    e = experiment(root / text, **(LINES | {"data__max_words": 20} if text == "lines" else {}))
    found = []
    for world in (1, 2, 3):

        def work(world=world):
            data_module.EVALUATION_TOKENS = (
                70 if text == "lines" else 60
            )  # several batches, of which the ranks get unequal numbers
            split = prepare(e.data, root).split(e.data.dev)
            batches = evaluation_batches(split)
            assert len(batches) % 2 == 1
            make_trainer(e, Hardware(accelerator="cpu", devices=world), []).strategy.setup_environment()
            rank = torch.distributed.get_rank() if world > 1 else 0
            module = TransformerModule(e, prepare(e.data, root).tokenizer.V)
            return evaluate_lines(module, batches[rank::world], len(split), e.evaluation if e.data.translated else None)

        found.append(on_ranks(world, work, tmp_path / str(world)))
    assert found[0] == found[1] == found[2]
    assert len(found[0]) == {"text": 11, "lines": 10}[text]
    assert all((line.pieces is not None) == e.data.translated for line in found[0])


def test_a_line_scored_twice_or_never_is_an_error():
    from lightning_tfm.training.evaluate import Line, all_lines

    with pytest.raises(RuntimeError, match="each once"):
        all_lines({0: Line(1.0, 2), 2: Line(1.0, 2)}, 2)
    with pytest.raises(RuntimeError, match="each once"):
        all_lines({0: Line(1.0, 2)}, 2)


@pytest.mark.long
def test_a_world_larger_than_the_number_of_sentences(root, tmp_path):
    """Two sentences in all, three ranks: one of them has none and adds exact zeros."""
    write_corpus(tmp_path / "text", pairs=2, longest=5)
    e = experiment(
        tmp_path / "text", data__vocab_size=30, training__steps=4, training__precision="float64", data__dev="test"
    )
    runs = []
    for world in (1, 3):
        runs.append(in_child(train, e, tmp_path / str(world), Hardware(devices=world, log_every=1)))
    ours, theirs = ([line[key] for line in metrics(run) for key in ("loss", "dev_ppl") if key in line] for run in runs)
    assert len(ours) == 8
    assert theirs == pytest.approx(ours, rel=1e-12)


OFTEN = {"log_every": 3, "validate_every": 5, "checkpoint_every": 4}


CUT = pytest.param({"micro_tokens": 70}, 1e-10, marks=pytest.mark.long)


@pytest.mark.parametrize(("change", "bound"), [(OFTEN, 0), CUT], ids=["often", "cut"])
def test_hardware_changes_no_number(root, tmp_path, change, bound, plain_run):
    """Logging, validating and saving at other steps leave not a bit changed; cutting steps only the order of sums."""
    e = experiment(root / "text", training__precision="float64")
    run = in_child(train, e, tmp_path, Hardware(**change))
    assert scores(run)["dev"]["nll"] == pytest.approx(scores(plain_run)["dev"]["nll"], rel=bound, abs=0)
    assert scores(run)["test"]["bleu"] == scores(plain_run)["test"]["bleu"]
    assert metrics(run) != metrics(plain_run) or "micro_tokens" in change


@pytest.fixture(scope="module")
def plain_run(root, tmp_path_factory) -> Path:
    return in_child(train, experiment(root / "text", training__precision="float64"), tmp_path_factory.mktemp("plain"))


# --- the long form ---


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_curves_of_a_hundred_steps(tmp_path, capsys):
    """The miniature with its dropout, at the paper's rates. float64 within 1e-11; float32 within 1e-5 for ten steps:
    after that training multiplies any difference, and step 100 is a draw of chaos that differs between CPUs.
    """
    base = load_experiment("experiments/miniature.yaml", seed=1).scaled()
    rates = {"training.warmup": 4000, "training.lr_factor": 1.0}
    kinds = {"float64": (100, 1e-11), "float32": (10, 1e-5)}
    e = {
        kind: override(base, rates | {"training.steps": steps, "training.precision": kind}, "tests")
        for kind, (steps, _) in kinds.items()
    }
    in_child(prepare, base.data, tmp_path)
    curves = {layout: follow_all(e, tmp_path, *layout) for layout in LAYOUTS}
    apart = {
        (kind, *layout): np.abs(np.subtract(curves[1, 1][kind][1], curves[layout][kind][1])).max()
        for layout in LAYOUTS[1:]
        for kind in kinds
    }
    with capsys.disabled():
        print(*(f"\n{kind}, {world}x{parts}: {off:.1e}" for (kind, world, parts), off in apart.items()))
    assert {kind: len(found[1]) for kind, found in curves[1, 1].items()} == {"float64": 100, "float32": 10}
    assert not {name: off for name, off in apart.items() if off > kinds[name[0]][1]}
