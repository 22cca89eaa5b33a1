"""The cluster of `support.cluster` over NCCL: up to four ranks on one GPU.

NCCL takes two ranks on one device for a mistake, unless they say that they are on different hosts;
they then talk over sockets, as between machines. Without MPS their kernels would take turns, and
NCCL's waiting kernels must leave room for those that they wait for: few channels.

Without a GPU, THINWIRE_TEST_GPU_ON_CPU=1 runs the same functions over Gloo on the CPU, to debug
them there.
"""

import os
import shutil

import torch

from support.cluster import HOST, LOOPBACK, Cluster
from thinwire.lab.gpu import MPS, CardShare

RANKS = 4
RUN_S = 120  # a first run compiles kernels
GROUP_S = 60
ON_CPU = os.environ.get("THINWIRE_TEST_GPU_ON_CPU") == "1"
DEVICE = "cpu" if ON_CPU else "cuda"
FEW_CHANNELS = {"NCCL_MAX_CTAS": "2", "NCCL_MAX_NCHANNELS": "2"}


def why_not() -> str | None:
    """Why there can be no ranks over NCCL here; None if there can."""
    if ON_CPU:
        return None
    if not torch.cuda.is_available():
        return "no CUDA device; THINWIRE_TEST_GPU_ON_CPU=1 runs this over Gloo on the CPU"
    if shutil.which(MPS) is None:
        return f"no {MPS}, without which several ranks cannot share a GPU"
    return None


class NcclCluster(Cluster):
    """Ranks that share the first GPU. MPS lives as long as they do.

    A client that was killed in a kernel may leave a server that refuses everyone, so those that
    come after a hang or a death get a new one. One that is killed in a kernel of NCCL takes the
    card from all other clients too (`gpu.soak --control`), which no rank with a card of its own
    can do: with `mps=False` ranks take turns.
    """

    backend = "nccl"
    keeps_group = True  # a communicator takes NCCL half a second

    def __init__(
        self,
        size: int = RANKS,
        run_s: float = RUN_S,
        few_channels: bool = True,
        mps: bool = True,
    ) -> None:
        super().__init__(size, run_s, GROUP_S)
        self._channels = FEW_CHANNELS if few_channels else {}
        self._at_once = mps
        self._share: CardShare | None = None
        self._mps: dict[str, str] = {}

    def environment(self, rank: int) -> dict[str, str]:
        return {
            **super().environment(rank),
            **self._channels,
            **self._mps,
            "NCCL_HOSTID": f"h{rank}",
            "NCCL_SOCKET_IFNAME": LOOPBACK,
            "NCCL_IB_DISABLE": "1",
            "MASTER_ADDR": HOST,
            "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0],
            "TORCHINDUCTOR_COMPILE_THREADS": "1",  # no processes that could outlive a rank
        }

    def close(self) -> None:
        super().close()
        if self._share is not None:
            self._share.end_mps()
            self._share, self._mps = None, {}

    def _start(self) -> None:
        if self._at_once:
            self._share = CardShare(f"thinwire-tests-{os.getpid()}")
            self._mps = self._share.prepare(len(self._share.cards) + 1)  # all of us are on one
        super()._start()


class OnCpu(Cluster):
    """The same, over Gloo: what differs between the two is then the backend alone."""

    keeps_group = True


def gpu_cluster(
    size: int = RANKS, run_s: float = RUN_S, few_channels: bool = True, mps: bool = True
) -> Cluster:
    if ON_CPU:
        return OnCpu(size, run_s)
    return NcclCluster(size, run_s, few_channels, mps)
