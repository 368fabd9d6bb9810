"""The library on a GPU, or on a pretended one: all tensors in their place, the CPU's numbers, and few waits."""

import copy
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from pretended import Gpu
from reference import PAD, Projection, equal, padded_batch, randomise, small_config, small_model
from small import refused
from torch import Tensor

from transformer_lib.cache import KeyValueCache
from transformer_lib.checks import check_multi_head_attention, check_transformer
from transformer_lib.data import ParallelCorpus, Tokenizer, encode_pairs, toy_corpus
from transformer_lib.decoding import beam_search, greedy_decode, sample_decode
from transformer_lib.engine import load
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.multi_head import MultiHeadAttention
from transformer_lib.precision import chosen_dtype, loss_scaler, mixed_precision
from transformer_lib.recipes import PRESETS, preset_for, train_translator
from transformer_lib.training import TrainingConfig, train
from transformer_lib.translation import Translator
from transformer_lib.variants import DecoderOnly, EncoderOnly, ModernDecoderOnly, mask_tokens

BOS, EOS = 1, 2
TOKENS = {"bos_id": BOS, "eos_id": EOS}
PAIRS = [([3 + i, 4 + i, 5, EOS][i % 3 :], [BOS, *range(3, 5 + i % 4), EOS]) for i in range(7)]
SHALLOW = {"num_encoder_layers": 1, "num_decoder_layers": 1, "norm_first": True}


def untrained():
    tokenizer = Tokenizer.train(["a dog runs", "ein Hund"], 270)
    sizes = {"source_vocab_size": tokenizer.vocab_size, "target_vocab_size": tokenizer.vocab_size}
    return Transformer(small_config(**SHALLOW, **sizes, pad_id=tokenizer.pad_id)), tokenizer


WAITS = {  # how often host and GPU wait for each other, at most: the host reads from the GPU, the host writes to it
    **dict.fromkeys(("a step", "a step in float16", "a further batch of a step"), (0, 0)),  # but a look every ten steps
    "a token, greedily": (2, 0), "a token, with a beam": (1, 0), "a token, drawn": (2, 1),
}  # fmt: skip


@pytest.fixture
def gpu(monkeypatch):
    pretended = not torch.cuda.is_available()
    if pretended:
        answers = dict.fromkeys(("is_available", "is_bf16_supported"), True) | {"is_current_stream_capturing": False}
        for name, answer in (answers | dict.fromkeys(("_lazy_init", "get_rng_state", "set_rng_state"))).items():
            monkeypatch.setattr(torch.cuda, name, lambda *arguments, answer=answer: answer)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (8, 0))
        monkeypatch.setattr(Tensor, "pin_memory", lambda tensor: tensor)
    torch.__future__.set_swap_module_params_on_conversion(pretended)  # as the class of the parameters changes
    torch._C._set_only_lift_cpu_tensors(pretended)  # so that we see how `torch.tensor(…, device=…)` gets there
    try:
        with Gpu(pretended) as mode:
            yield mode
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
        torch.backends.cuda.enable_cudnn_sdp(True)
        torch._C._set_only_lift_cpu_tensors(False)


def both(gpu, model):
    return model, copy.deepcopy(model).to(gpu.device)


def test_devices_do_not_mix_but_for_a_single_number_and_waits_are_counted(gpu):
    x = torch.ones(3, 3, device=gpu.device)
    for mistake in (
        lambda: x @ torch.ones(3, 3), lambda: F.embedding(torch.tensor([0, 2]), x),
        lambda: torch.rand(3, device=x.device, generator=torch.Generator()),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match="device"):
            mistake()
    gpu.reads.clear()
    gpu.writes.clear()
    x = torch.arange(3.0).to(gpu.device) * torch.tensor(2.0)
    assert (x.sum().item(), bool(x[1] == 2), x.tolist(), len(x[x > 0])) == (6, True, [0, 2, 4], 2)
    assert (gpu.reads.total(), gpu.writes.total()) == (4, 1)


@pytest.mark.parametrize("options", [{}, {"accumulate": 2, "recompute": True, "average": 2}], ids=str)
def test_a_run_on_a_gpu_and_its_resumption_are_a_run_on_the_cpu(gpu, options, tmp_path):
    here, there, resumed = (small_model(**SHALLOW, tie_embeddings="all") for _ in range(3))
    there.load_state_dict(here.state_dict())
    logs = []
    for model, steps, device in ((here, 4, "cpu"), (there, 2, gpu.device), (resumed, 4, gpu.device)):
        config = TrainingConfig(batch_tokens=16, steps=steps, evaluate_every=2, warmup_steps=2, **options)
        out = tmp_path / torch.device(device).type
        logs.append(train(model, PAIRS, config, val_pairs=PAIRS, out=out, resume=True, device=device))
    assert not torch.backends.cuda.cudnn_sdp_enabled()  # it would plan attention anew for each shape
    for name in ("train_loss", "val_loss"):
        assert [row[name] for row in logs[2]] == pytest.approx([row[name] for row in logs[0]], abs=1e-9)
    for a, b in zip(here.parameters(), resumed.parameters(), strict=True):
        assert b.device == gpu.device
        equal(b.cpu(), a, 1e-8)


@pytest.mark.parametrize(("use_cache", "norm_first"), [(True, True), (False, False)])
def test_translations_are_those_of_the_cpu(gpu, use_cache, norm_first):
    here, there = both(gpu, small_model(norm_first=norm_first))
    source = torch.cat([padded_batch((7, 4, 5, 3, 6, 2, 7, 1)), torch.full((1, 7), PAD)])
    options = TOKENS | {"max_length": 6, "use_cache": use_cache}
    drawn = {"seed": 5, "temperature": 2.0, "top_k": 9, "top_p": 0.9}
    for decode, more in ((greedy_decode, {}), (sample_decode, drawn)):
        assert decode(there, source.to(gpu.device), **options, **more) == decode(here, source, **options, **more)
    a, b = beam_search(here, source, **options), beam_search(there, source.to(gpu.device), **options)
    assert [[best.tokens for best in beam] for beam in a] == [[best.tokens for best in beam] for beam in b]


def test_several_tokens_at_once_after_a_cache(gpu):
    source, target, found = padded_batch(), padded_batch((9, 9, 9)), []
    for model, device in zip(both(gpu, small_model()), ("cpu", gpu.device), strict=True):
        memory, cache = model.encode(source.to(device)), KeyValueCache(2)
        found.append([model.decode(part, memory, cache=cache).cpu() for part in target.to(device).split([4, 5], dim=1)])
    torch.testing.assert_close(*found, rtol=0, atol=1e-12)


def test_a_translator_and_where_it_looks(gpu):
    tokenizer = Tokenizer.train(["a dog runs", "ein Hund läuft"], 270)
    config = small_config(source_vocab_size=tokenizer.vocab_size, target_vocab_size=tokenizer.vocab_size, max_len=12)
    here = Translator(randomise(Transformer(config)).double(), tokenizer)
    there = Translator(copy.deepcopy(here.model), tokenizer, device=gpu.device)
    sentences = ["a dog", "", "a dog runs"]
    assert there.translate(sentences) == here.translate(sentences)
    for translation in (None, "ein Hund"):
        a, b = (translator.attention("a dog runs", translation) for translator in (here, there))
        assert (b.source, b.target, b.weights.device.type) == (a.source, a.target, "cpu")
        equal(b.weights, a.weights, 1e-12)


def test_what_lies_on_a_gpu_is_checked_on_the_cpu(gpu):
    def factory(device, *vocabulary):
        return Transformer(TransformerConfig(*vocabulary, **SHALLOW, d_model=8, num_heads=2, d_ff=8)).to(device)

    only = ["causality"]
    here, there = (check_transformer(partial(factory, where), only=only) for where in ("cpu", gpu.device))
    assert there == here
    assert here.holds
    layer = randomise(MultiHeadAttention(12, 3)).to(gpu.device)
    assert check_multi_head_attention(layer, 12, 3).holds
    assert layer.in_projection.weight.device == gpu.device


WRITERS = {"plain": DecoderOnly, "modern": ModernDecoderOnly, "2 groups": partial(ModernDecoderOnly, num_groups=2)}


def family(kind):
    return randomise(kind(small_config(d_model=16, num_heads=4, norm_first=True)), 0.3).double()


@pytest.mark.parametrize("kind", [EncoderOnly, *WRITERS.values()], ids=["encoder", *WRITERS])
def test_logits_and_gradients_of_each_family(gpu, kind):
    found = []
    for model, tokens in zip(both(gpu, family(kind)), both(gpu, padded_batch()), strict=True):
        logits = model(tokens)
        F.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
        vectors = [model.sentence_vector(tokens)] if kind is EncoderOnly else []
        found.append([x.cpu() for x in (logits, *vectors, *(parameter.grad for parameter in model.parameters()))])
    for a, b in zip(*found, strict=True):
        equal(b, a, 1e-12)


@pytest.mark.parametrize("kind", WRITERS.values(), ids=WRITERS)
def test_a_text_is_that_of_the_cpu_drawn_or_not(gpu, kind):
    for seed, use_cache in ((None, False), (3, True)):
        asked = zip(both(gpu, family(kind)), both(gpu, torch.tensor([[3, 4], [5, 6]])), strict=True)
        texts = [model.generate(x, 9, seed=seed, eos_id=EOS, use_cache=use_cache) for model, x in asked]
        assert texts[1].device == gpu.device
        assert texts[1].tolist() == texts[0].tolist()


def test_tokens_may_be_hidden_by_a_generator_of_any_device(gpu):
    options = {"mask_id": 12, "pad_id": PAD, "vocab_size": 13}
    for generator in (partial(torch.Generator().manual_seed, 1), partial(gpu.generator, 1)):
        a, b = (mask_tokens(x, generator=generator(), **options) for x in both(gpu, padded_batch((40, 30))))
        assert b[0].device == b[1].device == gpu.device
        assert [x.tolist() for x in a] == [x.tolist() for x in b]


def actions(gpu):
    model = small_model(**SHALLOW)
    with torch.no_grad():
        model.decoder.norm.bias[0], model.output_projection.weight[:, 0] = 99, 0
        model.output_projection.weight[EOS, 0] = -1
    learner, model = copy.deepcopy(model), model.to(gpu.device)
    source = padded_batch().to(gpu.device)

    def learn(steps, accumulate, precision="auto"):
        config = TrainingConfig(batch_tokens=16, steps=steps, accumulate=accumulate, precision=precision)
        train(copy.deepcopy(learner), PAIRS, config, device=gpu.device)

    return {
        "a step": lambda times: learn(times, 1),
        "a step in float16": lambda times: learn(times, 1, "fp16"),
        "a further batch of a step": lambda times: learn(1, times),
        "a token, greedily": lambda times: greedy_decode(model, source, **TOKENS, max_length=times),
        "a token, with a beam": lambda times: beam_search(model, source, **TOKENS, max_length=times),
        "a token, drawn": lambda times: sample_decode(model, source, **TOKENS, max_length=times, seed=0),
    }


@pytest.mark.parametrize("name", WAITS)
def test_waits(gpu, name):
    action, counts = actions(gpu)[name], []
    for times in (4, 10):
        gpu.reads.clear()
        gpu.writes.clear()
        action(times)
        counts.append((gpu.reads.copy(), gpu.writes.copy()))
    for few, many, bound in zip(*counts, WAITS[name], strict=True):
        assert (many - few).total() <= 6 * bound, many - few


@pytest.mark.parametrize(("capability", "dtype"), [
    ((6, 0), torch.float16), ((6, 1), torch.float32), ((7, 5), torch.float16), ((8, 0), torch.bfloat16),
])  # fmt: skip
def test_a_gpu_computes_in_what_it_is_fast_at(capability, dtype, gpu, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: capability)
    assert chosen_dtype(gpu.device) is chosen_dtype("cuda") is dtype
    assert loss_scaler(gpu.device).is_enabled() == (dtype is torch.float16)
    assert (chosen_dtype("cpu"), chosen_dtype(gpu.device, "fp32")) == (torch.float32, torch.float32)
    for block in (mixed_precision(gpu.device), Translator(*untrained(), device=gpu.device).search.precision):
        assert (block.device, block._enabled) == ("cuda", dtype is not torch.float32)
        assert block.fast_dtype == dtype or not block._enabled


@pytest.mark.parametrize(("precision", "capability"), [("bf16", None), ("bf16", (7, 5)), ("fp16", (6, 1))])
def test_who_asks_for_numbers_that_a_processor_emulates_is_told(precision, capability, gpu, monkeypatch, caplog):
    device = gpu.device if capability else "cpu"
    for fast in (True, False):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_, fast=fast: (9, 0) if fast else capability)
        for name in ("bf16", "fp16"):
            monkeypatch.setattr(torch.ops.mkldnn, f"_is_mkldnn_{name}_supported", lambda fast=fast: fast)
        for asked in ("auto", precision):  # what the library chooses is fast
            caplog.clear()
            model, tokenizer = untrained()
            train(model, PAIRS, TrainingConfig(batch_tokens=16, steps=1, precision=asked), device=device)
            Translator(model, tokenizer, device=device, precision=asked)
            said = [record.getMessage() for record in caplog.records]
            assert len(said) == (0 if fast or asked == "auto" else 2)
            assert all(f"no instructions for {precision} and emulates them" in line for line in said)


ENTRANCES = {  # of a device, and a folder with a translator in it
    "train": lambda device, _: train(small_model(), PAIRS, TrainingConfig(steps=1), device=device),
    "train_translator": lambda device, folder: train_translator(
        *[ParallelCorpus(["a"], ["b"])] * 2, preset_for("tiny", "cpu", steps=1), folder / "run", device=device),
    "Translator": lambda device, _: Translator(*untrained(), device=device),
    "from_pretrained": lambda device, folder: Translator.from_pretrained(folder / "model", device=device),
    "load": lambda device, folder: load(folder / "model", device=device),
    "an exported one": lambda device, folder: load(folder, device=device),
}  # fmt: skip


@pytest.mark.bad_input
@pytest.mark.parametrize("entrance", ENTRANCES.values(), ids=ENTRANCES)
def test_other_devices_and_a_gpu_that_is_not_there_are_refused_in_one_sentence(entrance, tmp_path, monkeypatch):
    Translator(*untrained()).save(tmp_path / "model")
    for device in ("mps:0", "CPU", torch.device("mps"), None):
        refused([f"got the device {device}; expected cpu or cuda"], entrance, device, tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    refused(["got the device cuda:1, but torch finds no GPU"], entrance, "cuda:1", tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    refused(["got the device cuda:2, but torch finds 2 GPUs"], entrance, "cuda:2", tmp_path)
    assert not (tmp_path / "run").exists()


def test_on_a_gpu_a_step_of_the_preset_is_one_batch_of_as_many_tokens():
    plain = PRESETS["small"]["training"]
    assert (plain["batch_tokens"], plain["accumulate"]) == (4096, 2)
    for device in ("cuda:1", torch.device("cuda")):
        assert preset_for("small", device)["training"] == plain | {"batch_tokens": 8192, "accumulate": 1}
        for own in ({"batch_tokens": 2048}, {"accumulate": 4}):
            assert preset_for("small", device, **own)["training"] == plain | own
    assert preset_for("small", "cpu", seed=3)["training"] == plain | {"seed": 3}
    assert preset_for("tiny", "cuda") == PRESETS["tiny"]


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize(("steps", "bound"), [(25, 4.5), pytest.param(600, 1.0, marks=pytest.mark.long)])
def test_the_toy_corpus_is_learnt_in_half_precision(precision, steps, bound):
    """What a GPU does, by the CPU's kernels. From ln 300 = 5.7 nats a token, which is guessing, to some 3.8 and 0.6."""
    corpus, val_corpus, seen = toy_corpus(size=10 * steps), toy_corpus("val", size=100), set()
    tokenizer = Tokenizer.train(corpus.source + corpus.target, 300)
    pairs, val_pairs = (encode_pairs(these, tokenizer, max_len=64)[0] for these in (corpus, val_corpus))
    sizes = {"d_model": 64, "num_heads": 4, "d_ff": 128, "dropout": 0.0, "max_len": 64, "tie_embeddings": "all"}
    model = Transformer(TransformerConfig(300, 300, tokenizer.pad_id, **SHALLOW, **sizes))
    model.output_projection.__class__ = Projection
    model.output_projection.register_forward_hook(lambda module, _, logits: seen.add((module.training, logits.dtype)))
    config = TrainingConfig(batch_tokens=512, peak_lr=5e-3, warmup_steps=20, steps=steps, precision=precision)
    assert train(model, pairs, config, val_pairs=val_pairs)[-1]["val_loss"] < bound
    Translator(model, tokenizer, precision=precision).translate(["a dog"], beam_size=1)
    assert seen == {(training, chosen_dtype("cpu", precision)) for training in (True, False)}
