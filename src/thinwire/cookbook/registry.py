"""Pieces by name: thinwire's own, those that were registered, and those that packages bring.

A package brings pieces by an entry point of the group "thinwire.pieces" that names a class:

    [project.entry-points."thinwire.pieces"]
    my-topk = "my_package:MyTopK"
"""

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any, TypeVar

from thinwire.codec import INDEX_CODECS, LINEAR_CODECS, VALUE_CODECS
from thinwire.collective import COLLECTIVES
from thinwire.errors import RecipeError, WireFormatError
from thinwire.feedback import FEEDBACKS
from thinwire.sparsify import SPARSIFIERS
from thinwire.types import (
    Codec,
    Collective,
    Feedback,
    IndexCodec,
    LinearCodec,
    Piece,
    Sparsifier,
    ValueCodec,
)

GROUP = "thinwire.pieces"
THIRD_PARTY_IDS = range(128, 256)  # of halves of codecs, on the wire

ROLES: dict[str, tuple[type[Piece], tuple[type[Piece], ...]]] = {
    "sparsifier": (Sparsifier, SPARSIFIERS),
    "index": (IndexCodec, INDEX_CODECS),
    "value": (ValueCodec, VALUE_CODECS),
    "codec": (Codec, ()),  # of its own making; a `Pair` of an index and a value codec has no name
    "linear": (LinearCodec, LINEAR_CODECS),
    "collective": (Collective, COLLECTIVES),
    "feedback": (Feedback, FEEDBACKS),
}
"""Each role's base class, and thinwire's own pieces of it."""

P = TypeVar("P", bound=type[Piece])
_registered: dict[str, dict[str, type[Piece]]] = {role: {} for role in ROLES}
_loaded = False


def pieces(role: str) -> Mapping[str, Any]:
    """All pieces of a role, by the name that recipes call them."""
    _load_entry_points()
    return {piece.name: piece for piece in ROLES[role][1]} | _registered[role]


def register(piece: P) -> P:
    """Let recipes call a piece by its `name`. To be used as a decorator, on every rank.

    The piece is a frozen dataclass that subclasses the base class of its role; its name must be
    new in that role, and so must the `id` of an index or value codec be, from 128 to 255.
    """
    role = _role_of(piece)
    known = {p.name: p for p in ROLES[role][1]} | _registered[role]
    if not piece.name:
        raise RecipeError(f'{piece.__name__} has no name: give the class one, `name = "…"`')
    if known.get(piece.name, piece) is not piece:
        taken = known[piece.name]
        raise RecipeError(
            f"the {role} {piece.name!r} exists already: {taken.__module__}.{taken.__qualname__}"
        )
    if issubclass(piece, IndexCodec | ValueCodec):
        ids = {p.id: n for n, p in known.items() if n != piece.name}  # type: ignore[attr-defined]
        if piece.id not in THIRD_PARTY_IDS or piece.id in ids:
            raise RecipeError(
                f"id={piece.id} of the {role} codec {piece.name!r} must be in 128 … 255 and not "
                f"another's; taken are {ids}"
            )
    _registered[role][piece.name] = piece
    return piece


def piece_by_id(role: str, id: int) -> Any:
    """The index or value codec that a wire calls `id`."""
    known = pieces(role)
    for piece in known.values():
        if piece.id == id:
            return piece
    ids = {name: piece.id for name, piece in known.items()}
    raise WireFormatError(f"{role} codec id {id} is unknown; known: {ids}")


def _role_of(piece: Any) -> str:
    is_class = isinstance(piece, type)
    roles = [r for r, (base, _) in ROLES.items() if is_class and issubclass(piece, base)]
    if not roles:
        bases = ", ".join(base.__name__ for base, _ in ROLES.values())
        raise RecipeError(f"{piece!r} is no piece: it must be a subclass of one of {bases}")
    # Its own decorator: that of its base class would not know the fields it adds.
    params = vars(piece).get("__dataclass_params__")
    if params is None or not params.frozen:
        raise RecipeError(f"{piece.__name__} must be a dataclass(frozen=True) of plain settings")
    return roles[0]


def _load_entry_points() -> None:
    global _loaded
    if _loaded:
        return
    _loaded = True  # first, because what is loaded may build recipes itself
    for entry in entry_points(group=GROUP):
        try:
            register(entry.load())
        except Exception as error:
            raise RecipeError(f"the entry point {entry.name} = {entry.value}: {error}") from error
