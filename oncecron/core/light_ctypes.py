"""Call C functions without `ctypes`, whose 44 classes and their modules cost a winning firing 3 to 5 % of its CPU.

That is 1.4 of 30 to 40 ms on each store, in 120 pairs.

`_ctypes`, in C, does the work. `ctypes` gives it names, pointer types and a library object; this module has those that
a firing uses. A pointer to an array is passed as `c_void_p`, which takes the array itself.
Where `_ctypes` does not work like this, these are the names of `ctypes` after all.
"""

from __future__ import annotations

from os import getpid

# ruff: noqa: ANN001, ANN002, ANN201, ANN204, TRY301 - the type checker sees the classes of `ctypes`
from oncecron.core.light_typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctypes import *  # noqa: F403 - those of `__all__` below
else:
    try:
        from _ctypes import (
            FUNCFLAG_CDECL,
            FUNCFLAG_USE_ERRNO,
            CFuncPtr,
            Structure,
            _SimpleCData,
            byref,
            dlopen,
            get_errno,
            sizeof,
        )

        class c_int(_SimpleCData):  # noqa: N801 - the names of `ctypes`
            """A C int."""

            _type_ = "i"

        class c_void_p(_SimpleCData):  # noqa: N801
            """A pointer: an int, None for NULL."""

            _type_ = "P"

        class c_char_p(_SimpleCData):  # noqa: N801
            """A pointer to bytes that end with a NUL, None for NULL."""

            _type_ = "z"

        class _Function(CFuncPtr):
            _flags_ = FUNCFLAG_CDECL | FUNCFLAG_USE_ERRNO
            _restype_ = c_int

        def CFUNCTYPE(restype, *argtypes):  # noqa: N802
            """Return a type of callbacks."""
            body = {"_flags_": FUNCFLAG_CDECL, "_restype_": restype, "_argtypes_": argtypes}
            return type(CFuncPtr)("Callback", (CFuncPtr,), body)

        class CDLL:
            """A shared library, whose functions are its attributes. `None`: what the interpreter is linked with."""

            def __init__(self, name, use_errno=True):
                """Load it. Raises `OSError`."""
                del use_errno  # always
                self._name = name
                self._handle = dlopen(name, 0)

            def __getattr__(self, name):
                """Return a function. Raises `AttributeError` if the library has none with this name."""
                if name.startswith("__"):
                    raise AttributeError(name)
                function = _Function((name, self))
                setattr(self, name, function)
                return function

        if CDLL(None).getpid() != getpid():
            raise ImportError
    except Exception:  # noqa: BLE001 - private names may be gone, or have changed in any way
        from ctypes import *  # noqa: F403 - as above


__all__ = [
    "CDLL", "CFUNCTYPE", "Structure", "byref", "c_char_p", "c_int", "c_void_p", "get_errno", "sizeof",
]  # fmt: skip
