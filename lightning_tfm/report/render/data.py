"""What a program reads: CSV and JSON, at full precision."""

import csv
import io
import json
from typing import Any

from lightning_tfm.report.blocks import Data
from lightning_tfm.report.to_json import plain


def to_csv(data: Data) -> str:
    """A line for each, under the heads in the order in which they come up."""
    heads = list(dict.fromkeys(head for line in data for head in line))
    out = io.StringIO()
    writer = csv.DictWriter(out, heads, lineterminator="\n")
    writer.writeheader()
    writer.writerows(data)
    return out.getvalue()


def to_json(found: Any, **head: object) -> str:
    """A dataclass, its fields as keys (summary.plain), or a mapping, after what `head` says."""
    return json.dumps(head | plain(found), indent=1, ensure_ascii=False) + "\n"
