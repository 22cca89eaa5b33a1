"""The private names of PyTorch that the front ends lean on mean what we take them for.

A failure here says that PyTorch has moved something: mend `frontends/torch_private.py` alone.
"""

from torch import nn
from torch.distributed._composable.replicate import replicate
from torch.nn.parallel import DistributedDataParallel as DDP

from thinwire.frontends.torch_private import composed_by, has_hook


def hooks_of_ddp(group, rank, size):
    ddp = DDP(nn.Linear(2, 2), process_group=group)
    before = has_hook(ddp)
    ddp.register_comm_hook(None, lambda state, bucket: None)
    return before, has_hook(ddp)


def test_a_ddp_model_tells_of_its_hook(cluster):
    assert cluster.run(hooks_of_ddp, 2) == [(False, True)] * 2


def test_what_made_a_module_is_known():
    assert composed_by(nn.Linear(2, 2)) == set()
    assert composed_by(replicate(nn.Linear(2, 2))) == {"replicate"}
