"""Run `check` on other people's encoder-decoder Transformers, and write down what it finds.

python -m pip install --no-deps --target peers --requirement tests/well_known.txt
PYTHONPATH=.:peers python experiments/well_known.py

A model of each package is built small, with random weights, and called through an adapter. Packages that are not there
are left out, and what the record says of them stays. What is found is kept in records/well_known.json.
"""

import importlib
import importlib.metadata
import json
import sys
from datetime import date
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from transformer_lib.checks import Report, check_transformer
from transformer_lib.checks.report import NotApplicable
from transformer_lib.checks.subject import Adapted, Factory, hugging_face, sequence_first

RECORD = Path(__file__).resolve().parent.parent / "records" / "well_known.json"
WIDTH, HEADS, INNER, LAYERS, LONGEST = 32, 4, 64, 2, 512


def imported(name: str, *absent: str) -> Any:
    """Import a module. What it imports without need at this place may be absent."""
    fakes = {other: mock.MagicMock() for other in absent if other not in sys.modules}
    sys.modules.update(fakes)
    try:
        return importlib.import_module(name)
    finally:
        for other in fakes:
            del sys.modules[other]


def lengths(tokens: Tensor, pad_id: int) -> Tensor:
    """The number of real tokens of each sentence, (rows,), for models that are given no more than this."""
    number = (tokens != pad_id).sum(1)
    if not ((tokens != pad_id) == (torch.arange(tokens.size(1), device=tokens.device) < number[:, None])).all():
        raise NotApplicable("lengths can only say that padding is at the end")
    return number


# --- one adapter for each model: (source_vocab_size, target_vocab_size, pad_id) to a model ------------------------


class AroundTorch(nn.Module):
    """`torch.nn.Transformer` with embeddings, learned positions and an output, and all its masks."""

    def __init__(self, source: int, target: int, pad_id: int) -> None:
        super().__init__()
        self.pad_id, self.places = pad_id, nn.Embedding(LONGEST, WIDTH)
        self.source_table, self.target_table = nn.Embedding(source, WIDTH), nn.Embedding(target, WIDTH)
        self.stack = nn.Transformer(WIDTH, HEADS, LAYERS, LAYERS, INNER, batch_first=True)
        self.output = nn.Linear(WIDTH, target)

    def embed(self, tokens: Tensor, table: nn.Embedding) -> Tensor:
        """Tokens (b, n) to vectors (b, n, WIDTH)."""
        return table(tokens) + self.places(torch.arange(tokens.size(1), device=tokens.device))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Logits (b, m, V)."""
        x, y = self.embed(source, self.source_table), self.embed(target, self.target_table)
        padded, length = source == self.pad_id, target.size(1)
        future = torch.ones(length, length, dtype=torch.bool, device=target.device).triu(1)  # True = forbidden
        masks = {"src_key_padding_mask": padded, "memory_key_padding_mask": padded}
        masks["tgt_key_padding_mask"] = target == self.pad_id
        return self.output(self.stack(x, y, tgt_mask=future, **masks))


def hub(name: str, **options: Any) -> Factory:
    """A model of Hugging Face's `transformers`, with sizes that its configuration understands."""

    def factory(source: int, target: int, pad_id: int) -> nn.Module:
        if source != target:
            raise ValueError("the model has one vocabulary")
        library = importlib.import_module("transformers")
        special = {"pad_token_id": pad_id, "decoder_start_token_id": pad_id}
        config = getattr(library, f"{name}Config")(vocab_size=source, **special, **options)
        kind = "MTModel" if name == "Marian" else "ForConditionalGeneration"
        return hugging_face(getattr(library, name + kind)(config), pad_id)

    return factory


BART = {"d_model": WIDTH, "encoder_ffn_dim": INNER, "decoder_ffn_dim": INNER, "max_position_embeddings": LONGEST}
BART |= {"encoder_layers": LAYERS, "decoder_layers": LAYERS}
BART |= {"encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS}
T5 = {"d_model": WIDTH, "d_kv": WIDTH // HEADS, "d_ff": INNER, "num_layers": LAYERS, "num_heads": HEADS}
EXPERTS = {"num_experts": 4, "expert_capacity": 64, "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1}
PROPHET = {"hidden_size": WIDTH, "encoder_ffn_dim": INNER, "decoder_ffn_dim": INNER}
PROPHET |= {"num_encoder_layers": LAYERS, "num_decoder_layers": LAYERS, "max_position_embeddings": LONGEST}
PROPHET |= {"num_encoder_attention_heads": HEADS, "num_decoder_attention_heads": HEADS}


def bert_to_bert(source: int, target: int, pad_id: int) -> nn.Module:
    """An encoder and a decoder that are both BERT."""
    library = importlib.import_module("transformers")
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
    sides = [
        library.BertConfig(vocab_size=size, intermediate_size=INNER, pad_token_id=pad_id, **sizes)
        for size in (source, target)
    ]
    config = library.EncoderDecoderConfig.from_encoder_decoder_configs(*sides)
    return hugging_face(library.EncoderDecoderModel(config), pad_id)


def both_sides(source: int, target: int, **options: Any) -> dict[str, Any]:
    """The same options for encoder and decoder, by the names that some libraries have for them."""
    sizes = {"enc": source, "dec": target}
    options |= {"max_seq_len": LONGEST, "depth": LAYERS, "heads": HEADS}
    given = {f"{side}_{name}": value for side in sizes for name, value in options.items()}
    return given | {f"{side}_num_tokens": size for side, size in sizes.items()}


def x_transformers(source: int, target: int, pad_id: int) -> nn.Module:
    """Its parts are called one after the other, because its own `forward` has no mask for the target."""

    def call(model: Any, source: Tensor, target: Tensor) -> Tensor:
        memory = model.encoder(source, mask=source != pad_id, return_embeddings=True)
        return model.decoder.net(target, mask=target != pad_id, context=memory, context_mask=source != pad_id)

    options = both_sides(source, target, attn_dim_head=WIDTH // HEADS)
    return Adapted(imported("x_transformers").XTransformer(dim=WIDTH, **options), call)


def performer(source: int, target: int, pad_id: int) -> nn.Module:
    """Its parts are called one after the other, because its own `forward` returns the loss."""

    def call(model: Any, source: Tensor, target: Tensor) -> Tensor:
        memory = model.enc(source, mask=source != pad_id, return_encodings=True)
        return model.dec.net(target, mask=target != pad_id, context=memory, context_mask=source != pad_id)

    options = both_sides(source, target, dim_head=WIDTH // HEADS)
    return Adapted(imported("performer_pytorch").PerformerEncDec(dim=WIDTH, **options), call)


def torchscale(source: int, target: int, pad_id: int) -> Adapted:
    """As its `forward` is called: it takes a mask of the source's padding by any name."""
    unused = ("torchvision", "timm", "timm.models", "timm.models.layers")  # for pictures, and for dropping paths
    library = imported("torchscale.architecture.encoder_decoder", *unused)
    parts = imported("torchscale.component.embedding", *unused)
    sides = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in {
        "embed_dim": WIDTH, "attention_heads": HEADS, "ffn_embed_dim": INNER, "layers": LAYERS}.items()}  # fmt: skip
    config = imported("torchscale.architecture.config").EncoderDecoderConfig(vocab_size=target, dropout=0.1, **sides)
    tables = [
        part(size, WIDTH)
        for size in (source, target)
        for part in (parts.TextEmbedding, lambda _, width: parts.PositionalEmbedding(LONGEST, width))
    ]
    model = library.EncoderDecoder(config, *tables)
    return Adapted(model, lambda model, s, t: model(s, t, encoder_padding_mask=s == pad_id)[0])


def torchscale_in_parts(source: int, target: int, pad_id: int) -> nn.Module:
    """The same model, but each part is handed its mask."""

    def call(model: Any, source: Tensor, target: Tensor) -> Tensor:
        memory = model.encoder(source, encoder_padding_mask=source == pad_id)
        return model.decoder(target, self_attn_padding_mask=target == pad_id, encoder_out=memory)[0]

    return Adapted(torchscale(source, target, pad_id).model, call)


def sockeye(source: int, target: int, pad_id: int) -> nn.Module:
    """It is given lengths, each with that of a part in front which it has none of here."""
    library, encoder = imported("sockeye.model"), imported("sockeye.encoder")
    rates = (0.1, 0.1, 0.1)
    order = ("fixed", "n", "dr")  # sinusoids; a norm before each sub-layer; behind it dropout and the residual
    stack = imported("sockeye.transformer").TransformerConfig(
        WIDTH, HEADS, INNER, "relu", LAYERS, *rates, *order, LONGEST, LONGEST, depth_key_value=WIDTH
    )
    tables = [encoder.EmbeddingConfig(size, WIDTH, 0.1) for size in (source, target)]
    config = library.ModelConfig(None, source, target, *tables, stack, stack, weight_tying_type="none")
    model = library.SockeyeModel(config).apply(library.initialize_parameters)

    def call(model: Any, source: Tensor, target: Tensor) -> Tensor:
        sizes = [nn.functional.pad(lengths(tokens, pad_id)[:, None], (0, 1)) for tokens in (source, target)]
        return model(source[..., None], sizes[0], target[..., None], sizes[1])["logits"]

    return Adapted(model, call)


def joeynmt(source: int, target: int, pad_id: int) -> nn.Module:
    """A model as its configuration files describe one; of the vocabularies it asks no more than their sizes."""
    special = {name: pad_id for name in ("pad_index", "bos_index", "eos_index", "sep_index", "unk_index")}
    sides = [
        mock.MagicMock(specials=[], lang_tags=[], __len__=lambda _, n=size: n, **special) for size in (source, target)
    ]
    side = {"type": "transformer", "hidden_size": WIDTH, "ff_size": INNER, "num_layers": LAYERS, "num_heads": HEADS}
    side |= {"dropout": 0.1, "layer_norm": "pre", "embeddings": {"embedding_dim": WIDTH, "scale": True}}
    with mock.patch("joeynmt.model.logger"):
        model = imported("joeynmt.model").build_model({"encoder": side, "decoder": side}, *sides)

    def call(model: Any, source: Tensor, target: Tensor) -> Tensor:
        masks = [(tokens != pad_id)[:, None] for tokens in (source, target)]
        return model._encode_decode(source, target, masks[0], masks[0].sum((1, 2)), masks[1])[0]

    return Adapted(model, call)


def opennmt(source: int, target: int, pad_id: int) -> nn.Module:
    """It is given lengths, and a source as wide as its longest sentence; it drops the last target token itself."""
    unused = ("spacy", "fasttext")  # to clean corpora
    models, modules = imported("onmt.models", *unused), imported("onmt.modules")
    tables = [modules.Embeddings(WIDTH, size, pad_id, position_encoding=True, dropout=0.1) for size in (source, target)]
    sizes = (LAYERS, WIDTH, HEADS, INNER)
    encoder = imported("onmt.encoders").TransformerEncoder(*sizes, 0.1, 0.1, tables[0], 0, 0)
    rest = (0, 0, False, False, 0, 0)
    decoder = imported("onmt.decoders").TransformerDecoder(*sizes, False, "scaled-dot", 0.1, 0.1, tables[1], *rest)
    model = models.NMTModel(encoder, decoder)
    model.generator = nn.Linear(WIDTH, target)
    for module in model.modules():  # its own program does this from outside
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()

    def call(model: Any, source: Tensor, target: Tensor) -> Tensor:
        number, longer = lengths(source, pad_id), torch.cat([target, target[:, -1:]], dim=1)
        return model.generator(model(source[:, : number.max(), None], longer[..., None], number)[0])

    return Adapted(model, call)


def labml(source: int, target: int, pad_id: int) -> nn.Module:
    """Tokens are (length, batch), masks (queries, keys, batch)."""
    models, heads = imported("labml_nn.transformers.models"), imported("labml_nn.transformers.mha").MultiHeadAttention
    feed = imported("labml_nn.transformers.feed_forward").FeedForward

    def layer(**cross: nn.Module) -> nn.Module:
        parts = {"self_attn": heads(HEADS, WIDTH), "feed_forward": feed(WIDTH, INNER), **cross}
        return models.TransformerLayer(d_model=WIDTH, dropout_prob=0.1, **parts)

    sides = models.Encoder(layer(), LAYERS), models.Decoder(layer(src_attn=heads(HEADS, WIDTH)), LAYERS)
    tables = [models.EmbeddingsWithPositionalEncoding(WIDTH, size) for size in (source, target)]
    model = models.EncoderDecoder(*sides, *tables, models.Generator(target, WIDTH))

    def call(model: Any, source: Tensor, target: Tensor) -> Tensor:
        causal = torch.ones(len(target), len(target), dtype=torch.bool, device=target.device).tril()[..., None]
        return model.generator(model(source, target, (source != pad_id)[None], causal & (target != pad_id)[None]))

    return sequence_first(Adapted(model, call))


MODELS: dict[str, tuple[str, Factory]] = {  # by what a reader may know it as: the package, and how it is built
    "torch.nn.Transformer": ("torch", AroundTorch),
    "BART": ("transformers", hub("Bart", **BART)),
    "Marian": ("transformers", hub("Marian", **BART)),
    "mBART": ("transformers", hub("MBart", **BART)),
    "T5": ("transformers", hub("T5", **T5)),
    "Switch Transformer": ("transformers", hub("SwitchTransformers", **T5, **EXPERTS)),
    "BERT to BERT": ("transformers", bert_to_bert),
    "ProphetNet": ("transformers", hub("ProphetNet", **PROPHET)),
    "XTransformer": ("x-transformers", x_transformers),
    "PerformerEncDec": ("performer-pytorch", performer),
    "torchscale": ("torchscale", torchscale),
    "torchscale, mask by mask": ("torchscale", torchscale_in_parts),
    "Sockeye": ("sockeye", sockeye),
    "JoeyNMT": ("joeynmt", joeynmt),
    "OpenNMT-py": ("OpenNMT-py", opennmt),
    "labml.ai": ("labml-nn", labml),
}
TRAINED = ("BART", "JoeyNMT", "OpenNMT-py", "PerformerEncDec", "Sockeye", "XTransformer", "labml.ai", "torchscale")


def examined(name: str) -> Report:
    """Check one of the models, with the two short trainings where they are affordable."""
    return check_transformer(MODELS[name][1], training=name in TRAINED)


def entry(package: str, version: str, report: Report) -> dict[str, Any]:
    """What the record says of a model: all but what passes."""
    told = [finding for finding in report.findings if finding.verdict != "pass"]
    keys = ("name", "verdict", "evidence", "follows_from")
    return {
        "package": package,
        "version": version.partition("+")[0],
        "torch": torch.__version__.partition("+")[0],
        "date": date.today().isoformat(),
        "seed": 0,
        "summary": report.summary,
        "findings": [{key: getattr(finding, key) for key in keys} for finding in told],
    }


def main() -> None:
    """Check all models whose packages are there, or those named on the command line, and keep what is found."""
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    for name in sys.argv[1:] or MODELS:
        package = MODELS[name][0]
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            print(f"{name}: left out, because {package} is not installed")
            continue
        record[name] = entry(package, version, examined(name))
        print(f"{name}: {record[name]['summary']}", flush=True)
        RECORD.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
