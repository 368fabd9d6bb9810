"""Train a small translator, stop at 21 steps, and keep what it says and where it looks there: learning.json.

Kept as it made that file; no test runs it. With Multi30k, and with PYTHONPATH=.:experiments, as
python records/learning.py
"""

import json
import time
from itertools import count
from pathlib import Path

import torch
from record import environment, pretty_json

from transformer_lib.data import Tokenizer, encode_pairs, load_multi30k, token_batches
from transformer_lib.files import atomic_write
from transformer_lib.model import Transformer, TransformerConfig
from transformer_lib.recipes import PRESETS
from transformer_lib.scores import evaluate_bleu
from transformer_lib.training.config import TrainingConfig, adamw
from transformer_lib.training.loss import real_targets, validation_loss
from transformer_lib.training.train_step import LossModule, train_step
from transformer_lib.translation import Translator

SENTENCES = ["A man plays the guitar on the street.", "Two dogs run on the beach."]
SENTENCES += ["A woman is looking at a small boat."]
GERMAN = "Ein Mann spielt auf der Straße Gitarre."  # of the first; each head looks back from it
LINKS = [0, 1, 2, 5, 6, 7, 4, 8]  # the English token of each German one, but the end
STEPS = [0, 20, 40, 60, 80, 100, 130, 160, 200, 250, 300, 400, 500, 600, 700, 800]
STEPS += range(1000, 1801, 200)
VOCABULARY, DROPOUT, SCORED, SEED = 4000, 0.1, 200, 0


def main() -> None:
    """Train, and write the record."""
    corpus, val = load_multi30k("train"), load_multi30k("val")
    assert not {sentence.rstrip(" .").lower() for sentence in corpus.source} & {s[:-1].lower() for s in SENTENCES}
    tokenizer = Tokenizer.train(corpus.source + corpus.target, VOCABULARY)
    (pairs, _), (val_pairs, _) = (encode_pairs(part, tokenizer, max_len=512) for part in (corpus, val))
    torch.manual_seed(SEED)
    sizes = PRESETS["tiny"]["model"] | {"dropout": DROPOUT}
    model = Transformer(TransformerConfig(tokenizer.vocab_size, tokenizer.vocab_size, tokenizer.pad_id, **sizes))
    settings = TrainingConfig(**PRESETS["tiny"]["training"], steps=STEPS[-1], seed=SEED, precision="fp32")
    optimizer, loss = adamw(model, settings), LossModule(model, settings.label_smoothing)
    translator = Translator(model, tokenizer)
    looks, kept, step, start = [], [], 0, time.process_time()
    batches = (
        batch
        for epoch in count()
        for batch in token_batches(pairs, settings.batch_tokens, pad_id=tokenizer.pad_id, seed=SEED, epoch=epoch)
    )
    for batch in batches:
        if step in STEPS:
            answers = translator.translate(SENTENCES + val.source[:SCORED], beam_size=1)
            looks.append(translator.attention(SENTENCES[0], GERMAN))
            kept.append({
                "step": step,
                "loss": round(validation_loss(model, val_pairs, settings.batch_tokens, "fp32"), 3),
                "bleu": round(float(evaluate_bleu(answers[3:], val.target[:SCORED])["bleu"]), 1),
                "german": [answer if len(answer) < 60 else answer[:60] + "…" for answer in answers[:3]],
            })  # fmt: skip
            print(kept[-1], flush=True)
        if step == STEPS[-1]:
            break
        step += 1
        model.train()
        train_step(loss, [batch], real_targets(batch.target, tokenizer.pad_id), optimizer, settings, step)
    last = looks[-1].weights[..., range(len(LINKS)), LINKS].mean(dim=-1)  # (layers, heads): on the links
    layer, head = divmod(int(last.argmax()), last.size(1))
    for row, look in zip(kept, looks):
        row["weights"] = [[round(x, 2) for x in line] for line in look.weights[layer, head].tolist()]
    made: dict = {"command": "python records/learning.py"} | environment()
    made |= {"threads": torch.get_num_threads(), "seed": SEED, "preset": "tiny", "vocabulary": VOCABULARY}
    made |= {"dropout": DROPOUT, "minutes of one core": round((time.process_time() - start) / 60, 1)}
    record: dict = {"made": made, "english": SENTENCES, "validation sentences": len(val_pairs), "bleu of": SCORED}
    record |= {"source": looks[0].source, "target": looks[0].target, "layer": layer + 1, "head": head + 1}
    lines = ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in kept)
    text = pretty_json(record)[:-2] + f',\n "checkpoints": [\n  {lines}\n ]\n}}\n'
    atomic_write(Path(__file__).with_suffix(".json"), text)


if __name__ == "__main__":
    main()
