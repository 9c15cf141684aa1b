#!/usr/bin/env python3
"""A record of results, bit for bit, for changes that must not change any.

    tests/record/record.py build/tools/rondo > before.txt     with the program as it was
    tests/record/record.py build/tools/rondo > after.txt      with the changed one
    diff before.txt after.txt

Trains a matrix of small models (kinds of layers, kinds of splits over ranks, resumed and elastic runs,
cpu and the simulated device) and prints a line for each: its name, a hash of the final weights and of the optimizer's state,
and one of the losses and error rates in its log. Names of files, settings and times do not enter.
The hashes depend on the processor's instruction set, so the record is made and compared on one
machine, and none is stored.

Options behind the program: --only TEXT (cases whose name has it), --list, --check (that those of EQUAL
are). About a minute. The exit status is 1 if a run failed or differs from what it must equal; the
others are recorded all the same.
"""

import argparse
import hashlib
import json
import pathlib
import struct
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
from cli_support import READY, TONE, feature_corpus, folder, run, tone_corpus  # noqa: E402

COMMON = ["training.max_steps=10", "training.epochs=100", "training.log_every_steps=1",
          "training.validate_every_steps=5", "training.checkpoint_every_steps=10", "data.test=",
          "parallel.timeout_seconds=60"]
# The simulated device takes about a hundred times as long.
SHORT = ["--device", "sim", "training.max_steps=3", "training.validate_every_steps=0", "data.dev=",
         "training.checkpoint_every_steps=3", "data.batch_frames=60"]
TINY = [*SHORT, "model.hidden=8"]


def layers(*tables):
    """[[model.layer]] tables, each a dictionary, as a file beside the data."""
    lines = []
    for table in tables:
        lines.append("[[model.layer]]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in table.items()]
    return "\n".join(lines) + "\n"


LSTM = {"type": "lstm", "hidden": 20}
PAST = layers({"type": "conv", "channels": 12, "kernel": 3, "stride": 2, "context": "past"}, {"type": "relu"},
              {**LSTM, "bidirectional": False}, {"type": "dropout", "rate": 0.2},
              {"type": "linear", "size": 10}, {"type": "tanh"})
BOTH = layers({"type": "conv", "channels": 12, "kernel": 3}, {"type": "relu"},
              {"type": "conv", "channels": 10, "kernel": 3, "dilation": 2}, {"type": "sigmoid"},
              {"type": "layer_norm"}, {**LSTM, "layers": 2, "dropout": 0.1}, {"type": "linear", "size": 40,
                                                                               "residual": True})
IMAGES = layers({"type": "conv2d", "channels": 6, "kernel_width": 5}, {"type": "relu"},
                {"type": "conv2d", "channels": 6, "groups": 6, "dilation_width": 2},
                {"type": "conv2d", "channels": 8, "groups": 2, "stride_height": 2, "stride_width": 2}, {"type": "tanh"},
                {"type": "conv2d", "channels": 5, "kernel_height": 2, "kernel_width": 1},
                {**LSTM, "hidden": 8, "bidirectional": False})
DEEP = ["model.layers=4", "model.dropout=0.2"]
FORWARD = ["model.bidirectional=false"]

# Of these all splits are recorded: (name, flags).
SPLITS = [("1", []), ("ranks 2", ["--ranks", 2]), ("stages 2", ["--stages", 2, "parallel.placement=3,2"]),
          ("replicas 2", ["--replicas", 2]), ("shards 2", ["--shards", 2]),
          ("replicas 2, stages 2, shards 2",
           ["--replicas", 2, "--stages", 2, "--shards", 2, "parallel.placement=3,2"])]

# Cases that must end with the same weights: the docs promise it.
EQUAL = [("threads/1", "threads/2"),
         ("data/1/invariant", "data/2/invariant", "data/3/invariant"),
         ("data/2", "data/2/divided optimizer", "replicas/2", "replicas/2/divided optimizer"),
         ("data/3", "data/3/divided optimizer", "replicas/3"),
         ("sequence/2", "sequence/2/divided optimizer"),
         ("pipeline/2/1f1b", "pipeline/2/zero_bubble"),
         ("sim/pipeline 2/1f1b", "sim/pipeline 2/zero_bubble"),
         *[(f"resumed/{name}", f"resumed/{name}/whole") for name, _ in SPLITS],
         ("elastic/1", "elastic/2", "elastic/3", "elastic/2/resumed"),
         ("logits/whole", "logits/streamed")]

CASES = {}


class Case:
    """A run of these settings and flags, on a corpus of this kind, with tables of a model file.

    after: the settings of another run, with whose weights this one begins.
    resumed: the run stops in its middle and is resumed.
    elastic: so many processes under `rondo launch --elastic`.
    """

    def __init__(self, *settings, data="ctc", model=None, after=None, resumed=False, elastic=0):
        self.settings, self.data, self.model = settings, data, model
        self.after, self.resumed, self.elastic = after, resumed, elastic

    def corpus(self, root):
        if self.data == "tones":
            tone_corpus(root, train=24, dev=6)
        else:
            feature_corpus(root, self.data, train=32, dev=6)
        if self.model:
            (root / "model.toml").write_text(self.model)

    def words(self, *settings):
        base = TONE if self.data == "tones" else READY
        if self.model:
            base = ["model.toml", *[word for word in base if not word.startswith("model.")]]
        return ["train", *base, *COMMON, "data=.", *settings]

    def train(self, root):
        settings = self.settings
        if self.after is not None:
            run(*self.words(*self.after, "training.checkpoint_dir=before"), cwd=root)
            settings = [*settings, "--init-from", "before"]
        words = self.words(*settings)
        if self.elastic:
            words = ["launch", "-n", self.elastic, "--elastic", "--", *words]
        if self.resumed:
            run(*words, "training.max_steps=5", cwd=root)
            words.append("--resume")
        run(*words, cwd=root)


def case(name, *settings, **more):
    CASES[name] = Case(*settings, **more)


def one_rank():
    case("lstm", "model.dropout=0.3")
    case("lstm/three layers", "model.layers=3", "model.layer_norm=true", "model.residual=true")
    case("lstm/forward", *FORWARD, "model.layers=2")
    case("lstm/projection", "model.projection=9", "model.layers=2")
    case("stack", "model.subsample=2")
    case("conv/past", model=PAST)
    case("conv/both", model=BOTH)
    case("conv/bf16", "training.dtype=bf16", model=BOTH)
    case("conv/images", model=IMAGES)
    case("conv/images/bf16", "training.dtype=bf16", model=IMAGES)
    case("features/tones", data="tones")
    case("features/augmented", "augment.spec_augment=true", "augment.noise=0.5", "augment.speed=[0.9,1.1]",
         "features.cmvn=global", "features.dither=1", data="tones")
    case("labels", data="labels")
    case("classify", "task=classify", data="classify")
    case("classify/last", "task=classify", "model.pooling=last", data="classify")
    case("regress", "task=regress", data="regress")
    case("accumulation", "training.accumulation=3")
    case("bf16", "training.dtype=bf16", "model.layers=2")
    case("sgd", "optimizer.type=sgd", "optimizer.nesterov=true")
    case("ema", "training.ema=0.9", "training.average_best=2")
    case("tbptt", *FORWARD, "training.tbptt=6", "model.layers=2")
    case("tbptt/conv", "training.tbptt=6", model=PAST)
    case("lockstep", "--lockstep-ref", "model.hidden=8", "training.max_steps=2")
    for threads in (1, 2):
        case(f"threads/{threads}", f"training.threads={threads}")


def data_parallel():
    for n in (2, 3):
        case(f"data/{n}", "--ranks", n, *DEEP)
        case(f"data/{n}/invariant", "--ranks", n, *DEEP, "parallel.deterministic=world_invariant",
             "parallel.batch_parts=4")
        case(f"data/{n}/divided optimizer", "--ranks", n, *DEEP, "parallel.divide_optimizer=true")
    case("data/2/accumulation", "--ranks", 2, "training.accumulation=2", "parallel.bucket_kb=1")
    case("data/2/tbptt", "--ranks", 2, *FORWARD, "training.tbptt=6")
    case("data/1/invariant", *DEEP, "parallel.deterministic=world_invariant", "parallel.batch_parts=4")
    case("async/1", "parallel.sync=async", "parallel.sync_every=3")


def pipelines():
    # The placement by measured time differs from run to run, so each says its own.
    two, more = ["parallel.placement=3,2"], ["parallel.micro_batches=4", *DEEP]
    for schedule in ("1f1b", "zero_bubble"):
        case(f"pipeline/2/{schedule}", "--pipeline", 2, *two, *more, f"parallel.schedule={schedule}")
    case("pipeline/3", "--pipeline", 3, *more, "parallel.placement=2,2,1")
    case("pipeline/2/bf16 wire", "--pipeline", 2, *two, *more, "parallel.wire=bf16")
    case("pipeline/2/conv", "--pipeline", 2, "parallel.placement=3,4", "parallel.micro_batches=2", model=BOTH)
    case("pipeline/2/data 2", "--pipeline", 2, "--data", 2, *two, *more)
    case("pipeline/2/data 2/divided optimizer", "--pipeline", 2, "--data", 2, *two, *more,
         "parallel.divide_optimizer=true")
    case("pipeline/2/accumulation", "--pipeline", 2, *two, *more, "training.accumulation=2")


def sequences():
    for n in (2, 3):
        case(f"sequence/{n}", "--sequence", n, *DEEP)
        case(f"sequence/{n}/conv", "--sequence", n, model=BOTH)
        case(f"sequence/{n}/conv/images", "--sequence", n, model=IMAGES)
    case("sequence/2/divided optimizer", "--sequence", 2, *DEEP, "parallel.divide_optimizer=true")
    case("sequence/2/forward", "--sequence", 2, *FORWARD, *DEEP)
    case("sequence/2/bf16", "--sequence", 2, *DEEP, "training.dtype=bf16")
    case("sequence/2/classify", "--sequence", 2, "task=classify", data="classify")
    case("sequence/2/accumulation", "--sequence", 2, "training.accumulation=2")
    case("sequence/2/data 2", "--ranks", 4, "--sequence", 2, *DEEP)
    case("sequence/2/pipeline 2", "--ranks", 4, "--sequence", 2, "--pipeline", 2, "parallel.placement=3,2", *DEEP,
         "parallel.micro_batches=2")
    case("sequence/2/pipeline 2/conv", "--ranks", 4, "--sequence", 2, "--pipeline", 2, "parallel.placement=3,4",
         "parallel.micro_batches=2", model=BOTH)


def simulated():
    case("sim/lstm", *TINY, "model.layers=2")
    small = BOTH.replace("hidden = 20", "hidden = 8")
    case("sim/conv", *SHORT, model=small)
    case("sim/conv/images", *SHORT, "training.max_steps=1", model=IMAGES)
    case("sim/tbptt", *TINY, *FORWARD, "training.tbptt=6")
    case("sim/accumulation", *TINY, "training.accumulation=2")
    case("sim/bf16", *TINY, "training.dtype=bf16")
    case("sim/data 2", *TINY, "--ranks", 2, "model.layers=2")
    for schedule in ("1f1b", "zero_bubble"):
        case(f"sim/pipeline 2/{schedule}", *TINY, "--pipeline", 2, "model.layers=2", "parallel.placement=2,1",
             "parallel.micro_batches=3", f"parallel.schedule={schedule}")
    case("sim/pipeline 2/conv", *SHORT, "--pipeline", 2, "parallel.placement=3,4", "parallel.micro_batches=2",
         model=small)
    case("sim/sequence 2", *TINY, "--sequence", 2, "model.layers=2")
    case("sim/sequence 2/conv", *SHORT, "--sequence", 2, model=small)
    case("sim/sequence 2/pipeline 2", *TINY, "--ranks", 4, "--sequence", 2, "--pipeline", 2, "model.layers=2",
         "parallel.placement=2,1", "parallel.micro_batches=2")


def replicas():
    case("replicas/2", "--replicas", 2, *DEEP)
    case("replicas/3", "--replicas", 3, *DEEP)
    case("replicas/2/accumulation", "--replicas", 2, *DEEP, "training.accumulation=2")
    case("replicas/2/divided optimizer", "--replicas", 2, *DEEP, "parallel.divide_optimizer=true")


def on_every_split():
    for split, flags in SPLITS:
        case(f"fused loss/{split}", *flags, *DEEP, "training.fuse_output_from=2")
        case(f"frozen/{split}", *flags, *DEEP, "training.freeze_before=lstm4.0", after=DEEP)
        # A rate that falls to the end of a run would fall sooner in the first half.
        constant = [*DEEP, "lr.type=constant", "training.checkpoint_every_steps=5"]
        case(f"resumed/{split}", *flags, *constant, resumed=True)
        case(f"resumed/{split}/whole", *flags, *constant)


def elastic():
    settings = ["parallel.deterministic=world_invariant", "parallel.batch_parts=4", *DEEP,
                "lr.type=constant", "training.checkpoint_every_steps=5"]
    case("elastic/1", *settings)
    case("elastic/2", *settings, elastic=2)
    case("elastic/3", *settings, elastic=3)
    case("elastic/2/resumed", *settings, elastic=2, resumed=True)


def tensors_of(path):
    """The bytes of a safetensors file's tensors in the order of their names, without its metadata."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8:8 + size]), data[8 + size:]
    header.pop("__metadata__", None)
    for name in sorted(header):
        begin, end = header[name]["data_offsets"]
        yield name.encode() + b"\0" + header[name]["dtype"].encode() + body[begin:end]


def hash_of(pieces):
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()[:16]


def hash_of_weights(directory):
    newest = sorted(directory.glob("checkpoint-*"))[-1]
    # How stages and ranks divide it among files is not part of the result, so all tensors are sorted.
    pieces = [p for file in newest.glob("*.safetensors") for p in tensors_of(file)]
    best = directory / "model.safetensors"
    if not pieces or not best.exists():
        raise AssertionError(f"no weights in {directory}")
    return hash_of(sorted(pieces) + list(tensors_of(best)))


def hash_of_losses(directory):
    kept = ("event", "step", "epoch", "loss", "dev_loss", "grad_norm", "lr", "wer", "cer", "error", "utterances",
            "frames", "infeasible")
    lines = []
    for file in sorted(directory.glob("log*.jsonl")):
        for line in file.read_text().splitlines():
            entry = json.loads(line)
            if entry["event"] in ("step", "validation"):
                lines.append(json.dumps({key: entry[key] for key in kept if key in entry}))
    if not any('"loss"' in line for line in lines):
        raise AssertionError(f"no losses in {directory}'s log")
    return hash_of(line.encode() for line in lines)


def train(root, name):
    CASES[name].corpus(root)
    CASES[name].train(root)
    weights = hash_of_weights(root / "run")
    print(f"{name:40}  weights {weights}  losses {hash_of_losses(root / 'run')}", flush=True)
    return weights


def stream():
    """Logits of a whole recording and of one that is heard in pieces: {name: hash}."""
    hashes = {}
    with folder() as root:
        tone_corpus(root, train=24, dev=6)
        run("train", *TONE, *COMMON, *FORWARD, "features.cmvn=global", "data=.", cwd=root)
        for name, more in (("whole", []), ("streamed", ["--stream", "--chunk-ms", "40"])):
            run("transcribe", "run", "dev001.wav", "--format", "npy", "--out", name, *more, cwd=root)
            hashes["logits/" + name] = hash_of([(root / name / "dev001.npy").read_bytes()])
            print(f"{'logits/' + name:40}  {hashes['logits/' + name]}", flush=True)
    return hashes


def check_equal(hashes):
    """The number of groups whose runs ended with different weights."""
    wrong = 0
    for names in EQUAL:
        missing = [name for name in names if name not in hashes]
        if missing or len({hashes[name] for name in names}) != 1:
            wrong += 1
            print(f"not the same: {', '.join(names)}" + (f" (no {', '.join(missing)})" if missing else ""),
                  file=sys.stderr)
    return wrong


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("rondo", help="the program (build/tools/rondo)")
    options.add_argument("--only", default="", help="cases whose name has this text")
    options.add_argument("--check", action="store_true", help="fail unless runs that must agree do")
    options.add_argument("--list", action="store_true", help="only name the cases")
    chosen = options.parse_args()
    for group in (one_rank, data_parallel, replicas, pipelines, sequences, on_every_split, elastic, simulated):
        group()
    failed, hashes = 0, {}
    for name in [n for n in CASES if chosen.only in n]:
        if chosen.list:
            print(name)
            continue
        with folder() as root:
            try:
                hashes[name] = train(root, name)
            except AssertionError as error:
                failed += 1
                print(f"{name:40}  failed")
                print(f"{name}: {error}", file=sys.stderr)
    if not chosen.list and chosen.only in "logits":
        hashes |= stream()
    if chosen.check:
        failed += check_equal(hashes)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
