# Generated from chapters/E_suite.md: edit it there and `make export`, or here and `make sync`.

"""All properties of a model, in the order in which they are tried, and which failure follows from which."""

from transformer_lib.checks.caches import CACHES
from transformer_lib.checks.gradients import GRADIENTS
from transformer_lib.checks.padding import PADDING
from transformer_lib.checks.runtime import USAGE
from transformer_lib.checks.structure import STRUCTURE
from transformer_lib.checks.trainings import TRAININGS
from transformer_lib.checks.visibility import SIGHT

PROPERTIES = [*SIGHT, *PADDING, *STRUCTURE, *GRADIENTS, *CACHES, *USAGE]
TRAINED_PROPERTIES = TRAININGS  # those that train the model

FOLLOWS = {  # a failure of the first may follow from a failure of one of the others, in the same module if it knows one
    "causality": "deterministic in evaluation, attention chooses among keys",
    "source padding on the right": "deterministic in evaluation, sizes and padding are those asked for, "
    "attention chooses among keys",
    "target padding on the right": "deterministic in evaluation, causality, a prefix is enough, batch independence",
    "source padding on the left": "deterministic in evaluation, attention chooses among keys, "
    "source padding on the right, empty sentences",
    "target padding on the left": "deterministic in evaluation, attention chooses among keys, causality, present seen, "
    "empty sentences",
    "memory is whole": "deterministic in evaluation, source sensitivity",
    "tokens are told apart": "source sensitivity, present seen",
    "batch independence": "deterministic in evaluation",
    "training without dropout is evaluation": "deterministic in evaluation, causality, batch independence",
    "sizes and padding are those asked for": "deterministic in evaluation, batch independence",
    "source sensitivity": "deterministic in evaluation",
    "present seen": "batch independence",
    "positions matter": "source sensitivity, present seen",
    "layers have residual connections": "source sensitivity, present seen",
    "empty sentences": "deterministic in evaluation, batch independence",
    "gradient reaches everything": "deterministic in evaluation, source sensitivity, present seen",
    "first token sees itself": "causality",
    "gradient is the derivative": "deterministic in evaluation, parameters shared on purpose, source sensitivity, "
    "present seen",
    "every dtype": "deterministic in evaluation, buffers move along",
    "state dict is complete": "deterministic in evaluation",
    "a prefix is enough": "deterministic in evaluation, causality, batch independence",
    "the past is seen": "causality, present seen",
    "a mask hides what it should": "causality, empty sentences",
    "padding in front": "causality, a prefix is enough, a mask hides what it should",
    "cache one by one": "deterministic in evaluation, causality, a prefix is enough",
    "cache after a prefill": "deterministic in evaluation, a prefix is enough, cache one by one",
    **dict.fromkeys(
        ("cache in chunks", "two caches in turns", "cache reordered", "cache cropped"),
        "deterministic in evaluation, a prefix is enough, cache one by one, cache after a prefill",
    ),
    "cache with padding in front": "a mask hides what it should, cache one by one, cache after a prefill, "
    "cache in chunks",
    "generated tokens are the most probable": "deterministic in evaluation, cache one by one, cache after a prefill",
    "its loss is the cross entropy of its logits": "deterministic in evaluation",
    "generated in a batch as alone": "padding in front, batch independence, cache one by one, cache after a prefill, "
    "generated tokens are the most probable, cache with padding in front",
    "beams are as probable as they say": "cache one by one, cache after a prefill, cache reordered, "
    "generated tokens are the most probable",
    "unpredictable stays unpredictable": "causality",
    "copying is learnt": "causality, source sensitivity, positions matter, present seen, logits not probabilities",
}
for entry in PROPERTIES:  # whatever a call writes into its tokens, the next call reads
    if entry.name not in ("calls leave no trace", "too long raises", "buffers move along", "every dtype"):
        FOLLOWS[entry.name] = f"calls leave no trace, {FOLLOWS.get(entry.name, '')}".removesuffix(", ")
