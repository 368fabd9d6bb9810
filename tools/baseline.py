"""Train by the command of a record once more, and write into the record how that went.

python tools/baseline.py RUN RECORD [--seed S] [--steps N] [--commit HASH]

Without a seed, PyTorch's own Transformer takes the place of ours; with one, ours starts from other random numbers.
RUN is the directory of the training; one that was interrupted goes on. N is the number of updates, if it is not the
record's. HASH names the commit that it ran at, if that is not the present one. `torchrun` may start it with several
processes.
"""

import argparse
import os
import warnings
from functools import partial
from pathlib import Path
from unittest import mock

import torch
from record import DECODING, SPLITS, again, here, load, log_of, scores, store
from torch import Tensor, nn
from variations import compared

from transformer_lib import __main__ as command_line
from transformer_lib import translation
from transformer_lib.data import load_multi30k
from transformer_lib.decoding import beam_search
from transformer_lib.model import Transformer, TransformerConfig

NAME = "torch.nn.Transformer"


def torch_stacks(config: TransformerConfig) -> nn.Transformer:
    """PyTorch's encoder and decoder of this size, with dropout where ours have it and nowhere else."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pre-norm rules out nested tensors, which it says each time
        stacks = nn.Transformer(
            config.d_model, config.num_heads, config.num_encoder_layers, config.num_decoder_layers, config.d_ff,
            config.dropout, batch_first=True, norm_first=config.norm_first,
        )  # fmt: skip
    for module in stacks.modules():
        if isinstance(module, nn.MultiheadAttention):
            module.dropout = config.attention_dropout
        if isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
            module.dropout = nn.Identity()  # type: ignore[assignment]  # the one inside of the feed-forward network
    return stacks


class _Encoder(nn.Module):
    """PyTorch's encoder, called as ours."""

    def __init__(self, stack: nn.Module) -> None:
        super().__init__()
        self.stack = stack

    def forward(self, x: Tensor, *, mask: Tensor) -> Tensor:
        """Map (batch, n, d_model) to the same; the mask is that of the padding, (batch, 1, 1, n)."""
        return self.stack(x, src_key_padding_mask=~mask[:, 0, 0])


class _Decoder(_Encoder):
    """PyTorch's decoder, called as ours, as far as training and decoding without a cache ask for it."""

    def forward(  # type: ignore[override]
        self, x: Tensor, memory: Tensor, *, mask: None, memory_mask: Tensor, is_causal: bool, cache: None
    ) -> Tensor:
        """Map (batch, m, d_model), padded on the right, to the same; memory_mask is (batch, 1, 1, n)."""
        if mask is not None or cache is not None or not is_causal:
            raise NotImplementedError("only what training and decoding without a cache ask for")
        future = torch.ones(x.size(1), x.size(1), dtype=torch.bool, device=x.device).triu(1)  # True = hidden
        padding = ~memory_mask[:, 0, 0]
        return self.stack(x, memory, tgt_mask=future, tgt_is_causal=True, memory_key_padding_mask=padding)


class TorchTransformer(Transformer):
    """Our embeddings and projection around PyTorch's encoder and decoder."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        stacks = torch_stacks(config)
        self.encoder = _Encoder(stacks.encoder)  # type: ignore[assignment]
        self.decoder = _Decoder(stacks.decoder)  # type: ignore[assignment]


def add_training(name: str, kind: type[Transformer], run: Path, folder: Path, where: dict[str, str]) -> None:
    """Write the validation losses into the record, and the scores of a training that is as long as the record's."""
    record = load(folder)
    log = log_of(run)
    found: dict[str, object] = where | {"validation": [[row["step"], row["val_loss"]] for row in log]}
    if log[-1]["step"] == record["steps"]:
        test = load_multi30k(SPLITS[0], source=record["source"], target=record["target"])
        with (
            mock.patch.object(translation, "Transformer", kind),
            mock.patch.object(translation, "beam_search", partial(beam_search, use_cache=kind is Transformer)),
        ):
            answers = translation.Translator.from_pretrained(run).translate(test.source, **DECODING)
        found["scores"] = scores(answers, test.target, record["target"])
        ours = (folder / f"{SPLITS[0]}.{record['target']}").read_text(encoding="utf-8").splitlines()
        row = compared({"ours": ours, name: answers}, test.target)[name]
        found["interval"] = [row["low"], row["high"]]  # of cased BLEU minus ours, by the paired bootstrap
    record["others"] = record.get("others", {}) | {name: found}
    store(record, folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("record", type=Path)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--commit")
    given = parser.parse_args()
    command = load(given.record)["command"]
    options = {f"--{name}": value for name in ("seed", "steps") if (value := getattr(given, name)) is not None}
    name, kind = (NAME, TorchTransformer) if given.seed is None else (f"seed {given.seed}", Transformer)
    with mock.patch.object(command_line, "Transformer", kind):
        again(given.run, command, options)
    if os.environ.get("RANK", "0") == "0":
        add_training(name, kind, given.run, given.record, here(given.commit))
