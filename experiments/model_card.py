"""The README.md that stands beside published weights: what they are for, what they cannot do, how good they are."""

LANGUAGES = {"en": ("English", "A dog runs on the grass."), "de": ("German", "Ein Hund rennt auf dem Gras.")}

CARD = """\
# A small translator, {languages[0]} to {languages[1]}

Written by `experiments/record.py` from `record.json`; do not edit it.

A Transformer of {parameters:,} parameters, trained from scratch by the course *The Tested Transformer* on the
{training_pairs:,} training pairs of Multi30k (Elliott et al. 2016), which describe photographs, and on nothing else: no
other text, no pictures, no pretrained part.

## Use

From the top of the repository, without network and without the dataset:

    .venv/bin/python -m transformer_lib translate --model records/{name} "{example}"

In Python, `transformer_lib.Translator.from_pretrained("records/{name}")`.
The weights are stored in half precision and compute in single precision.

Meant for learning: to look into, to measure, to compare with, to train further. It translates one sentence at a time,
such as one says of a photograph.

## Limits

- It knows the words and sentences of captions: people, animals, streets, sports, in the present tense. On anything else
  (news, letters, questions, speech, long sentences) it is much worse, and says wrong things fluently.
- Words that it has rarely seen it guesses. Names and numbers may change.
- Captions hold the prejudices of those who wrote them: from a picture they guess gender, age and origin, and they
  mention them of some people and not of others. The translations repeat that.
- Do not use it where a wrong translation does harm.

## Scores

| | BLEU, cased | chrF, cased | BLEU, papers | chrF, papers |
|---|---:|---:|---:|---:|
{table}

Every score of this model is that of these very weights, computing in single precision on a CPU, by beam search with
{beam_size} hypotheses and length penalty {length_penalty}. The weights were chosen by their loss on `val`,
and the seed by its BLEU there, nothing on `test_2016_flickr`, which is small: a difference of one BLEU may be luck.

- *Cased* is sacreBLEU of the plain text: `{cased}`.
- *Papers* is what most papers on Multi30k report. Both sides are lower-cased, their punctuation is normalised, and they
  are cut into tokens, by sacremoses {sacremoses}: `{papers}`.
- The rows *seed N* are other trainings by the same recipe, and *ensemble* is all three together, the teacher of
  *student*. *Smaller batches* are of the recipe before it: one batch in each step instead of two, a learning rate of
  0.004, 9,000 steps. *torch.nn.Transformer* (with PyTorch's layers) and *German to English* were trained by that one.
  `variations.json` has short trainings, each changed in one thing.
- *Untrained model* is this one before its first update, searched greedily. *Word-by-word dictionary* replaces each word
  by the one that it is most often aligned with in the training pairs. Both, and the source, are scored on the test set.

## Training

    {command}

- Commit `{commit}`, torch {torch}, Python {python}
- Device: {device}; {minutes:,.0f} minutes
- {steps:,} updates with {target_tokens:,} target tokens; the weights are those of the lowest validation loss, that
  after update {best_step:,}. `log.jsonl` has every validation.

`make train` trains, scores and writes this directory again. `tests/test_record.py` translates the test set again with
these weights and compares; `record.json` has the SHA-256 of every file.

## Licence

Code and weights: MIT, as `LICENSE` at the top of the repository says; the weights as far as the authors have rights in
them. They were learnt from captions that are for research and education only, and that are not part of this repository.
If you want the weights for anything else, find out first what those terms mean for it.
"""


def model_card(record: dict, name: str) -> str:
    """The README.md of the directory `name`, with every number out of record.json."""
    rows = {f"this model, {split}": both for split, both in record["scores"].items()}
    rows |= {name: other["scores"] for name, other in record.get("others", {}).items() if "scores" in other}
    rows |= record["baselines"]
    columns = [(way, score) for way in ("cased", "papers") for score in ("bleu", "chrf")]
    lines = [
        f"| {row} | {' | '.join(f'{both[way][score]:.1f}' for way, score in columns)} |" for row, both in rows.items()
    ]
    return CARD.format(
        **(record | record["decoding"]),
        name=name,
        languages=[LANGUAGES[record[side]][0] for side in ("source", "target")],
        example=LANGUAGES[record["source"]][1],
        cased=record["scores"]["test_2016_flickr"]["cased"]["signature"],
        papers=record["scores"]["test_2016_flickr"]["papers"]["signature"],
        table="\n".join(lines),
        minutes=record["seconds"] / 60,
    )
