"""rondo convert MODEL x.onnx: onnxruntime computes the logits that rondo does, of models of all layers.

Runs in an environment with onnx, onnxruntime and numpy (tests/onnx/run makes it); else like the tests of tests/cli.
"""

import sys

sys.path.insert(0, str(__import__("pathlib").Path(__file__).resolve().parent.parent / "cli"))

import numpy  # noqa: E402
import onnx  # noqa: E402
import onnxruntime  # noqa: E402
from cli_support import *  # noqa: E402,F403

READY_TOLERANCE, SOUND_TOLERANCE = 1e-5, 1e-3  # of the largest logit

# Layers, each with what goes before and behind it.
STACKS = {
    "lstm": [dict(type="lstm", hidden=12, bidirectional=False), dict(type="lstm", hidden=9, layers=2, residual=True)],
    "backward": [dict(type="lstm", hidden=8, bidirectional=False, backward=True), dict(type="layer_norm")],
    "stack": [dict(type="stack", factor=2), dict(type="lstm", hidden=10)],
    "linear": [dict(type="linear", size=7), dict(type="tanh"), dict(type="linear", size=7, residual=True),
               dict(type="gelu"), dict(type="sigmoid"), dict(type="lstm", hidden=6)],
    "conv": [dict(type="conv", channels=8, kernel=3), dict(type="relu"), dict(type="conv", channels=9, kernel=4, stride=2),
             dict(type="lstm", hidden=6), dict(type="conv", channels=5, kernel=3, dilation=2, context="past"),
             dict(type="conv", channels=5, kernel=2, context="future")],
    "norms": [dict(type="conv", channels=8, kernel=3), dict(type="group_norm", groups=4), dict(type="lstm", hidden=6),
              dict(type="layer_norm"), dict(type="group_norm", groups=1)],
    "image": [dict(type="conv2d", channels=4, kernel_height=3, kernel_width=2), dict(type="group_norm", groups=2),
              dict(type="conv2d", channels=6, groups=2, stride_height=2, dilation_width=2),
              dict(type="pool2d", height=3, width=1), dict(type="lstm", hidden=6)],
    "greatest": [dict(type="conv2d", channels=4), dict(type="pool2d", height=2, width=2), dict(type="lstm", hidden=6)],
    "mean": [dict(type="conv2d", channels=4), dict(type="pool2d", pooling="mean", height=2, width=2),
             dict(type="layer_norm"), dict(type="lstm", hidden=6)],
    "whole": [dict(type="conv2d", channels=4), dict(type="pool2d", height=3, width=2, whole=True), dict(type="lstm", hidden=6)],
    "height": [dict(type="conv2d", channels=3), dict(type="lstm_height", hidden=5), dict(type="lstm", hidden=6)],
    "height_image": [dict(type="lstm_height", hidden=4, bidirectional=True, summary=False),
                     dict(type="lstm_height", hidden=5), dict(type="dropout"), dict(type="lstm", hidden=6)],
}


class Folder(contextlib.AbstractContextManager):
    """While it is entered, relative paths are of this folder."""

    def __init__(self, path):
        self.path, self.before = path, os.getcwd()

    def __enter__(self):
        os.chdir(self.path)

    def __exit__(self, *_):
        os.chdir(self.before)


def toml(layers):
    text = ""
    for layer in layers:
        text += "[[model.layer]]\n"
        for key, value in layer.items():
            text += f"{key} = {json.dumps(value)}\n"
    return text


def export(root, run_folder, *options):
    """The session of the exported model, which onnx finds valid."""
    path = root / "model.onnx"
    run("convert", run_folder, path, *options, says="model.onnx: a model in ONNX's format")
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    told = json.loads({p.key: p.value for p in model.metadata_props}["rondo"])
    check(told["task"] in ("ctc", "classify", "regress"), told)
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def batch_of(sequences, garbage=1e3):
    """Padded by what must not be looked at."""
    lengths = numpy.array([len(s) for s in sequences], dtype=numpy.int64)
    batch = numpy.full((len(sequences), lengths.max() + 3) + sequences[0].shape[1:], garbage, dtype=numpy.float32)
    for i, s in enumerate(sequences):
        batch[i, : len(s)] = s
    return batch, lengths


def compare(session, name, sequences, wanted, tolerance):
    """In a batch, and each by itself."""
    largest = max(abs(w).max() for w in wanted)
    check(largest > 0.01, "nothing is computed")
    batch, lengths = batch_of(sequences)
    together = session.run(None, {name: batch, "lengths": lengths})
    for i, want in enumerate(wanted):
        alone = session.run(None, {name: sequences[i][None], "lengths": lengths[i : i + 1]})
        for out in ([o[i] for o in together], [o[0] for o in alone]):
            if len(out) == 2:
                check(out[1] == len(want), "frames:", out[1], len(want))
                found = out[0][: len(want)]
            else:
                found = out[0]
            worst = abs(found - want.reshape(found.shape)).max()
            check(worst <= tolerance * largest, f"sequence {i}: {worst} of {largest}")


def outputs_of(root, run_folder, files, command="transcribe"):
    run(command, run_folder, *files, "--format", "npy", "--out", root / "out")
    return [numpy.load(root / "out" / (pathlib.Path(f).stem + ".npy")) for f in files]


def ready_model(root, layers, *settings, kind="ctc"):
    feature_corpus(root, kind, train=8, dev=5)
    (root / "model.toml").write_text(toml(layers))
    base = [s for s in READY if not s.startswith(("model.hidden", "model.layers", "model.dropout", "model.subsample"))]
    run("train", root / "model.toml", *base, f"data={root}", f"training.checkpoint_dir={root}/run", "training.max_steps=4",
        *settings)
    files = sorted(root.glob("dev*.npy"))
    return files, [numpy.load(f) for f in files]


def test_layers():
    for name, layers in STACKS.items():
        with folder() as root:
            files, sequences = ready_model(root, layers)
            try:
                compare(export(root, root / "run"), "features", sequences, outputs_of(root, root / "run", files),
                        READY_TOLERANCE)
            except Exception as e:
                raise AssertionError(f"{name}: {e}") from e


def test_normalisation():
    for cmvn in ("utterance", "global"):
        with folder() as root:
            files, sequences = ready_model(root, STACKS["lstm"], f"features.cmvn={cmvn}")
            compare(export(root, root / "run"), "features", sequences, outputs_of(root, root / "run", files), READY_TOLERANCE)


def test_bf16():
    """Trained in bf16, a model is exported in f32: as rondo computes it in f32."""
    with folder() as root:
        files, sequences = ready_model(root, STACKS["lstm"], "training.dtype=bf16")
        session = export(root, root / "run")
        wanted = outputs_of(root, root / "run", files)
        largest = max(abs(w).max() for w in wanted)
        for s, want in zip(sequences, wanted, strict=True):
            found = session.run(None, {"features": s[None], "lengths": numpy.array([len(s)])})[0][0]
            check(abs(found - want).max() < 0.05 * largest, abs(found - want).max(), largest)


def test_one_result_per_sequence():
    for kind, pooling in (("classify", "mean"), ("classify", "last"), ("regress", "mean")):
        with folder() as root:
            files, sequences = ready_model(root, STACKS["stack"], f"task={kind}", f"model.pooling={pooling}", kind=kind)
            wanted = outputs_of(root, root / "run", files, "predict")
            compare(export(root, root / "run"), "features", sequences, wanted, READY_TOLERANCE)


def test_sound():
    for settings in (["features.cmvn=utterance"], ["features.type=mfcc", "features.coefficients=13", "features.cmvn=global"],
                     ["features.frame_ms=32", "features.hop_ms=16", "features.low_hz=60", "features.preemphasis=0",
                      "features.cmvn=none", "model.subsample=3"]):
        with folder() as root:
            tone_corpus(root, train=8, dev=4)
            train(root, root / "run", "training.max_steps=4", *settings, base=TONE)
            files = sorted(root.glob("dev*.wav"))
            samples = []
            for f in files:
                with wave.open(str(f)) as w:
                    samples.append(numpy.frombuffer(w.readframes(w.getnframes()), dtype="<i2").astype(numpy.float32) / 32768)
            session = export(root, root / "run")
            wanted = outputs_of(root, root / "run", files)
            compare(session, "samples", samples, wanted, SOUND_TOLERANCE)
            # Less than a window has no frames, and is no error.
            out, lengths = session.run(None, {"samples": numpy.zeros((2, 50), numpy.float32), "lengths": numpy.array([50, 0])})
            check(list(lengths) == [0, 0], lengths)


def stream_through(session, name, parts, overlap=0):
    """The logits of one sequence that arrives in parts."""
    states = {i.name: numpy.zeros([1 if isinstance(d, str) else d for d in i.shape], numpy.float32)
              for i in session.get_inputs() if i.name != name}
    names = [o.name for o in session.get_outputs()]
    check(sorted(n[: -len(".next")] for n in names if n.endswith(".next")) == sorted(states), names, list(states))
    logits = []
    for part in parts:
        out = dict(zip(names, session.run(None, {name: part[None], **states}), strict=True))
        logits.append(out["logits"][0])
        states = {s: out[s + ".next"] for s in states}
    return numpy.concatenate(logits)


def stream_of(root):
    return json.loads({p.key: p.value for p in onnx.load(root / "model.onnx").metadata_props}["stream"])


def test_streams():
    stacks = {
        "lstm": [dict(type="lstm", hidden=12, layers=2, bidirectional=False, residual=True)],
        "stack": [dict(type="stack", factor=3), dict(type="lstm", hidden=10, bidirectional=False)],
        "conv": [dict(type="conv", channels=8, kernel=3, context="past"), dict(type="gelu"), dict(type="stack", factor=2),
                 dict(type="conv", channels=6, kernel=4, dilation=2, context="past"), dict(type="layer_norm"),
                 dict(type="lstm", hidden=6, bidirectional=False)],
        "stride": [dict(type="conv", channels=8, kernel=5, stride=2, context="past"),
                   dict(type="lstm", hidden=6, bidirectional=False)],
    }
    for name, layers in stacks.items():
        with folder() as root:
            files, sequences = ready_model(root, layers)
            session = export(root, root / "run", "--stream")
            multiple = stream_of(root)["multiple"]
            wanted = outputs_of(root, root / "run", files)
            largest = max(abs(w).max() for w in wanted)
            for s, want in zip(sequences, wanted, strict=True):
                whole = len(s) // multiple * multiple  # of the rest the last frame of output is made
                for size in (multiple, 3 * multiple):
                    found = stream_through(session, "features", [s[i : min(i + size, whole)] for i in range(0, whole, size)])
                    check(len(found) == whole // multiple, name, len(found))
                    worst = abs(found - want[: len(found)]).max()
                    check(worst <= READY_TOLERANCE * largest, name, size, worst, largest)


def test_streams_of_sound():
    with folder() as root:
        tone_corpus(root, train=8, dev=3)
        train(root, root / "run", "training.max_steps=4", "features.cmvn=global", "model.bidirectional=false",
              "model.subsample=2", base=TONE)
        files = sorted(root.glob("dev*.wav"))
        session = export(root, root / "run", "--stream")
        told = stream_of(root)
        check(told == {"multiple": 2 * RATE // 100, "overlap": RATE * 15 // 1000}, told)
        for file, want in zip(files, outputs_of(root, root / "run", files), strict=True):
            with wave.open(str(file)) as w:
                samples = numpy.frombuffer(w.readframes(w.getnframes()), dtype="<i2").astype(numpy.float32) / 32768
            size, overlap = 3 * told["multiple"], told["overlap"]
            parts = [samples[i : i + size + overlap] for i in range(0, len(samples) - size - overlap, size)]
            found = stream_through(session, "samples", parts)
            worst = abs(found - want[: len(found)]).max()
            check(len(found) >= 6 and worst <= SOUND_TOLERANCE * abs(want).max(), len(found), worst, abs(want).max())


def test_what_cannot_stream():
    for settings, text in ((["model.bidirectional=true"], "reads in both directions"),
                           (["features.cmvn=utterance", "model.bidirectional=false"], "over the whole utterance")):
        with folder() as root:
            feature_corpus(root, "ctc", train=6, dev=3)
            train(root, root / "run", "training.max_steps=1", *settings)
            fails("convert", root / "run", root / "x.onnx", "--stream", errs=[text, "cannot stream"])
    for layer in (dict(type="conv", channels=4, kernel=3), dict(type="group_norm", groups=1),
                  dict(type="lstm", hidden=4, bidirectional=False, backward=True)):
        with folder() as root:
            ready_model(root, [layer])
            fails("convert", root / "run", root / "x.onnx", "--stream", errs="cannot stream")


def programs_of_the_page():
    """The blocks of Python of docs/onnx.md."""
    page = pathlib.Path(__file__).resolve().parent.parent.parent / "docs" / "onnx.md"
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


def test_the_page():
    """Its programs, as they stand: texts as rondo writes them, a stream like the whole, and weights of fewer bits."""
    with folder() as root:
        tone_corpus(root, train=120, dev=30, seed=5)
        train(root, root / "run", "training.epochs=25", "features.cmvn=global", "model.bidirectional=false",
              "model.hidden=48", base=TONE)
        export(root, root / "run", "--stream").get_inputs()
        (root / "model.onnx").rename(root / "stream.onnx")
        export(root, root / "run")
        greedy, stream, small = programs_of_the_page()
        said, _ = run("transcribe", root / "run", root / "dev.jsonl")
        texts = [line.split("\t")[-1] for line in said.splitlines()]
        check(len(set(texts)) > 10, "a model that says nothing:", texts)
        errors = {"model.onnx": 0, "small.onnx": 0}
        with Folder(root):
            exec(small, {})
            check((root / "small.onnx").stat().st_size < (root / "model.onnx").stat().st_size, "no smaller")
            for number, text in enumerate(texts):
                shutil.copy(root / f"dev{number:03}.wav", root / "recording.wav")
                for model in errors:
                    printed = []
                    known = {"print": printed.append}
                    exec(greedy.replace("model.onnx", model), known)
                    errors[model] += printed[0].strip() != text
                    if model == "model.onnx":
                        hearing = {"samples": known["samples"]}
                        exec(stream, hearing)
                        n = len(hearing["logits"])
                        check(abs(hearing["logits"] - known["logits"][0][:n]).max() < SOUND_TOLERANCE * abs(known["logits"]).max())
        check(errors["model.onnx"] == 0 and errors["small.onnx"] <= 1, errors)


def test_what_has_no_form():
    with folder() as root:
        ready_model(root, [dict(type="lstm", hidden=12, projection=6)])
        fails("convert", root / "run", root / "x.onnx", errs=["projection", "no form in ONNX"])
        check(not (root / "x.onnx").exists(), "a file was left")
        run("convert", root / "run", root / "x.safetensors", "--input", "features", code=2, errs="--input")
        run("convert", root / "run", root / "x.safetensors", "--stream", code=2, errs="--stream")
        fails("convert", root / "nowhere", root / "x.onnx", errs="nowhere")


main(globals())
