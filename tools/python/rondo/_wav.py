"""Samples of RIFF/WAVE files: integers of 8 to 32 bits and floats, any number of channels."""

from __future__ import annotations

import os
import struct
from typing import Any, Iterator

import numpy as np

from ._library import InvalidError

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE


def _chunks(content: memoryview, path: str) -> Iterator[tuple[bytes, memoryview]]:
    at = 12
    while at + 8 <= len(content):
        name, size = struct.unpack_from("<4sI", content, at)
        here = content[at + 8:at + 8 + size]
        if name == b"data" and size == 0xFFFFFFFF:  # of a program that wrote to a pipe
            here = content[at + 8:]
        elif len(here) < size:
            raise InvalidError(f"{path}: ends after {len(here)} of {size} bytes of its chunk {name!r} (truncated)")
        yield name, here
        at += 8 + size + size % 2


def _floats(data: memoryview, kind: int, bits: int, path: str) -> Any:
    usable = data[:len(data) // (bits // 8) * (bits // 8)] if bits % 8 == 0 and bits > 0 else data[:0]
    if kind == _FLOAT and bits in (32, 64):
        return np.frombuffer(usable, f"<f{bits // 8}").astype(np.float32)
    if kind == _PCM and bits == 8:
        return (np.frombuffer(usable, np.uint8).astype(np.float32) - 128) / np.float32(128)
    if kind == _PCM and bits == 24:
        wide = np.zeros((len(usable) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(usable, np.uint8).reshape(-1, 3)
        return (wide.view("<i4").ravel() >> 8).astype(np.float32) / np.float32(2**23)
    if kind == _PCM and bits in (16, 32):
        return np.frombuffer(usable, f"<i{bits // 8}").astype(np.float32) / np.float32(2**(bits - 1))
    raise InvalidError(f"{path}: WAVE format {kind} of {bits} bits, expected integers of 8, 16, 24 or 32 bits or floats")


def read_wav(path: "str | os.PathLike[str]") -> "tuple[np.ndarray[Any, Any], int]":
    """The samples of a WAVE file, of several channels their mean, full scale [-1, 1]; and their rate."""
    name = os.fspath(path)
    with open(path, "rb") as file:
        content = file.read()
    if content[:4] != b"RIFF" or content[8:12] != b"WAVE":
        raise InvalidError(f"{name}: is not a RIFF/WAVE file; read it with another package, and give its samples and "
                           "their rate")
    kind = channels = rate = bits = 0
    for chunk, data in _chunks(memoryview(content), name):
        if chunk == b"fmt " and len(data) >= 16:
            kind, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", data)
            if kind == _EXTENSIBLE and len(data) >= 26:
                kind = struct.unpack_from("<H", data, 24)[0]
        elif chunk == b"data":
            if channels < 1:
                raise InvalidError(f"{name}: no chunk 'fmt ' with channels stands before its samples")
            samples = _floats(data, kind, bits, name)
            samples = samples[:len(samples) // channels * channels].reshape(-1, channels)
            mono = samples[:, 0].copy()
            for c in range(1, channels):
                mono += samples[:, c]
            return (mono * np.float32(1 / channels) if channels > 1 else mono), rate
    raise InvalidError(f"{name}: holds no samples")
