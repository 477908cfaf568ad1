"""Vector instructions for kernels: eight texts side by side, one in each lane.

numba turns a loop into vector instructions only if it is long, and proves anew before
each loop that its arrays do not overlap. For short texts that costs more than the
arithmetic. The functions here, callable from compiled kernels only, say it outright:
"these eight numbers, that many times". LLVM maps them to whatever the processor has.

Arrays are flat. ``x @ p, d`` below means the eight numbers from ``x[p + v d]`` on, for
v = 0, 1, … count - 1. A narrower number is widened to the precision of the result.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import extending
from numba.core import cgutils, types

LANES = 8

intrinsic: Any = extending.intrinsic

_FUSE = ("contract",)  # a multiplication and an addition may become one instruction


class _Lanes:
    """Loads, stores and arithmetic on eight numbers, while a kernel is compiled."""

    def __init__(self, context: Any, builder: Any, result: Any) -> None:
        self.context, self.builder = context, builder
        self.kind = context.get_value_type(result.dtype)
        self.vector = ir.VectorType(self.kind, LANES)

    def place(self, array: Any, value: Any, start: Any, step: Any, turn: Any) -> Any:
        data = self.context.make_array(array)(self.context, self.builder, value).data
        index = start
        if step is not None:
            index = self.builder.add(start, self.builder.mul(step, turn))
        element = self.context.get_value_type(array.dtype)
        pointer = self.builder.gep(data, [index], inbounds=True)
        return self.builder.bitcast(
            pointer, ir.VectorType(element, LANES).as_pointer()
        ), array.dtype.bitwidth // 8

    def load(self, place: Any) -> Any:
        value = self.builder.load(place[0], align=place[1])
        wide = value.type.element == self.kind
        return value if wide else self.builder.fpext(value, self.vector)

    def store(self, value: Any, place: Any) -> None:
        self.builder.store(value, place[0], align=place[1])

    def add_product(self, total: Any, a: Any, b: Any) -> Any:
        product = self.builder.fmul(a, b, flags=_FUSE)
        return self.builder.fadd(total, product, flags=_FUSE)

    def least(self, a: Any, b: Any) -> Any:
        """Return a if a < b, else b."""
        return self.builder.select(self.builder.fcmp_ordered("<", a, b), a, b)

    def repeat(self, count: Any, body: Callable[[Any], None]) -> None:
        with cgutils.for_range(self.builder, count) as loop:
            body(loop.index)

    def gather(self, totals: list[Any], count: Any, body: Callable[..., Any]) -> None:
        """Carry running totals, kept in registers, through a loop; store them."""
        cells = []
        for place in totals:
            value = self.builder.load(place[0], align=place[1])
            cell = cgutils.alloca_once(self.builder, value.type)
            self.builder.store(value, cell)
            cells.append(cell)
        with cgutils.for_range(self.builder, count) as loop:
            before = [self.builder.load(cell) for cell in cells]
            for cell, value in zip(cells, body(loop.index, *before), strict=True):
                self.builder.store(value, cell)
        for cell, place in zip(cells, totals, strict=True):
            self.store(self.builder.load(cell), place)


@intrinsic
def add_multiples(typingctx, y, y0, dy, x, x0, dx, c, c0, count):
    """Add to y @ y0, dy: c @ c0 times x @ x0, dx."""
    signature = types.void(
        y, *[types.intp] * 2, x, *[types.intp] * 2, c, *[types.intp] * 2
    )

    def generate(context: Any, builder: Any, signature: Any, a: Any) -> Any:
        on = _Lanes(context, builder, y)
        factor = on.load(on.place(c, a[6], a[7], None, None))

        def once(turn: Any) -> None:
            source = on.load(on.place(x, a[3], a[4], a[5], turn))
            target = on.place(y, a[0], a[1], a[2], turn)
            on.store(on.add_product(on.load(target), factor, source), target)

        on.repeat(a[8], once)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def add_two_multiples(typingctx, y, y0, c0, x0, c1, x1, count):
    """Add to y @ y0, 8: y @ c0 times y @ x0, 8 and y @ c1 times y @ x1, 8."""
    signature = types.void(y, *[types.intp] * 6)

    def generate(context: Any, builder: Any, signature: Any, a: Any) -> Any:
        on = _Lanes(context, builder, y)
        step = context.get_constant(types.intp, LANES)
        first, second = (on.load(on.place(y, a[0], a[i], None, None)) for i in (2, 4))

        def once(turn: Any) -> None:
            one = on.load(on.place(y, a[0], a[3], step, turn))
            other = on.load(on.place(y, a[0], a[5], step, turn))
            target = on.place(y, a[0], a[1], step, turn)
            value = on.add_product(on.load(target), first, one)
            on.store(on.add_product(value, second, other), target)

        on.repeat(a[6], once)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def add_products(typingctx, y, y0, p, p0, dp, q, q0, dq, count):
    """Add to y @ y0: the sum of p @ p0, dp times q @ q0, dq."""
    signature = types.void(y, types.intp, p, *[types.intp] * 2, q, *[types.intp] * 3)

    def generate(context: Any, builder: Any, signature: Any, a: Any) -> Any:
        on = _Lanes(context, builder, y)

        def once(turn: Any, total: Any) -> list[Any]:
            left = on.load(on.place(p, a[2], a[3], a[4], turn))
            right = on.load(on.place(q, a[5], a[6], a[7], turn))
            return [on.add_product(total, left, right)]

        on.gather([on.place(y, a[0], a[1], None, None)], a[8], once)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def add_products_off(typingctx, y, p, p0, dp, u, rest, near, count):
    """Add to y @ 0: the sum of p @ p0, dp times ((u - near) + rest) @ 0, 8."""
    signature = types.void(y, p, *[types.intp] * 2, u, rest, near, types.intp)

    def generate(context: Any, builder: Any, signature: Any, a: Any) -> Any:
        on = _Lanes(context, builder, y)
        zero, step = (context.get_constant(types.intp, value) for value in (0, LANES))
        level = on.load(on.place(near, a[6], zero, None, None))

        def once(turn: Any, total: Any) -> list[Any]:
            weight = on.load(on.place(p, a[1], a[2], a[3], turn))
            whole = on.load(on.place(u, a[4], zero, step, turn))
            piece = on.load(on.place(rest, a[5], zero, step, turn))
            off = builder.fadd(builder.fsub(whole, level), piece)
            return [on.add_product(total, weight, off)]

        on.gather([on.place(y, a[0], zero, None, None)], a[7], once)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def add_up(typingctx, total, least, x, x0, dx, count):
    """Add to the total: the sum of x @ x0, dx; lower the least to the least of it."""
    signature = types.void(total, least, x, *[types.intp] * 3)

    def generate(context: Any, builder: Any, signature: Any, a: Any) -> Any:
        wide, narrow = _Lanes(context, builder, total), _Lanes(context, builder, x)
        zero = context.get_constant(types.intp, 0)

        def once(turn: Any, running: Any, lowest: Any) -> list[Any]:
            place = narrow.place(x, a[2], a[3], a[4], turn)
            value = narrow.load(place)
            return [
                builder.fadd(running, wide.load(place)),
                narrow.least(value, lowest),
            ]

        ends = [
            wide.place(total, a[0], zero, None, None),
            narrow.place(least, a[1], zero, None, None),
        ]
        narrow.gather(ends, a[5], once)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def multiply(typingctx, y, y0, dy, c, c0, count):
    """Multiply y @ y0, dy by c @ c0."""
    signature = types.void(y, *[types.intp] * 2, c, *[types.intp] * 2)

    def generate(context: Any, builder: Any, signature: Any, a: Any) -> Any:
        on = _Lanes(context, builder, y)
        factor = on.load(on.place(c, a[3], a[4], None, None))

        def once(turn: Any) -> None:
            target = on.place(y, a[0], a[1], a[2], turn)
            on.store(builder.fmul(on.load(target), factor), target)

        on.repeat(a[5], once)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def scale_up(typingctx, y, y0, c, d, low, count):
    """Multiply y @ y0, 8 by c and d, and raise it to low; NaN stays NaN."""
    signature = types.void(y, types.intp, c, d, low, types.intp)

    def generate(context: Any, builder: Any, signature: Any, a: Any) -> Any:
        on = _Lanes(context, builder, y)
        zero, step = (context.get_constant(types.intp, value) for value in (0, LANES))
        first, second, floor = (
            on.load(on.place(kind, value, zero, None, None))
            for kind, value in ((c, a[2]), (d, a[3]), (low, a[4]))
        )

        def once(turn: Any) -> None:
            target = on.place(y, a[0], a[1], step, turn)
            value = builder.fmul(builder.fmul(on.load(target), first), second)
            small = builder.fcmp_ordered("<", value, floor)
            on.store(builder.select(small, floor, value), target)

        on.repeat(a[5], once)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def turn(typingctx, y, y0, x, places, shift):
    """Write to y @ y0, 8, turned: eight numbers of x from each place + shift on."""
    signature = types.void(y, types.intp, x, places, types.intp)

    def generate(context: Any, builder: Any, signature: Any, a: Any) -> Any:
        on = _Lanes(context, builder, y)
        step = context.get_constant(types.intp, LANES)
        starts = context.make_array(places)(context, builder, a[3]).data
        rows = []
        for lane in range(LANES):
            start = builder.load(
                builder.gep(starts, [ir.Constant(ir.IntType(32), lane)])
            )
            start = builder.add(start, a[4])
            rows.append(on.load(on.place(x, a[2], start, None, None)))
        for width in (4, 2, 1):  # swap blocks across the diagonal, ever smaller ones
            for lane in range(LANES):
                if not lane & width:
                    pair = rows[lane], rows[lane + width]
                    for side in (0, width):
                        pick = [
                            (j & ~width | side) + (LANES if j & width else 0)
                            for j in range(LANES)
                        ]
                        mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), pick)
                        rows[lane + side] = builder.shuffle_vector(*pair, mask)
        for lane, row in enumerate(rows):
            index = context.get_constant(types.intp, lane)
            on.store(row, on.place(y, a[0], a[1], step, index))
        return context.get_dummy_value()

    return signature, generate
