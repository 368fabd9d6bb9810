# Generated from the front matter of chapters/*.md: edit the chapter, not this file, then run `make export`.
"""The library that the course writes."""

from transformer_lib.attention import scaled_dot_product_attention
from transformer_lib.files import UserError, atomic_path, atomic_write, load_weights, save_weights

__version__ = "0.1.0"
__all__ = [
    "UserError",
    "atomic_path",
    "atomic_write",
    "load_weights",
    "save_weights",
    "scaled_dot_product_attention",
]
