"""Altered states for whatever loads them:

    PYTHONPATH=src:tests python -m support.state_fuzz --states 200000

The bytes of a packed state are flipped, cut or overwritten; or its dict loses a key, has another
number in it or a tensor of other bits, sealed anew or not. What must come of it is a `StateError`
that leaves all as it was, or a state that is loaded whole.
"""

import argparse
import time
from collections import Counter
from typing import Any

import numpy as np
import torch

import thinwire as tw
from support.codec.fuzz import limits
from support.contracts.cases import state_digest
from thinwire.engine.saved import SEAL, pack, seal, unpack
from thinwire.results.origin import commit

RECIPES = ("dgc(0.05)", "ok-topk(0.05)", "powersgd", "randomk(0.05)")
ODD: tuple[Any, ...] = (
    None, -1, 2**70, float("nan"), "", "x", [], {}, [[]], True, torch.ones(3), torch.tensor(9),
    torch.full((900,), torch.nan), torch.ones(900, dtype=torch.float16), torch.ones(30, 30),
)  # fmt: skip


def trained(recipe: str) -> tw.Synchronizer:
    sync = tw.Synchronizer(tw.recipe(recipe, bypass=50))
    for step in range(2):
        draw = torch.Generator().manual_seed(step)
        grads = {"a": torch.randn(900, generator=draw), "b": torch.randn(40, generator=draw)}
        sync.average_all(grads)
    return sync


def altered_bytes(wire: np.ndarray[Any, Any], draw: np.random.Generator) -> torch.Tensor:
    way = draw.integers(3)
    if way == 0:
        wire = wire[: draw.integers(0, wire.size)].copy()
    elif way == 1:
        for bit in draw.integers(0, 8 * min(wire.size, 1200), draw.integers(1, 4)):
            wire[bit // 8] ^= 1 << bit % 8
    else:
        start = int(draw.integers(0, wire.size))
        end = start + int(draw.integers(1, 30))
        wire[start:end] = draw.integers(0, 256, wire[start:end].size)
    return torch.from_numpy(wire)


def altered_dict(state: dict[str, Any], draw: np.random.Generator) -> dict[str, Any]:
    """Another entry somewhere, at any depth."""
    at: Any = state
    while True:
        key = (range(len(at)) if isinstance(at, list) else list(at))[draw.integers(len(at))]
        if not isinstance(at[key], dict | list) or not at[key] or not draw.integers(4):
            break
        at = at[key]
    way = draw.integers(3)
    if way == 0:
        del at[key]
    elif way == 1 and isinstance(at[key], torch.Tensor) and at[key].numel():
        flat = at[key].view(-1).view(torch.uint8)
        flat[draw.integers(flat.numel())] ^= 1 << int(draw.integers(8))
    else:
        at[key] = ODD[draw.integers(len(ODD))]
    return seal({k: v for k, v in state.items() if k != SEAL}) if draw.integers(2) else state


def fuzz(states: int, seed: int = 0, seconds: float | None = None) -> Counter[str]:
    """Try so many, or as many as fit into the time; what came of them."""
    syncs = [trained(recipe) for recipe in RECIPES]
    wires = [pack(sync.state_dict()).numpy() for sync in syncs]
    digests = [state_digest(sync) for sync in syncs]
    draw, outcomes, started = np.random.default_rng(seed), Counter[str](), time.monotonic()
    with limits():
        for number in range(states):
            if seconds is not None and time.monotonic() - started > seconds:
                break
            which = draw.integers(len(syncs))
            sync, wire = syncs[which], wires[which]
            as_bytes, state = bool(draw.integers(2)), None
            try:
                if as_bytes:
                    state = unpack(altered_bytes(wire.copy(), draw))
                else:
                    state = altered_dict(unpack(torch.from_numpy(wire.copy())), draw)
                sync.load_state_dict(state)
                outcome = "loaded"
            except tw.ThinwireError:
                if state is not None:  # it got as far as the loader
                    assert state_digest(sync) == digests[which], "refused, yet something changed"
                outcome = "refused"
            except BaseException as error:
                error.add_note(f"state {number} of seed {seed}, {RECIPES[which]}, {as_bytes=}")
                raise
            if outcome == "loaded":  # and as good as any other
                sync.load_state_dict(unpack(torch.from_numpy(wire.copy())))
            outcomes[f"{'bytes' if as_bytes else 'dict'}: {outcome}"] += 1
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, help="stop after so many, finished or not")
    given = parser.parse_args()
    print(f"saved states, seed {given.seed}, commit {commit()}:")
    outcomes = fuzz(given.states, given.seed, given.seconds)
    for outcome, count in sorted(outcomes.items()):
        print(f"{count:8,} {outcome}")
    print(f"{outcomes.total():8,} saved states in all, of {len(RECIPES)} recipes")


if __name__ == "__main__":
    main()
