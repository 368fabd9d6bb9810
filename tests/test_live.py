"""The translator of the reader's browser computes what the library computes. It runs in Node; without Node, skipped."""

import base64
import hashlib
import json
import random
import re
import unicodedata
from functools import cache

import live
import pytest
import torch
from live import rounded_translator
from small import node
from test_record import FOLDER, TEST, data, with_data

from transformer_lib.decoding import beam_search
from transformer_lib.model import evaluation
from transformer_lib.notebook import every_attention

STATIC = live.ROOT / "book" / "_static"
RECORD = live.ROOT / "records" / "live.json"
STORED = (FOLDER / f"{TEST}.de").read_text(encoding="utf-8").splitlines()
TEN = [entry["source"] for entry in json.loads((FOLDER / "analysis.json").read_text(encoding="utf-8"))["sentences"]]
UNUSUAL = [
    "", " \t\n", "A", "A dog  runs\ton the\ngrass . ", "It's a dog's life, they'll say: we've 1,234½ of them!",
    "A 👩‍👩‍👧 family 🐕 smiles 🙂.", "كلب يجري على العشب. \u202eA dog\u202c runs.", "犬が芝生を走る。",
    "<b>A dog</b> <script>alert(1)</script> &amp; <pad> <bos> <eos>",
    "Cafe\u0301 and cafe\u00e9: one is normalised, \u212b too.", "\ufeffA\u00a0dog\u0085runs\u2028here\u200b.",
]  # fmt: skip


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """The script with the rounded weights, and the one with the shipped ones."""
    folder = tmp_path_factory.mktemp("live")
    live.write(folder / "rounded.js")
    live.write(folder / "exact.js", exact=True)
    return {"rounded": folder / "rounded.js", "exact": folder / "exact.js"}


@cache
def python():
    """The library's translator with the rounded weights, in double precision."""
    translator = rounded_translator()
    translator.model.double()
    return translator


def ask(requests, script):
    node()
    return live.ask(requests, script)


def translations(texts, script, **options):
    requests = [{"what": "translate", "text": text, "options": options} for text in texts]
    return [answer["translation"] for answer in ask(requests, script)]


def follow(weights, cases, settings=None):
    """For each source and target tokens: logits (m + 1, vocabulary) and attention (m + 1, layers, heads, n)."""
    request = {"what": "follow", "settings": settings or {}}
    requests = [request | {"text": text, "tokens": tokens} for text, tokens in cases]
    for answer in ask(requests, weights["rounded"]):
        rows = [torch.frombuffer(bytearray(base64.b64decode(row)), dtype=torch.float32) for row in answer["logits"]]
        yield torch.stack(rows).double(), torch.tensor(answer["weights"], dtype=torch.float64)


def assert_near(got, expected, atol=1e-5):
    """Equal but for the rounding of the page, which keeps each vector in single precision."""
    torch.testing.assert_close(got, expected, rtol=0, atol=atol)


def test_text_becomes_the_same_tokens(weights):
    generator = random.Random(0)
    starts = [*range(0x20, 0x800, 0x60), 0x2000, 0x4E00, 0x1F600]  # of blocks of characters
    known = ([c for c in map(chr, range(at, at + 0x60)) if unicodedata.ucd_3_2_0.category(c) != "Cn"] for at in starts)
    known = [block for block in known if block]  # not the newest, which not every program knows
    noise = ["".join(generator.choice(generator.choice(known)) for _ in range(30)) for _ in range(200)]
    texts = [*UNUSUAL, *TEN, *noise, "word " * 300, "dog" * 1500]
    with pytest.warns(UserWarning, match="were cut: 1"):
        expected = python()._encode(texts)
    assert list(ask([{"what": "encode", "text": text} for text in texts], weights["rounded"])) == expected


def test_tokens_become_the_same_text(weights):
    generator = random.Random(1)
    lists = [[generator.randrange(10_000) for _ in range(20)] for _ in range(100)]
    lists += [[generator.randrange(259) for _ in range(20)] for _ in range(100)]  # bytes, mostly not UTF-8
    lists += [python().tokenizer.encode(text) for text in UNUSUAL]  # one begins with a byte-order mark
    expected = [python().tokenizer.decode([token for token in tokens if token != 2]) for tokens in lists]
    assert list(ask([{"what": "decode", "tokens": tokens} for tokens in lists], weights["rounded"])) == expected


def test_logits_and_attention_of_sentences(weights):
    translator = python()
    texts = TEN[4:6]
    cases = [(text, translator.tokenizer.encode(answer)) for text, answer in zip(texts, translator.translate(texts))]
    for (text, tokens), (logits, attention) in zip(cases, follow(weights, cases)):
        source, target = torch.tensor([translator.tokenizer.encode(text)]), torch.tensor([[1, *tokens]])
        with evaluation(translator.model):
            assert_near(logits, translator.model(source, target)[0])
        expected = translator.attention(text, translator.tokenizer.decode(tokens)).weights.permute(2, 0, 1, 3)
        assert_near(attention[:-1], expected)
    request = {"what": "follow", "settings": {}, "text": texts[0], "tokens": cases[0][1]}
    (answer,) = ask([request], weights["rounded"])
    every = every_attention(translator, texts[0])
    read = torch.tensor(answer["read"], dtype=torch.float64).transpose(1, 2)  # (layers, heads, n, n)
    assert_near(read, every["encoder"].weights)
    for i, own in enumerate(answer["own"][:-1]):  # (layers, heads, i + 1): what has been written
        assert_near(torch.tensor(own, dtype=torch.float64), every["decoder"].weights[:, :, i, : i + 1])


def test_a_head_is_switched_off(weights):
    translator = rounded_translator()
    model = translator.model.double()
    layer, tokens = model.decoder.layers[1].cross_attention, translator.tokenizer.encode("Ein Mann spielt.")
    source, target = torch.tensor([translator.tokenizer.encode(TEN[0])]), torch.tensor([[1, *tokens]])
    ((logits, _),) = follow(weights, [(TEN[0], tokens)], {"off": ["decoder.layers.1.cross_attention.2"]})
    with evaluation(model):
        intact = model(source, target)[0]
        layer.out_projection.weight[:, 2 * layer.d_k : 3 * layer.d_k] = 0
        assert_near(logits, model(source, target)[0])
    assert (logits - intact).abs().max() > 0.01


def test_the_search_finds_the_same_hypotheses(weights):
    translator, texts = python(), TEN[4:6]
    requests = [{"what": "search", "text": text, "options": {"beamSize": 3, "lengthPenalty": 2.0}} for text in texts]
    for text, steps in zip(texts, ask(requests, weights["rounded"])):
        source = torch.tensor([translator.tokenizer.encode(text)])
        (expected,) = beam_search(translator.model, source, bos_id=1, eos_id=2, beam_size=3, length_penalty=2.0)
        found = steps[-1]
        assert [one["tokens"] for one in found] == [[*one.tokens, 2] for one in expected]
        scores = torch.tensor([[one["score"] for one in found], [one.score for one in expected]], dtype=torch.float64)
        torch.testing.assert_close(scores[0], scores[1], rtol=0, atol=1e-5)
        assert [len(one["tokens"]) for one in steps[0]] == [1] * 3  # shown token by token


def test_a_forced_beginning_is_kept_and_paid_for(weights):
    *beginning, _ = python().tokenizer.encode("Ein Mann spielt Gitarre")
    text = "A man plays the guitar on the street."
    requests = [{"what": "search", "text": text, "options": {"force": tokens}} for tokens in ([], beginning)]
    free, forced = (steps[-1] for steps in ask(requests, weights["rounded"]))
    assert all(one["tokens"][: len(beginning)] == beginning for one in forced)
    (same,) = (one for one in free if one["tokens"] == forced[0]["tokens"])
    assert same["score"] == forced[0]["score"] < free[0]["score"]


def test_unusual_text_and_a_long_one_are_translated_as_the_library_does(weights):
    texts = [*UNUSUAL, " ".join(["a man and a dog run past a house ,"] * 5)]
    assert translations(texts, weights["rounded"], beamSize=1) == python().translate(texts, beam_size=1)


@with_data
def test_five_sentences_are_translated_as_shipped(weights):
    assert translations(data(TEST).source[:5], weights["exact"]) == STORED[:5]


@with_data
@pytest.mark.long
def test_all_sentences_are_translated_as_shipped(weights):
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    pairs = zip(translations(data(TEST).source, weights["exact"]), STORED)
    assert sum(got == stored for got, stored in pairs) == record["same, shipped weights"]
    rounded = translations(data(TEST).source, weights["rounded"])
    same = sum(map(str.__eq__, rounded, STORED))
    assert same == record["rounded weights and shipped translations agree"]
    pairs = zip(rounded, rounded_translator().translate(data(TEST).source))
    assert sum(got == expected for got, expected in pairs) == record["same, rounded weights"]


def test_the_record_is_that_of_the_shipped_weights_and_no_text_becomes_markup(weights):
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    assert record["weights"] == hashlib.sha256((FOLDER / "model.safetensors").read_bytes()).hexdigest()
    assert record["bytes"] == weights["rounded"].stat().st_size
    program, page = ((STATIC / name).read_text(encoding="utf-8") for name in ("translator.js", "translator_ui.js"))
    assert f"({record['bytes'] / 1e6:.1f} MB)" in page
    markup_or_code = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|Function\("
    assert not re.search(markup_or_code, program + page)  # what the reader types never becomes markup


def test_each_mistake_shows_in_its_example(weights):
    (offered,) = ask([{"what": "offered"}], weights["rounded"])
    requests = [
        {"what": "translate", "text": mistake["example"], "options": {"settings": settings}}
        for mistake in offered["MISTAKES"]
        for settings in ({}, mistake["settings"])
    ]
    said = [answer["translation"] for answer in ask(requests, weights["rounded"])]
    scale, positions, causal, mask = (said[i : i + 2] for i in range(0, 8, 2))
    assert positions == ["Ein weißer Hund jagt einen schwarzen Hund.", "Ein schwarzer Hund jagt einen weißen Hund."]
    assert (scale[0].count("roten"), scale[1].count("roten roten") > 1) == (1, True)
    assert (causal[0].count("Hund"), causal[1].count("Hund")) == (2, 1)
    assert len(mask[1].split()) > len(mask[0].split())


GUESSES = ["I love you.", "犬が芝生を走る。", " ".join(["very"] * 20)]
CAPTIONS = ["A man plays the guitar on the street.", "Two girls are sitting on a bench and eating ice cream."]


def test_the_page_knows_by_the_score_when_the_model_guesses(weights):
    (known,) = ask([{"what": "offered"}], weights["rounded"])
    assert known["GUESSING"] == json.loads(RECORD.read_text("utf-8"))["guessing below"]
    texts = GUESSES + CAPTIONS + [mistake["example"] for mistake in known["MISTAKES"]]
    requests = [{"what": "search", "text": text, "options": {}} for text in texts]
    best = [steps[-1][0] for steps in ask(requests, weights["rounded"])]
    guessed = [one["score"] < known["GUESSING"] or not one["finished"] for one in best]
    assert guessed == [text in GUESSES for text in texts]
