"""Train chapter 11's small translator with one fault at a time, and keep losses and translations: faults.json.

Kept as it made that file; no test runs it. With PYTHONPATH=.:experiments, as
python records/faults.py
python records/faults.py --look-ahead  # only what the model without a causal mask looks at
"""

import json
import random
import sys
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


def parts_with(fault: str):
    """The solution's parts, with one fault."""
    text = own_file.template(10)
    if FAULTS[fault]:
        assert text.count(FAULTS[fault][0]) == 1, fault
        text = text.replace(*FAULTS[fault])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "faulty.py")
        file.write_text(text, "utf-8")
        return own_file.load(file)


def numbers(corpus, tokenizer: Tokenizer) -> list:
    """Each pair as two lists of ids."""
    return [
        (tokenizer.encode(s), [tokenizer.bos_id, *tokenizer.encode(t)]) for s, t in zip(corpus.source, corpus.target)
    ]


def training(mine, pairs: list, tokenizer: Tokenizer):
    """Train as the page trains: the model and the loss, after each step."""
    pad, V = tokenizer.pad_id, tokenizer.vocab_size
    torch.manual_seed(SEED)
    model = mine.Transformer(V, V, pad, num_layers=2, dropout=0.0)
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98))
    batches, generator = mine.batches_by_length(pairs, 1024), random.Random(SEED)
    left: list = []
    for step in range(1, STEPS + 1):
        left = left or generator.sample(batches, len(batches))
        source, target = mine.make_batch(left.pop(), pad)
        rate = mine.learning_rate(step, 2e-3, 60)
        yield model, mine.training_step(model, optimizer, source, target, pad, rate)


def run(name: str, tokenizer: Tokenizer, sentences: list[str]) -> dict:
    """Train with one fault, and translate."""
    mine, pairs = parts_with(name), numbers(toy_corpus("train"), tokenizer)
    if name == "targets without <eos>":
        pairs = [(source, target[:-1]) for source, target in pairs]
    trained = [*training(mine, pairs, tokenizer)]
    model, losses = trained[-1][0].eval(), [loss for _, loss in trained]
    bos, eos = tokenizer.bos_id, tokenizer.eos_id
    answers = [
        tokenizer.decode(mine.beam_search(model, torch.tensor([tokenizer.encode(sentence)]), bos, eos, 40))
        for sentence in sentences
    ]
    exact = sum(answer == toy_oracle(sentence) for answer, sentence in zip(answers, sentences))
    kept = [sum(losses[max(0, step - 5) : step]) / min(5, step) for step in (1, *range(10, STEPS + 1, 10))]
    print(name, [round(x, 2) for x in kept[::5]], exact, *answers[:SHOWN], sep="\n  ", flush=True)
    return {"fault": name, "exact": exact, "losses": [round(x, 2) for x in kept], "german": answers[:SHOWN]}


@torch.no_grad()
def look_ahead(tokenizer: Tokenizer, steps: tuple[int, ...] = (25, 50, 75, 100, 300)) -> dict:
    """The losses on 64 other pairs: the right model, the one without a causal mask, and that one with a mask."""
    right, wrong = parts_with("none"), parts_with("no causal mask")
    pad, V = tokenizer.pad_id, tokenizer.vocab_size
    source, target = right.make_batch(numbers(toy_corpus("val"), tokenizer)[:64], pad)
    masked = right.Transformer(V, V, pad, num_layers=2, dropout=0.0).eval()

    def loss(model) -> float:
        logits = model(source, target[:, :-1])
        return round(right.label_smoothed_loss(logits, target[:, 1:], pad).item(), 2)

    rows: dict = {"steps": steps, "right": [], "no causal mask": [], "the same, with the mask": []}
    for mine, name in ((right, "right"), (wrong, "no causal mask")):
        with torch.enable_grad():
            trained = training(mine, numbers(toy_corpus("train"), tokenizer), tokenizer)
            for step, (model, _) in enumerate(trained, 1):
                if step in steps:
                    with torch.no_grad():
                        model.eval()
                        rows[name].append(loss(model))
                        masked.load_state_dict(model.state_dict())
                        if mine is wrong:
                            rows["the same, with the mask"].append(loss(masked))
                        model.train()
    return {"command": "python records/faults.py --look-ahead"} | environment() | rows


def main() -> None:
    """Train them all, and write the record."""
    corpus = toy_corpus("train")
    tokenizer = Tokenizer.train(corpus.source + corpus.target, vocab_size=600)
    sentences = toy_corpus("test").source[:20]
    file = Path(__file__).with_suffix(".json")
    if "--look-ahead" in sys.argv:
        record = json.loads(file.read_text("utf-8"))
        runs = record.pop("runs")
        write(file, record | {"look_ahead": look_ahead(tokenizer)}, runs)
        return
    runs = [run(name, tokenizer, sentences) for name in FAULTS]
    made: dict = {"command": "python records/faults.py"} | environment()
    made |= {"threads": torch.get_num_threads(), "seed": SEED, "steps": STEPS}
    record = {"made": made, "english": sentences[:SHOWN], "of": len(sentences), "look_ahead": look_ahead(tokenizer)}
    write(file, record, runs)


def write(file: Path, record: dict, runs: list[dict]) -> None:
    """A line for each run."""
    lines = ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in runs)
    atomic_write(file, pretty_json(record)[:-2] + f',\n "runs": [\n  {lines}\n ]\n}}\n')


if __name__ == "__main__":
    main()
