"""Peers on a GPU, with PyTorch and CuPy made up of NumPy: what they compute, where, and that it is waited for."""

import sys
import types
from functools import partialmethod

import numpy as np
import pytest

from benchmarks import cli
from benchmarks.cases import argmax_case, pooling_case, reduce_case, unpooling_case
from benchmarks.peer_cupy import CupyPeer
from benchmarks.peer_torch import TorchPeer
from benchmarks.peers import UnavailableError
from dmlgpu import ReduceFunction, reference
from dmlgpu.comparison import differences
from tests.support.cases import FLOAT16, INT8, UINT8, permuted_strides

ARGMAX = [
    argmax_case("rows", (7, 300), [1]),
    argmax_case("all", (7, 300), [0, 1]),
    argmax_case("planes", (2, 5, 3, 4), [1]),
    argmax_case("uint8", (5, 40), [1], UINT8),
    argmax_case("transposed", (5, 40), [1], strides=permuted_strides((5, 40), (1, 0))),
]
FUNCTIONS = ReduceFunction.SUM, ReduceFunction.MAX, ReduceFunction.AVERAGE, ReduceFunction.LOG_SUM_EXP
REDUCE = [
    reduce_case(function, name, sizes, axes)
    for function in FUNCTIONS
    for name, sizes, axes in (("rows", (7, 300), [1]), ("all", (7, 300), [0, 1]), ("planes", (2, 5, 3, 4), [1]))
]
POOLING = [
    pooling_case("padded", (2, 3, 9, 7), 3, 2, 1),
    pooling_case("unpadded", (2, 3, 9, 7), 2, 2),
    pooling_case("dilated", (2, 3, 9, 7), 3, padding=1, dilation=2),
    pooling_case("3d", (1, 2, 5, 6, 7), 3, 2, 1),
    pooling_case("global", (2, 3, 5, 5), 5),
    pooling_case("float16", (2, 3, 9, 7), 3, 2, 1, data_type=FLOAT16),
    pooling_case("int8", (2, 3, 9, 7), 3, 2, 1, data_type=INT8),
    *(
        pooling_case(name, sizes, 3, 2, padding, dilation, operator=operator)
        for operator in ("AVERAGE_POOLING1", "LP_POOLING1")
        for name, sizes, padding, dilation in (
            ("padded", (2, 3, 9, 7), 1, 1),
            ("dilated", (2, 3, 9, 7), 1, 2),
            ("3d", (1, 2, 5, 6, 7), 0, 1),
        )
    ),
    pooling_case("counted", (2, 3, 9, 7), 3, 2, 1, operator="AVERAGE_POOLING1", include_padding=True),
    unpooling_case("2x2", (2, 3, 8, 6), 2),
]
UUID = "0123456789abcdef0123456789abcdef"
DASHED = "01234567-89ab-cdef-0123-456789abcdef"


class FakeTorch(types.ModuleType):
    """PyTorch as far as the peer needs it for reductions; tensors know where they are."""

    __version__ = "2.9"

    class Tensor:
        def __init__(self, array, device):
            self.array, self.device = array, device

        def to(self, device):
            return FakeTorch.Tensor(self.array, device)

        def cpu(self):
            return self.to(types.SimpleNamespace(type="cpu"))

        def numpy(self):
            assert self.device.type == "cpu"
            return self.array

    def __init__(self, *uuids):
        super().__init__("torch")
        self.events = []
        self.cuda = types.SimpleNamespace(
            is_available=lambda: bool(uuids),
            device_count=lambda: len(uuids),
            get_device_properties=lambda i: types.SimpleNamespace(name=f"GPU {i}", uuid=uuids[i]),
            synchronize=lambda device: self.events.append(("synchronize", device.index)),
        )

    def set_num_threads(self, count):
        pass

    def get_num_threads(self):
        return 2

    def device(self, kind, index=None):
        return types.SimpleNamespace(type=kind, index=index)

    def from_numpy(self, array):
        self.events.append(("upload",))
        return self.Tensor(array, self.device("cpu"))

    def _reduce(self, name, function, tensor, axis):
        self.events.append((name, tensor.device.index))
        return self.Tensor(np.asarray(function(tensor.array, axis)), tensor.device)

    argmax = partialmethod(_reduce, "argmax", np.argmax)
    sum = partialmethod(_reduce, "sum", np.sum)
    amax = partialmethod(_reduce, "amax", np.max)
    mean = partialmethod(_reduce, "mean", np.mean)
    logsumexp = partialmethod(_reduce, "logsumexp", lambda x, axis: np.logaddexp.reduce(x.astype(np.float64), axis))


class FakeCupy(types.ModuleType):
    """CuPy as NumPy; its functions have the same names."""

    __version__ = "14.2"
    argmax, asarray, asnumpy, pad = map(staticmethod, (np.argmax, np.asarray, np.asarray, np.pad))
    sum, max, mean, exp, log, zeros = map(staticmethod, (np.sum, np.max, np.mean, np.exp, np.log, np.zeros))
    lib = np.lib

    class RuntimeError(Exception):
        pass

    def __init__(self, *uuids, error=None):
        super().__init__("cupy")
        self.events = []

        def count():
            if error:
                raise self.RuntimeError(error)
            return len(uuids)

        def device(index):
            return types.SimpleNamespace(
                use=lambda: self.events.append(("use", index)),
                synchronize=lambda: self.events.append(("synchronize", index)),
            )

        def properties(i):
            return {"name": f"GPU {i}".encode(), "uuid": bytes.fromhex(uuids[i])}

        runtime = types.SimpleNamespace(
            CUDARuntimeError=self.RuntimeError, getDeviceCount=count, getDeviceProperties=properties
        )
        self.cuda = types.SimpleNamespace(runtime=runtime, Device=device)


@pytest.fixture
def torch(monkeypatch):
    made = FakeTorch("ff" * 16, f"GPU-{DASHED}")
    monkeypatch.setitem(sys.modules, "torch", made)
    return made


@pytest.fixture
def cupy(monkeypatch):
    made = FakeCupy("ff" * 16, UUID)
    monkeypatch.setitem(sys.modules, "cupy", made)
    return made


def check(case, peer):
    inputs = case.inputs()
    contender = peer.contender(case.desc, *inputs)
    assert not list(differences(case.desc, inputs, contender.outputs(contender.run()), reference(case.desc, *inputs)))
    return contender


@pytest.mark.parametrize("case", [*ARGMAX, *REDUCE], ids=lambda case: case.id)
def test_torch_reduces_on_the_gpu(torch, case):
    check(case, TorchPeer("cuda", UUID))


@pytest.mark.parametrize("case", [*ARGMAX, *REDUCE, *POOLING], ids=lambda case: case.id)
def test_cupy_agrees_with_the_oracle(cupy, case):
    check(case, CupyPeer(UUID))


def test_what_torch_does_on_a_gpu_is_waited_for_and_nothing_else_is_timed(torch):
    contender = check(ARGMAX[0], TorchPeer("cuda", UUID))
    torch.events.clear()
    contender.run()
    assert torch.events == [("argmax", 1), ("synchronize", 1)]


def test_what_torch_does_on_the_cpu_waits_for_no_gpu(torch):
    contender = check(ARGMAX[0], TorchPeer())
    torch.events.clear()
    contender.run()
    assert torch.events == [("argmax", None)]


def test_what_cupy_does_is_waited_for(cupy):
    contender = check(POOLING[0], CupyPeer(UUID))
    cupy.events.clear()
    contender.run()
    assert cupy.events == [("synchronize", 1)]


def test_peers_take_the_gpu_of_the_device(torch, cupy):
    assert TorchPeer("cuda", UUID).description == "2.9, GPU 1"
    assert CupyPeer(UUID).description == "14.2, GPU 1"
    assert cupy.events == [("use", 1)]
    for uuid in ("", "00" * 16):
        assert TorchPeer("cuda", uuid).description == "2.9, GPU 0"
        assert CupyPeer(uuid).description == "14.2, GPU 0"
    assert TorchPeer().description == "2.9, 2 threads"


def test_pooling_that_cupy_does_not_have_is_refused(cupy):
    case = pooling_case("a", (2, 3, 9, 7), 3, indices=True)
    with pytest.raises(UnavailableError, match="no indices"):
        CupyPeer().contender(case.desc, *case.inputs())


@pytest.mark.parametrize("operator", ["MAX_POOLING_GRAD", "AVERAGE_POOLING_GRAD"])
def test_gradients_that_cupy_does_not_have_are_refused(cupy, operator):
    case = pooling_case("a", (2, 3, 9, 7), 3, operator=operator)
    with pytest.raises(UnavailableError, match=f"^no {type(case.desc).__name__} in CuPy$"):
        CupyPeer().contender(case.desc, *case.inputs())


def test_functions_that_no_library_is_asked_for_are_refused(torch, cupy):
    case = reduce_case(ReduceFunction.MULTIPLY, "a", (7, 300), [1])
    for peer, name in ((TorchPeer(), "PyTorch"), (CupyPeer(), "CuPy")):
        with pytest.raises(UnavailableError, match=f"^no REDUCE MULTIPLY in {name}$"):
            peer.contender(case.desc, *case.inputs())


def test_what_cupy_cannot_compile_is_refused(cupy, monkeypatch):
    class CompileError(Exception):
        pass

    def failing(*args):
        raise CompileError("no header\nand so on")

    monkeypatch.setattr(FakeCupy, "argmax", staticmethod(failing))
    with pytest.raises(UnavailableError, match=r"^no header$"):
        CupyPeer().contender(ARGMAX[0].desc, *ARGMAX[0].inputs())


class Broken:
    """A package that is there and cannot be imported."""

    def find_spec(self, name, path=None, target=None):
        if name in ("torch", "cupy"):
            raise ImportError(f"lib{name}.so: cannot open shared object file\nand more")


def test_what_is_not_there_says_why(monkeypatch):
    for name, peer in (("torch", lambda: TorchPeer("cuda")), ("cupy", CupyPeer)):
        monkeypatch.delitem(sys.modules, name, raising=False)
        with monkeypatch.context() as patched:
            patched.setitem(sys.modules, name, None)
            with pytest.raises(UnavailableError, match=r"^not installed$"):
                peer()
        with monkeypatch.context() as patched:
            patched.setattr(sys, "meta_path", [Broken()])
            with pytest.raises(UnavailableError, match=f"lib{name}.so: cannot open shared object file$"):
                peer()
    monkeypatch.setitem(sys.modules, "torch", FakeTorch())
    with pytest.raises(UnavailableError, match=r"^PyTorch sees no GPU$"):
        TorchPeer("cuda")
    for there_are, reason in ((FakeCupy(error="no driver"), "no driver"), (FakeCupy(), "CuPy sees no GPU")):
        monkeypatch.setitem(sys.modules, "cupy", there_are)
        with pytest.raises(UnavailableError, match=f"^{reason}$"):
            CupyPeer()


def test_a_run_has_them_as_peers(driver, torch, cupy, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(cli, "CASES", ARGMAX)
    argv = ["--device", str(driver.index), "--rounds", "1", "-k", "rows", "--peers", "torch-cuda,cupy"]
    assert cli.main(argv) == 0
    output = capsys.readouterr().out
    assert "peer torch-cuda: 2.9, GPU 0" in output
    assert "peer cupy: 14.2, GPU 0" in output
    ratios = next(line.split() for line in output.split("kernel / other")[1].splitlines() if "argmax-rows" in line)
    assert len(ratios) == 4
    assert "-" not in ratios
