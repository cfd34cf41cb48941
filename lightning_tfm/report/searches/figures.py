"""Pictures of a search: importance, course, parallel coordinates, objectives against each other."""

from collections.abc import Sequence
from typing import Any

from lightning_tfm.plural_words import plural
from lightning_tfm.report.charts.curves import falls
from lightning_tfm.report.charts.panels import short_name
from lightning_tfm.report.charts.svg import (
    Scale,
    bottom_axis,
    figure,
    label,
    left_axis,
    number,
    pointed,
    points,
    short,
    spanning,
    tag,
)
from lightning_tfm.report.searches.summary import SearchSummary
from lightning_tfm.study.space import Parameter
from lightning_tfm.study.trials import Importance, Trial

ABOVE = 1.8
"""times the end of four fifths of all curves: where a straight axis ends"""
LOG_FROM = 10
"""an axis whose largest value is this many times its smallest is logarithmic"""


def shades(report: SearchSummary, objective: str) -> dict[str, str]:
    """trial -> class of its colour: the best, the better quarter, the worse rest."""
    sign = 1 if report.objectives[objective] == "minimize" else -1
    order = sorted(report.with_values(objective), key=lambda t: sign * value_of(t, objective))
    quarter = max(1, round(len(order) / 4))
    kind = {t.trial: "better" if i < quarter else "rest" for i, t in enumerate(order)}
    return kind | {name: "best" for name in report.best if name in kind}


def value_of(t: Trial, objective: str) -> float:
    value = t.values[objective]
    assert value is not None, "only trials with a value are drawn"
    return value


def said(t: Trial) -> str:
    """What pointing at a trial shows."""
    change = ", ".join(f"{k} {_short(v)}" for k, v in t.change.items())
    values = ", ".join(f"{k} {_short(v)}" for k, v in t.values.items())
    return f"{t.trial}: {values}; {change}"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def value_scale(values: Sequence[float], start: float, end: float) -> Scale:
    return spanning(values, start, end, log=min(values) > 0 and max(values) > LOG_FROM * min(values))


def importance(record: Importance) -> str:
    """Bars: the share that each parameter explains."""
    found = record.importance
    if not found:
        return ""
    width, left, line, top = 640, 170, 24, 8
    bottom = top + line * len(found)
    x = Scale(0.0, 1.0, left, width - 60)
    body = bottom_axis(x, bottom, top, f"share explained (PED-ANOVA on {plural(record.trials, 'finished trial')})")
    for i, (name, share) in enumerate(found.items()):
        y = top + line * i
        bar = tag("rect", x=x(0), y=y + 4.0, width=max(x(share) - x(0), 1.0), height=line - 8.0, class_="bar")
        words = label(left - 8, y + line / 2 + 4, short_name(name), "end")
        words += label(x(share) + 5, y + line / 2 + 4, f"{100 * share:.0f} %")
        body += tag("g", pointed(f"{name}: {100 * share:.1f} %") + bar + words, class_="g3")
    return figure(width, bottom + 38, f"Importance of each parameter for {record.objective}", body)


def course(report: SearchSummary, objective: str) -> str:
    """The objective trial by trial, and the best so far."""
    trials = report.with_values(objective)
    if not trials:
        return ""
    width, height, left, right, top, bottom = 640, 320, 50, 626, 26, 276
    x = spanning([float(_at(report, t)) for t in (*trials, *stopped(report))], left, right)
    y = value_scale([value_of(t, objective) for t in trials], bottom, top)
    body = bottom_axis(x, bottom, top, "trial") + left_axis(y, left, right, objective)
    less = report.objectives[objective] == "minimize"
    line: list[tuple[float, float]] = []
    for t in trials:
        value, here = value_of(t, objective), x(float(_at(report, t)))
        if t.feasible:
            reached = line[-1][1] if line else y(value)
            now = max(reached, y(value)) if less else min(reached, y(value))
            line += [(here, reached), (here, now)]
    body += tag("polyline", points=points(line), class_="front")
    edge = float(top if less else bottom)
    body += "".join(cross(t, x(float(_at(report, t))), edge) for t in stopped(report))
    kind = shades(report, objective)
    body += "".join(_dot(t, kind[t.trial], x(float(_at(report, t))), y(value_of(t, objective))) for t in trials)
    return figure(width, height, f"{objective} trial by trial", body)


def stopped(report: SearchSummary) -> list[Trial]:
    """Trials that were stopped early; they have no final value."""
    return [t for t in report.trials if t.state == "stopped early"]


def cross(t: Trial, x: float, y: float) -> str:
    """A trial that was stopped early."""
    path = f"M{number(x - 3)} {number(y - 3)}l6 6m0-6l-6 6"
    change = ", ".join(f"{k} {_short(v)}" for k, v in t.change.items())
    title = pointed(f"{t.trial} stopped early at step {t.steps_seen}: {change}")
    return tag("g", title + tag("path", d=path, class_="curve"), class_="hover stopped", data_trial=t.trial)


def _at(report: SearchSummary, trial: Trial) -> int:
    return next(i for i, t in enumerate(report.trials) if t.trial == trial.trial)


def _dot(t: Trial, kind: str, x: float, y: float, r: float = 4.5) -> str:
    mark = tag("circle", cx=x, cy=y, r=r, class_="dot")
    return tag("g", pointed(said(t)) + mark, class_=f"point {kind}", data_trial=t.trial)


class Axis:
    """Where a parameter's values are between `start` and `end`: a range, straight or logarithmic, or a list."""

    def __init__(self, parameter: Parameter, start: float, end: float):
        self.start, self.end, self.list = start, end, None
        if parameter.distribution in ("categorical", "constant"):
            self.list = list(parameter.values)
            return
        log = parameter.distribution == "log_uniform_values"
        low, high = float(parameter.low), float(parameter.high)
        self.scale = Scale(low, high if high > low else low + 1, start, end, log)

    def __call__(self, value: Any) -> float:
        if self.list is None:
            return self.scale(float(value))
        place = self.list.index(value) if value in self.list else len(self.list)
        return self.start + (place + 0.5) / max(len(self.list), 1) * (self.end - self.start)

    def ticks(self) -> list[tuple[float, str]]:
        """(place, words)"""
        if self.list is None:
            return [(self.scale(v), short(v)) for v in self.scale.ticks(4)]
        return [(self(v), short_name(str(v), 10)) for v in self.list]


def parallel(report: SearchSummary, objective: str) -> str:
    """One line for each finished trial through its parameters to the objective."""
    trials = report.with_values(objective)
    if not trials:
        return ""
    space = report.space
    top, bottom, gap = 40, 320, max(130, 1060 // max(len(space), 1))
    width = 80 + gap * len(space) + 60
    axes = [Axis(p, bottom, top) for p in space]
    end = value_scale([value_of(t, objective) for t in trials], bottom, top)
    ticks = [axis.ticks() for axis in axes] + [[(end(v), short(v)) for v in end.ticks()]]
    names = [p.name for p in space] + [objective]
    body = over = ""
    for i, (name, marks) in enumerate(zip(names, ticks, strict=True)):
        x = 70.0 + gap * i
        body += tag("line", x1=x, x2=x, y1=top, y2=bottom, class_="axis")
        body += label(x, top - 14 - 13 * (i % 2), short_name(name, 24), "middle", "title")
        over += "".join(label(x - 6, y + 4, words, "end", "tick halo") for y, words in marks)
        over += tag(
            "rect", x=x - 12, y=float(top), width=24.0, height=float(bottom - top), class_="handle", data_axis=i
        )
    kind = shades(report, objective)
    for t in stopped(report):
        places = [axis(t.change[p.name]) for axis, p in zip(axes, space, strict=True)]
        path = " ".join(f"{number(70.0 + gap * i)},{number(y)}" for i, y in enumerate(places))
        title = pointed(f"{t.trial} stopped early at step {t.steps_seen}")
        body += tag(
            "g", title + tag("polyline", points=path, class_="curve"), class_="hover stopped", data_trial=t.trial
        )
    order = {"rest": 0, "better": 1, "best": 2}
    for t in sorted(trials, key=lambda t: (order[kind[t.trial]], t.trial)):
        places = [axis(t.change[p.name]) for axis, p in zip(axes, space, strict=True)]
        places.append(end(value_of(t, objective)))
        path = " ".join(f"{number(70.0 + gap * i)},{number(y)}" for i, y in enumerate(places))
        content = pointed(said(t)) + tag("polyline", points=path, class_="curve")
        body += tag("g", content, class_=f"series {kind[t.trial]}", data_row=t.trial, data_trial=t.trial)
    return figure(width, bottom + 16, f"Parallel coordinates of all finished trials, to {objective}", body + over)


def training(report: SearchSummary, objective: str, log: bool, size: tuple[int, int] = (1200, 430)) -> str:
    """Dev perplexity in the course of every trial's training; those that were stopped early end in a cross."""
    kind = shades(report, objective)
    drawn = [t for t in report.trials if t.curve]
    if not drawn:
        return ""
    (width, height), left, top = size, 50, 26
    right, bottom = width - 14, height - 44
    values = [v for t in drawn for _, v in t.curve]
    final = sorted(t.curve[-1][1] for t in drawn)
    high = max(values) if log else min(max(values), ABOVE * final[int(0.8 * (len(final) - 1))])
    x = spanning([s for t in drawn for s, _ in t.curve], left, right, margin=0.02)
    y = spanning([min(values), high], bottom, top, log)
    body = bottom_axis(x, bottom, top, "step") + left_axis(y, left, right, "dev perplexity")
    order = {"best": 2, "better": 1}
    for t in sorted(drawn, key=lambda t: (order.get(kind.get(t.trial, ""), 0), t.trial)):
        inside = [(x(s), y(v)) for s, v in t.curve if v <= y.high]
        content = pointed(said(t)) + tag("polyline", points=points(inside), class_="curve")
        early = t.state != "finished"
        if early and inside:
            content += tag(
                "path", d=f"M{number(inside[-1][0] - 4)} {number(inside[-1][1] - 4)}l8 8m0-8l-8 8", class_="curve"
            )
        class_ = f"series {'stopped rest' if early else kind.get(t.trial, 'rest')}"
        body += tag("g", content, class_=class_, data_row=t.trial, data_trial=t.trial)
    said_ = f"Learning curves of all trials, {'logarithmic' if log else 'straight'} axis"
    return figure(width, height, said_, body)


def fall(report: SearchSummary) -> bool:
    """Whether the curves fall so far that their axis is logarithmic at first."""
    values = [v for t in report.trials for _, v in t.curve]
    return bool(values) and falls(min(values), max(values))


def against(report: SearchSummary, first: str, second: str) -> str:
    """Two objectives, the Pareto front joined by a line."""
    trials = report.with_values(first, second)
    if not trials:
        return ""
    width, height, left, right, top, bottom = 640, 340, 50, 610, 26, 296
    x = value_scale([value_of(t, first) for t in trials], left, right)
    y = value_scale([value_of(t, second) for t in trials], bottom, top)
    body = bottom_axis(x, bottom, top, first) + left_axis(y, left, right, second)
    front = sorted((x(value_of(t, first)), y(value_of(t, second))) for t in trials if t.trial in report.best)
    body += tag("polyline", points=points(front), class_="front")
    for t in trials:
        body += _dot(t, "best" if t.trial in report.best else "rest", x(value_of(t, first)), y(value_of(t, second)))
    return figure(width, height, f"{second} against {first}", body)
