"""How `check` calls each public model of repositories.json: a factory for each, small, with its imports inside."""

import sys
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace

import torch

from transformer_lib.checks import Adapted

TINY = {"n_layer": 2, "n_head": 4, "n_embd": 32}


# --- what several share ----------------------------------------------------------------------------------------------


def first(model, *inputs):
    """The logits of a tuple."""
    return model(*inputs)[0]


def look_ahead(target):
    return torch.ones(target.size(1), target.size(1), dtype=torch.bool, device=target.device).tril()


def both_masks(source, target, pad):
    """Who may see whom: (batch, 1, source length), and (batch, target length, target length)."""
    return (source != pad)[:, None], (target != pad)[:, None] & look_ahead(target)


def stages(model, source, target, pad):
    """An encode, a decode and a project, with masks over heads."""
    mask, seen = (mask[:, None] for mask in both_masks(source, target, pad))
    return model.project(model.decode(model.encode(source, mask), mask, target, seen))


def masked(model, source, target, pad):
    return model(source, target, *both_masks(source, target, pad))


def with_targets(model, tokens):
    """Logits at every position, which are only made if targets are given."""
    out = model(tokens, tokens.contiguous())
    return out[0] if isinstance(out, tuple) else out


def its_loss(model, tokens, labels):
    """A loss that ignores -1 where ours ignores -100."""
    return model(tokens, labels.masked_fill(labels == -100, -1))[1]


def sampled_of_one(model, tokens, steps):
    """A generate that samples, of the first token alone."""
    return model.generate(tokens, steps, top_k=1)


def from_position(model, new, cache=None):
    """A model that keeps its cache itself and is told where new tokens begin."""
    start = cache or 0
    return model(new, start), start + new.size(1)


def config(source, target=None, **options):
    return SimpleNamespace(vocab_size=source, **options)


# --- encoder-decoders ------------------------------------------------------------------------------------------------


def hkproj_transformer(source, target, pad):
    from model import build_transformer

    return Adapted(build_transformer(source, target, 64, 64, d_model=32, N=2, h=4, d_ff=64), partial(stages, pad=pad))


def msmrexe(source, target, pad):
    from src.model import build_transformer

    return Adapted(build_transformer(source, target, 64, 64, d_model=32, N=2, h=4, d_ff=64), partial(stages, pad=pad))


def samlynn(source, target, pad):
    from Models import Transformer

    return Adapted(Transformer(source, target, 32, 2, 4, 0.1), partial(masked, pad=pad))


def tunz(source, target, pad):
    from model.transformer import Transformer
    from utils import utils

    utils.create_trg_self_mask = lambda length, device=None: ~look_ahead(torch.empty(1, length, device=device))[None]

    def call(model, source, target):  # it shifts the target itself
        return model(source, torch.cat([target, target[:, -1:]], 1))[:, 1:]

    options = {"share_target_embedding": False, "src_pad_idx": pad, "trg_pad_idx": pad}
    return Adapted(Transformer(source, target, 2, 32, 64, **options), call)


def aladdin(source, target, pad):
    from transformer_from_scratch import Transformer

    return Transformer(source, target, pad, pad, embed_size=32, num_layers=2, heads=4, dropout=0.1)


def minqukanq(source, target, pad):
    from models.transformer import Transformer

    return Transformer(source, target, pad, pad, embed_size=32, num_layers=2, heads=4, dropout=0.1)


def nerdimite(source, target, pad):
    from transformer import Transformer

    options = {"embed_size": 32, "num_layers": 2, "heads": 4, "dropout": 0.1, "device": "cpu"}
    return Transformer(source, target, pad, pad, **options)


def codeemporium(source, target, pad):
    from transformer import Transformer

    names = [{chr(200 + i): i for i in range(size)} for size in (source, target)]
    model = Transformer(32, 64, 4, 0.1, 2, 64, target, *names, "", "", chr(200 + pad))

    def call(model, *inputs):
        texts = [["".join(chr(200 + i) for i in row) for row in tokens.tolist()] for tokens in inputs]
        whole = [torch.nn.functional.pad(tokens, (0, 64 - tokens.size(1)), value=pad) for tokens in inputs]
        mask, seen = both_masks(*whole, pad)
        low = [torch.where(m, 0.0, -1e9) for m in (mask, seen, mask)]
        return model(*texts, *low)[:, : inputs[1].size(1)]

    return Adapted(model, call)


def jsbaan(source, target, pad):
    from transformer import Transformer

    def call(model, source, target):
        mask = source != pad
        return model.decoder(target, model.encoder(source, mask), mask, look_ahead(target))

    return Adapted(Transformer(32, 64, 4, 2, 64, target, pad, 1, 0.1, True), call)


def dreamgonfly(source, target, pad):
    import models
    from utils.pad import pad_masking, subsequent_masking

    models.subsequent_masking = lambda x: subsequent_masking(x).bool()
    sizes = {"d_model": 32, "layers_count": 2, "heads_count": 4, "d_ff": 64, "dropout_prob": 0.1}
    model = models.build_model(sizes | {"positional_encoding": True}, source, target)

    def extend(model, source, new, cache=None):
        state = cache or model.decoder.init_decoder_state()
        memory = model.encoder(source, pad_masking(source, source.size(1)))
        outputs = []
        for one in new.split(1, 1):
            logits, state = model.decoder(one, memory, pad_masking(source, 1), state=state)
            outputs.append(logits)
        return torch.cat(outputs, 1), state

    return Adapted(model, lambda model, source, target: model(source, target), extend=extend)


def datacamp(source, target, pad):
    text = Path("transformer_tutorial.py").read_text(encoding="utf-8")
    names = {}
    exec(text.partition("src_vocab_size =")[0], names)  # what follows trains
    return names["Transformer"](source, target, 32, 4, 2, 64, 64, 0.1)


def meysam(source, target, pad):
    from src.transformer import Transformer

    return Transformer(source, target, 32, 4, 2, 64, 64, 0.1)


def nabeelshan(source, target, pad):
    from transformer import Transformer

    return Transformer(target, 32, 4, 2, 64, 0.1, 64, pad)


def pabloreyes(source, target, pad):
    from model.architecture.transformer_masks import combine_decoder_masks, make_look_ahead_mask, make_padding_mask
    from model.transformer import Transformer

    def call(model, source, target):
        seen = combine_decoder_masks(target, make_look_ahead_mask(target.size(1), target.device), pad)
        mask = make_padding_mask(source, pad)
        return model(source, target, mask, seen, mask)[0]

    return Adapted(Transformer(2, 32, 4, 64, source, target, 64, 64), call)


def dodoseung(source, target, pad):
    from transformer import Transformer

    return Transformer(2, 2, 32, 4, 64, 0.1, pad, pad, source, target)


def hyunwoongko(source, target, pad):
    from models.model.transformer import Transformer

    return Transformer(pad, pad, 1, source, target, 32, 4, 64, 64, 2, 0.1, "cpu")


def jadore801120(source, target, pad):
    from transformer.Models import Transformer

    sizes = {"d_word_vec": 32, "d_model": 32, "d_inner": 64, "n_layers": 2, "n_head": 4, "d_k": 8, "d_v": 8}
    return Adapted(
        Transformer(source, target, pad, pad, emb_src_trg_weight_sharing=False, **sizes),
        lambda model, source, target: model(source, target).view(*target.shape, -1),
    )


def tanjeffreyz(source, target, pad):
    from modules import Transformer

    return Transformer(32, source, target, pad, pad, num_heads=4, num_layers=2)


def takah29(source, target, pad):
    from libs.transformer import Transformer

    return Adapted(
        Transformer(source, target, 32, 64, 2, 2, 4),
        lambda model, source, target: model(source, target, source == pad, target == pad),
    )


def mdambski(source, target, pad):
    from model.main import make_model

    def call(model, source, target):
        return model.generator(masked(model, source, target, pad))

    return Adapted(make_model(source, target, 2, 32, 64, 4), call)


def p3n9w31(source, target, pad):
    from AttModel import AttModel

    sizes = {"hidden_units": 32, "num_blocks": 2, "num_heads": 4, "maxlen": 65, "dropout_rate": 0.1, "sinusoid": False}

    def call(model, source, target):  # it shifts the target itself, behind a 2
        model(source, torch.cat([target, target[:, -1:]], 1))
        return model.logits[:, 1:]

    return Adapted(AttModel(SimpleNamespace(**sizes), source, target), call)


def devjhawar(source, target, pad):
    from src.masks import create_decoder_mask, create_padding_mask
    from src.transformer import Transformer

    def call(model, source, target):
        return model(source, target, create_padding_mask(source, pad), create_decoder_mask(target, pad))

    return Adapted(Transformer(source, target, 32, 4, 2, 64, 64), call)


def elith(source, target, pad):
    from llm_from_scratch.transformer.transformer import Transformer

    def call(model, source, target):  # True = hidden, for all queries
        hidden, unseen = (~mask for mask in both_masks(source, target, pad))
        n, m = source.size(1), target.size(1)
        return model(source, target, hidden.expand(-1, n, -1), unseen, hidden.expand(-1, m, -1))

    def generate(model, source, target, steps):  # one sentence at a time, from one token on, twenty more
        each = (model.inference(x[x != pad][None], y[0].item(), -1) for x, y in zip(source, target))
        return torch.cat([*each])[:, : steps + 1]

    return Adapted(Transformer(source, target, 64, 32, 2, 4, 8, 8, 64), call, generate=generate)


def conceptofmind(source, target, pad, masked=False):
    from t5_pytorch.t5_pytorch import T5

    both = {"num_tokens": (source, target), "depth": (2, 2), "heads": (4, 4), "dim_head": (8, 8), "mlp_mult": (2, 2)}
    sizes = {f"{side}_{name}": each for name, pair in both.items() for side, each in zip(("enc", "dec"), pair)}
    with_mask = lambda model, source, target: model(source, target, context_mask=source != pad)  # noqa: E731
    model = T5(dim=32, dropout=0.1, **sizes)
    return Adapted(model, with_mask) if masked else model


conceptofmind_masked = partial(conceptofmind, masked=True)


def henok(source, target, pad):
    from transformer.components.decoding import beam_search, greedy_search
    from transformer.config import DataConfig, ModelConfig
    from transformer.transformer import Transformer

    sizes = {"src_vocab_size": source, "tgt_vocab_size": target, "d_model": 32, "num_heads": 4, "d_ff": 64}
    sizes |= {"num_encoder_layers": 2, "num_decoder_layers": 2, "dropout": 0.1, "src_max_len": 64, "tgt_max_len": 64}
    data = dict.fromkeys(("dataset_name", "subset", "lang_src", "lang_tgt"), "") | {"validation_fraction": 0.1}

    def call(model, source, target):
        mask, seen = (mask[:, None] for mask in both_masks(source, target, pad))
        return model(source, target, mask, seen, mask)

    def search(how, model, source, target, steps):  # one sentence at a time, from one token on, without an end
        found = []
        for x, y in zip(source, target):
            words = SimpleNamespace(token_to_id={"[SOS]": y[0].item(), "[EOS]": -1}.get)
            found += how(model, x[None], (x != pad)[None, None, None], words, steps + 1)
        return torch.tensor(found)

    def beams(model, source, target, steps):
        tokens = search(beam_search, model, source, target, steps)
        log_p = call(model, source, tokens[:, :-1]).log_softmax(-1)
        return tokens, log_p.gather(2, tokens[:, 1:, None]).sum((1, 2))

    model = Transformer(ModelConfig(**sizes), DataConfig(**data, tokenization_strategy="separate"))
    return Adapted(model, call, generate=partial(search, greedy_search), beams=beams)


# --- decoders --------------------------------------------------------------------------------------------------------


def nanogpt(vocab, pad):
    from model import GPT, GPTConfig

    return Adapted(GPT(GPTConfig(64, vocab, **TINY, dropout=0.1)), with_targets, loss=its_loss, generate=sampled_of_one)


def llama2c(vocab, pad):
    from model import ModelArgs, Transformer

    def loss(model, tokens, labels):
        model(tokens, labels.masked_fill(labels == -100, -1))
        return model.last_loss

    def generate(model, tokens, steps):
        return model.generate(tokens, steps, temperature=0.0)

    args = ModelArgs(32, 2, 4, 2, vocab, multiple_of=32, max_seq_len=64, dropout=0.1)
    return Adapted(Transformer(args), with_targets, loss=loss, generate=generate)


def mingpt(vocab, pad):
    from mingpt.model import GPT

    sizes = GPT.get_default_config()
    sizes.merge_from_dict(TINY | {"model_type": None, "vocab_size": vocab, "block_size": 64})
    generate = lambda model, tokens, steps: model.generate(tokens, steps)  # noqa: E731
    return Adapted(GPT(sizes), first, loss=its_loss, generate=generate)


def ng_lecture(vocab, pad):
    text = Path("gpt.py").read_text(encoding="utf-8")
    start, end = text.index("class Head"), text.index("model = GPT")  # the rest reads a file and trains
    names = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional, "device": "cpu", "dropout": 0.1}
    names |= TINY | {"block_size": 64, "vocab_size": vocab}
    exec(text[start:end], names)
    return Adapted(names["GPTLanguageModel"](), first)


def rasbt(module, **options):
    """One of the book's models with a cache: the module, and what its configuration has besides."""

    def build(vocab, pad):
        code = __import__(module)
        sizes = {"vocab_size": vocab, "context_length": 64, "emb_dim": 32, "n_heads": 4, "n_layers": 2}

        def extend(model, new, cache=None):
            if cache is None:
                model.reset_kv_cache()
            return model(new, use_cache=True), True

        def generate(model, tokens, steps):
            return code.generate_text_simple_cached(model, tokens, steps)

        model = code.GPTModel(sizes | {"drop_rate": 0.1, "qkv_bias": False} | options)
        call = lambda model, tokens: model(tokens)  # noqa: E731
        return Adapted(model, call, extend=extend, generate=generate, one_cache=True)

    return build


rasbt_kv = rasbt("gpt_with_kv_cache")
rasbt_kv_opt = rasbt("gpt_with_kv_cache_optimized", kv_window_size=16)
rasbt_mla = rasbt("gpt_with_kv_mla", latent_dim=16)
rasbt_swa = rasbt("gpt_with_kv_swa", sliding_window_size=8, sliding_window_stride=1)


def hkproj_llama(vocab, pad):
    import inference
    from model import ModelArgs, Transformer

    args = ModelArgs(32, 2, 4, 2, vocab, 32, max_batch_size=128, max_seq_len=64, device="cpu")

    def extend(model, new, cache=None):
        start = cache or 0
        steps = [model(one, start + i) for i, one in enumerate(new.split(1, 1))]
        return torch.cat(steps, 1), start + new.size(1)

    def generate(model, tokens, steps):
        inference.device, inference.tqdm = "cpu", lambda numbers, **_: numbers
        names = {"pad_id": lambda: -1, "eos_id": None, "encode": lambda x, **_: x, "decode": lambda x: x}
        whole = inference.LLaMA(model, SimpleNamespace(**names), args)
        return torch.tensor(whole.text_completion(tokens.tolist(), temperature=0, max_gen_len=steps)[0])

    call = lambda model, tokens: extend(model, tokens)[0]  # noqa: E731
    return Adapted(Transformer(args), call, extend=extend, generate=generate, one_cache=True)


def gptfast(vocab, pad):
    from model import ModelArgs, Transformer

    def extend(model, new, cache=None):
        if cache is None:
            model.max_batch_size = -1
            model.setup_caches(len(new), 64)
        start = cache or 0
        return model(new, torch.arange(start, start + new.size(1), device=new.device)), start + new.size(1)

    args = ModelArgs(64, vocab, 2, 4, 32, 64, 2)
    return Adapted(Transformer(args), lambda model, tokens: extend(model, tokens)[0], extend=extend, one_cache=True)


def litgpt(vocab, pad, window=None):
    from litgpt.config import Config
    from litgpt.model import GPT

    def extend(model, new, cache=None):
        if cache is None:
            model.set_kv_cache(len(new), device=new.device, dtype=model.lm_head.weight.dtype)
        start = cache or 0
        return model(new, torch.arange(start, start + new.size(1), device=new.device)), start + new.size(1)

    sizes = Config(block_size=64, padded_vocab_size=vocab, rotary_percentage=1.0, sliding_window_size=window, **TINY)
    return Adapted(GPT(sizes), lambda model, tokens: model(tokens), extend=extend, one_cache=True)


litgpt_window = partial(litgpt, window=8)


def minimind(vocab, pad):
    from model.model_minimind import MiniMindConfig, MiniMindForCausalLM

    def call(model, tokens, mask=None):
        return model(tokens, attention_mask=mask).logits

    def extend(model, new, cache=None, mask=None):
        answer = model(new, attention_mask=mask, past_key_values=cache, use_cache=True)
        return answer.logits, answer.past_key_values

    def crop(model, cache, length):
        return [(keys[:, :length], values[:, :length]) for keys, values in cache]

    def generate(model, tokens, steps, mask=None):
        options = {"do_sample": False, "top_k": 0, "top_p": 1.0, "eos_token_id": None}
        return model.generate(tokens, attention_mask=mask, max_new_tokens=steps, **options).clone()

    def loss(model, tokens, labels):
        return model(tokens, labels=labels).loss

    sizes = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
    model = MiniMindForCausalLM(MiniMindConfig(32, 2, vocab_size=vocab, **sizes))
    return Adapted(model, call, extend=extend, crop=crop, generate=generate, loss=loss)


def nanochat(vocab, pad):
    sys.modules["rustbpe"] = ModuleType("rustbpe")  # for its tokenizer
    from nanochat.engine import KVCache
    from nanochat.gpt import GPT, GPTConfig

    model = GPT(GPTConfig(64, vocab, 2, 4, 2, 32, "L"))
    model.init_weights()

    def extend(model, new, cache=None):
        if cache is None:
            cache = KVCache(len(new), 2, 64, 8, 2, new.device, model.lm_head.weight.dtype)
        return model(new, kv_cache=cache), cache

    def loss(model, tokens, labels):
        return model(tokens, labels.masked_fill(labels == -100, -1))

    return Adapted(model, lambda model, tokens: model(tokens), extend=extend, loss=loss)


def mamba_minimal(vocab, pad):
    from model import Mamba, ModelArgs

    return Adapted(Mamba(ModelArgs(32, 2, vocab, 8)), lambda model, tokens: model(tokens)[..., :vocab])


def pbloem(vocab, pad):
    sys.modules["torch.utils.tensorboard"] = ModuleType("tensorboard")
    sys.modules["torch.utils.tensorboard"].SummaryWriter = None
    from former import GTransformer

    return GTransformer(32, 4, 2, 64, vocab)


def palm(vocab, pad):
    from palm_rlhf_pytorch.palm import PaLM

    def generate(model, tokens, steps):
        length = tokens.size(1) + steps
        return model.generate(length, tokens, temperature=0.0, return_seq_without_prompt=False)

    return Adapted(
        PaLM(dim=32, num_tokens=vocab, depth=2, heads=4, dim_head=8), lambda model, x: model(x), generate=generate
    )


def xpertgpt(vocab, pad):
    from modeling_xpertgpt import XpertGPTModel, XpertGPTModelConfig

    return Adapted(XpertGPTModel(XpertGPTModelConfig(vocab, 64, 32, 32, 2, 4)), first)


def cyyueyang(vocab, pad):
    from src.config.LLaMAConfig import LLaMAConfig
    from src.model.llama import LLaMA

    def extend(model, new, cache=None):
        if cache is None:
            model.reset_kv_cache()
        start = cache or 0
        return model(new, start_pos=start, use_cache=True)[0], start + new.size(1)

    def generate(model, tokens, steps):
        return model.generate(tokens, steps, temperature=1.0, top_k=1, top_p=0.0)

    def loss(model, tokens, labels):
        return model(tokens, labels)[1]

    device = torch.device("cpu")
    sizes = LLaMAConfig(32, 64, 4, 2, 64, vocab_size=vocab, num_layers=2, batch_size=128, device=device)
    return Adapted(LLaMA(sizes), first, extend=extend, generate=generate, loss=loss, one_cache=True)


def minato(vocab, pad, **parts):
    from config import ModelArgs
    from model import Llama

    model = Llama(ModelArgs(32, 2, 4, 2, vocab, 32, max_batch_size=128, max_seq_len=64))
    return Adapted(model, lambda model, tokens: model(tokens, 0), **parts)


minato_cached = partial(minato, extend=from_position, one_cache=True)  # as for generation, above as for training


def trancefornow(vocab, pad):
    from model.model import Llama

    def extend(model, new, cache=None):
        if cache is None:
            model.setup_cache(len(new), 64)
        start = cache or 0
        return model(new, start, use_cache=True), start + new.size(1)

    return Adapted(Llama(vocab, 32, 2, 4, 64), lambda model, tokens: model(tokens), extend=extend, one_cache=True)


def tyh699(vocab, pad):
    from model import ModelArgs, Transformer

    def extend(model, new, cache=None):
        return model(new, cache[0][0].size(1) if cache else 0, cache)

    return Adapted(Transformer(ModelArgs(32, 2, 4, 2, vocab, 32, max_seq_len=64)), first, extend=extend)


def hyunjae_gpt(vocab, pad):
    from model import Config, GPTModel, generate

    sizes = Config()
    sizes.vocab_size, sizes.d_model, sizes.attn_heads, sizes.num_layers, sizes.ctx_len = vocab, 32, 4, 2, 64
    sizes.device = torch.device("cpu")
    return Adapted(
        GPTModel(sizes),
        lambda model, tokens: model(tokens),
        generate=lambda model, tokens, steps: generate(model, tokens, steps, 64),
    )


def atandra(vocab, pad):
    from src.model import GPT

    return GPT(vocab, 32, 4, 2, 64, 64)


def jorgevanco(vocab, pad):
    from src.model.GPTModel import GPTModel

    sizes = {"vocab_size": vocab, "emb_dim": 32, "context_length": 64, "n_heads": 4, "n_layers": 2}
    return GPTModel(sizes | {"drop_rate": 0.1, "qkv_bias": False})


def ayushsyntax(vocab, pad):
    from src.model import GPT

    return Adapted(GPT(vocab, 32, 2, 4, 64), first, loss=its_loss, generate=sampled_of_one)


def pyemma(vocab, pad):
    from model.gpt import GPT, generate_with_kv_cache

    sizes = {"vocab_size": vocab, "context_length": 64, "emb_dim": 32, "n_heads": 4, "n_layers": 2}

    def extend(model, new, cache=None):
        return model(new, use_cache=True, kv_caches=[None, None] if cache is None else [*cache])

    return Adapted(
        GPT(sizes | {"dropout": 0.1, "qkv_bias": False}),
        lambda model, tokens: model(tokens, kv_caches=[None, None])[0],
        extend=extend,
        generate=lambda model, tokens, steps: generate_with_kv_cache(model, tokens, steps, 64)[0],
    )


def fangpin(vocab, pad):
    from llm.transformer import Transformer

    def call(model, tokens, positions=None):
        return model(tokens, positions)

    return Adapted(Transformer(32, 4, 64, vocab, 2, 64), call)


def davemeeta(vocab, pad):
    from moe_transformer.config import ModelConfig
    from moe_transformer.models import MoEGPT

    sizes = ModelConfig(vocab, 32, 4, 2, 64, ffn_hidden_dim=64, expert_ffn_hidden_dim=32)
    return Adapted(MoEGPT(sizes), first, generate=sampled_of_one)


def stevebottos(vocab, pad, experts=None):
    from transformers_from_scratch.transformer import DecoderOnlyTransformer

    def extend(model, new, cache=None):
        layers, start = cache or ([None, None], 0)
        layers = [*layers]
        logits, start, _ = model(new, layers, start)
        return logits, (layers, start)

    model = DecoderOnlyTransformer(32, vocab, 2, 4, dropout=0.1, max_seq_len=64, n_experts=experts)
    generate = lambda model, tokens, steps: model.generate(tokens, steps)  # noqa: E731
    return Adapted(model, first, extend=extend, generate=generate)


stevebottos_moe = partial(stevebottos, experts=4)


def mjub(vocab, pad):
    from src.model import Transformer

    def generate(model, tokens, steps):
        for _ in range(steps):
            tokens = torch.cat([tokens, model.next_token(tokens, temperature=0.0)], 1)
        return tokens

    def loss(model, tokens, labels):
        return model(tokens, labels)[1]

    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}
    sizes |= {"num_hidden_layers": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "dropout": 0.1}
    model = Transformer(config(vocab, tie_word_embeddings=True, **sizes))
    return Adapted(model, lambda model, tokens: model(tokens), generate=generate, loss=loss)


def austin207(vocab, pad):
    from src.models.llama import MiniLlamaModel

    sizes = {"vocab_size": vocab, "d_model": 32, "n_heads": 4, "n_layers": 2, "d_ff": 64, "max_seq_len": 64}
    return MiniLlamaModel(sizes)  # called without a mask, as by train.py and inference.py


def qwen3(vocab, pad, turned="neox"):
    from qwen3_from_scratch.factory.config import ModelConfig
    from qwen3_from_scratch.inference.context import ModelContext, set_forward_context
    from qwen3_from_scratch.inference.kv_cache import SimpleKVCache
    from qwen3_from_scratch.models import attn, feedback, norm, rope, self_attn, transformer_block  # noqa: F401
    from qwen3_from_scratch.models.qwen3 import Qwen3

    def extend(model, new, cache=None, **told):
        kept, start = cache or (SimpleKVCache(), 0)
        end = start + new.size(1)
        places = torch.arange(start, end, device=new.device)[None]
        told = told or {"use_cache": True, "kv_cache": kept, "cache_position": start}
        set_forward_context(ModelContext(position_ids=places, **told))
        return model(new), (kept, end)

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    sizes |= {"head_dim": 8, "intermediate_size": 64, "max_position_embeddings": 64}
    sizes["pos_embed_params"] = {"rope_theta": 10000.0, "rope_type": turned}
    call = lambda model, tokens: extend(model, tokens, use_cache=False)[0]  # noqa: E731
    return Adapted(Qwen3(ModelConfig(vocab, **sizes)), call, extend=extend)


qwen3_normal = partial(qwen3, turned="normal")


def mrshibly(vocab, pad):
    from src.model.config import MiniGPTConfig
    from src.model.gpt import MiniGPT

    sizes = MiniGPTConfig.tiny()
    vars(sizes).update(vocab_size=vocab, d_model=32, n_heads=4, n_layers=2, seq_len=64, dropout=0.1)
    loss = lambda model, tokens, labels: model(tokens, labels)[1]  # noqa: E731
    return Adapted(MiniGPT(sizes), first, generate=sampled_of_one, loss=loss)


def h0rvex(vocab, pad):
    from transformer.models.gpt import GPTModel

    def extend(model, new, cache=None):
        start = cache[0][0].size(2) if cache else 0
        return model(new, past_kv_layers=cache, use_cache=True, position_offset=start)

    def reorder(model, cache, rows):
        return [(keys[rows], values[rows]) for keys, values in cache]

    def crop(model, cache, length):
        return [(keys[:, :, :length], values[:, :, :length]) for keys, values in cache]

    parts = {"extend": extend, "reorder": reorder, "crop": crop, "generate": sampled_of_one}
    return Adapted(GPTModel(vocab, 32, 4, 64, 2, 64), lambda model, tokens: model(tokens), **parts)


# --- encoders --------------------------------------------------------------------------------------------------------


def codertimo(vocab, pad):
    from bert_pytorch.model import BERT, BERTLM

    return Adapted(BERTLM(BERT(vocab, 32, 2, 4), vocab), lambda model, x: model(x, torch.ones_like(x))[1])


def pytorchic_bert(vocab, pad):
    sys.modules |= {name: ModuleType(name) for name in ("fire", "tensorboardX", "tokenization", "optim", "train")}
    sys.modules["tensorboardX"].SummaryWriter = None
    import models
    import pretrain

    def call(model, x):
        places = torch.arange(x.size(1), device=x.device).expand_as(x)
        return model(x, torch.zeros_like(x), x != pad, places)[0]

    return Adapted(pretrain.BertModel4Pretrain(models.Config(vocab, 32, 2, 4, 64, max_len=64)), call)


def uygarkurt(vocab, pad):
    from BERT import BERT

    model = torch.nn.ModuleList([BERT(vocab, 3, 12, 32, 2, 4, 0.1), torch.nn.Linear(32, vocab)])

    def call(parts, x):  # it takes sentences of one length only
        whole = torch.nn.functional.pad(x, (0, 12 - x.size(1)), value=pad)
        return parts[1](parts[0](whole, torch.zeros_like(whole)))[:, : x.size(1)]

    return Adapted(model, call)


def hyunjae_bert(vocab, pad):
    for name, folder in (("transformer_layers", "transformer layers"), ("bert_pretraining", "pretraining")):
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__path__ = [str(Path(folder).resolve())]  # the folders have other names than its imports
    from transformer_layers.encoder_layer import TransformerEncoderLayer

    sys.modules["transformer_layers"].TransformerEncoderLayer = TransformerEncoderLayer
    from bert_pretraining.bert_config import PreTrainingBertConfig
    from bert_pretraining.bert_pretraining_model import PreTrainingBertModel

    sizes = PreTrainingBertConfig("", vocab, 32, 64, 0.1, 0.1, 2, 4, 64)
    return Adapted(PreTrainingBertModel(sizes), lambda model, x: model(x, torch.ones_like(x), x != pad)[0])


def zolda93(vocab, pad):
    from model import BERT

    return Adapted(BERT(vocab, 64, 4, 32, 2), lambda model, x: model(x, torch.ones_like(x))[0])


def manyfacedgod(vocab, pad):
    from BERT.model.TrainableBERT import TrainableBERT

    sizes = {"vocab_size": vocab, "hidden_size": 32, "n_heads": 4, "num_layers": 2, "bottleneck_size": 64}
    sizes |= {"dropout_rate": 0.1, "attention_dropout_rate": 0.1, "eps_value": 1e-12, "max_sentence_length": 64}
    model = TrainableBERT(sizes | {"positional_learnt": True})
    for head in (model.nsp_l1, model.bert.pooler):  # for the next sentence
        head.requires_grad_(False)

    def call(model, x):
        mask = (x != pad).to(next(model.parameters()))
        return model({"sentences": x, "sentence_mask": mask})["lm_predictions"]

    return Adapted(model, call)
