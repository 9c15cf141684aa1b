"""rondo convert: models of kraken for rondo and of rondo for kraken, beside kraken itself where it is installed.

RONDO_KRAKEN_PYTHON names an interpreter that has kraken; without it this one is asked. Otherwise the
comparison is skipped.
"""

import json
import os
import random
import subprocess
import sys

from cli_support import Skip, check, fails, folder, main, run, train
from line_images import LINES, line_corpus, line_image, png

KRAKEN = os.environ.get("RONDO_KRAKEN_PYTHON", sys.executable)
MADE = """
import kraken, sys, torch
torch.manual_seed(1)
from kraken.lib.vgsl import TorchVGSLModel
from kraken.models import write_safetensors
codec = {c: [i] for i, c in enumerate(" abcdefghijkl", 1)}
spec = "[1,16,0,1 Cr3,13,8 Gn4 Do0.1,2 Mp2,2 Cr3,9,8 Mp2,2 Gn2 %s Lbx10 Lfx7 O1c14]" % sys.argv[2]
model = TorchVGSLModel(vgsl=spec, model_type=["recognition"], codec=codec, seg_type="baselines")
with torch.no_grad():
    for name, p in model.named_parameters():
        p.mul_(6 if "lin" in name else 1).add_(0.2 * torch.randn_like(p) if name.endswith("bias") else 0)
write_safetensors([model], sys.argv[1])
"""
READ = """
import kraken, numpy, os, sys, torch
from PIL import Image
from kraken.models import load_safetensors
from kraken.lib.dataset import ImageInputTransforms
from kraken.lib.ctc_decoder import greedy_decoder
model = load_safetensors(sys.argv[1])[0].eval()
look = ImageInputTransforms(1, model.input[2], 0, 1, (16, 0), valid_norm=False)
for path in sys.argv[3:]:
    x = look(Image.open(path)).unsqueeze(0)
    with torch.no_grad():
        y = model.nn(x, torch.tensor([x.shape[3]]))[0].squeeze(2)
    ours = torch.from_numpy(numpy.load(os.path.join(sys.argv[2], os.path.basename(path)[:-4] + ".npy"))).T
    assert ours.shape == y.shape[1:], (ours.shape, y.shape)
    difference = (ours.log_softmax(0) - y[0].log_softmax(0)).abs().max().item()
    assert difference < 1e-4, difference
    text = model.codec.decode(greedy_decoder(y.softmax(1), torch.tensor([y.shape[2]]))[0])
    print("".join(t[0] for t in text))
"""


def kraken(script, *words):
    process = subprocess.run([KRAKEN, "-c", script, *map(str, words)], capture_output=True, text=True)
    if "ModuleNotFoundError: No module named 'kraken'" in process.stderr:
        raise Skip("kraken is not installed (RONDO_KRAKEN_PYTHON names an interpreter that has it)")
    check(process.returncode == 0, process.stderr[-2000:])
    return process.stdout.splitlines()


def images(root, count=12):
    """Lines as high as the models' images, so that nobody scales them."""
    rng = random.Random(5)
    paths = []
    for n in range(count):
        rows = line_image("".join(rng.choice("abc ") for _ in range(rng.randrange(2, 12))), rng)[2:18]
        paths.append(root / f"{n:02}.png")
        paths[-1].write_bytes(png(rows))
    return paths


def same(root, theirs, ours, paths):
    """Outputs to the rounding of sums in f32, and texts."""
    outputs = root / "outputs"
    run("transcribe", ours, *paths, "--format", "npy", "--out", outputs)
    texts = [line.split("\t")[1] for line in run("transcribe", ours, *paths)[0].splitlines()]
    # rondo writes no spaces at the ends of a line.
    check([" ".join(t.split()) for t in kraken(READ, theirs, outputs, *paths)] == texts, "other texts than", texts)


def test_kraken_and_rondo_read_the_same():
    with folder() as root:
        paths = images(root)
        for fold in ("S1(1x0)1,3", "Lfys12"):
            made = root / f"{len(fold)}.safetensors"
            kraken(MADE, made, fold)
            run("convert", made, root / "model.safetensors", says="in rondo's format")
            same(root, made, root / "model.safetensors", paths)
        line_corpus(root)
        run("prepare", "lines", root / "scans", root / "mine", "--dev", 0.17, "--test", 0.17)
        train(root / "mine", root / "run", "training.epochs=5", "features.padding=16", "features.contrast=false",
              "features.cmvn=none", base=LINES)
        run("convert", root / "run", root / "theirs.safetensors", says="in kraken's format")
        same(root, root / "theirs.safetensors", root / "run", paths)


def test_what_cannot_be_converted():
    with folder() as root:
        line_corpus(root, books=3, each=4)
        run("prepare", "lines", root / "scans", root / "mine", "--dev", 0.34, "--test", 0)
        train(root / "mine", root / "run", "training.max_steps=1", "data.test=", base=LINES)
        fails("convert", root / "run", root / "out.safetensors", errs=["model.safetensors: ", "train with features.cmvn=none"])
        check(not (root / "out.safetensors").exists(), "a file is left")
        fails("convert", root / "run", root / "run" / "model.safetensors", errs="would overwrite the model")
        (root / "old.mlmodel").write_bytes(b"x")
        fails("convert", root / "old.mlmodel", root / "out", errs=["old.mlmodel: is a model in kraken's older format", "ketos convert"])
        fails("convert", root / "none", root / "out", errs="none: no such model")
        header = json.dumps({"__metadata__": {"kraken_meta": "{}"}}).encode()
        (root / "empty.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
        fails("convert", root / "empty.safetensors", root / "out", errs="empty.safetensors: holds no model; expected a TorchVGSLModel")
        run("convert", root / "run", code=2, errs="out")


main(globals())
