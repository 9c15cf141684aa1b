"""Images of text lines: from a folder of them to a model and its transcripts."""

import base64
import json
import os
import pathlib
import random
import re
import shutil
import struct
import xml.etree.ElementTree as ElementTree

from cli_support import TINY, check, fails, folder, main, run, train, write_manifest
from line_images import LINES, line_corpus, line_image, pgm, png


def manifest(path):
    return [json.loads(line) for line in path.open()]


def test_from_a_folder_of_lines_to_a_model():
    with folder() as root:
        line_corpus(root)
        scans = root / "scans"
        (scans / "book0" / "blank.png").write_bytes(png([[255] * 60] * 20))
        (scans / "book0" / "blank.gt.txt").write_text("a")
        (scans / "book1" / "cut.png").write_bytes(png(line_image("abc", random.Random(1)))[:60])
        (scans / "book1" / "cut.gt.txt").write_text("abc")
        run("prepare", "lines", scans, root / "mine", "--dev", 0.17, "--test", 0.17,
            says=["divided by folder: none is in two parts", "4 characters: space a b c", "left out, blank: 1 of 74",
                  "left out, missing or unreadable: 1 of 74", "cut.png: is no whole PNG", f"train with rondo train {root}/mine/train.toml data={root}/mine\n"])
        two = root / "of-two"
        two.mkdir()
        for name in ("a", "b"):
            (two / f"{name}.png").write_bytes(png(line_image("abc", random.Random(1))))
            (two / f"{name}.gt.txt").write_text("abc")
        run("prepare", "lines", two, root / "parts", "--dev", 0.45, "--test", 0.45)
        check(len(manifest(root / "parts" / "train.jsonl")) == 1, "one is to train on")
        if os.geteuid() != 0:
            (root / "shut").mkdir(mode=0o500)
            fails("prepare", "lines", two, root / "shut", errs="shut: cannot be written: Permission denied")
        fails("prepare", "lines", scans, root / "mine", "--strict", lines=3, errs=["of 74 lines", "blank.png"])
        test = manifest(root / "mine" / "test.jsonl")
        sheets_of_what_is_seen(root, scans)
        run("prepare", "lines", scans, root / "two", "--test", 0, says=f"train.toml data={root}/two\n")
        train(root / "two", root / "brief", "training.max_steps=1", base=LINES)
        check(len(test) == 12 and len({line["folder"] for line in test}) == 1, test)

        model = root / "run"
        train(root / "mine", model, "training.epochs=40", "distort.stretch=0.1", "distort.noise=0.05", base=LINES,
              says=["48 lines", "on 12 lines"], not_says="utterance")
        out, _ = run("eval", model, root / "mine" / "test.jsonl", "--group-by", "folder", "--report", root / "report.html")
        rate = float(out.split("CER ")[1].split("%")[0])
        check(rate < 10, "has not learnt:", out)
        check(test[0]["folder"] in out, out)
        worst_lines_are_shown(root, model, test)

        # One line, all lines of a folder, of a manifest, from standard input: the same text.
        image = (root / "mine" / test[0]["image_filepath"]).resolve()
        text = run("transcribe", model, image)[0].strip()
        check(text and set(text) <= set("abc "), repr(text))
        of_folder = dict(line.split("\t") for line in run("transcribe", model, image.parent)[0].splitlines())
        check(of_folder[str(image)] == text, of_folder)
        check(set(map(pathlib.Path, of_folder)) == set(image.parent.glob("*.p*")), of_folder)
        of_manifest = run("transcribe", model, root / "mine" / "test.jsonl")[0].splitlines()
        check(len(of_manifest) == 12 and of_manifest[0].split("\t")[1] == text, of_manifest)
        check(run("transcribe", model, "-", stdin=image.read_bytes())[0].strip() == text, "standard input")
        # What the image is called does not matter, what it holds does.
        shutil.copy(image, root / "line.scan")
        check(run("transcribe", model, root / "line.scan")[0].strip() == text, "another name")
        # Nothing stands on it.
        blank = scans / "book0" / "blank.png"
        check(run("transcribe", model, blank)[0] == "\n", "a blank line has text")

        places_are_in_the_image(model, image, text)
        alignment_is_drawn_over_the_line(root, model, image, text)
        info_and_init_from(root, model, image, text)
        models_are_averaged(root, model, image)
        slanting_lines_are_read(root, model)
        what_a_model_of_lines_refuses(root, model, image)


def texts_of(root):
    return sorted(line["text"] for name in ("train", "dev", "test") if (root / f"{name}.jsonl").exists() for line in manifest(root / f"{name}.jsonl"))


def test_byte_order_marks_are_no_text():
    with folder() as root:
        line_corpus(root, books=1, each=4)
        run("prepare", "lines", root / "scans", root / "plain")
        for file in (root / "scans").glob("*/*.gt.txt"):
            file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
        run("prepare", "lines", root / "scans", root / "marked")
        check(texts_of(root / "marked") == texts_of(root / "plain") != [], texts_of(root / "marked"))
        (root / "rules.txt").write_bytes(b"\xef\xbb\xbfa=c\r\na=b\nxyz=q\n")
        out, _ = run("prepare", "lines", root / "scans", root / "changed", "--replace", root / "rules.txt", says="never found: a=b, xyz=q\n")
        check(texts_of(root / "changed") == sorted(text.replace("a", "c") for text in texts_of(root / "plain")), texts_of(root / "changed"))
        (root / "rules.txt").write_text("a=c\n")
        out, _ = run("prepare", "lines", root / "scans", root / "changed", "--replace", root / "rules.txt")
        check("never found" not in out, out)


def test_pictures_that_cannot_be_read_are_named():
    with folder() as root:
        line_corpus(root, books=1, each=4)
        place = root / "scans" / "book0"
        for name in "web.webp", "old.GIF":
            (place / name).write_bytes(b"RIFF, or so" if name == "web.webp" else b"GIF89a")
            (place / name).with_suffix(".gt.txt").write_text("a")
        (place / "0.bmp").write_bytes(b"another of 0.pgm")
        (place / "lone.jp2").write_bytes(b"without a text")
        out, _ = run("prepare", "lines", root / "scans", root / "mine", says=["left out, missing or unreadable: 2 of 6"] + [
            f"{place / name}: is no image that can be read (PNG, JPEG, TIFF, PGM, PPM or PBM)" for name in ("web.webp", "old.GIF")])
        check(f"; it is GIF, convert it: convert {place}/old.GIF {place}/old.png (Debian: imagemagick)" in out, out)
        check("0.bmp" not in out and "lone" not in out, out)


def test_pages_given_as_lines_are_told():
    with folder() as root:
        line_corpus(root, books=1, each=4)
        rng = random.Random(7)
        rows = []
        for _ in range(6):
            rows += [row[:300] for row in line_image("abc bca cab " * 5, rng)]
        page = root / "scans" / "book0" / "page.png"
        page.write_bytes(png(rows))
        page.with_suffix(".gt.txt").write_text("abc")
        sentence = "page.png: seems to be a page of about 6 lines, and is read as one line; give a PAGE-XML or ALTO file"
        run("prepare", "lines", root / "scans", root / "mine", "--dev", 0, "--test", 0, "--strict",
            says=["warning, pages given as lines: 1 of 5", sentence], not_says=["left out", "0.png", "1.png"])
        check(len(manifest(root / "mine" / "train.jsonl")) == 5, "the page is not used")
        # A region of the image is what somebody has said to be a line.
        entry = {"image_filepath": str(page), "region": [0, 0, 300, 120], "text": "abc"}
        write_manifest(root / "region.jsonl", [entry])
        train(root / "mine", root / "run", "data.dev=", "data.test=", "training.max_steps=1", base=LINES)
        images = page.parent
        for words, stdin, warnings in ([images], b"", [f"warning: {images}/{sentence}"]), ([page, "--picture", root / "x.svg"], b"", [f"warning: {page.parent}/{sentence}"]), \
                (["-"], page.read_bytes(), ["warning: standard input: " + sentence.split(": ")[1]]), ([images / "1.png"], b"", []), ([root / "region.jsonl"], b"", []):
            _, err = run("transcribe", root / "run", *words, stdin=stdin, errs=warnings)
            check(err.count("seems to be a page") == err.count("\n") == len(warnings), err)


def test_links_to_folders_are_followed_once():
    with folder() as root:
        line_corpus(root, books=2, each=4)
        (root / "tree" / "z").mkdir(parents=True)
        shutil.move(root / "scans" / "book0", root / "tree" / "z" / "book0")
        run("prepare", "lines", root / "tree", root / "own", "--dev", 0, "--test", 0)
        (root / "tree" / "a").symlink_to("z")
        (root / "tree" / "z" / "up").symlink_to("..")
        (root / "tree" / "self").symlink_to("self")
        (root / "tree" / "nowhere").symlink_to("none")
        run("prepare", "lines", root / "tree", root / "loop", "--dev", 0, "--test", 0)
        check(texts_of(root / "loop") == texts_of(root / "own") and len(texts_of(root / "own")) == 4, texts_of(root / "loop"))
        check({line["folder"] for line in manifest(root / "loop" / "train.jsonl")} == {"z/book0"}, "not by its own name")
        (root / "tree" / "linked").symlink_to(root / "scans")
        (root / "tree" / "z" / "again").symlink_to(root / "scans" / "book1")
        run("prepare", "lines", root / "tree", root / "mine", "--dev", 0, "--test", 0)
        folders = [line["folder"] for line in manifest(root / "mine" / "train.jsonl")]
        check(sorted(folders) == ["linked/book1"] * 4 + ["z/book0"] * 4, folders)
        train(root / "mine", root / "run", "data.dev=", "data.test=", "training.max_steps=1", base=LINES)
        out, _ = run("transcribe", root / "run", root / "tree")
        check(len(out.splitlines()) == 8 and out.count("linked/book1") == 4, out)


def test_shares_that_leave_nothing_are_refused():
    with folder() as root:
        line_corpus(root, books=1, each=4)
        for dev, test in (0.5, 0.6), (0.3, 0.7):
            run("prepare", "lines", root / "scans", root / "mine", "--dev", dev, "--test", test, code=2,
                errs=f"--dev {dev} and --test {test} leave nothing to train on")
        check(not (root / "mine").exists(), "something was written")


def slanting_lines_are_read(root, plain):
    """Lines that fall by a pixel in eight, and what a model makes of them that levels them first."""
    rng = random.Random(4)
    (root / "slanting").mkdir()
    for n in range(6):
        text = " ".join("".join(rng.choice("abc") for _ in range(4)) for _ in range(6))
        image = line_image(text, rng)
        rows = [[rng.randrange(225, 256) for _ in image[0]] for _ in range(20 + len(image[0]) // 8)]
        for y, row in enumerate(image):
            for x, grey in enumerate(row):
                rows[y + x // 8][x] = grey
        (root / "slanting" / f"{n}.png").write_bytes(png(rows))
        (root / "slanting" / f"{n}.gt.txt").write_text(text)
    level = root / "level"
    train(root / "mine", level, "training.epochs=40", "distort.stretch=0.1", "distort.noise=0.05", "features.deskew=true", base=LINES)
    run("prepare", "lines", root / "slanting", root / "slant", "--dev", 0, "--test", 0)
    rates = [json.loads(run("eval", model, root / "slant" / "train.jsonl", "--json")[0])["all"]["cer"] for model in (plain, level)]
    check(rates[1] < 0.1 and rates[0] > 0.4, rates)
    # Places are in the image as it was given; the picture is of the line as it was read.
    line = json.loads(run("transcribe", level, root / "slanting" / "0.png", "--format", "jsonl", "--picture", root / "level.svg")[0])
    check(line["height"] == 20 + line["width"] // 8 and line["words"][-1]["end"] > 0.8 * line["width"], line)
    shown = next(e for e in ElementTree.parse(root / "level.svg").getroot().iter() if e.tag.endswith("}image"))
    check(float(shown.get("width")) > 6 * float(shown.get("height")), "the picture is not level", shown.attrib)
    # What a network sees of them is wider once it is as high as the letters alone.
    widths = []
    for name, settings in ("plain", ""), ("level", "deskew = true\ncentre = true\n"):
        (root / f"{name}.toml").write_text('[features]\ntype = "image"\n' + settings)
        run("prepare", "lines", root / "slanting", root / "slant", "--dev", 0, "--test", 0, "--preview", root / "seen.svg", "--config", root / f"{name}.toml")
        widths.append(max(float(w) for w in re.findall('<image [^>]*width="([0-9.]+)"', (root / "seen.svg").read_text())))
    check(widths[1] > 1.5 * widths[0], widths)


def worst_lines_are_shown(root, model, test):
    write_manifest(root / "mine" / "wrong.jsonl", [line | {"text": "ccc ccc"} for line in test[:3]] + test[3:])
    out = run("eval", model, root / "mine" / "wrong.jsonl", "--report", root / "report.html")[0]
    page = (root / "report.html").read_text()
    articles = page.split("<article>")[1:]
    check(len(articles) >= 3 and "worst line" in out and " on 12 lines\n" in out, out)
    # Nobody speaks here.
    for word in ("Worst lines", "Wrong lines", "By width of the line", "<dt>lines</dt>", "mean per line"):
        check(word in page, word)
    told, settings = page.split("Settings of the run")
    check("height = " in settings, settings)
    for text in (out, told):
        check(not re.search("utterance|recording|speaker", text, re.I), re.findall(".*(?:tterance|ecording|peaker).*", text))
    for article in articles:
        name = test[int(re.search("<h3><bdi>[^<]*:(\\d+)</bdi>", article)[1]) - 1]["image_filepath"]
        image = re.search('<img class="line" alt="" src="data:image/png;base64,([^"]+)">', article)
        width, height = struct.unpack(">II", base64.b64decode(image[1])[16:24])
        header = (root / "mine" / name).read_bytes()
        size = struct.unpack(">II", header[16:24]) if name.endswith(".png") else tuple(map(int, header.split()[1:3]))
        check((width, height) == size, name, width, height, size)
    check("img-src data:" in page and "script" not in page, "policy")


def alignment_is_drawn_over_the_line(root, model, image, text):
    picture = root / "alignment.svg"
    check(run("transcribe", model, image, "--picture", picture)[0].strip() == text, "another text with --picture")
    drawn = ElementTree.parse(picture).getroot()
    shown = [(float(e.get("width")), float(e.get("height"))) for e in drawn.iter() if e.tag.endswith("}image")]
    line = json.loads(run("transcribe", model, image, "--format", "jsonl", "--picture", picture)[0])
    check(len(shown) == 1 and abs(shown[0][0] / shown[0][1] - line["width"] / line["height"]) < 0.02, shown, line)
    labels = "".join(e.text for e in drawn.iter() if e.get("class") in ("strong", "strong letter"))
    check(labels == text + text.replace(" ", "\u2423"), labels)
    words = [e.text for e in drawn.iter() if e.get("class") == "label word"]
    check(words == text.split(), words)
    check("pixels" in [e.text for e in drawn.iter()], "no axis of pixels")
    run("transcribe", model, image, "--picture", root / "alignment.png", code=2, errs="alignment.png' is no name of an SVG file")
    run("transcribe", model, image, "--picture", picture, "--picture-from", 1, code=2, errs="are seconds of recordings")
    fails("transcribe", model, image.parent, "--picture", picture, errs="--picture takes one recording or line")
    fails("transcribe", model, root / "scans" / "book0" / "blank.png", "--picture", picture, errs="blank.png: nothing stands on it")


def sheets_of_what_is_seen(root, scans):
    words = ["prepare", "lines", scans, root / "mine", "--dev", 0.17, "--test", 0.17]
    (root / "bent.toml").write_text('[features]\ntype = "image"\nheight = 16\n[distort]\nnoise = 0.3\nprobability = 1\n')
    run(*words, "--preview", root / "plain.svg", says="plain.svg: what a network sees")
    run(*words, "--preview", root / "bent.svg", "--config", root / "bent.toml")
    plain, bent = (re.findall('height="(\\d+)"[^>]*base64,([^"]+)', (root / name).read_text()) for name in ("plain.svg", "bent.svg"))
    check(len(plain) == len(bent) == 24, len(plain), len(bent))
    check(plain[0][0] == "48" and bent[0][0] == "16", plain[0][0], bent[0][0])
    check(len({p[1] for p in plain[:4]}) == 1 and len({b[1] for b in bent[:4]}) == 4, "epochs look alike, or lines that are not bent do not")
    run(*words, "--preview", root / "bent.png", "--config", root / "bent.toml")
    check((root / "bent.png").read_bytes().startswith(b"\x89PNG"), "no PNG")
    fails(*words, "--preview", root / "bent.pdf", errs="bent.pdf' ends with neither .svg nor .png")
    (root / "sound.toml").write_text("[features]\nbins = 20\n")
    fails(*words, "--preview", root / "x.svg", "--config", root / "sound.toml", errs="sound.toml: features.type is not \"image\"")
    run(*words, "--config", root / "bent.toml", code=2, errs="--config is for --preview")


def places_are_in_the_image(model, image, text):
    line = json.loads(run("transcribe", model, image, "--format", "jsonl")[0])
    check(line["image_filepath"] == str(image) and line["height"] == 20, line)
    check(line["text"] == text and "".join(w["text"] for w in line["words"]) == text.replace(" ", ""), line)
    ends = [0]
    for word in line["words"]:
        check(ends[-1] <= word["begin"] < word["end"] <= line["width"], line)
        ends.append(word["end"])
    check(line["words"][-1]["end"] > 0.5 * line["width"], line)


def tensors_of(path):
    """{name: bytes} of a .safetensors file."""
    file = path.read_bytes()
    end = 8 + int.from_bytes(file[:8], "little")
    places = {name: entry["data_offsets"] for name, entry in json.loads(file[8:end]).items() if name != "__metadata__"}
    return {name: file[end + begin:end + stop] for name, (begin, stop) in places.items()}


def info_and_init_from(root, model, image, text):
    info = json.loads(run("info", "--model", model, "--json")[0])
    check(info["features"] == {"type": "image", "columns": 16, "normalisation": "utterance", "height": 16, "padding": 2,
                               "ink": "dark", "contrast": True, "scaling": "average", "deskew": False, "centre": False, "direction": "ltr"}, info)
    check("frame_seconds" not in info and info["subsampling"] == 1, info)
    run("info", "--model", model, says=["16 features -> 5 outputs", "utterances of 1000 columns"])
    # Features and layers come with the weights.
    run("train", "--init-from", model, f"data={root / 'mine'}", f"training.checkpoint_dir={root / 'tuned'}",
        "training.max_steps=2", "training.samples=0", "training.threads=2", says="weights from")
    check(run("transcribe", root / "tuned", image)[0].strip(), "nothing written")
    head = ["train", "--init-from", model, f"data={root / 'mine'}", f"training.checkpoint_dir={root / 'head'}",
            "training.max_steps=2", "training.samples=0", "training.threads=2"]
    fails(*head, "training.freeze_before=lstm", errs="training.freeze_before is 'lstm', expected one of the layers ")
    run(*head, "training.freeze_before=output",
        says=["weights from", "weights in the layers before output",
              "warning: the learning rate rises for 200 updates, and the run has 2; lr.warmup_steps=0"])
    before, after = (tensors_of(path / "model.safetensors") for path in (model, root / "head"))
    check(before.keys() == after.keys(), after.keys())
    changed = {name for name in before if before[name] != after[name]}
    check(changed == {"output.weight", "output.bias"}, changed)


def models_are_averaged(root, model, image):
    test = root / "mine" / "test.jsonl"
    other = root / "other"
    train(root / "mine", other, "training.epochs=4", "training.seed=5", base=LINES)
    rates = [json.loads(run("eval", m, test, *more, "--json")[0])
             for m, more in ((model, []), (other, []), (model, ["--with", other]), (model, ["--with", model]))]
    check(rates[2]["averaged_with"] == [str(other)] and "averaged_with" not in rates[0], rates)
    check(len({r["loss"] for r in rates[:3]}) == 3, "the mean is no model of the two:", rates)
    check(abs(rates[3]["loss"] - rates[0]["loss"]) < 1e-4 and rates[3]["all"] == rates[0]["all"], rates)
    alone, both = (json.loads(run("transcribe", model, image, "--format", "jsonl", *more)[0])
                   for more in ([], ["--with", other]))
    check(alone["characters"] != both["characters"], "probabilities are the first model's")
    run("transcribe", model, image, "--with", other, "--beam", 10, "--picture", root / "both.svg", says="\n")
    fails("eval", model, test, "--with", root / "brief" / "none", errs="none: no such model")
    low = root / "low"
    train(root / "mine", low, "features.height=12", "training.max_steps=1", base=LINES)
    fails("eval", model, test, "--with", low,
          errs=[f"{low}/model.safetensors: cannot be averaged with {model}/model.safetensors", "features.height: 16 -> 12"])
    fails("eval", model, test, "--with", other, "--report", other / "model.safetensors",
          errs="would overwrite a file of the model")
    run("transcribe", model, image, "--with", other, "--stream", code=2, errs="--stream takes a model by itself")


def what_a_model_of_lines_refuses(root, model, image):
    fails("transcribe", model, image, "--stream", errs="was trained on images")
    (root / "x.wav").write_bytes(b"RIFF")
    fails("transcribe", model, root / "x.wav", errs=["x.wav: holds a recording", "reads images"])
    (root / "empty").mkdir()
    fails("transcribe", model, root / "empty", errs="holds no images (.png")
    (root / "bad.png").write_bytes(png(line_image("abc", random.Random(1)))[:60])
    fails("transcribe", model, root / "bad.png", errs="bad.png: is no whole PNG")
    (root / "huge.pgm").write_bytes(b"P5 1000000 1000000 255\n")
    fails("transcribe", model, root / "huge.pgm", errs=["huge.pgm: is 1000000 x 1000000 pixels, expected at most"])
    (root / "wide.pgm").write_bytes(b"P5 100000 8 255\n" + bytes(800000))
    fails("transcribe", model, root / "wide.pgm", errs="wide.pgm: is 100000 x 8 pixels, 200000 columns at a height of 16")
    # One bad image does not keep the others from being read.
    out, _ = run("transcribe", model, root / "bad.png", image, code=1, errs="bad.png: is no whole PNG")
    check(len(out.splitlines()) == 1 and out.startswith(str(image)), out)


LAYERS = """
[[model.layer]]
type = "conv2d"
channels = 8
[[model.layer]]
type = "relu"
[[model.layer]]
type = "group_norm"
groups = 4
[[model.layer]]
type = "conv2d"
channels = 8
groups = 8
[[model.layer]]
type = "pool2d"
[[model.layer]]
type = "lstm"
hidden = 20
bidirectional = false
backward = true
"""


def test_lines_are_normalised_alone():
    """What a line gives does not depend on the lines beside it; and what needs whole lines is not cut."""
    with folder() as root:
        line_corpus(root, books=3, each=8)
        run("prepare", "lines", root / "scans", root / "mine", "--dev", 0, "--test", 0.34)
        (root / "layers.toml").write_text(LAYERS)
        base = [root / "layers.toml"] + [setting for setting in LINES if not setting.startswith("model.")]
        words = ["data.dev=", "data.test=", "training.max_steps=20"]
        train(root / "mine", root / "run", *words, base=base)
        own = manifest(root / "mine" / "train.jsonl")
        image = (root / "mine" / own[3]["image_filepath"]).resolve()
        whole = image.read_bytes()
        image.write_bytes(whole[:40])
        fails("train", *base, f"data={root}/mine", f"training.checkpoint_dir={root}/cut", *words, lines=2,
              errs=[f"1 of {len(own)} lines cannot be used: 1 unreadable", "train.jsonl:4: "])
        image.write_bytes(whole)
        paths = [(root / "mine" / line["image_filepath"]).resolve() for line in manifest(root / "mine" / "test.jsonl")]
        paths = [path for path in paths if path.parent == paths[0].parent]  # of one name in one folder
        run("transcribe", root / "run", *paths, "--format", "npy", "--out", root / "all")
        run("transcribe", root / "run", paths[1], "--format", "npy", "--out", root / "one")
        name = paths[1].with_suffix(".npy").name
        check((root / "all" / name).read_bytes() == (root / "one" / name).read_bytes(), name)
        fails("train", *base, f"data={root / 'mine'}", f"training.checkpoint_dir={root / 'cut'}", *words, "training.tbptt=8",
              errs="the op 'group_norm' makes each frame of all frames of its sequence")


def test_settings_of_the_other_kind_are_refused():
    with folder() as root:
        (root / "a.pgm").write_bytes(pgm(line_image("abc", random.Random(1))))
        write_manifest(root / "train.jsonl", [{"image_filepath": "a.pgm", "text": "abc"}] * 2)
        shutil.copy(root / "train.jsonl", root / "dev.jsonl")
        words = ["train", *TINY, f"data={root}", f"training.checkpoint_dir={root / 'run'}"]
        fails(*words, errs=["train.jsonl:1: ", "a.pgm is an image, but features.type is not \"image\""])
        image = words + ["features.type=image"]
        for setting in ("features.bins=20", "features.rate=8000", "augment.speed=[0.9,1.1]", "features.hop_ms=5"):
            fails(*image, setting, errs=[setting.split("=")[0], "but features.type is \"image\": it works on recordings alone"])
        for setting in ("features.height=32", "distort.blur=1"):
            fails(*words, setting, errs=[setting.split("=")[0], "but features.type is not \"image\": it works on images alone"])
        fails(*image, "features.ink=blue", errs="features.ink is \"blue\", expected one of \"dark\", \"light\", \"auto\"")
        fails(*image, "features.heigth=32", errs="did you mean 'features.height'?")
        write_manifest(root / "train.jsonl", [{"image_filepath": "a.pgm", "audio_filepath": "a.wav", "text": "abc"}])
        fails(*image, errs="train.jsonl:1: both \"image_filepath\" and \"audio_filepath\" are given, expected one")
        write_manifest(root / "train.jsonl", [{"image_filepath": "a.pgm", "text": "abc" * 30}])
        fails(*image, lines=2, errs=["1 with fewer frames than the labels need", "a.pgm: its labels need 90 frames"])


main(globals())
