# Generated from chapters/F_adapters.md: edit it there and `make export`, or here and `make sync`.

"""Models of Hugging Face's transformers, named by their configuration: built tiny, without a network, and examined."""

import copy
import importlib.util
import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from inspect import Parameter, Signature, isclass, signature
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from transformer_lib.checks import Finding, Report, check_transformer
from transformer_lib.checks.report import NotApplicable
from transformer_lib.checks.subject import Adapted, Factory
from transformer_lib.files import InputError, one_line

MOST = 3_000_000  # parameters
AUTO = {"encoder-decoder": "Seq2SeqLM", "encoder": "MaskedLM", "decoder": "CausalLM"}  # in this order
_NAMES = {  # any field of a configuration with such a name gets this number
    1: "n_group topk_group n_shared_experts num_shared_experts moe_num_shared_experts first_k_dense_replace "
    "mamba_n_groups n_groups mamba_ngroups n_langs indexer_kv_heads",
    2: "n_layer n_layers num_layers num_hidden_layers encoder_layers decoder_layers num_key_value_heads "
    "num_experts_per_tok moe_topk moe_k mamba_expand linear_num_key_heads type_vocab_size index_n_heads "
    "num_encoder_layers num_decoder_layers indexer_n_heads indexer_compress_ratio",
    4: "n_head n_heads num_heads num_attention_heads encoder_attention_heads decoder_attention_heads sliding_window "
    "attention_window window_size num_experts num_local_experts n_routed_experts moe_num_experts mamba_n_heads "
    "mamba_d_conv conv_kernel mamba_num_heads linear_num_value_heads n_mamba_heads mamba_dt_rank "
    "num_encoder_attention_heads num_decoder_attention_heads",
    6: "index_topk",
    8: "d_kv d_head dim_head head_dim qk_rope_head_dim qk_nope_head_dim v_head_dim state_size mamba_d_state "
    "mamba_chunk_size chunk_size ssm_state_size linear_key_head_dim linear_value_head_dim swa_head_dim "
    "global_head_dim index_head_dim hidden_size_per_layer_input indexer_head_dim indexer_budget",
    16: "q_lora_rank kv_lora_rank mamba_d_head mamba_head_dim bottleneck_size",
    32: "hidden_size d_model n_embd dim embed_dim n_embed emb_dim model_dim hidden_dim embedding_size dim_model "
    "word_embed_proj_dim moe_intermediate_size shared_expert_intermediate_size attention_hidden_size lru_width "
    "d_embed intra_bottleneck_size true_hidden_size project_dim expert_capacity",
    64: "intermediate_size ffn_dim encoder_ffn_dim decoder_ffn_dim d_ff n_inner ffn_hidden_size dff dim_ff "
    "feed_forward_size max_position_embeddings n_positions n_ctx max_seq_len max_sequence_length max_seq_length "
    "original_max_position_embeddings",
}
SIZES = {name: size for size, names in _NAMES.items() for name in names.split()}
SPREAD = {"initializer_range": 0.2, "init_std": 0.2}  # at the usual 0.02 much of a tiny model does nothing
_LATENT = {"head_dim": None, "num_key_value_heads": 4}
_INDEXED = _LATENT | {"index_n_heads": 16}
_MIXED = {"layer_types": ["linear_attention", "full_attention"]}
_WINDOWS = {"layer_types": ["sliding_attention", "full_attention"]}
_CHOSEN = {"layer_types": ["linear_attention", "indexed_attention"]}
_SHORT = {"layer_types": ["conv", "full_attention"]}
_INKLING = {"swa_num_attention_heads": 4, "swa_num_key_value_heads": 2, "sliding_window_size": 4, "rel_extent": 64}
_INKLING |= {"n_layers_per_attn_res_block": 2}
_EVERY_SECOND = {"attn_layer_period": 2, "attn_layer_offset": 1}
_ZAMBA = {"num_hidden_layers": 4, "layers_block_type": ["mamba", "hybrid"] * 2, "num_key_value_heads": 4}
EXCEPTIONS: dict[str, dict[str, Any]] = {  # by model types; None leaves a field as the configuration has it
    "axk1 deepseek_v2 deepseek_v3 glm4_moe_lite sarvam_mla youtu minicpm3": _LATENT,
    "axk2 deepseek_v32 glm_moe_dsa": _INDEXED,
    "hy_v4": {"index_n_heads": 16},
    "bailing_hybrid": {"num_key_value_heads": 4, "layer_group_size": 2, "num_mtp_layers": 0},
    "bamba": {"attn_layer_indices": [1], "head_dim": None},
    "codegen gptj": {"rotary_dim": 4},
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0, "clip_qkv": 8.0},
        "ffn_config": {"ffn_hidden_size": 64, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "dory": {"num_hidden_layers": 4, "n_input_layers": 1, "n_output_layers": 1},
    "dots3_note_text": {"num_key_value_heads": 4, "shared_experts_intermediate_size": 32, "head_dim": 16}
    | {"index_n_heads": 16},
    "falcon_h1": {"mamba_d_ssm": 64},
    "gemma3n_text": {"num_hidden_layers": 4, "num_kv_shared_layers": 2, "layer_types": _WINDOWS["layer_types"] * 2}
    | {"laurel_rank": 8, "activation_sparsity_pattern": [0.0] * 4},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"], "shared_intermediate_size": 32},
    "inkling2_text inkling2_loop_text": _INKLING,
    "jamba": _EVERY_SECOND,
    "kimi_linear": _MIXED
    | {"linear_head_dim": 8, "linear_num_heads": 4, "num_key_value_heads": 4, "mlp_layer_types": ["dense", "sparse"]},
    "lfm2 lfm3": _SHORT,
    "lfm2_moe": _SHORT | {"num_dense_layers": 1},
    "mamba2": {"num_heads": 4, "head_dim": 16},
    "nemotron_h": {"layers_block_type": ["mamba", "attention", "moe"], "num_hidden_layers": None}
    | {"moe_shared_expert_intermediate_size": 32},
    "qwen3_5_text qwen3_5_moe_text": _MIXED,
    "qwen3_next": _MIXED | {"mlp_only_layers": []},
    "qwen3_5 qwen3_5_moe": {"text_config": _MIXED},
    "qwen4_exp_text": _CHOSEN,
    "qwen4_exp": {"text_config": _CHOSEN},
    "recurrent_gemma": {"num_hidden_layers": 3},
    "reformer": {"axial_pos_shape": [8, 8], "axial_pos_embds_dim": [16, 16], "attn_layers": ["local", "lsh"]}
    | {"attention_head_size": 8, "lsh_attn_chunk_length": 8, "local_attn_chunk_length": 8, "num_buckets": 4},
    "xlstm": {"hidden_size": 64, "qk_dim_factor": 1.0},
    "zamba": _ZAMBA | _EVERY_SECOND | {"attention_head_dim": 16, "n_mamba_heads": 2, "attention_hidden_size": 64},
    "zamba2": _ZAMBA | {"adapter_rank": 8},
    "zaya": {"num_experts_per_tok": 1, "router_hidden_size": 16, "num_hidden_layers": 4},
    "roc_bert": {"pronunciation_embed_dim": 8, "pronunciation_vocab_size": 29, "shape_embed_dim": 8}
    | {"shape_vocab_size": 29},
    "xmod": {"default_language": "en_XX", "languages": ["en_XX"]},
    "esmc": {"num_key_value_heads": None},
    "neomme": {"head_dim": 16},
    "longcat_flash": {"expert_ffn_hidden_size": 32, "zero_expert_num": 1, "num_layers": 1, "num_key_value_heads": 4},
    "luke": {"entity_vocab_size": 10, "entity_emb_size": 8},
    "gemma2 gemma3_text cohere2 gpt_oss ministral olmo3 exaone4 modernbert-decoder": _WINDOWS,
    "gemma4_text gemma4_unified_text": _WINDOWS | {"initializer_range": 0.1},  # or some of its gates are shut: 0
    "llama4_text": {"layer_types": ["chunked_attention", "full_attention"], "attention_chunk_size": 4}
    | {"intermediate_size_mlp": 64},
    "funnel": {"block_sizes": [1, 1, 1], "num_decoder_layers": 1},
    "xlm": {"causal": True},
}
_ENDS = "eos_token_id suppress_tokens begin_suppress_tokens forced_eos_token_id forced_bos_token_id"
_BY_TYPE = {name: fields for names, fields in EXCEPTIONS.items() for name in names.split()}


def _transformers() -> Any:
    """The package, offline; an InputError says what to install."""
    if importlib.util.find_spec("transformers") is None:
        raise InputError("hf: needs the package transformers, which is not installed: pip install 'transformers>=5'")
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    import transformers

    if int(transformers.__version__.partition(".")[0]) < 5:
        raise InputError(f"expected transformers 5 or later; got {transformers.__version__}: upgrade it")
    return transformers


def _configuration(name: str) -> tuple[Any, dict[str, Any]]:
    """A class of configurations, and those fields of a directory's config.json that are no sizes."""
    library, path = _transformers(), Path(name, "config.json")
    if not path.parent.is_dir():
        kind = getattr(library, name, None)
        if not (isclass(kind) and issubclass(kind, library.PreTrainedConfig)):
            raise InputError(f"expected a configuration, such as LlamaConfig, or a directory; got {name}")
        return kind, {}
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        model_type = said.get("model_type")
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(f"cannot read {path} ({one_line(error)}): name a model's directory") from error
    if "auto_map" in said:
        raise InputError(f"{path} names code of its own (auto_map), which is not run: write a factory, and check that")
    if model_type not in library.CONFIG_MAPPING:
        raise InputError(f"{path} has the model_type {model_type!r}, which transformers {library.__version__} lacks")
    return library.CONFIG_MAPPING[model_type], said


def _kept(said: dict[str, Any]) -> dict[str, Any]:
    """What says how a model computes, and not how large it is: words, truths, fractions, and the kinds of layers."""
    found: dict[str, Any] = {
        name: value for name, value in said.items()
        if isinstance(value, str | bool | float) and not name.startswith("_") and "dtype" not in name
        and not name.endswith("_implementation") and name not in ("model_type", "transformers_version")
    }  # fmt: skip
    if isinstance(kinds := said.get("layer_types"), list):
        kinds = [*dict.fromkeys(kinds)]
        found["layer_types"] = [*kinds, *kinds[-1:]][: max(2, len(kinds))]
        found["num_hidden_layers"] = len(found["layer_types"])
    return found


def _small(kind: Any, special: dict[str, int], said: dict[str, Any], extra: dict[str, Any], depth: int = 0) -> Any:
    """A tiny configuration of a class, and of the parts that it names."""
    names = {f.name for f in fields(kind)} if is_dataclass(kind) else {*signature(kind.__init__).parameters}
    usual, chosen = SIZES | SPREAD | special, _BY_TYPE.get(kind.model_type, {}) | extra
    wanted = {name: size for name, size in usual.items() if name in names} | chosen | _kept(said)
    parts = {name: part for name, part in kind.sub_configs.items() if getattr(part, "model_type", "") and depth < 3}
    given = {name: value for name, value in wanted.items() if value is not None and name not in parts}
    for name, part in parts.items():
        inside = found if isinstance(found := said.get(name), dict) else {}
        given[name] = _small(part, special, inside, wanted.get(name) or {}, depth + 1).to_dict()
    return kind(**given)


def _takes(function: Callable[..., Any], *names: str) -> Callable[..., Any]:
    """The function, with these optional arguments in its signature, where the suite looks."""
    options = [Parameter(name, Parameter.KEYWORD_ONLY, default=None) for name in names]
    function.__signature__ = Signature([Parameter("model", Parameter.POSITIONAL_ONLY), *options])  # type: ignore[attr-defined]
    return function


def adapted(model: Any, pad_id: int, family: str) -> Adapted:
    """Fit a model of transformers, with its cache and `generate`, as far as it has them.

    Args:
        model: a model for causal or masked language modelling, or from sequence to sequence.
        pad_id: its padding token.
        family: "decoder", "encoder" or "encoder-decoder".
    """
    names, both = signature(model.forward).parameters, family == "encoder-decoder"
    key = next((name for name in ("past_key_values", "cache_params", "state", "mems") if name in names), "")
    own = {"mask": "attention_mask", "positions": "position_ids"}
    told = [] if both else [name for name, theirs in own.items() if theirs in names]
    cached = bool(key) and family != "encoder"
    cache_on, cache_off = ({"use_mems" if key == "mems" else "use_cache": on} if cached else {} for on in (True, False))

    def named(inputs: tuple[Tensor, ...], options: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs by the names that `forward` has for them."""
        given = {own[name]: value for name, value in options.items() if name in own and value is not None}
        if not both:
            return {"input_ids": inputs[0], **given}
        return {"input_ids": inputs[0], "attention_mask": (inputs[0] != pad_id).long(), "decoder_input_ids": inputs[1]}

    def call(model: Any, *inputs: Tensor, **options: Any) -> Tensor:
        more = {name: (inputs[1] != pad_id).long() for name in {"decoder_attention_mask"} & {*names} if both}
        return model(**named(inputs, options), **more, **cache_off).logits

    def extend(model: Any, *inputs: Tensor, cache: Any = None, **options: Any) -> tuple[Tensor, Any]:
        layers = getattr(cache, "layers", ())
        if options.get("mask") is not None and layers and not any(hasattr(layer, "keys") for layer in layers):
            options["mask"] = options["mask"][:, -inputs[-1].size(1) :]  # a state has no keys to mask
        answer = model(**named(inputs, options), **cache_on, **({} if cache is None else {key: cache}))
        if answer.get(key) is None:
            raise NotApplicable(f"asked for a cache, the model gives no {key}")
        return answer.logits, answer[key]

    def reorder(model: Any, cache: Any, rows: Tensor) -> Any:
        if hasattr(cache, "reorder_cache"):
            cache.reorder_cache(rows)
            return cache
        if hasattr(model, "_reorder_cache"):
            return model._reorder_cache(cache, rows)
        raise NotApplicable("neither the cache nor the model has a way to reorder it")

    def crop(model: Any, cache: Any, length: int) -> Any:
        if not (hasattr(cache, "crop") and getattr(cache, "is_croppable", True)):
            raise NotApplicable("the cache says that it cannot be cut")
        try:
            cache.crop(length - cache.get_seq_length())
        except (RuntimeError, NotImplementedError, ValueError) as error:
            raise NotApplicable(f"the cache refuses to be cut: {one_line(error)}") from error
        return cache

    def generate(model: Any, *inputs_and_steps: Any, mask: Tensor | None = None, **options: Any) -> Any:
        *inputs, steps = inputs_and_steps
        how = {"max_new_tokens": steps, "min_new_tokens": steps, "do_sample": False, "num_beams": 1} | options
        if both:  # whatever the target begins with is its start
            return model.generate(**named((*inputs,), {}), **how, decoder_start_token_id=inputs[1][:, 0].tolist())
        seen = torch.ones_like(inputs[0]) if mask is None else mask
        return model.generate(input_ids=inputs[0], **({"attention_mask": seen} if "mask" in told else {}), **how)

    def beams(model: Any, *inputs_and_steps: Any) -> tuple[Tensor, Tensor]:
        how: dict[str, Any] = {"num_beams": 4, "length_penalty": 0.0, "output_scores": True}
        answer = generate(model, *inputs_and_steps, **how, return_dict_in_generate=True)
        return answer.sequences, answer.sequences_scores

    def loss(model: Any, *inputs_and_labels: Tensor) -> Tensor:
        *inputs, labels = inputs_and_labels
        return model(**named((*inputs,), {}), labels=labels, **cache_off).loss

    _takes(call, *told)
    _takes(extend, *told)
    _takes(generate, *told[:1])
    generates = family != "encoder" and hasattr(model, "can_generate") and model.can_generate()
    with suppress(AttributeError):
        for name in _ENDS.split():
            setattr(model.generation_config, name, None)
        model.generation_config.pad_token_id = pad_id
    return Adapted(
        model, call, extend=extend if cached else None, reorder=reorder if cached else None,
        crop=crop if cached else None, generate=generate if generates else None,
        beams=beams if generates else None, loss=loss if "labels" in names else None,
    )  # fmt: skip


def configured(name: str, family: str | None = None) -> tuple[Factory, str]:
    """A factory of tiny models for a configuration of transformers, and their family.

    Args:
        name: a configuration's class, such as "LlamaConfig", or a directory with a model's config.json.
        family: "decoder", "encoder" or "encoder-decoder"; None takes what the library's automatic classes have, the
            last of these first.

    Raises:
        InputError: transformers is missing, there is no such configuration, it wants code of its own, or there is no
            model of this family for it.
    """
    kind, said = _configuration(name)
    library = _transformers()
    autos = {each: getattr(library, f"AutoModelFor{auto}") for each, auto in AUTO.items()}
    known = [each for each, auto in autos.items() if kind in auto._model_mapping]
    if family not in (None, *known) or not known:
        has = f"it has {' and '.join(known)}" if known else "it has no causal, masked or sequence-to-sequence model"
        raise InputError(f"transformers has no {family or 'such model'} for {kind.__name__}; {has}: name another")
    chosen = family or known[0]

    def factory(*sizes_and_pad: int) -> nn.Module:
        *sizes, pad_id = sizes_and_pad
        if len({*sizes}) > 1:
            raise ValueError(f"models of transformers have one vocabulary; got {sizes}")
        first, second = [token for token in range(3) if token != pad_id][:2]
        special = {"vocab_size": sizes[0], "vocab_size_per_layer_input": sizes[0], "pad_token_id": pad_id}
        special |= {"src_vocab_size": sizes[0], "tgt_vocab_size": sizes[0], "unpadded_vocab_size": sizes[0]}
        special |= {"bos_token_id": first, "eos_token_id": second, "decoder_start_token_id": first}
        config = _small(kind, special, said, {})
        for each in (config, config.get_text_config(decoder=True)):
            if chosen == "decoder" and hasattr(each, "is_decoder"):
                each.is_decoder = True
        make = autos[chosen].from_config
        with torch.device("meta"):
            number = sum(p.numel() for p in make(copy.deepcopy(config), experts_implementation="eager").parameters())
        if number > MOST:
            raise ValueError(f"with every size known here made small, it still has {number:,} parameters")
        return adapted(make(config, experts_implementation="eager").eval(), pad_id, chosen)

    return factory, chosen


def _no_network(event: str, _: tuple) -> None:
    if event in ("socket.connect", "socket.getaddrinfo"):
        raise PermissionError("this process has no network")


def _examine(connection: Connection, name: str, family: str | None, limits: tuple[int, int], options: dict) -> None:
    """In a process of its own: send the name of each property, each finding, and at last the report or the error."""
    sys.addaudithook(_no_network)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the other process ends this one
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (1, 2):  # what the library has to say is not the question
        os.dup2(nowhere, standard)
    sys.stdout = sys.stderr = os.fdopen(nowhere, "w")
    with suppress(ImportError, ValueError):  # Windows has no such limits
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (limits[0], limits[0] + 5))
        resource.setrlimit(resource.RLIMIT_AS, (limits[1], limits[1]))
    try:
        factory, family = configured(name, family)
        one = options.get("target_vocab_size")
        told = {"source_vocab_size": one, "on_start": connection.send, "on_finding": connection.send}
        connection.send(check_transformer(factory, family=family, **options | {"target_vocab_size": one} | told))
    except Exception as error:
        known = isinstance(error, InputError)
        connection.send(error if known else InputError(f"cannot examine hf:{name}, built small: {one_line(error)}"))


def check_configuration(
    name: str, *, family: str | None = None, seconds: int = 600, memory: int = 8 << 30,
    on_start: Callable[[str], object] = lambda name: None,
    on_finding: Callable[[Finding], object] = lambda finding: None, **options: Any,
) -> Report:  # fmt: skip
    """Hold a model of transformers to its properties, in a process of its own that has no network.

    Args:
        name: as for `configured`.
        family: as for `configured`.
        seconds: of processor time; after three times as long by the clock it is ended, too.
        memory: the most bytes of address space, which torch needs much of; no limit on Windows.
        on_start: as for `check_transformer`.
        on_finding: as for `check_transformer`.
        options: other arguments of `check_transformer`; there is one vocabulary, of `target_vocab_size`.

    Returns:
        The report of `check_transformer`.

    Raises:
        InputError: the configuration is not to be had, the model cannot be built or called, or a limit was reached.
    """
    mine, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.Process(target=_examine, args=(theirs, name, family, (seconds, memory), options))
    process.start()
    theirs.close()
    end, last, begun, ended = time.monotonic() + 3 * seconds, "when the model was built", False, False
    try:
        while mine.poll(max(0.0, end - time.monotonic())):
            begun, told = True, mine.recv()
            if isinstance(told, Report):
                return told
            if isinstance(told, InputError):
                raise told
            last = f"at '{told}'" if isinstance(told, str) else last
            (on_start if isinstance(told, str) else on_finding)(told)
    except EOFError:
        process.join(10)  # it has closed the pipe, so it is ending
        ended = process.exitcode is not None
    finally:
        process.kill()
        process.join()
        mine.close()
    if ended and not begun and process.exitcode == 1 and multiprocessing.get_start_method() != "fork":
        raise InputError(
            f"hf:{name} cannot be examined: a new process runs the script anew, so the script needs "
            "`if __name__ == '__main__':` before what it does, and must be a file"
        )
    raise InputError(f"hf:{name} was ended {last}: {_why_ended(process.exitcode if ended else None, seconds, memory)}")


def _why_ended(status: int | None, seconds: int, memory: int) -> str:
    """Why a process gave no report, from its exit status; None: the clock ended it."""
    ending = [-getattr(signal, name, signal.SIGTERM) for name in ("SIGKILL", "SIGXCPU", "SIGTERM")]
    if status is None or status in ending:
        return f"it needs more than {seconds} seconds of processor time or {memory >> 30} GiB of address space"
    return f"it crashed ({signal.Signals(-status).name})" if status < 0 else f"it ended itself, with status {status}"
