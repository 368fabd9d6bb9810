# Generated from chapters/C_evidence.md: edit it there and `make export`, or here and `make sync`.

"""The parts that the reader has written, at work in the translator that comes with the course, whole or spoilt."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stdout, suppress
from functools import cache, partial
from itertools import permutations, product
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from transformer_lib.data.corpora import is_blank
from transformer_lib.exercises import own_file
from transformer_lib.exercises.grading import changed, same
from transformer_lib.files import InputError, one_line
from transformer_lib.layers import FeedForward
from transformer_lib.loading import NAME, elsewhere
from transformer_lib.model import Transformer, evaluation
from transformer_lib.multi_head import MultiHeadAttention
from transformer_lib.own_model import Architecture
from transformer_lib.translation import Attention, Translator

SENTENCE = "A man is playing guitar on the street."
DOGS, KITCHEN = "A white dog is chasing a black dog.", "A woman is cooking in the kitchen."
THROWER = "An old man is throwing a ball on a sunny day."
STEPS, PEAK, WARMUP = 10, 1e-3, 4  # of a short training that goes on from the trained weights
LAYERS = ("EncoderLayer", "DecoderLayer")


class Unfit(Exception):
    """Why a part cannot take the weights of the translator."""


# ---- Weights find their place ------------------------------------------------------------------------------------


def _matrices(module: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """The matrices of a module and its vectors, each in the order in which they are made."""
    every = list(module.parameters())
    return [p for p in every if p.dim() > 1], [p for p in every if p.dim() < 2]


def _pour(parameters: list[nn.Parameter], numbers: Tensor) -> None:
    """Cut a row of numbers among parameters, each in its own shape."""
    with torch.no_grad():
        for parameter, part in zip(parameters, numbers.split([p.numel() for p in parameters])):
            parameter.copy_(part.view(parameter.shape))


class Projections(NamedTuple):
    """What a multi-head attention has learned: of queries, keys and values (3, heads, d_k, …), and of the output."""

    into: Tensor  # (3, h, d_k, d_model)
    bias: Tensor  # (3, h, d_k)
    out: Tensor  # (d_model, h, d_k)
    out_bias: Tensor  # (d_model,)

    @classmethod
    def of(cls, module: MultiHeadAttention) -> Projections:
        """Those of the library's."""
        h = module.num_heads
        into, out = module.in_projection, module.out_projection
        return cls(
            into.weight.detach().unflatten(0, (3, h, -1)), into.bias.detach().view(3, h, -1),
            out.weight.detach().unflatten(1, (h, -1)), out.bias.detach(),
        )  # fmt: skip

    @property
    def sizes(self) -> tuple[int, int]:
        """What the constructor is given: d_model and the number of heads."""
        return self.out.size(0), self.out.size(1)

    def widened(self) -> Projections:
        """The same without biases: a token has a channel more for each head, the first of which holds 1."""
        _, h, d_k, d_model = self.into.shape
        into, out = torch.zeros(3, h, d_k + 1, d_model + h), torch.zeros(d_model + h, h, d_k + 1)
        into[:, :, :d_k, :d_model], into[:, :, :d_k, d_model] = self.into, self.bias
        into[0] *= math.sqrt((d_k + 1) / d_k)  # the scores are divided by the root of the new width
        into[2, 0, d_k, d_model] = 1.0  # a value that is 1 for every token carries the bias of the output
        out[:d_model, :, :d_k], out[:d_model, 0, d_k] = self.out, self.out_bias
        return Projections(into, torch.zeros(3, h, d_k + 1), out, torch.zeros(d_model + h))


class Maps(NamedTuple):
    """What a feed-forward network has learned."""

    first: Tensor  # (d_ff, d_model)
    first_bias: Tensor  # (d_ff,)
    second: Tensor  # (d_model, d_ff)
    second_bias: Tensor  # (d_model,)

    @classmethod
    def of(cls, module: FeedForward) -> Maps:
        """Those of the library's."""
        linears = (module.linear1, module.linear2)
        return cls(*(own.detach() for linear in linears for own in (linear.weight, linear.bias)))

    @property
    def sizes(self) -> tuple[int, int]:
        """What the constructor is given: d_model and d_ff."""
        return self.second.size(0), self.second.size(1)

    def widened(self) -> Maps:
        """The same without biases: a token and the hidden layer have a channel more, which holds 1."""
        d, d_ff = self.sizes
        first, second = torch.zeros(d_ff + 1, d + 1), torch.zeros(d + 1, d_ff + 1)
        first[:d_ff, :d], first[:d_ff, d], first[d_ff, d] = self.first, self.first_bias, 1.0
        second[:d, :d_ff], second[:d, d_ff] = self.second, self.second_bias
        return Maps(first, torch.zeros(d_ff + 1), second, torch.zeros(d + 1))


class Layout(NamedTuple):
    """In which order the numbers of a multi-head attention stand in its parameters."""

    axes: tuple[int, ...]  # of (role, head, d_k, d_model)
    roles: tuple[int, ...]  # of queries, keys, values
    place: int  # how many of the roles stand before the output projection
    out: tuple[int, ...]  # of (d_model, head, d_k)

    def pour(self, module: nn.Module, weights: Projections) -> None:
        """Write the weights into a module; the biases only if it has all of them."""
        matrices, vectors = _matrices(module)
        into, bias = weights.into[list(self.roles)], weights.bias[list(self.roles)]
        rows = into.permute(self.axes).flatten().split(into.numel() // 3)
        out = weights.out.permute(self.out).flatten()
        _pour(matrices, torch.cat([*rows[: self.place], out, *rows[self.place :]]))
        axes = [axis for axis in self.axes if axis < 3]
        rows = bias.permute(axes).flatten().split(bias.numel() // 3)
        if _has_biases(module, weights):
            _pour(vectors, torch.cat([*rows[: self.place], weights.out_bias, *rows[self.place :]]))

    @classmethod
    def every(cls) -> Iterator[Layout]:
        """All that there are, the usual ones first."""
        axes = sorted(permutations(range(4)), key=lambda axes: (axes[0] != 0, axes))
        for roles, own, place, out in product(
            permutations(range(3)),
            axes,
            (3, 0, 1, 2),
            [(0, 1, 2), (1, 2, 0), (1, 0, 2), (0, 2, 1), (2, 0, 1), (2, 1, 0)],
        ):
            if own[0] == 0 or place in (0, 3):
                yield cls(own, roles, place, out)


class Order(NamedTuple):
    """In which order the matrices of a feed-forward network are made, and which stand transposed."""

    places: tuple[int, ...]
    turned: tuple[bool, ...]

    def pour(self, module: nn.Module, weights: Maps) -> None:
        """Write the weights into a module; the biases only if it has all of them."""
        matrices, vectors = _matrices(module)
        maps = (weights.first, weights.second)
        own = [maps[place].T if turn else maps[place] for place, turn in zip(self.places, self.turned)]
        _pour(matrices, torch.cat([matrix.flatten() for matrix in own]))
        if _has_biases(module, weights):
            biases = (weights.first_bias, weights.second_bias)
            _pour(vectors, torch.cat([biases[place] for place in self.places]))

    @classmethod
    def every(cls) -> Iterator[Order]:
        """All that there are, the usual one first."""
        for places, turned in product(((0, 1), (1, 0)), product((False, True), repeat=2)):
            yield cls(places, turned)


def _has_biases(module: nn.Module, weights: Projections | Maps) -> bool:
    """Whether a module has a vector for each number of the biases."""
    biases = sum(own.numel() for name, own in weights._asdict().items() if "bias" in name)
    return sum(vector.numel() for vector in _matrices(module)[1]) == biases


class Widened(nn.Module):
    """A part that lacks biases, made wider: one more channel of each token is 1, so a matrix holds the biases, too."""

    def __init__(self, kind: Callable[..., nn.Module], sizes: tuple[int, ...], width: int) -> None:
        super().__init__()
        self.sizes, self.width, self.more = sizes, width, sizes[0] - width
        self.part = _fresh(kind, *sizes)
        for vector in _matrices(self.part)[1]:
            nn.init.zeros_(vector)

    def forward(self, *given: Any, **named: Any) -> Tensor:
        """As the part, (batch, length, width)."""
        return self.part(*map(self._wide, given), **{k: self._wide(v) for k, v in named.items()})[..., : self.width]

    def _wide(self, x: Any) -> Any:
        if not isinstance(x, Tensor) or x.dtype == torch.bool:
            return x
        constant = torch.zeros(*x.shape[:-1], self.more).to(x)
        constant[..., 0] = 1.0
        return torch.cat([x, constant], dim=-1)


def _fresh(kind: Callable[..., nn.Module], *sizes: int) -> nn.Module:
    """A new part, in evaluation mode; the caller's random numbers stay as they are."""
    with torch.random.fork_rng(devices=[]):
        return kind(*sizes).eval()


Give = Callable[[nn.Module, Any], nn.Module]  # writes the library's weights into a part; the part, or one in its place


def _gives(
    kind: Callable[..., nn.Module], library: Any, weights: Any, layouts: type[Layout | Order], *inputs: Tensor
) -> Give:
    """What gives a part of a kind its weights: by the layout with which its answers are those of the library's part.

    Raises:
        Unfit: there is no such layout.
    """

    def given(module: nn.Module, own: Any, layout: Any) -> nn.Module:
        if _has_biases(module, own):
            layout.pour(module, own)
            return module
        wide = Widened(kind, own.widened().sizes, own.sizes[0])
        layout.pour(wide.part, own.widened())
        return wide

    with torch.no_grad():
        for parameter in library.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel())))
        own, right = weights.of(library), library(*inputs)
        right = right[0] if isinstance(right, tuple) else right  # without the attention's weights
        part = _fresh(kind, *own.sizes)
        for layout in layouts.every():
            if same(given(part, own, layout)(*inputs), right, 1e-4):
                return partial(given, layout=layout)
    raise Unfit("no order of its weights gives the answers of the library's")


def _norm_with(module: nn.Module, theirs: Any) -> None:
    """Give a norm its factors and offsets: the parameters that begin as ones and as zeros."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(theirs.weight if bool((parameter == 1).all()) else theirs.bias)


class Kinds(NamedTuple):
    """The classes of a module's parts, as they were before one was spoilt."""

    layers: tuple[type, ...]
    attention: type
    network: type
    norms: tuple[type, ...]

    @classmethod
    def of(cls, space: ModuleType) -> Kinds:
        """Those of a module."""
        layers = tuple(getattr(space, name) for name in LAYERS)
        return cls(layers, space.MultiHeadAttention, space.FeedForward, (space.LayerNorm, nn.LayerNorm))


def called(model: nn.Module, kinds: Kinds, *tokens: Tensor) -> list[tuple[str, nn.Module]]:
    """The layers and parts of a model in the order of their first calls, with their names."""
    names: dict[Any, str] = {module: name for name, module in model.named_modules()}
    seen: dict[Any, None] = {}
    hooks = [
        module.register_forward_pre_hook(lambda module, _: seen.setdefault(module))
        for module in model.modules()
        if isinstance(module, (*kinds.layers, kinds.attention, kinds.network, *kinds.norms))
    ]
    try:
        with evaluation(model):
            model(*tokens)
    finally:
        for hook in hooks:
            hook.remove()
    return [(names[module], module) for module in seen]


def _put(model: nn.Module, name: str, old: nn.Module, new: nn.Module) -> None:
    """Let one part of a model stand in for another, whose hooks it takes over."""
    if new is not old:
        new._forward_hooks, new._forward_pre_hooks = old._forward_hooks, old._forward_pre_hooks
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, new)


def _layer_with(
    model: nn.Module, order: list[tuple[str, nn.Module]], layer: str, theirs: Any, kinds: Kinds, give: list[Give]
) -> None:
    """Give the parts of a layer their weights, in the order in which they are called."""
    inside = [(name, part) for name, part in order if name.startswith(f"{layer}.")]
    names = [name for name in ("self_attention", "cross_attention", "feed_forward") if hasattr(theirs, name)]
    attentions = [(name, part) for name, part in inside if isinstance(part, kinds.attention)]
    networks = [(name, part) for name, part in inside if isinstance(part, kinds.network)]
    norms = [part for _, part in inside if isinstance(part, kinds.norms)]
    if (len(attentions), len(networks), len(norms)) != (len(names) - 1, 1, len(names)):
        raise Unfit(f"{layer} has not the parts of the library's layer")
    for (name, part), own in zip(attentions, names):
        _put(model, name, part, give[0](part, Projections.of(getattr(theirs, own))))
    _put(model, *networks[0], give[1](networks[0][1], Maps.of(theirs.feed_forward)))
    for norm, own in zip(norms, names):
        _norm_with(norm, getattr(theirs, f"{own}_norm"))


def give_weights(model: nn.Module, library: Transformer, kinds: Kinds, *tokens: Tensor) -> None:
    """Give a model made of the reader's parts and the course's the weights of the library's.

    Args:
        model: called as model(source, target).
        library: the trained one.
        kinds: the classes of its parts.
        tokens: source and target that it is called with.

    Raises:
        Unfit: no way to do so gives the answers of the library's.
    """
    x, y, z = (
        torch.randn(1, n, 6, generator=torch.Generator().manual_seed(n + m)) for n, m in ((3, 0), (4, 0), (4, 1))
    )
    give = [
        _gives(kinds.attention, MultiHeadAttention(6, 2), Projections, Layout, x, y, z),
        _gives(kinds.network, FeedForward(6, 8), Maps, Order, x),
    ]
    order, placed = called(model, kinds, *tokens), set[str]()
    stacks: list[Any] = [library.encoder, library.decoder]
    for layer, stack in zip(kinds.layers, stacks):
        own = [name for name, part in order if isinstance(part, layer)]
        if len(own) != len(stack.layers):
            raise Unfit(f"it calls {len(own)} layers of a kind; the translator has {len(stack.layers)}")
        for name, theirs in zip(own, stack.layers):
            _layer_with(model, order, name, theirs, kinds, give)
            placed.add(name)
    last = [(name, part) for name, part in order
            if isinstance(part, kinds.norms) and not any(name.startswith(f"{layer}.") for layer in placed)]  # fmt: skip
    if len(last) != 2:
        raise Unfit(f"{len(last)} norms follow its stacks; the translator has one after each")
    for (name, norm), stack in zip(last, stacks):
        _norm_with(norm, stack.norm)
        placed.add(name)
    rest = [(name, own) for name, own in model.named_parameters() if not any(name.startswith(f"{p}.") for p in placed)]
    _tables_with(model, rest, library, tokens)


def _tables_with(model: nn.Module, rest: list, library: Transformer, tokens: tuple[Tensor, ...]) -> None:
    """Give what remains, embeddings and output projection, the table that the translator has for all of them."""
    table = library.output_projection.weight.detach()  # (V, d_model), that of the embeddings, too
    size, width = table.shape
    tables = [own for _, own in rest if own.numel() == table.numel()]
    for name, own in rest:
        if own.numel() not in (table.numel(), size):
            raise Unfit(f"the translator has nothing for its {name}, of shape {tuple(own.shape)}")
        if own.numel() == size:
            nn.init.zeros_(own)
    with evaluation(library):
        right = library(*tokens)
    for scales in product((1.0, math.sqrt(width)), repeat=len(tables)):
        with evaluation(model):
            for own, scale in zip(tables, scales):
                own.copy_(scale * (table if own.size(0) == size else table.T))
            if agree(model(*tokens), right):
                return
    raise Unfit("with the translator's weights, which are for norms before each sub-layer, it gives other answers")


def agree(found: Any, right: Tensor) -> bool:
    """Whether logits are the right ones, but for the rounding of float32."""
    return same(found, right, 1e-3 * right.abs().max().item())


# ---- Mistakes ----------------------------------------------------------------------------------------------------


class Break(NamedTuple):
    """A mistake that spoils one part on request."""

    name: str
    chapter: int
    parts: tuple[str, ...]  # whose place spoilt ones take
    words: str  # what is wrong
    spoil: Callable[[Any, Kinds], Any]  # from the part to the spoilt one
    sentence: str = SENTENCE


def _one_row(x: Tensor, *_: Any) -> Tensor:
    """The numbers of all heads of a sentence, cut anew without moving the heads behind the tokens."""
    return x.reshape(x.size(0), x.size(2), -1)


def _no_residual(layer: type, kinds: Kinds) -> type:
    """A layer in which x is taken away again from what a sub-layer returns."""

    def hooks(part: nn.Module, entered: list[Tensor]) -> None:
        if isinstance(part, kinds.norms):
            part.register_forward_pre_hook(lambda _, given: entered.append(given[0]))
        elif isinstance(part, (kinds.attention, kinds.network)):
            part.register_forward_hook(lambda _, __, made: made - entered[-1])

    return _hooked(layer, hooks)


def _no_first_norm(layer: type, kinds: Kinds) -> type:
    """A layer in which the norm that is called first returns what it is given."""

    def hooks(part: nn.Module, done: list[nn.Module]) -> None:
        def skip(own: nn.Module, given: tuple[Tensor], made: Tensor) -> Tensor:
            done.extend([] if done else [own])
            return given[0] if own is done[0] else made

        if isinstance(part, kinds.norms):
            part.register_forward_hook(skip)

    return _hooked(layer, hooks)


def _hooked(layer: type, hooks: Callable[[nn.Module, list], None]) -> type:
    """A class of layers whose parts get hooks, with a list for each layer to remember things in."""

    def init(self: nn.Module, *given: Any, **named: Any) -> None:
        super(hooked, self).__init__(*given, **named)  # type: ignore[arg-type]
        memory: list[Any] = []
        for part in [*self.modules()][1:]:
            hooks(part, memory)

    hooked = type(layer.__name__, (layer,), {"__init__": init})
    return hooked


class _Reads(nn.Module):
    """A model that reads other tokens than it is given."""

    def __init__(self, model: nn.Module, tokens: Tensor) -> None:
        super().__init__()
        self.model, self.tokens = model, tokens

    def forward(self, source: Tensor, _: Tensor) -> Tensor:
        """The logits for the tokens of its own."""
        return self.model(source, self.tokens)


def _unshifted(step: Callable[..., float], _: Kinds) -> Callable[..., float]:
    """A training step whose model reads the tokens that it is to predict."""
    return lambda model, optimizer, source, target, *rest: step(
        _Reads(model, target[:, 1:]), optimizer, source, target, *rest
    )


BREAKS = {
    own.name: own
    for own in (
        Break("scale", 2, ("attention",), "no division by √d_k",
            lambda part, _: lambda q, k, v, mask=None: part(q * math.sqrt(q.size(-1)), k, v, mask)),
        Break("heads", 3, ("split_heads",), "one head for all", lambda part, _: lambda x, _: part(x, 1)),
        Break("merge", 3, ("merge_heads",), "heads merged without the transpose", lambda part, _: _one_row),
        Break("positions", 4, ("sinusoidal_table",), "no positions",
            lambda part, _: lambda *sizes: torch.zeros_like(part(*sizes)), DOGS),
        Break("padding", 5, ("padding_mask",), "no padding mask",
            lambda part, _: lambda *given: torch.ones_like(part(*given)), KITCHEN),
        Break("causal", 5, ("causal_mask",), "no causal mask",
            lambda part, _: lambda *given: torch.ones_like(part(*given)), THROWER),
        Break("residual", 6, LAYERS, "no residual connection", _no_residual),
        Break("norm", 6, LAYERS, "without the first norm of each layer", _no_first_norm),
        Break("shift", 9, ("training_step",), "without the shift", _unshifted),
        Break("slots", 10, ("beam_search",), "a finished hypothesis gives its slot away",
            lambda *_: changed("beam_search", ("beam_size - len(finished)", "beam_size")),
            "A black and white dog is swimming in clear water."),
    )
}  # fmt: skip


# ---- At work -----------------------------------------------------------------------------------------------------


@cache
def translator() -> Translator:
    """The one that comes with the course."""
    return Translator.from_pretrained("multi30k-en-de")


class Trial:
    """A model of some of the reader's parts and the course's, with the weights of the translator.

    Args:
        file: the reader's.
        names: the parts that are taken from it.
        mistake: spoils a part; the weights are those of `whole`.
        whole: the same without it.

    Raises:
        Unfit: the weights do not fit.
    """

    def __init__(
        self, file: Path, names: Iterable[str], mistake: Break | None = None, whole: Trial | None = None
    ) -> None:
        library = translator()
        self.file, self.names, self.used = file, list(names), whole is None
        self.space = own_file.joined(file, self.names)
        self.kinds = Kinds.of(self.space)
        if mistake is not None:
            for name in mistake.parts:
                setattr(self.space, name, self._noted(mistake.spoil(getattr(self.space, name), self.kinds)))
        config = library.model.config
        with torch.random.fork_rng(devices=[]):
            self.model = self.space.Transformer(
                config.source_vocab_size, config.target_vocab_size, config.pad_id, d_model=config.d_model,
                num_heads=config.num_heads, d_ff=config.d_ff, num_layers=config.num_encoder_layers,
                dropout=config.dropout,
            ).eval()  # fmt: skip
        if whole is None:
            give_weights(self.model, library.model, self.kinds, *example())
        else:
            _take_weights(self.model, whole.model)
        self.translator = Translator(Architecture(self.model, config), library.tokenizer)

    @property
    def widened(self) -> bool:
        """Whether a part needs one more channel."""
        return any(isinstance(part, Widened) for part in self.model.modules())

    def _noted(self, part: Any) -> Any:
        """A spoilt part that notes when it is used."""
        if isinstance(part, type):

            def init(own: nn.Module, *given: Any, **named: Any) -> None:
                self.used = True
                super(kind, own).__init__(*given, **named)  # type: ignore[arg-type]

            kind = type(part.__name__, (part,), {"__init__": init})
            return kind

        def noted(*given: Any, **named: Any) -> Any:
            self.used = True
            return part(*given, **named)

        return noted

    def translate(self, sentences: list[str]) -> list[str]:
        """By the library's search, in one batch."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a spoilt model may never end
            return self.translator.translate(sentences)


def _take_weights(model: nn.Module, whole: nn.Module) -> None:
    """Give a model the weights of one that is made alike."""
    for name, part in whole.named_modules():
        if isinstance(part, Widened):
            old = model.get_submodule(name)
            _put(model, name, old, Widened(type(old), part.sizes, part.width))
    with torch.no_grad():
        for name, own in whole.named_parameters():
            model.get_parameter(name).copy_(own)


@cache
def example() -> tuple[Tensor, Tensor]:
    """Two sentences and the beginnings of their translations, padded: what a model is tried on."""
    source, target = _padded(pairs_of([SENTENCE, DOGS]))
    return source, target[:, :-1]


def _padded(pairs: list[tuple[list[int], list[int]]]) -> list[Tensor]:
    """Source and target of a batch."""
    rows = zip(*((torch.tensor(source), torch.tensor(target)) for source, target in pairs))
    pad_id = translator().tokenizer.pad_id
    return [pad_sequence(list(side), batch_first=True, padding_value=pad_id) for side in rows]


def pairs_of(sentences: Sequence[str]) -> list[tuple[list[int], list[int]]]:
    """The token ids of sentences and of the library's translations, as `make_batch` takes them."""
    library = translator()
    tokenizer = library.tokenizer
    answers = library.translate(list(sentences))
    return [
        (tokenizer.encode(sentence), [tokenizer.bos_id, *tokenizer.encode(answer)])
        for sentence, answer in zip(sentences, answers)
    ]


def chosen(names: list[str], work: Callable[[list[str]], Any]) -> tuple[Any, list[str], list[str]]:
    """The parts with which something works, all together or else one after another.

    Returns:
        What `work` returns for them, their names, and a line for each that was left out.
    """
    with suppress(Unfit, Exception, SystemExit):
        return work(names), names, []
    good, lines, made = list[str](), list[str](), work([])
    for name in names:
        try:
            made, good = work([*good, name]), [*good, name]
        except (Exception, SystemExit) as error:
            why = str(error) if isinstance(error, Unfit) else f"it raised {one_line(error)}"
            lines.append(f"{name} stays out, and the course's stands in: {why}.")
    return made, good, lines


class Tried:
    """What `try_parts` found: the parts that are yours, and what the translator says with them."""

    def __init__(self) -> None:
        self.yours: list[str] = []
        self.translations: list[str] = []  # one for each sentence, with the mistake if there is one
        self.whole: list[str] = []  # the same without it
        self.lines: list[str] = []
        self.attentions: dict[str, Attention] = {}  # of the translation, computed by the parts

    @property
    def attention(self) -> Attention | None:
        """The cross-attention, computed by the parts."""
        return self.attentions.get("cross-attention")

    def explore(self) -> Any:
        """In a notebook: every head of the translation, computed by the parts, to look through."""
        from IPython.display import HTML

        from transformer_lib.notebook import explorer

        return HTML(explorer(self.attentions))

    @property
    def text(self) -> str:
        """What was printed."""
        return "\n".join(self.lines)

    @property
    def unchanged(self) -> bool:
        """Whether the translations are those without a mistake."""
        return self.translations == self.whole

    def say(self, line: str) -> None:
        """Print a line, and keep it."""
        print(line)
        self.lines.append(line)

    def _ipython_display_(self) -> None:
        """Show nothing below a cell that ends with the call, which has printed everything."""


def _short(text: str) -> str:
    return text if len(text) <= 70 else text[:69].rsplit(" ", 1)[0] + " …"


def translations(tried: Tried, whole: Trial, broken: Trial | None, mistake: Break | None, sentence: str) -> None:
    """The German of one sentence."""
    _compare(tried, [sentence], mistake, lambda trial: trial.translate([sentence]), whole, broken)


def as_the_library(tried: Tried, whole: Trial, broken: Trial | None, mistake: Break | None, sentence: str) -> None:
    """The German, and whether it is the library's."""
    translations(tried, whole, broken, mistake, sentence)
    same_words = tried.whole == translator().translate([sentence])
    tried.say(f"  the library's: {'the same, word for word' if same_words else translator().translate([sentence])[0]}")


def together(tried: Tried, whole: Trial, broken: Trial | None, mistake: Break | None, sentence: str) -> None:
    """The German of two sentences in one batch, the shorter of which is filled up."""
    both = [sentence, DOGS if sentence == SENTENCE else SENTENCE]
    _compare(tried, both, mistake, lambda trial: trial.translate(both), whole, broken)


def _compare(
    tried: Tried, sentences: list[str], mistake: Break | None, answers: Callable[[Trial], list[str]], whole: Trial,
    broken: Trial | None,
) -> None:  # fmt: skip
    """Sentences, what becomes of them, and what becomes of them with a mistake."""
    tried.whole = tried.translations = answers(whole)
    if broken is not None:
        tried.translations = answers(broken)
    for sentence, before, after in zip(sentences, tried.whole, tried.translations):
        tried.say(sentence)
        tried.say(f"  {_short(before)}")
        if mistake is not None:
            told = "unchanged for this sentence" if before == after else _short(after)
            tried.say(f"  {mistake.words}: {told}")


def lines(tried: Tried, whole: Trial, broken: Trial | None, mistake: Break | None, sentence: str) -> None:
    """What each German word looks at, in the head that is surest of all."""
    translations(tried, whole, broken, mistake, sentence)
    right, looked = _looks(tried, whole, sentence), _looks(tried, broken or whole, sentence)
    if right is not None and looked is not None:
        layer, head = divmod(int(right.weights.amax(-1).mean(-1).argmax()), right.weights.size(1))
        tried.say(f"What each word looks at, in head {head + 1} of decoder layer {layer + 1}:")
        for row, word in zip(looked.weights[layer, head], looked.target):
            best = [f"{looked.source[i]} {row[i]:.2f}" for i in row.argsort(descending=True)[:2].tolist()]
            tried.say(f"  {word:10} {', '.join(best)}")
        _draw(looked, [(layer, head)])


def heads(tried: Tried, whole: Trial, broken: Trial | None, mistake: Break | None, sentence: str) -> None:
    """What the word that is looked for looks at, in each head of the last layer."""
    translations(tried, whole, broken, mistake, sentence)
    if looked := _looks(tried, broken or whole, sentence):
        last = looked.weights[-1]  # (heads, m, n)
        tried.say("What each word looks at most, in each head of the last decoder layer:")
        for row, word in enumerate(looked.target):
            tried.say(f"  {word:10} " + " ".join(f"{looked.source[i]:10}" for i in last[:, row].argmax(-1)).rstrip())
        _draw(looked, [(looked.weights.size(0) - 1, head) for head in range(last.size(0))])


def _looks(tried: Tried, trial: Trial, sentence: str) -> Attention | None:
    """The cross-attention, as the parts compute it."""
    from transformer_lib.notebook import every_attention

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tried.attentions = every_attention(trial.translator, sentence)
    return tried.attention


def _draw(looked: Attention, places: list[tuple[int, int]]) -> None:
    """In a notebook: a line from each German word to the English ones, the thicker the more it looks at them."""
    ipython = sys.modules.get("IPython")
    if ipython is None or ipython.get_ipython() is None:
        return
    import matplotlib.pyplot as plt

    rows = max(len(looked.target), len(looked.source))
    _, axes = plt.subplots(1, len(places), figsize=(min(3.4 * len(places), 10.8), 0.36 * rows), squeeze=False)
    for axis, (layer, head) in zip(axes[0], places):
        for i, word in enumerate(looked.target):
            axis.text(-0.03, -i, word, ha="right", va="center", color="C0")
            for j, weight in enumerate(looked.weights[layer, head, i].tolist()):
                axis.plot([0, 1], [-i, -j], "-", color="C3", linewidth=5 * weight, alpha=min(1.0, 0.1 + weight))
        for j, word in enumerate(looked.source):
            axis.text(1.03, -j, word, ha="left", va="center", color="C1")
        axis.set_title(f"layer {layer + 1}, head {head + 1}", fontsize="medium")
        axis.set(xlim=(-0.5, 1.5), ylim=(0.5 - rows, 0.7))
        axis.axis("off")
    plt.show()


def layers(tried: Tried, whole: Trial, broken: Trial | None, mistake: Break | None, sentence: str) -> None:
    """How large the numbers are that leave each layer."""
    translations(tried, whole, broken, mistake, sentence)
    tried.say(f"Root mean square of what leaves each layer{f'; then: {mistake.words}' if mistake else ''}:")
    sizes = [_sizes(trial) for trial in (whole, broken) if trial is not None]
    for name, *row in zip(sizes[0], *(own.values() for own in sizes)):
        tried.say(f"  {name:10}" + "".join(f"{size:10.2f}" for size in row))


def _sizes(trial: Trial) -> dict[str, float]:
    """The root mean square of what each layer returns, in the order of the calls."""
    found: dict[str, float] = {}
    counts = {kind: 0 for kind in trial.kinds.layers}

    def note(kind: type, name: str, made: Tensor) -> None:
        counts[kind] += 1
        found[f"{name} {counts[kind]}"] = made.square().mean().sqrt().item()

    hooks = [
        part.register_forward_hook(lambda _, __, made, kind=kind, name=name: note(kind, name, made))  # type: ignore
        for kind, name in zip(trial.kinds.layers, ("encoder", "decoder"))
        for part in trial.model.modules()
        if isinstance(part, kind)
    ]
    with evaluation(trial.model):
        trial.model(*(tokens[:1] for tokens in example()))
    for hook in hooks:
        hook.remove()
    return found


def training(tried: Tried, whole: Trial, broken: Trial | None, mistake: Break | None, sentence: str) -> None:
    """The next steps of the training: losses, and the German afterwards."""
    losses = _losses(whole)
    tried.say(f"Loss of the next training step: {losses[0]:.3f}; the library's: {_library_loss():.3f}")
    if broken is not None and mistake is not None:
        spoilt = _losses(broken)
        tried.say(f"  {mistake.words}: {spoilt[0]:.1f}, and {spoilt[-1]:.1f} after {STEPS} steps")
    tried.say(f"After {STEPS} steps the loss is {losses[-1]:.2f}, and the translation:")
    translations(tried, whole, broken, mistake, sentence)


def _losses(trial: Trial) -> list[float]:
    """Those of a few steps, with the parts of a trial, on four sentences; its model changes."""
    space, pad_id = trial.space, translator().tokenizer.pad_id
    found, (batch,) = [], space.batches_by_length(pairs_of(EXAMPLES), 1000)  # so large that one batch has all
    source, target = space.make_batch(batch, pad_id)
    optimizer = torch.optim.Adam(trial.model.parameters())
    for step in range(1, STEPS + 1):
        rate = space.learning_rate(step, PEAK, WARMUP)
        found.append(space.training_step(trial.model, optimizer, source, target, pad_id, rate))
    return found


@cache
def _library_loss() -> float:
    """The first one, of the library's batch."""
    from transformer_lib.training.loss import translation_loss

    with evaluation(translator().model):
        return translation_loss(translator().model, *_padded(pairs_of(EXAMPLES)), label_smoothing=0.1).item()


def searches(tried: Tried, whole: Trial, broken: Trial | None, mistake: Break | None, sentence: str) -> None:
    """The German by the two searches."""
    _compare(tried, [sentence], mistake, lambda trial: [_search(trial, "beam_search", sentence)], whole, broken)
    greedy, (library,) = _search(whole, "greedy", sentence), translator().translate([sentence])
    tried.say(f"  greedy: {'the same' if greedy == tried.whole[0] else _short(greedy)}")
    tried.say(f"  the library's beam search: {'the same' if library == tried.whole[0] else _short(library)}")


def _search(trial: Trial, name: str, sentence: str) -> str:
    """A translation by one of the searches of a trial."""
    library = translator()
    tokenizer, source = library.tokenizer, torch.tensor([library.tokenizer.encode(sentence)])
    limit = math.ceil(library.length_ratio * source.size(1)) + 10  # as the library's
    found = getattr(trial.space, name)(trial.model, source, tokenizer.bos_id, tokenizer.eos_id, limit)
    return " ".join(tokenizer.decode(found).split())


def _trains_alike(trial: Trial) -> None:
    """Raise `Unfit` if the first loss is not the library's, or steps do not lower it."""
    losses = _losses(trial)
    if not (abs(losses[0] - _library_loss()) < 1e-3 and losses[-1] < losses[0]):
        raise Unfit("the losses are not the library's")


def _searches_alike(trial: Trial) -> None:
    """Raise `Unfit` if the translations are not the library's."""
    for name, size in (("greedy", 1), ("beam_search", 5)):
        if [_search(trial, name, DOGS)] != translator().translate([DOGS], beam_size=size):
            raise Unfit("the translations are not the library's")


SHOWS: dict[int, Callable[[Tried, Trial, Trial | None, Break | None, str], None]] = {
    2: lines, 3: heads, 4: translations, 5: together, 6: layers, 7: as_the_library, 8: training, 9: training,
    10: searches,
}  # fmt: skip
OWN_SENTENCES = {4: DOGS, 5: KITCHEN}  # of chapters
EXAMPLES = (SENTENCE, DOGS, KITCHEN, "A little girl is eating ice cream.")


def try_parts(
    sentence: str | None = None, *, chapter: int | None = None, without: str | None = None,
    file: str | Path | None = None,
) -> Tried:  # fmt: skip
    """Translate with your parts, as many as pass, in the translator that comes with the course.

    Args:
        sentence: English. None = one that the chapter or the mistake has.
        chapter: take your parts up to this one, and show what it shows. None = all, and the translation.
        without: a mistake, one of `BREAKS`: the translation with it, and without it.
        file: None = my_transformer.py in the present folder; if it is not there, the course's parts stand in.

    Returns:
        What was printed and found.

    Raises:
        InputError: there is no such chapter or mistake, the sentence is blank, or the file is elsewhere.
    """
    if chapter is not None and chapter not in range(2, 11):
        raise InputError(f"there is nothing to try in chapter {chapter}: expected one from 2 to 10")
    if without is not None and without not in BREAKS:
        raise InputError(f"there is no mistake {without!r}: expected one of {', '.join(BREAKS)}")
    if sentence is not None and is_blank(sentence):
        raise InputError("there is nothing to translate: expected a sentence; got a blank one")
    mistake = None if without is None else BREAKS[without]
    path, tried = Path(file or NAME), Tried()
    if not path.exists() and (place := elsewhere(path)):
        raise InputError(place)
    shown = mistake.chapter if mistake else chapter or 7
    upto = chapter or max(7, shown)
    sentence = sentence or (mistake.sentence if mistake else OWN_SENTENCES.get(shown, SENTENCE))
    with redirect_stdout(sys.stderr):  # what the file itself prints
        names, wrong = own_file.graded(path, upto) if file or path.exists() else ([], [])
        whole, tried.yours, told = _whole(path, names, upto)
        broken = _broken(whole, mistake, sentence) if mistake else None
    if broken is not None and broken.names != whole.names:
        told.append(
            f"For this mistake all parts{' but ' * bool(broken.names)}{' and '.join(broken.names)} are the course's."
        )
        whole = Trial(path, broken.names)
    tried.lines += [own_file.yours(tried.yours, _asked(upto)), *wrong, *told]
    print(*tried.lines, sep="\n")
    SHOWS[shown](tried, whole, broken, mistake, sentence)
    return tried


def _asked(upto: int) -> list[str]:
    """The parts that take part in what a chapter shows."""
    chapters = (*range(min(upto, 7) + 1), *((8, upto) if upto in (8, 9) else ()), *((10,) if upto == 10 else ()))
    return [part.name for part in own_file.gaps() if part.chapter in chapters]


def _whole(path: Path, names: list[str], upto: int) -> tuple[Trial, list[str], list[str]]:
    """What works of the parts with these names; the names that do; and a line for each that does not."""
    chapters = {part.name: part.chapter for part in own_file.gaps()}
    trial, kept, told = chosen([name for name in names if chapters[name] < 8], lambda own: Trial(path, own))
    for first, last, works in ((8, 9, _trains_alike), (10, 10, _searches_alike)):
        later = [name for name in names if first <= chapters[name] <= last]
        if later and upto in (first, last):

            def work(own: list[str], kept: list[str] = kept, works: Callable[[Trial], None] = works) -> Trial:
                tried = Trial(path, [*kept, *own])
                works(tried)
                return tried

            _, good, lines = chosen(later, work)
            kept, told = [*kept, *good], told + lines
    return (Trial(path, kept) if kept != trial.names else trial), kept, told


def _broken(whole: Trial, mistake: Break, sentence: str) -> Trial:
    """The same with a mistake; where the reader's other parts do not use the spoilt one, with the course's."""
    broken = Trial(whole.file, whole.names, mistake, whole)
    broken.translate([sentence])
    if (broken.used and not whole.widened) or mistake.chapter > 7:  # those of later chapters are called by name
        return broken
    names = [name for name in whole.names if name in mistake.parts]
    return Trial(whole.file, names, mistake, Trial(whole.file, names))
