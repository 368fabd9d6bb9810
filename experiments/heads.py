"""What the heads of a translator look at, held against a word aligner, and what it costs to cut them."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch
from aligner import words
from torch import Tensor

from transformer_lib.data import ParallelCorpus, Tokenizer
from transformer_lib.model import Transformer
from transformer_lib.multi_head import MultiHeadAttention
from transformer_lib.training.loss import Pairs, validation_loss
from transformer_lib.translation import Translator

TOLERANCE = 0.01  # nats a token that cutting heads may cost
BATCH_TOKENS = 2048

Head = tuple[str, int]  # the name of an attention inside the model, and the number of the head

# --- what attention looks at -------------------------------------------------------------------------------------


def word_of_each_token(tokenizer: Tokenizer, tokens: Sequence[int], of: Sequence[str]) -> list[int]:
    """For each token the number of the word that its last letter belongs to, or -1: the end token, a lone space."""
    text = tokenizer.decode(tokens)
    owner, at = [-1] * len(text), 0
    for number, word in enumerate(of):
        at = text.index(word, at)
        owner[at : at + len(word)] = [number] * len(word)
        at += len(word)
    ends = [len(tokenizer.decode(tokens[: n + 1])) for n in range(len(tokens))]
    return [-1 if token == tokenizer.eos_id else owner[end - 1] for token, end in zip(tokens, ends)]


def between_words(weights: Tensor, target_words: Sequence[int], source_words: Sequence[int]) -> Tensor:
    """Weights between tokens (…, m, n) as weights between words (…, target words, source words).

    The mean over the tokens of a target word, the sum over those of a source word; tokens of no word are left out.
    """
    rows, columns = (
        torch.nn.functional.one_hot(torch.tensor(numbers) + 1)[:, 1:].to(weights.dtype)  # (tokens, words)
        for numbers in (target_words, source_words)
    )
    return (rows / rows.sum(dim=0).clamp(min=1)).T @ weights @ columns


def hits(weights: Tensor, links: Sequence[tuple[int, int]]) -> Tensor:
    """For each head (…): for how many links (source word, target word) the source word has the most weight."""
    strongest = weights.argmax(dim=-1)  # (…, target words)
    agree = (strongest[..., t] == s for s, t in links)
    return sum((a.long() for a in agree), torch.zeros(weights.shape[:-2], dtype=torch.long))


def alignment(translator: Translator, corpus: ParallelCorpus, links: Sequence[Sequence[tuple[int, int]]]) -> dict:
    """How often each head of each layer looks most at the word that the aligner links, as shares of the links.

    The columns are the heads, and behind them their mean. "predicting" is the look that the word is predicted with,
    "reading" the next one, whose input it is. A link is "off the diagonal" if a guess along it would be wrong.
    """
    tokenizer, config = translator.tokenizer, translator.model.config
    found = torch.zeros(2, 2, config.num_decoder_layers, config.num_heads + 1, dtype=torch.long)
    count = torch.zeros(2, dtype=torch.long)  # all links, those off the diagonal
    for source, target, own in zip(corpus.source, corpus.target, links):
        tokens, cut = [tokenizer.encode(side) for side in (source, target)], [words(side) for side in (source, target)]
        source_words, target_words = (word_of_each_token(tokenizer, *side) for side in zip(tokens, cut))
        weights = translator.attention(source, target).weights  # (layers, heads, target tokens, source tokens)
        weights = torch.cat([weights, weights.mean(dim=1, keepdim=True)], dim=1)
        off = [(s, t) for s, t in own if s != int((t + 0.5) * len(cut[0]) / len(cut[1]))]
        for look, rows in enumerate((weights[:, :, :-1], weights[:, :, 1:])):  # the end token is no word's
            between = between_words(rows, target_words[:-1], source_words)
            for which, chosen in enumerate((own, off)):
                found[which, look] += hits(between, chosen)
        count += torch.tensor([len(own), len(off)])
    shares = (found.double() / count.clamp(min=1)[:, None, None, None]).round(decimals=4).tolist()
    tables = [dict(zip(("predicting", "reading"), both)) for both in shares]
    return {"links": count[0].item(), **tables[0], "off the diagonal": {"links": count[1].item(), **tables[1]}}


# --- heads that can be cut ---------------------------------------------------------------------------------------


@contextmanager
def without_heads(model: Transformer, heads: Iterable[Head]) -> Iterator[None]:
    """Within the block, what these heads computed is zero when it comes to the output projection."""
    hooks = []
    for name, head in heads:
        attention = model.get_submodule(name)
        assert isinstance(attention, MultiHeadAttention)
        width = attention.d_model // attention.num_heads
        keep = torch.ones(attention.d_model)
        keep[head * width : (head + 1) * width] = 0
        hooks.append(attention.out_projection.register_forward_pre_hook(lambda _, args, keep=keep: (args[0] * keep,)))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def all_heads(model: Transformer) -> list[Head]:
    """Every head of every attention, from the first encoder layer to the last decoder layer."""
    attentions = ((name, part) for name, part in model.named_modules() if isinstance(part, MultiHeadAttention))
    return [(name, head) for name, part in attentions for head in range(part.num_heads)]


def cut_heads(model: Transformer, pairs: Pairs) -> dict:
    """What cutting costs on `pairs`, in nats a token: each head alone, and then all together, the cheapest first."""

    def loss(heads: Iterable[Head]) -> float:
        with without_heads(model, heads):
            return round(validation_loss(model, pairs, BATCH_TOKENS), 4)

    whole = loss([])
    alone = {head: round(loss([head]) - whole, 4) for head in all_heads(model)}
    order = sorted(alone, key=lambda head: alone[head])
    together, free = [], 0
    for count in range(1, len(order) + 1):
        together.append(round(loss(order[:count]) - whole, 4))
        if together[-1] <= TOLERANCE:
            free = count
        elif together[-1] > 1:
            break  # it has long stopped to translate
    costs = {name: [alone[key] for key in alone if key[0] == name] for name, _ in alone}
    return {"loss": whole, "alone": costs, "order": order, "together": together, "tolerance": TOLERANCE, "free": free}
