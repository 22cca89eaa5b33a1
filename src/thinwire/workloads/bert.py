"""BERT (Devlin et al., 2018) that names masked words, with the names that shapes.py has.

The head's matrix is the embedding's, as in transformers' BertForMaskedLM; there is no pooler,
which this task does not use, and no dropout: a step is the same every time.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from thinwire.workloads.gpt import initialise


class Embeddings(nn.Module):
    def __init__(self, vocabulary: int, positions: int, width: int) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(vocabulary, width)
        self.position_embeddings = nn.Embedding(positions, width)
        self.token_type_embeddings = nn.Embedding(2, width)
        self.LayerNorm = nn.LayerNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        places = self.position_embeddings(torch.arange(tokens.shape[1], device=tokens.device))
        first_sentence = self.token_type_embeddings(torch.zeros_like(tokens))
        x: Tensor = self.LayerNorm(self.word_embeddings(tokens) + places + first_sentence)
        return x


class Layer(nn.Module):
    """One post-norm layer."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.output, self.output_norm = nn.Linear(width, width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part(x).view(batch, length, self.heads, -1).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        attended = F.scaled_dot_product_attention(q, k, v).transpose(1, 2)
        x = self.output_norm(x + self.output(attended.reshape(batch, length, width)))
        normed: Tensor = self.norm(x + self.down(F.gelu(self.up(x))))
        return normed


class Bert(nn.Module):
    """Names the word at every place."""

    def __init__(
        self,
        vocabulary: int = 30522,
        positions: int = 512,
        width: int = 768,
        layers: int = 12,
        heads: int = 12,
    ) -> None:
        super().__init__()
        self.embeddings = Embeddings(vocabulary, positions, width)
        self.encoder = nn.Sequential(*(Layer(width, heads) for _ in range(layers)))
        self.transform, self.transform_norm = nn.Linear(width, width), nn.LayerNorm(width)
        self.head_bias = nn.Parameter(torch.zeros(vocabulary))
        initialise(self)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.encoder(self.embeddings(tokens))
        x = self.transform_norm(F.gelu(self.transform(x)))
        return F.linear(x, self.embeddings.word_embeddings.weight, self.head_bias)
