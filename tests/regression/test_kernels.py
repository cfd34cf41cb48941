"""Kernels compile for both generations of GPUs, to what was committed, without a spill or an atomic."""

import json
import os

import pytest

from lightning_tfm.accel.kernels import has_triton
from tests.regression import kernels

COMMITTED = json.loads(kernels.COUNTS.read_text())
pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("default")]


def test_counts_are_those_committed():
    if not has_triton():
        pytest.skip("THE KERNELS WERE NOT COMPILED: Triton is not installed (pip install --no-deps triton)")
    if os.environ.get("TRITON_INTERPRET") == "1":
        pytest.skip("THE KERNELS WERE NOT COMPILED: this process interprets them")
    if COMMITTED["triton"] != kernels.release():
        pytest.skip(f"THE COUNTS WERE NOT COMPARED: they are of Triton {COMMITTED['triton']}, not {kernels.release()}")
    assert kernels.counts() == COMMITTED["counts"]


def test_nothing_spills_and_nothing_is_atomic():
    for name, targets in COMMITTED["counts"].items():
        assert targets.keys() == kernels.TARGETS.keys(), name
        for sm, counted in targets.items():
            assert counted["spilled_bytes"] == counted["atomics"] == 0, (name, sm)
