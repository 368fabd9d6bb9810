# Generated from chapters/14_cost.md: edit it there and `make export`, or here and `make sync`.

"""What a Transformer costs, by formula: parameters, operations and bytes."""

from typing import NamedTuple

from transformer_lib.model import TransformerConfig


def count_parameters(config: TransformerConfig) -> int:
    """The number of parameters of `Transformer(config)`; a matrix that is used twice counts once."""
    d, d_ff = config.d_model, config.d_ff
    attention, network, norm = 4 * (d * d + d), 2 * d * d_ff + d_ff + d, 2 * d
    encoder = config.num_encoder_layers * (attention + network + 2 * norm)
    decoder = config.num_decoder_layers * (2 * attention + network + 3 * norm)
    last_norms = 2 * norm if config.norm_first else 0
    source, target = config.source_vocab_size * d, config.target_vocab_size * d
    tables = {"none": source + 2 * target, "target": source + target, "all": target}[config.tie_embeddings]
    return encoder + decoder + last_norms + tables


class Product(NamedTuple):
    """`times` products of a (rows, inner) matrix and an (inner, columns) matrix."""

    times: int
    rows: int
    inner: int
    columns: int

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        return 2 * self.times * self.rows * self.inner * self.columns

    @property
    def numbers(self) -> int:
        """Numbers read and written, if each is moved once."""
        return self.times * (self.rows * self.inner + self.inner * self.columns + self.rows * self.columns)


def matrix_products(
    config: TransformerConfig, source_length: int, target_length: int, *, batch: int = 1, cached: bool = False
) -> dict[str, list[Product]]:
    """Every matrix product of a forward pass, by part of the model.

    Args:
        config: the model.
        source_length: source tokens per sentence; no padding.
        target_length: target tokens per sentence.
        batch: sentences.
        cached: only what a step of decoding computes: the last target token alone, while the keys and values of
            the others and of the memory are at hand.
    """
    d, d_k, d_ff = config.d_model, config.d_model // config.num_heads, config.d_ff
    heads, n, m, new = batch * config.num_heads, source_length, target_length, 1 if cached else target_length
    encoders, decoders = config.num_encoder_layers, config.num_decoder_layers

    def own_projections(layers: int, rows: int) -> list[Product]:
        return [Product(layers, rows, d, 3 * d), Product(layers, rows, d, d)]

    def scores(layers: int, queries: int, keys: int) -> list[Product]:
        return [Product(layers * heads, queries, d_k, keys), Product(layers * heads, queries, keys, d_k)]

    def network(layers: int, rows: int) -> list[Product]:
        return [Product(layers, rows, d, d_ff), Product(layers, rows, d_ff, d)]

    encoder = {
        "encoder projections": own_projections(encoders, batch * n),
        "encoder scores": scores(encoders, n, n),
        "encoder network": network(encoders, batch * n),
        "memory keys, values": [Product(decoders, batch * n, d, 2 * d)],
    }
    decoder = {
        "decoder projections": own_projections(decoders, batch * new),
        "decoder scores": scores(decoders, new, m),
        "memory queries, output": [Product(2 * decoders, batch * new, d, d)],
        "memory scores": scores(decoders, new, n),
        "decoder network": network(decoders, batch * new),
        "logits": [Product(1, batch * new, d, config.target_vocab_size)],
    }
    return decoder if cached else encoder | decoder


def _flops(parts: dict[str, list[Product]]) -> int:
    return sum(product.flops for products in parts.values() for product in products)


def forward_flops(config: TransformerConfig, source_length: int, target_length: int, *, batch: int = 1) -> int:
    """FLOPs of the matrix products of `Transformer.forward`; the arguments are those of `matrix_products`."""
    return _flops(matrix_products(config, source_length, target_length, batch=batch))


def training_flops(
    config: TransformerConfig, source_length: int, target_length: int, *,
    batch: int = 1, fused: bool = False, recompute: bool = False,
) -> int:  # fmt: skip
    """FLOPs of the matrix products of a forward and a backward pass; see `matrix_products` for the first arguments.

    The default is the common convention, three forward passes: the work that a model asks for, however it is run.
    `fused` adds the scores that the fused kernel computes a second time (Dao et al. 2022, section 3.1), `recompute` a
    second forward pass of every layer (activation checkpointing, Chen et al. 2016). In a pre-norm model without
    dropout, PyTorch's own checkpointing stops before a layer's last product, counted here.
    """
    parts = matrix_products(config, source_length, target_length, batch=batch)
    total = 3 * _flops(parts)
    if fused:
        total += sum(parts[name][0].flops for name in parts if name.endswith("scores"))
    if recompute:
        total += _flops(parts) - parts["logits"][0].flops
    return total


def decoding_flops(
    config: TransformerConfig, source_length: int, target_length: int, *, batch: int = 1, cached: bool = True
) -> int:
    """FLOPs of the matrix products of greedy decoding: encode once, then one step per token, logits of the newest only.

    Without a cache (`cached=False`) each step processes all earlier positions and the memory's keys and values anew.
    The rest as in `matrix_products`.

    Raises:
        ValueError: a length is below 1.
    """
    if min(source_length, target_length) < 1:
        raise ValueError(f"expected lengths of at least 1; got {source_length} and {target_length}")
    newest = {"logits": [Product(1, batch, config.d_model, config.target_vocab_size)]}
    total = 0
    for length in range(1, target_length + 1):
        parts = matrix_products(config, source_length, length, batch=batch, cached=cached and length > 1) | newest
        total += _flops({name: parts[name] for name in parts if length == 1 or not name.startswith("encoder")})
    return total


def attention_memory(
    length: int, d_model: int, num_heads: int, *,
    batch: int = 1, fused: bool = True, mask_entries: int = 0, dropout: bool = False, itemsize: int = 4,
) -> int:  # fmt: skip
    """Bytes that one self-attention of `MultiHeadAttention` keeps for its backward pass, parameters left out.

    Args:
        length: tokens per sentence.
        d_model: width of the tokens.
        num_heads: heads.
        batch: sentences.
        fused: the fused kernel of the CPU, or the readable formula, which keeps the weights.
        mask_entries: size of the mask: 0 without one, batch × length for a key-only mask, batch × length² for pairs.
        dropout: attention dropout is on.
        itemsize: bytes per number; 4 for float32, 2 for half precision.

    Raises:
        ValueError: `fused` comes with `dropout`, which the fused kernel of the CPU refuses.
    """
    if fused and dropout:
        raise ValueError("the fused kernel of the CPU has no attention dropout: ask for fused=False")
    tokens = 5 * batch * length * d_model * itemsize  # the input, queries, keys, values, heads
    if fused:  # the mask becomes numbers; one number, at least a float32, for each query and head
        return tokens + mask_entries * itemsize + max(4, itemsize) * batch * num_heads * length
    copies = 3 if dropout else 2 if mask_entries else 1
    return tokens + copies * batch * num_heads * length**2 * itemsize + 2 * mask_entries
