"""Instructions, registers and spills of the kernels for two GPUs, without one: exact counts of what Triton compiles.

They depend on Triton's release alone, and say nothing of speed. After a change that is meant to change them:

    python -m tests.regression.kernels
"""

import json
import re
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COUNTS = Path(__file__).with_name("kernels.json")
TARGETS = {"sm_80": 80, "sm_90": 90}


@dataclass(frozen=True)
class Compiled:
    """A kernel as it is launched for the paper's base model."""

    fn: Callable[..., None]
    types: dict[str, str]
    constants: dict[str, Any]
    divisible: tuple[str, ...]
    """arguments that sixteen divides, beside pointers"""
    elements: int
    """that one program passes, over its loops once"""
    warps: int = 4
    varying: tuple[str, ...] = ()
    """arguments, pointers too, of which nothing is promised"""


def kernels() -> dict[str, Compiled]:
    from lightning_tfm.accel.kernels import loss, masks

    numbers = dict.fromkeys(("B", "L", "D", "step", "side", "limit"), "i32")
    places = {"key": "*i64", "index": "*i64", "lengths": "*i64"}
    rows = {"y": "*i64", "loss": "*fp32", "nll": "*fp32", "V": "i32", "q_y": "fp32", "b": "fp32"}
    found = {}
    for kind in ("fp32", "bf16"):
        z, out = {"z": f"*{kind}", **rows}, {"out": f"*{kind}", "kept": f"*{kind}", **places, **numbers}
        found[f"loss {kind}"] = Compiled(loss.rows, z, {"BLOCK": loss.BLOCK}, (), 2 * loss.BLOCK, loss.WARPS)
        found[f"masks {kind}"] = Compiled(
            masks.draw, out, {"BLOCK": masks.MOST}, ("D",), 16 * masks.MOST, varying=masks.VARYING
        )
    return found


def measured(one: Compiled, capability: int) -> dict[str, int]:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = [*one.types, *one.constants]
    aligned = {name for name, kind in one.types.items() if kind.startswith("*")} | set(one.divisible)
    aligned -= set(one.varying)
    hints = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(names) if name in aligned}
    source = ASTSource(
        fn=triton.jit(one.fn),
        signature=one.types | dict.fromkeys(one.constants, "constexpr"),
        constexprs={(names.index(name),): value for name, value in one.constants.items()},
        attrs=hints,
    )
    binary = triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": one.warps}).asm[
        "cubin"
    ]
    programs = Path(triton.__file__).parent / "backends/nvidia/bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(binary)
        said = [
            subprocess.run([programs / "cuobjdump", how, file.name], capture_output=True, text=True, check=True).stdout
            for how in ("-sass", "-res-usage")
        ]
    instructions = re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]+)", said[0])
    used = dict(re.findall(r"(REG|STACK|SHARED|LOCAL):(\d+)", said[1]))
    useful = [name for name in instructions if name != "NOP"]
    return {
        "instructions": len(useful),
        "per_element_thousandths": round(1000 * len(useful) * 32 * one.warps / one.elements),
        "registers": int(used["REG"]),
        "spilled_bytes": int(used["LOCAL"]),
        "shared_bytes": int(used["SHARED"]),
        "atomics": sum(name.startswith(("ATOM", "RED.")) for name in instructions),
    }


def counts() -> dict[str, dict[str, dict[str, int]]]:
    return {name: {sm: measured(one, number) for sm, number in TARGETS.items()} for name, one in kernels().items()}


def release() -> str:
    from importlib.metadata import version

    return version("triton")


def main() -> None:
    COUNTS.write_text(json.dumps({"triton": release(), "counts": counts()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
