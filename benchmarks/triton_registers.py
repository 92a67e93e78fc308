"""What Triton's compiler makes of every program of structured inference, without a GPU.

`python benchmarks/triton_registers.py [80 90 ...]`: each program is compiled for GPUs of these compute capabilities (90: an H100), and
ptxas says the registers of a thread, of which 255 are at hand, the bytes of a thread that spill into memory, and shared memory. Exit
code 1: a program does not compile, or spills more than SPILL bytes. It needs Triton (pip install triton), whose wheel has ptxas.
"""

import inspect
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from phrasemodels.structs.kernels import gpu, gpu_programs

SPILL = 512  # bytes
BLOCKS = {"chain": (16, 64, 128), "levels": (32,)}
FLAGS = {"PAIRS": (False, True), "SUMMED": (False, True), "one_root": (True,), "MEAN": (0, 1, 2), "MAX": (False, True)}
INTEGERS = {"lengths": "*i64", "back": "*i32", "tags": "*i64", "heads": "*i64", "chosen": "*i8"}
INTEGERS |= dict.fromkeys(("choices", "sizes", "own", "edges"), "*i64")


def signature(program, dtype: str) -> dict[str, str]:
    """Return the types of the arguments of a program, for scores of a type."""

    def kind(name: str) -> str:
        if (name.isupper() and len(name) > 1) or name in FLAGS:
            return "constexpr"
        return "i32" if (len(name) == 1 and name.isupper()) or "by_" in name else INTEGERS.get(name, f"*{dtype}")

    return {name: kind(name) for name in inspect.signature(program.fn).parameters}


def compiled(program, dtype: str, block: int, flags: dict[str, object], capability: int) -> tuple[int, int, int]:
    """Return registers of a thread, spilled bytes and bytes of shared memory."""
    types = signature(program, dtype)
    fixed = {"BLOCK": block} | ({"TILE": gpu.tile(block)} if "TILE" in types else {}) | flags
    source = ASTSource(fn=program, signature=types, constexprs=fixed)
    options = {"num_warps": gpu.warps(block * fixed.get("TILE", block)), "num_stages": 1}
    made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    ptxas = Path(triton.__file__).parent / "backends/nvidia/bin/ptxas"
    name = re.search(r"\.target (\w+)", made.asm["ptx"])[1]
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(made.asm["ptx"])
        file.flush()
        said = subprocess.run(
            [ptxas, "-v", f"--gpu-name={name}", file.name, "-o", "/dev/null"],
            capture_output=True,
            text=True,
            check=True,
        ).stderr
    return (
        int(re.search(r"Used (\d+) registers", said)[1]),
        int(re.search(r"(\d+) bytes spill stores", said)[1]),
        made.metadata.shared,
    )


def main() -> int:
    wrong = []
    programs = {n: p for n, p in vars(gpu_programs).items() if n.startswith(("chain_", "eisner_", "spans_", "levels_"))}
    print("program                  block  registers  spilled  shared")
    for capability in map(int, sys.argv[1:] or ["90"]):
        for name, program in programs.items():
            choices = [{}]
            for flag in set(FLAGS) & set(inspect.signature(program.fn).parameters):
                choices = [c | {flag: value} for c in choices for value in FLAGS[flag]]
            if name.endswith(("outside", "backward")):
                choices = [c for c in choices if c["MEAN"] == 0 or (c["MEAN"] == 1 and c.get("PAIRS", True))]
            for block in BLOCKS.get(name.split("_")[0], (16, 64, 256, 1024)):
                every = [compiled(program, "fp64", block, c, capability) for c in choices]
                registers, spilled, shared = (max(x) for x in zip(*every, strict=True))
                print(f"{name:24} {block:5} {registers:10} {spilled:8} {shared:7}", flush=True)
                if spilled > SPILL:
                    wrong.append(f"{name} {block}")
    print("spill: " + ", ".join(wrong) if wrong else f"no program spills more than {SPILL} bytes")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
