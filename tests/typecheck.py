"""The run-time check that conftest.py puts around every function of the library's core."""

from beartype import BeartypeConf, beartype

CORE = ("attention", "multi_head", "positions", "masks", "layers", "model", "training.loss", "cache",
        "variants.modern_blocks", "variants.grouped_attention", "variants.families",
        "variants.modern_decoder")  # fmt: skip

typechecker = beartype(conf=BeartypeConf(is_pep484_tower=True))  # an int will do where a float is asked for
