# Generated from chapters/G_engines.md: edit it there and `make export`, or here and `make sync`.

"""The trained translator in another engine: CTranslate2, which runs trained models and trains none."""

from __future__ import annotations

import json
import os
import shutil
from itertools import groupby
from numbers import Integral
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transformer_lib.data import Tokenizer
from transformer_lib.decoding import Hypothesis
from transformer_lib.files import InputError, one_line, part_of
from transformer_lib.model import Transformer
from transformer_lib.precision import prepare_device
from transformer_lib.translation import Translator


def export(translator: Translator, path: str | Path, *, quantization: str | None = None) -> None:
    """Write a translator for CTranslate2: a directory for `load`.

    Args:
        translator: its model is a `Transformer`, not a subclass.
        path: a directory that does not exist yet, or is empty; an empty one is filled, wherever it lies.
        quantization: how to store the matrices: "int8", "int16" or "float16"; None = float32.

    Raises:
        InputError: CTranslate2 is not installed or has no such model, or the directory holds files or cannot be
            written.
    """
    folder = Path(path)
    spec = _specification(translator)
    spec.optimize(quantization)
    there = os.path.exists(folder)  # which also answers if we may not look
    part = part_of(folder / "model" if there else folder)
    try:
        if there and any(path.name != "lost+found" for path in folder.iterdir()):  # which a file system has at its root
            raise InputError(f"{folder} already holds files: choose another directory to export to")
        part.mkdir(parents=True)
        spec.save(str(part))
        translator.tokenizer.save(part / "tokenizer.json")
        if there:  # it may be mounted, or be where we are
            for file in sorted(part.iterdir(), key=lambda file: file.name == "model.bin"):  # without it, no model
                file.replace(folder / file.name)
        else:
            part.replace(folder)
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _specification(translator: Translator) -> Any:
    """The model as CTranslate2 describes one, filled with its weights."""
    _ctranslate2()
    from ctranslate2.specs import TransformerSpec

    model, config, tokenizer = translator.model, translator.model.config, translator.tokenizer
    layers = config.num_encoder_layers, config.num_decoder_layers
    spec = TransformerSpec.from_config(layers, config.num_heads, pre_norm=config.norm_first)
    weights = {  # copies, because `optimize` changes them in place
        name: value.detach().to("cpu", torch.float32, copy=True)
        for name, value in model.named_parameters(remove_duplicate=False)
    }
    try:
        _fill_all(spec, weights)
    except KeyError as error:
        raise InputError(f"CTranslate2 has no such model: this one lacks {error}") from error
    if weights or type(model) is not Transformer:
        got = f"{type(model).__name__} with {', '.join(weights) or 'its own code'}"
        raise InputError(f"CTranslate2 has no such model: expected a plain Transformer; got {got[:200]}")
    for side in (spec.encoder, spec.decoder):
        nothing = torch.zeros(1, config.max_len, config.d_model).to(model.positions.table)
        side.position_encodings.encodings = model.positions(nothing)[0].float().cpu().numpy()
    vocabulary = json.loads(tokenizer.to_json())["model"]["vocab"]
    pieces = sorted(vocabulary, key=vocabulary.__getitem__)
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    spec.config.bos_token = spec.config.decoder_start_token = pieces[tokenizer.bos_id]
    spec.config.eos_token = pieces[tokenizer.eos_id]
    for name in ("max_len", "length_ratio"):  # for `load`
        spec.config.add_attribute(name, getattr(translator, name))
    spec.validate()
    return spec


def _fill_all(spec: Any, weights: dict[str, Tensor]) -> None:
    """Move every weight into its place."""

    def fill(place: Any, name: str) -> None:
        for kind, norms in (("weight", "gamma"), ("bias", "beta")):
            setattr(place, norms if hasattr(place, norms) else kind, weights.pop(f"{name}.{kind}").numpy())

    def fill_attention(place: Any, name: str) -> None:
        weight, bias = (weights.pop(f"{name}.in_projection.{kind}") for kind in ("weight", "bias"))
        d_model = weight.size(1)
        rows = [3 * d_model] if len(place.linear) == 2 else [d_model, 2 * d_model]  # the last linear is the output's
        for linear, own, own_bias in zip(place.linear, weight.split(rows), bias.split(rows)):
            linear.weight, linear.bias = own.numpy(), own_bias.numpy()
        fill(place.linear[-1], f"{name}.out_projection")
        fill(place.layer_norm, f"{name}_norm")

    spec.encoder.embeddings[0].weight = weights.pop("source_embedding.weight").numpy()
    spec.decoder.embeddings.weight = weights.pop("target_embedding.weight").numpy()
    spec.decoder.projection.weight = weights.pop("output_projection.weight").numpy()
    for stack, side in (("encoder", spec.encoder), ("decoder", spec.decoder)):
        for number, layer in enumerate(side.layer):
            name = f"{stack}.layers.{number}"
            fill_attention(layer.self_attention, f"{name}.self_attention")
            if stack == "decoder":
                fill_attention(layer.attention, f"{name}.cross_attention")
            fill(layer.ffn.linear_0, f"{name}.feed_forward.linear1")
            fill(layer.ffn.linear_1, f"{name}.feed_forward.linear2")
            fill(layer.ffn.layer_norm, f"{name}.feed_forward_norm")
        if hasattr(side, "layer_norm"):  # of a pre-norm stack
            fill(side.layer_norm, f"{stack}.norm")


def _ctranslate2() -> Any:
    try:
        import ctranslate2  # here, because it is optional
    except ImportError as error:
        raise InputError('CTranslate2 is not installed: python -m pip install "ctranslate2>=4.6"') from error
    return ctranslate2


class EngineSearch:
    """The search of CTranslate2, for a `Translator`.

    It keeps `beam_size` live hypotheses until twice as many have finished, and then ranks them as `beam_search` does. A
    beam of 1 is greedy decoding.

    Args:
        path: what `export` or the command `export --out` wrote.
        tokenizer: the one that lies there.
        device: where to compute; on the CPU with as many threads as PyTorch.

    Raises:
        InputError: CTranslate2 is not installed, a file is missing or damaged, or `Translator` refuses the device.
    """

    def __init__(self, path: str | Path, tokenizer: Tokenizer, device: str | torch.device = "cpu") -> None:
        folder, place, engine = Path(path), prepare_device(device), _ctranslate2().Translator
        self.pad_id, self.eos_id = tokenizer.pad_id, tokenizer.eos_id
        try:
            stored = json.loads((folder / "config.json").read_bytes())
            self.max_len, self.length_ratio = int(stored["max_len"]), float(stored.get("length_ratio", 2.0))
            self._names = json.loads((folder / "shared_vocabulary.json").read_bytes())
            self._engine = engine(
                str(folder), device=place.type, device_index=place.index or 0, intra_threads=torch.get_num_threads()
            )
        except (OSError, ValueError, TypeError, KeyError, RuntimeError) as error:
            raise InputError(f"{folder} holds a damaged model for CTranslate2 ({one_line(error)})") from error
        self._ids = {name: number for number, name in enumerate(self._names)}

    def __call__(
        self, sources: list[list[int]], limits: list[int], *, beam_size: int, length_penalty: float
    ) -> list[list[Hypothesis]]:
        """As `ModelSearch` does."""
        if not isinstance(beam_size, Integral) or beam_size < 1:
            raise ValueError(f"beam_size must be a whole number, at least 1; got {beam_size!r}")
        for limit in limits:
            if not (isinstance(limit, Integral) and 1 <= limit <= self.max_len):
                raise ValueError(f"max_length must be from 1 to the model's {self.max_len}; got {limit!r}")
        if not 0 <= length_penalty <= 50:
            raise ValueError(f"length_penalty must be from 0 to 50; got {length_penalty}")
        found: list[Any] = []
        for (_, limit), same in groupby(zip(sources, limits), key=lambda pair: (len(pair[0]), pair[1])):
            found += self._engine.translate_batch(
                [[self._names[token] for token in source] for source, _ in same],
                beam_size=beam_size, length_penalty=length_penalty, num_hypotheses=beam_size,
                patience=2 if beam_size > 1 else 1, max_input_length=0, return_end_token=True,
                max_decoding_length=limit, suppress_sequences=[[self._names[self.pad_id]]], return_scores=True,
            )  # fmt: skip
        return [self._ranked(each) for each in found]

    def _ranked(self, result: Any) -> list[Hypothesis]:
        """The hypotheses that ended, best first; if none did, those that were cut off."""
        rows = [[self._ids[name] for name in names] for names in result.hypotheses]
        eos = [self.eos_id]
        found = [
            Hypothesis(row[:-1] if row[-1:] == eos else row, score, row[-1:] == eos)
            for row, score in zip(rows, result.scores)
        ]
        return [hypothesis for hypothesis in found if hypothesis.finished] or found


def load(path: str | Path, *, device: str | torch.device = "cpu", precision: str = "auto") -> Translator:
    """Load a translator, trained or exported, according to what the directory holds.

    Args:
        path: what `Translator.save`, `export` or a command's `--out` wrote; or "multi30k-en-de".
        device: where to compute.
        precision: as in `Translator`; what was exported has its own.

    Raises:
        InputError: a file is missing or damaged, or CTranslate2 is needed and not installed.
    """
    folder = Path(path)
    if not (folder / "model.bin").is_file():
        return Translator.from_pretrained(path, device=device, precision=precision)
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    search = EngineSearch(folder, tokenizer, device)
    return Translator(search, tokenizer, length_ratio=search.length_ratio)
