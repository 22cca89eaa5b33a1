"""What a rank writes down of its state, as a dict, as bytes, and with a seal on it.

A state is numbers, strings, lists and dicts of them, and tensors: data, never code. The seal is a
checksum over all of it, whatever the device, so that a state that was altered on the way is
refused. As bytes it is one uint8 tensor,

    "thinwire", length of the text (8 bytes), text (JSON), the tensors' bytes,

where the text has the dtype and shape of each tensor in its place; text and tensors are padded to
multiples of 8 bytes. What the text claims must add up to the length of the whole before a tensor
is made.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from thinwire.errors import StateError
from thinwire.kernels.checksum import checksum
from thinwire.rng import as_signed, fingerprint

STATE_VERSION = 2
SEAL = "checksum"
_MAGIC = b"thinwire"
_FRONT = len(_MAGIC) + 8
_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float64, torch.float32, torch.bfloat16, torch.float16,
        torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool,
    )
}  # fmt: skip
_TENSOR = "tensor"  # the key that stands for one in the text; no dict of a state has it

State = dict[str, Any]
Saved = Mapping[str, Any] | Tensor | Sequence[Mapping[str, Any] | Tensor]
"""A rank's state, all ranks' in one dict, or a list of all ranks'; each may be packed."""


def seal(state: Mapping[str, Any]) -> State:
    """The state with its checksum."""
    return {**state, SEAL: _checksum(state)}


def check_fields(
    part: Mapping[str, Any], fields: Mapping[str, type | tuple[type, ...]], of: str = "the state"
) -> None:
    """Refuse a part of a state that lacks one of these, or has something else in its place."""
    for key, kind in fields.items():
        if not isinstance(part.get(key), kind):
            found = type(part[key]).__name__ if key in part else "missing"
            raise StateError(f"{key!r} of {of} is {found}; is this all of what was saved?")


def check_seal(state: Mapping[str, Any]) -> None:
    """Refuse a state that is not as it was sealed."""
    try:
        found = _checksum({key: value for key, value in state.items() if key != SEAL})
    except TypeError as error:
        raise StateError(f"this is no state that thinwire saved: {error}") from error
    if state.get(SEAL) != found:
        raise StateError(
            f"the state was altered since it was saved: its checksum is {found}, and "
            f"{state.get(SEAL)} is written in it"
        )


def pack(state: Mapping[str, Any]) -> Tensor:
    """The state as bytes, on the host."""
    text, tensors = _written(state)
    head = text.encode()
    wire = torch.zeros(_FRONT + _padded(len(head)) + sum(map(_room, tensors)), dtype=torch.uint8)
    wire[:_FRONT] = _bytes(_MAGIC + len(head).to_bytes(8, "little"))
    wire[_FRONT : _FRONT + len(head)] = _bytes(head)
    start = _FRONT + _padded(len(head))
    for tensor in tensors:
        wire[start : start + tensor.nbytes] = _as_bytes(tensor).cpu()
        start += _room(tensor)
    return wire


def unpack(wire: Tensor) -> State:
    """The state that `pack` was given; refuses all else."""
    try:
        state = _read(wire)
        check_seal(state)
    except StateError:
        raise
    except (ValueError, RuntimeError) as error:  # also of shapes and depths that nothing can have
        raise StateError(f"the text of the state is damaged: {error}") from error
    return state


def _read(wire: Tensor) -> State:
    front = bytes(wire[:_FRONT].tolist())
    length = int.from_bytes(front[len(_MAGIC) :], "little")
    if not front.startswith(_MAGIC) or _FRONT + length > wire.numel():
        raise StateError(f"these {wire.numel()} bytes are no state, or not all of one")
    text = json.loads(bytes(wire[_FRONT : _FRONT + length].numpy()))
    forms = list(_claimed(text))
    sizes = [prod(shape) * dtype.itemsize for dtype, shape in forms]
    start = _FRONT + _padded(length)
    if start + sum(map(_padded, sizes)) != wire.numel():
        raise StateError(f"the state claims other tensors than its {wire.numel()} bytes hold")
    tensors = []
    for (dtype, shape), size in zip(forms, sizes, strict=True):
        tensors.append(wire[start : start + size].clone().view(dtype).view(shape))
        start += _padded(size)
    state = _with_tensors(text, iter(tensors))
    if not isinstance(state, dict):
        raise StateError("the text of the state is no dict")
    return state


def _checksum(state: Mapping[str, Any]) -> int:
    text, tensors = _written(state)
    return fingerprint(text + repr([content(tensor) for tensor in tensors]))


def content(tensor: Tensor) -> int:
    """A checksum of a tensor's bits, the same on every device."""
    flat = _as_bytes(tensor)
    whole = flat.numel() // 8 * 8
    total = int(checksum(flat[:whole].view(torch.int64)))
    if rest := flat.numel() - whole:
        last = flat.new_zeros(8)
        last[:rest] = flat[whole:]
        total += int(checksum(last.view(torch.int64), first=whole // 8))
    return as_signed(total)


def _written(state: Mapping[str, Any]) -> tuple[str, list[Tensor]]:
    """The state as text, and its tensors in the order in which that names them."""
    tensors: list[Tensor] = []

    def plain(value: Any) -> Any:
        if isinstance(value, Tensor):
            tensors.append(value)
            return {_TENSOR: [str(value.dtype).removeprefix("torch."), list(value.shape)]}
        if isinstance(value, Mapping):
            return {str(key): plain(value[key]) for key in sorted(value)}
        if isinstance(value, list | tuple):
            return [plain(item) for item in value]
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise TypeError(f"it holds a {type(value).__name__}")

    return json.dumps(plain(state)), tensors


def _claimed(text: Any) -> Iterator[tuple[torch.dtype, list[int]]]:
    """The dtype and shape of every tensor, in order."""
    if isinstance(text, dict) and _TENSOR in text:
        match text[_TENSOR]:
            case [str(name), [*shape]] if name in _DTYPES:
                if all(type(n) is int and 0 <= n < 2**40 for n in shape) and len(shape) < 16:
                    yield _DTYPES[name], shape
                    return
        raise ValueError(f"{text} is no tensor")
    if isinstance(text, dict):
        text = list(text.values())
    if isinstance(text, list):
        for item in text:
            yield from _claimed(item)


def _with_tensors(text: Any, tensors: Iterator[Tensor]) -> Any:
    if isinstance(text, dict) and _TENSOR in text:
        return next(tensors)
    if isinstance(text, dict):
        return {key: _with_tensors(value, tensors) for key, value in text.items()}
    if isinstance(text, list):
        return [_with_tensors(item, tensors) for item in text]
    return text


def _bytes(text: bytes) -> Tensor:
    return torch.frombuffer(bytearray(text), dtype=torch.uint8)


def _as_bytes(tensor: Tensor) -> Tensor:
    flat = tensor.detach().contiguous().view(-1)
    aligned = flat.data_ptr() % 8 == 0 and flat.storage_offset() * flat.itemsize % 8 == 0
    return (flat if aligned else flat.clone()).view(torch.uint8)


def _padded(size: int) -> int:
    return -(-size // 8) * 8


def _room(tensor: Tensor) -> int:
    return _padded(tensor.nbytes)


def states_in(saved: Saved) -> list[Mapping[str, Any]]:
    """One state, a list of all ranks', or such a list as `state_dict(gather=True)` gives it."""
    several: Sequence[Mapping[str, Any] | Tensor]
    if isinstance(saved, Mapping):
        several = saved.get("ranks", [saved])
    else:
        several = [saved] if isinstance(saved, Tensor) else saved
    return [unpack(one) if isinstance(one, Tensor) else one for one in several]
