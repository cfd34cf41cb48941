"""Pictures of a search: importance, course, parallel coordinates, objectives against each other.

What pointing at a trial shows is its line of the page's table (tips.js)."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from lightning_tfm.plural_words import plural
from lightning_tfm.report.charts.chart import Axis, Chart, Point, Series, both, draw
from lightning_tfm.report.charts.curves import POINTS, falls, thin_steps
from lightning_tfm.report.charts.panels import short_name
from lightning_tfm.report.charts.svg import Scale, bottom_axis, figure, label, points, tag, tick_text
from lightning_tfm.report.pages.shared import four_digits
from lightning_tfm.report.search_summary import SearchSummary, field_name, objective_name
from lightning_tfm.study.space import Parameter
from lightning_tfm.study.trials import Importance, Trial

ABOVE = 1.8
"""times the end of four fifths of all curves: where a straight axis ends"""
BEYOND = 2
"""times the worst final value: where a trial that was stopped early is drawn at most"""
LOG_FROM = 10
"""an axis whose largest value is this many times its smallest is logarithmic"""
DRAWN = 12_000
"""points of all learning curves together, of which each has five at least"""
ORDER = {"rest": 0, "better": 1, "best": 2}
"""who is drawn over whom"""


def trial_classes(report: SearchSummary, objective: str) -> dict[str, str]:
    """trial -> class of its colour: the best, the better quarter, the worse rest."""
    sign = 1 if report.search.objectives[objective] == "minimize" else -1
    order = sorted(report.with_values(objective), key=lambda t: sign * value_of(t, objective))
    quarter = max(1, round(len(order) / 4))
    kind = {t.trial: "better" if i < quarter else "rest" for i, t in enumerate(order)}
    return kind | {name: "best" for name in report.best if name in kind}


def value_of(t: Trial, objective: str) -> float:
    value = t.values[objective]
    assert value is not None, "only trials with a value are drawn"
    return value


def trial_text(t: Trial) -> str:
    """Its values, then what it sets."""
    values = ", ".join(f"{objective_name(aim)} {four_digits(v)}" for aim, v in t.values.items())
    return f"{t.trial}: {values}; {', '.join(f'{field_name(key)} {four_digits(v)}' for key, v in t.change.items())}"


def value_axis(objective: str, values: Sequence[float]) -> Axis:
    return Axis(objective_name(objective), log=min(values) > 0 and max(values) > LOG_FROM * min(values))


def importance(record: Importance) -> Markup:
    """Bars: the share that each parameter explains."""
    shares = record.importance
    if not shares:
        return Markup()
    width, left, line, top = 640, 170, 24, 8
    bottom = top + line * len(shares)
    x = Scale(0.0, 1.0, left, width - 60)
    body = bottom_axis(x, bottom, top, f"share explained (PED-ANOVA on {plural(record.trials, 'finished trial')})")
    for i, (name, share) in enumerate(shares.items()):
        y = top + line * i
        bar = tag("rect", x=x(0), y=y + 4.0, width=max(x(share) - x(0), 1.0), height=line - 8.0, class_="bar")
        words = label(left - 8, y + line / 2 + 4, short_name(field_name(name)), "end")
        words += label(x(share) + 5, y + line / 2 + 4, f"{100 * share:.0f} %")
        body += tag("g", bar + words, class_="g3", data_tip=f"{field_name(name)} ({name})\n{100 * share:.1f} %")
    return figure(width, bottom + 38, f"Importance of each parameter for {objective_name(record.objective)}", body)


def search_course(report: SearchSummary, objective: str, number: Mapping[str, int]) -> Markup:
    """The objective trial by trial, the best so far, and where the stopped ones stood; `number`: of each trial."""
    trials = report.with_values(objective)
    if not trials:
        return Markup()
    values = [value_of(t, objective) for t in trials]
    better = min if report.search.objectives[objective] == "minimize" else max
    line: list[tuple[float, float]] = []
    for t, value in zip(trials, values, strict=True):
        if t.feasible:
            reached = line[-1][1] if line else value
            line += [(number[t.trial], reached), (number[t.trial], better(reached, value))]
    axis, kind = value_axis(objective, values), trial_classes(report, objective)
    cloud = [_point(t, number[t.trial], value, kind[t.trial]) for t, value in zip(trials, values, strict=True)]
    for t in stopped_trials(report):
        if t.curve and objective == "dev/ppl":
            last = min(t.curve[-1][1], BEYOND * max(values))
            cloud.append(_point(t, number[t.trial], last, "stopped", hollow=True))
    return draw(
        Chart(f"{objective_name(objective)} trial by trial", Axis("trial"), axis, cloud, (640, 320), front=line)
    )


def stopped_trials(report: SearchSummary) -> list[Trial]:
    """Trials that were stopped early; they have no final value."""
    return [t for t in report.trials if t.state == "stopped early"]


def _point(t: Trial, x: float, y: float, class_: str, hollow: bool = False) -> Series:
    return Series(t.trial, [Point(x, y)], class_, line=False, hollow=hollow, r=4.5, of="trial")


class Coordinate:
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
            return [(self.scale(v), tick_text(v)) for v in self.scale.ticks(4)]
        return [(self(v), short_name(str(v), 10)) for v in self.list]


def parallel(report: SearchSummary, objective: str) -> Markup:
    """One line for each finished trial through its parameters to the objective; stopped ones end at the last."""
    trials = report.with_values(objective)
    if not trials:
        return Markup()
    space, top, bottom = report.search.space, 40, 320
    gap = max(76, 600 // max(len(space), 1))
    axes = [Coordinate(p, bottom, top) for p in space]
    values = [value_of(t, objective) for t in trials]
    end = value_axis(objective, values).scale(values, bottom, top)
    ticks = [axis.ticks() for axis in axes] + [[(end(v), tick_text(v)) for v in end.ticks()]]
    body = over = ""
    for i, (name, marks) in enumerate(
        zip([*(field_name(p.name) for p in space), objective_name(objective)], ticks, strict=True)
    ):
        x = 70.0 + gap * i
        body += tag("line", x1=x, x2=x, y1=top, y2=bottom, class_="axis")
        body += label(x, top - 14 - 13 * (i % 2), short_name(name, 24), "middle", "title")
        over += "".join(label(x - 6, y + 4, words, "end", "tick halo") for y, words in marks)
        over += tag(
            "rect", x=x - 12, y=float(top), width=24.0, height=float(bottom - top), class_="handle", data_axis=i
        )
    kind = trial_classes(report, objective)
    for t in stopped_trials(report) + sorted(trials, key=lambda t: (ORDER[kind[t.trial]], t.trial)):
        places = [axis(t.change[p.name]) for axis, p in zip(axes, space, strict=True)]
        places += [end(value_of(t, objective))] if t.trial in kind else []
        path = points([(70.0 + gap * i, y) for i, y in enumerate(places)])
        class_ = f"series {kind[t.trial]}" if t.trial in kind else "stopped"
        body += tag("g", tag("polyline", points=path, class_="curve"), class_=class_, data_trial=t.trial)
    title = f"Parallel coordinates of all finished trials, to {objective_name(objective)}"
    return figure(70 + gap * len(space) + 60, bottom + 16, title, body + over)


def learning_curves(report: SearchSummary, objective: str) -> Markup:
    """Dev perplexity in the course of every trial's training; those that were stopped early end in a hollow mark."""
    drawn, kind = [t for t in report.trials if t.curve], trial_classes(report, objective)
    if not drawn:
        return Markup()
    each = max(5, min(POINTS, DRAWN // len(drawn)))
    values, final = [v for t in drawn for _, v in t.curve], sorted(t.curve[-1][1] for t in drawn)
    series = []
    for t in sorted(drawn, key=lambda t: (ORDER.get(kind.get(t.trial, ""), 0), t.trial)):
        early, curve = t.state != "finished", dict(t.curve)
        line = [Point(step, curve[step]) for step in thin_steps(list(curve), each)]
        class_ = "stopped rest" if early else kind.get(t.trial, "rest")
        series.append(Series(t.trial, line, class_, hollow=early, r=3.5, of="trial"))
    log = falls(min(values), max(values))
    y = Axis("dev perplexity", log, most=None if log else ABOVE * final[int(0.8 * (len(final) - 1))])
    title = f"Learning curves of all trials, {'logarithmic' if log else 'straight'} axis"
    return both(Chart(title, Axis("step", margin=0.02), y, series, (1000, 430)))


def trade_off(report: SearchSummary, first: str, second: str) -> Markup:
    """Two objectives, the Pareto front joined by a line."""
    trials = report.with_values(first, second)
    if not trials:
        return Markup()
    x, y = (value_axis(aim, [value_of(t, aim) for t in trials]) for aim in (first, second))
    front = sorted((value_of(t, first), value_of(t, second)) for t in trials if t.trial in report.best)
    cloud = [
        _point(t, value_of(t, first), value_of(t, second), "best" if t.trial in report.best else "rest") for t in trials
    ]
    return draw(Chart(f"{objective_name(second)} against {objective_name(first)}", x, y, cloud, front=front))
