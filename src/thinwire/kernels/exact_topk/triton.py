"""The exact k largest magnitudes on CUDA, without the host waiting for the device.

The k-th magnitude is candidates by a radix selection: its bits, eight at a time from the top, each
from a histogram of the elements that agree with it so far. Then what is larger, and the first of
what is equal, is listed in order; the histograms have told each program where its own begin.

That is done with the candidates, where at least k passed the guess and all of them are listed; the
kernel decides it from the count on the device. Else two digits of the k-th magnitude are candidates
from the whole of `x`. Few elements agree with both or are larger, unless there are many ties: then
they take the candidates' place, in one more pass, or else all elements are looked at to the end.

All of it is one cooperative launch: its programs run at once, and wait for each other between the
rounds. A launch for each round would take the host longer than the device takes for all of them.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from thinwire.kernels._triton import load_tile, magnitude_key
from thinwire.kernels.compact import Found
from thinwire.kernels.compact.triton import compact
from thinwire.kernels.exact_topk.sample import room, sample

BLOCK, LARGE_BLOCK = 1024, 2048  # elements that a program looks at: of few, of very many
WARPS = 4
PROGRAMS_A_MULTIPROCESSOR = 4
REGISTERS = 65536 // (32 * WARPS * PROGRAMS_A_MULTIPROCESSOR)  # a thread: so that they fit
SAMPLE_FROM = 1 << 21  # below this many elements all are looked at sooner than a sample is taken
BINS = tl.constexpr(256)  # of a digit of eight bits
NARROWING = tl.constexpr(2)  # digits after which few elements should be left


@triton.jit
def _wait_for_all(arrived, turn):
    """No program goes on before all have come here for the `turn`-th time.

    A cooperative launch starts no program before there is room for all: none waits for ever.
    """
    tl.debug_barrier()
    tl.atomic_add(arrived, 1, sem="release")
    while tl.atomic_add(arrived, 0, sem="acquire") < turn * tl.num_programs(0):
        pass
    tl.debug_barrier()


@triton.jit
def _digit(tally, rank):
    """The digit of the element of that rank from the top, its rank among equals, and these."""
    bins = tl.arange(0, BINS)
    reaching = tl.sum(tally) - tl.cumsum(tally) + tally
    digit = tl.max(tl.where(reaching >= rank, bins, 0))
    larger = tl.sum(tl.where(bins > digit, tally, 0))
    return digit, rank - larger, tl.sum(tl.where(bins == digit, tally, 0))


@triton.jit
def _refine(
    pointer, begin, end, prefix, rank, larger, histograms, arrived, turn,
    FIRST: tl.constexpr, LAST: tl.constexpr, ROUNDS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The digits from FIRST to LAST of the key sought, behind the `prefix` known of it.

    `rank` is its rank among all elements that agree with the prefix, `larger` how many of those
    from `begin` to `end` are larger. Both are returned anew, and how many agree now, here and in
    all.
    """
    lane = tl.arange(0, BLOCK)
    bins = tl.arange(0, BINS)
    agreeing_here = tl.zeros((), tl.int64)
    agreeing = tl.zeros((), tl.int64)
    for place in range(FIRST, LAST):
        tally = tl.zeros((BINS,), tl.int32)
        shift = 8 * (ROUNDS - 1 - place)
        next_block = load_tile(pointer + begin, lane, end - begin, "")
        for start in range(begin, end, BLOCK):
            key = magnitude_key(next_block) >> shift
            next_block = load_tile(pointer + start + BLOCK, lane, end - start - BLOCK, "")
            agrees = ((key >> 8) == prefix.to(key.dtype)) & (lane < end - start)
            if tl.max(agrees.to(tl.int32)) > 0:
                digit = (key & (BINS - 1)).to(tl.int32)
                tally += tl.histogram(digit, BINS, mask=agrees)
        histogram = histograms + place * BINS + bins
        tl.atomic_add(histogram, tally.to(tl.int64), mask=tally > 0, sem="relaxed")
        _wait_for_all(arrived, turn + place + 1)
        digit, rank, agreeing = _digit(tl.load(histogram, cache_modifier=".cg"), rank)
        larger += tl.sum(tl.where(bins > digit, tally, 0))
        agreeing_here = tl.sum(tl.where(bins == digit, tally, 0)).to(tl.int64)
        prefix = (prefix << 8) + digit
    return prefix, rank, larger, agreeing_here, agreeing


@triton.jit
def _before(larger, equal, counts, arrived, turn, MOST_PROGRAMS: tl.constexpr):
    """How many are larger and how many equal in the pieces of the programs before this one."""
    program = tl.program_id(0)
    tl.store(counts + program, larger)
    tl.store(counts + MOST_PROGRAMS + program, equal)
    _wait_for_all(arrived, turn)
    others = tl.arange(0, MOST_PROGRAMS)
    mask = others < program
    larger = tl.sum(tl.load(counts + others, mask, 0, cache_modifier=".cg"))
    return larger, tl.sum(tl.load(counts + MOST_PROGRAMS + others, mask, 0, cache_modifier=".cg"))


@triton.jit
def _share(length, BLOCK: tl.constexpr):
    """Where this program's piece of so many elements begins and ends."""
    share = tl.cdiv(tl.cdiv(length, BLOCK), tl.num_programs(0)) * BLOCK
    begin = tl.minimum(tl.program_id(0) * share, length)
    return begin, tl.minimum(begin + share, length)


@triton.jit
def _list(pointer, names, begin, end, kth, listed, room, indices, values, BLOCK: tl.constexpr):
    """List those larger than the k-th, and of those equal the first `room`, behind the `listed`.

    They are called by their `names`, if they have any, else by their places.
    """
    lane = tl.arange(0, BLOCK)
    next_block = load_tile(pointer + begin, lane, end - begin, "")
    for start in range(begin, end, BLOCK):
        value = next_block
        next_block = load_tile(pointer + start + BLOCK, lane, end - start - BLOCK, "")
        key = magnitude_key(value)
        left = tl.minimum(end - start, BLOCK).to(tl.int32)
        open_here = tl.minimum(room, left).to(tl.int32)
        larger = (key > kth.to(key.dtype)) & (lane < left)
        equal = (key == kth.to(key.dtype)) & (lane < tl.where(open_here > 0, left, 0))
        both = larger.to(tl.int32) + (equal.to(tl.int32) << 16)  # two counts in one word
        if tl.max(both) > 0:
            before = tl.cumsum(both) - both
            taken = larger | (equal & ((before >> 16) < open_here))
            place = (before & 0xFFFF) + tl.minimum(before >> 16, open_here)
            name = start + lane.to(tl.int64)
            if names is not None:
                name = tl.load(names + name, mask=taken)
            tl.store(indices + listed + place, name, mask=taken)
            tl.store(values + listed + place, value, mask=taken)
            here = tl.sum(both)
            equals = tl.minimum(here >> 16, open_here)
            listed += (here & 0xFFFF) + equals
            room -= equals


@triton.jit
def _finish(
    pointer, names, begin, end, prefix, rank, larger, counts, histograms, arrived, turn,
    indices, values, kth_magnitude,
    MOST_PROGRAMS: tl.constexpr, FIRST: tl.constexpr, ROUNDS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The digits of the k-th key from FIRST on, and the list."""
    kth, room, larger, equal, _ = _refine(
        pointer, begin, end, prefix, rank, larger, histograms, arrived, turn,
        FIRST, ROUNDS, ROUNDS, BLOCK,
    )  # fmt: skip
    larger, equal = _before(larger, equal, counts, arrived, turn + ROUNDS + 1, MOST_PROGRAMS)
    listed, room = larger + tl.minimum(equal, room), tl.maximum(room - equal, 0)
    _list(pointer, names, begin, end, kth, listed, room, indices, values, BLOCK)
    if tl.program_id(0) == 0:
        bits = kth.to(magnitude_key(tl.load(pointer)).dtype) >> 1
        tl.store(kth_magnitude, bits.to(pointer.dtype.element_ty, bitcast=True))


@triton.jit(do_not_specialize=["numel", "capacity", "k"])
def _select(
    x, numel, candidates, names, count, capacity, k, scratch, indices, values, kth_magnitude,
    MOST_PROGRAMS: tl.constexpr, BLOCK: tl.constexpr, LARGE_BLOCK: tl.constexpr,
):  # fmt: skip
    ROUNDS: tl.constexpr = x.dtype.element_ty.primitive_bitwidth // 8
    arrived, counts = scratch, scratch + 1
    histograms = counts + 2 * MOST_PROGRAMS
    passed = tl.load(count)
    few = (passed >= k) & (passed <= capacity)
    nothing = tl.zeros((), tl.int64)
    prefix, rank, larger, turn = nothing, nothing + k, nothing, nothing
    begin, end = _share(numel.to(tl.int64), LARGE_BLOCK)
    if not few:
        prefix, rank, larger, agreeing_here, agreeing = _refine(
            x, begin, end, prefix, rank, larger, histograms, arrived, turn,
            0, NARROWING, ROUNDS, LARGE_BLOCK,
        )  # fmt: skip
        passed = k - rank + agreeing
        few = passed <= capacity
        if few:
            before = _before(
                larger, agreeing_here, counts, arrived, NARROWING + 1, MOST_PROGRAMS
            )  # fmt: skip
            least = prefix << (8 * (ROUNDS - NARROWING))
            _list(
                x, None, begin, end, least, before[0] + before[1], numel.to(tl.int64),
                names, candidates, LARGE_BLOCK,
            )  # fmt: skip
            _wait_for_all(arrived, NARROWING + 2)
            turn += NARROWING + 2
            histograms += NARROWING * BINS
    if few:
        begin, end = _share(passed, BLOCK)
        _finish(
            candidates, names, begin, end, nothing, nothing + k, nothing, counts, histograms,
            arrived, turn, indices, values, kth_magnitude, MOST_PROGRAMS, 0, ROUNDS, BLOCK,
        )  # fmt: skip
    else:
        _finish(
            x, None, begin, end, prefix, rank, larger, counts, histograms,
            arrived, turn, indices, values, kth_magnitude,
            MOST_PROGRAMS, NARROWING, ROUNDS, LARGE_BLOCK,
        )  # fmt: skip


def _programs(x: Tensor) -> int:
    """How many can run at once; Triton's interpreter runs one after the other."""
    if x.device.type != "cuda":
        return 1
    room: int = torch.cuda.get_device_properties(x.device).multi_processor_count
    return min(PROGRAMS_A_MULTIPROCESSOR * room, -(-x.numel() // BLOCK))


def largest_of(candidates: Found, x: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    programs = _programs(x)
    most = triton.next_power_of_2(programs)
    # The arrivals, two counts a program, and a histogram a round: some rounds come twice.
    words = 1 + 2 * most + (x.element_size() + NARROWING.value) * BINS.value
    scratch = torch.zeros(words, dtype=torch.int64, device=x.device)
    indices = torch.empty(k, dtype=torch.int64, device=x.device)
    values = torch.empty(k, dtype=x.dtype, device=x.device)
    kth = torch.empty((), dtype=x.dtype, device=x.device)
    _select[(programs,)](
        x, x.numel(), candidates.values, candidates.indices, candidates.count,
        candidates.capacity, k, scratch, indices, values, kth, most, BLOCK,
        LARGE_BLOCK if x.numel() > programs * LARGE_BLOCK else BLOCK,
        num_warps=WARPS, maxnreg=REGISTERS, launch_cooperative_grid=True,
    )  # fmt: skip
    return indices, values, kth


def largest(x: Tensor, k: int, guess: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    if guess is None:
        sampled = sample(x, k) if x.numel() >= SAMPLE_FROM else None
        if sampled is None:
            return largest_of(_nothing(x), x, k)
        some, rank = sampled
        guess = largest_of(_nothing(some), some, rank)[2]
    return largest_of(compact(x, guess, room(x.numel(), k)), x, k)


def _nothing(x: Tensor) -> Found:
    """Candidates that never hold, so that all elements are looked at."""
    none = torch.empty(0, dtype=torch.int64, device=x.device)
    return Found(none, x[:0], torch.zeros((), dtype=torch.int64, device=x.device))
