"""PTX as functions on NumPy arrays with an entry per thread; see `perron_tests.ptx`."""

import re
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

WARP = 32


class Fault(AssertionError):
    """Something that must not happen on a GPU."""


DTYPES = {"f32": np.dtype("f4"), "f64": np.dtype("f8"), "pred": np.dtype("?")}
for size in (1, 2, 4, 8):
    for kind, code in (("b", "u"), ("u", "u"), ("s", "i")):
        DTYPES[f"{kind}{8 * size}"] = np.dtype(f"{code}{size}")

REGISTERS = {"r": "b32", "rd": "b64", "rs": "b16", "p": "pred"}  # by prefix


def _fma(a, b, c):
    wide = np.float64 if a.dtype == np.float32 else np.longdouble
    return (a.astype(wide) * b + c).astype(a.dtype)


def _wide(a):
    return a.astype(f"{a.dtype.kind}{2 * a.itemsize}")


def _divide(a, b):
    if a.dtype.kind == "f":
        return a / b
    wide, by = a.astype(np.int64), b.astype(np.int64)
    return (np.sign(wide) * np.sign(by) * (abs(wide) // abs(by))).astype(a.dtype)


def _shift_left(a, by):
    return np.where(by < 8 * a.itemsize, a << by.astype(a.dtype), 0).astype(a.dtype)


def _shift_right(a, by):
    return a >> np.minimum(by, 8 * a.itemsize - 1).astype(a.dtype)


def _extract_bits(a, start, length):
    left = 8 * a.itemsize - (start + length)
    return (a << left.astype(a.dtype)) >> (left + start).astype(a.dtype)


# By name without its last part, which is the type of the operands.
ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "mul.lo": np.multiply,
    "mul.wide": lambda a, b: _wide(a) * _wide(b),
    "mad.lo": lambda a, b, c: a * b + c,
    "mad.wide": lambda a, b, c: _wide(a) * _wide(b) + c,
    "fma.rn": _fma,
    "div": _divide,
    "div.rn": _divide,
    "div.full": _divide,
    "ex2.approx": lambda a: np.exp2(a.astype(np.float64)).astype(a.dtype),
    "min": np.fmin,  # of a number and NaN, the number
    "max": np.fmax,
    "abs": np.abs,
    "neg": np.negative,
    "not": np.invert,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": _shift_left,
    "shr": _shift_right,
    "bfe": _extract_bits,
    "mov": lambda a: a,
    "selp": lambda a, b, chosen: np.where(chosen, a, b),
}
# The operands that have another type.
OTHER_TYPES = {"shl": {1: "u32"}, "shr": {1: "u32"}, "bfe": {1: "u32", 2: "u32"}}
OTHER_TYPES |= {"selp": {2: "pred"}}
COMPARISONS = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "num": lambda a, b: (a == a) & (b == b),
    "nan": lambda a, b: (a != a) | (b != b),
}

Get = Callable[[Any], np.ndarray]  # from `ptx.Programs` to a value per thread, or one


def reader(operand: str, dtype: np.dtype) -> Get:
    """Return the function that reads a register or a constant."""
    if operand[0] == "%":

        def read(programs: Any) -> np.ndarray:
            value = programs.registers.get(operand)
            if value is None:
                raise Fault(f"reads register {operand}, which was never written")
            if value.itemsize != dtype.itemsize:
                value = value.astype(f"u{dtype.itemsize}")  # the low bits
            return value.view(dtype)

        return read
    if operand[:2] in ("0f", "0d"):
        value = np.array(int(operand[2:], 16), f"u{dtype.itemsize}").view(dtype)
    else:
        number = 0 if operand == "global_smem" else int(operand, 0)
        size = dtype.itemsize
        value = np.array(number % 256**size, f"u{size}").view(dtype)
        value = np.array(number != 0) if dtype.kind == "b" else value
    return lambda programs: value


def address_reader(operand: str, is_shared: bool) -> Get:
    """Return the function that computes an address: `[%r1 + 16]`."""
    base, *offsets = (part.strip() for part in operand.strip("[] ").split("+"))
    read = reader(base, np.dtype("u4" if is_shared else "u8"))
    offset = sum(int(part, 0) for part in offsets)

    def address(programs: Any) -> np.ndarray:
        return programs.for_all(read(programs)).astype(np.int64) + offset

    return address


def register_writer(name: str) -> Callable[[Any, np.ndarray], None]:
    """Return the function that sets a register in the active threads."""
    if name == "_":
        return lambda programs, value: None
    bits = DTYPES[REGISTERS[name.strip("%0123456789")]]

    def write(programs: Any, value: np.ndarray) -> None:
        if value.itemsize != bits.itemsize:
            value = value.astype(f"{value.dtype.kind}{bits.itemsize}")
        value = programs.for_all(value.view(bits))
        if programs.active is not None:
            before = programs.registers.get(name, np.zeros_like(value))
            value = np.where(programs.active, value, before)
        programs.registers[name] = value

    return write


def _names(operand: str) -> list[str]:
    return [name.strip() for name in operand.strip("{} ").split(",")]


def _bind_arithmetic(base: str, kind: str, operands: list[str]) -> Any:
    types = [kind] * (len(operands) - 1)
    for place, other in OTHER_TYPES.get(base, {}).items():
        types[place] = other
    if base == "mad.wide":
        types[2] = f"{kind[0]}64"
    write, function = register_writer(operands[0]), ARITHMETIC[base]
    inputs = [
        reader(text, DTYPES[t]) for text, t in zip(operands[1:], types, strict=True)
    ]

    def execute(programs: Any) -> None:
        write(programs, function(*(get(programs) for get in inputs)))

    return execute


def _bind_comparison(test: str, kind: str, operands: list[str]) -> Any:
    write = register_writer(operands[0])
    a, b = (reader(text, DTYPES[kind]) for text in operands[1:])
    is_or_nan = test not in COMPARISONS  # "equ" is "eq" or one of them is NaN
    function = COMPARISONS[test.removesuffix("u")]

    def execute(programs: Any) -> None:
        left, right = a(programs), b(programs)
        result = function(left, right)
        if is_or_nan:
            result = result | COMPARISONS["nan"](left, right)
        write(programs, result)

    return execute


def _bind_conversion(modifiers: list[str], to: str, source: str, operands: Any) -> Any:
    read, write = reader(operands[1], DTYPES[source]), register_writer(operands[0])

    def execute(programs: Any) -> None:
        value = read(programs)
        if modifiers == ["rzi"]:
            limits = np.iinfo(DTYPES[to])
            value = np.trunc(np.nan_to_num(value.astype(np.float64), nan=0.0))
            value = np.clip(value, limits.min, limits.max)
        write(programs, value.astype(DTYPES[to]))

    return execute if modifiers in ([], ["rn"], ["rzi"]) else None


def _bind_move(result: str, operand: str) -> Any:
    """Split a register into two, or join two."""
    if result[0] == "{":
        read, parts = reader(operand, DTYPES["b64"]), _names(result)
        low, high = (register_writer(name) for name in parts)

        def split(programs: Any) -> None:
            value = read(programs)
            low(programs, value.astype(np.uint32))
            high(programs, (value >> np.uint64(32)).astype(np.uint32))

        return split
    write = register_writer(result)
    first, second = (reader(name, DTYPES["b32"]) for name in _names(operand))

    def join(programs: Any) -> None:
        high = second(programs).astype(np.uint64) << np.uint64(32)
        write(programs, first(programs).astype(np.uint64) | high)

    return join


def _bind_access(name: str, operands: list[str]) -> Any:
    """Load or store one, two or four values per thread."""
    is_load, is_shared = name.startswith("ld."), ".shared." in name
    place, values = operands[::-1] if is_load else operands
    dtype, names = DTYPES[name.rpartition(".")[2]], _names(values)
    address = address_reader(place, is_shared)
    if is_load:
        writers = [register_writer(one) for one in names]

        def load(programs: Any) -> None:
            found = programs.load(address(programs), is_shared, dtype, len(names))
            for number, write in enumerate(writers):
                write(programs, found[:, number])

        return load
    readers = [reader(one, dtype) for one in names]

    def store(programs: Any) -> None:
        values = np.stack([programs.for_all(get(programs)) for get in readers], 1)
        programs.store(address(programs), is_shared, values)

    return store


def _bind_matrix(operands: list[str]) -> Any:
    """Load 8 rows of 16 bytes; thread t gets 4 bytes of row t // 4."""
    write = register_writer(operands[0].strip("{} "))
    address = address_reader(operands[1], is_shared=True)

    def execute(programs: Any) -> None:
        programs.require_all(WARP)
        row = np.arange(len(programs.threads)) // WARP * WARP + programs.lane // 4
        place = address(programs)[row] + programs.lane % 4 * 4
        write(programs, programs.load(place, True, DTYPES["b32"], 1)[:, 0])

    return execute


def _bind_shuffle(kind: str, operands: list[str]) -> Any:
    """Read a register of another thread of the warp."""
    write, value, other = (
        register_writer(operands[0]),
        *(reader(text, DTYPES["b32"]) for text in operands[1:3]),
    )

    def execute(programs: Any) -> None:
        programs.require_all(WARP)
        lane = programs.lane ^ other(programs) if kind == "bfly" else other(programs)
        first = programs.threads - programs.threads[0] - programs.lane
        place = first + lane.astype(np.int64) % WARP
        write(programs, programs.for_all(value(programs))[place])

    return execute if operands[3:] == ["31", "-1"] else None


def _bind_reduction(kind: str, dtype: str, operands: list[str]) -> Any:
    """Minimum or maximum of a register over the warp."""
    read, write = reader(operands[1], DTYPES[dtype]), register_writer(operands[0])

    def execute(programs: Any) -> None:
        programs.require_all(WARP)
        warps = getattr(programs.for_all(read(programs)).reshape(-1, WARP), kind)(1)
        write(programs, np.repeat(warps, WARP))

    return execute


def bind(name: str, operands: list[str]) -> Any:
    """Return the function on `ptx.Programs` that executes an instruction, or None."""
    base, _, last = name.rpartition(".")
    parts = name.split(".")
    if name.startswith("mov") and operands and "{" in operands[0] + operands[1]:
        return _bind_move(*operands)
    if base in ARITHMETIC:
        return _bind_arithmetic(base, last, operands)
    if name.startswith("ld.param"):
        write, parameter = register_writer(operands[0]), operands[1].strip("[]")
        return lambda programs: write(programs, programs.parameters[parameter])
    if re.fullmatch(r"(ld|st)\.(global|shared)(\.v[24])?\.b\d+", name):
        return _bind_access(name, operands)
    match parts:
        case ["setp", test, kind]:
            return _bind_comparison(test, kind, operands)
        case ["cvt", *modifiers, to, source]:
            return _bind_conversion(modifiers, to, source, operands)
        case ["shfl", "sync", "bfly" | "idx" as kind, "b32"]:
            return _bind_shuffle(kind, operands)
        case ["redux", "sync", "min" | "max" as kind, dtype]:
            return _bind_reduction(kind, dtype, operands)
        case ["ldmatrix", "sync", "aligned", "m8n8", "x1", "shared", "b16"]:
            return _bind_matrix(operands)
        case ["bar", "sync"]:
            return lambda programs: programs.barrier()
        case ["bar", "warp", "sync"]:
            return lambda programs: programs.warp_barrier()
    return None


class Instruction(NamedTuple):
    """One line of PTX: `@%p1 ld.global.b32 {%r1}, [%rd1+4];`."""

    text: str
    name: str
    source: str  # file:line:column of the Triton kernel
    guard: Get | None
    is_negated: bool
    execute: Callable[[Any], None] | None  # None for branches
    label: str  # of a branch; empty to return


LINE = re.compile(r"(?:@(!?)(%\w+)\s+)?([a-z]\w*(?:\.\w+)*)\s*(.*);")
OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s][^,]*")


@cache
def parse(ptx: str) -> tuple[list[Instruction], dict[str, int], list[str]]:
    """Return the instructions, the places of labels, and the names of parameters."""
    code: list[Instruction] = []
    labels: dict[str, int] = {}
    source = ""
    for line in ptx[ptx.index("\n{") + 2 : ptx.index("\n}")].splitlines():
        if ".loc" in line and "//" in line:
            source = line.split("//")[1].split()[0]
        line = line.split("//")[0].strip()
        if line.endswith(":"):
            labels[line[:-1]] = len(code)
        elif line and line[0] not in "{}.":
            found = LINE.fullmatch(line)
            if not found:
                raise NotImplementedError(f"PTX: {line}")
            negated, guard, name, rest = found.groups()
            operands = [part.strip() for part in OPERAND.findall(rest)]
            is_branch = name in ("bra", "bra.uni", "ret")
            execute = None if is_branch else bind(name, operands)
            if not is_branch and execute is None:
                raise NotImplementedError(f"PTX: {line}")
            code.append(
                Instruction(
                    line,
                    name,
                    source,
                    reader(guard, DTYPES["pred"]) if guard else None,
                    bool(negated),
                    execute,
                    operands[0] if is_branch and operands else "",
                )
            )
    return code, labels, re.findall(r"\.param [^,)]*?(\w+_param_\d+)", ptx)
