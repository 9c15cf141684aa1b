"""Outputs of CTC models as other programs write them, for tests of what reads them."""

import struct

from cli_support import run


def said(*words):
    return run(*words)[0]


def write_npy(path, rows):
    """Rows of numbers as NumPy's format has them."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({len(rows)}, {len(rows[0])}), }}"
    header += " " * (63 - (len(header) + 10) % 64) + "\n"
    data = b"".join(struct.pack("<f", v) for row in rows for v in row)
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data)


def spoken(labels, classes, sure=0.9):
    """Probabilities of frames in which these classes are the likely ones."""
    return [[sure if c == label else (1 - sure) / (classes - 1) for c in range(classes)] for label in labels]
