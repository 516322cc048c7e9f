"""The decoder-only transformer of GPT-2 (Radford et al., "Language models are unsupervised multitask learners", 2019).

Its head has weights of its own: a matrix that input and output share lies in two layers, which a sharded strategy
gathers apart.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import gelu, scaled_dot_product_attention

INIT_STD = 0.02


class Attention(nn.Module):
    """Causal self-attention: (batch, tokens, width) -> the same shape."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.queries_keys_values = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        by_head = self.queries_keys_values(x).unflatten(-1, (3, self.heads, -1))
        queries, keys, values = by_head.permute(2, 0, 3, 1, 4)  # each (batch, heads, tokens, width / heads)
        mixed = scaled_dot_product_attention(queries, keys, values, is_causal=True)
        return self.output(mixed.transpose(1, 2).flatten(start_dim=2))


class Layer(nn.Module):
    """Attention and a perceptron of 4 x width, each normalised before and added after."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp_norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 4 * width)
        self.contract = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.contract(gelu(self.expand(self.mlp_norm(x))))


class GPT(nn.Module):
    """Tokens (batch, tokens) int64, at most `context` of them -> logits of each next token (batch, tokens, vocabulary)."""

    def __init__(self, *, vocabulary: int, context: int, layers: int, heads: int, width: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self._initialise()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))

    def _initialise(self) -> None:
        """As GPT-2: the residual stream keeps its size, however many layers add to it."""
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=INIT_STD)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        for layer in self.layers:
            assert isinstance(layer, Layer)
            for added in (layer.attention.output, layer.contract):
                nn.init.normal_(added.weight, std=INIT_STD / (2 * len(self.layers)) ** 0.5)
