"""Measure what the last chapter shows of the recorded translator, and write it down beside it, as analysis.json.

python tools/analysis.py [RECORD]   RECORD is the directory that tools/record.py wrote; needs the data
"""

import hashlib
import json
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import sacrebleu
import torch
from aligner import align, words
from record import papers_form, seal
from torch import Tensor

from transformer_lib.data import ParallelCorpus, Tokenizer, encode_pairs, load_multi30k, token_batches
from transformer_lib.files import atomic_write
from transformer_lib.loss import Pairs, validation_loss
from transformer_lib.model import Transformer
from transformer_lib.multi_head import MultiHeadAttention
from transformer_lib.translation import Translator, evaluate_bleu

RECORD = Path(__file__).resolve().parent.parent / "book" / "runs" / "multi30k-en-de"
TEST = "test_2016_flickr"
EDGES = [0, 1, 10, 100, 1000]  # lower bounds of the bins of word frequency
TOLERANCE = 0.01  # nats a token that cutting heads may cost on the validation set
BATCH_TOKENS = 2048

Head = tuple[str, int]  # the name of an attention inside the model, and the number of the head

# --- scores ------------------------------------------------------------------------------------------------------


def statistics(metric: sacrebleu.BLEU, translations: list[str], references: list[str]) -> dict[str, list[int]]:
    """For each sentence what BLEU adds up: both lengths, and how many runs of one to four words are shared."""
    rows = metric._extract_corpus_statistics(translations, [references])
    names = ("length", "reference", "shared 1", "shared 2", "shared 3", "shared 4")
    return {name: [row[column] for row in rows] for column, name in enumerate(names)}


def interval(metric: sacrebleu.BLEU, translations: list[str], references: list[str]) -> list[float]:
    """The mean of BLEU over 1,000 draws of the sentences, and half the width of the middle 95 %, by sacrebleu."""
    score = metric.corpus_score(translations, [references], n_bootstrap=1000)
    return [round(score._mean, 2), round(score._ci, 2)]


def recall_by_frequency(
    translations: Iterable[Sequence[str]], references: Iterable[Sequence[str]], seen: Counter[str]
) -> dict[str, list[int]]:
    """How many words of the references there are, and how many of them the translations have, by how often seen.

    Args:
        translations: lists of words.
        references: as many.
        seen: how often each word stands in the training data.
    """
    total, found = [0] * len(EDGES), [0] * len(EDGES)
    for translation, reference in zip(translations, references):
        said = Counter(translation)
        for word, count in Counter(reference).items():
            place = bisect_right(EDGES, seen[word]) - 1
            total[place] += count
            found[place] += min(count, said[word])
    return {"from": EDGES, "words": total, "found": found}


def spaced(scores: Sequence[float], pool: int = 100, step: int = 10) -> list[int]:
    """Every tenth of the hundred sentences with the lowest score, the lowest first: where the ten are taken from."""
    return sorted(range(len(scores)), key=lambda n: (scores[n], n))[:pool:step]


# --- calibration -------------------------------------------------------------------------------------------------


@torch.no_grad()
def best_guesses(model: Transformer, pairs: Pairs) -> tuple[Tensor, Tensor]:
    """For each real next token, given the right ones before it: the highest probability, and if that token is right."""
    confidence, right = [], []
    for source, target in token_batches(pairs, BATCH_TOKENS, pad_id=model.config.pad_id):
        labels = target[:, 1:]
        real = labels != model.config.pad_id
        highest, token = model(source, target[:, :-1])[real].softmax(dim=-1).max(dim=-1)  # (real tokens)
        confidence.append(highest)
        right.append(token == labels[real])
    return torch.cat(confidence), torch.cat(right)


def calibration(confidence: Tensor, right: Tensor, bins: int = 20) -> dict[str, list[float]]:
    """Guesses in bins of equal width: how many, the sum of their probabilities, and how many are right.

    Args:
        confidence: probabilities (guesses).
        right: booleans (guesses).
        bins: how many; a probability on an edge belongs to the upper bin, 1 to the last.
    """
    place = (confidence * bins).long().clamp(max=bins - 1)  # (guesses)
    sums = (torch.bincount(place, weight, bins) for weight in (None, confidence.double(), right.double()))
    return {name: [round(x, 3) for x in s.tolist()] for name, s in zip(("count", "confidence", "right"), sums)}


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


# --- all ---------------------------------------------------------------------------------------------------------


def analysis(folder: Path) -> dict:
    """All that analysis.json holds."""
    record = json.loads((folder / "record.json").read_text(encoding="utf-8"))
    translator = Translator.from_pretrained(folder)
    model, tokenizer = translator.model, translator.tokenizer
    languages = {"source": record["source"], "target": record["target"]}
    train, val, test = (load_multi30k(split, **languages) for split in ("train", "val", TEST))
    said = (folder / f"{TEST}.{record['target']}").read_text(encoding="utf-8").splitlines()
    greedy = translator.translate(test.source, beam_size=1)
    bleu, chrf = sacrebleu.BLEU(), sacrebleu.CHRF()
    scores = [chrf.sentence_score(ours, [theirs]).score for ours, theirs in zip(said, test.target)]
    val_pairs, test_pairs = (encode_pairs(part, tokenizer, max_len=model.config.max_len)[0] for part in (val, test))
    links = align([(words(s), words(t)) for part in (val, train) for s, t in zip(part.source, part.target)])
    heads = cut_heads(model, val_pairs)
    for name, gone in (("whole", []), ("cut", heads["order"][: heads["free"]])):
        with without_heads(model, gone):
            answers = translator.translate(test.source, beam_size=1) if gone else greedy
            score, loss = evaluate_bleu(answers, test.target)["bleu"], validation_loss(model, test_pairs, BATCH_TOKENS)
        changed = sum(ours != theirs for ours, theirs in zip(answers, greedy))
        heads[name] = {"greedy bleu": round(float(score), 2), "loss": round(loss, 4), "changed": changed}
    return {
        "weights": hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest(),
        "sentences": [
            {"number": n, "rank": rank * 10, "chrf": round(scores[n], 1), "source": test.source[n]}
            for rank, n in enumerate(spaced(scores))
        ],
        "interval": {
            "cased": interval(bleu, said, test.target),
            "papers": interval(sacrebleu.BLEU(tokenize="none", force=True),
                               *(papers_form(side, record["target"]) for side in (said, test.target))),
        },
        "source words": [len(words(sentence)) for sentence in test.source],
        "statistics": {name: statistics(bleu, answers, test.target) for name, answers in
                       (("beam", said), ("greedy", greedy))},
        "recall": recall_by_frequency(
            map(words, said), map(words, test.target), Counter(word for text in train.target for word in words(text))
        ),
        "calibration": calibration(*best_guesses(model, test_pairs)),
        "alignment": alignment(translator, val, links[: len(val)]),
        "heads": heads,
    }  # fmt: skip


def readable(value: dict, depth: int = 2, indent: str = "") -> str:
    """JSON with a line for each entry down to a depth, and no further."""
    if not isinstance(value, dict) or not depth:
        return json.dumps(value, ensure_ascii=False)
    lines = (f"{indent} {json.dumps(name)}: {readable(part, depth - 1, indent + ' ')}" for name, part in value.items())
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit(__doc__)
    place = Path(sys.argv[1]) if len(sys.argv) == 2 else RECORD
    atomic_write(place / "analysis.json", readable(analysis(place)) + "\n")
    seal(place)
