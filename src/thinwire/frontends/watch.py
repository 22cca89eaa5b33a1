"""`handle.watch()`: what every so many steps took, as a live table and as scalars; and warnings."""

import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

import torch
from torch.profiler import ProfilerActivity, profile

from thinwire.engine.synchronizer import Synchronizer
from thinwire.errors import ThinwireError
from thinwire.files import whole
from thinwire.format import duration, short
from thinwire.frontends.torch_private import all_threads
from thinwire.settings import check_integer

if TYPE_CHECKING:
    from thinwire.frontends.live_table import LiveTable

FAR, WRONG = 3.0, 0.1  # relative error above, cosine below: an update that is far from the mean
SHOWN = 12  # lines of the table


class Writer(Protocol):
    """What TensorBoard's `SummaryWriter` has, and others like it."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Sample:
    """Means over the steps since the sample before; seconds and bytes are a step's, on this rank.

    `busy` is exchange and all work for it, `dense` what a dense exchange would take at the speed
    that these bytes had: too long rather than too short, as short messages do not fill a link.
    """

    step: int
    seconds: float
    exchange: float
    work: float
    sent: float
    dense_sent: float
    truth: Mapping[str, Any] | None

    @property
    def busy(self) -> float:
        return self.exchange + self.work

    @property
    def dense(self) -> float:
        return self.exchange * self.dense_sent / self.sent if self.sent else 0.0

    def scalars(self) -> dict[str, float]:
        """By tag, as TensorBoard groups them."""
        named: dict[str, float | None] = {
            "seconds/step": self.seconds,
            "seconds/exchange": self.exchange,
            "seconds/work": self.work,
            "bytes/sent": self.sent,
            "bytes/times_fewer": self.dense_sent / self.sent if self.sent else 0.0,
        }
        truth = {} if self.truth is None else self.truth
        named |= {f"truth/{key}": truth.get(key) for key in ("cosine", "relative_error_now")}
        return {tag: value for tag, value in named.items() if value is not None}

    def cells(self) -> tuple[str, ...]:
        """A line of the table."""
        cosine = None if self.truth is None else self.truth["cosine"]
        fewer = self.dense_sent / self.sent if self.sent else 0.0
        return (
            str(self.step),
            duration(self.seconds),
            duration(self.exchange),
            duration(self.work),
            f"{short(self.sent)}B",
            f"{fewer:.1f} ×",
            "" if cosine is None else f"{cosine:.3f}",
        )


HEADINGS = ("step", "step took", "exchange", "work for it", "sent", "fewer", "cosine")


class Watch:
    """Looks every `every` steps, from then on; a context manager, or until `close()`."""

    def __init__(
        self, synchronizer: Synchronizer, every: int, writer: Writer | None, show: bool
    ) -> None:
        check_integer("every", every, 1)
        self.samples: list[Sample] = []
        self._sync, self._every, self._writer = synchronizer, every, writer
        self._table = _live_table() if show else None
        self._before, self._since = synchronizer.stats()["total"], time.perf_counter()
        self._steps, self._warned = 0, set[str]()
        synchronizer.after_step.append(self._look)

    def close(self) -> None:
        """Look no more."""
        if self._look in self._sync.after_step:
            self._sync.after_step.remove(self._look)
        if self._table is not None:
            self._table.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _look(self) -> None:
        self._steps += 1
        if self._steps % self._every:
            return
        stats, now = self._sync.stats(), time.perf_counter()
        sample = self._sample(stats["total"], now, stats.get("truth"))
        self._before, self._since = stats["total"], now
        self.samples = [*self.samples, sample][-SHOWN:]
        if self._writer is not None:
            for tag, value in sample.scalars().items():
                self._writer.add_scalar(f"thinwire/{tag}", value, self._steps)
        if self._table is not None:
            self._table.show([sample.cells() for sample in self.samples])
        self._warn(sample)

    def _sample(
        self, total: Mapping[str, Any], now: float, truth: Mapping[str, Any] | None
    ) -> Sample:
        seconds = _spent(total, self._before)
        exchange = seconds.pop("exchange", 0.0)
        steps = self._every
        return Sample(
            self._steps,
            (now - self._since) / steps,
            exchange / steps,
            sum(seconds.values()) / steps,
            (total["bytes_sent"] - self._before["bytes_sent"]) / steps,
            (total["dense_bytes"] - self._before["dense_bytes"]) / steps,
            truth,
        )

    def _warn(self, sample: Sample) -> None:
        """Each once."""
        if sample.sent < sample.dense_sent and sample.busy > sample.dense:
            self._warn_once(
                f"compression does not pay here: exchange and the work for it take "
                f"{duration(sample.busy)} a step, a dense exchange would take at most "
                f"{duration(sample.dense)}; the recipe 'auto' would go back to dense"
            )
        if sample.truth is None or sample.truth["cosine"] is None:
            return
        cosine, error = sample.truth["cosine"], sample.truth["relative_error_now"]
        if cosine < WRONG or error > FAR:
            self._warn_once(
                f"updates are far from the mean gradient: cosine {cosine:.2g}, relative error "
                f"{error:.2g}; a higher density, or a recipe of the quality 'near', is truer"
            )

    def _warn_once(self, text: str) -> None:
        kind = text.partition(":")[0]
        if kind not in self._warned:
            self._warned.add(kind)
            warnings.warn(text, stacklevel=2)


def _live_table() -> "LiveTable":
    if find_spec("rich") is None:
        raise ThinwireError("the live table needs rich: pip install 'thinwire[cli]'")
    from thinwire.frontends.live_table import LiveTable

    return LiveTable(HEADINGS)


def writer_of(given: Writer | str | Path | None) -> Writer | None:
    """A writer as it is, or TensorBoard's for a folder."""
    if not isinstance(given, str | Path):
        return given
    if find_spec("tensorboard") is None:
        raise ThinwireError(
            f"tensorboard={str(given)!r} needs TensorBoard: pip install tensorboard, or pass a "
            "writer with add_scalar(tag, value, step)"
        )
    from torch.utils.tensorboard.writer import SummaryWriter

    made: Writer = SummaryWriter(str(given))
    return made


@contextmanager
def trace(path: str | Path) -> Iterator[None]:
    """What happens inside, as a Chrome trace in a file; phases are ranges `thinwire::…`."""
    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    threads = all_threads()  # gradients are exchanged in another
    with profile(activities=activities, experimental_config=threads) as profiler:
        yield
    with whole(path) as beside:
        profiler.export_chrome_trace(str(beside))


def _spent(total: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, float]:
    """Seconds by phase between two looks, first steps included."""

    def whole(stats: Mapping[str, Any], phase: str) -> float:
        first = stats["first_steps"]["seconds"]
        return float(stats["seconds"].get(phase, 0.0) + first.get(phase, 0.0))

    phases = {*total["seconds"], *total["first_steps"]["seconds"]}
    return {phase: max(0.0, whole(total, phase) - whole(before, phase)) for phase in phases}
