"""Count what a GPU would be asked to do: `python fake_cuda.py GUARD`, with what was made of fake_cuda.cpp.

The unchanged library runs with torch's own autocast and autograd, on tensors that have a shape, a dtype and a device,
but no numbers: what the host asks for is made up. So no result means anything, and the counts do. Attention alone is
replaced, by the kernel that takes a mask: torch chooses it by the hardware.
"""

import ctypes
import json
import sys
from collections import Counter
from unittest.mock import patch

ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)  # before torch asks which devices there are
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

from transformer_lib.data import Batch  # noqa: E402
from transformer_lib.decoding import greedy_decode  # noqa: E402
from transformer_lib.model import Transformer, TransformerConfig  # noqa: E402
from transformer_lib.precision import loss_scaler, mixed_precision  # noqa: E402
from transformer_lib.training import TrainingConfig  # noqa: E402
from transformer_lib.training.config import adamw  # noqa: E402
from transformer_lib.training.train_step import LossModule, train_step  # noqa: E402

aten = torch.ops.aten
COUNTS = Counter()
WORD = 5  # every word that is read from the GPU
NO_KERNEL = {"_unsafe_view", "_reshape_alias", "detach", "alias", "lift_fresh", "empty", "empty_like", "new_empty"}


class Seen(TorchDispatchMode):
    """Counts reads and writes for which host and GPU wait, kernels that start, and those that only cast."""

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # it would make all of this slow

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs, operation, name = kwargs or {}, func.overloadpacket, func.overloadpacket.__name__
        if func.namespace != "aten":  # a question, such as which device a tensor is on
            return func(*args, **kwargs)
        with self:  # in inference mode what is made of other operations comes whole
            result = func.decompose(*args, **kwargs)
        if result is not NotImplemented:
            return result
        given = [x.is_cuda for x in tree_leaves([args, kwargs]) if isinstance(x, torch.Tensor)]
        if operation is aten._local_scalar_dense:
            COUNTS["reads"] += args[0].is_cuda
            return {torch.bool: True, torch.long: WORD}.get(args[0].dtype, 0.5)
        result = func(*args, **kwargs)
        made = [x.is_cuda for x in tree_leaves(result) if isinstance(x, torch.Tensor)]
        if operation in (aten._to_copy, aten.copy_) and len({*given, *made}) == 2:  # from one to the other
            waits = not (kwargs.get("non_blocking") or args[2:] == (True,))
            COUNTS["writes" if any(made) else "reads"] += waits
        elif any(given + made) and not func.is_view and name not in NO_KERNEL:
            COUNTS["kernels"] += 1
            COUNTS["casts"] += operation is aten._to_copy
        return result


def attention(query, key, value, mask=None, dropout=0.0, is_causal=False):
    """What torch's own does for every GPU if there is a mask."""
    if mask is not None:
        mask = query.new_zeros(()).masked_fill(~mask, -torch.inf).expand(*query.shape[:3], key.size(2))
    wanted = query.requires_grad
    return aten._scaled_dot_product_efficient_attention(query, key, value, mask, wanted, dropout, is_causal)[0]


def small_model():
    sizes = {"d_model": 32, "num_heads": 4, "d_ff": 64, "num_encoder_layers": 1, "num_decoder_layers": 1}
    with torch.device("cuda"):
        return Transformer(TransformerConfig(100, 100, 0, **sizes, norm_first=True, tie_embeddings="all"))


def steps(precision):
    model, config = small_model().train(), TrainingConfig(steps=9, precision=precision)
    loss, optimizer, scaler = LossModule(model, 0.1), adamw(model, config), loss_scaler("cuda", precision)
    batch = Batch(torch.full((4, 5), 7), torch.full((4, 6), 7))
    return lambda count: [train_step(loss, [batch], 20, optimizer, config, i + 1, scaler) for i in range(count)]


def tokens(precision):
    model, source = small_model(), torch.full((3, 4), 7, device="cuda")

    def translate(count):
        with mixed_precision("cuda", precision):
            greedy_decode(model, source, bos_id=1, eos_id=2, max_length=count)

    return translate


def what_is_known(count):
    x = torch.ones(3, device="cuda")
    for _ in range(count):
        y = x + torch.ones(3).to("cuda")  # a write, a kernel
        y *= torch.tensor(2.0, device="cuda")  # the same
        y.half()[0].item(), y.sum().tolist(), y.cpu(), y.to("cpu", non_blocking=True)  # a cast, a sum, three reads


def one_more(action):
    """What the second of two times adds."""
    action(1)  # the first step of all makes the moments
    counts = []
    for times in (1, 2):
        COUNTS.clear()
        action(times)
        counts.append(COUNTS.copy())
    return {name: counts[1][name] - counts[0][name] for name in ("reads", "writes", "kernels", "casts")}


def main():
    nothing, yes = lambda *_: None, lambda *_: True
    answers = {"is_available": yes, "is_bf16_supported": yes, "is_initialized": yes, "manual_seed_all": nothing}
    answers |= dict.fromkeys(("_lazy_init", "get_rng_state", "set_rng_state"), nothing)
    answers |= {"is_current_stream_capturing": lambda: False, "current_device": lambda: 0, "device_count": lambda: 1}
    fake = FakeTensorMode(allow_non_fake_inputs=True)  # which imports, so it comes before what is patched
    listed, kinds = FakeTensor.tolist, torch.utils._foreach_utils._foreach_supported_types
    with (
        patch.multiple(torch.cuda, **answers),
        patch("torch._subclasses.fake_tensor.init_gpu_context", nothing),
        patch.object(FakeTensorMode, "avoid_device_init", True),
        patch.object(FakeTensor, "tolist", lambda x: listed(x.cpu())),  # one copy
        patch.object(torch.utils._foreach_utils, "_foreach_supported_types", [*kinds, FakeTensor]),
        patch.object(F, "scaled_dot_product_attention", attention),
        fake,
        Seen(),
    ):
        found = {f"a step, {precision}": one_more(steps(precision)) for precision in ("fp32", "bf16", "fp16")}
        found |= {f"a token, {precision}": one_more(tokens(precision)) for precision in ("fp32", "fp16")}
        print(json.dumps(found | {"what is known": one_more(what_is_known)}))


if __name__ == "__main__":
    main()
