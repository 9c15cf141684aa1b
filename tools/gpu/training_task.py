"""The same training tasks for rondo and for PyTorch: LSTM layers and CTC, random data.

Standard library alone, so that it runs wherever gpu_check does.
"""

import array
import dataclasses
import json
import random
import struct

STEPS_PER_EPOCH = 20
VALUES = 2_000_000  # of features that are drawn; sequences share them beyond


@dataclasses.dataclass(frozen=True)
class Task:
    sequences: int  # of equal length, so that padding costs nobody anything
    frames: int
    features: int
    hidden: int  # per direction
    layers: int
    bidirectional: bool
    subsample: int  # so many frames are stacked into one
    classes: int
    least_labels: int
    most_labels: int


TASKS = {
    "bilstm": Task(32, 704, 80, 512, 5, True, 1, 32, 20, 80),
    # Brain-to-text: 512 features each 20 ms, 64 sentences, 41 phonemes (github.com/Neuroprosthetics-Lab/
    # nejm-brain-to-text, rnn_args.yaml), with LSTM for GRU and 4 bins stacked for 14 that overlap.
    "brain_to_text": Task(64, 880, 512, 768, 5, False, 4, 41, 20, 60),
    # AlgoPerf's librispeech_deepspeech (github.com/mlcommons/algorithmic-efficiency): the LSTM part, a GPU's share of the
    # batch of 256 on eight, 16 s of speech.
    "algoperf": Task(32, 1600, 80, 256, 6, True, 4, 1024, 40, 120),
}

CONFIG = """\
[data]
train = {manifest}
sorta_grad = false
batch_frames = {batch_frames}

[features]
type = "ready"
cmvn = "none"

[model]
hidden = {hidden}
layers = {layers}
bidirectional = {bidirectional}
dropout = 0.0
subsample = {subsample}

[optimizer]
type = "adamw"
lr = 1e-4

[lr]
type = "constant"
warmup_steps = 0

[training]
epochs = 1000000
dtype = "{dtype}"
clip = 5
log_every_steps = 1
checkpoint_every_seconds = 0
"""


def labels(task):
    """Of each sequence. Every class but the blank, 0, is there."""
    draw = random.Random(1)
    lengths = [draw.randrange(task.least_labels, task.most_labels + 1) for _ in range(task.sequences)]
    values = [1 + i % (task.classes - 1) for i in range(sum(lengths))]
    draw.shuffle(values)
    return [[values.pop() for _ in range(length)] for length in lengths]


def feature_files(task):
    return max(1, min(task.sequences, VALUES // (task.frames * task.features)))


def write_npy(path, task, seed):
    """Uniform random features [frames, features], f32."""
    draw = random.Random(seed)
    values = array.array("f", (draw.uniform(-1, 1) for _ in range(task.frames * task.features)))
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({task.frames}, {task.features}), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode("latin1")
                     + values.tobytes())


def write_corpus(directory, task):
    """Manifest and features of a task; the path of the manifest."""
    directory.mkdir(parents=True, exist_ok=True)
    for i in range(feature_files(task)):
        write_npy(directory / f"{i}.npy", task, i)
    lines = [json.dumps({"features_filepath": f"{i % feature_files(task)}.npy", "labels": sequence})
             for i, sequence in enumerate(labels(task))]
    manifest = directory / "train.jsonl"
    manifest.write_text("\n".join(lines * STEPS_PER_EPOCH) + "\n")
    return manifest


def write_config(directory, manifest, task, dtype):
    """The path of a configuration that trains on a corpus."""
    config = directory / f"{dtype}.toml"
    config.write_text(CONFIG.format(
        dtype=dtype, manifest=json.dumps(str(manifest)), batch_frames=task.sequences * task.frames,
        hidden=task.hidden, layers=task.layers, bidirectional=str(task.bidirectional).lower(),
        subsample=task.subsample))
    return config
