"""What the tests of bad input begin with: small data, and a model of tones that is trained once."""

import atexit

from cli_support import *

_model = []

def tone_model():
    """A model of tones, trained once for all tests (it need not be good)."""
    if not _model:
        root = pathlib.Path(tempfile.mkdtemp(prefix="rondo-cli-"))
        tone_corpus(root, train=6, dev=3)
        train(root, root / "run", "training.epochs=1", base=TONE)
        _model.append(root)
        atexit.register(shutil.rmtree, root, ignore_errors=True)
    return _model[0]


def features(root, **more):
    feature_corpus(root, "ctc", train=6, dev=3, **more)
    return root


def append(manifest, line):
    with open(manifest, "a") as file:
        file.write(line if isinstance(line, str) else json.dumps(line) + "\n")


def fails_to_train(root, *settings, errs, lines=1, base=READY, **more):
    out, err = fails("train", *base, f"data={root}", f"training.checkpoint_dir={root}/run",
                     "training.epochs=1", *settings, errs=errs, lines=lines, **more)
    check("epoch 1" not in out, "found only while training:", out)
