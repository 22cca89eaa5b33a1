"""The exact k largest magnitudes on CUDA, without the host waiting for the device.

The k-th magnitude is found by a radix selection: its bits, eight at a time from the top, each
from a histogram of the elements that agree with it so far. Then what is larger, and the first of
what is equal, is listed in order. The elements looked at are the candidates, where at least k
passed the guess and all of them are listed, else the whole of `x`: the kernel decides it from the
count on the device, so that a bad guess takes the same way, only a longer one.

All of it is one cooperative launch: its programs run at once, and wait for each other between the
rounds. A launch for each round would take the host longer than the device takes for all of them.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from thinwire.kernels._triton import load_tile, magnitude_key
from thinwire.kernels.compact import Found
from thinwire.kernels.compact.triton import compact

BLOCK = 2048
WARPS = 8
PROGRAMS_A_MULTIPROCESSOR = 2
REGISTERS = 65536 // (32 * WARPS * PROGRAMS_A_MULTIPROCESSOR)  # a thread: so that they fit
BINS = tl.constexpr(256)  # of eight bits

_CAPACITY_PER_K = 4  # a guess may let through so many times what is sought
_NARROW_FROM = 1 << 14  # below this many elements a sample costs as much as it saves
_LEAST_SAMPLE = 1 << 12
_LONGEST_STRIDE = 128


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
    """The digit of the element of that rank from the top, and its rank among equal digits."""
    bins = tl.arange(0, BINS)
    reaching = tl.sum(tally) - tl.cumsum(tally) + tally
    digit = tl.max(tl.where(reaching >= rank, bins, 0))
    return digit, rank - tl.sum(tl.where(bins > digit, tally, 0))


@triton.jit
def _kth_key(pointer, begin, end, k, histograms, arrived, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    """The key of the k-th magnitude (int64), and how many of those equal to it are among the k."""
    lane = tl.arange(0, BLOCK)
    bins = tl.arange(0, BINS)
    prefix = tl.zeros((), tl.int64)
    rank = prefix + k
    for turn in range(WIDTH // 8):
        tally = tl.zeros((BINS,), tl.int32)
        shift = WIDTH - 8 * (turn + 1)
        for start in range(begin, end, BLOCK):
            key = magnitude_key(load_tile(pointer + start, lane, end - start, "")) >> shift
            agrees = ((key >> 8) == prefix.to(key.dtype)) & (lane < end - start)
            if tl.max(agrees.to(tl.int32)) > 0:
                digit = (key & (BINS - 1)).to(tl.int32)
                tally += tl.histogram(digit, BINS, mask=agrees)
        histogram = histograms + turn * BINS + bins
        tl.atomic_add(histogram, tally.to(tl.int64), mask=tally > 0, sem="relaxed")
        _wait_for_all(arrived, turn + 1)
        digit, rank = _digit(tl.load(histogram, cache_modifier=".cg"), rank)
        prefix = (prefix << 8) + digit
    return prefix, rank


@triton.jit
def _against(pointer, start, end, kth, BLOCK: tl.constexpr):
    """A block of elements, and which are larger than the k-th and which equal, as int32."""
    lane = tl.arange(0, BLOCK)
    value = load_tile(pointer + start, lane, end - start, "")
    key = magnitude_key(value)
    there = lane < end - start
    larger = ((key > kth.to(key.dtype)) & there).to(tl.int32)
    return value, larger, ((key == kth.to(key.dtype)) & there).to(tl.int32)


@triton.jit(do_not_specialize=["numel", "capacity", "k"])
def _select(
    x,
    numel,
    candidates,
    candidate_indices,
    count,
    capacity,
    k,
    scratch,
    indices,
    values,
    kth_magnitude,
    WIDTH: tl.constexpr,
    MOST_PROGRAMS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    program = tl.program_id(0)
    passed = tl.load(count)
    held = (passed >= k) & (passed <= capacity)
    pointer = candidates if held else x
    length = tl.where(held, passed, numel)
    share = tl.cdiv(tl.cdiv(length, BLOCK), tl.num_programs(0)) * BLOCK
    begin = program * share
    end = tl.minimum(begin + share, length)

    ROUNDS: tl.constexpr = WIDTH // 8
    arrived = scratch + ROUNDS * BINS
    kth, room = _kth_key(pointer, begin, end, k, scratch, arrived, WIDTH, BLOCK)

    larger_counts = arrived + 1
    equal_counts = larger_counts + MOST_PROGRAMS
    larger_here = tl.zeros((), tl.int64)
    equal_here = tl.zeros((), tl.int64)
    for start in range(begin, end, BLOCK):
        _, larger, equal = _against(pointer, start, end, kth, BLOCK)
        larger_here += tl.sum(larger)
        equal_here += tl.sum(equal)
    tl.store(larger_counts + program, larger_here)
    tl.store(equal_counts + program, equal_here)
    _wait_for_all(arrived, ROUNDS + 1)

    others = tl.arange(0, MOST_PROGRAMS)
    counts = tl.load(larger_counts + others, mask=others < program, other=0, cache_modifier=".cg")
    larger_before = tl.sum(counts)
    counts = tl.load(equal_counts + others, mask=others < program, other=0, cache_modifier=".cg")
    equal_before = tl.sum(counts)
    for start in range(begin, end, BLOCK):
        value, larger, equal = _against(pointer, start, end, kth, BLOCK)
        if tl.max(larger | equal) > 0:
            equals = equal_before + tl.cumsum(equal) - equal
            place = larger_before + tl.cumsum(larger) - larger + tl.minimum(equals, room)
            taken = (larger > 0) | ((equal > 0) & (equals < room))
            index = start + tl.arange(0, BLOCK)
            if held:
                index = tl.load(candidate_indices + index, mask=taken)
            tl.store(indices + place, index, mask=taken)
            tl.store(values + place, value, mask=taken)
            larger_before += tl.sum(larger)
            equal_before += tl.sum(equal)
    if program == 0:
        bits = kth.to(magnitude_key(tl.load(x)).dtype) >> 1
        tl.store(kth_magnitude, bits.to(x.dtype.element_ty, bitcast=True))


def _programs(x: Tensor) -> int:
    """How many can run at once; Triton's interpreter runs one after the other."""
    if x.device.type != "cuda":
        return 1
    room: int = torch.cuda.get_device_properties(x.device).multi_processor_count
    return min(PROGRAMS_A_MULTIPROCESSOR * room, -(-x.numel() // BLOCK))


def largest_of(found: Found, x: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """See the package."""
    width, programs = 8 * x.element_size(), _programs(x)
    most = triton.next_power_of_2(programs)
    # A histogram a byte, the arrivals, and two counts a program.
    scratch = torch.zeros(
        width // 8 * BINS.value + 1 + 2 * most, dtype=torch.int64, device=x.device
    )
    indices = torch.empty(k, dtype=torch.int64, device=x.device)
    values = torch.empty(k, dtype=x.dtype, device=x.device)
    kth = torch.empty((), dtype=x.dtype, device=x.device)
    _select[(programs,)](
        x,
        x.numel(),
        found.values,
        found.indices,
        found.count,
        found.capacity,
        k,
        scratch,
        indices,
        values,
        kth,
        width,
        most,
        BLOCK,
        num_warps=WARPS,
        maxnreg=REGISTERS,
        launch_cooperative_grid=True,
    )
    return indices, values, kth


def largest(x: Tensor, k: int, guess: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """See the package."""
    proposed = _sampled_guess(x, k) if guess is None else guess
    if proposed is None:
        return largest_of(_nothing(x), x, k)
    return largest_of(compact(x, proposed, min(_CAPACITY_PER_K * k, x.numel())), x, k)


def _nothing(x: Tensor) -> Found:
    """Candidates that never hold, so that all elements are looked at."""
    none = torch.empty(0, dtype=torch.int64, device=x.device)
    return Found(none, x[:0], torch.zeros((), dtype=torch.int64, device=x.device))


def _sampled_guess(x: Tensor, k: int) -> Tensor | None:
    """A magnitude that somewhat more than k elements should reach, from every so-manieth element;
    None where looking at all of them is no dearer."""
    numel = x.numel()
    if numel < _NARROW_FROM or k > numel // 8:
        return None
    # Odd, because widths of layers are even: see `sparsify`.
    stride = max(1, numel // max(_LEAST_SAMPLE, numel // _LONGEST_STRIDE)) | 1
    sample = x[::stride].contiguous()
    expected = k * sample.numel() / numel
    rank = math.ceil(expected + 4 * math.sqrt(expected) + 4)  # four standard deviations above
    return largest_of(_nothing(sample), sample, rank)[2] if rank < sample.numel() else None
