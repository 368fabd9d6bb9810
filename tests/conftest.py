"""One thread and a fixed seed for every test: the suite gives the same numbers each time it runs."""

import pytest
import torch
from hypothesis import settings

settings.register_profile("course", deadline=None, max_examples=20, derandomize=True)
settings.load_profile("course")
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)
