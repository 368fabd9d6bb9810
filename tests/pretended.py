"""A GPU, real or pretended. The pretended one computes on the CPU, but keeps to the rules of devices."""

from collections import Counter

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
CUDA = torch.device("cuda", 0)
COPIES = (aten._to_copy, aten.copy_)
READS = (aten._local_scalar_dense, aten.equal, aten.nonzero, aten.masked_select, aten._unique2)
INDEXING = (aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_)


class OnCuda(Tensor):
    """A tensor of the pretended GPU: `numbers`, on the CPU, are its numbers.

    In C++ its device is `meta` and its kernels are those of CUDA, so `torch.autocast` has no effect on it.
    """

    device = CUDA
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, numbers):
        with torch.inference_mode(False):  # else a part of an ordinary tensor could not be taken
            shell = torch.empty_strided(numbers.size(), numbers.stride(), dtype=numbers.dtype, device="meta")
            tensor = Tensor._make_subclass(cls, shell, device_for_backend_keys=CUDA)
        tensor.numbers = numbers
        return tensor

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise RuntimeError(f"{func} on a tensor whose GPU is gone")

    def tolist(self):  # torch's own refuses subclasses, and so does the next
        return self.cpu().tolist()

    def new_tensor(self, data):
        return torch.tensor(data, dtype=self.dtype, device=CUDA)


class CudaGenerator(torch.Generator):
    """A generator of the pretended GPU. An operation that it is given to sees its seed, but not its class."""

    device = CUDA
    FIRST_SEED = 2**62


class Gpu(TorchDispatchMode):
    """Sees every operation, and counts those at which host and GPU wait for each other.

    A pretended GPU also refuses what mixes devices. It is stricter than CUDA in one thing: a tensor on the GPU takes no
    indices that lie on the CPU.
    """

    def __init__(self, pretended):
        super().__init__()
        self.pretended, self.device = pretended, CUDA
        self.reads, self.writes = Counter(), Counter()  # the host waits for numbers, or for how many; it sends some

    def generator(self, seed):
        """A generator of this GPU."""
        if self.pretended:
            return CudaGenerator().manual_seed(CudaGenerator.FIRST_SEED + seed)
        return torch.Generator(CUDA).manual_seed(seed)

    @classmethod
    def _should_skip_dynamo(cls):
        return False  # it would be imported, for seconds, to be told to leave us alone

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs, operation, name = kwargs or {}, func.overloadpacket, str(func)
        with self:  # in inference mode what is made of other operations comes whole
            result = func.decompose(*args, **kwargs)
        if result is not NotImplemented:
            return result
        given = [*leaves(args), *leaves(kwargs.values())]
        tensors = [thing for thing in given if isinstance(thing, Tensor)]
        ours, others = ([x for x in tensors if (x.device == CUDA) is wanted] for wanted in (True, False))

        to_gpu = bool(ours) if kwargs.get("device") is None else torch.device(kwargs["device"]).type != "cpu"
        if operation in COPIES:
            to_gpu = to_gpu if operation is aten._to_copy else args[0].device == CUDA
            if not (kwargs.get("non_blocking") or args[2:] == (True,)):
                self.writes[name] += to_gpu and bool(others)
                self.reads[name] += not to_gpu and bool(ours)
        elif ours:
            by_mask = operation in INDEXING and any(index.dtype == torch.bool for index in args[1] if index is not None)
            self.reads[name] += by_mask or operation in READS
        if not self.pretended:
            return func(*args, **kwargs)

        if ours and operation not in COPIES and any(x.dim() or torch.Tag.pointwise not in func.tags for x in others):
            raise RuntimeError(f"{func}: expected all tensors to be on one device; got {CUDA} and cpu")
        seeds = [thing.initial_seed() for thing in given if isinstance(thing, torch.Generator)]
        if any((seed >= CudaGenerator.FIRST_SEED) is not to_gpu for seed in seeds):
            raise RuntimeError(f"{func}: expected a generator of the tensors' device")
        changed = {id(x.numbers): x for x in ours if func._schema.is_mutable}  # in place: it comes back
        args, *values = mapped(lambda x: getattr(x, "numbers", x), [args, *kwargs.values()])
        kwargs = dict(zip(kwargs, values)) | ({"device": "cpu"} if kwargs.get("device") is not None else {})
        result = func(*args, **kwargs)
        return mapped(lambda x: changed[id(x)] if id(x) in changed else OnCuda(x), result) if to_gpu else result


def leaves(things):
    """What they are, or hold if they are lists or tuples."""
    for thing in things:
        yield from leaves(thing) if isinstance(thing, list | tuple) else [thing]


def mapped(function, thing):
    """The same with the function of each tensor instead of the tensor."""
    if isinstance(thing, list | tuple):
        return type(thing)(mapped(function, part) for part in thing)
    return function(thing) if isinstance(thing, Tensor) else thing
