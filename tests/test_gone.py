"""What was removed is refused by name, with what to use instead."""

import pytest

from lightning_tfm.cli.main import main
from lightning_tfm.gone import GONE


@pytest.mark.parametrize("key", GONE)
def test_what_is_gone_is_refused_with_what_to_use_instead(key, capsys):
    field = " " not in key and "." in key
    assert main(["fit", f"--{key}", "1"] if field else [*key.replace("=", " ").split(), "1"]) == 2
    assert f"{key} was removed: {GONE[key]}" in capsys.readouterr().err
