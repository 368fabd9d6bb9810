# Generated from chapters/02_attention.md and 8 more: edit it there and `make export`, or here and `make sync`.

"""The graders of the parts that the reader writes: what an answer should be, and which wrong one it is."""

import inspect
import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise, product
from types import ModuleType
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_lib.checks import check_transformer
from transformer_lib.checks.components import check_multi_head_attention
from transformer_lib.exercises.grading import (
    Bigrams,
    Unfinished,
    Wrong,
    all_used,
    behaves,
    elsewhere,
    expect,
    filled,
    first_fault,
    gap,
    matrices,
    random,
    same,
)
from transformer_lib.files import one_line
from transformer_lib.positions import sinusoidal_table


@gap(2, "attention")
def grade_attention(mine: ModuleType) -> None:
    """Output and weights, with and without a mask, an empty row among them."""
    q, k, v = random(2, 3, 4, 10), random(2, 3, 5, 10, seed=1), random(2, 3, 5, 7, seed=2)
    try:
        answer = mine.attention(q.clone(), k.clone(), v.clone())
    except RuntimeError as error:
        mine.attention(q[0, 0], k[0, 0], v[0, 0])  # if that fails too, its error is told
        raise Wrong(
            "it runs for (length, width), but not with a batch and heads in front: .T turns all axes round, "
            "k.transpose(-2, -1) swaps the last two"
        ) from error
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        raise Wrong("it should return two things, the output and the weights")
    if all(isinstance(z, Tensor) for z in answer) and [z.size(-1) for z in answer] == [5, 7]:
        raise Wrong("the two results are the wrong way round: the output comes first")
    behaves(mine.attention, q=q, k=k, v=v)
    root, dots = math.sqrt(10), q @ k.transpose(-2, -1)
    scores = dots / root
    right = scores.softmax(dim=-1)
    causal = torch.ones(4, 5).tril().bool()
    wrong = {
        "the softmax runs over axis 1; it should run over the keys, the last axis": scores.softmax(dim=1),
        "the softmax runs over axis 0, the batch; it should run over the keys, the last axis": scores.softmax(dim=0),
        "the softmax runs over the queries; it should run over the keys, the last axis": scores.softmax(dim=-2),
        "the weights of all queries together sum to one; those of each query should": scores.exp() / scores.exp().sum(),
        "there is no softmax: the weights are the scores": scores,
        "there is no softmax: a sigmoid does not make the weights of a query sum to one": scores.sigmoid(),
        "there is no softmax: exponentials are not divided by their sum": scores.exp(),
        "they are the logarithms of the weights: softmax, not log_softmax": scores.log_softmax(dim=-1),
        "the softmax is taken twice": right.softmax(dim=-1),
        "later keys are hidden; without a mask a query reads all": scores.masked_fill(~causal, -math.inf).softmax(-1),
        "the softmax is taken first and divided by the root of d_k afterwards": dots.softmax(dim=-1) / root,
        "the weights are divided by the root of d_k once more, after the softmax": right / root,
    }  # fmt: skip
    if isinstance(answer[1], Tensor) and answer[1].shape == right.shape and not same(answer[1], right, 1e-9):
        logs, spread = answer[1].double().log(), dots - dots.mean(dim=-1, keepdim=True)
        factor = ((logs * spread).sum() / spread.square().sum()).item()
        if same(answer[1], (factor * dots).softmax(dim=-1), 1e-9):
            known = {
                1: "the scores are not divided by the root of d_k",
                1 / 10: "the scores are divided by d_k, not by its root",
                root: "the scores are multiplied by the root of d_k; divide by it",
                1 / 4**0.5: "the scores are divided by the root of the number of queries, not of d_k",
                1 / 5**0.5: "the scores are divided by the root of the number of keys, not of d_k",
                1 / 7**0.5: "the scores are divided by the root of the values' width, not of d_k",
                1 / 8: "the scores are divided by 8, which is the root of d_k only where d_k is 64",
                1 / 3: "the scores are divided by a root that is rounded to 3; leave it as it is",
            }  # fmt: skip
            for value, sentence in known.items():
                if math.isclose(value, factor, rel_tol=1e-6):
                    raise Wrong(sentence)
            raise Wrong(
                f"where d_k is 10, the scores are divided by {1 / factor:.4g}, not by the root of 10, {root:.4g}"
            )
    expect("the weights without a mask", answer[1], right, wrong)
    expect(
        "the output without a mask",
        answer[0],
        right @ v,
        {
            "the output is the plain mean of the values: multiply weights and values": v.mean(2, True).expand(
                -1, -1, 4, -1
            )
        },
    )
    if not mine.attention(1000 * q, k, v)[1].isfinite().all():
        raise Wrong(
            "large scores give NaN, as exp overflows: softmax, or first subtract the largest score of the query"
        )
    for some in (q, k, v), (q[0, 0], k[0, 0], v[0, 0]):
        try:
            grade_masked_attention(mine, *some)
        except Wrong as wrong:
            axes = "" if some[0] is q else " of two axes"
            raise Wrong(f"right without a mask; with one{axes}: {wrong}") from wrong


def grade_masked_attention(mine: ModuleType, q: Tensor, k: Tensor, v: Tensor) -> None:
    """The second step: a mask, and a query that may attend to nothing."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(10)
    mask = torch.rand(2, 1, 4, 5, generator=torch.Generator().manual_seed(3)) < 0.6
    mask[..., 0], mask[..., 4] = True, False
    mask = mask if q.dim() == 4 else mask[0, 0]
    low, plain = scores.masked_fill(~mask, -math.inf), scores.softmax(dim=-1)
    output, weights = mine.attention(q.clone(), k.clone(), v.clone(), mask.clone())
    own = isinstance(weights, Tensor) and weights.shape == plain.shape
    leak = weights if own and weights.masked_fill(mask, 0.0).any() else plain
    short = weights if own and not same(weights.sum(-1), plain.sum(-1), 1e-9) else plain
    expect(
        "the weights under a mask", weights, low.softmax(dim=-1), {
            "the mask means the opposite: True should mean may attend": scores.masked_fill(mask, -math.inf).softmax(-1),
            "the mask is not used": plain,
            "one of two fills of the mask means the opposite: is a ~ missing, or a low number high?":
                scores.masked_fill(mask, -math.inf).softmax(dim=-1).masked_fill(~mask, 0.0),
            "weights are set to zero after the softmax, so a row no longer sums to one: before it, forbidden scores "
            "should be low (masked_fill returns a new tensor: scores = …)": plain * mask,
            "forbidden scores are set to 0, which is not low: exp(0) is 1": scores.masked_fill(~mask, 0.0).softmax(-1),
            "forbidden scores are 0 in the softmax, which is not low: exp(0) is 1":
                scores.masked_fill(~mask, 0.0).softmax(dim=-1).masked_fill(~mask, 0.0),
            "the mask is added, so allowed scores grow by 1; fill the forbidden ones": (scores + mask).softmax(dim=-1),
            "forbidden keys still get weights; their scores should be as low as a number can be": leak,
            "the weights of a query do not sum to one: before the softmax, the forbidden scores are not low enough":
                short,
        }, tolerance=1e-12,
    )  # fmt: skip
    expect(
        "the output under a mask",
        output,
        low.softmax(dim=-1) @ v,
        {"the mask is in the weights that are returned, but the output is made without it": plain @ v},
    )
    mask[..., 1, :] = False
    q = q.clone().requires_grad_()
    output, weights = mine.attention(q, k, v, mask)
    if weights[..., 1, :].isnan().any():
        raise Wrong(
            "a query that may attend to nothing gets NaN: its scores are minus infinity, or its exponentials sum to 0"
        )
    mean, nothing = torch.full_like(plain[..., 1, :], 0.2), torch.zeros_like(plain[..., 1, :])
    same_score = {"a query that may attend to nothing gets the mean of all values": mean}
    expect("what a query gets that may attend to nothing", weights[..., 1, :], nothing, same_score)
    (gradient,) = torch.autograd.grad(output.sum(), q)
    if not gradient.isfinite().all():
        raise Wrong(
            "a query that may attend to nothing gets a gradient of NaN: use a very low finite number, such as "
            "torch.finfo(scores.dtype).min, and set its weights to 0 after the softmax"
        )
    try:
        mine.attention(q.half(), k.half(), v.half(), mask)
    except RuntimeError as error:
        raise Wrong("a constant such as -1e9 does not fit float16: torch.finfo(scores.dtype).min does") from error


@gap(3, "split_heads")
def grade_split_heads(mine: ModuleType) -> None:
    """Each head has its own block of every token's numbers."""
    x = random(2, 12, 24)
    for heads in (3, 4):
        d_k = 24 // heads
        cut = x.view(2, 12, heads, d_k)
        wrong = {
            "tokens are mixed: cut each token's vector first, then move the heads to the front":
                x.view(2, heads, 12, d_k),
            "tokens are mixed: view or reshape does not move axes; cut each token, then transpose":
                x.view(2, heads, d_k, 12).transpose(2, 3),
            "the heads stand behind the tokens: expected (batch, heads, length, d_k)": cut,
            f"the first head has every {'third' if heads == 3 else 'fourth'} number of a token instead of the first "
            f"{d_k}": x.view(2, 12, d_k, heads).permute(0, 3, 1, 2),
            "the last two axes are the wrong way round: expected (batch, heads, length, d_k)": cut.permute(0, 2, 3, 1),
            "the heads stand before the batch": cut.permute(2, 0, 1, 3),
            "each head has the whole token; cut it into parts": x[:, None].expand(-1, heads, -1, -1),
            "it makes d_k heads, each num_heads wide: the other way round": x.view(2, 12, d_k, heads).transpose(1, 2),
            "the sentence is cut into parts; cut each token's vector": x.view(2, heads, -1, 24),
            "the heads stand in the opposite order": cut.transpose(1, 2).flip(1),
            "heads and batch are one axis; they should stay two": cut.transpose(1, 2).flatten(0, 1),
        }  # fmt: skip
        expect(
            f"what split_heads returns for {heads} heads",
            mine.split_heads(x.clone(), heads),
            cut.transpose(1, 2),
            wrong,
        )
    behaves(mine.split_heads, x=x, num_heads=4)


@gap(3, "merge_heads")
def grade_merge_heads(mine: ModuleType) -> None:
    """The opposite of splitting."""
    x = random(2, 3, 4, 5)  # three heads, four tokens
    right = x.transpose(1, 2).flatten(2)
    wrong = {
        "tokens are mixed: move the heads behind the tokens before you join them": x.reshape(2, 4, 15),
        "tokens are mixed: reshape joins neighbours, so heads and d_k should stand last":
            x.transpose(2, 3).reshape(2, 4, 15),
        "the numbers of the heads alternate; those of one head should stand together": x.permute(0, 2, 3, 1).flatten(2),
        "the heads are still apart: join the last two axes": x.transpose(1, 2),
        "the heads are added instead of set side by side": x.sum(dim=1),
        "the heads are averaged instead of set side by side": x.mean(dim=1),
        "the heads stand in the opposite order": x.flip(1).transpose(1, 2).flatten(2),
        "the heads stand one below the other; set them side by side, in each token": x.flatten(1, 2),
        "it returns one head alone": x[:, 0],
        "the tokens are joined as well: only heads and d_k become one axis": right.flatten(1),
    }  # fmt: skip
    expect("what merge_heads returns", mine.merge_heads(x.clone()), right, wrong)
    other = random(3, 2, 5, 4)
    expect("merge_heads of two heads", mine.merge_heads(other.clone()), other.transpose(1, 2).flatten(2))
    behaves(mine.merge_heads, x=x)


@gap(3, "MultiHeadAttention")
def grade_multi_head(mine: ModuleType) -> None:
    """The scale, the number of projections, who reads whom, and what every multi-head attention does."""
    d_model, num_heads = 24, 6
    d_k = d_model // num_heads
    torch.manual_seed(0)
    layer = mine.MultiHeadAttention(d_model, num_heads)
    if not isinstance(layer, nn.Module):
        raise Wrong("it should be an nn.Module: class MultiHeadAttention(nn.Module)")
    one = torch.ones(1, 1, d_model).double()
    try:
        answer = layer.double()(one, one, one)
    except NotImplementedError as error:
        if str(error) == "chapter 3: write MultiHeadAttention" and matrices(layer) == 4 * d_model**2:
            raise Wrong("__init__ makes four projections, as it should; now write forward") from error
        raise
    except RuntimeError as error:
        widths = {
            f"x{d_k} and {d_model}x": "a projection gets the part of a head: project, then split; merge, then project",
            f"x{num_heads} and {d_model}x": "the weights are merged; of what attention returns, the output is first",
        }
        for seen, words in widths.items():
            if seen in str(error):
                raise Wrong(words) from error
        raise
    if not isinstance(answer, Tensor):
        missing = ": is a return missing?" if answer is None else ""
        raise Wrong(f"forward should return the output alone; it returns a {type(answer).__name__}{missing}")
    if (have := matrices(layer)) != 4 * d_model**2:
        raise Wrong(
            f"its matrices hold {have} numbers; four projections of {d_model} to {d_model} hold {4 * d_model**2}: "
            "for queries, keys, values, and for the merged heads"
        )
    layer = mine.MultiHeadAttention(8, 2).double()
    query, key, value = random(2, 3, 8), random(2, 4, 8, seed=1), random(2, 4, 8, seed=2)
    try:
        layer(query.clone(), key.clone(), value.clone())
    except RuntimeError as error:
        if "place" in str(error) or "dtype" in str(error):
            raise
        raise Wrong(
            "with 3 queries and 4 keys it raises: make queries from query, keys from key, values from value "
            f"({one_line(error)})"
        ) from error
    behaves(layer, query=query, key=key, value=value)
    query, value = query.requires_grad_(), value.requires_grad_()

    def reads(tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        """Which of these tokens have an effect on which of the three answers."""
        answers = layer(query, key, value, mask).unbind(1)
        return torch.stack([torch.autograd.grad(a.sum(), tokens, retain_graph=True)[0].any(-1) for a in answers], dim=1)

    if (reads(query) & ~torch.eye(3).bool()).any():
        raise Wrong(
            "tokens are mixed, as by a reshape without a transpose: what one gets depends on the queries of others"
        )
    every = torch.ones(2, 3, 4).bool()
    mask = torch.tensor([[[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0]], [[1, 1, 1, 0], [1, 0, 0, 0], [1, 0, 1, 0]]])[
        :, None
    ].bool()
    expect(
        "who reads which value", reads(value), every, {"later keys are hidden; without a mask none is": every.tril()}
    )
    for training in (False, True):
        layer.train(training)
        try:
            read = reads(value, mask)
        except RuntimeError as error:
            raise Wrong(
                f"it runs without a mask, but not with one: hand the mask to attention as it comes ({one_line(error)})"
            ) from error
        expect(
            "who reads which value under a mask" + training * ", in training", read, mask[:, 0], {
                "the mask is not used" + training * " in training": every,
                "the mask means the opposite: True should mean may attend": ~mask[:, 0],
                "the first mask of the batch is used for all": mask[:1, 0].expand(2, -1, -1),
                "the mask of the first query is used for all": mask[:, 0, :1].expand(-1, 3, -1),
            },
        )  # fmt: skip
    # Every projection now gives minus twice the mean of its input, in every channel, so answers are known.
    layer = filled(mine.MultiHeadAttention(d_model, num_heads), -2 / d_model)
    for sign in (1, -1):
        said = "with weights that sum to -2 and values that are {}, the output"
        known = {
            "the query is added here to the output; the layer does that": 4.0 * sign + 1,
            "the output, or the values, are projected twice": -8.0 * sign,
            "what comes out has passed a ReLU; projections have none": 0.0,
            "keys and values are swapped where attention is called; it takes q, k, v and the mask": 4.0,
        }
        expect(said.format(sign), layer(one, one, sign * one)[0, 0, 0].item(), 4.0 * sign, known)
    keys = torch.cat([one / 4, 0 * one], dim=1)
    scale = (layer(one, keys, 4 * keys)[0, 0, 0] / 4).logit().item()
    split = {
        f"{d_model} channels are split into {h} heads, not into {num_heads}: is num_heads used?": math.sqrt(d_model / h)
        for h in (2, 3, 4, 8, 12)
    }
    expect(
        "the size of the scores inside the layer", scale, math.sqrt(d_k), {
            "the scores are divided by the root of d_model; each head is d_k wide": d_k / math.sqrt(d_model),
            "the scores of a head are not divided by the root of d_k": float(d_k),
            "the heads are not split: one head looks at the whole width": math.sqrt(d_model),
            "the heads are not split, only the scale is that of a head": d_model / math.sqrt(d_k),
            "the scores are divided by the number of heads": d_k / num_heads,
            "queries or keys have passed a ReLU; projections have none": 0.0,
            "queries or keys are projected twice": -2 * math.sqrt(d_k),
            **split,
        },
    )  # fmt: skip
    layer = mine.MultiHeadAttention(8, 2).double()
    layer(query, key, value).square().sum().backward()
    for name, parameter in layer.named_parameters():
        if parameter.dim() > 1 and not parameter.grad.all():
            raise Wrong(f"a part of {name} has no effect: each head has its own queries, keys and values")
    torch.manual_seed(0)
    first_fault(check_multi_head_attention(mine.MultiHeadAttention(8, 2), 8, 2))


@gap(4, "sinusoidal_table")
def grade_sinusoidal_table(mine: ModuleType) -> None:
    """Sines in even channels, cosines in odd ones, and the speeds of the paper."""
    n, d = 4, 6
    right = sinusoidal_table(n, d)
    position, channel, pair = (
        torch.arange(n).double()[:, None],
        torch.arange(d).double(),
        torch.arange(0, d, 2).double(),
    )

    def turns(angle: Tensor) -> Tensor:
        """A sine and a cosine of each of three angles, or of each one's own channel of six."""
        three = angle.size(1) == 3
        return torch.stack(
            [angle.sin() if three else angle.sin()[:, ::2], angle.cos() if three else angle.cos()[:, 1::2]], dim=-1
        ).flatten(1)

    def speeds(exponent: Tensor, base: float = 10000.0) -> Tensor:
        return turns(position * base**exponent)

    angle = position * 10000.0 ** (-pair / d)
    table = mine.sinusoidal_table(n, d)
    wrong = {
        "sines stand in the first half and cosines in the second: they should alternate":
            torch.cat([angle.sin(), angle.cos()], 1),
        "sines and cosines are swapped: the sine comes first": right.view(n, -1, 2).flip(-1).flatten(1),
        "all channels are sines; the odd ones (1, 3, …) are cosines": angle.sin().repeat_interleave(2, 1),
        "all channels are cosines; the even ones (0, 2, …) are sines": angle.cos().repeat_interleave(2, 1),
        "a sine and its cosine have different speeds: both channels of a pair take 2i": speeds(-channel / d),
        "each channel has a speed of its own, and the exponent is twice as large: both channels of a pair take "
        "2i / d_model": speeds(-2 * channel / d),
        "positions count from 1: the first one is 0": sinusoidal_table(n, d, start=1),
        "the positions are divided by the length; they are 0, 1, 2, …": turns(angle / n),
        "the positions run from 0 to 1; they are 0, 1, 2, …": turns(angle / (n - 1)),
        "the positions run backwards": right.flip(0),
        "the angles are multiplied by 10000^(2i/d); divide by it": speeds(pair / d),
        "the exponent is twice what it should be: channel 2i takes 2i / d_model": speeds(-2 * pair / d),
        "the exponent is half of what it should be: channel 2i takes 2i / d_model": speeds(-pair / 2 / d),
        "the exponents begin with 1 / d_model; with 0 / d_model they should": speeds(-(pair + 1) / d),
        "the exponent is divided by something else than d_model, by 512": speeds(-pair / 512),
        "the last pair should not reach 10000: the exponent is 2i / d_model, not i / (d_model / 2 - 1)":
            speeds(-pair / (d - 2)),
        "// makes whole numbers, so all channels have the same speed: the exponent is 2i / d_model": speeds(0 * pair),
        "// makes whole numbers, so exponents are rounded down to -1: / divides": speeds(torch.floor(-pair / d)),
        "only the base has the exponent, the division by d_model comes after it: brackets":
            turns(position * 10000.0**-pair / d),
        "the speed is added to the position; multiply them": turns(position + 10000.0 ** (-pair / d)),
        "the speed is multiplied with the sine; it belongs inside, sin(position * speed)":
            (10000.0 ** (-pair / d)).repeat_interleave(2) * turns(position.expand(-1, 3)),
        "the angles are taken for degrees": turns(torch.deg2rad(angle)),
        "the angles are multiplied by 2 pi": turns(2 * math.pi * angle),
        "log10 is not the logarithm to e that exp needs": speeds(-pair / d, math.exp(4)),
        **{f"the base is {base:.6g}; it should be 10000": speeds(-pair / d, base)
           for base in (math.e, 100, 1000, 100000, 1000000)},
    }  # fmt: skip
    if isinstance(table, Tensor) and table.shape == right.shape:
        good = [same(table[:, i::2], right[:, i::2], 5e-4) for i in (0, 1)]
        wrong["the sines are right; the cosines (channels 1, 3, …) are not"] = table if good[0] else right
        wrong["the cosines are right; the sines (channels 0, 2, …) are not"] = table if good[1] else right
    expect("the table", table, right, wrong, tolerance=5e-4)
    for n, d in (3, 2), (200, 8):
        expect(
            f"the table of {n} positions and {d} channels",
            mine.sinusoidal_table(n, d),
            sinusoidal_table(n, d),
            tolerance=1e-4,
        )
    behaves(mine.sinusoidal_table, length=4, d_model=6)
    if table.requires_grad:
        raise Wrong("the table is made of constants; nothing in it is learned, so no nn.Parameter")


@gap(5, "padding_mask")
def grade_padding_mask(mine: ModuleType) -> None:
    """True at real tokens, on the axis of the keys."""
    tokens = torch.tensor([[5, 2, 3, 3], [3, 7, 0, 1]])
    real = tokens != 3

    def keys(mask: Tensor) -> Tensor:
        return mask[:, None, None, :]

    expect(
        "the padding mask", mine.padding_mask(tokens.clone(), 3), keys(real), {
            "it means the opposite: True should mean a real token": keys(~real),
            "it stands on the axis of the queries; the keys are the last axis": real[:, None, :, None],
            "it lacks the axes of heads and queries: expected (batch, 1, 1, length)": real,
            "it lacks one axis: expected (batch, 1, 1, length)": real[:, None, :],
            "the batch does not stand first: expected (batch, 1, 1, length)": real[None, None],
            "it hides token 0, not the token pad_id": keys(tokens != 0),
            "it hides token 1, not the token pad_id": keys(tokens != 1),
            "it hides the tokens that are smaller than pad_id as well": keys(tokens > 3),
            "it hides the tokens that are greater than pad_id as well": keys(tokens < 3),
            "it hides all tokens like the last one, not the token pad_id": keys(tokens != tokens[:, -1:]),
            "it hides nothing": keys(tokens == tokens),
            "it also hides the queries that are padding: only keys are hidden": real[:, None, :, None] & keys(real),
        },
    )  # fmt: skip
    behaves(mine.padding_mask, tokens=tokens, pad_id=3)
    elsewhere(lambda moved: mine.padding_mask(moved, 3), tokens)


@gap(5, "causal_mask")
def grade_causal_mask(mine: ModuleType) -> None:
    """True on and below the diagonal."""
    for n in (4, 1):
        full = torch.ones(1, 1, n, n, dtype=torch.bool)
        found = mine.causal_mask(n)
        if isinstance(found, Tensor) and found.shape in ((n, n), (1, n, n)):
            found = found.expand(1, 1, n, n)  # it fits as well
        expect(
            "the causal mask", found, full.tril(), {
                "it means the opposite: True should mean may attend": ~full.tril(),
                "it hides the past and shows the future: True belongs on and below the diagonal": full.triu(),
                "a position may not attend to itself: the diagonal should be True": full.tril(-1),
                "a position sees one token of the future": full.tril(1),
                "it hides nothing": full,
                "it hides everything": ~full,
                "a position may attend to itself only; the past should be True as well": full.tril().triu(),
                "a position sees only the token before it; all earlier ones should be True": full.tril().triu(-1),
            },
        )  # fmt: skip
    behaves(mine.causal_mask, length=3)


@gap(6, "LayerNorm")
def grade_layer_norm(mine: ModuleType) -> None:
    """Each token by itself, with the variance of all its numbers, and both learned vectors."""
    d, x = 6, 0.02 * random(2, 3, 6) + 1
    norm = mine.LayerNorm(d).double()
    parameters = [p for p in norm.parameters() if p.numel() == d]
    factors, offsets = ([p for p in parameters if bool((p == start).all())] for start in (1, 0))
    if len(factors) != 1 or len(offsets) != 1 or len([*norm.parameters()]) != 2:
        made = ", ".join(f"{name} of shape {tuple(p.shape)}" for name, p in norm.named_parameters())
        raise Wrong(
            "one nn.Parameter should begin as ones, the factors, and another as zeros, the offsets, each d_model long "
            f"(here d_model is {d}; it has {made or 'none'})"
        )
    w, b = random(d, seed=1), random(d, seed=2)
    with torch.no_grad():
        factors[0].copy_(w.view_as(factors[0]))
        offsets[0].copy_(b.view_as(offsets[0]))
    mean, variance = x.mean(-1, True), x.var(-1, keepdim=True, unbiased=False)
    centred, size, square = x - mean, torch.sqrt(variance + 1e-5), x.square().mean(-1, True)
    normed, token = centred / size, "all tokens of a sentence; each token has its own"
    every, axis = (
        "everything, the whole batch; each token has its own: dim=-1",
        "the tokens, not over the numbers of a token",
    )

    def over(*axes: int) -> Tensor:
        """Mean and variance over other axes than the last one."""
        return (x - x.mean(axes, True)) / torch.sqrt(x.var(axes, keepdim=True, unbiased=False) + 1e-5)

    wrong = {
        "the variance is divided by d - 1: give unbiased=False": centred / torch.sqrt(x.var(-1, keepdim=True) + 1e-5),
        "1e-5 is added to the root of the variance, not to the variance": centred / (variance.sqrt() + 1e-5),
        "the variance is divided by d - 1 (give unbiased=False), and 1e-5 is added to its root":
            centred / (x.std(-1, keepdim=True) + 1e-5),
        "it divides by the variance, not by its root": centred / (variance + 1e-5),
        "it divides by the square of the variance; by its root it should": centred / (variance + 1e-5) ** 2,
        "it multiplies by the root of the variance; divide by it": centred * size,
        "the mean is not subtracted": x / size,
        "only the mean is divided: are brackets missing?": x - mean / size,
        "the mean is subtracted after the division: are brackets missing?": x / size - mean,
        "it divides by the root of the mean square; subtract the mean first": x / torch.sqrt(square + 1e-5),
        "the mean square is not the variance: it is taken of x - mean": centred / torch.sqrt(square + 1e-5),
        "it divides by the mean distance from the mean, not by the root of the variance":
            centred / centred.abs().mean(-1, True),
        "the mean is subtracted, but nothing is divided": centred,
        "1e-5 is left out": centred / variance.sqrt(),
        **{f"the mean runs over {of}": (x - x.mean(a, True)) / size
           for of, a in ((token, (1, 2)), (every, (0, 1, 2)), (axis, 1))},
        **{f"the variance runs over {of}": centred / torch.sqrt(x.var(a, keepdim=True, unbiased=False) + 1e-5)
           for of, a in ((token, (1, 2)), (every, (0, 1, 2)), (axis, 1))},
        f"mean and variance run over {token}": over(1, 2),
        f"mean and variance run over {every}": over(0, 1, 2),
        f"mean and variance run over {axis}": over(1),
        "mean and variance run over the sentences of the batch": over(0),
        **{f"{e:.0e} is added to the variance; it should be 1e-5": centred / torch.sqrt(variance + e)
           for e in (1e-3, 1e-4, 1e-6, 1e-7, 1e-8, 1e-12)},
    }  # fmt: skip
    learned = {
        "the factors are used before the division only in part: first subtract and divide, then multiply":
            (x * w - mean) / size + b,
        "the offsets are added before the factors multiply; multiply first": (normed + b) * w,
        "the factors multiply the offsets, not what is normed": normed + b * w,
        "factors and offsets are swapped": normed * b + w,
        "the offsets are subtracted; add them": normed * w - b,
        "1 is added to the factors, which begin as 1 already": normed * (1 + w) + b,
        "the factors are used twice": normed * w * w + b,
        "the factors are not used": normed + b,
        "the offsets are not used": normed * w,
    }  # fmt: skip
    behaves(norm, x=x)
    expect("the result", norm(x.clone()), normed * w + b, {name: z * w + b for name, z in wrong.items()} | learned)


@gap(6, "FeedForward")
def grade_feed_forward(mine: ModuleType) -> None:
    """Two matrices, a ReLU between them, each token by itself."""
    d, d_ff = 4, 6
    network = mine.FeedForward(d, d_ff).double()
    x = random(2, 3, d) + 0.3
    network(x.clone())
    expect(
        f"where d_model is {d} and d_ff {d_ff}, the count of numbers in its matrices", matrices(network), 2 * d * d_ff
    )
    behaves(network, x=x)

    def first(z: Tensor) -> Tensor:
        """The first linear map, if all weights are w and all biases 0; the second is alike."""
        return w * z.sum(-1, keepdim=True).expand(*z.shape[:-1], d_ff)

    def second(z: Tensor) -> Tensor:
        return w * z.sum(-1, keepdim=True).expand(*z.shape[:-1], d)

    for w in (1.0, -1.0):
        hidden = first(x)
        right = second(hidden.relu())
        wrong = {
            "there is no ReLU between the two linear maps": second(hidden),
            "the ReLU comes last, after the second linear map": second(hidden).relu(),
            "there is a second ReLU, after the second linear map": right.relu(),
            "the ReLU comes first, before the first linear map": second(first(x.relu())),
            "there are two ReLUs, the first before the first linear map": second(first(x.relu()).relu()),
            "it keeps the negative numbers; a ReLU keeps the positive ones": second(-(-hidden).relu()),
            "x is added here; the layer does that": x + right,
            "a softmax stands at the end; nothing follows the second linear map": right.softmax(dim=-1),
            "x is normed here; the layer does that": second(first(F.layer_norm(x, (d,))).relu()),
            "the result is normed here; the layer does that": F.layer_norm(right, (d,)),
            **{f"between the linear maps stands {name}; it should be a ReLU": second(f(hidden))
               for name, f in (("a GELU", F.gelu), ("a sigmoid", torch.sigmoid), ("a tanh", torch.tanh),
               ("a leaky ReLU", F.leaky_relu), ("an absolute value", torch.abs), ("a softplus", F.softplus),
               ("a SiLU", F.silu), ("a softmax", lambda z: z.softmax(-1)), ("an ELU", F.elu), ("a ReLU6", F.relu6),
               ("a square", torch.square))},
            **{f"tokens are mixed: {name}; each goes through the maps by itself": second(first(z).relu())
               for name, z in (("x is averaged over them", x.mean(1, True).expand_as(x)), ("x is added up along them",
               x.cumsum(1)), ("x is averaged over the batch", x.mean(0, True).expand_as(x)))},
        }  # fmt: skip
        expect(
            f"the result where all weights are {w:.0f} and all biases 0", filled(network, w)(x.clone()), right, wrong
        )


class Call(NamedTuple):
    """One call of a sub-layer: its name in the layer, the part, what it is given, and what stands for its output.

    A network that the layer has written out is two linear maps; `hidden` is what the first gives and the second gets.
    """

    name: str
    part: nn.Module
    given: list[Any]
    output: Tensor
    hidden: tuple[Tensor, Tensor] | None = None


def calls_of(mine: ModuleType, layer: nn.Module, *inputs: Tensor | None) -> tuple[list[Call], Any]:
    """The calls of a layer's sub-layers, in their order, and what the layer returns, or the error that it raises.

    Attention and network are replaced by numbers that depend on nothing, so all that happens between them is seen.
    """
    calls: list[Call] = []
    kinds = (mine.MultiHeadAttention, mine.FeedForward)

    def replace(name: str, part: nn.Module, forward: Callable[..., Any], *given: Any, **named: Any) -> Tensor:
        bound = inspect.signature(forward).bind(*given, **named)
        bound.apply_defaults()
        read = [*bound.arguments.values()]
        if isinstance(part, nn.Linear) and not (calls and isinstance(calls[-1].part, nn.Linear)):
            made = forward(*read)
            calls.append(Call(name, part, read, made))
            return made
        output = random(*read[0].shape, seed=50 + len(calls)).requires_grad_()
        if isinstance(part, nn.Linear):
            first = calls.pop()
            output = random(*first.given[0].shape, seed=50 + len(calls)).requires_grad_()
            both = nn.Sequential(first.part, part)
            calls.append(Call(f"{first.name}, {name}", both, first.given, output, (first.output, read[0])))
        else:
            calls.append(Call(name, part, read, output))
        return output

    own = {name: part for name, part in layer.double().named_modules() if isinstance(part, kinds)}
    inside = {module for part in own.values() for module in part.modules()}
    own |= {name: m for name, m in layer.named_modules() if isinstance(m, nn.Linear) and m not in inside}
    for name, part in own.items():
        part.forward = partial(replace, name, part, part.forward)
    try:
        result: Any = layer(*inputs)
    except (RuntimeError, TypeError) as error:
        result = error
    for part in own.values():
        del part.forward
    return calls, result


NEITHER = "it is neither pre-norm, x + f(norm(x)) for each sub-layer f, nor post-norm, norm(x + f(x))"
BLIND = "{name} does not see what {before} has added: each sub-layer reads the sum that the last one made"
LOST = "what {before} adds is lost in a later sum: add each output to the sum so far, not to x"
AFTER = "a norm stands on the output of a sub-layer; it stands before it, or after the sum"
NOT_ADDED = "the output of a sub-layer is not added to x: {name}"
BARE = "{name} is given the sum without a norm, and no norm follows: x + f(norm(x)), or norm(x + f(x))"
BOTH = "one norm stands before its sub-layer and after the sum as well: {name}"
# What a sub-layer may be given: x = the sum so far, old = the one before that, n and m = norms. Right ones, then wrong.
READS: list[tuple[str, Callable[..., Tensor]]] = [
    ("pre", lambda x, old, n, m: n(x)),
    ("post", lambda x, old, n, m: x),
    ("{name} is given the norm of a norm: one is enough", lambda x, old, n, m: m(n(x))),
    (BLIND, lambda x, old, n, m: n(old)),
    (BLIND, lambda x, old, n, m: old),
    (BLIND + " (nor is a second norm needed)", lambda x, old, n, m: n(m(old))),
    ("{name} is given the output of {before} alone, not the sum", lambda x, old, n, m: n(x - old)),
    ("{name} is given the sum after a ReLU; only the network has one, inside", lambda x, old, n, m: n(x).relu()),
]  # fmt: skip
# What may become of x and f, the output of a sub-layer that was given z.
SUMS: list[tuple[str, Callable[..., Tensor]]] = [
    ("pre", lambda x, old, start, z, f, n: x + f),
    ("post", lambda x, old, start, z, f, n: n(x + f)),
    (LOST, lambda x, old, start, z, f, n: old + f),
    (LOST, lambda x, old, start, z, f, n: n(old + f)),
    (LOST, lambda x, old, start, z, f, n: start + f),
    (AFTER, lambda x, old, start, z, f, n: x + n(f)),
    ("the output of a sub-layer is added to norm(x); add it to x: {name}", lambda x, old, start, z, f, n: z + f),
    ("the output of {name} is added to the norm of an earlier sum", lambda x, old, start, z, f, n: n(old) + f),
    (NOT_ADDED, lambda x, old, start, z, f, n: f),
    (NOT_ADDED, lambda x, old, start, z, f, n: n(f)),
    ("x is added twice", lambda x, old, start, z, f, n: 2 * x + f),
    ("x is added twice", lambda x, old, start, z, f, n: n(2 * x + f)),
    ("the output of {name} is added twice", lambda x, old, start, z, f, n: x + 2 * f),
    ("the output of {name} is halved; add the whole", lambda x, old, start, z, f, n: x + f / 2),
    ("the sum at {name} is halved: add, and do not average", lambda x, old, start, z, f, n: (x + f) / 2),
    ("the output of {name} is subtracted; add it", lambda x, old, start, z, f, n: x - f),
    ("the output of {name} is multiplied with x; add it", lambda x, old, start, z, f, n: x * f),
    ("a ReLU follows {name}; its output is added as it comes", lambda x, old, start, z, f, n: x + f.relu()),
]  # fmt: skip


class Way(NamedTuple):
    """How the sums went on: the sum and the one before it, the orders, the norms, and how many steps are wrong."""

    total: Tensor
    old: Tensor
    orders: tuple[str, ...] = ()
    norms: tuple[nn.Module, ...] = ()
    wrong: int = 0

    def cost(self) -> tuple[int, int, int]:
        """What is least in the likeliest of several ways."""
        return self.wrong, len(set(self.orders)), -len(set(self.norms))


def ways(norms: list[nn.Module], calls: list[Call], x: Tensor) -> list[Way]:
    """All sums that agree with what the sub-layers were given, each with the least wrong way to it."""
    found = [Way(x, x)]
    for call in calls:
        after = dict[float, Way]()
        for way, (read, given), n, m in product(found, READS, norms, norms):
            if (m is not n and "norm" not in read) or not same(given(way.total, way.old, n, m), call.given[0], 1e-9):
                continue
            for (then, add), k in product(SUMS, norms):
                wrong = [order for order in (read, then) if order not in ("pre", "post")]
                order = read if read == then else wrong[0] if wrong else BARE if read == "post" else BOTH
                total = add(way.total, way.old, x, call.given[0], call.output, k)
                orders, own = (*way.orders, order), (*way.norms, k if then == "post" else n)
                step = Way(total, way.total, orders, own, way.wrong + (read != then))
                key = round(total.sum().item(), 7)
                if key not in after or step.cost() < after[key].cost():
                    after[key] = step
        found = [*after.values()]
        if not found:
            raise Wrong(f"{NEITHER}; {call.name} is given something else")
    return found


def inputs_are_right(
    mine: ModuleType, calls: list[Call], given: list[Tensor], masks: Sequence[Tensor | None], result: Any
) -> None:
    """The right sub-layers in the right order, each with its own keys, values and mask."""
    kinds = ["self-attention", "attention to the memory", "feed-forward"]
    x, memory = given[0], given[-1]
    order = [
        kinds[2] if not isinstance(call.part, mine.MultiHeadAttention)
        else kinds[any(isinstance(z, Tensor) and z.size(1) == 4 for z in call.given[:3])]
        for call in calls
    ]  # fmt: skip
    if len(given) == 2 and kinds[1] not in order and not isinstance(result, Exception):
        raise Wrong("the memory changes nothing: the keys and values of the second attention are made of it")
    for kind, (name, _, (query, *others), _, hidden) in zip(order, calls):
        if hidden and not same(hidden[0].relu(), hidden[1], 1e-9):
            raise Wrong(f"there is no ReLU between {name.replace(', ', ' and ')}")
        if kind == kinds[2]:
            continue
        key, value, mask, *_ = [*others, None, None, None]
        if kind == kinds[0] and not (same(key, query, 0) and same(value, query, 0)):
            raise Wrong(f"{name} is not given one tensor as queries, keys and values; in self-attention it is one")
        if kind == kinds[1] and query.shape != x.shape:
            raise Wrong(f"{name} takes its queries from the memory; they come from x, keys and values from the memory")
        if kind == kinds[1] and not (same(key, memory, 0) and same(value, memory, 0)):
            other = " and ".join(what for what, z in (("keys", key), ("values", value)) if not same(z, memory, 0))
            raise Wrong(
                f"{name} should get the memory as it comes from the encoder, as keys and as values; its {other} are "
                "something else"
            )
        if kind == kinds[1] and not key.requires_grad:
            raise Wrong("no gradient reaches the memory, so the encoder would not learn: is there a detach?")
        own = kinds.index(kind)
        named = ("mask", "memory_mask")[own]
        if masks[own] is None and mask is not None and not mask.all():
            raise Wrong(f"{name} hides keys when the layer is given no mask")
        if masks[own] is not None and not same(mask, masks[own], 0):
            inverted = isinstance(mask, Tensor) and same(mask.logical_not(), masks[own], 0)
            found = "something else" if not inverted else "its opposite: True should mean may attend"
            found = "the mask of the other attention" if same(mask, masks[1 - own], 0) else found
            raise Wrong(
                f"{name} is not given {named}, so the mask is not used"
                if mask is None
                else f"{name} should be given {named} as it comes; it is given {found}"
            )
    if len(given) == 2 and "must match the size" in str(result):
        raise Wrong(
            f"after {calls[-1].name}, numbers of x and of the memory are added: all outputs are added to x"
        ) from result
    if isinstance(result, Exception):
        raise result
    wanted = kinds[:: 2 if len(given) == 1 else 1]
    if order != wanted:
        raise Wrong(f"the sub-layers should be {', '.join(wanted)}, in this order; here: {', '.join(order) or 'none'}")
    if len({call.part for call in calls}) < len(calls):
        raise Wrong(f"{calls[0].name} serves as both attentions; each has weights of its own")


def as_in_the_formula(
    mine: ModuleType, layer: nn.Module, given: list[Tensor], masks: Sequence[Tensor | None], known: Tensor | None = None
) -> Tensor:
    """A layer must give what its own parts give in the order of the formula, either pre-norm or post-norm.

    `known` is what it has given without masks, or in evaluation; where it gives the same, its sums are known, too.
    """
    norms = {part: name for name, part in layer.named_modules() if isinstance(part, (mine.LayerNorm, nn.LayerNorm))}
    with torch.no_grad():
        for seed, vector in enumerate(vector for norm in norms for vector in norm.parameters()):
            vector.copy_(random(*vector.shape, seed=seed))
    given = [x.clone().requires_grad_() for x in given]
    calls, result = calls_of(mine, layer, *given, *masks[: len(given)])
    inputs_are_right(mine, calls, given, masks, result)
    if not isinstance(result, Tensor):
        missing = ": is a return missing?" if result is None else "; return the tensor alone"
        raise Wrong(f"forward should return one tensor; it returns a {type(result).__name__}{missing}")
    if not same(result, calls_of(mine, layer, *given, *masks[: len(given)])[1], 1e-12):
        raise Wrong(
            "in evaluation two calls give two answers: dropout works there, too (make nn.Dropout in __init__, or give "
            "training=self.training)"
        )
    if known is not None and same(result, known, 1e-9):
        return result
    if len(norms) < len(calls):
        raise Wrong(f"it makes {len(norms)} norms; each of its {len(calls)} sub-layers has one of its own")
    with torch.no_grad():
        found = ways([*norms], calls, given[0])
    best = next((way for way in found if same(way.total, result, 1e-9)), None)
    for norm, way in product(norms, found):
        if best is None and not way.wrong and same(norm(way.total), result, 1e-9):
            raise Wrong(f"{norms[norm]} stands after the last sum as well; one norm for each sub-layer is enough")
    if best is None:
        raise Wrong(f"{NEITHER}; after {calls[-1].name} comes something else")
    for before, call, order in zip([*calls[:1], *calls], calls, best.orders):
        if order not in ("pre", "post"):
            raise Wrong(order.format(name=call.name, before=before.name))
    if len(set(best.orders)) > 1:
        raise Wrong("one norm stands before its sub-layer, another after the sum: choose one order for all")
    used = [norms[norm] for norm in best.norms]
    if again := [name for name in used if used.count(name) > 1]:
        raise Wrong(f"{again[0]} serves more than one sub-layer; each has a norm of its own")
    if not all(call.given[0].requires_grad for call in calls) or any(
        gradient is None for gradient in torch.autograd.grad(result.sum(), [c.output for c in calls], allow_unused=True)
    ):
        raise Wrong("no gradient comes through to a sub-layer or to x: is there a detach?")
    return result


def dropout_is_right(mine: ModuleType, layer: nn.Module, rate: float, *inputs: Tensor) -> None:
    """In training, the outputs of the sub-layers are dropped, each with this probability, and nothing else."""
    torch.manual_seed(0)
    given = [x.repeat(1, 100, 1).requires_grad_() for x in inputs]
    calls, result = calls_of(mine, layer.train(), *given)
    loud = (result * random(*result.shape)).sum()
    of_x, *gradients = torch.autograd.grad(loud, [given[0], *[call.output for call in calls]], materialize_grads=True)
    if (result == 0).any() or (of_x == 0).any():
        raise Wrong("dropout stands after the sum or after the norm, and drops x as well; it belongs on each output")
    for (name, _, read, *_), gradient in zip(calls, gradients):
        share = (gradient == 0).double().mean().item()
        if any((z == 0).any() for z in read[:3] if isinstance(z, Tensor)):
            raise Wrong(f"dropout stands before {name}; it belongs on its output, before that is added")
        if rate == 0.1 and abs(share - rate) > 0.05:
            raise Wrong(
                f"where no rate is given, dropout should be 0.1; it is {share:.1f}: def __init__(…, dropout=0.1)"
            )
        if share == 0:
            raise Wrong(f"{name} has no dropout: in training, a part of each output is dropped before it is added")
        if abs(share - 1 + (1 - rate) ** 2) < 0.02:
            raise Wrong(f"what {name} returns is dropped twice")
        if abs(share - rate) > 0.06:
            raise Wrong(f"with dropout={rate}, {share:.0%} of what {name} returns is dropped: pass the rate on")


def sizes_are_used(mine: ModuleType, build: Callable[..., nn.Module], *inputs: Tensor) -> None:
    """The number of heads and d_ff must reach the parts."""
    one, four = build(8, 1, 10).double().eval(), build(8, 4, 10).double().eval()
    for name, part, *_ in calls_of(mine, one, *inputs)[0]:
        try:
            part(*[inputs[0]] * (3 if isinstance(part, mine.MultiHeadAttention) else 1))
        except RuntimeError as error:
            raise Wrong(
                f"{name} does not take tokens that are d_model wide: are the sizes swapped in __init__?"
            ) from error
        if not isinstance(part, mine.MultiHeadAttention):
            expect(f"with d_model 8 and d_ff 10, the numbers in the matrices of {name}", matrices(part), 2 * 8 * 10)
            continue
        weights, four_heads = part.state_dict(), four.get_submodule(name)
        if [w.shape for w in weights.values()] == [w.shape for w in four_heads.state_dict().values()]:
            four_heads.load_state_dict(weights)
            if same(four_heads(*[inputs[0]] * 3), part(*[inputs[0]] * 3), 1e-9):
                raise Wrong(f"{name} gives the same with 1 head and with 4: pass num_heads on")


def steps(mine: ModuleType, build: Callable[..., nn.Module], *lengths: int) -> None:
    """Raise `Unfinished` if the constructor of a layer is written and its forward is not."""
    layer = build(8, 2, 16).double()
    try:
        layer(*(random(1, length, 8) for length in lengths))
    except NotImplementedError as error:
        if str(error) != f"chapter 6: write {build.__name__}":
            raise
        for kind, count in ((mine.MultiHeadAttention, len(lengths)), (mine.LayerNorm, len(lengths) + 1)):
            if (found := sum(isinstance(part, kind) for part in layer.modules())) != count:
                raise Wrong(f"__init__ makes {found} {kind.__name__}s; expected {count}") from None
        raise Unfinished("forward (__init__ is right)") from None
    except (RuntimeError, TypeError) as error:
        if "positional argument" in str(error):  # the others are seen more closely
            raise


def grade_layer(mine: ModuleType, build: Callable[..., nn.Module], *lengths: int) -> None:
    """The formula of exactly one order, with masks and without, in training, too; then its sizes, and dropout."""
    steps(mine, build, *lengths)
    inputs = [random(2, length, 8, seed=length) for length in lengths]
    hidden = torch.Generator().manual_seed(2)
    masks = [torch.rand(2, 1, n, lengths[-1] if n == 1 else 3, generator=hidden) < 0.6 for n in (3, 1)]
    layer = build(8, 2, 16).eval()
    plain = as_in_the_formula(mine, layer, inputs, [None, None])
    as_in_the_formula(mine, layer, inputs, masks, plain)
    sizes_are_used(mine, build, *inputs)
    for rate, other in ((0.75, build(8, 2, 10, 0.75)), (0.1, build(8, 2, 10))):
        dropout_is_right(mine, other, rate, *inputs)
    try:
        as_in_the_formula(mine, build(8, 2, 16, 0.0).train(), inputs, masks, plain)
    except Wrong as wrong:
        raise Wrong(f"right in evaluation; in training: {wrong}") from wrong
    all_used(build(8, 2, 16), *inputs)


@gap(6, "EncoderLayer")
def grade_encoder_layer(mine: ModuleType) -> None:
    """Self-attention and a feed-forward network."""
    grade_layer(mine, mine.EncoderLayer, 3)


@gap(6, "DecoderLayer")
def grade_decoder_layer(mine: ModuleType) -> None:
    """The same with attention to the memory between them."""
    grade_layer(mine, mine.DecoderLayer, 3, 4)


def enters(mine: ModuleType, found: Tensor, tables: list[Tensor], tokens: Tensor, what: str) -> None:
    """What enters a stack must be rows of one of these tables times the root of the width, plus the positions."""
    d, first = found.size(-1), tables[0][tokens]
    positions = mine.sinusoidal_table(tokens.size(1), d).to(found)
    if any(same(found, table[tokens] * d**0.5 + positions, 1e-5) for table in tables):
        return
    if (found == 0).any():
        raise Wrong("dropout runs in evaluation mode: make an nn.Dropout in __init__, and call that")
    wrong = {
        "the rows of the embedding are not multiplied by the root of d_model": lambda rows: rows + positions,
        "the positions are missing": lambda rows: rows * d**0.5,
        "the positions and the root of d_model are missing": lambda rows: rows,
        "the positions are multiplied by the root of d_model, too: only the rows are": lambda rows: (
            (rows + positions) * d**0.5
        ),
        "the rows are multiplied by d_model, not by its root": lambda rows: rows * d + positions,
        "the rows are divided by the root of d_model; multiply them": lambda rows: rows / d**0.5 + positions,
    }
    known = {f"{sentence} ({what})": make(table[tokens]) for sentence, make in wrong.items() for table in tables}
    expect(what, found, first * d**0.5 + positions, known, 1e-5)


class Pass(NamedTuple):
    """One call of a layer of a stack: what it is given, by name, and what it returns."""

    given: dict[str, Any]
    made: Tensor


def passes(model: nn.Module, kind: type[nn.Module], names: str) -> list[Pass]:
    """A list that grows with each call of a layer of this kind."""
    found: list[Pass] = []

    def keep(layer: nn.Module, given: tuple[Any, ...], named: dict[str, Any], made: Tensor) -> None:
        signature = inspect.signature(layer.forward)
        values = signature.bind(*given, **named).arguments
        own = zip(names.split(), signature.parameters)  # the reader's own names, in this order
        found.append(Pass({name: values[theirs] for name, theirs in own if theirs in values}, made))

    for module in model.modules():
        if isinstance(module, kind):
            module.register_forward_hook(keep, with_kwargs=True)
    return found


def one_stack(found: list[Pass], count: int, name: str) -> None:
    """Each layer is called once, with what the one before returned."""
    if len(found) != count:
        raise Wrong(f"of {count} {name} layers, forward calls {len(found)}: loop over all")
    for before, after in pairwise(found):
        if not same(after.given["x"], before.made, 0.0):
            raise Wrong(f"a layer of the {name} does not get what the one before returned")


@gap(7, "Transformer")
def grade_transformer(mine: ModuleType) -> None:
    """The constructor, what enters a stack, both stacks; then every property of `check` without training."""
    sizes = dict(d_model=16, num_heads=2, d_ff=32, num_layers=3)
    model = mine.Transformer(9, 11, 5, **sizes).eval()
    for module in model.modules():
        for name, value in vars(module).items():
            if isinstance(value, list | tuple) and any(isinstance(each, nn.Module) for each in value):
                raise Wrong(f"{name} is a plain list, which hides its layers from the optimiser: use nn.ModuleList")
    for kind in (mine.EncoderLayer, mine.DecoderLayer):
        if (count := sum(isinstance(module, kind) for module in model.modules())) != 3:
            raise Wrong(f"for num_layers=3 it has {count} {kind.__name__}s: each stack has so many, of its own")
    encoder = passes(model, mine.EncoderLayer, "x mask")
    decoder = passes(model, mine.DecoderLayer, "x memory mask memory_mask")
    source, target = torch.tensor([[4, 6, 0, 5]]), torch.tensor([[3, 4, 7, 2]])
    try:
        answer = model(source, target)
    except NotImplementedError as error:
        if str(error) not in ("", "chapter 7: write Transformer"):
            raise
        table = nn.Embedding(9, 16)
        try:
            found = model.embed(source, table)
        except NotImplementedError:
            raise Unfinished("step 2, embed (step 1, __init__, is right)") from None
        enters(mine, found, [table.weight], source, "what embed returns")
        raise Unfinished("step 3, the encoder's half of forward (steps 1 and 2 are right)") from None

    one_stack(encoder, 3, "encoder")
    tables = [[p for p in model.parameters() if p.shape == (words, 16)] for words in (9, 11)]
    if tables[0]:
        enters(mine, encoder[0].given["x"], tables[0], source, "what enters the encoder")
    real = torch.ones(1, 2, 4, 4).bool() & (source != 5)
    for each in encoder:
        if (mask := each.given.get("mask")) is None:
            raise Wrong("a layer of the encoder gets no mask, so padded source tokens are read: give each source_mask")
        wrong = {
            "token 0 of the source is hidden although pad_id is 5: give padding_mask the pad_id of the model": (
                torch.ones_like(real) & (source != 0)
            )
        }
        expect("the mask of the encoder", mask.expand_as(real), real, wrong)
    if not decoder:
        if isinstance(answer, Tensor) and answer.size(-1) == 11:
            raise Wrong("forward never calls the decoder's layers")
        raise Unfinished("step 4, the decoder's half of forward (steps 1 to 3 are right)")
    one_stack(decoder, 3, "decoder")
    if tables[1]:
        enters(mine, decoder[0].given["x"], tables[1], target, "what enters the decoder")
    if not isinstance(answer, Tensor):
        raise Wrong(f"forward should return the logits; it returns a {type(answer).__name__}")
    if not all(same(each.given.get("memory"), decoder[0].given.get("memory"), 0.0) for each in decoder):
        raise Wrong("the decoder's layers get different memories: each reads what the last encoder layer returned")
    try:
        model(source, target[:, :2])
    except RuntimeError as error:
        advice = "a layer's own attention takes the mask of its own tokens, cross-attention that of the source"
        raise Wrong(f"source and target of unequal length: {advice} ({' '.join(str(error).split()):.90})") from error
    for place, where in ((torch.bfloat16, "in bfloat16"), ("meta", "on another device")):
        there = target.to("meta") if place == "meta" else target  # a device without numbers
        try:
            model.to(place)(there, there)
        except RuntimeError as error:
            advice = "bring the positions to the embeddings with .to(x), and the causal mask to target.device"
            raise Wrong(f"{where} it does not run: {advice} ({' '.join(str(error).split()):.90})") from error
    first_fault(check_transformer(lambda *vocabularies: mine.Transformer(*vocabularies, **sizes), training=False))


@gap(8, "make_batch")
def grade_make_batch(mine: ModuleType) -> None:
    """Two rectangles, filled up on the right."""
    pairs = [([5, 6, 2], [1, 7, 2]), ([8, 2], [1, 3, 4, 4, 2]), ([9, 3, 4, 2], [1, 2])]
    given = [(list(a), list(b)) for a, b in pairs]
    answer = mine.make_batch(given, 9)
    if given != pairs:
        raise Wrong("it changes the lists that it is given: make new ones")
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        raise Wrong("it should return two tensors, source and target")

    def padded(side: int, pad: int, length: int, left: bool = False) -> Tensor:
        rows = [pair[side] for pair in pairs]
        return torch.tensor(
            [[pad] * (length - len(r)) * left + r + [pad] * (length - len(r)) * (not left) for r in rows]
        )

    for side, name, length in ((0, "source", 4), (1, "target", 5)):
        if isinstance(answer[side], Tensor) and answer[side].dtype != torch.int64:
            raise Wrong(f"{name} should be int64; its dtype is {answer[side].dtype}")
        expect(
            name,
            answer[side],
            padded(side, 9, length),
            {
                "sentences are filled up on the left": padded(side, 9, length, left=True),
                "sentences are filled up with 0, not with pad_id": padded(side, 0, length),
                "both sides are filled up to one common length; each has its own": padded(side, 9, 5),
                "source and target are the wrong way round": padded(1 - side, 9, 9 - length),
                "all sentences are cut to the shortest": torch.tensor(
                    [p[side][: min(len(q[side]) for q in pairs)] for p in pairs]
                ),
            },
        )


@gap(8, "batches_by_length")
def grade_batches_by_length(mine: ModuleType) -> None:
    """No pair is lost, short ones come first, and every batch is as full as its budget allows."""
    budget = 12
    sizes = [(3, 2), (1, 1), (2, 7), (1, 2), (6, 4), (2, 2), (12, 3), (3, 1), (4, 4), (1, 3), (2, 4), (5, 6)]
    pairs = [([number] * n, [number] * m) for number, (n, m) in enumerate(sizes)]
    given = list(pairs)
    batches = mine.batches_by_length(given, budget)
    if given != pairs:
        raise Wrong("it changes the list that it is given: sorted() makes a new one")
    if sorted(pair for batch in batches for pair in batch) != pairs or not all(batches):
        found = sum(pair in batch for batch in batches for pair in pairs)
        raise Wrong(f"each of {len(pairs)} pairs should be in one batch; {found} are in {len(batches)} batches")
    lengths = [[max(len(side) for side in pair) for pair in batch] for batch in batches]
    if (order := [length for batch in lengths for length in batch]) != sorted(order):
        raise Wrong("the pairs do not go from short to long; the longer side of a pair counts")
    for batch in lengths:
        if len(batch) * batch[-1] > budget:
            raise Wrong(f"with a budget of {budget}, a batch has {len(batch)} pairs of up to {batch[-1]} tokens")
    for batch, following in pairwise(lengths):
        if (len(batch) + 1) * following[0] <= budget:
            raise Wrong(f"a batch of lengths {batch} has room for the next pair, of length {following[0]}")


@gap(9, "label_smoothed_loss")
def grade_label_smoothed_loss(mine: ModuleType) -> None:
    """The mean over real labels, with part of the probability spread over all tokens."""
    logits, labels = random(2, 3, 7), torch.tensor([[4, 2, 6], [1, 6, 6]])
    flat, real = logits.flatten(0, 1), labels.flatten()
    each = F.cross_entropy(flat, real, label_smoothing=0.2, ignore_index=6, reduction="none")
    counted = real != 6
    log_probs = flat.log_softmax(dim=-1)
    target = F.one_hot(real, 7).double()
    others = 0.8 * target + 0.2 / 6 * (1 - target)
    entropy = -(0.8 * target + 0.2 / 7).mul((0.8 * target + 0.2 / 7).log()).sum(-1)
    answer = mine.label_smoothed_loss(logits.clone(), labels.clone(), 6, 0.2)
    expect(
        "the loss",
        answer,
        each.sum() / counted.sum(),
        {
            "padding counts as well": F.cross_entropy(flat, real, label_smoothing=0.2),
            "the mean is over all positions; padding should not count": each.mean(),
            "it is the sum, not the mean": each.sum(),
            "nothing is smoothed": F.cross_entropy(flat, real, ignore_index=6),
            "the label is left out when the rest is spread: all V tokens share it": -(others * log_probs)
            .sum(-1)[counted]
            .mean(),
            "it is the Kullback-Leibler divergence, not the cross-entropy": (each - entropy)[counted].mean(),
            "the sign is wrong": -each.sum() / counted.sum(),
            "gather takes its tokens from other positions: give it the labels as (b, m, 1)": (
                -0.8 * logits.log_softmax(-1).gather(-1, labels[:, None])[:, 0] - 0.2 * logits.log_softmax(-1).mean(-1)
            )[labels != 6].mean(),
            "the label's own part lacks the factor (1 - smoothing)": -(
                log_probs.gather(-1, real[:, None])[:, 0] + 0.2 * log_probs.mean(-1)
            )[counted].mean(),
            "it is a mean of the sentences' means; each real label should count alike": torch.stack(
                [row[label != 6].mean() for row, label in zip(each.view_as(labels), labels)]
            ).mean(),
            "smoothing is always 0.1; use the argument": F.cross_entropy(
                flat, real, label_smoothing=0.1, ignore_index=6
            ),
        },
    )


@gap(9, "learning_rate")
def grade_learning_rate(mine: ModuleType) -> None:
    """Up in a straight line, then down as one over the root."""
    cases = [(1, 0.5, 4), (4, 0.5, 4), (9, 0.5, 4), (100, 2.0, 16)]
    known: dict[str, Callable[[int, float, int], float]] = {
        "there is no way up: the rate begins at its peak": lambda s, p, w: p * min(1.0, math.sqrt(w / s)),
        "it does not fall after the peak": lambda s, p, w: p * min(1.0, s / w),
        "it falls as 1 / step; it should fall as 1 / sqrt(step)": lambda s, p, w: p * min(s / w, w / s),
        "the peak is not used": lambda s, p, w: min(s / w, math.sqrt(w / s)),
        "the larger of the two is taken; the smaller is the rate": lambda s, p, w: p * max(s / w, math.sqrt(w / s)),
        "the curve should equal peak at step warmup: it lacks the factor sqrt(warmup)": lambda s, p, w: (
            p * min(s / w, s**-0.5)
        ),
        "it is not peak at step warmup: multiply by the root of warmup": lambda s, p, w: p * min(s * w**-1.5, s**-0.5),
        "steps count from 0; the first one is 1": lambda s, p, w: p * min((s - 1) / w, math.sqrt(w / max(s - 1, 1))),
    }
    found = [mine.learning_rate(*case) for case in cases]
    right = [p * min(s / w, math.sqrt(w / s)) for s, p, w in cases]
    for sentence, rate in known.items():
        wrong = [rate(*case) for case in cases]
        if all(same(a, b, 1e-12) for a, b in zip(found, wrong)) and wrong != right:
            raise Wrong(sentence)
    for (step, peak, warmup), have, want in zip(cases, found, right):
        expect(f"the rate of step {step} with peak {peak} and warmup {warmup}", have, want, tolerance=1e-12)


@gap(9, "training_step")
def grade_training_step(mine: ModuleType) -> None:
    """The model reads all but the last token, predicts all but the first, and its weights move by the rate."""
    source, target = torch.tensor([[3, 2], [4, 2]]), torch.tensor([[1, 3, 4, 2], [1, 4, 2, 0]])

    def run(step: Callable[..., Any]) -> tuple[list[Any], Tensor]:
        model = Bigrams(6, seed=0)
        optimizer = torch.optim.SGD([{"params": [model.table]}, {"params": [model.offset]}], lr=123.0)
        losses = [step(model, optimizer, source.clone(), target.clone(), 0, rate) for rate in (0.5, 0.25)]
        if step is mine.training_step:
            if not model.read:
                raise Wrong("the model is never called")
            if model.read[0].shape == target.shape:
                raise Wrong("the model reads the whole target; leave out its last token, which nothing follows")
        return losses, torch.cat([model.table.flatten(), model.offset]).detach()

    def step(
        model: Any, optimizer: Any, source: Tensor, target: Tensor, pad_id: int, rate: float, spoilt: str = ""
    ) -> float:
        groups = optimizer.param_groups[: 1 if spoilt == "group" else 0 if spoilt in ("rate", "late") else None]
        for group in groups:
            group["lr"] = rate
        labels = target[:, :-1] if spoilt == "labels" else target[:, 1:]
        logits = model(source, target[:, :-1])
        if spoilt == "twice":
            logits, labels = logits[:, :-1], labels[:, 1:]
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=pad_id, label_smoothing=0.1)
        if spoilt != "zero":
            optimizer.zero_grad()
        loss.backward()
        if spoilt != "still":
            optimizer.step()
        for group in optimizer.param_groups if spoilt == "late" else ():
            group["lr"] = rate
        return loss.item()

    losses, table = run(mine.training_step)
    if not all(isinstance(loss, float) for loss in losses):
        raise Wrong(f"it should return the loss as a number (loss.item()); it returns a {type(losses[0]).__name__}")
    right, wanted = run(step)
    known = {
        "the weights do not change: after loss.backward() comes optimizer.step(), with no zero_grad() between": "still",
        "gradients of the step before are still there: call optimizer.zero_grad() before loss.backward()": "zero",
        "the rate is not used: set it in each of optimizer.param_groups": "rate",
        "the rate is set in the first of optimizer.param_groups only": "group",
        "the rate is set after the step that it is for": "late",
        "logits and labels are shifted once more; leaving out the last and the first target token is enough": "twice",
        "the labels are the tokens that the model reads; they are the next ones, target[:, 1:]": "labels",
    }
    wrong = {sentence: run(partial(step, spoilt=name))[1] for sentence, name in known.items()}
    expect("the weights after two steps", table, wanted, wrong)
    for have, want in zip(losses, right):
        expect("the loss that is returned", have, want)


def greedy_of(source: Tensor, scale: float, size: int, limit: int, seed: int) -> tuple[Bigrams, list[int]]:
    """A model and what greedy decoding of it gives."""
    model, tokens = Bigrams(size, seed, scale), [1]
    while len(tokens) <= limit:
        token = int(model(source, torch.tensor([tokens]))[0, -1].argmax())
        if token == 2:
            break
        tokens.append(token)
    return model, tokens[1:]


@gap(10, "greedy")
def grade_greedy(mine: ModuleType) -> None:
    """The most probable token, again and again, up to the end token or the limit."""
    source = torch.tensor([[3, 2]])
    for seed in range(12):
        model, right = greedy_of(source, 1.0, 6, 7, seed)
        model.read.clear()
        found = mine.greedy(model, source, 1, 2, 7)
        if isinstance(found, Tensor):
            raise Wrong("it should return a list of token ids; it returns a tensor")
        expect(
            f"the translation by test model {seed}, whose weights are random,",
            found,
            right,
            {
                "bos_id is part of the result": [1, *right],
                "eos_id is part of the result": [*right, 2],
                "bos_id and eos_id are part of the result": [1, *right, 2],
                "it stops one token too early": right[:-1],
            },
        )
        if len(right) == 7 and max(len(row[0]) for row in model.read) > 7:
            raise Wrong("it goes on after max_length tokens")


def search(
    model: nn.Module, source: Tensor, limit: int, size: int, alpha: float, *,
    keeps: bool = True, ends: bool = True, eos: int = 1,
) -> list[int]:  # fmt: skip
    """The best translation of beam search.

    It goes on after an end token if `ends` is False. Finished ones keep their slots (`keeps`), and the end token counts
    `eos`.
    """
    live: list[tuple[float, list[int]]] = [(0.0, [])]
    finished: list[tuple[float, list[int]]] = []
    for length in range(1, limit + 1):
        log_probs = model(source.expand(len(live), -1), torch.tensor([[1, *t] for _, t in live]))[:, -1].log_softmax(-1)
        found = [
            (total + row[i].item(), [*t, i]) for (total, t), row in zip(live, log_probs) for i in range(row.numel())
        ]
        found.sort(key=lambda candidate: -candidate[0])
        live = []
        for total, tokens in found[: size - len(finished) * keeps]:
            if tokens[-1] == 2 and ends:
                finished.append((total / max(length - 1 + eos, 1) ** alpha, tokens[:-1]))
            else:
                live.append((total, tokens))
        if not live:
            break
    finished = finished or [(total / limit**alpha, tokens) for total, tokens in live]
    return max(finished, key=lambda hypothesis: hypothesis[0])[1]


@gap(10, "beam_search")
def grade_beam_search(mine: ModuleType) -> None:
    """The best of several beginnings, by log-probability over length."""
    source = torch.tensor([[3, 2]])
    cases = [(seed, size, alpha) for seed in range(15) for size, alpha in ((1, 1.0), (2, 0.0), (3, 1.0), (4, 0.6))]
    cases += [(1, 7, 0.6)]  # more slots than the six tokens
    models = {seed: Bigrams(6, seed, 0.7).requires_grad_(False) for seed in range(15)}

    def all_of(answer: Callable[[nn.Module, int, float], Any]) -> list[Any]:
        return [answer(models[seed], size, alpha) for seed, size, alpha in cases]

    found = all_of(lambda model, size, alpha: mine.beam_search(model, source, 1, 2, 6, size, alpha))
    right = all_of(lambda model, size, alpha: search(model, source, 6, size, alpha))
    if isinstance(found[0], Tensor):
        raise Wrong("it should return a list of token ids; it returns a tensor")
    if found == right:
        return  # the wrong ones take time
    endless = [Bigrams(6, seed, 0.7).requires_grad_(False) for seed in range(5)]
    for model in endless:
        model.table[..., 2] -= 40  # the end token is never chosen
    tried = [(model, size) for model in endless for size in (1, 2, 3)]
    answers = [mine.beam_search(model, source, 1, 2, 6, size, 0.0) for model, size in tried]
    first = [search(model, source, 6, size, 0.0) for model, size in tried]
    expect(
        "step 1: the translation by a test model that never ends",
        answers,
        first,
        {
            "step 1: it is greedy: only one beginning is kept": [search(m, source, 6, 1, 0.0) for m, _ in tried],
            "step 1: bos_id is part of the result": [[1, *tokens] for tokens in first],
        },
    )
    if found == all_of(lambda model, size, _: search(model, source, 6, size, 0.0, ends=False)):
        raise Unfinished("step 2, the slots (step 1 is right)")
    slots = all(a == b for a, b, (_, _, alpha) in zip(found, right, cases) if alpha == 0)
    step = "steps 1 and 2 are right; now step 3: " if slots else "step 1 is right; now step 2: "
    wrong = {
        "scores are not divided by length ** length_penalty, or the search ends with the first end": all_of(
            lambda model, size, _: search(model, source, 6, size, 0.0)
        ),
        "length_penalty is always 1": all_of(lambda model, size, _: search(model, source, 6, size, 1.0)),
        "the end token is not counted in the length": all_of(
            lambda model, size, alpha: search(model, source, 6, size, alpha, eos=0)
        ),
        "a finished hypothesis gives its slot away; it should keep it": all_of(
            lambda model, size, alpha: search(model, source, 6, size, alpha, keeps=False)
        ),
        "eos_id is part of the result": [[*tokens, 2] if len(tokens) < 6 else tokens for tokens in right],
    }
    what = "the translation by one of 15 test models, whose weights are random,"
    expect(step + what, found, right, {step + sentence: value for sentence, value in wrong.items()})
