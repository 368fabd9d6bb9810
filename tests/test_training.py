"""Learning: the loss is the textbook's, a run is the textbook's loop, and an interruption changes no bit of it."""

import json
import math
import random
import re
from dataclasses import asdict, replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from reference import PAD, equal, padded_batch, small_config, small_model
from safetensors import safe_open
from safetensors.torch import load_file
from small import files_below, refused
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.nn.utils.rnn import pad_sequence
from torch.optim.optimizer import register_optimizer_step_pre_hook

from transformer_lib.data import Batch, token_batches
from transformer_lib.files import InputError
from transformer_lib.model import Transformer
from transformer_lib.training import TrainingConfig, inverse_sqrt_schedule, train, translation_loss
from transformer_lib.training import loop as training
from transformer_lib.training.config import adamw
from transformer_lib.training.loss import validation_loss
from transformer_lib.training.state import save_state
from transformer_lib.training.train_step import LossModule, train_step
from transformer_lib.weights import load_weights

BOS, EOS, VOCABULARY = 1, 2, 13
CONFIG = TrainingConfig(batch_tokens=60, peak_lr=5e-3, warmup_steps=4, steps=10, evaluate_every=3, seed=7)


def random_pairs(count, *, seed=0, longest=8):
    rng = random.Random(seed)
    sides = [[rng.randrange(3, VOCABULARY) for _ in range(rng.randint(1, longest))] for _ in range(2 * count)]
    return [([*source, EOS], [BOS, *target, EOS]) for source, target in zip(sides[:count], sides[count:])]


PAIRS, VAL_PAIRS = random_pairs(24), random_pairs(6, seed=1)


def fresh_model(seed=0, **options):
    torch.manual_seed(seed)
    return Transformer(small_config(**options))


def tensors_of(model):
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def same(first, second):
    assert first.keys() == second.keys()
    return all(torch.equal(first[name], second[name]) for name in first)


def batch():
    return padded_batch((7, 3, 5, 1)), padded_batch((9, 4, 6, 2))


def watched_steps(watch):
    """Inside the block, call `watch` with each optimiser that is about to make a step: its gradients are there."""
    return register_optimizer_step_pre_hook(lambda optimizer, *_: (watch(optimizer), None)[1])


def in_step(number, act):
    """Inside the block, call `act` in the middle of the step of this number, counted from the block's beginning."""
    steps = []
    return watched_steps(lambda _: steps.append(1) or (len(steps) == number and act()))


@pytest.mark.parametrize(("smoothing", "copies", "reduction", "bias", "options"), [
    (0.0, 1, "mean", False, {}), (0.1, 40, "sum", False, {"tie_embeddings": "all", "norm_first": True}),
    (0.1, 40, "mean", False, {}),  # 40 copies: more rows than it visits at once
    (0.1, 40, "mean", True, {"tie_embeddings": "all", "norm_first": True}), (0.0, 1, "sum", True, {}),  # all at once
])  # fmt: skip
def test_loss_is_torchs_cross_entropy_of_the_whole_model(options, smoothing, copies, reduction, bias):
    """`forward` combines the causal with the padding mask and computes all positions; the gradients agree as well."""
    source, target = (side.repeat(copies, 1) for side in batch())
    ours, theirs = (small_model(**options) for _ in range(2))
    for model in (ours, theirs):
        model.output_projection.bias = nn.Parameter(torch.zeros(VOCABULARY).double()) if bias else None
    theirs.load_state_dict(ours.state_dict())
    logits = theirs(source, target[:, :-1]).flatten(0, 1)
    options = {"label_smoothing": smoothing, "reduction": reduction}
    expected = F.cross_entropy(logits, target[:, 1:].flatten(), ignore_index=PAD, **options)
    loss = translation_loss(ours, source, target, **options)
    assert loss.shape == ()
    equal(loss, expected, atol=1e-10)
    (3 * loss).backward()
    (3 * expected).backward()
    for (name, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert a.grad is not None, name
        equal(a.grad, b.grad, atol=1e-10)


def test_what_is_trained_is_the_model_as_it_is_called():
    """Hooks on its parts run, and those on the whole where the loss lets it make the logits."""
    model, called = fresh_model(), []
    for module in (model, model.encoder, model.decoder):
        module.register_forward_hook(lambda module, *_: called.append(type(module).__name__))
    train(model, PAIRS, replace(CONFIG, steps=1))
    model.output_projection.bias = nn.Parameter(torch.zeros(VOCABULARY))  # as on a GPU, the logits are made at once
    train(model, PAIRS, replace(CONFIG, steps=1))
    assert called == ["Encoder", "Decoder", "Encoder", "Decoder", "Transformer"]


def test_the_loss_has_a_mean_or_a_sum_and_no_second_derivative_and_says_so():
    model = small_model()
    with pytest.raises(ValueError, match=r"mean.*sum.*got 'summ'"):
        translation_loss(model, *batch(), reduction="summ")
    loss = translation_loss(model, *batch())
    with pytest.raises(RuntimeError, match="first derivatives only; got create_graph=True"):
        torch.autograd.grad(loss, model.output_projection.weight, create_graph=True)


def test_loss_is_taken_in_float32_under_autocast():
    """What the layers make in bfloat16 is widened; the products of the loss itself are not narrowed."""
    model, (source, target) = small_model(torch.float32), batch()
    with torch.autocast("cpu", torch.bfloat16):
        loss = translation_loss(model, source, target)
        hidden = model.hidden_states(source, target[:, :-1], is_causal=True)
    logits = hidden.float() @ model.output_projection.weight.T
    expected = F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD)
    equal(loss, expected, atol=1e-5)  # bfloat16 has a precision of 0.01
    loss.backward()


BAD = {
    "batch_tokens": (0, 2.5, "5"), "accumulate": (0,), "peak_lr": (0, -1, math.inf, math.nan), "warmup_steps": (0,),
    "schedule": ("cosine",), "adam_betas": ((0.9, 1.0), (-0.1, 0.9), (0.9, math.nan), (0.9,)), "average": (0,),
    "label_smoothing": (1.0, -0.1, None), "weight_decay": (-0.1, math.inf), "clip_norm": (0, True),
    "recompute": ("no", 0), "steps": (0, True), "minutes": (0, "5"), "evaluate_every": (0,), "patience": (0,),
    "seed": (1.5, "7"), "cooldown_steps": (-1, 6), "precision": ("half", 16), "compile": (0,),
}  # fmt: skip


def test_a_setting_of_another_type_or_out_of_its_range_is_refused_and_so_is_a_run_without_an_end():
    config = TrainingConfig(minutes=0.5)  # the rate and warm-up of Vaswani et al. 2017, section 5.3
    assert (config.warmup_steps, config.peak_lr) == (4000, pytest.approx((512 * 4000) ** -0.5, rel=0.01))
    with pytest.raises(ValueError, match="give steps, minutes or both"):
        TrainingConfig()
    assert BAD.keys() == asdict(CONFIG).keys()
    for name, value in ((name, value) for name, values in BAD.items() for value in values):
        with pytest.raises(ValueError, match=f"{name} must .*; got .*{re.escape(repr(value))}"):
            TrainingConfig(**({"steps": 5} | {name: value}))
    with pytest.raises(ValueError, match="from 1; got step 0 and warmup 4"):
        inverse_sqrt_schedule(0, peak=1.0, warmup=4)


def naive_run(model, config):
    matrices, others = ([p for p in model.parameters() if (p.dim() > 1) is wanted] for wanted in (True, False))
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}],
        lr=config.peak_lr, betas=config.adam_betas, eps=1e-9,
    )  # fmt: skip
    warmup = config.warmup_steps
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda done: min((done + 1) / warmup, math.sqrt(warmup / (done + 1)))
    )
    epoch, batches, losses = 0, [], []
    for _ in range(config.steps):
        while len(batches) < config.accumulate:
            batches += token_batches(PAIRS, config.batch_tokens, pad_id=PAD, seed=config.seed, epoch=epoch)
            epoch += 1
        chosen, batches = batches[: config.accumulate], batches[config.accumulate :]
        source, target = (
            pad_sequence([row for batch in chosen for row in batch[side]], batch_first=True, padding_value=PAD)
            for side in (0, 1)
        )
        optimizer.zero_grad()
        logits = model(source, target[:, :-1]).transpose(1, 2)  # (batch, vocabulary, target length)
        loss = F.cross_entropy(logits, target[:, 1:], ignore_index=PAD, label_smoothing=config.label_smoothing)
        loss.backward()
        if config.clip_norm is not None:
            clip_grad_norm_(model.parameters(), config.clip_norm)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(("clip_norm", "options"), [(0.3, {}), (None, {"accumulate": 3, "recompute": True})])
def test_a_run_is_the_textbooks_loop(clip_norm, options):
    """In float64, over three epochs' ends. Twelve steps of Adam may multiply a last bit by some thousands."""
    config = replace(CONFIG, steps=12, evaluate_every=1, clip_norm=clip_norm, weight_decay=0.5, **options)
    ours, theirs = fresh_model().double(), fresh_model().double()
    log = train(ours, PAIRS, config)
    losses = naive_run(theirs, config)
    assert [row["train_loss"] for row in log] == pytest.approx(losses, abs=1e-9)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        equal(a, b, atol=1e-8)


def test_the_seed_decides_and_the_global_random_numbers_are_left_alone():
    runs = []
    for seed in (7, 7, 8):
        model = fresh_model(dropout=0.2)
        torch.manual_seed(len(runs))  # what others did with the global generator does not matter
        log = train(model, PAIRS, replace(CONFIG, seed=seed), val_pairs=VAL_PAIRS)
        runs.append((tensors_of(model), [{**row, "seconds": 0} for row in log]))
        assert torch.rand(()) == torch.rand((), generator=torch.Generator().manual_seed(len(runs) - 1))
    assert same(runs[0][0], runs[1][0])
    assert runs[0][1] == runs[1][1]
    assert not same(runs[0][0], runs[2][0])


def test_after_a_gradient_that_is_not_finite_nothing_moves_until_the_loop_looks(monkeypatch, tmp_path):
    """Later gradients are finite again; the first broken one is named, and the state stays as it was."""
    monkeypatch.setitem(training.READ_EVERY, "cpu", 4)  # on a GPU it looks after every tenth step
    model, before = fresh_model(), []
    model.output_projection.weight.register_hook(lambda grad: grad * math.nan if len(before) == 1 else grad)
    words = r"gradient's norm is nan at step 2 \(epoch 0, batch 2\)"
    with watched_steps(lambda _: before.append(tensors_of(model))), pytest.raises(InputError, match=words):
        train(model, PAIRS, replace(CONFIG, evaluate_every=100), out=tmp_path)
    assert len(before) == 4
    assert same(tensors_of(model), before[1])
    assert not same(tensors_of(model), before[0])
    assert state_of(tmp_path)[1]["state"]["step"] == 0


def test_every_step_and_every_process_draws_its_own_dropout(monkeypatch):
    """Weights that do not move and the same pair, or two processes with the same sentence: dropout makes the losses."""
    still = replace(CONFIG, peak_lr=1e-30, evaluate_every=1, steps=6)
    same_sentence = Batch(*(side[:1].repeat(2, 1) for side in batch()))
    for dropout, different in ((0.3, 6), (0.0, 1)):
        log = train(fresh_model(dropout=dropout).double(), PAIRS[:1], still)
        assert len({round(row["train_loss"], 9) for row in log}) == different
    for dropout, different in ((0.3, True), (0.0, False)):
        parts = []
        for rank in range(2):
            monkeypatch.setattr("transformer_lib.training.train_step.rank_and_world_size", lambda rank=rank: (rank, 2))
            model = fresh_model(dropout=dropout).double()
            loss = LossModule(model, label_smoothing=0.0)
            parts.append(train_step(loss, [same_sentence], 16, adamw(model, CONFIG), CONFIG, step=1)[0])
        assert (abs(parts[0] - parts[1]) > 1e-6) == different


def test_the_log_and_the_files(tmp_path, monkeypatch):
    """A row's training loss is the mean over the tokens since the row before; `tokens` counts real targets."""
    out, model, each = tmp_path / "runs" / "first", fresh_model(dropout=0.2), fresh_model(dropout=0.2)
    log = train(model, PAIRS, CONFIG, val_pairs=VAL_PAIRS, out=out)
    assert sorted(path.name for path in out.iterdir()) == ["log.jsonl", "model.safetensors", "state.safetensors"]
    assert [json.loads(line) for line in (out / "log.jsonl").read_text(encoding="utf-8").splitlines()] == log
    assert [row["step"] for row in log] == [3, 6, 9, 10]
    names = {"step", "epoch", "tokens", "seconds", "learning_rate", "train_loss", "val_loss"}
    assert all(row.keys() == names for row in log)
    assert log[-1]["val_loss"] == pytest.approx(validation_loss(model, VAL_PAIRS, 1000), rel=1e-5)
    monkeypatch.chdir(tmp_path)
    rows = train(each, PAIRS, replace(CONFIG, evaluate_every=1))
    assert list(tmp_path.iterdir()) == [tmp_path / "runs"]  # without a place nothing is written
    tokens = [b["tokens"] - a["tokens"] for a, b in zip([{"tokens": 0}, *rows], rows)]
    assert sum(tokens[:EPOCH]) == sum(len(target) - 1 for _, target in PAIRS)
    for start, row in zip((0, 3, 6, 9), log):
        steps = range(start, row["step"])
        mean = sum(rows[n]["train_loss"] * tokens[n] for n in steps) / sum(tokens[n] for n in steps)
        assert row["train_loss"] == pytest.approx(mean, rel=1e-9)
        assert row["tokens"] == rows[row["step"] - 1]["tokens"]


@pytest.mark.parametrize(("average", "cuts"), [(2, [4, 7]), (9, [])])
def test_the_mean_of_the_last_checkpoints_is_validated_and_kept(average, cuts, tmp_path):
    mean, each = fresh_model(dropout=0.2), []
    train(mean, PAIRS, CONFIG, report=lambda _: each.append(tensors_of(mean)))
    own, last = each[-1], each[-average:]
    mean.load_state_dict({name: sum(weights[name] for weights in last) / len(last) for name in own})
    config = replace(CONFIG, average=average)
    for number, steps in enumerate([*cuts, 10]):
        model = fresh_model(dropout=0.2, seed=number)
        log = train(model, PAIRS, replace(config, steps=steps), val_pairs=PAIRS, out=tmp_path, resume=True)
    assert same(tensors_of(model), own)
    assert log[-1]["val_loss"] == pytest.approx(validation_loss(mean, PAIRS, 1000), rel=1e-5)
    assert log[-1]["val_loss"] == min(row["val_loss"] for row in log)  # so these weights were kept
    kept = fresh_model(dropout=0.2, seed=5)
    load_weights(tmp_path / "model.safetensors", kept)
    for name, value in tensors_of(kept).items():
        torch.testing.assert_close(value, mean.state_dict()[name], rtol=0, atol=1e-6)


LOSSES = [5.0, 4.0, 4.5, 3.0, 3.5, 3.0, 3.2, 1.0, 1.0]  # as good as the best is not better


@pytest.mark.parametrize(("patience", "last", "cut"), [(1, 3, None), (2, 6, 5), (3, 7, 6), (None, 9, 2)])
def test_patience(patience, last, cut, tmp_path, monkeypatch):
    """Interrupted or not, after so many validations in vain; asked again, a run that stopped stays where it is."""
    losses = iter(LOSSES)
    monkeypatch.setattr(training, "validation_loss", lambda *_: next(losses))
    config = replace(CONFIG, evaluate_every=1, steps=9, patience=patience)
    for steps in (cut, 9, 9):
        if steps:
            short = replace(config, steps=steps)
            log = train(fresh_model(), PAIRS, short, val_pairs=VAL_PAIRS, out=tmp_path, resume=True)
    assert [row["step"] for row in log] == list(range(1, last + 1))
    kept, other = fresh_model(), fresh_model(seed=1)
    train(kept, PAIRS, replace(CONFIG, steps=min(range(last), key=LOSSES.__getitem__) + 1))
    load_weights(tmp_path / "model.safetensors", other)
    assert same(tensors_of(other), tensors_of(kept))


@pytest.mark.parametrize(("batch_tokens", "was_training"), [(15, True), (1000, False)])
def test_validation_loss_is_the_mean_over_tokens_without_dropout(batch_tokens, was_training):
    model = small_model(dropout=0.5).train(was_training)
    model.encoder.eval()
    modes = [module.training for module in model.modules()]
    loss = validation_loss(model, VAL_PAIRS, batch_tokens)
    refused(["batch_tokens = 3"], validation_loss, model, VAL_PAIRS, 3)
    assert [module.training for module in model.modules()] == modes
    assert all(parameter.grad is None for parameter in model.parameters())
    model.eval()
    sums = [translation_loss(model, *map(torch.tensor, ([s], [t])), reduction="sum").item() for s, t in VAL_PAIRS]
    assert loss == pytest.approx(sum(sums) / sum(len(target) - 1 for _, target in VAL_PAIRS), abs=1e-10)


def state_of(folder):
    path = folder / "state.safetensors"
    with safe_open(path, "pt") as file:
        progress = json.loads(file.metadata()["state"])["progress"]
    del progress["state"]["seconds"]
    return load_file(path), progress


def compare_states(first, second):
    (tensors, progress), (other_tensors, other_progress) = state_of(first), state_of(second)
    assert same(tensors, other_tensors)
    assert progress == other_progress


EPOCH = 4
OPTIONS = {"dropout": 0.2, "tie_embeddings": "all", "norm_first": True}


def test_an_interrupted_run_is_bitwise_the_uninterrupted(tmp_path):
    """And one that has nothing left to do changes nothing. The cooldown begins, and is asked for, after the cut."""
    config, cut = replace(CONFIG, cooldown_steps=3), tmp_path / "cut"

    def trained(out, steps, seed=0):
        model = fresh_model(seed=seed, **OPTIONS)  # a state replaces whatever is in it
        model.encoder.norm.requires_grad_(False)
        now = replace(config, steps=steps, cooldown_steps=config.cooldown_steps * (steps == 10))
        log = train(model, lambda epoch: random_pairs(24, seed=epoch), now, out=out, resume=True)
        assert (model.encoder.norm.weight == 1).all()  # what is frozen stays as it is
        return [{**row, "seconds": 0} for row in log]

    whole_log = trained(tmp_path / "whole", 10)
    trained(cut, EPOCH + 2)
    assert trained(cut, 10, seed=1)[-3:] == whole_log[-3:]
    before = files_below(cut)
    trained(cut, 10, seed=2)
    assert files_below(cut) == before
    compare_states(tmp_path / "whole", cut)


CHANGES = {"batch_tokens": 50, "peak_lr": 1e-3, "warmup_steps": 5, "label_smoothing": 0.2, "weight_decay": 0.02,
           "clip_norm": 2.0, "precision": "bf16", "seed": 8, "accumulate": 2, "adam_betas": (0.9, 0.99),
           "schedule": lambda step, *, peak, warmup: peak / step}  # fmt: skip
FREE = {"steps", "minutes", "cooldown_steps", "evaluate_every", "compile", "recompute", "average", "patience"}


def not_resumed(folder, words, config=CONFIG, pairs=PAIRS, **options):
    before = files_below(folder)
    refused([folder, words], train, fresh_model(**options), pairs, config, out=folder, resume=True)
    assert files_below(folder) == before


def test_another_setting_is_no_resumption_unless_it_is_free(tmp_path):
    assert set(asdict(CONFIG)) == set(CHANGES) | FREE
    train(fresh_model(), PAIRS, replace(CONFIG, steps=3), val_pairs=VAL_PAIRS, out=tmp_path)
    for name, value in CHANGES.items():
        not_resumed(tmp_path, f"another {name},", replace(CONFIG, **{name: value}))
    not_resumed(tmp_path, "another set of pairs, set of pairs for validation:", pairs=PAIRS[1:])
    not_resumed(tmp_path, "another model", d_ff=24)
    same_rates = partial(inverse_sqrt_schedule)  # a new function is no other schedule if it gives the same rates
    changed = replace(CONFIG, steps=8, evaluate_every=4, recompute=True, average=3, patience=100, schedule=same_rates)
    log = train(fresh_model(), PAIRS, changed, val_pairs=VAL_PAIRS, out=tmp_path, resume=True)
    assert [row["step"] for row in log] == [3, 4, 8]
    falling = replace(CONFIG, schedule=lambda step, *, peak, warmup: peak * warmup / (3 + step))  # any function will do
    log = train(fresh_model(), PAIRS, falling)
    assert [row["learning_rate"] for row in log] == [5e-3 * 4 / (3 + row["step"]) for row in log]


def test_a_state_of_another_version_is_one_clear_line(tmp_path):
    model = fresh_model()
    state = asdict(training.TrainingState()) | {"patience": 1}
    save_state(tmp_path / "state.safetensors", model, adamw(model, CONFIG), {"state": state, "settings": {}})
    not_resumed(tmp_path, "another version of this library: use another directory")


def test_a_report_comes_when_all_is_saved_and_sees_the_weights_that_were_validated(tmp_path, capsys):
    model, seen = fresh_model(), []

    def report(log):
        stored = fresh_model(seed=1)
        load_weights(tmp_path / "model.safetensors", stored)
        seen.append((log[-1]["step"], state_of(tmp_path)[1]["state"]["step"]))
        assert same(tensors_of(model), tensors_of(stored)) == (log[-1] is min(log, key=lambda row: row["val_loss"]))

    config = replace(CONFIG, average=2)
    log = train(model, PAIRS, config, val_pairs=VAL_PAIRS, out=tmp_path, report=report, bar=True)
    assert seen == [(row["step"], row["step"]) for row in log]
    assert re.search(r"train: 100%.* 10/10 .*loss \d+\.\d{3}, [\d,]+ tokens/s, 0 min left", capsys.readouterr().err)


def test_memory_that_is_too_small_halves_the_batches_and_takes_the_same_steps(monkeypatch, caplog):
    models, rows = [fresh_model().double() for _ in range(2)], []
    train(models[0], PAIRS, CONFIG)
    forward, limit = LossModule.forward, 3

    def little_memory(loss, source, target):
        rows.append(len(source))
        if rows[-1] > limit:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(loss, source, target)

    monkeypatch.setattr(LossModule, "forward", little_memory)
    train(models[1], PAIRS, CONFIG)
    assert max(rows[:2]) > 2 * limit  # so two halves do not suffice
    assert "computed in 4 parts" in caplog.text
    for a, b in zip(*(model.parameters() for model in models), strict=True):
        equal(a, b, 1e-9)  # Adam divides what is nearly zero by what is nearly zero
    limit = 0
    refused(["memory of the device is too small: lower batch_tokens"], train, models[1], PAIRS, CONFIG)


@pytest.mark.parametrize(("owner", "name"), [(torch.amp.GradScaler, "unscale_"), (torch.optim.AdamW, "step")])
def test_too_little_memory_is_not_tried_again_behind_the_backward_pass(owner, name, monkeypatch):
    """A second step would unscale again what is unscaled, and find half of the moments."""
    calls = []

    def fail(*_, **__):
        calls.append(name)
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(owner, name, fail)
    words = ["memory of the device is too small for the optimiser", "smaller model"]
    refused(words, train, fresh_model(), PAIRS, replace(CONFIG, precision="fp16", steps=2))
    assert calls == [name]


def test_an_overflow_in_float16_costs_one_step_and_half_of_the_scale_also_if_a_run_is_resumed(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "loss_scaler", lambda *_: torch.amp.GradScaler("cpu", init_scale=2.0**22))
    config, ends = replace(CONFIG, precision="fp16", warmup_steps=1), []
    for cuts in ([10], [1, 10]):
        out = tmp_path / str(cuts)
        for steps in cuts:
            model = fresh_model(seed=0 if steps == cuts[0] else 5, dropout=0.2)
            log = train(model, PAIRS, replace(config, steps=steps), val_pairs=VAL_PAIRS, out=out, resume=True)
            if steps == 1:
                assert same(tensors_of(model), tensors_of(fresh_model(dropout=0.2)))  # it moved nothing
                assert state_of(out)[1]["state"]["scaler"]["scale"] == 2.0**21
        ends.append((tensors_of(model), state_of(out)[1]["state"]["scaler"], log[-1]["val_loss"]))
    assert same(ends[0][0], ends[1][0])
    assert ends[0][1:] == ends[1][1:]
    assert 2.0**8 < ends[0][1]["scale"] < 2.0**21
    assert not same(ends[0][0], tensors_of(fresh_model(dropout=0.2)))


def test_a_gradient_that_no_scale_saves_ends_the_run(monkeypatch):
    monkeypatch.setattr(training, "loss_scaler", lambda *_: torch.amp.GradScaler("cpu", init_scale=1.5))
    model = fresh_model()
    model.target_embedding.weight.register_hook(lambda gradient: gradient * math.inf)
    with pytest.raises(InputError, match=r"gradient's norm is (inf|nan) at step [12] "):
        train(model, PAIRS, replace(CONFIG, precision="fp16"))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # of the compiler about itself
def test_a_compiled_loss_is_the_same_training():
    models = [fresh_model(num_encoder_layers=1, num_decoder_layers=1).double() for _ in range(2)]
    for model, compiled in zip(models, (False, True), strict=True):
        before = torch._dynamo.utils.counters["stats"]["calls_captured"]
        train(model, PAIRS, replace(CONFIG, compile=compiled, steps=2))
        assert (torch._dynamo.utils.counters["stats"]["calls_captured"] > before) == compiled
    for a, b in zip(*(model.parameters() for model in models), strict=True):
        equal(a, b, 1e-10)  # Adam divides a gradient that is nearly 0 by its own size, and with it its rounding


@pytest.mark.parametrize(("steps", "val_pairs", "words"), [
    (10, [], "training loss is (nan|inf) at step 2 .*peak_lr"), (1, VAL_PAIRS, "validation loss is .* at step 1"),
])  # fmt: skip
def test_a_loss_that_is_not_finite_names_the_step(steps, val_pairs, words, tmp_path):
    config = replace(CONFIG, peak_lr=1e30, evaluate_every=100, steps=steps)
    with pytest.raises(InputError, match=words):
        train(fresh_model(), PAIRS, config, val_pairs=val_pairs, out=tmp_path)
    assert state_of(tmp_path)[1]["state"]["step"] == 0
    assert not (tmp_path / "model.safetensors").exists()


def test_what_cannot_be_trained_on_is_found_before_the_first_step(monkeypatch):
    monkeypatch.setattr(training, "train_step", lambda *_: pytest.fail("it trained first"))
    for pair, words in (
        (([3] * 33, [BOS, EOS]), "max_len = 32; got 33 and 2"), (([3] * 20, [BOS, EOS]), "batch_tokens = 19 .*got 20"),
        (([3], [BOS]), "2 tokens or more"),
    ):  # fmt: skip
        config = replace(CONFIG, batch_tokens=19 if "19" in words else 60)
        for pairs, val_pairs in (([*PAIRS, pair], VAL_PAIRS), (PAIRS, [*VAL_PAIRS, pair])):
            with pytest.raises(InputError, match=words):
                train(fresh_model(), pairs, config, val_pairs=val_pairs)
    for pairs, options, words in (
        ([], {}, "at least one pair"), (PAIRS, {"patience": 1}, "val_pairs"),
        (PAIRS, {"average": 2}, "mean of 2 checkpoints.*give out"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            train(fresh_model(), pairs, replace(CONFIG, **options))


def test_each_epoch_is_asked_for_once_and_may_not_be_empty():
    asked = []
    train(fresh_model(), lambda epoch: asked.append(epoch) or PAIRS, replace(CONFIG, steps=2 * EPOCH + 1))
    assert asked in ([0, 1, 2], [0, 1, 2, 3])  # its thread may be ahead
    with pytest.raises(ValueError, match="at least one pair"):
        train(fresh_model(), lambda epoch: PAIRS * (epoch == 0), CONFIG)


def test_minutes_include_the_last_validation(tmp_path, monkeypatch):
    """Ten seconds a step and twenty a validation: 70 s for five steps and one validation; in two minutes, eight."""
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(training, "time", SimpleNamespace(monotonic=lambda: clock.now))
    for original, seconds in ((training.train_step, 10.0), (training.validation_loss, 20.0)):

        def slow(*arguments, original=original, seconds=seconds):
            clock.now += seconds
            return original(*arguments)

        monkeypatch.setattr(training, original.__name__, slow)
    config, found = replace(CONFIG, steps=None, minutes=2.0, evaluate_every=5), []
    for _ in range(2):  # each call has its own two minutes
        log = train(fresh_model(), PAIRS, config, val_pairs=VAL_PAIRS, out=tmp_path, resume=True)
        found.append((clock.now - 1000.0, log[-1]["seconds"], [row["step"] for row in log]))
        assert state_of(tmp_path)[1]["state"]["step"] == log[-1]["step"]
    # Step 15 ends at 110 s of the second, too late for a step and a validation more.
    assert found == [(120.0, 120.0, [5, 8]), (230.0, 230.0, [5, 8, 10, 15])]
