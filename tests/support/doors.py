"""What the tests of frameworks share: a launcher's environment, tiny models, their data."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import Dataset

import thinwire as tw

RECIPE = tw.recipe("topk", density=0.05, bypass=100)
WORDS, LENGTH = 40, 12
MODELS = [(2, "gpt2"), (4, "bert")]
"""What trains, with how many workers."""


@contextmanager
def launched(rank: int, size: int) -> Iterator[None]:
    """What torchrun puts into the environment; the process group is there already."""
    torchrun = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "GROUP_RANK": "0",
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "0",
        "TORCHELASTIC_RUN_ID": "tests",
        "HF_HUB_OFFLINE": "1",
        "ACCELERATE_USE_CPU": "true",
    }
    before = {name: os.environ.get(name) for name in torchrun}
    os.environ.update(torchrun)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class Sentences(Dataset):
    """Token ids that are the same in every run; labels as causal models want them."""

    def __init__(self, count: int) -> None:
        draw = torch.Generator().manual_seed(7)
        self.ids = torch.randint(WORDS, (count, LENGTH), generator=draw)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"input_ids": self.ids[index], "labels": self.ids[index]}


def tiny(kind: str, dropout: float = 0.1) -> torch.nn.Module:
    """A GPT-2 or BERT of one layer, with the same weights everywhere."""
    from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel

    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(0)
        if kind == "gpt2":
            drops = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), dropout)
            sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": LENGTH}
            return GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, **sizes, **drops))
        sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
        drops = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), dropout)
        config = BertConfig(
            vocab_size=WORDS, intermediate_size=32, max_position_embeddings=LENGTH, **sizes, **drops
        )
        return BertForMaskedLM(config)


def weights(model: torch.nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def shared_folder() -> Path:
    """A folder of rank 0's choosing, on every rank."""
    import tempfile

    names = [tempfile.mkdtemp(prefix="thinwire-doors-") if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(names)
    return Path(names[0])


def identical(model: torch.nn.Module) -> bool:
    """Whether all ranks have the same bits."""
    own = weights(model)
    everyone = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, own)
    return all(torch.equal(own, other) for other in everyone)
