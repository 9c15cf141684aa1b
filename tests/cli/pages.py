"""Pages of text lines: from PAGE-XML and ALTO to a model, and its readings as hOCR, ALTO and PAGE-XML."""

import array
import json
import math
import random
import re
import shutil
import struct
import xml.etree.ElementTree as ElementTree
import zlib

from cli_support import check, fails, folder, main, run, train, write_wav
from line_images import LINES, line_image, png

WIDTH, PITCH, LEFT, TOP = 220, 22, 15, 8
PAGE = "http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15"
ALTO = "http://www.loc.gov/standards/alto/ns-v4#"


def local(element):
    return element.tag.rsplit("}", 1)[-1]


def all_of(document, name):
    return [e for e in ElementTree.fromstring(document).iter() if local(e) == name]


def page(rng, lines):
    """Rows of a page that slants by a pixel in 20, its texts and the polygons around its lines."""
    texts, polygons = [], []
    rows = [[rng.randrange(200, 216) for _ in range(WIDTH)] for _ in range(TOP + PITCH * lines + 20)]
    for n in range(lines):
        texts.append(" ".join("".join(rng.choice("abc") for _ in range(rng.randrange(2, 4))) for _ in range(2)))
        image = line_image(texts[-1], rng)
        for y, row in enumerate(image):
            for x, grey in enumerate(row):
                rows[TOP + n * PITCH + y + x // 20][LEFT + x] = min(grey, 210)
        top, right, fall = TOP + n * PITCH, LEFT + len(image[0]), len(image[0]) // 20
        polygons.append([(LEFT, top), (right, top + fall), (right, top + fall + 20), (LEFT, top + 20)])
    return rows, texts, polygons


def points(polygon):
    return " ".join(f"{x},{y}" for x, y in polygon)


def page_xml(image, texts, polygons):
    lines = "".join(f'<pc:TextLine id="l{n}"><pc:Coords points="{points(p)}"/><pc:Word id="w{n}"/>' +
                    (f"<pc:TextEquiv><pc:Unicode>{t}</pc:Unicode></pc:TextEquiv>" if t is not None else "") + "<pc:TextStyle/></pc:TextLine>"
                    for n, (t, p) in enumerate(zip(texts, polygons)))
    return (f'<?xml version="1.0"?><!-- kept --><pc:PcGts xmlns:pc="{PAGE}"><pc:Metadata/><pc:Page imageFilename="{image}">'
            f'<pc:TextRegion id="r"><pc:Coords points="0,0 9,0 9,9"/>{lines}</pc:TextRegion></pc:Page></pc:PcGts>')


def alto(image, polygons, size):
    lines = "".join(f'<TextLine ID="l{n}"><Shape><Polygon POINTS="{points([(2 * x, 2 * y) for x, y in p])}"/></Shape><String CONTENT="old"/><HYP/></TextLine>'
                    for n, p in enumerate(polygons))
    return (f'<alto xmlns="{ALTO}"><Description><MeasurementUnit>mm10</MeasurementUnit><sourceImageInformation><fileName>{image}</fileName>'
            f'</sourceImageInformation></Description><Layout><Page ID="p" WIDTH="{2 * size[0]}" HEIGHT="{2 * size[1]}"><PrintSpace>'
            f'<TextBlock ID="b">{lines}</TextBlock></PrintSpace></Page></Layout></alto>')


def pages(root, count=8, lines=9, seed=5):
    """root/pages/0.png with 0.xml, ...; the last is described in root/read, as PAGE and ALTO without texts."""
    rng = random.Random(seed)
    (root / "pages").mkdir()
    (root / "read").mkdir()
    for n in range(count):
        rows, texts, polygons = page(rng, lines)
        last = n == count - 1
        place = root / ("read" if last else "pages")
        (place / f"{n}.png").write_bytes(png(rows))
        (place / f"{n}.xml").write_text(page_xml(f"{n}.png", [None] * lines if last else texts, polygons))
    (root / "read" / "alto").mkdir()
    (root / "read" / "alto" / "a.xml").write_text(alto(f"{n}.png", polygons, (len(rows[0]), len(rows))))
    return texts, polygons, (len(rows[0]), len(rows))


def bbox(element, name="bbox"):
    return [int(v) for v in re.search(rf"{name} (\d+) (\d+) (\d+) (\d+)", element.get("title")).groups()]


def is_within(box, outer):
    return outer[0] <= box[0] < box[2] <= outer[2] and outer[1] <= box[1] < box[3] <= outer[3]


def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        row, last = [i], row
        for j, y in enumerate(b, 1):
            row.append(min(last[j] + 1, row[-1] + 1, last[j - 1] + (x != y)))
    return row[-1]


def test_from_pages_to_a_model_and_back():
    with folder() as root:
        texts, polygons, size = pages(root)
        run("prepare", "lines", root / "pages", root / "mine", "--dev", 0.15, "--test", 0.15,
            says=["divided by page: none is in two parts", "4 characters: space a b c"])
        entry = json.loads((root / "mine" / "train.jsonl").read_text().splitlines()[0])
        check(re.fullmatch(r"\d.xml:l0", entry["id"]) and len(entry["region"]) == 4 and entry["image_filepath"].startswith("../pages/"), entry)
        model = root / "run"
        train(root / "mine", model, "training.epochs=40", "distort.noise=0.05", base=LINES)
        out, _ = run("eval", model, root / "mine" / "test.jsonl", "--group-by", "page", "--report", root / "report.html")
        check(f"page {json.loads((root / 'mine' / 'test.jsonl').read_text().splitlines()[0])['page']} " in out, out)
        rate = float(out.split("CER ")[1].split("%")[0])
        check(rate < 10, "has not learnt:", rate)

        lines_that_are_cut(root, model)
        source = root / "read" / "7.xml"
        read = dict(line.split("\t") for line in run("transcribe", model, source)[0].splitlines())
        check(list(read) == [f"{source}:l{n}" for n in range(9)], read)
        wrong = sum(edit_distance(t, read[f"{source}:l{n}"]) for n, t in enumerate(texts))
        check(wrong <= 0.15 * sum(map(len, texts)), read, texts)
        read = list(read.values())
        as_json = [json.loads(line) for line in run("transcribe", model, source, "--format", "jsonl")[0].splitlines()]
        check([line["text"] for line in as_json] == read and as_json[2]["id"] == f"{source}:l2" and "reference" not in as_json[2], as_json[2])
        hocr_tells_words_and_places(run("transcribe", model, source, "--format", "hocr")[0], read, polygons, size)
        page_is_filled_in(run("transcribe", model, source, "--format", "page")[0], read)
        alto_is_new_or_filled_in(root, model, source, read, polygons, size)
        several_pages_go_to_a_folder(root, model, source)
        regions_of_a_manifest(root, model, read, polygons)
        lines_on_a_curve(root, model)
        bad_pages_are_named(root, model, source)
        marks_have_their_letters_place(root, source)


def lines_that_are_cut(root, model):
    run("prepare", "lines", root / "pages", root / "cut", "--dev", 0.15, "--test", 0.15, "--cut")
    whole, cut = ([json.loads(line) for line in (root / name / "test.jsonl").read_text().splitlines()] for name in ("mine", "cut"))
    check([e["id"] for e in cut] == [e["id"] for e in whole] and "region" not in cut[0], cut)
    check(all((root / "cut" / e["image_filepath"]).is_file() and e["image_filepath"].startswith("lines/") for e in cut), cut)
    # The network sees the same, to the bit.
    losses = [json.loads(run("eval", model, root / name / "test.jsonl", "--json")[0])["loss"] for name in ("mine", "cut")]
    check(losses[0] == losses[1], losses)
    run("prepare", "lines", root / "pages", root / "cut", says="lengths.svg")
    check(not (root / "cut" / "lines").exists(), "lines of the corpus before are left")


def hocr_tells_words_and_places(document, read, polygons, size):
    by_class = {}
    for e in ElementTree.fromstring(document).iter():
        by_class.setdefault(e.get("class"), []).append(e)
    check(bbox(by_class["ocr_page"][0]) == [0, 0, *size], by_class["ocr_page"][0].get("title"))
    lines = by_class["ocr_line"]
    check(["".join(line.itertext()) for line in lines] == read, document)
    check([line.get("id") for line in lines] == [f"l{n}" for n in range(len(read))], document)
    for line, polygon in zip(lines, polygons):
        around = [min(x for x, _ in polygon), min(y for _, y in polygon), max(x for x, _ in polygon), max(y for _, y in polygon)]
        check(bbox(line) == around, line.get("title"), around)
        end = 0
        for word in line:
            check(word.get("class") == "ocrx_word" and is_within(bbox(word), around) and bbox(word)[0] >= end, word.get("title"))
            check(0 < int(word.get("title").split("x_wconf ")[1]) <= 100, word.get("title"))
            check(all(is_within(bbox(c, "x_bboxes"), bbox(word)) for c in word), ElementTree.tostring(word))
            end = bbox(word)[2]
    check(len({e.get("id") for e in by_class["ocrx_word"]}) == len(by_class["ocrx_word"]) == sum(len(t.split()) for t in read), "words")


def marks_have_their_letters_place(root, source):
    """The third letter is a mark above the one before it: "a\u0364" is one character of hOCR. ALTO's Glyphs have one code point each, in one place."""
    mark = "\u0364"
    shutil.copytree(root / "mine", root / "marked")
    for name in ("train.jsonl", "dev.jsonl", "test.jsonl"):
        entries = [json.loads(line) for line in (root / "mine" / name).read_text().splitlines()]
        (root / "marked" / name).write_text("".join(json.dumps(e | {"text": e["text"].replace("c", mark)}) + "\n" for e in entries))
    train(root / "marked", root / "run-marked", "training.epochs=40", "distort.noise=0.05", base=LINES)
    read = run("transcribe", root / "run-marked", source, "--format", "jsonl")[0]
    wanted = [re.findall(f"[ab{mark}]{mark}*", word) for line in read.splitlines() for word in json.loads(line)["text"].split(" ")]
    check(any(len(c) > 1 and c[0] in "ab" for word in wanted for c in word), "no mark behind a letter:", read)
    document = run("transcribe", root / "run-marked", source, "--format", "hocr")[0]
    words = [e for e in ElementTree.fromstring(document).iter() if e.get("class") == "ocrx_word"]
    check([[c.text for c in word] for word in words] == wanted, document)
    glyphs = all_of(run("transcribe", root / "run-marked", source, "--format", "alto")[0], "String")
    places = [[(g.get("CONTENT"), g.get("HPOS"), g.get("WIDTH")) for g in word if local(g) == "Glyph"] for word in glyphs]
    check([[content for content, *_ in word] for word in places] == [list("".join(word)) for word in wanted], places)
    check(all(b[1:] == a[1:] for word in places for a, b in zip(word, word[1:]) if b[0] == mark), places)


def page_is_filled_in(document, read):
    check("<!-- kept -->" in document, document)
    lines = all_of(document, "TextLine")
    check([local(e) for e in lines[0]] == ["Coords", "TextEquiv", "TextStyle"], document)
    check([next(line.iter(f"{{{PAGE}}}Unicode")).text for line in lines] == read, document)
    check(all(0 < float(line.find(f"{{{PAGE}}}TextEquiv").get("conf")) <= 1 for line in lines), document)
    region = all_of(document, "TextRegion")[0]
    check(region.find(f"{{{PAGE}}}TextEquiv/{{{PAGE}}}Unicode").text == "\n".join(read), document)


def texts_of_alto(document):
    return [" ".join(e.get("CONTENT") for e in line if local(e) == "String") for line in all_of(document, "TextLine")]


def alto_is_new_or_filled_in(root, model, source, read, polygons, size):
    new = run("transcribe", model, source, "--format", "alto")[0]
    check(texts_of_alto(new) == read, new)
    check([e.get("POINTS") for e in all_of(new, "Polygon")] == [points(p) for p in polygons], new)
    check(all_of(new, "Page")[0].get("WIDTH") == str(size[0]), new)
    for string in all_of(new, "String"):
        check("".join(g.get("CONTENT") for g in string) == string.get("CONTENT") and 0 < float(string.get("WC")) <= 1, new)
    # In units twice as fine, and an image that is named from the folder above.
    filled = run("transcribe", model, root / "read" / "alto" / "a.xml", "--format", "alto")[0]
    check(texts_of_alto(filled) == read and "old" not in filled and "HYP" not in filled and 'ID="b"' in filled, filled)
    for a, b in zip(all_of(new, "String"), all_of(filled, "String")):
        check(2 * float(a.get("HPOS")) == float(b.get("HPOS")) and 2 * float(a.get("HEIGHT")) == float(b.get("HEIGHT")), a.attrib, b.attrib)
    # ALTO as PAGE: a new document.
    as_page = run("transcribe", model, root / "read" / "alto" / "a.xml", "--format", "page")[0]
    check([e.text for e in all_of(as_page, "Unicode")][:-1] == read, as_page)


def several_pages_go_to_a_folder(root, model, source):
    out = root / "out"
    run("transcribe", model, source, root / "pages" / "0.xml", "--format", "hocr", code=2, errs="--format hocr of several inputs needs --out FOLDER")
    said = run("transcribe", model, root / "pages", source, "--format", "page", "--out", out)[0].splitlines()
    check(sorted(said) == sorted(str(out / f"{n}.xml") for n in range(8)), said)
    check(len(all_of((out / "3.xml").read_text(), "TextLine")) == 9, "lines")
    fails("transcribe", model, root / "pages", "--format", "page", "--out", root / "pages", errs=["would overwrite the page"])
    # A line without a page is a page of its own.
    (root / "line.png").write_bytes(png(line_image("abc cab", random.Random(2))))
    one = run("transcribe", model, root / "line.png", "--format", "hocr")[0]
    check(len(all_of(one, "span")) > 2 and 'id="line_1"' in one, one)


def regions_of_a_manifest(root, model, read, polygons):
    entries = [{"image_filepath": "read/7.png", "region": p} for p in polygons[:3]]
    entries.append({"image_filepath": "line.png"})
    (root / "list.jsonl").write_text("".join(json.dumps(e) + "\n" for e in entries))
    run("transcribe", model, root / "list.jsonl", "--format", "alto", "--out", root / "listed", says=["7.xml", "line.xml"])
    check(texts_of_alto((root / "listed" / "7.xml").read_text()) == read[:3], "texts of regions")


def lines_on_a_curve(root, model):
    """Lines that rise and fall again, each around a circle, as on a page that was bent in the scanner."""
    rng, (width, pitch, count, radius) = random.Random(8), (240, 30, 5, 200)
    rows = [[rng.randrange(200, 216) for _ in range(width)] for _ in range(count * pitch + 60)]
    texts, baselines, outlines = [], [], []
    for n in range(count):
        texts.append(" ".join("".join(rng.choice("abc") for _ in range(3)) for _ in range(4)))
        image = line_image(texts[-1], rng)
        length, middle = len(image[0]), (120, 40 + n * pitch + radius)
        for y in range(middle[1] - radius - 30, middle[1] - radius + 40):
            for x in range(width):
                along = radius * math.atan2(x + 0.5 - middle[0], middle[1] - y - 0.5) + length / 2
                down = 18 + radius - math.hypot(x + 0.5 - middle[0], middle[1] - y - 0.5)
                if 0 <= along < length and 0 <= down < len(image):
                    rows[y][x] = min(image[int(down)][int(along)], 210)

        def around(s, r):
            angle = (s - length / 2) / radius
            return round(middle[0] + r * math.sin(angle)), round(middle[1] - r * math.cos(angle))
        steps = [length * i / 10 for i in range(11)]
        baselines.append([around(s, radius) for s in steps])
        outlines.append([around(s, radius + 18) for s in steps] + [around(s, radius - 2) for s in reversed(steps)])
    place = root / "bent"
    place.mkdir()
    (place / "b.png").write_bytes(png(rows))

    def write(name, outlined):
        lines = ""
        for n, baseline in enumerate(baselines):
            coords = f'<Coords points="{points(outlines[n])}"/>' if outlined else ""
            lines += f'<TextLine id="l{n}">{coords}<Baseline points="{points(baseline)}"/><TextEquiv><Unicode>{texts[n]}</Unicode></TextEquiv></TextLine>'
        (place / name).write_text(f'<PcGts><Page imageFilename="b.png"><TextRegion id="r">{lines}</TextRegion></Page></PcGts>')
        read = [line.split("\t")[1] for line in run("transcribe", model, place / name)[0].splitlines()]
        return read, sum(edit_distance(t, r) for t, r in zip(texts, read)) / sum(map(len, texts))
    read, errors = write("b.xml", True)
    check(errors <= 0.1, read, texts)
    document = run("transcribe", model, place / "b.xml", "--format", "hocr")[0]
    words = [e for e in ElementTree.fromstring(document).iter() if e.get("class") == "ocrx_word"]
    at = {n: iter(read[n].split()) for n in range(count)}
    for word in words:
        n = int(word.get("id").split("_")[1]) - 1
        left, top, right, bottom = bbox(word)
        near = [y for x, y in baselines[n] if left - 12 <= x <= right + 12]
        check("".join(word.itertext()) == next(at[n]) and min(near) - 24 <= top < bottom <= max(near) + 8, word.get("title"), near)
    new = run("transcribe", model, place / "b.xml", "--format", "alto")[0]
    check([e.get("BASELINE") for e in all_of(new, "TextLine")] == [points(b) for b in baselines], new)
    # A manifest has what the page had, and so has what is cut.
    run("prepare", "lines", place, root / "bent-lists", "--dev", 0, "--test", 0.2)
    entry = json.loads((root / "bent-lists" / "train.jsonl").read_text().splitlines()[0])
    check(entry["baseline"] == [list(p) for p in baselines[int(entry["id"][-1])]] and len(entry["region"]) == 2 * len(entry["baseline"]), entry)
    check(run("transcribe", model, root / "bent-lists" / "train.jsonl", "--format", "jsonl")[0].count('"width"') >= 3, "lines of a manifest")
    run("eval", model, root / "bent-lists" / "train.jsonl", says="CER")
    # Without outlines a line has what its neighbours leave it.
    read, errors = write("b.xml", False)
    check(errors <= 0.3, read, texts)


def bad_pages_are_named(root, model, source):
    bad = root / "bad"
    bad.mkdir()
    shutil.copy(root / "read" / "7.png", bad)
    lines = '<TextLine id="far"><Coords points="900,0 950,0 950,20"/></TextLine><TextLine id="none"/>'
    good = '<TextLine id="good"><Coords points="{}"/></TextLine>'.format(re.search('points="([^"]*)"/><pc:Word', source.read_text())[1])
    (bad / "a.xml").write_text(f'<PcGts><Page imageFilename="7.png"><TextRegion>{lines}{good}</TextRegion></Page></PcGts>')
    (bad / "b.xml").write_text("<PcGts>\n<Page>\n<TextRegion></PcGts>")
    (bad / "c.xml").write_text('<PcGts><Page imageFilename="lost.png"><TextRegion>' + good + "</TextRegion></Page></PcGts>")
    shutil.copy(root / "read" / "7.png", bad / "b.png")
    (bad / "d.xml").write_text("<html/>")
    (bad / "e.xml").write_text('<PcGts><Page imageFilename="7.png"/></PcGts>')
    out, _ = run("transcribe", model, bad, code=1,
                 errs=["a.xml:far: lies beyond its image, which has 220 x", "a.xml:none: has no Coords with points", "b.xml:3: is no whole XML",
                       "c.xml: its image 'lost.png' is not there", "e.xml: has no lines"])
    check(len(out.splitlines()) == 1 and out.startswith(f"{bad / 'a.xml'}:good\t"), out)
    document = run("transcribe", model, bad / "a.xml", "--format", "page", code=1)[0]
    check([len(line) for line in all_of(document, "TextLine")] == [1, 0, 2], document)
    old = page_xml("7.png", ["sch\u00f6n"], [[(0, 0), (9, 0), (9, 9)]]).replace('<?xml version="1.0"?>', '<?xml version="1.0" encoding="windows-1252"?>')
    check("windows-1252" in old, old)
    (bad / "f.xml").write_bytes(old.encode("windows-1252"))
    fails("transcribe", model, bad / "f.xml", "--format", "page", errs="f.xml: is not UTF-8, and declares 'windows-1252'; expected UTF-8, UTF-16")
    fails("transcribe", model, bad / "d.xml", errs="d.xml: is XML of 'html', expected a page: PAGE-XML (PcGts) or ALTO (alto)")
    run("prepare", "lines", bad, root / "none", code=1, errs=["b.xml:3: is no whole XML", "a.xml:far: lies beyond its image"])


def one_page(texts, boxes, image="p.png", size=None, baselines=None):
    lines = ""
    for n, (text, (left, top, right, bottom)) in enumerate(zip(texts, boxes)):
        baseline = f'<Baseline points="{points(baselines[n])}"/>' if baselines else ""
        lines += (f'<TextLine id="l{n}"><Coords points="{points([(left, top), (right, top), (right, bottom), (left, bottom)])}"/>{baseline}'
                  f"<TextEquiv><Unicode>{text}</Unicode></TextEquiv></TextLine>")
    of_page = f' imageWidth="{size[0]}" imageHeight="{size[1]}"' if size else ""
    return f'<PcGts xmlns="{PAGE}"><Page imageFilename="{image}"{of_page}><TextRegion id="r">{lines}</TextRegion></Page></PcGts>'


def with_orientation(image, number):
    """A PNG with EXIF data that say so."""
    exif = b"II*\0\x08\0\0\0\x01\0" + struct.pack("<HHIHH", 274, 3, 1, number, 0) + bytes(4)
    chunk = struct.pack(">I", len(exif)) + b"eXIf" + exif + struct.pack(">I", zlib.crc32(b"eXIf" + exif))
    return image[:33] + chunk + image[33:]


def manifest(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def sizes_of_lines(folder):
    return [struct.unpack(">II", path.read_bytes()[16:24]) for path in sorted((folder / "lines").iterdir())]


def test_a_line_that_two_files_describe_is_used_once():
    with folder() as root:
        place = root / "twice"
        place.mkdir()
        rows, texts, polygons = page(random.Random(1), 4)
        (place / "p.png").write_bytes(png(rows))
        boxes = [(p[0][0], p[0][1], p[1][0], p[2][1]) for p in polygons]
        (place / "p.xml").write_text(one_page(texts, boxes))
        nearly = [(left + 1, top - 1, right, bottom + 1) for left, top, right, bottom in boxes]
        (place / "p.other.xml").write_text(one_page([texts[0], "another", *texts[2:]], nearly))
        run("prepare", "lines", place, root / "mine", "--dev", 0, "--test", 0,
            says=["left out, listed twice: 3 of 8", "left out, listed twice, with another text: 1 of 8",
                  f'p.xml:l1: is the line p.other.xml:l1 once more: "{texts[1]}", there "another"'])
        check(len(manifest(root / "mine" / "train.jsonl")) == 4, "not four lines")
        fails("prepare", "lines", place, root / "mine", "--strict", lines=5, errs="of 8 lines 3 listed twice, 1 listed twice, with another text")
        run("prepare", "lines", place, root / "mine", "--exclude", "*.other.xml", "--exclude", "*.gif",
            says=["not looked at, for --only and --exclude: 1 file\n", "'*.gif' fits no file", "divided not at all: no page is ever in two parts"],
            not_says="listed twice")
        check([e["text"] for e in manifest(root / "mine" / "train.jsonl")] == texts and not (root / "mine" / "dev.jsonl").exists(), "texts")
        fails("prepare", "lines", place, root / "mine", "--only", "none", errs="that --only and --exclude leave")


def test_images_whose_names_are_in_another_normal_form():
    rng = random.Random(2)
    rows, texts, polygons = page(rng, 3)
    with folder() as root:
        scans = root / "scans"
        scans.mkdir()
        (scans / "so\u0308z.png").write_bytes(png(rows))
        (scans / "p.xml").write_text(page_xml("s\u00f6z.png", texts, polygons), encoding="utf-8")
        (scans / "la\u0308nge.png").write_bytes(png(line_image("abc cab", rng)))
        (scans / "l\u00e4nge.gt.txt").write_text("abc cab")
        run("prepare", "lines", scans, root / "mine", "--dev", 0, "--test", 0, says="4 lines found, 4 used")


def test_columns_keep_their_outlines():
    with folder() as root:
        rng = random.Random(2)
        rows = [[rng.randrange(225, 256) for _ in range(300)] for _ in range(260)]
        boxes = [(220, 10, 265, 240), (130, 12, 176, 250), (40, 8, 87, 230)]
        for left, top, right, bottom in boxes:
            for y in range(top + 5, bottom - 5):
                for x in range(left + 8, right - 8):
                    if y % 24 < 18:
                        rows[y][x] = 20
        (root / "columns").mkdir()
        (root / "columns" / "p.png").write_bytes(png(rows))
        down = [[((b[0] + b[2]) // 2, b[1]), ((b[0] + b[2]) // 2, b[3])] for b in boxes]
        for baselines in down, [list(reversed(line)) for line in down]:
            (root / "columns" / "p.xml").write_text(one_page(["abc", "def", "ghi"], boxes, baselines=baselines))
            run("prepare", "lines", root / "columns", root / "mine", "--direction", "ttb", "--dev", 0, "--test", 0, "--cut")
            check(sizes_of_lines(root / "mine") == [(b[2] - b[0], b[3] - b[1]) for b in boxes], sizes_of_lines(root / "mine"))


def test_images_are_seen_as_viewers_show_them():
    with folder() as root:
        rng = random.Random(3)
        upright = line_image("abc cba bca abc", rng)
        # As a telephone stores what it took upright: a quarter to the left.
        stored = [[row[x] for row in upright] for x in reversed(range(len(upright[0])))]
        width, height = len(upright[0]), len(upright)
        (root / "scans").mkdir()
        for name, image in ("upright", png(upright)), ("phone", with_orientation(png(stored), 6)):
            (root / "scans" / f"{name}.png").write_bytes(image)
            (root / "scans" / f"{name}.gt.txt").write_text("abc cba bca abc")
        run("prepare", "lines", root / "scans", root / "mine", "--dev", 0, "--test", 0, says="train           2 ", not_says=["left out", "warning"])
        for name in ("upright", "phone"):
            (root / "scans" / f"{name}.gt.txt").unlink()
        (root / "scans" / "page.xml").write_text(one_page(["abc"], [(0, 0, width, height)], "phone.png", (width, height)))
        (root / "scans" / "upright.xml").write_text(one_page(["abc"], [(0, 0, width, height)], "upright.png"))
        regions = []
        for size, box in ((width, height), (0, 0, width, height)), ((height, width), (0, 0, height, width)):
            (root / "scans" / "page.xml").write_text(one_page(["abc"], [box], "phone.png", size))
            run("prepare", "lines", root / "scans", root / "mine", "--dev", 0, "--test", 0, "--cut", not_says=["left out", "warning"])
            regions.append([path.read_bytes() for path in sorted((root / "mine" / "lines").iterdir())])
            check(sizes_of_lines(root / "mine") == [(width, height)] * 2, sizes_of_lines(root / "mine"))
            check(regions[-1][0] == regions[-1][1], "the telephone's line is not the upright one")
        (root / "scans" / "page.xml").write_text(one_page(["abc"], [(0, 0, width, height)], "phone.png"))
        run("prepare", "lines", root / "scans", root / "mine", "--dev", 0, "--test", 0,
            says=["warning, pages whose images want a look: 1 of 2", "they are taken as after"])


def test_light_ink_is_found():
    with folder() as root:
        rng = random.Random(4)
        (root / "scans").mkdir()
        for n in range(6):
            rows = line_image("abc bca", rng)
            (root / "scans" / f"{n}.png").write_bytes(png([[255 - v for v in row] for row in rows]))
            (root / "scans" / f"{n}.gt.txt").write_text("abc bca")
        run("prepare", "lines", root / "scans", root / "mine", "--dev", 0, "--test", 0,
            says="warning, light ink on darker paper: 6 of 6")
        check('ink = "light"\n' in (root / "mine" / "train.toml").read_text())
        for n in range(3):
            (root / "scans" / f"{n}.png").write_bytes(png(line_image("abc bca", rng)))
        run("prepare", "lines", root / "scans", root / "mine", "--dev", 0, "--test", 0,
            says="warning, light ink on darker paper: 3 of 6")
        check('ink = "auto"\n' in (root / "mine" / "train.toml").read_text())


def tiff(rows, pages):
    """So many pages of the rows, in samples of 16 bits of which 12 are used."""
    width, height, at = len(rows[0]), len(rows), 8
    pixels = b"".join(struct.pack("<H", 16 * grey) for row in rows for grey in row)
    body = b""
    for n in range(pages):
        entries = [(256, 4, width), (257, 4, height), (258, 3, 16), (259, 3, 1), (262, 3, 1), (273, 4, at), (277, 3, 1), (278, 4, height), (279, 4, len(pixels))]
        end = at + len(pixels) + 2 + 12 * len(entries) + 4
        directory = struct.pack("<H", len(entries)) + b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in entries)
        body += pixels + directory + struct.pack("<I", 0 if n == pages - 1 else end + len(pixels))
        at = end
    return b"II*\0" + struct.pack("<I", 8 + len(pixels)) + body


def test_what_files_hold_besides_is_named():
    with folder() as root:
        (root / "scans").mkdir()
        rows = line_image("abc bca", random.Random(5))
        for name, content in ("one", tiff(rows, 1)), ("three", tiff(rows, 3)), ("plain", png(rows)):
            (root / "scans" / f"{name}.tif").write_bytes(content)
            (root / "scans" / f"{name}.gt.txt").write_text("abc bca")
        run("prepare", "lines", root / "scans", root / "mine", "--dev", 0, "--test", 0, "--strict", not_says=["one.tif", "plain.tif"],
            says=["train           3 ", "warning, files of several pictures: 1 of 3", "three.tif: holds 3 pictures, of which the first is read"])
        # Folders of recordings are chosen from, and divided, as those of lines are.
        for name in "train/a", "train/b", "valid/c", "old/d":
            path = root / "sounds" / f"{name}.wav"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_wav(path, array.array("h", [8000 * (i % 20 < 10) - 4000 for i in range(8000)]))
            path.with_suffix(".txt").write_text("a")
        run("prepare", "folder", root / "sounds", root / "chosen", says="divided as the data are divided; 1 of no part are to train on")
        run("prepare", "folder", root / "sounds", root / "chosen", "--exclude", "old", "--exclude", "train/b.*",
            says=["divided as the data are divided\n", "not looked at, for --only and --exclude: 2 files"])
        check([len(manifest(root / "chosen" / f"{part}.jsonl")) for part in ("train", "dev")] == [1, 1], "parts")
        fails("prepare", "folder", root / "sounds", root / "chosen", "--only", "*.flac", errs="no recordings that --only and --exclude leave")


main(globals())
