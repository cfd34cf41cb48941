"""The stages, each a function of the place that it runs at: `python -m benchmarks.gpu.stages NAME DIR [--tiny]`."""

import os
import platform
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch

from benchmarks.gpu.setting import Place, Work, pace
from lightning_tfm.accel import kernels
from lightning_tfm.accel.on_gpu import DeviceMasks
from lightning_tfm.config import Experiment, Hardware, Model
from lightning_tfm.model.feed_forward import ReLU
from lightning_tfm.runs.environment import cpu_model, git_state
from lightning_tfm.runs.trainer import Checkpoints, make_trainer
from lightning_tfm.training.backend import attention_backends
from lightning_tfm.training.module import TransformerModule
from lightning_tfm.training.precision import set_flags

HERE = "not possible here: "


def facts(place: Place) -> None:
    versions = {}
    for name in ("torch", "triton", "lightning", "numpy"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    git = git_state()
    place.say(
        "machine", cpu=cpu_model(), cpus=os.cpu_count(), system=platform.release(), python=platform.python_version()
    )
    place.say("versions", **versions, commit=git and git.commit, changed=git and git.changed)
    if place.gpu:
        p = torch.cuda.get_device_properties(0)
        driver = subprocess.run(
            ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True
        ) if shutil.which("nvidia-smi") else SimpleNamespace(stdout="")  # fmt: skip
        place.say(
            "device",
            name=p.name,
            capability=f"{p.major}.{p.minor}",
            multiprocessors=p.multi_processor_count,
            GiB=round(p.total_memory / 2**30, 1),
            driver=driver.stdout.strip(),
            devices=torch.cuda.device_count(),
        )
    else:
        place.say("device", name="none: a rehearsal on the CPU")


# --- ceilings ---


def ceilings(place: Place) -> None:
    """Products on random numbers: equal ones are computed faster."""
    N, D, F, V = (64, 32, 64, 500) if place.tiny else (25_000, 512, 2048, 37_000)
    shapes = {
        "QKV": (N, D, 3 * D),
        "O": (N, D, D),
        "cross Q": (N, D, D),
        "cross KV": (N, D, 2 * D),
        "W_1": (N, D, F),
        "W_2": (N, F, D),
        "logits": (N, D, V),
        "gradient of the output": (N, V, D),
        "gradient of the matrix": (V, N, D),
    }
    for kind, dtype in (("bfloat16", torch.bfloat16), ("tfloat32", torch.float32), ("float32", torch.float32)):
        torch.set_float32_matmul_precision("high" if kind == "tfloat32" else "highest")
        for name, (m, k, n) in shapes.items():
            a, b = (torch.randn(*size, device=place.device).to(dtype) for size in ((m, k), (k, n)))
            seconds = place.clock(lambda a=a, b=b: a @ b, place.seconds / 40)
            place.say("product", name=name, dtype=kind, shape=[m, k, n], tflops=round(2e-12 * m * k * n / seconds, 3))
    source = torch.randn(1 << (16 if place.tiny else 28), device=place.device)
    target = torch.empty_like(source)
    seconds = place.clock(lambda: target.copy_(source))
    place.say("copy", bytes=source.nbytes, GB_per_second=round(2 * source.nbytes / seconds / 1e9, 1))
    small = torch.zeros(1, device=place.device)

    def launches() -> None:
        for _ in range(1000):
            small.add_(1)

    place.say("launch", microseconds=round(1e3 * place.clock(launches), 3))


# --- exact ---


def exact(place: Place) -> None:
    checks: list[Callable[[Place], dict[str, Any]]] = [
        masks_are_numpys,
        gradients_are_those_of_a_cpu,
        kernels_are_their_formulas,
        the_same_step_twice,
        no_step_waits,
        killed_and_resumed,
        a_checkpoint_is_read_on_a_cpu,
    ]
    failed = 0
    for check in checks:
        try:
            result = check(place)
        except Exception:
            traceback.print_exc()
            result = {"passed": False, "why": traceback.format_exc().splitlines()[-1][:300]}
        failed += result.get("passed") is False
        place.say(check.__name__.replace("_", " "), **result)
    for name, model in attention_models(place).items():
        for kind in ("bfloat16", "float32"):
            place.say("attention", row=name, dtype=kind, backends=attention_backends(model, place.device, kind))
    if failed:
        raise SystemExit(f"{failed} checks failed")


def attention_models(place: Place) -> dict[str, Model]:
    """The heads of the paper's rows, and the schemes."""
    m = Model()
    rows = {f"h{h}": replace(m, h=h, d_k=512 // h, d_v=512 // h) for h in (8, 1, 4, 16, 32)}
    rows |= {f"dk{k}": replace(m, d_k=k) for k in (16, 32)}
    rows |= {name: replace(m, positions=name) for name in ("rotary", "shaw", "alibi")}
    return dict(list(rows.items())[:: 4 if place.tiny else 1])


def small_work(place: Place, **training: Any) -> Work:
    """A model small enough for a CPU beside it; smooth, for a ReLU near 0 within rounding moves every gradient."""
    model = Model(N=2, d_model=128, d_ff=256, h=4, d_k=32, d_v=32)
    model = Model(N=1, d_model=16, d_ff=24, h=2, d_k=8, d_v=8) if place.tiny else model
    e = place.base(**training)
    e = replace(
        e,
        model=replace(model, feed_forward="gelu"),
        training=replace(e.training, tokens=200 if place.tiny else 2000, warmup=20),
    )
    return Work(place, e, 60 if place.tiny else 1000)


def masks_are_numpys(place: Place) -> dict[str, Any]:
    if not kernels.runs_on(place.device):
        return {"why": HERE + "no GPU beside Triton"}
    work = Work(place, place.base(), place.V)
    module, batch = work.module(), work.loader().step(3).micro[0]
    formula = module.masks
    like = torch.empty(0, device=place.device)
    found = DeviceMasks(formula, place.device).between(3, batch.to(place.device), like)
    wanted = formula.between(3, batch, torch.empty(0))
    same = all(torch.equal(ours.cpu(), theirs) for ours, theirs in zip(found, wanted, strict=True))
    return {"passed": same, "elements": sum(side.numel() for side in wanted)}


def gradients(
    work: Work, device: torch.device, wanted: str = "none", open_units: list[torch.Tensor] | None = None
) -> dict[str, torch.Tensor]:
    """Of step 1, on the CPU and in float64 for comparing. `open_units` collects which inputs of ReLUs are above 0."""
    t = work.experiment.training
    set_flags(t.precision, device.type == "cuda")
    module = work.module(Hardware(kernels=wanted), device).to(device).train()
    if open_units is not None:
        for part in module.modules():
            if isinstance(part, ReLU):
                part.W_1.register_forward_hook(lambda _, __, z: open_units.append((z > 0).cpu()))
    batch = work.loader().step(1).micro[0].to(device)
    with torch.autocast(device.type, torch.bfloat16, enabled=t.precision == "bfloat16"):
        loss, _ = module.batch_loss(1, batch)
    (loss / batch.target_tokens).backward()
    return {name: p.grad.detach().double().cpu() for name, p in module.named_parameters() if p.grad is not None}


def apart(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> float:
    """The farthest that a tensor lies from its counterpart, of the counterpart's norm."""
    return max(float((ours[name] - g).norm() / g.norm()) for name, g in theirs.items() if g.norm() > 0)


BOUNDS = {"float32": 1e-5, "bfloat16": 1e-2}


def gradients_are_those_of_a_cpu(place: Place) -> dict[str, Any]:
    """In float32 by their distance; in bfloat16, where each device rounds in its own order, by the distance from the
    CPU's float32, at most twice as far as the CPU's own bfloat16 (0.012 of the norm: an H100's is 0.011 from that)."""
    work = {kind: small_work(place, precision=kind) for kind in BOUNDS}
    exact, rounded = (gradients(work[kind], torch.device("cpu")) for kind in BOUNDS)
    ours = {kind: apart(gradients(work[kind], place.device), exact) for kind in BOUNDS}
    cpu = apart(rounded, exact)
    passed = ours["float32"] <= BOUNDS["float32"] and ours["bfloat16"] <= 2 * cpu
    return {"passed": passed, **ours, "bfloat16 on the CPU": cpu, **by_relu(place)}


def by_relu(place: Place) -> dict[str, Any]:
    """The paper's activation in float32, beside the number of its inputs whose sign is another on the device."""
    work = small_work(place, precision="float32")
    e = work.experiment
    work = replace(work, experiment=replace(e, model=replace(e.model, feed_forward="relu")))
    here: list[torch.Tensor] = []
    there: list[torch.Tensor] = []
    moved = apart(gradients(work, place.device, "none", here), gradients(work, torch.device("cpu"), "none", there))
    flips = sum(int((a != b).sum()) for a, b in zip(here, there, strict=True))
    return {"relu": moved, "relu_flips": flips, "relu_inputs": sum(a.numel() for a in here)}


def kernels_are_their_formulas(place: Place) -> dict[str, Any]:
    if not kernels.runs_on(place.device):
        return {"why": HERE + "no GPU beside Triton"}
    distances = {}
    for kind in BOUNDS:
        work = small_work(place, precision=kind)
        distances[kind] = apart(gradients(work, place.device, "all"), gradients(work, place.device, "none"))
    cut = 1 if place.gpu else 2  # Triton's interpreter cuts off where a GPU rounds
    return {"passed": all(distances[kind] <= cut * bound for kind, bound in BOUNDS.items()), **distances}


def the_same_step_twice(place: Place) -> dict[str, Any]:
    equal = {}
    torch.use_deterministic_algorithms(place.gpu)
    for kind in BOUNDS:
        for wanted in ("masks", "all") if kernels.runs_on(place.device) else ("masks",):
            work = small_work(place, precision=kind)
            first, again = (gradients(work, place.device, wanted) for _ in range(2))
            equal[f"{kind}, {wanted}"] = all(torch.equal(first[name], g) for name, g in again.items())
    torch.use_deterministic_algorithms(False)
    return {"passed": all(equal.values()), **equal}


def no_step_waits(place: Place) -> dict[str, Any]:
    if not (place.gpu and kernels.runs_on(place.device)):
        return {"why": HERE + "no GPU beside Triton: masks drawn on the CPU are waited for"}
    work = small_work(place, precision="bfloat16")

    strict = []

    class Strict(pl.Callback):
        """Steps 3 to 8; Lightning's teardown, after the last one, waits and may."""

        def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
            if batch_idx >= 3:
                torch.cuda.set_sync_debug_mode("error")

        def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            torch.cuda.set_sync_debug_mode("default")
            strict.extend([batch_idx] * (batch_idx >= 3))

    from lightning_tfm.data.prefetcher import Prefetcher

    steps = replace(work.experiment, training=replace(work.experiment.training, steps=9))
    trainer = make_trainer(steps, place.hardware(), [Strict()])
    try:
        trainer.fit(work.module(), train_dataloaders=Prefetcher(work.loader(), True))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return {"passed": strict == [3, 4, 5, 6, 7, 8]}


class Killer(pl.Callback):
    """Saves after `step` steps and dies."""

    def __init__(self, step: int, path: Path):
        self.step, self.path = step, path

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step == self.step:
            trainer.save_checkpoint(self.path)
            os.kill(os.getpid(), signal.SIGKILL)


def train_twelve_steps(place: Place, kill: int, resume: bool, path: Path) -> None:
    """Twelve steps; one that is killed after `kill`, or goes on after that. For a process of its own."""
    work = small_work(place, precision="bfloat16")
    e = replace(work.experiment, training=replace(work.experiment.training, steps=12))
    work = replace(work, experiment=e)
    module = work.module()
    trainer = make_trainer(e, place.hardware(), [Killer(kill, path)] if kill and not resume else [])
    loader = work.loader(kill if resume else 0)
    trainer.fit(module, train_dataloaders=loader, ckpt_path=str(path) if resume else None)
    torch.save({k: v.cpu() for k, v in module.state_dict().items()}, path.with_suffix(f".{int(resume)}.pt"))


def killed_and_resumed(place: Place) -> dict[str, Any]:
    path = place.out / "killed.ckpt"
    codes = []
    for kill, resume in ((0, False), (5, False), (5, True)):
        words = [sys.executable, "-m", "benchmarks.gpu.stages", "trained", str(place.out), *["--tiny"] * place.tiny]
        codes.append(subprocess.run([*words, str(kill), str(int(resume)), str(path)]).returncode)
    whole, resumed = (torch.load(path.with_suffix(f".{i}.pt"), weights_only=True) for i in (0, 1))
    same = all(torch.equal(whole[name], value) for name, value in resumed.items())
    return {"passed": same and codes == [0, -signal.SIGKILL, 0], "exit_codes": codes}


def a_checkpoint_is_read_on_a_cpu(place: Place) -> dict[str, Any]:
    state = Checkpoints().load_checkpoint(place.out / "killed.ckpt")
    tensors = [x for x in state["state_dict"].values() if isinstance(x, torch.Tensor)]
    return {"passed": bool(tensors) and all(x.device.type == "cpu" for x in tensors), "tensors": len(tensors)}


# --- speed ---


def today(place: Place) -> None:
    """The most decisive first. Masks by sentence are the kernel's, NumPy's (`none`), or the device's own (`device`)."""
    everything = "all" if kernels.runs_on(place.device) else "masks"
    ways: list[tuple[str, str, str, bool]] = [
        ("bfloat16", "sentence", everything, False),
        ("float32", "sentence", everything, False),
        ("bfloat16", "sentence", "masks", False),
        ("bfloat16", "device", everything, False),
        ("bfloat16", "sentence", everything, True),
        ("bfloat16", "sentence", "none", False),
    ]
    if place.gpu:
        ways.insert(1, ("tfloat32", "sentence", everything, False))
    for kind, masks, wanted, compiled in ways if not place.tiny else ways[:4]:
        work = Work(place, place.base(precision=kind, masks=masks), place.V)
        attempt(
            place, work, place.hardware(kernels=wanted, compile=compiled), precision=kind, masks=masks, kernels=wanted
        )


def attempt(place: Place, work: Work, hardware: Any, **named: Any) -> None:
    """One configuration; what it cannot do is a line, too."""
    try:
        place.say("pace", **named, compiled=hardware.compile, **pace(work, hardware))
    except Exception:
        traceback.print_exc()
        place.say("pace", **named, compiled=hardware.compile, failed=traceback.format_exc().splitlines()[-1][:300])


def trace(place: Place) -> None:
    from lightning_tfm.training.callback import SKIPPED, TRACED, Profile

    e = place.base(precision="bfloat16")
    e = replace(e, training=replace(e.training, steps=SKIPPED + TRACED))
    work = Work(place, e, place.V)
    make_trainer(e, place.hardware(), [Profile(place.out / "trace")]).fit(
        work.module(), train_dataloaders=work.loader()
    )
    place.say("trace", files=sorted(path.name for path in (place.out / "trace").iterdir()))


def parts(place: Place) -> None:
    """What each part of the way is worth: base in bfloat16, everything on, and one thing off at a time."""
    everything = "all" if kernels.runs_on(place.device) else "masks"
    work = Work(place, place.base(precision="bfloat16"), place.V)
    for name, wanted in {"nothing": everything, "the loss kernel": "masks"}.items():
        attempt(place, work, place.hardware(kernels=wanted), left_out=name)

    def read_every_step(module: TransformerModule) -> None:
        module.on_train_start = lambda: (type(module).on_train_start(module), setattr(module.pending, "every", 1))[0]

    def in_any_order(module: TransformerModule) -> None:
        torch.use_deterministic_algorithms(False)

    hardware = place.hardware(kernels=everything)
    place.say("pace", left_out="steps made ahead", **pace(work, hardware, ahead=False))
    place.say("pace", left_out="losses read together", **pace(work, hardware, prepare=read_every_step))
    place.say("pace", left_out="determinism", **pace(work, hardware, prepare=in_any_order))


def alone(place: Place) -> None:
    """Each kernel and its formula on the rows of base, forward and backward."""
    if not kernels.runs_on(place.device):
        place.say("kernels", why=HERE + "no GPU beside Triton")
        return
    from lightning_tfm.accel.kernels import loss
    from lightning_tfm.training.loss import smoothed_nll, smoothing_weights

    N, D = (64, 32) if place.tiny else (25_000, 512)
    rows, matrix = (torch.randn(n, D, device=place.device, requires_grad=True) for n in (N, place.V))
    wanted = torch.randint(place.V, (N,), device=place.device)
    ways: dict[str, Callable[[], Any]] = {
        "kernel": lambda: loss.smoothed_nll(
            rows, matrix, wanted, *smoothing_weights(0.1, place.V, "vocabulary"), torch.bfloat16
        ),
        "formula": lambda: smoothed_nll(rows, matrix, wanted, 0.1, "vocabulary"),
    }
    for who, way in ways.items():

        def backward(way: Callable[[], Any] = way) -> None:
            with torch.autocast(place.device.type, torch.bfloat16):
                loss = way()[0]
            loss.backward()

        place.say("loss", who=who, dtype="bfloat16", ms=round(1e3 * place.clock(backward, place.seconds / 40), 4))
    work = Work(place, place.base(), place.V)
    formula, batch = work.module().masks, work.loader().step(3).micro[0].to(place.device)
    drawing, like = DeviceMasks(formula, place.device), torch.empty(0, device=place.device)
    seconds = place.clock(lambda: drawing.between(3, batch, like), 0.0 if place.tiny else 0.2)
    place.say("masks", who="kernel", ms=round(1e3 * seconds, 4))


def one_small(place: Place) -> None:
    """One of several processes."""
    speed = pace(Work(place, small_experiment(place), 800), place.hardware())
    print(f"rate {speed['target_tokens_per_second']}")


def small_experiment(place: Place) -> Experiment:
    model = Model(N=3, d_model=64, d_ff=256, h=8, d_k=8, d_v=8)
    e = place.base()
    return replace(
        e, model=e.model if place.tiny else model, training=replace(e.training, tokens=400 if place.tiny else 4000)
    )


def small(place: Place) -> None:
    """Processes that take turns on the device, and clients of an MPS where one can be started."""
    together(place, "turns", (1, 4))
    control = "nvidia-cuda-mps-control"
    if place.gpu and shutil.which(control) and subprocess.run([control, "-d"]).returncode == 0:
        together(place, "MPS", (4, 14))
        subprocess.run([control], input="quit\n", text=True)


def together(place: Place, way: str, counts: tuple[int, ...]) -> None:
    for count in (2,) if place.tiny else counts:
        words = [sys.executable, "-m", "benchmarks.gpu.stages", "one_small", str(place.out), *["--tiny"] * place.tiny]
        running = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(count)]
        outputs = [process.communicate()[0].splitlines() for process in running]
        rates = [int(line.removeprefix("rate ")) for lines in outputs for line in lines if line.startswith("rate ")]
        place.say("processes", way=way, count=count, came_through=len(rates), target_tokens_per_second=sum(rates))


def decoding(place: Place) -> None:
    from lightning_tfm.model.beam_search import beam_search

    model = TransformerModule(place.base(), place.V).transformer.eval().to(place.device)
    sentences, length = (4, 6) if place.tiny else (64, 25)
    source = torch.from_numpy(np.random.default_rng(0).integers(4, place.V, (sentences, length))).to(place.device)
    for beam in (1, 4):
        seconds = place.clock(lambda beam=beam: beam_search(model, source, beam, 0.6, 2 if place.tiny else 25))
        place.say("decoding", beam=beam, sentences_per_second=round(sentences / seconds, 2), precision="float32")


def checkpoints(place: Place) -> None:
    module = TransformerModule(place.base(), place.V).to(place.device)
    optimizer = module.configure_optimizers()
    for p in module.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    state, path = {"state_dict": module.state_dict(), "optimizer": optimizer.state_dict()}, place.out / "base.ckpt"
    seconds = place.clock(lambda: Checkpoints().save_checkpoint(state, path), 0)
    loading = place.clock(lambda: Checkpoints().load_checkpoint(path), 0)
    place.say(
        "checkpoint", bytes=path.stat().st_size, seconds_to_write=round(seconds, 3), seconds_to_read=round(loading, 3)
    )
    path.unlink()


def miniature(place: Place) -> None:
    """Each row for a moment, by itself; the time of the table is a sum, not a training."""
    from lightning_tfm.study.settings import load_experiment
    from lightning_tfm.yaml_files import read_yaml

    names = [*read_yaml("experiments/table3.yaml").values]
    total = 0.0
    for name in names[:: 8 if place.tiny else 1]:
        e = load_experiment("experiments/miniature.yaml", row=None if name == "base" else name).scaled()
        steps = e.training.steps
        e = replace(e, training=replace(e.training, steps=1 << 20))
        quick = replace(place, tiny=True)  # a third of a second of each
        speed = pace(Work(quick, e, 800), place.hardware())
        total += steps * speed["ms_step"] / 1e3
        place.say("row", row=name, ms_step=speed["ms_step"], minutes=round(steps * speed["ms_step"] / 6e4, 2))
    place.say("table", rows=len(names[:: 8 if place.tiny else 1]), minutes_by_one_process=round(total / 60, 1))


def main(argv: list[str]) -> None:
    name, out, *rest = argv
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # strict determinism asks for it
    place = Place(Path(out), "--tiny" in rest, name)
    if name == "trained":
        kill, resume, path = rest[-3:]
        train_twelve_steps(place, int(kill), resume == "1", Path(path))
    else:
        globals()[name](place)


if __name__ == "__main__":
    began = time.perf_counter()
    main(sys.argv[1:])
    print(f"{time.perf_counter() - began:.1f} s")
