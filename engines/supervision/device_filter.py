"""Device filter of a cgroup: a BPF program by which its processes can open no NVIDIA GPU but their own.

Other devices are not affected, nor are filters of others, as of systemd, above it. The program goes with its cgroup.
"""

import ctypes
import os
import platform
import struct
from collections.abc import Collection

NVIDIA_MAJOR = 195
FIRST_CONTROL = 254
"""Minor numbers from here on are of devices that all GPUs share: nvidiactl is 255."""
_SYSCALLS = {"x86_64": 321, "aarch64": 280}
_PROG_LOAD, _PROG_ATTACH = 5, 8
_CGROUP_DEVICE_PROGRAM, _CGROUP_DEVICE_HOOK, _ALLOW_MULTI = 15, 6, 2
_CHARACTER_DEVICE = 2
_LOAD, _AND, _IF_EQUAL, _IF_OTHER, _IF_AT_LEAST, _SET, _EXIT = 0x61, 0x57, 0x15, 0x55, 0x35, 0xB7, 0x95
"""Opcodes: load a word, AND, jumps, 64-bit move, exit; all with an immediate number."""


def attach_device_filter(cgroup: str, minors: Collection[int]) -> None:
    """Let the processes of the cgroup open only these GPUs, by their minor numbers (/dev/nvidia3 has 3)."""
    program = _load(instructions(minors))
    try:
        target = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _bpf(_PROG_ATTACH, struct.pack("IIII", target, program, _CGROUP_DEVICE_HOOK, _ALLOW_MULTI))
        finally:
            os.close(target)
    finally:
        os.close(program)


def instructions(minors: Collection[int]) -> bytes:
    """The program: 1 (allowed) unless the device is a GPU that is not among these.

    Its input in register 1 is `struct bpf_cgroup_dev_ctx`: access and type, major number, minor number.
    """
    allowed = sorted(minors)
    to_the_end = 8 + len(allowed)  # instructions before `allow`
    lines = [
        (_LOAD, 2, 1, 0, 0),
        (_AND, 2, 0, 0, 0xFFFF),  # its lower half is the type
        (_IF_OTHER, 2, 0, to_the_end - 2, _CHARACTER_DEVICE),
        (_LOAD, 2, 1, 4, 0),
        (_IF_OTHER, 2, 0, to_the_end - 4, NVIDIA_MAJOR),
        (_LOAD, 2, 1, 8, 0),
        (_IF_AT_LEAST, 2, 0, to_the_end - 6, FIRST_CONTROL),
        *((_IF_EQUAL, 2, 0, to_the_end - 7 - number, minor) for number, minor in enumerate(allowed)),
        (_SET, 0, 0, 0, 0),
        (_EXIT, 0, 0, 0, 0),
        (_SET, 0, 0, 0, 1),  # allow
        (_EXIT, 0, 0, 0, 0),
    ]
    return b"".join(
        struct.pack("<BBhi", code, target | source << 4, offset, number)
        for code, target, source, offset, number in lines
    )


def _load(program: bytes) -> int:
    """Descriptor of the program."""
    code, licence = ctypes.create_string_buffer(program), ctypes.create_string_buffer(b"Apache-2.0")
    attributes = struct.pack(
        "IIQQIIQII",
        *(_CGROUP_DEVICE_PROGRAM, len(program) // 8, ctypes.addressof(code), ctypes.addressof(licence)),
        *(0, 0, 0, 0, 0),  # no log, any kernel version, no flags
    )
    return _bpf(_PROG_LOAD, attributes)


def _bpf(command: int, attributes: bytes) -> int:
    number = _SYSCALLS.get(platform.machine())
    if number is None:
        raise OSError(0, "the number of the system call bpf is not known here")
    libc, block = ctypes.CDLL(None, use_errno=True), ctypes.create_string_buffer(attributes)
    result: int = libc.syscall(number, command, ctypes.byref(block), len(attributes))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
