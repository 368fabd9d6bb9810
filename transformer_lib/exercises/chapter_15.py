# Generated from chapters/15_variants.md and 4 more: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 15 and its pages in depth."""

import textwrap
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from transformer_lib.checks import Adapted, check_transformer
from transformer_lib.exercises import NotAttempted, solved
from transformer_lib.exercises.grading import Answer, Wrong, claim, expect, matrices, no_plain_list, random, same, says
from transformer_lib.exercises.grading import random as random_numbers


def try_step(number: int, answer: Answer) -> None:
    """Print how step 1 (a class of layers) or step 2 (of models) of exercise 15-1 fares; neither looks at a cache."""
    shapes = "q, k and v are (2, 4, 5, 16) each" if number == 1 else "x is (batch, new, 64)"
    try:
        if isinstance(answer, nn.Module):
            raise Wrong("give the class itself, without brackets")
        with says(f"it raises: {{}} (here {shapes})"):
            begun = _layer_begun(answer) if number == 1 else _faults(answer) is not None
        said = "passed" if begun else "not attempted"
    except Wrong as wrong:
        said = f"failed: {wrong}"
    except NameError as error:
        said = f"failed: {error}: is the line that makes it still to write?"
    print(textwrap.fill(f"step {number} of 3: {said}", 110, subsequent_indent="    "))


def _called(module: nn.Module, *inputs: Any) -> Any:
    """What a module returns; `Wrong` if a pair is used as a tensor."""
    try:
        return module(*inputs)
    except (AttributeError, TypeError) as error:
        if "tuple" not in str(error):
            raise
        told = "`attention(…)` returns output and weights, so take its [0]; a layer returns the new x and its pair"
        raise Wrong(f"somewhere a pair is used as a tensor: {told}") from error


def _layer_begun(make_layer: Answer) -> bool:
    """Whether a layer is written; `Wrong` if it is no layer of a decoder without cross-attention."""
    layer, x, mask = make_layer().eval(), torch.randn(2, 5, 64), solved.causal_mask(5)
    read: list[torch.Tensor] = []  # what the linear maps read
    for module in layer.modules():
        if isinstance(module, nn.Linear):
            module.register_forward_pre_hook(lambda _, given: read.append(given[0]))
    answered = _called(layer, x, mask, None)
    if answered is None:
        return False
    if not isinstance(answered, tuple) or len(answered) != 2:
        raise Wrong("it should return two things: the new x, and the pair (k, v)")
    new, pair = answered
    if new.shape != x.shape:
        raise Wrong(f"the new x has the shape (2, 5, 64) of the old one, not {tuple(new.shape)}")
    if not isinstance(pair, tuple | list) or [each.shape for each in pair] != [(2, 4, 5, 16)] * 2:
        raise Wrong("keys and values should be split into heads: (2, 4, 5, 16) each")
    if any(torch.equal(each, x) for each in read):
        raise Wrong("a linear map reads x itself: queries, keys and values should be maps of self.norm1(x)")
    least = 4 * 64**2 + sum(p.numel() for p in solved.FeedForward(64, 128).parameters())
    if sum(p.numel() for p in layer.parameters()) < least:
        raise Wrong("it should have four linear maps of width 64 and a FeedForward")
    if sum("Norm" in type(module).__name__ for module in [*layer.modules()][1:]) < 2:
        raise Wrong("it should have two norms, one for each part")
    with torch.enable_grad():
        layer(x, mask, None)[0].square().sum().backward()
    for name, parameter in layer.named_parameters():
        if parameter.grad is None:
            raise Wrong(f"{name} has no part in the new x")
    other = torch.cat([x[:, :4], torch.randn(2, 1, 64)], dim=1)  # another last token
    if (layer(other, mask, None)[0] - new)[:, :4].abs().max() > 1e-4:
        raise Wrong("a token sees a later one: does the mask reach `attention`?")
    for parameter in layer.parameters():
        nn.init.zeros_(parameter)
    if (layer(x, mask, None)[0] - x).abs().max() > 1e-6:
        raise Wrong("with all parameters 0, norm, part, add returns x as it was")
    return True


def _faults(answer: Answer, extend: Any = None) -> dict[Any, str] | None:
    """What would go wrong on a GPU only, None before a model is written; `Wrong` at all else that `check` finds."""

    def build(vocab_size: int, pad_id: int) -> nn.Module:
        return Adapted(answer(vocab_size), lambda model, tokens: model(tokens)[0], extend=extend)

    model = answer(29)
    if not isinstance(model, nn.Module):
        raise Wrong(f"expected a module; got {type(model).__name__}")
    no_plain_list(model)
    two = 2 * matrices(solved.EncoderLayer(64, 4, 128))  # its matrices are those of a layer here
    answered = _called(model, torch.arange(20)[None])
    if answered is NotImplemented:
        return None
    if answered is None:
        raise Wrong("the module returns None: does its `forward` end with a `return`?")
    claim("it returns two things, the logits and a cache", isinstance(answered, tuple | list) and len(answered) == 2)
    shape = "the logits have shape (batch, new, vocabulary): one row for each new token"
    claim(shape, isinstance(answered[0], torch.Tensor) and answered[0].shape == (1, 20, 29))
    claim("it has two layers, each with parameters of its own", matrices(model) >= two + 29 * 64)
    faults = check_transformer(build, family="decoder", training=False).faults
    for fault in (fault for fault in faults if fault.name != "buffers move along"):
        raise Wrong(f"`check`: *{fault.name}* fails{fault.cause and '; likely, '}{fault.cause} ({fault.evidence})")
    return faults


def _cache_grows(model: nn.Module, tokens: torch.Tensor) -> None:
    """Raise `Wrong` unless the cache of 5 tokens stands in front of that of one more, in each layer."""
    cache = model(tokens[:, :5])[1]
    old = [x.clone() for x in tree_leaves(cache) if isinstance(x, torch.Tensor)]
    new = [x for x in tree_leaves(model(tokens[:, 5:6], cache)[1]) if isinstance(x, torch.Tensor)]
    grown = sum(x.numel() for x in new) >= sum(x.numel() for x in old)
    claim("the cache grows: it holds the old keys and values and the new ones", grown)
    if any(x.dim() != 4 or x.size(2) != 6 for x in new) or len(old) != len(new):
        return  # another kind of cache
    for number, (before, after) in enumerate(zip(old, new)):
        if torch.equal(after[:, :, 1:], before):
            raise Wrong("new keys or values stand before the old ones: torch.cat([old[0], k], dim=2)")
        kept = after[:, :, :5]
        if torch.equal(kept, before):
            continue
        if torch.equal(kept, old[number ^ 1]):
            raise Wrong("old values stand before new keys: old[0] are keys, old[1] values")
        if any(torch.equal(kept, each) for each in old):
            raise Wrong("a layer continues the keys and values of another layer: number i gets cache[i], not cache[0]")


def grade_15_1(answer: Answer) -> None:
    """Hold the model and its cache to the properties of a decoder."""

    def extend(model: nn.Module, tokens: torch.Tensor, cache: Any = None) -> Any:
        return model(tokens, cache)

    model, tokens = answer(29), torch.arange(20)[None]
    answered = _called(model, tokens) if isinstance(model, nn.Module) else None
    if answered is NotImplemented:
        raise NotAttempted
    cached = isinstance(answered, tuple | list) and any(x is not None for x in tree_leaves(answered[1:]))
    if cached:
        with says("with a cache it raises: {} (each layer has a pair, (batch, 4, old + new, 16), old keys first)"):
            _cache_grows(model, tokens)
    only_here = _faults(answer, extend if cached else None)
    if not cached:
        raise Wrong("step 3 of 3 is missing, the cache is None (step 2 of 3: passed)")
    cache, piece = model(tokens[:, :-2])[1], "the mask of a piece has a row for each new token and a column for each"
    with says(f"{piece} token so far; with 2 new tokens after 18: {{}}"):
        model(tokens[:, -2:], cache)
    cache = model(tokens[:, :-1])[1]
    with FlopCounterMode(display=False) as whole:
        model(tokens)
    with FlopCounterMode(display=False) as one:
        model(tokens[:, -1:], cache)
    spared = one.get_total_flops() < 0.2 * whole.get_total_flops()
    claim("with a cache, a token costs a fifth of 20 at most (else old keys and values are computed again)", spared)
    if only_here:
        told = "make positions and mask on the device of `tokens`: torch.arange(…, device=tokens.device), mask.to(…)"
        raise Wrong(f"right on this processor; for a GPU one thing is left: {told}")


def grade_15_2(answer: Answer) -> None:
    """Each of the three losses, as words with a space between them."""
    text, found = "my dog likes to chase red balls", answer()
    claim("it is a dictionary with GPT, BERT and T5", isinstance(found, dict) and {"GPT", "BERT", "T5"} <= {*found})
    right = {"GPT": f"{text} <eos>", "BERT": "dog red", "T5": "<1> dog likes <2> red <3>"}
    known = {
        ("GPT", text): "it predicts the end, too",
        ("GPT", f"<bos> {text} <eos>"): "<bos> is only read",
        ("BERT", text): "it sees the other tokens",
        ("BERT", "[MASK] [MASK]"): "the answers are words, not [MASK]",
        ("T5", "dog likes red"): "the decoder writes the sentinels, too",
        ("T5", "<1> dog likes <2> red"): "a last sentinel says that no span follows",
        ("T5", "my <1> to chase <2> balls"): "this is what the encoder reads",
    }
    for name, tokens in right.items():
        given = " ".join(str(found[name]).split())
        if given != tokens:
            raise Wrong(f"{name}: {known.get((name, given), 'these are not the tokens that its loss counts')}")


def grade_15a_1(answer: Answer) -> None:
    """Pair j of the library is made of the channels j and j + d_k / 2; ours stands at 2j and 2j + 1."""
    for d_k in (2, 4, 6, 16):
        weight = random(d_k, 3)
        order = [j + half for j in range(d_k // 2) for half in (0, d_k // 2)]
        turned = weight[order].unflatten(0, (-1, 2)).flip(1).flatten(0, 1)
        known = {
            "even rows first, then odd ones: this turns our order into theirs": torch.cat([weight[0::2], weight[1::2]]),
            "the pairs stand in our order, but each the other way round": turned,
            "the order of the rows has not changed": weight,
        }
        expect("the reordered weight", answer(weight.clone()), weight[order], known)


def grade_15b_1(answer: Answer) -> None:
    """Row by row: the mean of the heads in the group."""
    for heads, groups, d_k in ((1, 1, 1), (2, 1, 1), (2, 2, 2), (4, 2, 1), (4, 2, 3), (6, 3, 2)):
        each = heads // groups
        weight = random(heads, d_k, 2)
        rows = [weight[g * each : (g + 1) * each].mean(dim=0) for g in range(groups)]
        other = weight.unflatten(0, (each, groups))
        known = {
            "head i is put into group i mod g; the heads of a group are neighbours": other.mean(dim=0).flatten(0, 1),
            "the heads of a group are added; take their mean": each * torch.cat(rows),
            "the first head of each group is kept; take the mean": weight[::each].flatten(0, 1),
        }
        got = answer(weight.reshape(heads * d_k, 2), heads, groups)
        expect("the weight of the groups", got, torch.cat(rows), known, 1e-12)


def grade_15c_1(answer: Answer) -> None:
    """Nothing changes at first, two steps change something, and the change is the scaled product; in float32."""
    for wide, tall, rank, alpha in ((3, 2, 1, 1.0), (6, 5, 2, 8.0), (4, 7, 3, 2.0)):
        linear = nn.Linear(wide, tall)
        with torch.no_grad():
            linear.weight.copy_(random(tall, wide)), linear.bias.copy_(random(tall, seed=1))
        before = [parameter.detach().clone() for parameter in linear.parameters()]
        x = random(20, wide, seed=2).float()
        was = linear(x).detach()
        module = answer(linear, rank, alpha)
        claim("the answer is a module", isinstance(module, nn.Module))
        expect("the output before training", module(x), was, {"the bias is lost": was - before[1]}, 1e-5)
        learned = [parameter for parameter in module.parameters() if parameter.requires_grad]
        shapes = sorted(tuple(parameter.shape) for parameter in learned)
        frozen = {"the weight of the linear map is learned, too": sorted([(rank, wide), (tall, rank), (tall, wide)])}
        expect("the list of the shapes that are learned", shapes, sorted([(rank, wide), (tall, rank)]), frozen)
        for _ in range(2):
            module.zero_grad()
            module(x).square().sum().backward()
            with torch.no_grad():
                for parameter in learned:
                    if parameter.grad is not None:
                        parameter -= 1e-3 * parameter.grad
        claim("two steps of gradient descent change the output", not same(module(x), was, 1e-5))
        kept = [torch.equal(parameter.detach(), old) for parameter, old in zip(linear.parameters(), before)]
        claim("the weight and the bias of the linear map stay", all(kept))
        first, second = learned if learned[0].shape == (rank, wide) else learned[::-1]
        product = x @ first.T @ second.T
        known = {
            "the correction is not divided by the rank": was + alpha * product,
            "the correction is not scaled by alpha / r": was + product,
            "the correction is multiplied by r / alpha": was + rank / alpha * product,
        }
        expect("the output with the correction", module(x), was + alpha / rank * product, known, 1e-4)


def grade_15d_1(answer: Answer) -> None:
    """Right and wrong answers whose tokens have become more and less probable, by more and by less than the clip."""
    for seed, (answers, tokens), clip in ((1, (4, 6), 0.2), (2, (3, 5), 0.1), (3, (5, 5), 0.3)):
        new = (random_numbers(answers, tokens, seed=seed) / 3).requires_grad_()
        advantage = random_numbers(answers, seed=seed)
        advantage = torch.where(torch.arange(answers) % 2 == 0, advantage.abs() + 0.1, -advantage.abs() - 0.1)
        ratio, A = new.exp(), advantage[:, None]
        objective = torch.minimum(ratio * A, ratio.clamp(1 - clip, 1 + clip) * A).sum()
        (right,) = torch.autograd.grad(objective, new)
        ratio = ratio.detach()
        pushed, cut, above, below = ratio * A, ratio.clamp(1 - clip, 1 + clip), ratio > 1 + clip, ratio < 1 - clip
        known = {
            "a ratio changes with its log-probability: its derivative is the ratio itself, not 1": right / ratio,
            "a token that moved against its advantage is still pushed": pushed.masked_fill(above | below, 0.0),
            "nothing stops: the clip is missing": pushed,
            "right answers stop above, wrong ones below": pushed.masked_fill(torch.where(A > 0, below, above), 0.0),
            "tokens of wrong answers stop, too: below": pushed.masked_fill(above & (A > 0), 0.0),
            "tokens of wrong answers stop below, not above": pushed.masked_fill(above, 0.0),
            "wrong answers are pushed, too, with their negative advantage": right.clamp(min=0),
            "where the clipped ratio is in force, it is constant: its derivative is 0": cut * A,
            "that is the objective, not its derivative": torch.minimum(pushed, cut * A),
            "the sign is wrong: the objective grows": -right,
        }
        found = answer(ratio.clone(), advantage.clone(), clip)
        expect(f"the derivatives of {answers} answers", found, right, known, 1e-6)  # also in float32
