"""What an exchange to owners and back takes by itself, and in which order it is best queued.

    thinwire lab --gpu --workers 4 --rate 25gbit -- python scripts/all_to_all.py [COUNT [TIMES]]

COUNT units of 0.91 MB for each peer, as few bits have them for buckets of DDP in 4 bits: an
all-to-all, a sum and a gather, in milliseconds a unit, sorted. No host waits in between.
"""

import faulthandler
import sys
import time
from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

DEADLINE_S = 55
ROW = int(0.91 * 2**20 / 4) // 64 * 64  # float32
Unit = tuple[Tensor, Tensor, Tensor, Tensor]  # what goes out, comes in, its sum, and all sums
First = Callable[[Tensor, Tensor, dist.ProcessGroup | None], None]


def all_to_all(out: Tensor, into: Tensor, group: dist.ProcessGroup | None = None) -> None:
    dist.all_to_all_single(into, out, group=group)


def rounds(out: Tensor, into: Tensor, group: dist.ProcessGroup | None = None) -> None:
    """One peer after the other: the next, the one after it …"""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for distance in range(1, ranks):
        target, source = (rank + distance) % ranks, (rank - distance) % ranks
        sent, received = ([ROW * (r == peer) for r in range(ranks)] for peer in (target, source))
        dist.all_to_all_single(into[source], out[target], received, sent, group=group)
    into[rank].copy_(out[rank])


def gather(unit: Unit, group: dist.ProcessGroup | None = None) -> None:
    dist.all_gather_into_tensor(unit[3].view(-1), unit[2], group=group)


def one_stream(first: First, units: list[Unit]) -> None:
    for unit in units:
        first(unit[0], unit[1], None)
        torch.sum(unit[1], 0, out=unit[2])
        gather(unit)


def gathers_beside(
    first: First, second: dist.ProcessGroup, side: torch.cuda.Stream, units: list[Unit]
) -> None:
    main = torch.cuda.current_stream()
    for unit in units:
        first(unit[0], unit[1], None)
        torch.sum(unit[1], 0, out=unit[2])
        side.wait_stream(main)
        with torch.cuda.stream(side):
            gather(unit, second)
    main.wait_stream(side)


def lanes(
    first: First, second: dist.ProcessGroup, streams: list[torch.cuda.Stream], units: list[Unit]
) -> None:
    main = torch.cuda.current_stream()
    for number, unit in enumerate(units):
        stream, group = streams[number % 2], (None, second)[number % 2]
        stream.wait_stream(main)
        with torch.cuda.stream(stream):
            first(unit[0], unit[1], group)
            torch.sum(unit[1], 0, out=unit[2])
            gather(unit, group)
    for stream in streams:
        main.wait_stream(stream)


def rings_alone(units: list[Unit]) -> None:
    for unit in units:
        gather(unit), gather(unit)


def main() -> None:
    faulthandler.dump_traceback_later(DEADLINE_S, exit=True)
    count, times = (int(word) for word in (*sys.argv[1:3], *("13", "8")[len(sys.argv) - 1 :]))
    device = torch.device("cuda", 0)
    dist.init_process_group("nccl", device_id=device)
    ranks, new = dist.get_world_size(), partial(torch.zeros, device=device)
    second, streams = dist.new_group(), [torch.cuda.Stream(), torch.cuda.Stream()]
    units = [(new(ranks, ROW), new(ranks, ROW), new(ROW), new(ranks, ROW)) for _ in range(count)]
    orders: dict[str, Callable[[list[Unit]], None]] = {"rings alone": rings_alone}
    for name, first in (("all-to-all", all_to_all), ("rounds", rounds)):
        orders[f"{name}, one stream"] = partial(one_stream, first)
        orders[f"{name}, gathers beside"] = partial(gathers_beside, first, second, streams[0])
        orders[f"{name}, lanes"] = partial(lanes, first, second, streams)
    for name, order in orders.items():
        order(units)
        torch.cuda.synchronize()
        dist.barrier()
        took = []
        for _ in range(times):
            torch.cuda.synchronize()
            began = time.perf_counter()
            order(units)
            torch.cuda.synchronize()
            took.append(1000 * (time.perf_counter() - began) / count)
        if dist.get_rank() == 0:
            print(f"{name}:", *(f"{ms:.2f}" for ms in sorted(took)), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
