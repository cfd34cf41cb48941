"""Random trees, and the brackets that PYEVALB counts: matched, of the reference, proposed; null: not comparable.

pip install PYEVALB==0.1.3
python tests/parity/brackets.py > tests/parity/brackets.json
"""

import json
import random
import sys

from PYEVALB import parser, scorer

draw = random.Random(3)
LABELS = "S NP VP PP ADJP SBAR QP".split()


def tree(words, depth=0):
    """A random tree over so many words, as nested lists; no label twice over the same words."""

    def build(n, above):
        label = draw.choice([label for label in LABELS if label not in above])
        if n == 1:
            if draw.random() < 0.3 and len(above) < 3:
                return [label, build(1, above | {label})]
            return [label, "XX"]
        parts, left = [], n
        while left:
            size = draw.randint(1, left if parts else left - (draw.random() < 0.8) or 1)
            parts.append(size)
            left -= size
        kids = []
        for size in parts:
            if size == 1 and draw.random() < 0.6:
                kids.append("XX")
            else:
                kids.append(build(size, {label} | above if len(parts) == 1 else set()))
        return [label, *kids]

    return build(words, set())


def changed(t):
    """Another tree over the same words: labels drawn anew, or a bracket taken away."""
    if t == "XX":
        return t
    kids = []
    for k in t[1:]:
        if k != "XX" and draw.random() < 0.15:
            kids += [changed(x) for x in k[1:]]
        else:
            kids.append(changed(k))
    return [draw.choice(LABELS) if draw.random() < 0.1 else t[0], *kids]


def line(t):
    return "XX" if t == "XX" else f"{t[0]} {' '.join(map(line, t[1:]))} /{t[0]}"


def ptb(t, at):
    if t == "XX":
        at[0] += 1
        return f"(XX w{at[0]})"
    return f"({t[0]} {' '.join(ptb(k, at) for k in t[1:])})"


def spans(t):
    found = []

    def go(t, i):
        if t == "XX":
            return i + 1
        j = i
        for k in t[1:]:
            j = go(k, j)
        found.append((t[0], i, j))
        return j

    go(t, 0)
    return found


rows = []
while len(rows) < 60:
    n = draw.randint(2, 14)
    gold = tree(n)
    made = changed(gold) if draw.random() < 0.8 else tree(n if draw.random() < 0.5 else n + 1)
    if any(len(set(spans(t))) < len(spans(t)) for t in (gold, made)):
        continue  # PYEVALB counts what is repeated once, EVALB as often as both have it
    try:
        r = scorer.Scorer().score_trees(
            parser.create_from_bracket_string(ptb(gold, [0])), parser.create_from_bracket_string(ptb(made, [0]))
        )
        found = [r.matched_brackets, r.gold_brackets, r.test_brackets]
    except scorer.ScoreException:
        found = None
    rows.append([line(gold), line(made), found])
sys.stdout.write("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")
