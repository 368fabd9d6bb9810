# Generated from chapters/17_multi30k.md and 2 more: edit it there and `make export`, or here and `make sync`.

"""The graders of chapter 17 and its pages in depth."""

import math
import random

import torch
from torch import Tensor, nn

from transformer_lib.exercises.grading import Answer, Wrong, claim, expect
from transformer_lib.exercises.grading import random as random_numbers


class Watched(nn.Module):
    """Logits by the last token and the length of the source; it notes how it is called."""

    def __init__(self, widths: list[int]) -> None:
        super().__init__()
        self.table, self.widths = nn.Parameter(3 * random_numbers(7, 7)), widths
        self.called: list[tuple[bool, bool]] = []

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """(b, n) and (b, m) give (b, m, 7)."""
        if target.size(1) not in self.widths:
            raise Wrong("the model reads target[:, :-1], without its last column")
        self.called.append((self.training, torch.is_grad_enabled()))
        return self.table[target] + source.size(1)


def grade_17_1(answer: Answer) -> None:
    """One batch, then batches of several sizes; and how the model was called."""
    generator, pad = torch.Generator().manual_seed(0), 0
    batches: list[tuple[Tensor, Tensor]] = []
    for b, n, m in ((1, 3, 4), (2, 3, 5), (5, 2, 8)):
        target = torch.randint(1, 7, (b, m), generator=generator)
        target[0, m // 2 + 1 :] = pad  # the first of each batch is shorter
        batches.append((torch.randint(1, 7, (b, n), generator=generator), target))

    def mean(source: Tensor, target: Tensor, model: nn.Module) -> tuple[float, int]:
        """The mean loss of a batch's real labels, and how many they are."""
        real = target[:, 1:] != pad
        losses = -model(source, target[:, :-1]).log_softmax(-1).gather(-1, target[:, 1:, None])[..., 0]
        return losses[real].mean().item(), int(real.sum())

    for some in (batches[:1], batches[1:], batches):
        model = Watched([target.size(1) - 1 for _, target in some]).train()
        with torch.no_grad():
            means, tokens = zip(*(mean(source, target, model) for source, target in some))
        model.called.clear()
        found = answer(model, [(source.clone(), target.clone()) for source, target in some], pad)
        cells = [target.size(0) * (target.size(1) - 1) for _, target in some]
        weighted, padded = (sum(map(math.prod, zip(means, counts))) for counts in (tokens, cells))
        known = {
            "this is the mean of the batches' means; a token of a small batch counts too much": sum(means) / len(means),
            "padding counts: weigh each mean by the batch's labels that are not pad": padded / sum(cells),
            "this is the sum of the batches' means: weigh each by its tokens, then divide": sum(means),
            "this is the sum of all losses: divide it by the number of tokens": weighted,
        }
        expect("the loss per token", found, weighted / sum(tokens), known, 1e-5)
        claim("dropout is off while it looks: model.eval()", not any(training for training, _ in model.called))
        claim("no gradient is prepared: @torch.no_grad()", not any(gradient for _, gradient in model.called))
        claim("the model is in training afterwards: model.train()", model.training)


def grade_17_2(answer: Answer) -> None:
    """A model whose weights are 1, 2, 3 … after each step, and losses that fall and rise."""
    for losses in ([3.0], [3.0, 2.0], [2.0, 3.0], [5.0, 3.0, 4.0, 2.0, 6.0], [2.0, 2.0]):
        model = nn.Linear(2, 1)
        best: tuple[float, dict[str, Tensor]] = (math.inf, {})
        for number, loss in enumerate(losses, 1):
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.fill_(number)
            best = answer(model, loss, best)
            claim("it returns a pair, a loss and weights", isinstance(best, tuple | list) and len(best) == 2)
            lowest = min(losses[:number])
            expect("the loss of the pair", best[0], lowest, {"this is the last loss, not the lowest": loss})
            claim("the weights are a dictionary", isinstance(best[1], dict))
            claim("the dictionary has the model's names", set(best[1]) == set(model.state_dict()))
            held = {float(value) for weight in best[1].values() for value in torch.as_tensor(weight).flatten()}
            if held != {float(losses.index(lowest) + 1)}:
                claim("an equal loss is not lower: the earlier pair stays", len({*losses}) == len(losses))
                later = f"after step {number} the pair holds the weights of step {max(held):.0f}, not of the best step"
                raise Wrong(f"{later}: state_dict holds the model's own tensors, which the next step changes")


def grade_17a_1(answer: Answer) -> None:
    """Against the definition, bin by bin."""
    generator = random.Random(0)
    cases: list[tuple[list[float], list[bool], int]] = [
        ([0.75], [True], 1), ([0.75, 0.75], [True, False], 1), ([0.5, 0.25], [True, True], 2), ([1.0], [False], 4),
        ([0.5, 0.4], [False, True], 2), ([1.0, 0.9], [False, True], 2),
        ([0.9, 0.9, 0.9, 0.9, 0.5], [True, True, False, True, True], 10),
    ]  # fmt: skip
    cases += [([generator.random() for _ in range(40)], [generator.random() < 0.6 for _ in range(40)], 8)]
    for confidence, right, bins in cases:
        expected, gaps = 0.0, []
        for place in range(bins):
            inside = [n for n, c in enumerate(confidence) if c * bins // 1 == place or (c == 1 and place == bins - 1)]
            if inside:
                gaps.append(abs(sum(right[n] - confidence[n] for n in inside)) / len(inside))
                expected += len(inside) / len(right) * gaps[-1]
        each = sum(abs(r - c) for r, c in zip(right, confidence)) / len(right)
        known = {
            "each guess is compared with its own outcome; compare the means of a bin": each,
            "every bin weighs the same; one with more guesses weighs more": sum(gaps) / len(gaps),
            "all guesses are in one bin": abs(sum(right) - sum(confidence)) / len(right),
        }
        expect("the calibration error", answer(list(confidence), list(right), bins), expected, known)


class Small(nn.Module):
    """Embeddings, a part with a residual connection, and outputs that read earlier positions."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Parameter(random_numbers(7, 4))
        self.part, self.output = nn.Linear(4, 4).double(), nn.Linear(4, 3).double()
        for number, weight in enumerate([*self.part.parameters(), *self.output.parameters()]):
            weight.data = random_numbers(*weight.shape, seed=number)

    def after(self, x: Tensor, found: Tensor) -> Tensor:
        """The output, (n, 3), of the state (n, 4) and what came out of the part, (n, 4)."""
        x = x + found
        return self.output(x + x.cumsum(dim=0).tanh())

    def forward(self, tokens: Tensor) -> Tensor:
        """(n,) gives (n, 3)."""
        x = self.embedding[tokens]
        return self.after(x, self.part(x))


def put(into: Tensor, values: Tensor, *place: slice | int) -> Tensor:
    """A copy, (n, d), that has the other tensor's values at a place."""
    changed = into.clone()
    changed[place] = values[place]
    return changed


def grade_17c_1(answer: Answer) -> None:
    """What enters the part, at one position, in some channels, from the clean run into the corrupted one."""
    for n, position, channels in ((1, 0, slice(0, 2)), (4, 1, slice(2, 4)), (5, 3, slice(0, 2))):
        model, tokens = Small(), torch.arange(n)
        clean, corrupted = tokens, tokens + 2
        x, other, part = model.embedding[corrupted], model.embedding[clean], model.part
        y = put(x, other, position, channels)
        known = {
            "this is the corrupted run as it was: does the hook return what it changed?": model(corrupted),
            "this is the clean run: run the model on `corrupted`, with the patch": model(clean),
            "the clean run is patched with the corrupted one's numbers": model.after(
                other, part(put(other, x, position, channels))
            ),
            "every position is patched": model.after(x, part(put(x, other, slice(None), channels))),
            "the last position is patched, not `position`": model.after(x, part(put(x, other, -1, channels))),
            "all channels are patched": model.after(x, part(put(x, other, position))),
            "every position and all channels are patched": model.after(x, part(other)),
            "what comes out of `part` is patched, not what enters it": model.after(
                x, put(part(x), part(other), position, channels)
            ),
            "the tensor is changed in place, so the residual connection has the patch, too: clone it": model.after(
                y, part(y)
            ),
        }
        right = model.after(x, part(y))
        found = answer(model, part, clean.clone(), corrupted.clone(), position, channels)
        expect("the output after the patch", found, right, known, 1e-6)
        hooks = [each for module in model.modules() for each in (*module._forward_pre_hooks, *module._forward_hooks)]
        claim("no hook is left behind", not hooks)
