"""Positional encodings: the paper's formula, the right row at the right place, and no trace in a checkpoint."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from reference import DTYPES, equal

from transformer_lib.positions import LearnedPositionalEncoding, SinusoidalPositionalEncoding, sinusoidal_table

ENCODINGS = [SinusoidalPositionalEncoding, LearnedPositionalEncoding]


@given(length=st.integers(1, 40), d_model=st.integers(1, 17))
def test_the_table_is_the_formula(length, d_model):
    table = sinusoidal_table(length, d_model)
    assert table.shape == (length, d_model)
    assert table.dtype == torch.float64
    for position in range(length):
        for channel in range(d_model):
            angle = position / 10000 ** (2 * (channel // 2) / d_model)
            expected = math.cos(angle) if channel % 2 else math.sin(angle)
            assert abs(table[position, channel] - expected) < 1e-12  # angles up to 40 round at 7e-15


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_token_i_gets_row_offset_plus_i(encoding):
    positions = encoding(6, 10).double()
    x = torch.randn(3, 4, 6, dtype=torch.float64)
    equal(positions(x), x + positions.table[:4], 0)
    equal(positions(x, offset=5), x + positions.table[5:9], 0)
    steps = [positions(x[:, i : i + 1], offset=i) for i in range(4)]
    equal(torch.cat(steps, dim=1), positions(x), 0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_table_follows_the_dtype_and_the_output_that_of_the_input(encoding, dtype):
    positions = encoding(6, 10).to(dtype)
    x = torch.randn(2, 10, 6, dtype=dtype, requires_grad=True)
    output = positions(x)
    assert positions.table.dtype == output.dtype == dtype
    output.sum().backward()
    assert (x.grad == 1).all()
    if encoding is SinusoidalPositionalEncoding:
        assert encoding(6, 10)(x).dtype == dtype  # of a table in float32


def test_the_table_is_a_buffer_outside_the_checkpoint():
    positions = SinusoidalPositionalEncoding(6, 10)
    assert dict(positions.named_buffers()).keys() == {"table"}
    assert not positions.state_dict()
    assert not list(positions.parameters())
    SinusoidalPositionalEncoding(6, 99).load_state_dict(positions.state_dict())


def test_learned_positions_start_as_long_as_embeddings_and_only_those_used_learn():
    positions = LearnedPositionalEncoding(6, 10)
    assert positions.state_dict().keys() == {"table"}
    positions(torch.zeros(2, 3, 6), offset=4).sum().backward()
    used = (positions.table.grad != 0).all(dim=1)
    assert used.tolist() == [4 <= position < 7 for position in range(10)]
    table = LearnedPositionalEncoding(64, 1000).table
    assert abs(table.square().mean().sqrt() * 64**0.5 - 1) < 0.02  # 64,000 draws: the standard deviation is 0.003


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize(("length", "offset", "end"), [(11, 0, 11), (1, 10, 11), (4, 9, 13)])
def test_beyond_max_len_both_numbers_are_named_and_no_offset_is_negative(encoding, length, offset, end):
    positions = encoding(6, 10)
    positions(torch.zeros(2, 10, 6))
    with pytest.raises(ValueError, match=rf"{end} positions.*max_len is 10"):
        positions(torch.zeros(2, length, 6), offset=offset)
    with pytest.raises(ValueError, match="-1"):
        positions(torch.zeros(2, 1, 6), offset=-1)


@pytest.mark.bad_input
@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 3), (1, 6), (6,), (2, 2, 3, 6)])
def test_another_width_or_rank_is_refused(shape):
    """(1, 6) is a sentence of token numbers that happens to be as long as the model is wide."""
    with pytest.raises(ValueError, match="d_model = 6") as caught:
        SinusoidalPositionalEncoding(6, 10)(torch.zeros(shape))
    assert str(shape) in str(caught.value)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_large_max_len_takes_no_memory_and_has_all_its_rows(dtype):
    """The rows kept end at 8192: before, across and beyond, the formula holds; and `max_len` is still the end."""
    positions = SinusoidalPositionalEncoding(6, 2**40).to(dtype)
    assert positions.table.shape == (8192, 6)
    whole = sinusoidal_table(8200, 6).float().to(dtype)
    x = torch.zeros(1, 4, 6, dtype=dtype)
    for offset in (8188, 8190, 8196):
        found = positions(x, offset=offset)[0]
        equal(found, whole[offset : offset + 4], 0)
        assert found.dtype == dtype
    assert positions(x[:, :1], offset=2**40 - 1).isfinite().all()
    with pytest.raises(ValueError, match=rf"{2**40 + 1} positions.*max_len is {2**40}"):
        positions(x, offset=2**40 - 3)


@pytest.mark.bad_input  # the check of shapes cannot be compiled
def test_long_sequences_compile_into_one_graph_and_export():
    """With the rows kept, and with those beyond them."""
    for length in (5, 8193):
        positions, x = SinusoidalPositionalEncoding(6, 10**6), torch.randn(1, length, 6)
        compiled = torch.compile(positions, backend="eager", fullgraph=True)
        assert torch.equal(compiled(x), positions(x))
        assert torch.equal(torch.export.export(positions, (x,)).module()(x), positions(x))
