"""rondo convert --to pytorch and back: the module of docs/pytorch.md computes rondo's logits, before and after training.

Runs under a Python that has torch, safetensors and numpy (tests/pytorch/run looks for one); else like the tests of tests/cli.
"""

import sys

sys.path.insert(0, str(__import__("pathlib").Path(__file__).resolve().parent.parent / "cli"))

import numpy  # noqa: E402
import torch  # noqa: E402
from cli_support import *  # noqa: E402,F403

TOLERANCE = 1e-5  # of the largest logit
PAGE = pathlib.Path(__file__).resolve().parent.parent.parent / "docs" / "pytorch.md"
STACKS = [
    [dict(type="lstm", hidden=12, bidirectional=False, projection=5), dict(type="dropout", rate=0.2),
     dict(type="lstm", hidden=9, layers=3, residual=True, dropout=0.1)],
    [dict(type="stack", factor=2), dict(type="lstm", hidden=8, bidirectional=False, backward=True), dict(type="layer_norm")],
    [dict(type="conv", channels=8, kernel=4, stride=2), dict(type="relu"), dict(type="linear", size=8, residual=True),
     dict(type="gelu"), dict(type="conv", channels=8, kernel=3, dilation=2, context="past"), dict(type="sigmoid"),
     dict(type="conv", channels=5, kernel=3, context="future"), dict(type="tanh"), dict(type="lstm", hidden=6)],
]


def programs():
    module, saving = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    known = {}
    exec(module, known)
    return known, saving


def logits_of(root, model, files):
    run("transcribe", model, *files, "--format", "npy", "--out", root / "out")
    return [numpy.load(root / "out" / (f.stem + ".npy")) for f in files]


def compare(module, sequences, wanted):
    for s, want in zip(sequences, wanted, strict=True):
        with torch.no_grad():
            found = module.eval()(torch.from_numpy(s)[None])[0].numpy()
        check(found.shape == want.shape, found.shape, want.shape)
        worst, largest = abs(found - want).max(), abs(want).max()
        check(worst <= TOLERANCE * largest, worst, largest)


def test_both_ways():
    known, saving = programs()
    for layers in STACKS:
        with folder() as root:
            feature_corpus(root, "ctc", train=8, dev=4)
            text = "".join("[[model.layer]]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in l.items()) for l in layers)
            (root / "model.toml").write_text(text)
            base = [s for s in READY if not s.startswith("model.")]
            run("train", root / "model.toml", *base, f"data={root}", f"training.checkpoint_dir={root}/run",
                "training.max_steps=4")
            files = sorted(root.glob("dev*.npy"))
            sequences = [numpy.load(f) for f in files]
            run("convert", root / "run", root / "torch.safetensors", "--to", "pytorch", says="in PyTorch's format")
            module = known["load"](root / "torch.safetensors")
            compare(module, sequences, logits_of(root, root / "run", files))
            # A step of training, of all weights, and back.
            optimizer = torch.optim.SGD(module.parameters(), lr=0.3)
            (module.train()(torch.from_numpy(sequences[0])[None]) ** 2).mean().backward()
            check(all(p.grad is not None and p.grad.abs().max() > 0 for n, p in module.named_parameters()), "untrained weights")
            optimizer.step()
            before = os.getcwd()
            os.chdir(root)
            try:
                exec(saving, {**known, "model": module})
            finally:
                os.chdir(before)
            fails("convert", root / "tuned.safetensors", root / "model.safetensors", errs="tuned.safetensors: ")
            run("convert", root / "tuned.safetensors", root / "model.safetensors", "--like", root / "run", says="in rondo's format")
            wanted = logits_of(root, root / "model.safetensors", files)
            compare(module, sequences, wanted)
            check(abs(wanted[0] - logits_of(root, root / "run", files)[0]).max() > 1e-3, "nothing was trained")


main(globals())
