# SPDX-License-Identifier: Apache-2.0
"""Blocks of a hold as arrays and tensors, in place: numpy.from_dlpack, torch.from_dlpack.

    hold = Hold(library, session, address)  # ctypes.CDLL("libkvcache.so"); struct kvc *; what
                                            # kvc_acquire or kvc_acquire_on has returned
    kv = torch.from_dlpack(hold.block(0, 7)).view(torch.bfloat16)
    ...
    del kv
    hold.release()                          # BufferError while a tensor still reads the blocks

Nothing may write to a tensor: the bytes are other workers' too. numpy says so itself; PyTorch has
no tensors for reading alone, and a write to one ends the process with SIGSEGV.
"""
import ctypes
from ctypes import byref, c_char_p, c_int32, c_uint8, c_uint32, c_uint64, c_void_p, py_object

DELETER = ctypes.CFUNCTYPE(None, c_void_p)


class Plain(ctypes.Structure):  # DLManagedTensor; its tensor begins with data and device
    _fields_ = [("data", c_void_p), ("device", c_int32 * 2), ("tensor", c_uint8 * 32),
                ("context", c_void_p), ("deleter", c_void_p)]


class Versioned(ctypes.Structure):  # DLManagedTensorVersioned
    _fields_ = [("version", c_uint32 * 2), ("context", c_void_p), ("deleter", c_void_p),
                ("flags", c_uint64), ("data", c_void_p), ("device", c_int32 * 2)]


FORMS = {b"dltensor": (Plain, "kvc_hold_dlpack"),
         b"dltensor_versioned": (Versioned, "kvc_hold_dlpack_versioned")}
views = {}  # address of a view: its hold, the library's deleter


def python(name, result, *arguments):
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


capsule_new = python("PyCapsule_New", py_object, c_void_p, c_char_p, c_void_p)
capsule_is = python("PyCapsule_IsValid", ctypes.c_int, c_void_p, c_char_p)
capsule_get = python("PyCapsule_GetPointer", c_void_p, c_void_p, c_char_p)


@DELETER
def delete_view(address):  # by whoever has taken the capsule, in any thread
    DELETER(views[address][1])(address)
    del views[address]


@ctypes.PYFUNCTYPE(None, c_void_p)
def delete_capsule(capsule):  # nobody has taken it if it still has its name
    for name in FORMS:
        if capsule_is(capsule, name):
            delete_view(capsule_get(capsule, name))


class Hold:
    def __init__(self, library, session, address):
        self.library, self.session, self.address = library, session, address
        for _, function in FORMS.values():
            getattr(library, function).argtypes = c_void_p, c_uint32, c_uint32
            getattr(library, function).restype = c_void_p
        library.kvc_release.argtypes = c_void_p, c_void_p
        library.kvc_release.restype = None

    def block(self, group, i):
        return Block(self, group, i)

    def release(self):
        alive = sum(hold is self for hold, _ in list(views.values()))
        if alive:
            raise BufferError(f"{alive} tensors still read the hold's blocks: delete them first")
        self.library.kvc_release(self.session, byref(c_void_p(self.address)))
        self.address = None


class Block:
    def __init__(self, hold, group, i):
        self.hold, self.group, self.i = hold, group, i

    def make(self, name):
        form, function = FORMS[name]
        if self.hold.address is None:
            raise ValueError("the hold was released")
        address = getattr(self.hold.library, function)(self.hold.address, self.group, self.i)
        if not address:
            raise ValueError(f"the hold has no block {self.i} in group {self.group}")
        view = form.from_address(address)
        views[address] = self.hold, view.deleter
        view.deleter = ctypes.cast(delete_view, c_void_p).value
        return address, view

    def __dlpack_device__(self):
        address, view = self.make(b"dltensor")
        device = tuple(view.device)
        delete_view(address)
        return device

    # stream: blocks have arrived when the hold is returned, so there is nothing to wait for.
    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if copy:
            raise BufferError("a block is read in place: copy the tensor instead")
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"the block is on {self.__dlpack_device__()}, not on {dl_device}")
        name = b"dltensor_versioned" if max_version and max_version[0] >= 1 else b"dltensor"
        return capsule_new(self.make(name)[0], name, ctypes.cast(delete_capsule, c_void_p))
