"""What a search found: its trials, the best configurations as experiment files, and what mattered."""

import csv
import io
import json
import warnings
from pathlib import Path
from typing import Any

import optuna
import yaml
from optuna.trial import FrozenTrial, TrialState

from lightning_tfm.config import to_dict
from lightning_tfm.study.claim import Queue
from lightning_tfm.study.definition import file_of
from lightning_tfm.study.files import write_atomic
from lightning_tfm.study.storage import find_storage, remembered
from lightning_tfm.study.tune import Search

LEAST = 10
"""finished trials below which an importance says nothing"""


def report(search: Search, root: Path, storage: str = "") -> str:
    """Write trials.csv, trials.json and the best configurations beside study.json; returns the summary as text."""
    folder = file_of(root, search.name).parent
    address = remembered(storage, folder)
    queue = Queue(search.name, find_storage(address, folder), lambda text: None, create=False)
    study = queue.study(optuna.samplers.RandomSampler(), optuna.pruners.NopPruner())
    trials = [t for t in study.get_trials(deepcopy=False) if "run" in t.user_attrs and not _repeated(t, study)]
    lines = _records(search, trials)
    write_atomic(folder / "trials.json", (json.dumps(lines, indent=1) + "\n").encode())
    write_atomic(folder / "trials.csv", _csv(lines).encode())
    best = _best(search, trials)
    names = []
    for trial in best:
        names.append("best.yaml" if len(search.objectives) == 1 else f"best-{trial.user_attrs['row']}.yaml")
        write_atomic(folder / names[-1], _experiment_file(search, trial, folder / names[-1]).encode())
    for old in folder.glob("best*.yaml"):
        if old.name not in names:
            old.unlink()
    return "\n".join(_summary(search, study, trials, best, folder, names)) + "\n"


def _repeated(trial: FrozenTrial, study: optuna.Study) -> bool:
    """Whether a later try speaks for this trial's cell."""
    return trial.state == TrialState.FAIL and "final" not in trial.user_attrs


def _records(search: Search, trials: list[FrozenTrial]) -> list[dict[str, Any]]:
    found = []
    for t in trials:
        done = t.state == TrialState.COMPLETE
        line: dict[str, Any] = {"trial": t.user_attrs["row"], "state": t.state.name.lower()}
        line |= {name: t.user_attrs["change"][name] for name in (p.name for p in search.space)}
        values = t.values if done and t.values else [None] * len(search.objectives)
        line |= dict(zip(search.objectives, values, strict=True))
        line |= {"steps_seen": max(t.intermediate_values, default=None), "run": t.user_attrs["run"][:16]}
        line |= {"feasible": _feasible(t), "reason": t.user_attrs.get("reason", "")}
        found.append(line)
    return found


def _feasible(trial: FrozenTrial) -> bool:
    return all(value <= 0 for value in trial.constraints.values())


def _csv(lines: list[dict[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(lines[0]) if lines else ["trial"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return out.getvalue()


def _best(search: Search, trials: list[FrozenTrial]) -> list[FrozenTrial]:
    """The best finished trial that keeps the limits; with several objectives all that no other one beats."""
    done = [t for t in trials if t.state == TrialState.COMPLETE and _feasible(t)]
    signs = [1 if direction == "minimize" else -1 for direction in search.directions]

    def losses(trial: FrozenTrial) -> list[float]:
        return [sign * value for sign, value in zip(signs, trial.values or [], strict=True)]

    if len(signs) == 1:
        return sorted(done, key=lambda t: (losses(t), t.number))[:1]
    return [
        t
        for t in done
        if not any(
            all(a <= b for a, b in zip(losses(o), losses(t), strict=True)) and losses(o) != losses(t) for o in done
        )
    ]


def _experiment_file(search: Search, trial: FrozenTrial, path: Path) -> str:
    scores = ", ".join(f"{name} {value:.6g}" for name, value in zip(search.objectives, trial.values or [], strict=True))
    head = (
        f"# Found by the search '{search.name}': trial {trial.user_attrs['row']}, run {trial.user_attrs['run'][:16]}\n"
    )
    head += f"# Expect   {scores}\n# Command  lightning-tfm fit --config {path}\n"
    experiment = search.experiment(trial.user_attrs["change"])
    return head + yaml.safe_dump(to_dict(experiment), sort_keys=False)


def _summary(search, study, trials, best, folder: Path, names: list[str]) -> list[str]:
    states = {s: sum(t.state == s for t in trials) for s in (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)}
    refused = [
        t for t in study.get_trials(deepcopy=False) if "run" not in t.user_attrs and t.state == TrialState.PRUNED
    ]
    lines = [
        f"{search.name}: {states[TrialState.COMPLETE]} finished, {states[TrialState.PRUNED]} stopped early, "
        f"{states[TrialState.FAIL]} failed" + f", {len(refused)} proposals above a limit" * bool(refused)
    ]
    for trial, name in zip(best, names, strict=True):
        scores = ", ".join(f"{o} {v:.6g}" for o, v in zip(search.objectives, trial.values, strict=True))
        change = ", ".join(
            f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}"
            for key, value in trial.user_attrs["change"].items()
        )
        lines.append(f"{trial.user_attrs['row']}: {scores} with {change} -> {folder / name}")
    if not best:
        lines.append("no finished trial keeps the limits" if search.constraints else "no finished trial")
    return lines + importance(search, study)


def importance(search: Search, study: optuna.Study) -> list[str]:
    """How much each parameter explains of each objective, and on how many trials that stands."""
    done = [t for t in study.get_trials(deepcopy=False) if t.state == TrialState.COMPLETE]
    stopped = sum(t.state == TrialState.PRUNED and "run" in t.user_attrs for t in study.get_trials(deepcopy=False))
    if len(done) < LEAST:
        return [f"importance: {len(done)} finished trials are too few to tell ({LEAST} at least)"]
    lines = []
    for index, name in enumerate(search.objectives):
        if len({t.values[index] for t in done}) == 1:
            lines.append(f"importance for {name}: all {len(done)} finished trials have the same value")
            continue
        sign = 1 if search.directions[index] == "minimize" else -1  # the evaluator asks what makes values small
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "PedAnovaImportanceEvaluator computes")  # which is what `sign` is for
            found = optuna.importance.get_param_importances(
                study, target=lambda t, i=index, sign=sign: sign * t.values[i]
            )
        parts = ", ".join(f"{key} {value:.0%}" for key, value in found.items())
        lines.append(
            f"importance for {name} (PED-ANOVA on {len(done)} finished trials"
            + (f", without {stopped} stopped ones" if stopped else "")
            + f"): {parts}"
        )
    return lines
