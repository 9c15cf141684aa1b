"""Lines that are written from right to left, with numbers in them, or from top to bottom."""

import json
import random
import re
import xml.etree.ElementTree as ElementTree

from cli_support import check, folder, main, run, train
from line_images import GLYPHS, LINES, line_image, png

ALEF, BET = "\u05d0", "\u05d1"
SHAPES = {ALEF: "a", BET: "b", "1": "c", "2": "d", " ": " "}


def read_from_the_right(text):
    """What is met from the right edge on: numbers from their last digit."""
    return " ".join(word[::-1] if word.isdigit() else word for word in text.split())


def right_to_left(rng):
    words = ["".join(rng.choice((ALEF, BET)) for _ in range(rng.randrange(1, 4))) for _ in range(2)]
    words.insert(rng.randrange(3), "".join(rng.choice("12") for _ in range(2)))
    text = " ".join(words)
    return text, line_image([SHAPES[c] for c in reversed(read_from_the_right(text))], rng)


def top_to_bottom(rng):
    text = " ".join("".join(rng.choice("abc") for _ in range(rng.randrange(1, 4))) for _ in range(2))
    rows = line_image(text, rng)
    # A quarter to the right: the line's left edge is on top, its upper side on the right.
    return text, [[rows[len(rows) - 1 - y][x] for y in range(len(rows))] for x in range(len(rows[0]))]


def corpus(root, make, seed):
    """root/scans/BOOK/N.png with N.gt.txt; texts of the last book."""
    rng = random.Random(seed)
    for book in range(6):
        place = root / "scans" / f"book{book}"
        place.mkdir(parents=True)
        for n in range(14):
            text, rows = make(rng)
            (place / f"{n}.png").write_bytes(png(rows))
            (place / f"{n}.gt.txt").write_text(text)


def model_of(root, direction):
    out, _ = run("prepare", "lines", root / "scans", root / "mine", "--dev", 0.17, "--test", 0.17, "--direction", direction)
    check(f'direction = "{direction}"\n' in (root / "mine" / "train.toml").read_text() and "left out" not in out, out)
    train(root / "mine", root / "run", f"features.direction={direction}", "training.epochs=45", base=LINES)
    out, _ = run("eval", root / "run", root / "mine" / "test.jsonl")
    check(float(out.split("CER ")[1].split("%")[0]) < 8, "has not learnt:", out)
    test = [json.loads(line) for line in (root / "mine" / "test.jsonl").read_text().splitlines()]
    read = [json.loads(line) for line in run("transcribe", root / "run", root / "mine" / "test.jsonl", "--format", "jsonl")[0].splitlines()]
    right = [line for line in read if line["text"] == line["reference"]]
    check(len(right) > 0.6 * len(test), [(line["text"], line["reference"]) for line in read])
    return right


def boxes_of_words(root, line):
    """The texts and the boxes of the words that hOCR tells of a line."""
    image = (root / "mine" / line["image_filepath"]).resolve()
    document = ElementTree.fromstring(run("transcribe", root / "run", image, "--format", "hocr")[0])
    return [("".join(e.itertext()), [int(v) for v in e.get("title").split(";")[0].split()[1:]])
            for e in document.iter() if e.get("class") == "ocrx_word"]


def test_right_to_left():
    with folder() as root:
        corpus(root, right_to_left, 4)
        run("prepare", "lines", root / "scans", root / "plain",
            says="most letters are written from right to left: train.toml has features.direction=rtl")
        for folder_, direction, wanted in (("plain", (), True), ("as-asked", ("--direction", "ltr"), False)):
            if direction:
                run("prepare", "lines", root / "scans", root / folder_, *direction, not_says="right to left")
            check(('direction = "rtl"' in (root / folder_ / "train.toml").read_text()) == wanted, direction)
        right = model_of(root, "rtl")
        # Numbers are right, and digits that are not the same twice tell their order.
        check(any("12" in line["text"] or "21" in line["text"] for line in right), right)
        for line in right:
            words = line["words"]
            check([w["text"] for w in words] == line["text"].split(), line)
            check(all(a["begin"] >= b["end"] for a, b in zip(words, words[1:])), "words go leftwards:", line)
            check("".join(c["text"] for c in line["characters"]) == line["text"], line)
            for word in words:
                places = [c["begin"] for c in line["characters"] if word["begin"] <= c["begin"] < word["end"]]
                check(places == sorted(places, reverse=not word["text"].isdigit()), word, line)
            check(words[0]["end"] > 0.6 * line["width"] and words[-1]["begin"] < 0.4 * line["width"], line)
        boxes = boxes_of_words(root, right[0])
        check([text for text, _ in boxes] == right[0]["text"].split(), boxes)
        check(all(a[0] >= b[2] for (_, a), (_, b) in zip(boxes, boxes[1:])), boxes)
        # The picture shows the line as it is written.
        run("transcribe", root / "run", (root / "mine" / right[0]["image_filepath"]).resolve(), "--picture", root / "line.svg")
        drawn = re.findall(r'<text x="([0-9.]+)"[^>]*class="label word">([^<]*)<', (root / "line.svg").read_text())
        check([word for _, word in sorted(drawn, key=lambda at: -float(at[0]))] == right[0]["text"].split(), drawn)
        # A search with a language model of such texts.
        run("lm", "train", root / "mine" / "train.jsonl", "--characters", "--order", 3, "--discount-fallback", "--out", root / "c.lm")
        out, _ = run("eval", root / "run", root / "mine" / "test.jsonl", "--lm", root / "c.lm", "--lm-weight", 0.1)
        check(float(out.split("CER ")[1].split("%")[0]) < 8, out)


def test_top_to_bottom():
    with folder() as root:
        corpus(root, top_to_bottom, 6)
        right = model_of(root, "ttb")
        for line in right:
            check(line["height"] > line["width"] == 20, line)
            check(all(a["end"] <= b["begin"] for a, b in zip(line["words"], line["words"][1:])), line)
            check(line["words"][-1]["end"] > 0.5 * line["height"], line)
        boxes = boxes_of_words(root, right[0])
        check(len(boxes) == 2 and boxes[0][1][3] <= boxes[1][1][1] and all(b[0] == 0 and b[2] == 20 for _, b in boxes), boxes)
        image = (root / "mine" / right[0]["image_filepath"]).resolve()
        run("transcribe", root / "run", image, "--picture", root / "p.svg", says=right[0]["text"])
        # A baseline down the line, as programs draw it for such text, turns nothing.
        size = right[0]["width"], right[0]["height"]
        entry = {"image_filepath": str(image), "region": [0, 0, *size], "baseline": [[10, 0], [10, size[1]]], "text": right[0]["text"]}
        (root / "drawn.jsonl").write_text(json.dumps(entry) + "\n")
        run("transcribe", root / "run", root / "drawn.jsonl", says=right[0]["text"])
        run("eval", root / "run", root / "drawn.jsonl", says="CER 0.00%")
        run("transcribe", root / "run", root / "drawn.jsonl", "--format", "hocr", says="ocrx_word")


main(globals())
