"""Images of text lines in an alphabet of three letters, for tests of the command line."""

import random
import struct
import zlib

from cli_support import TINY

# A letter is columns of ink: rows from the top, 16 of them, 1 is ink.
GLYPHS = {"a": ["1" * 16, "1" * 16, "0" * 16], "b": ["1" * 8 + "0" * 8] * 4, "c": ["0" * 8 + "1" * 8] * 4,
          "d": ["1" * 3 + "0" * 10 + "1" * 3] * 4, " ": ["0" * 16] * 5}
LINES = TINY + ["features.type=image", "features.height=16", "features.padding=2", "data.batch_frames=300",
                "model.subsample=1"]


def line_image(text, rng):
    """Rows of grey values, 20 high, paper around the ink."""
    columns = ["0" * 16] * 3
    for letter in text:
        columns += GLYPHS[letter] + ["0" * 16] * rng.randrange(2, 4)
    return [[rng.randrange(0, 40) if 0 <= y < 16 and c[y] == "1" else rng.randrange(225, 256) for c in columns]
            for y in range(-2, 18)]


def png(rows):
    """Grey rows as the bytes of a PNG."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    header = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 0, 0, 0, 0)
    pixels = b"".join(b"\0" + bytes(row) for row in rows)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(pixels)) + chunk(b"IEND", b""))


def pgm(rows):
    return f"P5\n{len(rows[0])} {len(rows)}\n255\n".encode() + b"".join(bytes(row) for row in rows)


def line_corpus(root, books=6, each=12, seed=3):
    """root/scans/BOOK/N.png, some of them N.pgm, with N.gt.txt."""
    rng = random.Random(seed)
    for book in range(books):
        place = root / "scans" / f"book{book}"
        place.mkdir(parents=True)
        for n in range(each):
            text = " ".join("".join(rng.choice("abc") for _ in range(rng.randrange(1, 4))) for _ in range(2))
            rows = line_image(text, rng)
            name, content = (f"{n}.pgm", pgm(rows)) if n % 3 == 0 else (f"{n}.png", png(rows))
            (place / name).write_bytes(content)
            (place / f"{n}.gt.txt").write_text(text + "\n")
