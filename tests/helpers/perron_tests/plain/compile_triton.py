"""Compile every Triton kernel of the package for GPUs that are not there.

    python compile_triton.py TARGET [NAME ...]

Prints a JSON object per kernel: what the assembler says about its resources, and the
instructions that flush small numbers to zero.
"""

import importlib
import json
import re
import subprocess
import sys
import tempfile
import time

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.knobs import nvidia

MODULES = ("gth_triton", "pair_scores_triton")
TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "gfx90a": GPUTarget("hip", "gfx90a", 64),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}


def compile_kernel(kernel, signature, constants, num_warps, target):
    """Return the compiled kernel. Sizes are not specialized, as at run time."""
    signature = {**signature, **dict.fromkeys(constants, "constexpr")}
    signature = {name: signature[name] for name in kernel.arg_names}
    # Tensors of torch are aligned to 16 bytes.
    attributes = {
        (place,): [["tt.divisibility", 16]]
        for place, kind in enumerate(signature.values())
        if kind.startswith("*")
    }
    constants = {
        (kernel.arg_names.index(name),): value for name, value in constants.items()
    }
    source = ASTSource(kernel, signature, constants, attributes)
    return triton.compile(source, target=target, options={"num_warps": num_warps})


def resources_of_ptx(compiled):
    """Read the resources of the machine code; spilled registers are on the stack."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        text = subprocess.run(
            [nvidia.cuobjdump.path, "--dump-resource-usage", file.name],
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    def number(name):
        return int(re.search(rf"\b{name}:(\d+)", text)[1])

    return {
        "registers": number("REG"),
        "spills": number("STACK") + number("LOCAL"),
        "flushes": sorted(set(re.findall(r"\S+\.ftz\S*", compiled.asm["ptx"]))),
    }


def resources_of_amdgcn(compiled):
    """Read the metadata of the assembly."""
    text = compiled.asm["amdgcn"]

    def number(name):
        return int(re.search(rf"{name}:?\s+(\d+)", text)[1])

    modes = re.findall(r"amdhsa_float_denorm_mode_\w+ \d", text)
    assert len(modes) == 2
    return {
        "registers": number(r"\.vgpr_count"),
        "spills": number(r"\.vgpr_spill_count")
        + number(r"\.sgpr_spill_count")
        + number(r"\.private_segment_fixed_size"),
        "flushes": [mode for mode in modes if not mode.endswith(" 3")],
    }


def main(target_name, names):
    """Compile the kernels of all modules, or the named ones."""
    target = TARGETS[target_name]
    for module_name in MODULES:
        try:
            module = importlib.import_module(f"perron.kernels.{module_name}")
        except ModuleNotFoundError as error:
            if error.name != f"perron.kernels.{module_name}":
                raise
            continue
        for kernel, signature, constants, num_warps in module.COMPILED:
            if names and kernel.__name__ not in names:
                continue
            start = time.perf_counter()
            compiled = compile_kernel(kernel, signature, constants, num_warps, target)
            seconds = time.perf_counter() - start
            cuda = target.backend == "cuda"
            resources = (resources_of_ptx if cuda else resources_of_amdgcn)(compiled)
            assembly = compiled.asm["ptx" if cuda else "amdgcn"]
            row = {
                "module": module_name,
                "kernel": kernel.__name__,
                "constants": constants,
                "num_warps": num_warps,
                "target": target_name,
                **resources,
                "shared": compiled.metadata.shared,
                "lines": assembly.count("\n"),
                "seconds": round(seconds, 1),
            }
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
