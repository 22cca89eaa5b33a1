"""Who likes what: made ratings, and a neural collaborative filter that ranks them.

DeepReduce trains NCF on MovieLens 20 M (section 6.3). Users and things have hidden tastes here,
and each user likes what fits best, give or take chance. A batch reads some rows of two tables, so
that their gradients have zeros by themselves.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from thinwire.rng import generator

if TYPE_CHECKING:
    from thinwire.workloads.corpus import Arrays
    from thinwire.workloads.tasks import Batch

CPU = torch.device("cpu")
TASTES, CHANCE = 8, 0.3  # hidden dimensions; noise beside a fit of about √TASTES


class NeuralFilter(nn.Module):
    """Scores of candidates: the products of two vectors, and a network over both (He et al., 2017).

    An input is a user and then the candidates.
    """

    def __init__(self, users: int, things: int, width: int = 16) -> None:
        super().__init__()
        self.users, self.things = nn.Embedding(users, width), nn.Embedding(things, width)
        for table in (self.users, self.things):
            nn.init.normal_(table.weight, std=0.1)
        self.mix = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, width))
        self.score = nn.Linear(2 * width, 1)

    def forward(self, inputs: Tensor) -> Tensor:
        things = self.things(inputs[:, 1:])
        users = self.users(inputs[:, :1]).expand_as(things)
        mixed = self.mix(torch.cat((users, things), -1))
        scores: Tensor = self.score(torch.cat((users * things, mixed), -1))
        return scores.squeeze(-1)


@dataclass(frozen=True, slots=True)
class Ratings:
    """Examples: a user, something it likes, and others; to be told which is the first kind."""

    users: int = 256
    things: int = 512
    likes: int = 24  # of each user, one of them held out
    others: int = 3  # beside what is liked, in training
    ranked: int = 99  # beside what is held out
    source: Literal["made"] = "made"

    def prepare(self, source: object) -> "Arrays":
        """The same every time."""
        draw = generator(0, CPU)
        tastes = torch.randn(self.users, TASTES, generator=draw)
        traits = torch.randn(self.things, TASTES, generator=draw)
        fit = tastes @ traits.T + CHANCE * torch.randn(self.users, self.things, generator=draw)
        liked = fit.topk(self.likes).indices
        liked = liked.gather(1, torch.rand(liked.shape, generator=draw).argsort(1))
        users = torch.arange(self.users)[:, None]
        train = torch.stack((users.expand(-1, self.likes - 1), liked[:, 1:]), -1).flatten(0, 1)
        least = fit.argsort(1)[:, : self.things - self.likes]
        mixed = torch.rand(least.shape, generator=draw).argsort(1)[:, : self.ranked]
        ranked = torch.cat((users, liked[:, :1], least.gather(1, mixed)), 1)
        return {"train": train.numpy(), "held_out": ranked.numpy()}

    def batch(self, data: dict[str, Tensor], count: int, rng: torch.Generator) -> "Batch":
        pairs = data["train"][torch.randint(len(data["train"]), (count,), generator=rng)]
        others = torch.randint(self.things, (count, self.others), generator=rng)
        return torch.cat((pairs, others), 1), torch.zeros(count, dtype=torch.int64)

    def held_out(self, data: dict[str, Tensor], count: int) -> "Batch":
        ranked = data["held_out"][:count]
        return ranked, torch.zeros(len(ranked), dtype=torch.int64)
