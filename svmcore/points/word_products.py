"""Products of bytes in vector registers: a tile of sums stays there while the features pass by, a word at a time.

A word is four bytes, or 32 bits. Which instruction multiplies bytes depends on the processor; see `INSTRUCTIONS`. All
that it may be are exact, so their bits are the same.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from svmcore.runtime.compiled import njit

__all__ = [
    "BITS",
    "LANES",
    "PANELS",
    "ROWS",
    "SIGNED",
    "UNSIGNED",
    "WINDOW",
    "Instruction",
    "add_on_words",
    "instruction",
    "ones",
    "set_on_words",
]

ROWS, PANELS, LANES = 4, 6, 16  # of a tile of sums: ROWS x PANELS lines of LANES. Low and wide: of pictures, words that
# are 0 in all of 4 rows are 52 %, of 8 rows 45 %
WINDOW = 128  # rows, of which any may share a tile
UNSIGNED, SIGNED, BITS = 0, 1, 2


class Instruction(NamedTuple):
    """What multiplies bytes.

    Attributes
    ----------
    feature, title
        Of the processor, as LLVM and as people call it.
    name
        In LLVM's code.
    lanes
        Sums of 32 bits in a register.
    widens
        Whether it multiplies integers of 16 bits, so that the even and the odd bytes take turns.
    """

    feature: str
    title: str
    name: str
    lanes: int
    widens: bool


INSTRUCTIONS = (  # the best first
    Instruction("avx512vnni", "AVX-512 VNNI", "llvm.x86.avx512.vpdpbusd.512", 16, widens=False),
    Instruction("avxvnni", "AVX-VNNI", "llvm.x86.avx512.vpdpbusd.256", 8, widens=False),
    Instruction("avx512bw", "AVX-512", "llvm.x86.avx512.pmaddw.d.512", 16, widens=True),
    Instruction("avx2", "AVX2", "llvm.x86.avx2.pmadd.wd", 8, widens=True),
)
NAMED = {"haswell": {"avx2"}, "alderlake": {"avx2", "avxvnni"}, "skylake-avx512": {"avx2", "avx512bw"}}


@lru_cache(maxsize=1)
def instruction() -> Instruction | None:
    """The best one that numba compiles for; None where products of bytes are made in plain steps, too slow to pay."""
    there = _features()
    return next((each for each in INSTRUCTIONS if each.feature in there), None)


def _features() -> set[str]:
    """Features of the processor that numba compiles for, as far as they matter here."""
    if not numba.config.ENABLE_AVX:
        return set()
    if numba.config.CPU_FEATURES is not None:
        return {feature[1:] for feature in numba.config.CPU_FEATURES.split(",") if feature.startswith("+")}
    if numba.config.CPU_NAME is not None:
        return NAMED.get(numba.config.CPU_NAME, set())
    try:
        return {name for name, is_there in llvm.get_host_cpu_features().items() if is_there}
    except RuntimeError:  # a processor of which LLVM tells nothing
        return set()


_I8, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))


def _tile(add: Any) -> Any:
    """A function that adds to a tile (ROWS, COLUMNS) of sums; it takes addresses, distances in bytes, and counts.

    At `rows` bytes say which rows of `out` the tile's are. `add(builder, sums, word, column)` is what a word of the
    left side and one of the right add to a register of sums. As LLVM's intermediate code, because no loop of numba
    keeps the sums in registers: 24 of 512 bits, or 12 of 256, which take the tile in four parts.
    """

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        used = instruction()
        lanes = LANES if used is None else used.lanes
        columns = PANELS * LANES if lanes == LANES else PANELS * LANES // 4
        for left in range(0, PANELS * LANES, columns):
            _add_part(builder, add, arguments, range(left, left + columns, lanes), lanes)
        return context.get_dummy_value()

    @intrinsic
    def tile(typing_context, words, at, steps, panel, panel_stride, out, out_stride, rows):  # type: ignore[no-untyped-def]
        return types.void(*[types.int64] * 8), generate

    return tile


def _add_part(builder: Any, add: Any, arguments: Any, columns: range, lanes: int) -> None:
    """The loop over the steps for some columns of the tile, whose sums fit the registers."""
    words, at, steps, panel, panel_stride, out, out_stride, rows = arguments
    register, zero, one = ir.VectorType(_I32, lanes), ir.Constant(_I64, 0), ir.Constant(_I64, 1)
    places = [builder.zext(_load(builder, _at(builder, rows, (1, r), kind=_I8), 1), _I64) for r in range(ROWS)]
    lefts = [builder.add(out, builder.mul(out_stride, place)) for place in places]
    targets = [_at(builder, left, (4, c), kind=register) for left in lefts for c in columns]
    before = [_load(builder, target, 4) for target in targets]
    entry, loop, end = builder.block, builder.append_basic_block("features"), builder.append_basic_block("end")
    builder.branch(loop)
    builder.position_at_end(loop)
    k = builder.phi(_I64)
    sums = [builder.phi(register) for _ in targets]
    place = builder.zext(_load(builder, _at(builder, at, (k, 4), kind=_I32), 4), _I64)
    lines = [
        _at(builder, panel, (panel_stride, c // LANES), (place, 64), (4, c % LANES), kind=register) for c in columns
    ]
    right = [_load(builder, line, 4 * lanes) for line in lines]
    each = [_load(builder, _at(builder, words, (k, 4 * ROWS), (4, r), kind=_I32), 4) for r in range(ROWS)]
    left = [_in_every_lane(builder, word, register) for word in each]
    pairs = [(word, column) for word in left for column in right]
    added = [add(builder, total, *pair) for total, pair in zip(sums, pairs, strict=True)]
    following = builder.add(k, one)
    for now, start, then in zip((k, *sums), (zero, *before), (following, *added), strict=True):
        now.add_incoming(start, entry)
        now.add_incoming(then, loop)
    builder.cbranch(builder.icmp_signed("<", following, steps), loop, end)
    builder.position_at_end(end)
    for target, then in zip(targets, added, strict=True):
        builder.store(then, target).align = 4


def _at(builder: Any, base: Any, *offsets: tuple[Any, int], kind: Any) -> Any:
    """The address `base` + distance times count of each of the `offsets`."""
    for distance, count in offsets:
        distance = ir.Constant(_I64, distance) if isinstance(distance, int) else distance
        base = builder.add(base, builder.mul(distance, ir.Constant(_I64, count))) if count else base
    return builder.inttoptr(base, kind.as_pointer())


def _load(builder: Any, address: Any, align: int) -> Any:
    value = builder.load(address)
    value.align = align
    return value


def _in_every_lane(builder: Any, word: Any, register: Any) -> Any:
    nothing = ir.Constant(register, ir.Undefined)
    single = builder.insert_element(nothing, word, ir.Constant(_I32, 0))
    return builder.shuffle_vector(single, nothing, ir.Constant(register, [0] * register.count))


def _call(builder: Any, name: str, result: Any, *arguments: Any) -> Any:
    """Call one of LLVM's own functions."""
    function = builder.module.globals.get(name)
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(function or ir.Function(builder.module, kind, name), arguments)


def _add_products(builder: Any, sums: Any, unsigned: Any, signed: Any) -> Any:
    """sums[l] + the four products of bytes of lane l."""
    used = instruction()
    if used is None:
        return _add_plainly(builder, sums, unsigned, signed)
    if not used.widens:
        return _call(builder, used.name, sums.type, sums, unsigned, signed)
    halves = ir.VectorType(_I16, 2 * used.lanes)
    byte = ir.Constant(halves, [8] * halves.count)
    left, right = builder.bitcast(unsigned, halves), builder.bitcast(signed, halves)
    even = builder.and_(left, ir.Constant(halves, [255] * halves.count)), builder.ashr(builder.shl(right, byte), byte)
    odd = builder.lshr(left, byte), builder.ashr(right, byte)
    products = [_call(builder, used.name, sums.type, *pair) for pair in (even, odd)]
    return builder.add(sums, builder.add(*products))


def _add_plainly(builder: Any, sums: Any, unsigned: Any, signed: Any) -> Any:
    bytes_, wide = ir.VectorType(_I8, 4 * LANES), ir.VectorType(_I32, 4 * LANES)
    left, right = (
        builder.zext(builder.bitcast(unsigned, bytes_), wide),
        builder.sext(builder.bitcast(signed, bytes_), wide),
    )
    products = builder.mul(left, right)
    for byte in range(4):
        lanes = ir.Constant(sums.type, [4 * lane + byte for lane in range(LANES)])
        sums = builder.add(sums, builder.shuffle_vector(products, ir.Constant(wide, ir.Undefined), lanes))
    return sums


def _add_signed(builder: Any, sums: Any, signed: Any, unsigned: Any) -> Any:
    """As `_add_products`, the other way round."""
    return _add_products(builder, sums, unsigned, signed)


def _add_common_bits(builder: Any, sums: Any, left: Any, right: Any) -> Any:
    """sums[l] + the number of bits that lane l has in both: one instruction, or a table of half bytes."""
    common = builder.and_(left, right)
    return builder.add(sums, _call(builder, f"llvm.ctpop.v{sums.type.count}i32", sums.type, common))


_unsigned_tile = _tile(_add_products)
_signed_tile = _tile(_add_signed)
_bits_tile = _tile(_add_common_bits)


@intrinsic
def ones(typing_context, word):  # type: ignore[no-untyped-def]
    """How many bits of a word are 1."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return _call(builder, "llvm.ctpop.i64", _I64, *arguments)

    return types.int64(types.uint64), generate


@njit
def add_on_words(words, at, first, places, form, panels, out):  # type: ignore[no-untyped-def]
    """Tile by tile: a panel and the left side stay in the second-level cache."""
    stride = panels.strides[0]
    for c in range(0, panels.shape[0], PANELS):
        panel = panels[c:].ctypes.data
        for r in range(len(first) - 1):
            steps = first[r + 1] - first[r]
            left, features = words[first[r] :].ctypes.data, at[first[r] :].ctypes.data
            rows = places[r * ROWS :].ctypes.data
            target = out[r * ROWS // WINDOW * WINDOW :, c * LANES :].ctypes.data
            if steps > 0 and form == BITS:
                _bits_tile(left, features, steps, panel, stride, target, out.strides[0], rows)
            elif steps > 0 and form == SIGNED:
                _signed_tile(left, features, steps, panel, stride, target, out.strides[0], rows)
            elif steps > 0:
                _unsigned_tile(left, features, steps, panel, stride, target, out.strides[0], rows)


@njit
def set_on_words(words, at, first, places, sums, form, panels, out):  # type: ignore[no-untyped-def]
    """One call: threads that come and go wait for the interpreter."""
    for i in range(len(sums)):
        out[i, :] = sums[i]
    add_on_words(words, at, first, places, form, panels, out)
