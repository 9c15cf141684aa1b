"""rondo convert: models of Tesseract, beside Tesseract itself where that and lines of print are there."""

import os
import pathlib
import shutil
import subprocess

from cli_support import Skip, check, fails, folder, main, run

SHARED = pathlib.Path(os.environ.get("RONDO_SHARED", pathlib.Path(__file__).resolve().parents[2] / ".." / "shared"))
LANGUAGE = "Fraktur"


def installed_model():
    if not shutil.which("tesseract"):
        raise Skip("tesseract is not installed")
    listed = subprocess.run(["tesseract", "--list-langs"], capture_output=True, text=True).stdout.splitlines()
    if LANGUAGE not in listed:
        raise Skip(f"tesseract has no {LANGUAGE} (tesseract-ocr-script-frak)")
    return pathlib.Path(listed[0].split('"')[1]) / f"{LANGUAGE}.traineddata"


def edits(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[-1]


def words(text):
    return " ".join(text.split())


def test_lines_are_read_as_tesseract_reads_them():
    model = installed_model()
    lines = sorted((SHARED / "data/archiscribe/dev").glob("*/*.png"))[::3]
    if not lines:
        raise Skip("no lines of print in data/archiscribe of RONDO_SHARED")
    with folder() as root:
        run("convert", model, root / "model.safetensors", says="in rondo's format")
        ours = [words(line.split("\t")[1]) for line in run("transcribe", root / "model.safetensors", *lines)[0].splitlines()]
        (root / "lines.txt").write_text("".join(f"{line}\n" for line in lines))
        no_words = [word for kind in ("system", "freq", "punc", "number") for word in ("-c", f"load_{kind}_dawg=0")]
        subprocess.run(["tesseract", root / "lines.txt", root / "theirs", "-l", LANGUAGE, "--psm", "13", "--dpi", "300", *no_words],
                       check=True, capture_output=True)
        theirs = [words(page) for page in (root / "theirs.txt").read_text(encoding="utf-8").split("\f")][:len(lines)]
        check(len(ours) == len(theirs), len(ours), "texts beside", len(theirs))
        apart = sum(map(edits, ours, theirs)) / sum(map(len, theirs))
        # Tesseract pads with noise and rounds to bytes, which is not repeated (bench/results/lines.md).
        check(apart <= 0.04, f"{100 * apart:.2f} % of the characters are others than Tesseract's")


def test_what_cannot_be_converted():
    with folder() as root:
        path = root / "broken.traineddata"
        fails("convert", path, root / "out", errs="broken.traineddata")
        for content, said in ((b"", "expected 4 more, for the number of its components"),
                              (b"\1\0\0\0" + b"\xff" * 8, "has no network of an LSTM (component 17)"),
                              (b"\xff" * 200, "found -1 as the number of its components, expected 1 to 1024")):
            path.write_bytes(content)
            fails("convert", path, root / "out", errs=["broken.traineddata", said])
            check(not (root / "out").exists(), "a file is left")


main(globals())
