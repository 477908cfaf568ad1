"""An interpreter for the PTX code that Triton's compiler generates.

    run(ptx, grid, threads, shared, arguments)

PTX is what the compiler passes to NVIDIA's assembler. Unlike Triton's interpreter,
which executes Python, this shows what the threads of a compiled kernel do. It raises a
`Fault` for

- an access outside of an array, or at an address that is not a multiple of its size,
- a read of memory or of a register that was never written,
- a race: two threads access the same byte, at least one of them writes, and no barrier
  separates them. In global memory, barriers do not count: a kernel should never read
  what its own launch writes,
- a barrier, shuffle or reduction that only some threads of a program or warp reach.

All threads execute an instruction together, as NumPy arrays with an entry per thread.
Threads that took different branches wait for each other where their paths meet. Races
are found by comparing who accessed what, so the order of execution does not matter.

Limits:

- Only the instructions that occur in our kernels are known; others raise
  NotImplementedError.
- Two threads may store the same value to the same place. Threads of a warp count as
  unordered, also where GPUs execute them in lockstep.
- Approximate instructions (`ex2.approx`, `div.full`) are computed exactly, and `fma`
  rounds twice: float32 in float64, and float64 in the wider type of NumPy.
- Registers that were never written are found only if no thread has written them.
- The assembler (allocation of registers, order of instructions), caches and time are
  not modeled. Neither are AMD GPUs.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from perron_tests.ptx_instructions import WARP, Fault, Instruction, parse

NOBODY, SEVERAL = -1, -2  # instead of the number of a thread
MAX_THREADS = 4096  # executed together

# Called, if set, with each instruction and the threads that execute it, and with the
# arrays and the number of warps of each launch after it.
on_instruction: Callable[[str, np.ndarray], None] | None = None
on_launch: Callable[["Arrays", int], None] | None = None


class Memory:
    """Bytes, whether they are defined, and which threads have accessed them."""

    def __init__(self, data: np.ndarray, is_defined: np.ndarray):
        self.data = data
        self.is_defined = is_defined
        self.writer = np.full(len(data), NOBODY, np.int32)
        self.reader = np.full(len(data), NOBODY, np.int32)

    def forget(self, places: Any) -> None:
        """Order all accesses so far before the following ones."""
        self.writer[places] = NOBODY
        self.reader[places] = NOBODY

    def load(self, places: np.ndarray, threads: np.ndarray) -> np.ndarray:
        """Return bytes at places (threads, bytes)."""
        if not self.is_defined[places].all():
            raise Fault("reads memory that was never written")
        threads = threads[:, None]
        writer = self.writer[places]
        if ((writer != NOBODY) & (writer != threads)).any():
            raise Fault("race: reads what another thread writes")
        before = self.reader[places]
        self.reader[places] = threads
        is_alone = (before == NOBODY) | (before == threads)
        is_alone &= self.reader[places] == threads
        self.reader[places[~is_alone]] = SEVERAL
        return self.data[places]

    def store(self, places: np.ndarray, threads: np.ndarray, values: Any) -> None:
        """Write bytes at places (threads, bytes)."""
        threads = threads[:, None]
        reader, writer = self.reader[places], self.writer[places]
        if ((reader != NOBODY) & (reader != threads)).any():
            raise Fault("race: writes what another thread reads")
        is_other = (writer != NOBODY) & (writer != threads)
        if (is_other & (self.data[places] != values)).any():
            raise Fault("race: writes what another thread writes")
        self.data[places] = values
        if (self.data[places] != values).any():
            raise Fault("race: two threads write to the same place")
        self.writer[places] = threads
        self.is_defined[places] = True


class Arrays:
    """The arrays of a launch: byte b of array a has the address (a + 1) 2³² + b."""

    def __init__(self, arrays: list[tuple[np.ndarray, np.ndarray]]):
        self.arrays = arrays
        self.sizes = np.array([len(data) for data, _ in arrays], np.int64)
        self.starts = np.cumsum(self.sizes) - self.sizes
        self.memory = Memory(*(np.concatenate(p) for p in zip(*arrays, strict=True)))

    def places(self, address: np.ndarray) -> tuple[np.ndarray, Any, Any]:
        """Return offset and size in its array of each address, and where it starts."""
        array = (address >> 32) - 1
        if ((array < 0) | (array >= len(self.sizes))).any():
            raise Fault("out of bounds: an address that belongs to no array")
        return address & 0xFFFFFFFF, self.sizes[array], self.starts[array]

    def copy_back(self) -> None:
        """Write the results to the arrays."""
        for number, (data, is_defined) in enumerate(self.arrays):
            start = self.starts[number]
            data[:] = self.memory.data[start : start + len(data)]
            is_defined[:] = self.memory.is_defined[start : start + len(data)]


class Programs:
    """Some programs of a launch, with their registers and shared memory."""

    def __init__(
        self, parameters: Any, arrays: Arrays, threads: int, shared: int, programs: Any
    ):
        self.parameters, self.arrays = parameters, arrays
        self.size, self.shared_size = threads, shared
        count = len(programs)
        number = np.arange(count * threads)
        self.threads = number + programs[0][0] * threads
        self.lane = number % WARP
        self.program = number // threads
        nothing = np.zeros(count * shared, np.uint8)
        self.shared = Memory(nothing, nothing.astype(bool))
        self.registers = {"%tid.x": (number % threads).astype(np.uint32)}
        for axis, letter in enumerate("xyz"):
            places = np.array([place[1 + axis] for place in programs], np.uint32)
            self.registers[f"%ctaid.{letter}"] = np.repeat(places, threads)
        self.active: np.ndarray | None = None  # None if all threads are

    def for_all(self, value: np.ndarray) -> np.ndarray:
        """Return a value per thread."""
        return value if value.ndim else np.full(len(self.threads), value)

    def require_all(self, size: int) -> None:
        """Fail if only some threads of a group of this size are active."""
        if self.active is not None:
            groups = self.active.reshape(-1, size)
            if (groups.any(1) != groups.all(1)).any():
                raise Fault("not reached by all threads that have to")

    def barrier(self) -> None:
        """Order the accesses of a program to shared memory."""
        self.require_all(self.size)
        if self.active is None:
            self.shared.forget(slice(None))
        else:
            self.shared.forget(np.repeat(self.active[:: self.size], self.shared_size))

    def warp_barrier(self) -> None:
        """Order the accesses of a warp, which has to be the whole program."""
        if self.size != WARP:
            raise NotImplementedError("PTX: bar.warp.sync with several warps")
        self.barrier()

    def _places(self, address: np.ndarray, is_shared: bool, width: int) -> Any:
        """Return the memory, and the places (threads, width) of bytes in it."""
        if (address % width).any():
            raise Fault(f"{width} bytes at an address that is not a multiple of that")
        if is_shared:
            program = self.program if self.active is None else self.program[self.active]
            memory, offset, size = self.shared, address, self.shared_size
            start: Any = program * size
        else:
            memory = self.arrays.memory
            offset, size, start = self.arrays.places(address)
        outside = offset + width > size
        if outside.any():
            first = offset[outside][0]
            of = np.broadcast_to(size, offset.shape)[outside][0]
            raise Fault(f"out of bounds: bytes {first} to {first + width} of {of}")
        return memory, (start + offset)[:, None] + np.arange(width)

    def load(self, address: np.ndarray, is_shared: bool, dtype: Any, count: int) -> Any:
        """Return ``count`` consecutive values for each thread."""
        result = np.zeros((len(address), count), dtype)
        some = slice(None) if self.active is None else self.active
        width = dtype.itemsize * count
        memory, places = self._places(address[some], is_shared, width)
        result[some] = memory.load(places, self.threads[some]).view(dtype)
        return result

    def store(self, address: np.ndarray, is_shared: bool, values: np.ndarray) -> None:
        """Write the values (threads, count) to consecutive places."""
        some = slice(None) if self.active is None else self.active
        data = np.ascontiguousarray(values[some]).view(np.uint8)
        memory, places = self._places(address[some], is_shared, data.shape[1])
        memory.store(places, self.threads[some], data)

    def _guarded(self, step: Instruction) -> np.ndarray | None:
        """Return the active threads that execute a step; None if all do."""
        if step.guard is None:
            return self.active
        guard = step.guard(self) != step.is_negated
        guard = guard if self.active is None else guard & self.active
        return None if guard.all() else guard

    def execute(self, step: Instruction) -> None:
        """Execute an instruction that is not a branch."""
        before = self.active
        self.active = self._guarded(step)
        if self.active is None or self.active.any():
            step.execute(self)
            if on_instruction is not None:
                everyone = np.ones(len(self.threads), bool)
                on_instruction(
                    step.name, everyone if self.active is None else self.active
                )
        self.active = before

    def run(self, code: list[Instruction], labels: dict[str, int]) -> None:
        """Run until all threads have returned."""
        everyone = np.ones(len(self.threads), bool)
        pending = {0: everyone}  # threads by the instruction at which they wait
        while pending:
            place = min(pending)
            active = pending.pop(place)
            self.active = None if active.all() else active
            while (step := code[place]).execute is not None:
                try:
                    self.execute(step)
                except Fault as fault:
                    raise Fault(f"{fault}: {step.text} ({step.source})") from None
                place += 1
                if place in pending:
                    active = active | pending.pop(place)
                    self.active = None if active.all() else active
            jumping = self._guarded(step)
            jumping = everyone if jumping is None else jumping
            for group, to in (
                (jumping, labels[step.label] if step.label else None),
                (active & ~jumping, place + 1),
            ):
                if to is not None and group.any():
                    pending[to] = group | pending.get(to, False)


def run(
    ptx: str, grid: tuple[int, ...], threads: int, shared: int, arguments: list[Any]
) -> None:
    """Launch a kernel.

    Args:
        ptx: The code, with one kernel.
        grid: Number of programs along up to three axes.
        threads: Number of threads of a program.
        shared: Bytes of shared memory of a program.
        arguments: A number for each parameter, as a NumPy scalar of its type, or a pair
            of byte arrays: the data, and which of them are defined. The kernel writes
            to both. Missing arguments are 0.
    """
    code, labels, names = parse(ptx)
    parameters: dict[str, Any] = dict.fromkeys(names, np.uint64(0))
    pairs: list[tuple[np.ndarray, np.ndarray]] = []
    for name, argument in zip(names, arguments, strict=False):
        parameters[name] = argument
        if isinstance(argument, tuple):
            pairs.append(argument)
            parameters[name] = np.uint64(len(pairs) << 32)
    arrays = Arrays(pairs)
    x, y, z = (*grid, 1, 1)[:3]
    programs = [(i, i % x, i // x % y, i // (x * y)) for i in range(x * y * z)]
    together = max(1, MAX_THREADS // threads)
    with np.errstate(all="ignore"):
        for first in range(0, len(programs), together):
            some = programs[first : first + together]
            Programs(parameters, arrays, threads, shared, some).run(code, labels)
    arrays.copy_back()
    if on_launch is not None:
        on_launch(arrays, len(programs) * threads // WARP)
