"""What a rank of the demo does: it learns, as for `bench converge`."""

import torch._dynamo  # noqa: F401, DDP imports it, for seconds, where the first is made

from thinwire.bench.converge.case import measure

__all__ = ["measure"]
