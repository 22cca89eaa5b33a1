"""GPT-2 (Radford et al., 2019) and smaller models of its kind, with the names that shapes.py has.

Matrices are not transposed, as transformers keeps them, and there is no dropout: a step is the
same every time.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SPREAD = 0.02  # of the first weights


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.c_attn(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        projected: Tensor = self.c_proj(attended.transpose(1, 2).reshape(batch, length, width))
        return projected


class Mlp(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.c_fc, self.c_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        projected: Tensor = self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))
        return projected


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width), Attention(width, heads)
        self.ln_2, self.mlp = nn.LayerNorm(width), Mlp(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        mixed: Tensor = x + self.mlp(self.ln_2(x))
        return mixed


def initialise(model: nn.Module) -> None:
    """The first weights, as GPT-2 and BERT have them."""
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=SPREAD)
        if isinstance(module, nn.Linear):
            nn.init.zeros_(module.bias)


class Transformer(nn.Module):
    def __init__(self, vocabulary: int, positions: int, width: int, layers: int, heads: int):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
        self.h = nn.Sequential(*(Layer(width, heads) for _ in range(layers)))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        places = self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        x: Tensor = self.ln_f(self.h(self.wte(tokens) + places))
        return x


class Gpt(nn.Module):
    """Predicts the next token at every place. The head's matrix is the embedding's."""

    def __init__(
        self,
        vocabulary: int = 50257,
        positions: int = 1024,
        width: int = 768,
        layers: int = 12,
        heads: int = 12,
    ) -> None:
        super().__init__()
        self.transformer = Transformer(vocabulary, positions, width, layers, heads)
        initialise(self)

    def forward(self, tokens: Tensor) -> Tensor:
        return F.linear(self.transformer(tokens), self.transformer.wte.weight)
