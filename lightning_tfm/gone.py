"""What earlier versions had: the one place that remembers it, so that who asks for it is told what to use instead."""

from lightning_tfm.errors import UserError

GONE = {
    "dashboard --storage": "lightning-tfm status STUDY --storage … says what workers on other machines do",
}
"""`command`, `command action`, `command --option`, `command --option=value`, `section.field` -> what to use instead"""


def refuse(*keys: str) -> None:
    """Raise UserError where one of `keys` is in the table."""
    for key in keys:
        if key in GONE:
            raise UserError(f"{key} was removed: {GONE[key]}")
