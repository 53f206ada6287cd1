# SPDX-License-Identifier: Apache-2.0
"""client/examples/dlpack.py with numpy or torch, on a daemon of its own: dlpack.py numpy|torch"""
import ctypes
import gc
import os
import subprocess
import sys
import tempfile
import time

source, bin_dir = os.environ["KVC_SOURCE_DIR"], os.environ["KVC_BIN_DIR"]
sys.path.insert(0, source + "/client/examples")
sys.dont_write_bytecode = True
import dlpack  # noqa: E402

BLOCKS, BLOCK_BYTES = 8, 8192


def check(good, what):
    if not good:
        raise SystemExit(f"dlpack: {what}")


def refused(error, function, *arguments, **named):
    try:
        function(*arguments, **named)
    except error:
        return True
    return False


class Form:
    """A block for consumers that take only one of the two forms."""

    def __init__(self, block, version):
        self.block, self.version, self.asked = block, version, {}

    def __dlpack__(self, **asked):
        self.asked = asked
        return self.block.__dlpack__(max_version=self.version)

    def __dlpack_device__(self):
        return self.block.__dlpack_device__()


class Numpy:
    def __init__(self):
        import numpy
        self.take, self.version = numpy.from_dlpack, numpy.__version__

    def bytes(self, array):
        return array.tobytes()

    def at(self, array):
        return array.ctypes.data

    def is_read_only(self, array):
        return refused(ValueError, array.__setitem__, 0, 1)


class Torch:
    def __init__(self):
        import torch
        self.take, self.version = torch.from_dlpack, torch.__version__

    def bytes(self, tensor):
        return bytes(tensor.tolist())

    def at(self, tensor):
        return tensor.data_ptr()

    def is_read_only(self, tensor):
        return True  # it has no such tensors


def check_views(package, worker, hold, form):
    for i in range(BLOCKS):
        view = package.take(form(hold.block(0, i)))
        check(package.bytes(view) == bytes([17 * i + 1]) * BLOCK_BYTES, f"bytes of block {i}")
        check(package.at(view) == worker.dlpack_at(hold.address, i), f"block {i} was copied")
        check(package.is_read_only(view), f"block {i} may be written")
        check(len(dlpack.views) == 1, "a view is there once")
        check(refused(BufferError, hold.release), "the hold goes before its view")
        part = view[100:]
        del view
        gc.collect()
        check(len(dlpack.views) == 1, "a part of a view keeps it")
        del part
        gc.collect()
        check(not dlpack.views, "the view stays behind")


def check_capsules(hold):
    """Which form is made for whom, its flags, and capsules that nobody takes."""
    block = hold.block(0, 3)
    for version, name in ((None, b"dltensor"), ((0, 8), b"dltensor"),
                          ((1, 0), b"dltensor_versioned"), ((1, 3), b"dltensor_versioned")):
        capsule = block.__dlpack__(max_version=version)
        check(dlpack.capsule_is(id(capsule), name), f"max_version {version}: {name}")
        address = dlpack.capsule_get(id(capsule), name)
        if name == b"dltensor_versioned":
            view = dlpack.Versioned.from_address(address)
            check((list(view.version), view.flags) == ([1, 0], 1), "version 1.0, read only")
        del capsule
        check(not dlpack.views, f"a capsule {name} that nobody took")
    check(block.__dlpack_device__() == (1, 0), "an emulated device is the processor")
    check(refused(BufferError, block.__dlpack__, copy=True), "a copy is made")
    check(refused(BufferError, block.__dlpack__, dl_device=(2, 0)), "for another device")
    check(refused(ValueError, hold.block(0, BLOCKS).__dlpack__), "a block that is not there")


def check_all(package, socket):
    library = ctypes.CDLL(bin_dir + "/libkvcache.so")
    worker = ctypes.CDLL(bin_dir + "/libdlpack_worker.so")
    worker.dlpack_open.restype = worker.dlpack_hold.restype = ctypes.c_void_p
    worker.dlpack_at.restype = ctypes.c_void_p
    worker.dlpack_at.argtypes = ctypes.c_void_p, ctypes.c_uint32
    worker.dlpack_hold.argtypes = (ctypes.c_bool,)
    session = worker.dlpack_open(socket.encode())
    check(session, "no session")
    forms = [lambda block: Form(block, None), lambda block: block]
    hold = dlpack.Hold(library, session, worker.dlpack_hold(False))
    probe = Form(hold.block(0, 0), None)
    package.take(probe)
    hold.release()
    if "max_version" in probe.asked:  # of DLPack 1.0 or later
        forms.append(lambda block: Form(block, (1, 0)))
    for on_device in (False, True):
        hold = dlpack.Hold(library, session, worker.dlpack_hold(on_device))
        check_capsules(hold)
        for form in forms:
            check_views(package, worker, hold, form)
        hold.release()
        check(refused(ValueError, hold.block(0, 0).__dlpack__), "of a hold that was released")
    worker.dlpack_close()
    return len(forms) > 2


def await_socket(daemon, path):
    for _ in range(2000):
        check(daemon.poll() is None, "the daemon ended")
        if os.path.exists(path):
            return
        time.sleep(0.01)
    raise SystemExit("dlpack: the daemon does not come up")


def main():
    package = {"numpy": Numpy, "torch": Torch}[sys.argv[1]]()
    with tempfile.TemporaryDirectory(prefix="kvc-dlpack-", dir="/tmp") as directory:
        sets = [f"runtime_dir={directory}", "host.limit=64MiB", "host.chunk=4MiB",
                "staging.total=16MiB", "hbm.devices=emu:0=16MiB", "hbm.emu_memory=64MiB"]
        command = [bin_dir + "/kvcache-daemon"] + [word for s in sets for word in ("--set", s)]
        daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        try:
            await_socket(daemon, directory + "/attach.sock")
            both = check_all(package, directory + "/attach.sock")
        finally:
            daemon.terminate()
            code = daemon.wait(30)
        check(code == 0, f"the daemon ended with {code}")
    print(f"{sys.argv[1]} {package.version}: "
          f"{'both forms' if both else 'the form of before DLPack 1.0'}")


main()
