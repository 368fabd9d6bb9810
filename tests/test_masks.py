"""Masks: written out pair by pair, in the sense that the attention expects."""

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from transformer_lib.masks import causal_mask, decoder_mask, padding_mask

sentences = st.integers(1, 6).flatmap(lambda n: st.lists(st.tuples(*[st.integers(0, 3)] * n), min_size=1, max_size=4))


@given(rows=sentences, pad=st.integers(0, 3))
def test_each_pair_by_itself(rows, pad):
    tokens = torch.tensor(rows)
    length = tokens.size(1)
    padding, causal, both = padding_mask(tokens, pad), causal_mask(length), decoder_mask(tokens, pad)
    places = range(length)
    real = [[key != pad for key in row] for row in rows]
    earlier = [[key <= query for key in places] for query in places]
    assert padding.tolist() == [[[row]] for row in real]
    assert causal.tolist() == [[earlier]]
    assert all(torch.equal(causal_mask(length, start=start), causal[:, :, start:]) for start in places)
    assert both.tolist() == [[[[a and b for a, b in zip(row, query)] for query in earlier]] for row in real]
    assert padding.dtype == causal.dtype == both.dtype == torch.bool


def test_masks_stand_where_they_are_told_and_any_whole_numbers_will_do():
    assert causal_mask(3, device="meta").device.type == "meta"
    tokens = torch.ones(2, 3, dtype=torch.long, device="meta")
    assert padding_mask(tokens, 0).device.type == decoder_mask(tokens, 0).device.type == "meta"
    for dtype in (torch.uint8, torch.int16, torch.int32, torch.int64):
        assert padding_mask(torch.tensor([[5, 7]], dtype=dtype), 7).tolist() == [[[[True, False]]]]


@pytest.mark.bad_input
@pytest.mark.parametrize("make", [padding_mask, decoder_mask])
def test_tokens_of_another_kind_or_rank_are_refused(make):
    for dtype in (torch.float32, torch.complex64, torch.bool):
        with pytest.raises(ValueError, match=f"{dtype}"):
            make(torch.ones(2, 3).to(dtype), 0)
    for shape in ((3,), (1, 2, 3), ()):
        with pytest.raises(ValueError, match=rf"\(batch, length\).*{re.escape(str(shape))}"):
            make(torch.ones(shape, dtype=torch.long), 0)
