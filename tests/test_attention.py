"""The readable attention: exact about masks, its dropout, what it refuses; its formula: test_properties.py."""

import pytest
import torch
from reference import DTYPES, equal

from transformer_lib.attention import scaled_dot_product_attention


def random_input(*lead, queries=4, keys=5):
    shapes = (queries, 3), (keys, 3), (keys, 2)
    return tuple(torch.randn(*lead, *shape, dtype=torch.float64) for shape in shapes)


@pytest.mark.parametrize("dtype", DTYPES)
def test_large_negative_scores_do_not_beat_the_mask(dtype):
    """A score of about -6e4 is nearly the smallest of float16: the masked key must still lose against it."""
    query, key = torch.tensor([[200.0]], dtype=dtype), torch.tensor([[-300.0], [1.0]], dtype=dtype)
    value, mask = torch.tensor([[1.0], [100.0]], dtype=dtype), torch.tensor([[True, False]])
    output, weights = scaled_dot_product_attention(query, key, value, mask)
    assert weights.tolist() == [[1, 0]]
    assert output.tolist() == [[1]]


def test_dropout_drops_weights_and_returns_them_whole():
    q, k, _ = random_input(8, queries=20, keys=20)
    value = torch.eye(20, dtype=torch.float64).expand(8, 20, 20)  # so that the output shows the weights in use
    output, weights = scaled_dot_product_attention(q, k, value, dropout=0.25)
    equal(weights, scaled_dot_product_attention(q, k, value)[1], 0)
    kept = output != 0
    equal(output[kept], weights[kept] / 0.75)
    assert 0.7 < kept.double().mean() < 0.8  # 3200 draws: the standard deviation is 0.008


@pytest.mark.bad_input
def test_a_mask_of_another_kind_or_shape_is_refused():
    for dtype in (torch.float32, torch.long, torch.float16):
        with pytest.raises(TypeError, match=rf"boolean.*True = may attend.*{dtype}"):
            scaled_dot_product_attention(*random_input(), torch.ones(4, 5, dtype=dtype))
    for shape in ((5,), (1, 4, 5), (5, 4), (4, 4), (2, 5), (0, 5), (), (1,), (4,), (1, 1, 1), (4, 5, 1)):
        with pytest.raises(ValueError, match=r"\(4, 5\)") as caught:
            scaled_dot_product_attention(*random_input(), torch.ones(shape, dtype=torch.bool))
        assert str(shape) in str(caught.value)
