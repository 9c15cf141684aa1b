"""The same training task for rondo and for PyTorch: 5 bidirectional LSTM layers and CTC, random data.

Standard library alone, so that it runs wherever gpu_check does.
"""

import array
import json
import random
import struct

SEQUENCES, FRAMES = 32, 704  # of equal length, so that padding costs nobody anything
STEPS_PER_EPOCH = 20
FEATURES, HIDDEN, LAYERS, CLASSES = 80, 512, 5, 32
LEAST_LABELS, MOST_LABELS = 20, 80

CONFIG = f"""\
[data]
train = {{manifest}}
sorta_grad = false
batch_frames = {SEQUENCES * FRAMES}

[features]
type = "ready"
cmvn = "none"

[model]
hidden = {HIDDEN}
layers = {LAYERS}
bidirectional = true
dropout = 0.0
subsample = 1

[optimizer]
type = "adamw"
lr = 1e-4

[schedule]
type = "constant"
warmup_steps = 0

[training]
epochs = 1000000
dtype = "{{dtype}}"
clip = 5
log_every_steps = 1
checkpoint_every_seconds = 0
"""


def labels():
    draw = random.Random(1)
    return [[draw.randrange(1, CLASSES) for _ in range(draw.randrange(LEAST_LABELS, MOST_LABELS + 1))]
            for _ in range(SEQUENCES)]


def write_npy(path, seed):
    """Uniform random features [FRAMES, FEATURES], f32."""
    draw = random.Random(seed)
    values = array.array("f", (draw.uniform(-1, 1) for _ in range(FRAMES * FEATURES)))
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({FRAMES}, {FEATURES}), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode("latin1")
                     + values.tobytes())


def write_corpus(directory, dtype):
    """Manifest, features and configuration; the path of the configuration."""
    directory.mkdir(parents=True, exist_ok=True)
    lines = []
    for i, sequence in enumerate(labels()):
        write_npy(directory / f"{i}.npy", i)
        lines.append(json.dumps({"features_filepath": f"{i}.npy", "labels": sequence}))
    manifest = directory / "train.jsonl"
    manifest.write_text("\n".join(lines * STEPS_PER_EPOCH) + "\n")
    config = directory / f"{dtype}.toml"
    config.write_text(CONFIG.format(dtype=dtype, manifest=json.dumps(str(manifest))))
    return config
