"""Functions hold when they are called as a library, without the command line's guards."""

import pytest
import torch
from reference import padded_batch, small_config, small_model
from small import nonsense

from transformer_lib.files import InputError
from transformer_lib.model import Transformer
from transformer_lib.own_model import Architecture
from transformer_lib.precision import mixed_precision
from transformer_lib.training import TrainingConfig, train, translation_loss
from transformer_lib.translation import Translator
from transformer_lib.variants import ensemble_of


def test_an_ensemble_keeps_what_its_members_have_and_refuses_what_it_cannot_do(tmp_path):
    one, other = nonsense(tmp_path / "one"), nonsense(tmp_path / "other")
    other.length_ratio, other.max_len = 5.0, 30
    other.search.precision = mixed_precision("cpu", "bf16")
    with pytest.raises(ValueError, match="of one precision; got"):
        ensemble_of([one, other])
    one.search.precision = mixed_precision("cpu", "bf16")
    both = ensemble_of([one, other])
    assert (both.length_ratio, both.max_len, both.search.precision.fast_dtype) == (5.0, 30, torch.bfloat16)
    for call in (lambda: both.save(tmp_path / "new"), lambda: both.check_config(tmp_path / "one"),
                 lambda: both.attention("a dog")):  # fmt: skip
        with pytest.raises(InputError, match=r"^an ensemble has no files|^Ensemble has no cross-attention"):
            call()
    assert not (tmp_path / "new").exists()


def test_a_training_that_cannot_be_is_refused(tmp_path):
    config = small_config()
    model, good = Transformer(config), ([3, 2], [1, 4, 2])
    with pytest.raises(InputError, match="recompute=True expects the encoder"):
        train(Architecture(model, config), [good], TrainingConfig(steps=1, recompute=True), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    for pair in (([13], [1, 2]), ([-1], [1, 2]), ([3], [1, 13]), ([3], [1, -1]), ([3], [1, 0])):
        with pytest.raises(InputError, match=r"expected (source|target)"):
            train(model, [pair], TrainingConfig(steps=1))


def test_ids_beyond_the_vocabulary_are_named():
    model, good = small_model(), padded_batch((3,))
    for token in (-1, 13):
        bad = torch.tensor([[1, token, 2]])
        for source, target in ((bad, good), (good, bad)):
            with pytest.raises(ValueError, match=f"ids from 0 to 12; got .*{token}"):
                translation_loss(model, source, target)


def test_the_loss_of_no_real_target_is_zero_and_moves_nothing():
    model = small_model()
    source, target = torch.tensor([[3]]), torch.tensor([[1, 0]])
    loss = translation_loss(model, source, target)
    loss.backward()
    assert loss.item() == 0
    assert all(p.grad is None or not p.grad.any() for p in model.parameters())
    with torch.no_grad():
        assert translation_loss(model, source, target).item() == 0


def test_other_things_than_sentences_and_limits_are_refused(tmp_path):
    speaker = nonsense(tmp_path)
    with pytest.raises(TypeError, match="expected a sentence, a string; got"):
        speaker.n_best(5)
    with pytest.raises(ValueError, match="beam_size must be"):
        speaker.n_best("a dog", beam_size=2.5)
    with pytest.raises(InputError, match="come from different runs"):
        Translator(small_model(), speaker.tokenizer)
