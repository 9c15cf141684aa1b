"""rondo convert: models of Tesseract, beside Tesseract itself where that and lines of print are there."""

import json
import os
import pathlib
import shutil
import struct
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


def without_dictionaries(content):
    """The network, its characters and their classes alone. Tesseract's options load_system_dawg and the like change no text."""
    count = struct.unpack_from("<i", content)[0]
    begins = struct.unpack_from(f"<{count}q", content, 4)
    table, kept = [], b""
    for number, begin in enumerate(begins):
        table.append(4 + 8 * count + len(kept) if number in (17, 21, 22) else -1)
        if table[-1] >= 0:
            kept += content[begin:min((other for other in begins if other > begin), default=len(content))]
    return struct.pack(f"<i{count}q", count, *table) + kept


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
        (root / "bare.traineddata").write_bytes(without_dictionaries(model.read_bytes()))
        subprocess.run(["tesseract", root / "lines.txt", root / "theirs", "-l", "bare", "--tessdata-dir", root, "--psm", "13",
                        "--dpi", "300"], check=True, capture_output=True, env=dict(os.environ, OMP_THREAD_LIMIT="1"))
        theirs = [words(page) for page in (root / "theirs.txt").read_text(encoding="utf-8").split("\f")][:len(lines)]
        check(len(ours) == len(theirs), len(ours), "texts beside", len(theirs))
        apart = sum(map(edits, ours, theirs)) / sum(map(len, theirs))
        # Tesseract's noise around a line, its rounding and its search are not repeated (bench/results/lines.md).
        check(apart <= 0.02, f"{100 * apart:.2f} % of the characters are others than Tesseract's")
        check(sum(a == b for a, b in zip(ours, theirs)) >= 0.5 * len(theirs), "fewer than half of the lines are read alike")


def test_models_of_other_scripts_are_converted():
    folder_of_models = installed_model().parent
    directions = {"heb": "rtl", "ara": "rtl", "hin": "ltr", "deu": "ltr"}
    found = [name for name in directions if (folder_of_models / f"{name}.traineddata").exists()]
    if not found:
        raise Skip(f"tesseract has none of {', '.join(directions)}")
    for name in found:
        with folder() as root:
            run("convert", folder_of_models / f"{name}.traineddata", root / "model.safetensors", says="in rondo's format")
            info = json.loads(run("info", "--model", root / "model.safetensors", "--json")[0])
            check(info["features"]["direction"] == directions[name] and info["features"]["scaling"] == "tesseract", info["features"])
            check("Joined" not in info["alphabet"] and not any(symbol.startswith("|") and len(symbol) > 1 for symbol in info["alphabet"]), info)


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
