# Generated from chapters/E_suite.md: edit it there and `make export`, or here and `make sync`.

"""Caches and generation: what is computed piece by piece is what is computed at once."""

import itertools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from copy import copy
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

from transformer_lib.checks.padding import pad_tables, padding_looks_like
from transformer_lib.checks.report import NotApplicable, Outcome, Property, if_it_runs, register_property
from transformer_lib.checks.subject import KEPT, LONGEST, Attention, ModelUnderTest, Recorded, max_difference
from transformer_lib.files import one_line

CACHES: list[Property] = []
Continued = tuple[list[Tensor], Tensor]  # inputs of one row, and the tokens of the last of them with those behind it
ONE_TOKEN = "all continuations repeat one token, or contain padding"
LONG = 40  # tokens, where the model accepts so many


def _inputs(model: ModelUnderTest, rows: int = 2) -> list[Tensor]:
    """Tokens for each side; of the causal one as many as a cache should be tried with.

    The second source is shorter, so that it is seen whose mask a row has.
    """
    try:
        length = min(LONG, model.max_len or LONG)
        model(*model.inputs(rows, 7, length))
    except Exception:
        length = LONGEST
    *sources, tokens = model.inputs(rows, 7, length)
    for source in sources:
        source[1, 5:] = model.pad_id
    return [*sources, tokens]


def _in_pieces(
    model: ModelUnderTest, inputs: list[Tensor], sizes: Iterable[int], cache: Any = None, start: int = 0,
    mask: Tensor | None = None, left_out: int = 0,
) -> tuple[dict[int, Recorded], Any]:  # fmt: skip
    """Hand over the tokens of the last side in pieces of these sizes; positions always, to each second, or never.

    Returns what each piece gives, by the number of its first token, and the cache after them.
    """
    takes = model.accepts(model.module, "extend")
    found: dict[int, Recorded] = {}
    for size in [1] * sum(sizes) if model.one_by_one else sizes:
        end, told = start + size, {}
        if mask is not None:
            told = {"mask": mask[:, :end], "positions": model.positions(mask[:, :end])[:, start:]}
        told = {key: x for key, x in told.items() if key in takes and (key == "mask" or start % 2 >= left_out)}
        call = partial(model.extended, *inputs[:-1], inputs[-1][:, start:end], cache=cache, **told)
        (logits, cache), states = model.recorded(call)
        found[start] = logits, states
        start = end
    return found, cache


def _as_at_once(
    model: ModelUnderTest, inputs: list[Tensor], pieces: dict[int, Recorded], words: str, **told: Tensor
) -> Outcome:
    """Compare the logits of pieces, where the mask is not 0, with those of one call without a cache."""
    whole = model.recorded(partial(model, *inputs, **told))
    real, moves = told.get("mask", torch.ones_like(inputs[-1])).bool(), dict[int, float]()
    for start, piece in pieces.items():
        for i, number in enumerate(range(start, start + piece[0].size(1))):
            rows = real[:, number]
            moves[number] = max_difference(piece[0][rows, i], whole[0][rows, number])
            if moves[number] > model.tolerance and not model.located:
                first = max_difference(piece[0][:1, i], whole[0][:1, number])
                if first <= model.tolerance and "mask" not in told:
                    model.shown = "with a cache only the first sentence is right: it keeps one row, or another's"
                places = slice(i, i + 1), slice(number, number + 1)
                model.located = f", from token {number + 1} of {inputs[-1].size(1)} on"
                model.first_apart(piece, whole, *places, rows, rows)
    return model.at_most_rounding(max(moves.values()), f"{words}, logits differ from those without a cache by")


def _all_in_pieces(model: ModelUnderTest, sizes: list[int], words: str) -> Outcome:
    """Compare pieces of these sizes, as far as there are tokens, and single tokens after them, with one call."""
    inputs = _inputs(model)
    length = inputs[-1].size(1)
    ends = [min(end, length) for end in itertools.accumulate([] if model.one_by_one else sizes)]
    parts = [end - start for start, end in itertools.pairwise([0, *ends]) if end > start]
    parts += [1] * (length - sum(parts))
    pieces, _ = _in_pieces(model, inputs, parts)
    outcome = _as_at_once(model, inputs, pieces, words)
    if not outcome[0]:
        before = [model.other(tokens, side=side) for side, tokens in enumerate(inputs)]
        with if_it_runs():
            kept = model.remembers(inputs, before, partial(logits_in_pieces, model, parts))
            return *outcome[:2], KEPT if kept else _why_apart(model, inputs, parts)
    return outcome


def logits_in_pieces(model: ModelUnderTest, sizes: list[int], module: nn.Module, *inputs: Tensor) -> Tensor:
    """Those of another module than the one under test."""
    other = copy(model)
    other.module = module
    return torch.cat([logits for logits, _ in _in_pieces(other, [*inputs], sizes)[0].values()], dim=1)


def _why_apart(model: ModelUnderTest, inputs: list[Tensor], sizes: list[int]) -> str:
    """What differs between pieces of these sizes and one call; empty if nothing shows it.

    That may be the positions of tokens, how many others they hear, or how far apart the scores say that they are.
    """
    cache, start, pieces, given = None, 0, list[Recorded](), list[tuple[list[Tensor], int]]()
    *others, tokens = (side[:1, :6] for side in inputs)  # no piece has six tokens
    words = [*others, tokens[:, :1].expand(1, inputs[-1].size(1))]  # one word again and again
    with Attention() as usual:
        whole = model.recorded(partial(model, *words))
    for size in sizes:
        with Attention() as attention:
            new, cache = _in_pieces(model, words, [size], cache, start)
        pieces.append(new[start])
        given.append((attention.given, size))
        start += size
    found, wanted, told = _first_that_differs(model, pieces), _first_that_differs(model, [whole]), ""
    if len(found) and len(wanted):
        told = _other_positions(model, words, found[0], wanted[0]) or _other_tokens(model, inputs, sizes)
    return told or _other_distances(given, usual.given, max(model.tolerance, 1e-5))


def _first_that_differs(model: ModelUnderTest, pieces: Iterable[Recorded]) -> Tensor:
    """What that module puts out, (rows, tokens, channels), piece after piece; nothing if not such vectors each time."""
    found = [(logits, states.get((model.where, 1))) for logits, states in pieces]
    told = all(seen and seen[0].shape[:2] == logits.shape[:2] for logits, seen in found)
    return torch.cat([seen[0] for _, seen in found if seen], dim=1) if told else torch.empty(0)


def _numbers(found: list[int], usual: list[int], at: int = 0) -> str:
    """Four numbers of each, from one place on, in words."""
    shown, due = (", ".join(map(str, each[at:][:4])) for each in (found, usual))
    return f"{shown} … with a cache, and {due} … in one call".replace("-1", "?")


def _equal_to(found: Tensor, known: Tensor, tolerance: float) -> list[int]:
    """For each of the vectors found the number of the first known one that equals it; -1 if none does."""
    near = (found[:, None] - known).abs().amax(dim=-1) <= tolerance
    return [row.index(True) if True in row else -1 for row in near.tolist()]


def _other_positions(model: ModelUnderTest, words: list[Tensor], vectors: Tensor, usual: Tensor) -> str:
    """Whether the first module that differs gives a token what in one call it gives a token at another place."""
    others = words[-1].clone()
    others[:, ::2] = model.other(others[:, ::2], side=-1)
    beside = _first_that_differs(model, [model.recorded(partial(model, *words[:-1], others))])
    found, wanted = (_equal_to(x, usual, model.tolerance * usual.abs().max().item()) for x in (vectors, usual))
    at = max(next((i for i, place in enumerate(wanted) if found[i] != place), 0) - 1, 0)
    alone = len(beside) and max_difference(beside[0, 1::2], usual[1::2]) <= model.tolerance  # it hears no other there
    if found == wanted or -1 in found[at:][:4] or not alone:
        return ""
    return f"positions: {_numbers(found, wanted, at)}" + ": they start at 1" * (found[0] == 1)


def _other_tokens(model: ModelUnderTest, inputs: list[Tensor], sizes: list[int]) -> str:
    """How many tokens each token hears in the first module that differs, where it hears none through a third."""
    rows = model.each_changed(inputs[-1][:1], side=-1)
    given = [*(side[:1].expand(len(rows), -1) for side in inputs[:-1]), rows]
    calls = _in_pieces(model, given, sizes)[0].values(), [model.recorded(partial(model, *given))]
    vectors = [_first_that_differs(model, call) for call in calls]
    if not len(vectors[0]) or vectors[0].shape != vectors[1].shape:
        return ""
    heard = [(x[:-1] - x[-1]).abs().amax(dim=-1) > model.tolerance for x in vectors]
    found, wanted = (x.sum(dim=0).tolist() for x in heard)
    more = {i: one - other for i, (one, other) in enumerate(zip(found, wanted)) if one != other}
    piece = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    if not more or (heard[0] & (piece[:, None] > piece)).any():  # what comes in a later piece only a batch can tell
        return ""
    if max(more.values()) < 0 and not more.keys() & {end - 1 for end in itertools.accumulate(sizes)}:
        return "keys are dropped before the first new tokens have read them"
    why = "the mask hides too few" if more[min(more)] > 0 else "the mask hides too many, or the cache drops them"
    at = max(min(more) - 1, 0)
    return f"tokens heard, from token {at + 1} on: {_numbers(found, wanted, at)}; {why}"


def _other_distances(steps: list[tuple[list[Tensor], int]], usual: list[Tensor], tolerance: float) -> str:
    """How far back the first keys are, if scores depend on distances alone, and with a cache are those of others."""
    length, start = sum(size for _, size in steps), 0
    calls = [(usual, length), *steps]
    found = [[x.flatten(0, -3).clamp(min=-1e4) for x in given if x.size(-2) == size] for given, size in calls]
    if not all(found) or found[0][0].size(2) != length:  # as with a sink among the keys
        return ""
    scores, back = found[0][0].permute(1, 2, 0), torch.arange(length)[:, None] - torch.arange(length)
    known = scores[:, 0]  # of each distance, (length, heads)
    tolerance *= (known.abs() * (known > -1e4)).max().item()
    if (scores - known[back.clamp(min=0)])[back >= 0].abs().max() > tolerance:
        return ""
    for new in (first for first, *_ in found[1:]):
        rows = new.permute(1, 2, 0)  # (queries, keys, heads)
        kept = max(start + len(rows) - new.size(2), 0)  # the first key that is
        for i, row in enumerate(rows, start):
            wanted = _equal_to(known[back[i, kept : i + 1]], known, tolerance)
            places = _equal_to(row[: len(wanted)], known, tolerance)
            if i > 2 and any(-1 != one != other for one, other in zip(places, wanted)):
                return f"places from the first keys to token {i + 1}, by its scores: {_numbers(places, wanted)}"
        start += len(rows)
    return ""


@register_property(CACHES, "", "cache-window", needs="cache")
def cache_one_by_one(model: ModelUnderTest) -> Outcome:
    """Token by token, each from the cache of those before it, the logits are those of one call.

    Proves: so for one sentence length, of 40 tokens where the model accepts them. Cannot: see beyond it.
    """
    return _all_in_pieces(model, [], "one token at a time")


@register_property(CACHES, "", "cache-prefill", needs="cache")
def cache_after_a_prefill(model: ModelUnderTest) -> Outcome:
    """Five tokens at once, and then one at a time.

    Proves: what a prompt leaves in the cache is what single tokens would have left. Cannot: see other lengths.
    """
    if model.one_by_one:
        raise NotApplicable(model.one_by_one)
    return _all_in_pieces(model, [5], "after five tokens at once")


@register_property(CACHES, "", "cache-chunks", needs="cache")
def cache_in_chunks(model: ModelUnderTest) -> Outcome:
    """Several tokens at a time, in pieces of unequal sizes. A model that refuses this, by an error, is not judged.

    Proves: the mask of new tokens knows how many old ones there are. Cannot: try all sizes.
    """
    if model.one_by_one:
        raise NotApplicable(model.one_by_one)
    found: list[Outcome] = []
    for sizes in ([4, 3, 1, 4, 7, 7, 7, 7], [1, 7, 32]):
        told = ", ".join(map(str, sizes[:4])) + " …" * (len(sizes) > 4)
        try:
            found.append(_all_in_pieces(model, sizes, f"in pieces of {told} tokens"))
        except Exception as error:
            if not found:
                raise NotApplicable(f"it refuses several new tokens: {one_line(error)}") from None
    return next((outcome for outcome in found if not outcome[0]), found[0])


@register_property(CACHES, "", needs="cache")
def two_caches_in_turns(model: ModelUnderTest) -> Outcome:
    """Two sentences of unequal lengths, each with its own cache, go on in turns, with a call without a cache between.

    Proves: a cache belongs to its sentence. Cannot: judge a model that says it has one cache only; then the sentence
    that begins anew must not see the old one.
    """
    first, second = _inputs(model), _inputs(model)
    cache = _in_pieces(model, first, [8])[1]
    if model.module.one_cache:
        return _as_at_once(model, second, _in_pieces(model, second, [3, 1])[0], "after another sentence")
    other = _in_pieces(model, second, [3])[1]
    model(*model.inputs(2, 7, 2))
    pieces = [_in_pieces(model, *each)[0] for each in ((first, [1], cache, 8), (second, [1], other, 3))]
    outcome = min(_as_at_once(model, *each, "with two caches in turns") for each in zip((first, second), pieces))
    with if_it_runs():
        alone = (_as_at_once(model, x, _in_pieces(model, x, [n, 1])[0], "")[0] for x, n in ((first, 8), (second, 3)))
        if not outcome[0] and all(alone):
            return *outcome, "one cache takes the other's place: if the model keeps its cache itself, one_cache=True"
    return outcome


@register_property(CACHES, "", "cache-beams", needs="cache")
def cache_reordered(model: ModelUnderTest) -> Outcome:
    """After eight tokens the rows 2, 0, 0 go on, as in a beam search.

    Proves: the cache follows its rows. Cannot: judge an adapter without `reorder`.
    """
    reorder, rows = model.part("reorder"), torch.tensor([2, 0, 0])
    inputs = _inputs(model, 3)
    cache = reorder(_in_pieces(model, inputs, [6, 1, 1])[1], rows)
    chosen = [tokens[rows] for tokens in inputs]
    chosen[-1][:, 8:] = model.tokens(3, chosen[-1].size(1) - 8, side=-1)
    pieces, _ = _in_pieces(model, chosen, [1, 1, 1], cache, 8)
    return _as_at_once(model, chosen, pieces, "with rows 2, 0, 0 of the cache")


@register_property(CACHES, "", "cache-crop", needs="cache")
def cache_cropped(model: ModelUnderTest) -> Outcome:
    """After ten tokens, the cache is cut to six and other tokens go on, as in speculative decoding.

    Proves: what was cut is forgotten. Cannot: judge an adapter without `crop`.
    """
    crop, inputs = model.part("crop"), _inputs(model)
    cache = crop(_in_pieces(model, inputs, [9, 1])[1], 6)
    inputs[-1][:, 6:] = model.other(inputs[-1][:, 6:], side=-1)
    return _as_at_once(model, inputs, _in_pieces(model, inputs, [1, 1, 1], cache, 6)[0], "after the cache was cut")


@register_property(CACHES, "", "cache-padding", needs="cache", refusable=True)
def cache_with_padding_in_front(model: ModelUnderTest) -> Outcome:
    """Sentences of unequal lengths, padded in front, in pieces with a mask: as in one call with the same mask.

    Proves: the mask reaches the cached keys, too. Cannot: judge an `extend` without `mask`.
    """
    if not {"mask"} <= {*model.accepts(model.module, "extend")} & {*model.accepts(model.module)}:
        raise NotApplicable("the adapter's `call` or `extend` has no `mask`")
    inputs = _inputs(model, 3)
    padded = torch.arange(inputs[-1].size(1)) < torch.tensor([0, 3, 5])[:, None]
    inputs[-1][padded] = model.pad_id
    mask = (~padded).long()
    told, tried = model.told_positions(mask), [0]
    if told:
        later = {name: positions + 1 for name, positions in told.items()}
        wanted, alone, shifted = (model(*inputs, mask=mask, **each)[~padded] for each in (told, {}, later))
        if max_difference(alone, wanted) <= model.tolerance:  # it counts them itself, or feels distances only
            tried = [1] if max_difference(shifted, wanted) > model.tolerance else [0, 2]
    sizes = [8, *[1] * (mask.size(1) - 8)]
    calls = (_in_pieces(model, inputs, sizes, mask=mask, left_out=each)[0] for each in tried)
    return min(_as_at_once(model, inputs, pieces, "padded in front", mask=mask, **told) for pieces in calls)


def _greedy(model: ModelUnderTest, inputs: list[Tensor], steps: int) -> Tensor:
    """Prompts and their most probable continuations, everything computed anew for each token."""
    *others, tokens = inputs
    for _ in range(steps):
        told = {"mask": torch.ones_like(tokens)} if "mask" in model.accepts(model.module) else {}
        tokens = torch.cat([tokens, model(*others, tokens, **told)[:, -1:].argmax(dim=-1)], dim=1)
    return tokens


@contextmanager
def _enlarged(model: ModelUnderTest, factor: float) -> Iterator[None]:
    """Inside the block matrices are larger, but for tables of words: with a tied one a model repeats its tokens."""
    sizes = {side.vocab_size for side in model.sides}
    inner = [p for p in model.module.parameters() if p.dim() > 1 and sizes.isdisjoint(p.shape)]
    before = [p.detach().clone() for p in inner]
    try:
        for parameter, kept in zip(inner, before):
            parameter.data.copy_(kept * factor)
        yield
    finally:
        for parameter, kept in zip(inner, before):
            parameter.data.copy_(kept)


@contextmanager
def _varied(model: ModelUnderTest, lengths: Iterable[tuple[int, int]], steps: int = 8) -> Iterator[list[Continued]]:
    """Of 24 prompts of each length (source, prompt) that whose greedy continuation varies most, and both together.

    Where they vary little, matrices are larger inside the block, or prompts more. None with padding are taken.
    """
    best: tuple[int, float, list[Continued]] = 1, 1.0, []
    for factor, rows in ((1.0, 24), (3.0, 24), (9.0, 24), (9.0, 99)):
        if best[0] > (steps // 2 - 1 if rows == 24 else 1):
            break
        with _enlarged(model, factor):
            found, least = list[Continued](), steps
            for length in lengths:
                inputs = [*model.inputs(rows, *length)]
                wanted = _greedy(model, inputs, steps)
                kinds = [0 if model.pad_id in row else len(set(row)) for row in wanted[:, -steps:].tolist()]
                row = max(range(rows), key=kinds.__getitem__)
                least = min(least, kinds[row])
                chosen = [tokens[row : row + 1] for tokens in inputs]
                found.append((chosen, _greedy(model, chosen, steps)))
        best = max(best, (least, factor, found), key=lambda each: each[0])
    if not best[2]:
        raise NotApplicable(ONE_TOKEN)
    with _enlarged(model, best[1]):
        yield best[2]


def _longest_prefix(model: ModelUnderTest) -> int:
    """How many tokens of a target `generate` goes on from: four, or one where it refuses or drops some of these."""
    *source, target = model.inputs(1, 9, 4)
    with if_it_runs():
        return 4 if torch.equal(model.part("generate")(*source, target, 1)[:, :-1], target) else 1
    return 1


@register_property(CACHES, "", "cache-steps", needs="generate")
def generated_tokens_are_the_most_probable(model: ModelUnderTest) -> Outcome:
    """Eight tokens by `generate` are a recomputation's argmax, for prompts, or sources, of one, five and nine tokens.

    Behind the last of these sources the target begins with four tokens, if `generate` goes on from several.

    Proves: so for prompts whose continuations are not one token again and again. Cannot: judge sampling.
    """
    generate, wrong, kinds, cause = model.part("generate"), 0, [], ""
    early, elsewhere, state = list[bool](), list[float](), torch.get_rng_state()
    lengths = [(1, 1), (5, 1), (9, _longest_prefix(model))] if model.has("both") else [(7, n) for n in (1, 5, 9)]
    for each in lengths:
        with suppress(NotApplicable), _varied(model, [each]) as ((inputs, wanted),):
            with _first_logits(model, inputs) as apart:
                found = generate(*inputs, 8)
            drawn = not torch.equal(torch.get_rng_state(), state)  # chance is tried nine times
            found = next((x for _ in range(8 * drawn) if not torch.equal(x := generate(*inputs, 8), wanted)), found)
            length = inputs[-1].size(1)
            early += [bool(found.shape != wanted.shape or (found[:, length] != wanted[:, length]).any())]
            elsewhere += [*apart]
            if told := _beyond(model, found):
                return told
            wrong += 8 if found.shape != wanted.shape else int((found != wanted).sum())
            kinds.append(len(set(wanted[0, length:].tolist())))
            if found.shape != wanted.shape:
                cause = f"it returns tokens {tuple(found.shape)}, not {tuple(wanted.shape)}, the prompt's and 8 more"
                cause += ": does it stop at an end token?" * (length < found.size(1) < wanted.size(1))
            elif not torch.equal(found, wanted) and not torch.equal(found, generate(*inputs, 8)):
                why = KEPT if torch.equal(torch.get_rng_state(), state) else "it draws tokens, or dropout is active"
                cause = f"two calls of `generate` differ: {why}"
    if not kinds:
        raise NotApplicable(ONE_TOKEN)
    evidence = f"{wrong} of {8 * len(kinds)} generated tokens are not the most probable ones"
    evidence += f" ({min(kinds)} or more are different)"
    model.where = "the first new token" if early[0] else ""  # behind a prompt of one token no cache has been read
    if wrong and not cause and elsewhere and min(elsewhere) > model.tolerance:
        cause = "already the first call inside `generate` gives other logits than the same call from outside"
    elif wrong and not cause and any(early):
        cause = "already the first new token is not that of the largest logit at the last position"
    return (False, evidence, cause) if cause else (wrong == 0, evidence)


def _beyond(model: ModelUnderTest, tokens: Tensor) -> Outcome | None:
    """What to say if `generate` gives tokens that the model's logits do not know; None if it gives none."""
    size, most = model.sides[-1].vocab_size, int(tokens.max())
    told = f"`generate` gives token {most}, and the target has {size}, 0 to {size - 1}, so it is not judged: cut logits"
    return (None, f"{told} there as in `call`, or try equal sizes, --sizes {size} {size}") if most >= size else None


@contextmanager
def _first_logits(model: ModelUnderTest, inputs: list[Tensor]) -> Iterator[list[float]]:
    """How far the logits of the first call inside the block that reads the prompt are from those it should have."""
    prompt, apart, inner = inputs[-1], list[float](), model.module.model
    calls: list[tuple[Tensor, Tensor]] = []

    def watch(module: nn.Module, given: tuple[Any, ...], output: Any) -> None:
        logits = output[0] if isinstance(output, tuple) else output
        tokens = next((x for x in given if isinstance(x, Tensor) and x.dim() == 2 and not x.is_floating_point()), None)
        if module is inner and isinstance(logits, Tensor) and logits.dim() == 3 and tokens is not None:
            calls.append((tokens.clone(), logits.clone()))

    with register_module_forward_hook(watch):
        yield apart
    if calls and torch.equal(calls[0][0], prompt[:, : calls[0][0].size(1)]):
        with if_it_runs():
            apart.append(max_difference(calls[0][1][:, -1], model(*inputs[:-1], calls[0][0])[:, -1]))


@register_property(CACHES, "", "cache-batch", needs="generate", refusable=True)
def generated_in_a_batch_as_alone(model: ModelUnderTest) -> Outcome:
    """Prompts of two to seven tokens, padded in front, go on as each does alone.

    With a source, prompts are of one token, and sources of these lengths are padded behind. Where a decoder's
    `generate` takes no `mask`, all prompts have seven tokens.

    Proves: padding and other rows have no part in it. Cannot: judge a `generate` that refuses several prompts.
    """
    generate, both = model.part("generate"), model.has("both")
    told = {"mask"} & {*model.accepts(model.module, "generate")}
    lengths = (7, 2, 4, 3, 6, 5) if told or both else (7, 7, 7)
    with _varied(model, [(n, 1) if both else (7, n) for n in lengths]) as continued:
        prompts, wanted = zip(*continued)
        *sources, tokens = zip(*prompts)
        others = [torch.cat([torch.cat([x, model.padding(1, 7 - x.size(1))], dim=1) for x in side]) for side in sources]
        longest = max(x.size(1) for x in tokens)
        rows = torch.cat([torch.cat([model.padding(1, longest - x.size(1)), x], dim=1) for x in tokens])
        masks = {name: (rows != model.pad_id).long() for name in told}

        def go_on() -> Tensor:
            return generate(*others, rows, 8, **masks)[:, -8:]

        try:
            found = go_on()
        except Exception as error:
            if told or both:
                raise
            raise NotApplicable(f"it refuses several prompts: {one_line(error)}") from None
    if beyond := _beyond(model, found):
        return beyond
    alone = torch.cat([row[:, -8:] for row in wanted])
    wrong = (found != alone).sum(dim=1).tolist()
    outcome = not any(wrong), f"of eight generated tokens a row, {wrong} differ from those of each prompt alone"
    words = range(min(side.vocab_size for side in model.sides))
    word = next((word for word in words if word not in found and word != model.pad_id), None)
    if not any(wrong) or word is None:
        return outcome
    with if_it_runs():  # not each has a table of words
        tables = [table.data for table in pad_tables(model, (*others, rows))]
        with padding_looks_like(model, tables, [table[word] for table in tables]):
            again = go_on()
        if not (again == model.pad_id).any() and not torch.equal(again, found):
            return *outcome, "`generate` reads what stands in padding: it does not use the mask, or not everywhere"
    return outcome


@register_property(CACHES, "", "cache-beams", needs="beams")
def beams_are_as_probable_as_they_say(model: ModelUnderTest) -> Outcome:
    """A beam search's scores are the log-probabilities of its answers, computed anew without a cache.

    Where all answers are those of greedy search, matrices are made larger, until a beam that was not the first wins.

    The best beam's last token is the most probable one behind its others.

    Proves: so for prompts whose answers, eight tokens long, contain no padding. Cannot: say whether a better answer was
    missed.
    """
    beams, inputs = model.part("beams"), [*model.inputs(24, 7, 1 if model.has("both") else 5)]
    for source in inputs[:-1]:  # of unequal lengths, so that it is seen whose mask a beam has
        source[torch.arange(7) > 3 + torch.arange(24)[:, None] % 4] = model.pad_id
    for factor in (1.0, 3.0, 9.0):
        with _enlarged(model, factor), model.all_float64():
            try:
                tokens, scores = beams(*inputs, 8)
            except Exception as error:
                raise NotApplicable(f"it refuses to search with beams: {one_line(error)}") from None
            if not (rows := (tokens != model.pad_id).all(dim=1)).any():
                raise NotApplicable("all answers contain padding")
            greedy = _greedy(model, inputs, 8)
            logits = model(*(each[rows] for each in inputs[:-1]), tokens[rows, :-1])[:, inputs[-1].size(1) - 1 :]
        wanted = logits.log_softmax(dim=-1).gather(2, tokens[rows, inputs[-1].size(1) :, None]).sum(dim=(1, 2))
        moved = ((scores[rows] - wanted).abs() / wanted.abs().clamp(min=1.0)).max().item()  # enlarged, it may be 0
        told = "a score is off the log-probability of the answer, as a part of it, by"
        holds, told = model.at_most_rounding(moved, told)
        other = (logits[:, -1].argmax(dim=-1) != tokens[rows, -1]).double().mean().item()
        if holds and other > 0.1:  # a search that ends some answers early may be right to do so now and then
            told = f"{other:.0%} of the answers do not end with the token that is most probable there"
            return False, told, "the search returns a beam that is not its best"
        if not holds or not torch.equal(tokens[rows], greedy[rows]):  # a beam that was not the first has won
            return holds, told
    return holds, f"{told}; all answers are those of greedy search: do all beams begin alike?"
