# Generated from chapters/10c_speculative.md: edit it there and `make export`, or here and `make sync`.

"""The grader of the page on speculative decoding."""

import torch

from transformer_lib.exercises import Answer, Checks, close


def grade_10c_1(answer: Answer) -> Checks:
    """Every draw of the tiny model, every decision and every replacement, one after the other."""
    generator = torch.Generator().manual_seed(0)
    cases = [
        ([1.0], [1.0], [1.0]), ([0.5, 0.5], [0.5, 0.5], [0.25, 0.75]), ([0.5, 0.5], [0.25, 0.75], [0.5, 0.5]),
        ([1.0, 0.0], [0.5, 0.5], [0.0, 1.0]), ([0.2, 0.5, 0.3], [0.5, 0.3, 0.2], [0.1, 0.1, 0.8]),
    ]  # fmt: skip
    cases += [tuple(torch.rand(3, 6, generator=generator, dtype=torch.float64).softmax(-1).tolist()) for _ in range(3)]
    for tiny, middle, large in cases:
        held = [q * min(1.0, p / q) if q else 0.0 for p, q in zip(middle, tiny)]  # drawn and kept by the first rule
        missing = [max(0.0, p - q) for p, q in zip(middle, tiny)]
        first = [h + (1 - sum(held)) * m / (sum(missing) or 1.0) for h, m in zip(held, missing)]
        keep = [min(1.0, p / q) if q else 0.0 for p, q in zip(large, first)]
        replaced = 1 - sum(q * k for q, k in zip(first, keep))
        missing = [max(0.0, p - q) for p, q in zip(large, first)]
        last = [q * k + replaced * m / (sum(missing) or 1.0) for q, k, m in zip(first, keep, missing)]
        both, final = sum(h * k for h, k in zip(held, keep)), [round(x, 3) for x in last]
        result = answer(list(tiny), list(middle), list(large))
        yield "it returns a pair", isinstance(result, tuple | list) and len(result) == 2
        yield f"the final probabilities are {final}", close(list(result[1]), last, 1e-9)
        yield f"both rules keep the token with the probability {both:.3f}", close(result[0], both, 1e-9)
