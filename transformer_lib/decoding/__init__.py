# Generated from the front matter of chapters/*.md: edit it there and `make export`, or here and `make sync`.
"""The public names of this package."""

from transformer_lib.decoding.sampling import sample_decode
from transformer_lib.decoding.search import Hypothesis, beam_search, greedy_decode

__all__ = ["Hypothesis", "beam_search", "greedy_decode", "sample_decode"]
