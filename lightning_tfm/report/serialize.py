"""What a program reads, at full precision: JSON of dataclasses, whose fields are keys with blanks."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from lightning_tfm.metrics import METRICS, Metric

Data = Sequence[Mapping[str, object]]
"""lines of a CSV file: head -> value at full precision; a head that a line lacks is empty there"""
INLINE = {"inline": True}
"""of a dictionary or a dataclass, if there is one, whose keys are those of the dataclass itself in JSON"""
BY_METRIC = {"by metric": True}
"""of a field whose keys are metrics, and in JSON keys beside the other fields"""


def plain(value: Any) -> Any:
    """For JSON."""
    if is_dataclass(value):
        keys: dict[str, Any] = {}
        for f in fields(value):
            own, key = getattr(value, f.name), f.metadata.get("key", f.name.replace("_", " "))
            if not key or ("optional" in f.metadata and own is None):
                continue
            if "inline" in f.metadata:
                keys |= plain(own) or {}
            elif "by metric" in f.metadata:
                keys |= {METRICS[m].key: _of_metric(METRICS[m], v) for m, v in own.items()}
            else:
                keys[key] = plain(own)
        return keys
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items()}
    return [plain(v) for v in value] if isinstance(value, list) else value


def _of_metric(metric: Metric, value: Any) -> Any:
    """What is said of it: an sd in percent has a separate key."""
    keys = plain(value)
    return {metric.sd_key if key == "sd" else key: x for key, x in keys.items()} if isinstance(keys, dict) else keys


def rounded(value: Any) -> Any:
    """At ten significant digits, so that the order of a sum on another machine does not change a byte.

    NaN and infinities become None, tuples lists, keys text.
    """
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: rounded(getattr(value, f.name)) for f in fields(value)})
    if isinstance(value, dict):
        return {str(k): rounded(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(v) for v in value]
    if isinstance(value, (float, np.floating)):
        return float(f"{value:.10g}") if math.isfinite(value) else None
    return value


def to_json(content: Any, **head: object) -> str:
    """A dataclass, its fields as keys (`plain`), or a mapping, after what `head` says."""
    return json.dumps(head | plain(content), indent=1, ensure_ascii=False) + "\n"
