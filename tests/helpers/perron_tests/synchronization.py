"""A guard against operations that wait for a device."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten

# Operations whose result, or the shape of whose result, the host has to wait for.
WAITING = {
    aten._local_scalar_dense,
    aten.equal,
    aten.is_nonzero,
    aten.masked_select,
    aten.nonzero,
    aten.unique_consecutive,
    aten.unique_dim,
    aten._unique2,
}


class NoSynchronization(TorchDispatchMode):
    """Fail at an operation that would wait for a GPU; count the others.

    It works with CPU tensors, where none of these operations waits. It does not see
    copies to another device, nor `tolist` and `numpy`, which read CPU tensors directly.
    """

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        packet = function.overloadpacket
        assert packet not in WAITING, f"{packet} waits for the device"
        if packet in (aten.index, aten.index_put, aten.index_put_):
            bools = [i for i in args[1] if i is not None and i.dtype == torch.bool]
            assert not bools, f"{packet} with a mask waits for the device"
        if packet == aten.repeat_interleave:
            assert (kwargs or {}).get("output_size") is not None, f"{packet} waits"
        self.count += 1
        return function(*args, **kwargs or {})
