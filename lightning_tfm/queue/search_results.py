"""What a search found: its trials, the best configurations as experiment files, and what mattered."""

import csv
import io
import json
import warnings
from pathlib import Path
from statistics import stdev
from typing import Any

import optuna
import yaml
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from lightning_tfm.config import to_dict
from lightning_tfm.durable import write_atomic
from lightning_tfm.queue.open import open_queue
from lightning_tfm.queue.queue import Queue
from lightning_tfm.queue.sampling import BY_SEED
from lightning_tfm.study.gains import BASE, gains
from lightning_tfm.study.study import Search, folder_of

LEAST = 10
"""finished trials below which an importance says nothing"""


def found(search: Search, queue: Queue) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The content of trials.json and importance.json as the queue has it now; writes nothing."""
    trials = [t for t in queue.trials() if "run" in t.user_attrs and not _repeated(t)]
    return _records(search, trials), importances(search, trials)


def report(search: Search, root: Path, storage: str = "") -> str:
    """Write trials.csv, trials.json, importance.json and the best configurations beside study.json; the summary."""
    folder = folder_of(root, search.name)
    queue = open_queue(root, search.name, storage, lambda text: None)
    every = queue.trials()
    trials = [t for t in every if "run" in t.user_attrs and not _repeated(t)]
    lines = _records(search, trials)
    found = importances(search, trials)
    write_atomic(folder / "importance.json", (json.dumps(found, indent=1) + "\n").encode())
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
    return "\n".join(_summary(search, every, best, folder, names, found)) + "\n"


def _repeated(trial: FrozenTrial) -> bool:
    """Whether a later try speaks for this trial's cell."""
    return trial.state == TrialState.FAIL and "final" not in trial.user_attrs


def _records(search: Search, trials: list[FrozenTrial]) -> list[dict[str, Any]]:
    found = []
    for t in trials:
        done = t.state == TrialState.COMPLETE
        line: dict[str, Any] = {"trial": t.user_attrs["row"], "state": t.state.name.lower()}
        line |= {name: t.user_attrs["change"][name] for name in (p.name for p in search.space)}
        line |= search.tied(t.user_attrs["row"], t.user_attrs["change"])
        values = t.values if done and t.values else [None] * len(search.objectives)
        line |= dict(zip(search.objectives, values, strict=True))
        line |= _by_seed(search, t)
        line |= {"steps_seen": max(t.intermediate_values, default=None), "run": t.user_attrs["run"][:16]}
        line |= {"feasible": _feasible(t), "reason": t.user_attrs.get("reason", "")}
        found.append(line)
    return found


def _by_seed(search: Search, trial: FrozenTrial) -> dict[str, float | None]:
    """ "NAME sd" and "NAME seed S" of every objective, where trials have several seeds."""
    if len(search.trial_seeds) < 2:
        return {}
    found = trial.user_attrs.get(BY_SEED, {}) if trial.state == TrialState.COMPLETE else {}
    line: dict[str, float | None] = {}
    for name in search.objectives:
        values = found.get(name, {})
        line[f"{name} sd"] = stdev(values.values()) if len(values) > 1 else None
        line |= {f"{name} seed {seed}": values.get(str(seed)) for seed in search.trial_seeds}
    return line


def _feasible(trial: FrozenTrial) -> bool:
    return all(value <= 0 for value in trial.constraints.values())


def _csv(lines: list[dict[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(lines[0]) if lines else ["trial"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return out.getvalue()


def _best(search: Search, trials: list[FrozenTrial]) -> list[FrozenTrial]:
    """The best finished trial that keeps the limits; with several objectives the Pareto front."""
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
    if len(search.trial_seeds) > 1:
        scores += f" (means over the seeds {', '.join(map(str, search.trial_seeds))})"
    head = (
        f"# Found by the search '{search.name}': trial {trial.user_attrs['row']}, run {trial.user_attrs['run'][:16]}\n"
    )
    head += f"# Expect   {scores}\n# Command  lightning-tfm fit --config {path}\n"
    experiment = search.of(trial.user_attrs["row"], trial.user_attrs["change"])
    return head + yaml.safe_dump(to_dict(experiment), sort_keys=False)


def _summary(search, every, best, folder: Path, names: list[str], found: list[dict[str, Any]]) -> list[str]:
    trials = [t for t in every if "run" in t.user_attrs and not _repeated(t)]
    states = {s: sum(t.state == s for t in trials) for s in (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)}
    refused = [t for t in every if "run" not in t.user_attrs and t.state == TrialState.PRUNED]
    points = search.finite()
    lines = [
        f"{search.name}: {states[TrialState.COMPLETE]} finished, {states[TrialState.PRUNED]} stopped early, "
        f"{states[TrialState.FAIL]} failed" + f", {len(refused)} proposals above a limit" * bool(refused)
    ]
    if search.budget and points is not None and len(points) < search.trials - search.based:
        lines.append(f"the space has {len(points)} points: a search of {search.trials} trials ends when all are tried")
    for trial, name in zip(best, names, strict=True):
        line = _by_seed(search, trial)
        scores = ", ".join(
            f"{o} {v:.6g}" + (f" ± {sd:.2g}" if (sd := line.get(f"{o} sd")) is not None else "")
            for o, v in zip(search.objectives, trial.values, strict=True)
        )
        change = ", ".join(
            f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}"
            for key, value in (
                trial.user_attrs["change"] | search.tied(trial.user_attrs["row"], trial.user_attrs["change"])
            ).items()
        )
        lines.append(f"{trial.user_attrs['row']}: {scores} with {change} -> {folder / name}")
    if not best:
        lines.append("no finished trial is within the limits" if search.constraints else "no finished trial")
    base = next((t.values for t in trials if t.user_attrs["row"] == BASE and t.state == TrialState.COMPLETE), None)
    by_seed = {
        t.user_attrs["row"]: {name: list(values.values()) for name, values in t.user_attrs[BY_SEED].items()}
        for t in trials
        if t.state == TrialState.COMPLETE and BY_SEED in t.user_attrs
    }
    lines += gains(search.objectives, search.based, base, {t.user_attrs["row"]: t.values or [] for t in best}, by_seed)
    return lines + [importance_text(one) for one in found]


def importances(search: Search, trials: list[FrozenTrial]) -> list[dict[str, Any]]:
    """For each objective how much each parameter explains of it, and on how many trials that stands; or why not.

    A run that several trials share counts once.
    """
    once = list({t.user_attrs["run"]: t for t in reversed(trials) if t.state == TrialState.COMPLETE}.values())[::-1]
    done = [t for t in once if t.params]
    stopped = sum(t.state == TrialState.PRUNED for t in trials)
    study = optuna.create_study(directions=[StudyDirection[aim.upper()] for aim in search.directions])
    study.add_trials(done)
    records = []
    for index, name in enumerate(search.objectives):
        record: dict[str, Any] = {"objective": name, "trials": len(done), "stopped": stopped}
        if len(done) < LEAST:
            record["why not"] = f"{len(done)} finished trials are too few to tell (at least {LEAST} are needed)"
        elif len({t.values[index] for t in done}) == 1:
            record["why not"] = f"all {len(done)} finished trials have the same value"
        else:
            record["importance"] = _explained(study, index, search.directions[index])
        records.append(record)
    return records


def _explained(study: optuna.Study, index: int, direction: str) -> dict[str, float]:
    """PED-ANOVA's share of each parameter in one objective, the largest first."""
    sign = 1 if direction == "minimize" else -1  # the evaluator asks what makes values small
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PedAnovaImportanceEvaluator computes")  # which is what `sign` is for
        return optuna.importance.get_param_importances(study, target=lambda t: sign * t.values[index])


def importance_text(record: dict[str, Any]) -> str:
    """One line of the summary."""
    if "why not" in record:
        return f"importance for {record['objective']}: {record['why not']}"
    parts = ", ".join(f"{key} {value:.0%}" for key, value in record["importance"].items())
    without = f", without {record['stopped']} stopped ones" if record["stopped"] else ""
    return f"importance for {record['objective']} (PED-ANOVA on {record['trials']} finished trials{without}): {parts}"
