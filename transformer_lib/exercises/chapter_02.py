# Generated from chapters/02_attention.md and 3 more: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 02 and its pages in depth."""

import torch
from torch import Tensor

from transformer_lib.attention import scaled_dot_product_attention
from transformer_lib.exercises.grading import Answer, claim, expect, random


def grade_02_2(answer: Answer) -> None:
    """The output follows the queries and ignores the order of keys and values."""
    generator = torch.Generator().manual_seed(0)
    for n in (2, 3, 4):
        query, key, value = (torch.randn(n, 2, generator=generator, dtype=torch.float64) for _ in range(3))
        output, _ = scaled_dot_product_attention(query, key, value)
        unmoved = torch.arange(n)
        for _ in range(4):
            first, second = (torch.randperm(n, generator=generator) for _ in range(2))
            for by_query, by_key in ((first, unmoved), (unmoved, first), (first, second)):
                twice = output[by_query][by_key]
                wanted, _ = scaled_dot_product_attention(query[by_query], key[by_key], value[by_key])
                known = {
                    "the rows follow the keys; they should follow the queries": output[by_key],
                    "the rows stay where they were; they should follow the queries": output,
                    "the queries' order is applied backwards": output[by_query.argsort()],
                    "the rows follow the queries and the keys; the keys' order does not matter": twice,
                }
                expect("the output", answer(output.clone(), by_query.clone(), by_key.clone()), wanted, known)


def grade_02a_1(answer: Answer) -> None:
    """The three gradients are those of autograd."""
    generator = torch.Generator().manual_seed(0)
    for n, m, d_k, d_v in ((1, 1, 1, 1), (1, 2, 1, 1), (2, 2, 1, 1), (1, 2, 2, 1), (2, 3, 2, 3), (4, 6, 5, 3)):
        shapes = (n, d_k), (m, d_k), (m, d_v)
        inputs = [torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True) for shape in shapes]
        upstream = torch.randn(n, d_v, generator=generator, dtype=torch.float64)
        output, weights = scaled_dot_product_attention(*inputs)
        wanted = torch.autograd.grad(output, inputs, upstream)
        query, key, value = (tensor.detach() for tensor in inputs)
        gradients = answer(query.clone(), key.clone(), value.clone(), upstream.clone())
        claim("there are three gradients", isinstance(gradients, tuple | list) and len(gradients) == 3)
        diagonal = (weights * (1 - weights)).detach() * (upstream @ value.T) / d_k**0.5
        expect("the gradient by the values", gradients[2], wanted[2])
        for place, name, other in ((0, "queries", diagonal @ key), (1, "keys", diagonal.T @ query)):
            known = {
                "w (1 - w) is only the diagonal of the softmax's Jacobian": other,
                "the scale of the scores is lost on the way back": wanted[place] * d_k**0.5,
            }
            expect(f"the gradient by the {name}", gradients[place], wanted[place], known)


def grade_02b_1(answer: Answer) -> None:
    """Weights of small, large, unequal and masked scores; never NaN."""
    yes, no = True, False
    cases: list[tuple[str, list[list[float]], list[list[bool]]]] = [
        ("two equal keys", [[0.0, 0.0]], [[yes, yes]]),
        ("two rows", [[1.0, 2.0], [3.0, -1.0]], [[yes, yes]] * 2),
        ("large scores", [[1000.0, 999.0]], [[yes, yes]]),
        ("very negative scores", [[-1000.0, -1001.0]], [[yes, yes]]),
        ("a small row beside a large one", [[1000.0, 1000.0], [0.0, 0.0]], [[yes, yes]] * 2),
        ("a row with a forbidden key", [[1.0, 2.0, 3.0]], [[yes, yes, no]]),
        ("a row whose forbidden key has the largest score", [[0.0, 1.0, 1000.0]], [[yes, yes, no]]),
        ("low scores beside a forbidden key", [[-1000.0, -1001.0, 5.0]], [[yes, yes, no]]),
        ("scores of either sign, 100,000 in size,", [[-1e5, 1 - 1e5, 1e5]], [[yes, yes, no]]),
        ("an empty row", [[1.0, 2.0]], [[no, no]]),
    ]
    for size in ((3, 4), (5, 6)):
        cases.append(("random rows", (1e4 * random(*size)).tolist(), (random(*size, seed=1) < 0).tolist()))
    for name, rows, masks in cases:
        scores, mask = torch.tensor(rows, dtype=torch.float64), torch.tensor(masks)
        low = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        right = low.softmax(dim=-1).masked_fill(~mask, 0.0)

        def cut(top: Tensor, more: float = 1e-300, scores: Tensor = scores, mask: Tensor = mask) -> Tensor:
            exponentials = (scores.masked_fill(~mask, -torch.inf) - top).exp()
            return exponentials / (exponentials.sum(dim=-1, keepdim=True) + more)

        known = {
            f"a row of weights should sum to one; here {e} is added to the sum": cut(low.amax(dim=-1, keepdim=True), e)
            for e in (1e-9, 1e-8, 1e-6)
        }
        known["the score that is subtracted is a forbidden key's"] = cut(scores.amax(dim=-1, keepdim=True))
        known["the largest score of the whole matrix is subtracted; a row needs its own"] = cut(scores.max())
        known["a forbidden key gets weight: forget it before the sum"] = scores.softmax(dim=-1)
        known["a forbidden key counts in the sum"] = scores.softmax(dim=-1).masked_fill(~mask, 0.0)
        known["an empty row is NaN; it should be zeros"] = right.masked_fill(~mask.any(dim=-1, keepdim=True), torch.nan)
        known["an empty row should be zeros: mask the weights, too"] = low.softmax(dim=-1)
        known["scores of this size overflow: subtract a row's maximum first"] = scores.exp() / scores.exp().sum(
            -1, True
        )
        expect(f"the weights of {name}", answer(scores.clone(), mask.clone()), right, known, 1e-12)


def grade_02c_1(answer: Answer) -> None:
    """Other weights, as good as the first, one of them zero, with the same output."""
    generator = torch.Generator().manual_seed(0)
    cases = [torch.tensor([[1.0], [2.0], [4.0]]), torch.cartesian_prod(*[torch.tensor([1.0, -1.0])] * 2)]
    cases += [torch.randn(m, d_v, generator=generator) for m, d_v in ((5, 2), (6, 4), (12, 4))]
    for value in (case.double() for case in cases):
        weights = torch.rand(len(value), generator=generator, dtype=torch.float64) + 0.1
        weights = weights / weights.sum()
        other = answer(weights.clone(), value.clone())
        claim("there is one weight a key", isinstance(other, Tensor) and other.shape == weights.shape)
        claim("no weight is negative", bool((other >= -1e-9).all()))
        expect("the sum of the weights", other.double().sum(), 1.0, tolerance=1e-6)
        expect("the output of these weights", other.double() @ value, weights @ value, tolerance=1e-6)
        claim("one key has no weight any more", bool((other.abs() < 1e-9).any()))
