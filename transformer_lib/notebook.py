# Generated from chapters/17e_live.md: edit it there and `make export`, or here and `make sync`.

"""What the notebook that trains your translator needs: data, a device, your file, and a place that outlives it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

import torch
from torch import Tensor, nn

from transformer_lib.data import ParallelCorpus, load_multi30k, toy_corpus
from transformer_lib.files import InputError, atomic_path, atomic_write, one_line
from transformer_lib.loading import NAME, source_of
from transformer_lib.model import TransformerConfig, evaluation
from transformer_lib.multi_head import MultiHeadAttention
from transformer_lib.own_model import SIZES, architecture
from transformer_lib.precision import prepare_device
from transformer_lib.recipes import preset_for
from transformer_lib.translation import KEPT, Attention, Translator, recorded_weights

MINUTES = {"T4": 9, "A100": 7, "H100": 7, "B200": 7}  # of the whole training, predicted
WHOLE: dict[str, float] = {"steps": 12_000}  # at most: the preset stops when ten validations in a row were no better
SHORT: dict[str, float] = {"steps": 240, "warmup_steps": 80, "evaluate_every": 60, "batch_tokens": 1024}


class Sentences(NamedTuple):
    """A corpus in three parts."""

    name: str
    train: ParallelCorpus
    val: ParallelCorpus
    test: ParallelCorpus


def captions() -> Sentences:
    """Multi30k, from disk or by download; if it cannot be had, the toy corpus, and two lines that say what to do.

    A folder multi30k beside the notebook is looked into first. Where $TRANSFORMER_LIB_DATA is set to nothing, neither
    disk nor network is tried.
    """
    found = None
    if os.environ.get("TRANSFORMER_LIB_DATA") == "" and not Path("multi30k").is_dir():  # as for the book's own pages
        print("There is no Multi30k here: the toy corpus takes its place.")
    else:
        try:
            parts = [load_multi30k(split, beside=Path()) for split in ("train", "val", "test_2016_flickr")]
            found = Sentences("multi30k", *parts)
        except InputError as error:
            print(f"Multi30k is missing: {error}.")
            print("Upload its files into a folder multi30k beside this notebook. Here the toy corpus takes its place.")
    found = found or Sentences("toy", *map(toy_corpus, ("train", "val", "test")))
    sizes = [f"{len(part):,}" for part in found[1:]]
    print(f"{found.name}: {sizes[0]} pairs to train on, {sizes[1]} for validation, {sizes[2]} for the test")
    return found


def drive(folder: str = "translator") -> Path | None:
    """A folder in Google Drive, if this is Colab and its reader agrees; else None, and a line if Drive was refused."""
    try:
        from google.colab import drive as colab
    except ImportError:
        return None
    place = Path("drive").absolute()
    try:
        colab.mount(str(place))
    except Exception as error:  # Colab has several, none of which it documents
        print(f"no Google Drive ({one_line(error)}): download the translator at the end, before Colab forgets it")
        return None
    return place / "MyDrive" / folder


def find_my_transformer(*folders: Path | None) -> str | None:
    """The name of your model, my_transformer.py:build, if the file is here or in a folder, and its parts can be run.

    Without one, the model to train is the library's, and a line says why.
    """
    files = [Path(folder, NAME) for folder in (Path(), *folders) if folder is not None]
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        print(f"there is no {NAME} here: the model is the library's")
        return None
    tokens = torch.ones(1, 2, dtype=torch.long)
    try:
        architecture(f"{file}:build")(TransformerConfig(5, 5, 0))(tokens, tokens)
    except Exception as error:  # whatever the reader's code raises
        said = error if isinstance(error, InputError) else one_line(error)
        print(f"{file} is not finished ({said}): the model is the library's")
        return None
    print(f"the model is yours, {file}")
    return f"{file}:build"


def plan(data: Sentences, mine: str | None = None) -> tuple[str, dict[str, Any], Path]:
    """Say what device there is, and how long the training will take.

    Args:
        data: what `captions` found.
        mine: the name of a model of your own.

    Returns:
        The device, a preset for `train_translator`, and the directory of the run, the same for the same data and file.
        A shortened training gets a new temporary one.
    """
    code = source_of(mine) if mine else b""
    name = f"{data.name}-{hashlib.sha256(code).hexdigest()[:8] if mine else 'library'}"
    if torch.cuda.is_available() and data.name != "toy":
        device, kind = "cuda", torch.cuda.get_device_name()
        minutes = next((minutes for key, minutes in MINUTES.items() if key in kind), MINUTES["T4"])
        print(f"{kind}: the whole training, about {minutes} minutes (predicted)")
        preset, run = preset_for("small", device, **WHOLE), Path("runs", name)
    else:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        print(f"{device}: a shortened training, a few minutes")
        preset, run = preset_for("tiny", device, **SHORT), Path(tempfile.mkdtemp(), f"{name}-short")
    prepare_device(device, tf32=True)
    if mine:
        atomic_write(run / KEPT, code)
        preset = preset | {"model": SIZES}
    return device, preset, run


def keep(run: Path, kept: Path) -> bool:
    """Copy what a run has written into a folder elsewhere, each file under another name first. If that fails, say so.

    The state comes last, so that a copy which was interrupted has an older state and all that it needs.
    """
    place = kept / run.name
    try:
        place.mkdir(parents=True, exist_ok=True)
        files = [file for file in run.iterdir() if file.is_file() and not file.name.startswith(".")]
        for file in sorted(files, key=lambda file: file.name.startswith("state")):
            if not (file.name.startswith("recent") and (place / file.name).exists()):  # those never change
                shutil.copyfile(file, place / f"{file.name}.part")
                (place / f"{file.name}.part").replace(place / file.name)
        for old in place.glob("recent*"):
            if not (run / old.name).exists():
                old.unlink()
    except OSError as error:
        print(f"not kept in {place}: {error.strerror or error}; free some space there. The training goes on.")
        return False
    return True


def bring_back(run: Path, kept: Path | None) -> None:
    """Put a run that `keep` has copied where it was, if it is no longer there."""
    place = None if kept is None else kept / run.name
    if place is not None and (place / "state.safetensors").is_file() and not (run / "state.safetensors").exists():
        shutil.copytree(place, run, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.part"))
        print(f"going on with the run in {place}")


def watch(run: Path, kept: Path | None = None) -> Callable[[list[dict[str, float]]], None]:
    """What `train_translator` shall call after each validation: it draws the losses anew, and keeps every tenth."""
    import matplotlib.pyplot as plt
    from IPython.display import display, update_display

    figure, axis = plt.subplots(figsize=(6, 2.6))
    display(figure, display_id=str(run))
    plt.close(figure)

    def report(log: list[dict[str, float]]) -> None:
        axis.clear()
        for name, style in (("train_loss", "--"), ("val_loss", "-")):
            rows = [row for row in log if name in row]
            axis.plot([row["step"] for row in rows], [row[name] for row in rows], f"C0{style}", marker=".", label=name)
        axis.set(xlabel="step", ylabel="loss, nats per token")
        axis.legend()
        update_display(figure, display_id=str(run))
        if kept is not None and len(log) % 10 == 0:  # each copy is of 140 MB
            keep(run, kept)

    return report


def attended(translator: Translator, sentence: str) -> Attention | None:
    """As `Translator.attention`, also for a model of your own, whose `attention` function is watched.

    Returns:
        Tokens and weights (layers, heads, m, n); None if your file has no such function.
    """
    if getattr(translator.model, "model", None) is None:
        return translator.attention(sentence)
    return every_attention(translator, sentence).get("cross-attention")


def every_attention(translator: Translator, sentence: str) -> dict[str, Attention]:
    """What every head looks at, of the library's model or of your own, whose `attention` function is watched.

    Returns:
        For the encoder, the decoder and the cross-attention what asks (`target`), what is asked (`source`), and the
        weights (layers, heads, queries, keys). Empty if your file has no such function.
    """
    own, tokenizer = getattr(translator.model, "model", None), translator.tokenizer
    model = translator.model if own is None else own
    ours = [part for part in model.modules() if isinstance(part, MultiHeadAttention)]
    (_, answer), *_ = translator.n_best(sentence)
    source, predicted = translator._encode([sentence, answer])
    read = [tokenizer.bos_id, *predicted[:-1]]
    padded = source + [tokenizer.pad_id] * (len(source) == len(read))  # so that a matrix's shape says what it is
    with recorded_weights(ours) if own is None else _watched(own) as seen, evaluation(model):
        model(*(torch.tensor([row], device=translator.search.device) for row in (padded, read)))
    english, german = translator._pieces(source), translator._pieces(predicted)
    sides = {
        "encoder": (padded, padded, Attention(english, english, torch.empty(0))),
        "decoder": (read, read, Attention(["<bos>", *german[:-1]], ["<bos>", *german[:-1]], torch.empty(0))),
        "cross-attention": (read, padded, Attention(english, german, torch.empty(0))),
    }
    found = dict[str, Attention]()
    for name, (queries, keys, side) in sides.items():
        layers = [weights for weights in seen if weights.shape[-2:] == (len(queries), len(keys))]
        if layers:
            weights = torch.stack(layers)[..., : len(side.target), : len(side.source)].cpu()
            found[name] = side._replace(weights=weights)
    return found


@contextmanager
def _watched(model: nn.Module) -> Iterator[list[Tensor]]:
    """As `recorded_weights`, of the function `attention` in the file of a model of your own."""
    space, seen = type(model).forward.__globals__, list[Tensor]()
    plain = space.get("attention")
    if plain is None:
        yield seen
        return

    def attention(*given: Any, **options: Any) -> Any:
        output, weights = plain(*given, **options)
        seen.append(weights[0])
        return output, weights

    space["attention"] = attention
    try:
        yield seen
    finally:
        space["attention"] = plain


def explorer(
    attentions: dict[str, Attention], without: dict[str, dict[str, str]] | None = None, german: str = "",
    **at: int,
) -> str:  # fmt: skip
    """The heads of a model, to look through: HTML that carries its script, for a notebook or the book.

    Args:
        attentions: what `every_attention` returns.
        without: for each attention, what the German becomes without the head "layer.head", the layer "layer", or "all"
            heads, counted from 0; those that change nothing may be left out. None = nothing can be switched off.
        german: the translation with all heads.
        at: what is chosen first: `view`, `layer`, `head`, `query`, from 0.
    """
    if not attentions:
        return "<p>There is no attention to show.</p>"
    views = [
        {
            "name": name, "queries": seen.target, "keys": seen.source, "heads": seen.weights.size(1),
            "asks": "en" if name == "encoder" else "de", "answers": "de" if name == "decoder" else "en",
            "weights": b64encode(bytes((255 * seen.weights.clamp(0, 1)).round().byte().flatten().tolist())).decode(),
        }
        for name, seen in attentions.items()
    ]  # fmt: skip
    given = {"views": views, "german": german, "at": at} | ({} if without is None else {"without": without})
    style, script = (
        Path(__file__).with_name("static").joinpath(f"heads.{kind}").read_text("utf-8") for kind in ("css", "js")
    )
    data = json.dumps(given, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    name, seen = list(attentions.items())[at.get("view", 0)]
    layer, head = at.get("layer", 0), at.get("head", 0)
    heads = seen.weights[layer]  # (heads, target, source); behind the last one is their mean
    shown, what = (
        (heads[head], f"Head {layer + 1}.{head + 1}")
        if head < len(heads)
        else (heads.mean(0), f"Mean of layer {layer + 1}")
    )
    rows = "".join(
        f'<tr><th scope="row">{escape(word)}</th><td>{escape(seen.source[int(most)])}</td><td>{weight:.2f}</td></tr>'
        for word, weight, most in zip(seen.target, *shown.max(dim=-1))
    )
    return f"""<style>{style}</style><div class="heads" role="group" aria-label="Every head">
<script type="application/json">{data}</script>
<table><caption>{what} of the {name} (for all heads, open the page with JavaScript)</caption>
<thead><tr><th scope="col">word</th><th scope="col">looks most at</th><th scope="col">weight</th></tr></thead>
{rows}</table></div><script>{script}</script>"""


def pack(run: Path, kept: Path | None = None) -> Path:
    """Put what `translate --model` needs into one file, in the folder `kept` or in this one; in Colab download it."""
    path = (kept or Path()) / f"{run.name}.zip"
    with atomic_path(path) as part, ZipFile(part, "w") as packed:
        for file in sorted(run.iterdir()):
            if file.is_file() and not file.name.startswith((".", "state", "recent")):
                packed.write(file, f"{run.name}/{file.name}")
    if "google.colab" in sys.modules:
        from google.colab import files

        files.download(str(path))
    return path
