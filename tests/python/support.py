"""What the tests of the Python package share: a corpus of tones, a model of it, and the command."""

import functools
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

import numpy as np
import rondo

RATE, TONE = 8000, 1200  # samples in a second and in a letter
FOLDER = pathlib.Path(os.environ.get("RONDO_TEST_FOLDER") or tempfile.mkdtemp()) / "data"
ROOT = pathlib.Path(os.environ["RONDO_SOURCE_ROOT"])
FOLDER.mkdir(parents=True, exist_ok=True)


def tones(seed):
    """A text of a, b, c and d, and the samples of a tone for each, with a pause at either end."""
    draw = np.random.default_rng(seed)
    text = ""
    for i in range(int(draw.integers(4, 10))):
        letter = draw.choice([c for c in "abcd" if c != text[-1:]])
        text += " " if 1 < i and text[-1] != " " and draw.random() < 0.25 else letter
    text = text.strip()
    pitches = [0] + [0 if c == " " else 400 * (ord(c) - ord("a") + 1) for c in text] + [0]
    sound = np.concatenate([0.3 * np.sin(2 * np.pi * p * np.arange(TONE) / RATE) for p in pitches])
    return text, (sound + draw.uniform(-0.01, 0.01, len(sound))).astype(np.float32)


def write_wav(path, samples, rate=RATE, kind=1, bits=16, channels=1, extensible=False):
    """Bytes of samples as a WAVE file."""
    data = samples.tobytes()
    step = channels * bits // 8
    form = struct.pack("<HHIIHH", 0xFFFE if extensible else kind, channels, rate, rate * step, step, bits)
    if extensible:
        form += struct.pack("<HHIH14s", 22, bits, 0, kind, b"\0\0\0\0\x10\0\x80\0\0\xaa\0\x38\x9b\x71")
    chunks = b"fmt " + struct.pack("<I", len(form)) + form + b"LIST\3\0\0\0abc\0" + b"data" + struct.pack("<I", len(data)) + data
    pathlib.Path(path).write_bytes(b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks)


def int16(sound):
    return np.rint(sound * 32767).astype(np.int16)


def write_pgm(path, image):
    """A grey image."""
    path.write_bytes(b"P5 %d %d 255\n" % image.shape[::-1] + image.tobytes())


def write_manifest(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def settings(folder, **more):
    """A small model that can stream."""
    chosen = {
        "data": {"train": folder / "train.jsonl", "dev": folder / "dev.jsonl", "batch_frames": 1500},
        "features": {"rate": RATE, "bins": 20, "cmvn": "global"},
        "model": {"hidden": 48, "layers": 1, "bidirectional": False},
        "training": {"epochs": 20, "checkpoint_dir": folder / "run", "threads": 1},
        "optimizer": {"type": "adam", "lr": 0.01},
    }
    return {section: {**values, **more.get(section, {})} for section, values in chosen.items()}


@functools.cache
def corpus():
    """A folder with recordings and manifests."""
    folder = FOLDER / "tones"
    folder.mkdir(parents=True, exist_ok=True)
    for name, first, count in (("train", 1000, 150), ("dev", 5000, 20), ("test", 9000, 10)):
        lines = []
        for seed in range(first, first + count):
            text, sound = tones(seed)
            write_wav(folder / f"{seed}.wav", int16(sound))
            lines.append({"audio_filepath": f"{seed}.wav", "text": text})
        write_manifest(folder / f"{name}.jsonl", lines)
    return folder


@functools.cache
def model():
    """A model of the corpus."""
    rondo.train(settings(corpus()))
    return corpus() / "run" / "model.safetensors"


def command(*arguments, text=True):
    """What the command in the package writes."""
    done = subprocess.run([sys.executable, "-m", "rondo", *map(str, arguments)], stdout=subprocess.PIPE, text=text)
    if done.returncode != 0:
        raise AssertionError(f"rondo {' '.join(map(str, arguments))}: exit status {done.returncode}")
    return done.stdout


def distance(a, b):
    """Edits from one text to another."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        row, last = [i], row
        for j, y in enumerate(b, 1):
            row.append(min(last[j - 1] + (x != y), last[j] + 1, row[-1] + 1))
    return row[-1]


class Foreign:
    """An array of another package, which numpy sees by DLPack alone."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()
