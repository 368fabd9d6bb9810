"""Train chapter 11's small translator with one fault at a time, and keep losses and translations: faults.json.

Kept as it made that file; no test runs it. With PYTHONPATH=.:experiments, as
python records/faults.py
"""

import json
import random
import tempfile
from pathlib import Path

import torch
from record import environment, pretty_json

from transformer_lib.data import Tokenizer, toy_corpus, toy_oracle
from transformer_lib.exercises import own_file
from transformer_lib.files import atomic_write

STEPS, SEED, SHOWN = 300, 0, 4
FAULTS = {  # what each changes in the solution's file: (this, into that)
    "none": (),
    "no causal mask": (" & causal_mask(target.size(1)).to(target.device)", ""),
    "no shift": ("target[:, 1:], pad_id)", "target[:, :-1], pad_id)"),
    "the source without positions": ("x = self.embed(source, self.source_embedding)",
                                     "x = self.source_embedding(source) * math.sqrt(self.d_model)"),
    "the softmax twice": ("return self.output(self.decoder_norm(y))",
                          "return self.output(self.decoder_norm(y)).softmax(dim=-1)"),
    "the rate ten times too high": ("return peak *", "return 10 * peak *"),
    "targets without <eos>": (),
    "gradients never cleared": ("    optimizer.zero_grad()\n", ""),
}  # fmt: skip


def run(name: str, tokenizer: Tokenizer, sentences: list[str]) -> dict:
    """Train with one fault, as the page trains, and translate."""
    text, corpus = own_file.template(10), toy_corpus("train")
    if FAULTS[name]:
        assert text.count(FAULTS[name][0]) == 1, name
        text = text.replace(*FAULTS[name])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "faulty.py")
        file.write_text(text, "utf-8")
        mine = own_file.load(file)
    pad, bos, eos, V = tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.vocab_size
    pairs = [(tokenizer.encode(s), [bos, *tokenizer.encode(t)]) for s, t in zip(corpus.source, corpus.target)]
    if name == "targets without <eos>":
        pairs = [(source, target[:-1]) for source, target in pairs]
    torch.manual_seed(SEED)
    model = mine.Transformer(V, V, pad, num_layers=2, dropout=0.0)
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98))
    batches, generator = mine.batches_by_length(pairs, 1024), random.Random(SEED)
    left: list = []
    losses = []
    for step in range(1, STEPS + 1):
        left = left or generator.sample(batches, len(batches))
        source, target = mine.make_batch(left.pop(), pad)
        rate = mine.learning_rate(step, 2e-3, 60)
        losses.append(mine.training_step(model, optimizer, source, target, pad, rate))
    model.eval()
    answers = [
        tokenizer.decode(mine.beam_search(model, torch.tensor([tokenizer.encode(sentence)]), bos, eos, 40))
        for sentence in sentences
    ]
    exact = sum(answer == toy_oracle(sentence) for answer, sentence in zip(answers, sentences))
    kept = [sum(losses[max(0, step - 5) : step]) / min(5, step) for step in (1, *range(10, STEPS + 1, 10))]
    print(name, [round(x, 2) for x in kept[::5]], exact, *answers[:SHOWN], sep="\n  ", flush=True)
    return {"fault": name, "exact": exact, "losses": [round(x, 2) for x in kept], "german": answers[:SHOWN]}


def main() -> None:
    """Train them all, and write the record."""
    corpus = toy_corpus("train")
    tokenizer = Tokenizer.train(corpus.source + corpus.target, vocab_size=600)
    sentences = toy_corpus("test").source[:20]
    runs = [run(name, tokenizer, sentences) for name in FAULTS]
    made: dict = {"command": "python records/faults.py"} | environment()
    made |= {"threads": torch.get_num_threads(), "seed": SEED, "steps": STEPS}
    record = {"made": made, "english": sentences[:SHOWN], "of": len(sentences)}
    lines = ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in runs)
    text = pretty_json(record)[:-2] + f',\n "runs": [\n  {lines}\n ]\n}}\n'
    atomic_write(Path(__file__).with_suffix(".json"), text)


if __name__ == "__main__":
    main()
