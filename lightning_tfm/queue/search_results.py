"""What a search found: its trials, the best configurations as experiment files, and what mattered."""

import json
import shlex
import warnings
from collections.abc import Callable
from pathlib import Path

import optuna
import yaml
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from lightning_tfm.atomic_io import to_csv, write_atomic
from lightning_tfm.config import to_dict
from lightning_tfm.errors import UserError
from lightning_tfm.plural_words import plural
from lightning_tfm.queue.queue import Queue
from lightning_tfm.queue.studies import open_queue
from lightning_tfm.study.command import fit_command, with_out
from lightning_tfm.study.search import Search
from lightning_tfm.study.study import value_of
from lightning_tfm.study.study_file import folder_of, of_smoke_test
from lightning_tfm.study.trials import STATES, Importance, Trial, best, finite, gain_lines, read_trials

TEST = "best-sweep.yaml"
"""sweep file that tests the best trials as rows"""
NEW_SEEDS = 5
LEAST = 10
"""finished trials below which an importance means nothing"""


def trials_and_importances(search: Search, queue: Queue) -> tuple[list[Trial], list[Importance]]:
    """The trials of a search and what mattered, as the queue has it now; writes nothing."""
    # without tries replaced by a later one
    runs = [t for t in queue.trials() if "run" in t.user_attrs]
    kept = [t for t in runs if t.state != TrialState.FAIL or "final" in t.user_attrs]
    return [_trial(search, t) for t in kept], importances(search, kept)


def trials_or_kept(
    search: Search, root: Path, say: Callable[[str], None], storage: str = ""
) -> tuple[list[Trial], list[Importance]]:
    """As its storage has them now; a copy without one as trials.json has them, which `say` is told.

    Raises UserError where there is neither.
    """
    folder = folder_of(root, search.name)
    try:
        return trials_and_importances(search, open_queue(root, search.name, storage, lambda text: None))
    except UserError as error:
        if not (folder / "trials.json").is_file():
            raise
        say(f"{search.name}: shown from trials.json: {error}")
        return read_trials(search, folder)


def report(search: Search, root: Path, storage: str = "") -> str:
    """Write trials.csv, trials.json, importance.json and the best configurations beside study.json; the summary."""
    folder = folder_of(root, search.name)
    queue = open_queue(root, search.name, storage, lambda text: None)
    trials, mattered = trials_and_importances(search, queue)
    lines = [t.to_line(search) for t in trials]
    for name, written in (("importance", [importance.to_line() for importance in mattered]), ("trials", lines)):
        write_atomic(folder / f"{name}.json", (json.dumps(written, indent=1) + "\n").encode())
    write_atomic(folder / "trials.csv", (to_csv(lines) if lines else "trial\n").encode())
    leading, single = best(trials, search.objectives), len(search.objectives) == 1
    of_best = [t for t in trials if t.trial in leading]
    chosen = {folder / ("best.yaml" if single else f"best-{t.trial}.yaml"): t for t in of_best}
    for path, trial in chosen.items():
        write_atomic(path, _experiment_file(search, trial, path).encode())
    tests = _tests(search, folder, of_best)
    for old in folder.glob("best*.yaml"):
        if old not in (*chosen, *tests):
            old.unlink()
    for path, text in tests.items():
        write_atomic(path, text.encode())
    refused = sum("run" not in t.user_attrs and t.state == TrialState.PRUNED for t in queue.trials())
    printed = [*_summary(search, trials, refused, chosen), *map(importance_text, mattered)]
    if tests and not of_smoke_test(root, search.base):
        command = with_out(f"lightning-tfm sweep {shlex.quote(str(folder / TEST))}", root)
        printed.append(
            f"the best was chosen for its score, which flatters it; to test it at {NEW_SEEDS} new seeds: {command}"
        )
    return "\n".join(printed) + "\n"


def _trial(search: Search, t: FrozenTrial) -> Trial:
    name, every = t.user_attrs["row"], t.user_attrs["change"]
    done = t.state == TrialState.COMPLETE
    values = [finite(x) for x in t.values] if done and t.values else [None] * len(search.objectives)
    return Trial(
        trial=name,
        state=STATES.get(t.state.name.lower(), t.state.name.lower()),
        change={p.name: every[p.name] for p in search.space},
        values=dict(zip(search.objectives, values, strict=True)),
        steps_seen=max(t.intermediate_values, default=None),
        run=t.user_attrs["run"][:16],
        feasible=all(value <= 0 for value in t.constraints.values()),
        reason=t.user_attrs.get("reason", ""),
        command=fit_command(search.of(name, every)),
        by_seed=t.user_attrs.get("by_seed") if done else None,
        tied=search.tied(name, every) or None,
        trained=search.trained(name, every),
    )


def _experiment_file(search: Search, trial: Trial, path: Path) -> str:
    scores = ", ".join(f"{name} {value:.6g}" for name, value in trial.values.items())
    if len(search.trial_seeds) > 1:
        scores += f" (means over the seeds {', '.join(map(str, search.trial_seeds))})"
    head = f"# Found by the search '{search.name}': trial {trial.trial}, run {trial.run}\n"
    head += f"# Expect   {scores}\n# Command  lightning-tfm fit --config {path}\n"
    return head + yaml.safe_dump(to_dict(search.of(trial.trial, trial.change)), sort_keys=False)


def _tests(search: Search, folder: Path, leading: list[Trial]) -> dict[Path, str]:
    """Files of a sweep that tests the best trials against base at new seeds; none where base is the best."""
    rows = {}
    for trial in leading:
        change = {key: value for key, value in trial.sets.items() if value != value_of(search.base, key)}
        if change:
            rows[f"{search.name}-{trial.trial}"] = {"group": "search", "change": change}
    if not rows:
        return {}
    base, added, last = folder / "best-base.yaml", folder / "best-rows.yaml", max(search.trial_seeds)
    sweep = {
        "name": f"{search.name}-test",
        "program": "lightning-tfm",
        "method": "grid",
        "metric": {"name": "dev/ppl", "goal": "minimize"},
        "parameters": {
            "row": {"values": ["base", *rows]},
            "seed": {"values": [last + number for number in range(1, NEW_SEEDS + 1)]},
        },
        "command": ["lightning-tfm", "fit", "--config", str(base), "--rows", str(added), "${args}"],
    }
    head = f"# The best of the search '{search.name}' against its base, at seeds that chose nothing.\n"
    plain = {base: to_dict(search.base), added: rows, folder / TEST: sweep}
    return {path: head + yaml.safe_dump(values, sort_keys=False) for path, values in plain.items()}


def _summary(search: Search, trials: list[Trial], refused: int, chosen: dict[Path, Trial]) -> list[str]:
    states = [f"{sum(t.state == word for t in trials)} {word}" for word in ("finished", "stopped early", "failed")]
    why = "above a limit" + " or of sizes that are not whole" * bool(search.ties)
    lines = [f"{search.name}: {', '.join(states)}" + f", {plural(refused, 'proposal')} {why}" * bool(refused)]
    if search.budget and search.most < search.trials:
        space, trials_asked = plural(len(search.finite() or ()), "point"), plural(search.trials, "trial")
        lines.append(f"the space has {space}: a search of {trials_asked} ends when all are tried")
    for path, trial in chosen.items():
        scores = ", ".join(
            f"{aim} {value:.6g}" + (f" ± {sd:.2g}" if (sd := trial.sd(aim)) is not None else "")
            for aim, value in trial.values.items()
        )
        change = ", ".join(f"{key}={trial.in_words(key)}" for key in trial.sets)
        lines.append(f"{trial.trial}: {scores} with {change} -> {path}")
    if not chosen:
        lines.append("no finished trial is within the limits" if search.constraints else "no finished trial")
    return lines + gain_lines(search, trials, [t.trial for t in chosen.values()])


def importances(search: Search, trials: list[FrozenTrial]) -> list[Importance]:
    """For each objective how much each parameter explains of it, and on how many trials that rests; or why not.

    A run that several trials share counts once.
    """
    once = list({t.user_attrs["run"]: t for t in reversed(trials) if t.state == TrialState.COMPLETE}.values())[::-1]
    done = [t for t in once if t.params]
    stopped = sum(t.state == TrialState.PRUNED for t in trials)
    study = optuna.create_study(directions=[StudyDirection[aim.upper()] for aim in search.directions])
    study.add_trials(done)
    records = []
    for index, name in enumerate(search.objectives):
        why_not, explained = None, None
        if len(done) < LEAST:
            why_not = f"too few to tell: {plural(len(done), 'finished trial')}, at least {LEAST} are needed"
        elif len({t.values[index] for t in done}) == 1:
            why_not = f"all {len(done)} finished trials have the same value"
        else:
            explained = _importances(study, index, search.directions[index])
        records.append(Importance(name, len(done), stopped, why_not, explained))
    return records


def _importances(study: optuna.Study, index: int, direction: str) -> dict[str, float]:
    """PED-ANOVA's share of each parameter in one objective, the largest first."""
    sign = 1 if direction == "minimize" else -1  # the evaluator asks what makes values small
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PedAnovaImportanceEvaluator computes")  # which is what `sign` is for
        return optuna.importance.get_param_importances(study, target=lambda t: sign * t.values[index])


def importance_text(importance: Importance) -> str:
    """One line of the summary."""
    if importance.importance is None:
        return f"importance for {importance.objective}: {importance.why_not}"
    parts = ", ".join(f"{key} {100 * value:.0f} %" for key, value in importance.importance.items())
    without = f", without {importance.stopped} stopped ones" if importance.stopped else ""
    trials = plural(importance.trials, "finished trial")
    return f"importance for {importance.objective} (PED-ANOVA on {trials}{without}): {parts}"
