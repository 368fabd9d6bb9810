"""Train PyTorch's own Transformer by the command of a record, and write into the record how that went.

python tools/baseline.py RUN RECORD [--steps N]

RUN is the directory of its training; one that was interrupted goes on. N is the number of updates, if it is not the
record's. `torchrun` may start it with several processes.
"""

import argparse
import json
import os
import shlex
import sys
import warnings
from functools import partial
from pathlib import Path
from unittest import mock

import torch
from jaxtyping import Bool, Float, Int
from model_card import model_card
from record import DECODING, SPLITS, scores, seal
from torch import Tensor, nn

from transformer_lib import __main__ as command_line
from transformer_lib import translation
from transformer_lib.data import load_multi30k
from transformer_lib.decoding import beam_search
from transformer_lib.files import atomic_write
from transformer_lib.model import DecoderCache, Transformer, TransformerConfig

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


class TorchTransformer(Transformer):
    """Our embeddings and projection around PyTorch's encoder and decoder."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        del self.encoder, self.decoder
        self.stacks = torch_stacks(config)

    def encode(
        self, source_tokens: Int[Tensor, "batch n"], *, mask: Bool[Tensor, "#batch #heads #n #n"] | None = None
    ) -> Float[Tensor, "batch n d_model"]:
        """Turn source tokens into the memory."""
        x = self._embed(source_tokens, self.source_embedding)
        return self.stacks.encoder(x, src_key_padding_mask=source_tokens == self.config.pad_id)

    def decode(
        self,
        target_tokens: Int[Tensor, "batch m"],
        memory: Float[Tensor, "batch n d_model"],
        *,
        memory_mask: Bool[Tensor, "#batch #heads #m #n"] | None,
        mask: Bool[Tensor, "#batch #heads #m #keys"] | None = None,
        is_causal: bool = False,
        cache: DecoderCache | None = None,
    ) -> Float[Tensor, "batch m d_model"]:
        """Turn target tokens, padded on the right, and the memory into hidden states."""
        if mask is not None or cache is not None or memory_mask is None or not is_causal:
            raise NotImplementedError("only what training and decoding without a cache ask for")
        length = target_tokens.size(1)
        future = torch.ones(length, length, dtype=torch.bool, device=target_tokens.device).triu(1)  # True = hidden
        return self.stacks.decoder(
            self._embed(target_tokens, self.target_embedding), memory, tgt_mask=future, tgt_is_causal=True,
            memory_key_padding_mask=~memory_mask[:, 0, 0],
        )  # fmt: skip


def train(run: Path, command: str, steps: int | None) -> None:
    """Run the record's own command with the other model in the place of ours."""
    arguments = [*shlex.split(command)[3:], "--out", str(run), "--resume"]  # behind python -m transformer_lib
    if steps is not None:
        arguments += ["--steps", str(steps)]
    with mock.patch.object(command_line, "Transformer", TorchTransformer):
        if command_line.main(arguments):
            sys.exit(f"{run}: the training did not end")


def add_baseline(run: Path, folder: Path) -> None:
    """Write the validation losses into the record, and the scores of a training that is as long as the record's."""
    record = json.loads((folder / "record.json").read_text(encoding="utf-8"))
    log = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    record["rival"] = {"name": NAME, "validation": [[row["step"], row["val_loss"]] for row in log]}
    if log[-1]["step"] == record["steps"]:
        test = load_multi30k(SPLITS[0], source=record["source"], target=record["target"])
        with (
            mock.patch.object(translation, "Transformer", TorchTransformer),
            mock.patch.object(translation, "beam_search", partial(beam_search, use_cache=False)),
        ):
            answers = translation.Translator.from_pretrained(run).translate(test.source, **DECODING)
        record["baselines"][NAME] = scores(answers, test.target, record["target"])
    atomic_write(folder / "record.json", json.dumps(record))
    atomic_write(folder / "README.md", model_card(record, folder.name))
    seal(folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("record", type=Path)
    parser.add_argument("--steps", type=int)
    given = parser.parse_args()
    train(given.run, json.loads((given.record / "record.json").read_text(encoding="utf-8"))["command"], given.steps)
    if os.environ.get("RANK", "0") == "0":
        add_baseline(given.run, given.record)
