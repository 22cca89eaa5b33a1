"""Ascending indices as regions: how many are in each, and where in its region each one is."""

from torch import Tensor

from thinwire.kernels import implementation
from thinwire.kernels.regional import reference
from thinwire.kernels.regional.form import FORMS, TWELVE, Form, smallest

__all__ = [
    "FORMS",
    "TWELVE",
    "Form",
    "read",
    "read_parts",
    "read_rows",
    "smallest",
    "write",
    "write_parts",
    "write_rows",
]


def write(indices: Tensor, rows: int, form: Form) -> Tensor:
    """The bytes of all regions' counts, then those of all offsets; padding is in no region."""
    return implementation(reference.write, indices.device)(indices, rows, form)


def write_rows(indices: Tensor, rows: int, form: Form) -> Tensor:
    """As `write`, of a list of indices in each row."""
    return implementation(reference.write_rows, indices.device)(indices, rows, form)


def write_parts(indices: Tensor, rows: int, form: Form, parts: Tensor) -> None:
    """As `write_rows`, into rows of bytes, each from a multiple of 8 on; behind each body a zero.

    The zero says of a part that its indices ascend.
    """
    implementation(reference.write_parts, indices.device)(indices, rows, form, parts)


def read(body: Tensor, count: int, rows: int, form: Form) -> tuple[Tensor, Tensor]:
    """The `count` indices, and (0-D bool) if counts add up and indices ascend below `rows`.

    The body has `form.size(count, rows)` bytes.
    """
    return implementation(reference.read, body.device)(body, count, rows, form)


def read_rows(bodies: Tensor, count: int, rows: int, form: Form) -> tuple[Tensor, Tensor]:
    """As `read`, of a body in each row; counts may add up to less, the rest is `PADDING`."""
    return implementation(reference.read_rows, bodies.device)(bodies, count, rows, form)


def read_parts(parts: Tensor, count: int, rows: int, form: Form) -> tuple[Tensor, Tensor]:
    """As `read_rows`, of what `write_parts` wrote; what has no zero behind it is not sound."""
    return implementation(reference.read_parts, parts.device)(parts, count, rows, form)
