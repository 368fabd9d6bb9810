"""Cost: what is no question. The formulas, chapters 14 and 14.a hold to models and to PyTorch's counter."""

import pytest

from transformer_lib.cost import (
    attention_memory,
    decoding_flops,
)
from transformer_lib.model import TransformerConfig


@pytest.mark.bad_input
def test_nothing_is_decoded_in_no_step_and_fused_attention_has_no_dropout():
    config = TransformerConfig(11, 17, pad_id=0)
    for n, m in ((5, 0), (0, 5), (5, -1)):
        with pytest.raises(ValueError, match=f"^expected lengths of at least 1; got {n} and {m}$"):
            decoding_flops(config, n, m, cached=n > 0)
    with pytest.raises(ValueError, match="no attention dropout: ask for fused=False"):
        attention_memory(8, 4, 2, dropout=True)
