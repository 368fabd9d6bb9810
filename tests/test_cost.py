"""Parameters, operations and bytes: the formulas against models, PyTorch's counter and its hooks, to the unit."""

from functools import partial
from itertools import product

import pytest
import torch
from reference import Projection
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from transformer_lib.cost import (
    Operations,
    Product,
    attention_memory,
    count_parameters,
    decoding_flops,
    forward_flops,
    matrix_products,
    training_flops,
)
from transformer_lib.data import Batch
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.recipes import PRESETS
from transformer_lib.training import TrainingConfig
from transformer_lib.training.config import adamw
from transformer_lib.training.train_step import LossModule, train_step

SIZES = {"d_model": 12, "num_heads": 3, "d_ff": 20, "num_encoder_layers": 2, "num_decoder_layers": 3}
CONFIGS = (
    TransformerConfig(11, 17, pad_id=0, **SIZES),
    TransformerConfig(11, 17, pad_id=0, **SIZES | {"d_ff": 7}, norm_first=True, tie_embeddings="target"),
    TransformerConfig(9, 9, pad_id=0, **SIZES | {"num_heads": 1}, tie_embeddings="all"),
)


def fused(factor, first):
    """The operations of a fused kernel, whose queries are its input number `first`."""

    def count(*shapes, **_):
        (batch, heads, n, d_k), (_, _, m, _) = shapes[first : first + 2]
        return factor * batch * heads * n * m * d_k

    return count


FUSED = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: fused(4, 0),
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: fused(10, 1),
}


def counted(function, *inputs, formulas=None):
    with FlopCounterMode(display=False, custom_mapping=formulas) as counter:
        function(*inputs)
    return counter.get_total_flops()


def step(model, source, target):
    model(source, target).square().mean().backward()


def tokens(batch, length, device="cpu"):
    return torch.ones(batch, length, dtype=torch.long, device=device)


@pytest.mark.parametrize("tie", ["none", "target", "all"])
@pytest.mark.parametrize("norm_first", [False, True])
def test_parameters_equal_the_models(tie, norm_first):
    for words, sizes in product(((11, 17), (13, 13)), ({}, {"num_encoder_layers": 4}, {"num_decoder_layers": 1})):
        if tie == "all" and words[0] != words[1]:
            continue
        config = TransformerConfig(*words, pad_id=0, **SIZES | sizes, norm_first=norm_first, tie_embeddings=tie)
        assert count_parameters(config) == sum(parameter.numel() for parameter in Transformer(config).parameters())


def test_a_product_counts_multiplications_additions_and_numbers():
    assert (Product(1, 3, 4, 12).flops, Product(1, 3, 4, 12).numbers) == (288, 96)
    assert (Product(2, 3, 2, 3).flops, Product(2, 3, 2, 3).numbers) == (72, 42)


@pytest.mark.parametrize(("config", "batch", "n", "m"), [
    *((config, 2, 5, 3) for config in CONFIGS), (CONFIGS[0], 1, 1, 1), (CONFIGS[1], 3, 4, 9),
], ids=["uneven", "pre-norm", "one head", "one token", "longer target"])  # fmt: skip
def test_operations_equal_the_counters(config, batch, n, m):
    with torch.device("meta"):  # attention is two plain products here
        model = Transformer(config)
    source, target = tokens(batch, n, "meta"), tokens(batch, m, "meta")
    assert forward_flops(config, n, m, batch=batch) == counted(model, source, target)
    assert training_flops(config, n, m, batch=batch) == counted(step, model, source, target)


@pytest.mark.parametrize("norm_first", [False, True])
def test_recomputation_without_dropout_stops_before_a_pre_norm_layers_last_product(norm_first):
    config = TransformerConfig(11, 17, pad_id=0, **SIZES, dropout=0.0, norm_first=norm_first)
    model, parts = Transformer(config), matrix_products(config, 5, 3, batch=2)
    for layer in (*model.encoder.layers, *model.decoder.layers):
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
    left_out = norm_first * (parts["encoder network"][1].flops + parts["decoder network"][1].flops)
    asked = training_flops(config, 5, 3, batch=2, fused=True, recompute=True)
    assert counted(step, model, tokens(2, 5), tokens(2, 3), formulas=FUSED) == asked - left_out


@pytest.mark.bad_input
def test_nothing_is_decoded_in_no_step_and_fused_attention_has_no_dropout():
    for (n, m), cached in product(((5, 0), (0, 5), (5, -1)), (True, False)):
        with pytest.raises(ValueError, match=f"^expected lengths of at least 1; got {n} and {m}$"):
            decoding_flops(CONFIGS[0], n, m, cached=cached)
    with pytest.raises(ValueError, match="no attention dropout: ask for fused=False"):
        attention_memory(8, 4, 2, dropout=True)


def test_a_training_step_dispatches_few_operations():
    """At the depth of the preset `small`; one more in each layer would be too many."""
    torch.manual_seed(0)
    sizes = PRESETS["small"]["model"] | {"d_model": 16, "num_heads": 2, "d_ff": 8}
    model, training = Transformer(TransformerConfig(20, 20, 0, **sizes)), TrainingConfig(steps=1)
    model.output_projection.__class__ = Projection
    batch = Batch(torch.randint(1, 20, (3, 5)), torch.randint(1, 20, (3, 6)))
    loss, optimizer = LossModule(model, training.label_smoothing), adamw(model, training)
    for number in (1, 2):  # the first one makes the optimiser's moments
        with Operations() as step:
            train_step(loss, [batch], 15, optimizer, training, number)
    assert len(step.moving) <= 540
    assert len(step.rows) <= (1420 if torch.__version__.startswith("2.13.") else 1550)  # torch 2.6 has more views
