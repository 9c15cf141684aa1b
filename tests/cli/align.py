"""rondo align: texts in recordings whose times are known, in stored outputs, and what comes of them."""

import array
import difflib
import json
import math
import random
import re

from cli_support import RATE, TONE, TONES, check, fails, folder, main, npy, run, tone_corpus, train, write_wav


def said(*words, **more):
    return run(*words, **more)[0]


def spoken(labels, classes, sure=0.9):
    """Probabilities of frames in which these classes are the likely ones."""
    return [[sure if c == label else (1 - sure) / (classes - 1) for c in range(classes)] for label in labels]


def joined_tones(rng, count, gap=0.6):
    """Samples of letters as tones, in groups with pauses between; the letters, and when each begins and ends."""
    samples, letters, times = array.array("h"), [], []

    def silence(seconds):
        samples.extend(rng.randrange(-60, 61) for _ in range(int(RATE * seconds)))

    for _ in range(count):
        silence(gap / 2)
        for _ in range(rng.randrange(2, 6)):
            letter = rng.choice("abc")
            begin = len(samples) / RATE
            f = TONES[letter] * 2 * math.pi / RATE
            samples.extend(int(9000 * math.sin(f * i)) + rng.randrange(-60, 61)
                           for i in range(int(RATE * rng.uniform(0.09, 0.12))))
            letters.append(letter)
            times.append((begin, len(samples) / RATE))
            silence(rng.uniform(0.05, 0.07))
        silence(gap / 2)
    return samples, letters, times


def test_known_times():
    """A recording of over a minute, which the model is given in pieces."""
    with folder() as root:
        tone_corpus(root)
        train(root, root / "run", "training.epochs=14", base=TONE)
        rng = random.Random(4)
        samples, letters, times = joined_tones(rng, 70)
        write_wav(root / "long.wav", samples)
        (root / "long.txt").write_text(" ".join(letters).replace(" c ", "\nC ", 3))
        found = json.loads(said("align", root / "run", root / "long.wav", root / "long.txt", "--lowercase", "--piece",
                                "10", "--format", "jsonl"))
        words = found["words"]
        check([w["text"].lower() for w in words] == letters, "the words")
        check(sum(w["text"] == "C" for w in words) == 3, "words are shown as they were given")
        # A word that is one tone: its middle lies within it, and its begin is near.
        inside = [t[0] - 0.03 < (w["begin"] + w["end"]) / 2 < t[1] + 0.03 for w, t in zip(words, times)]
        check(sum(inside) >= 0.98 * len(inside), sum(inside), "of", len(inside), "lie where they were said")
        error = sum(abs(w["begin"] - t[0]) for w, t in zip(words, times)) / len(times)
        check(error < 0.05, "mean error of begins:", error)
        # In one piece it is nearly the same.
        whole = json.loads(said("align", root / "run", root / "long.wav", "--lowercase", "--piece", "0", "--format", "jsonl"))
        moved = [abs(v["begin"] - w["begin"]) for v, w in zip(whole["words"], words)]
        check(sum(m > 0.031 for m in moved) <= 0.01 * len(moved), max(moved))

        # Utterances to train on: one wrong word is in one of them alone.
        wrong = letters[:100] + ["abcabc"] + letters[101:]
        (root / "wrong.txt").write_text(" ".join(wrong))
        (root / "cut").mkdir()
        _, err = run("align", root / "run", root / "long.wav", root / "wrong.txt", "--split", root / "cut/all.jsonl",
                     "--longest", "3")
        lines = [json.loads(line) for line in (root / "cut/all.jsonl").read_text().splitlines()]
        check(f"{len(lines)} of {len(lines)} utterances" in err, err)
        check(" ".join(line["text"] for line in lines) == " ".join(wrong), "the texts")
        check(all(line["duration"] <= 3 for line in lines), "durations")
        ends = [line.get("offset", 0) + line["duration"] for line in lines]
        check(all(end <= line.get("offset", 0) + 1e-4 for end, line in zip(ends, lines[1:])), "overlaps")
        for line in lines[1:]:
            check(not any(begin + 0.03 < line.get("offset", 0) < end - 0.03 for begin, end in times), "cut within a tone:", line)
        worst, next_worst = sorted(lines, key=lambda line: line["score"])[:2]
        check(worst["score"] < 2 * next_worst["score"], worst, next_worst)
        check("abcabc" in worst["text"] and worst["score"] < -10, worst)
        run("align", root / "run", root / "long.wav", root / "wrong.txt", "--split", root / "cut/good.jsonl", "--longest",
            "3", "--min-score", "-8")
        good = (root / "cut/good.jsonl").read_text()
        check("abcabc" not in good and len(good.splitlines()) >= 0.9 * len(lines), len(good.splitlines()))
        out = said("eval", root / "run", root / "cut/good.jsonl", "--json")
        check(json.loads(out)["all"]["wer"] < 0.2, out)


def test_pieces():
    """What can stream is exactly what the whole gives; digital silence says nothing."""
    with folder() as root:
        tone_corpus(root)
        train(root, root / "one_way", "training.epochs=14", "model.bidirectional=false", "features.cmvn=global", base=TONE)
        train(root, root / "two_ways", "training.epochs=14", base=TONE)
        rng = random.Random(8)
        first, letters, times = joined_tones(rng, 6)
        second, more, later = joined_tones(rng, 6)
        silence = 25
        write_wav(root / "a.wav", first + array.array("h", [0] * (silence * RATE)) + second)
        (root / "a.txt").write_text(" ".join(letters + more))
        whole, pieces = (said("align", root / "one_way", root / "a.wav", "--format", "jsonl", "--piece", n) for n in (0, 2))
        check(whole == pieces, "streamed", whole[:200], pieces[:200])
        texts = [said("transcribe", root / "one_way", root / "a.wav", "--piece", n) for n in (0, 2)]
        check(texts[0] == texts[1], "transcribed", texts)
        heard = said("transcribe", root / "two_ways", root / "a.wav", "--piece", "4").split()
        alike = difflib.SequenceMatcher(None, heard, letters + more, autojunk=False).ratio()
        check(alike > 0.8, "in pieces", heard, letters + more)
        begin = len(first) / RATE
        truth = times + [(b + begin + silence, e + begin + silence) for b, e in later]
        words = json.loads(said("align", root / "two_ways", root / "a.wav", "--format", "jsonl", "--piece", "4"))["words"]
        far = [w for w, (b, e) in zip(words, truth) if abs(w["begin"] - b) > 0.2]
        check(len(words) == len(truth) and len(far) <= 1, far)
        run("align", root / "two_ways", root / "a.wav", "--picture", root / "p.svg", "--picture-from", begin + silence)
        drawn = (root / "p.svg").read_text()
        check(f"{begin + silence:.1f} to " in drawn, "the title")
        check(">words<" in drawn and ">spectrum<" in drawn and "<image" in drawn, "words over a spectrogram")
        fails("align", root / "two_ways", root / "a.wav", "--picture", root / "p.svg", "--picture-from", "99",
              errs=["a.wav: the text may not be what is said", "a.wav: has no frame from 99 s on"], lines=2)
        write_wav(root / "b.wav", first)
        grid = said("transcribe", root / "two_ways", root / "b.wav", "--format", "textgrid")
        check(f"xmax = {begin:.4f}" in grid and '"words"' in grid, grid[:300])


def test_stored_outputs():
    with folder() as root:
        (root / "tokens").write_text("<blank>\n \na\nb\nc\n")
        (root / "x.npy").write_bytes(npy(spoken([0, 2, 2, 0, 3, 1, 0, 4, 0], 5)))
        (root / "x.txt").write_text("ab c\n")
        out = said("align", root / "tokens", root / "x.npy")
        check(out == "1\t5\t0.9000\tab\n7\t8\t0.9000\tc\n", out)
        out = said("align", root / "tokens", root / "x.npy", root / "x.txt", "--frame-ms", "20", "--format", "ctm")
        check(out == "x 1 0.020 0.080 ab 0.9000\nx 1 0.140 0.020 c 0.9000\n", out)
        out = said("align", root / "tokens", root / "x.npy", "--frame-ms", "20", "--format", "vtt")
        check(out.startswith("WEBVTT\n\n00:00:00.020 --> 00:00:00.180\nab c\n"), out)
        grid = said("align", root / "tokens", root / "x.npy", "--frame-ms", "20", "--format", "textgrid")
        check(re.search(r"xmax = 0\.1800", grid) and grid.count("IntervalTier") == 2, grid)
        # Several: a manifest has its texts, a folder the files beside; each gets a file of its own.
        (root / "y.npy").write_bytes(npy(spoken([3, 3, 0], 5)))
        (root / "list.jsonl").write_text('{"features_filepath": "x.npy", "text": "ab c"}\n'
                                         '{"features_filepath": "y.npy", "text": "b", "id": "why"}\n')
        out = said("align", root / "tokens", root / "list.jsonl")
        check(out.endswith("why\t0\t2\t0.9000\tb\n") and out.count("x.npy\t") == 2, out)
        out = said("align", root / "tokens", root / "list.jsonl", "--format", "srt", "--out", root / "subtitles",
                   "--frame-ms", "20")
        check(out.splitlines() == [f"{root}/subtitles/{n}.srt" for n in "xy"], out)
        check("--> 00:00:00,060\nb\n" in (root / "subtitles/y.srt").read_text(), "a subtitle")
        # What the text lacks, and what the model does.
        (root / "x.txt").write_text("a * c?")
        fails("align", root / "tokens", root / "x.npy", errs=[f"{root}/x.txt: no token", "'*' (U+002A), '?' (U+003F)"])
        (root / "z.npy").write_bytes(npy(spoken([2, 1, 0, 3, 3, 1, 4], 5)))
        line = json.loads(said("align", root / "tokens", root / "z.npy", root / "x.txt", "--gap", "*", "--unknown", "skip", "--format",
                               "jsonl", "--frame-ms", "1000"))
        check([w["text"] for w in line["words"]] == ["a", "c?"] and line["unwritten"] == [{"begin": 3, "end": 5}], line)
        # Of several spellings the one that was said; times show which.
        (root / "lexicon").write_text("say c c\nsay a b\nit c\n")
        (root / "x.txt").write_text("say it")
        out = said("align", root / "tokens", root / "x.npy", "--lexicon", root / "lexicon")
        check(out == "1\t5\t0.9000\tsay\n7\t8\t0.9000\tit\n", out)
        # A training manifest of the recording that the outputs are of.
        run("align", root / "tokens", root / "x.npy", "--lexicon", root / "lexicon", "--frame-ms", "20", "--split",
            root / "cut.jsonl", "--recording", root / "x.wav", errs="1 of 1 utterances")
        line = json.loads((root / "cut.jsonl").read_text())
        check((line["audio_filepath"], line.get("offset", 0), line["duration"]) == (f"{root}/x.wav", 0, 0.18), line)
        check(line["text"] == "say it" and line["score"] == 0, line)


def test_texts_that_are_not_what_is_said():
    """A warning in every format, a limit, gaps that are found, subtitles by lines."""
    with folder() as root:
        (root / "tokens").write_text("<blank>\n \na\nb\nc\nd\ne\n")
        alphabet = " abcde"

        def write_said(text, name="x.npy"):
            labels = []
            for letter in text:
                labels += [alphabet.index(letter) + 1, 0]
            (root / name).write_bytes(npy(spoken(labels, 7, 0.999)))
            return 0.04 * len(text)

        beginning, more, end = "abc de bad ace ", "cab bed ada dab ecb dcc bee cce dad bba ace bca ddd eec cab aab ", "dead bee cab"
        seconds = write_said(beginning + more + end)
        (root / "x.txt").write_text(beginning + "\n" + end + "\n")
        align = ["align", root / "tokens", root / "x.npy", "--frame-ms", 20]
        for form in ("text", "jsonl", "ctm", "textgrid", "srt", "vtt"):
            err = run(*align, "--format", form)[1]
            check("x.npy: the text may not be what is said there: it fits worst at " in err and "with a score of -" in err, err)
            fails(*align, "--format", form, "--min-score", -20, errs=["the text fits worst at", "--min-score is -20"])
        line, err = run(*align, "--gap", "auto", "--format", "jsonl", "--min-score", -20)
        gaps = json.loads(line)["unwritten"]
        check(len(gaps) == 1 and abs(gaps[0]["begin"] - 0.6) < 0.1 and abs(gaps[0]["end"] - (seconds - 0.48)) < 0.1, gaps)
        check("x.npy: said and not in the text: 0." in err and "may not be" not in err, err)
        words = json.loads(line)["words"]
        check(words[4]["text"] == "dead" and abs(words[4]["begin"] - (seconds - 0.48)) < 0.03, words)

        # Subtitles of lines; those that there are get new times; what nothing spells stays.
        seconds = write_said(beginning + end)
        (root / "x.txt").write_text("abc de\n\nbad 2014 ace\ndead bee cab!\n")
        (root / "old.srt").write_text(
            "1\n00:00:01,000 --> 00:00:02,000\n<i>abc</i>\nde\n\n2\n00:01:00,000 --> 00:02:00,000\nbad 2014 ace dead bee cab\n")
        skip = ["--unknown", "skip", "--strip-punctuation"]
        srt = said(*align, "--lines", "--format", "srt", *skip)
        cues = [cue.splitlines() for cue in srt.strip().split("\n\n")]
        check([cue[2:] for cue in cues] == [["abc de"], ["bad 2014 ace"], ["dead bee cab!"]], srt)
        check(cues[0][1].startswith("00:00:00,000 -->") and cues[2][1].endswith("--> 00:00:01,080"), srt)
        vtt = said(*align, root / "old.srt", "--format", "vtt", *skip)
        cues = [cue.splitlines() for cue in vtt.strip().split("\n\n")[1:]]
        check([cue[1:] for cue in cues] == [["abc", "de"], ["bad 2014 ace dead bee cab"]], vtt)
        check(cues[1][0].startswith("00:00:00.280 -->"), vtt)
        lines = json.loads(said(*align, "--lines", "--format", "jsonl", *skip))["lines"]
        check([x["text"] for x in lines] == ["abc de", "bad 2014 ace", "dead bee cab!"] and lines[1]["begin"] == 0.28, lines)
        text = said(*align, "--lines", *skip).splitlines()
        check(len(text) == 3 and text[0].split("\t")[3] == "abc de", text)
        check("bad 2014 ace" in said(*align, "--format", "srt", *skip).replace("\n", " "), "words that nothing spells")
        for wrong, errs in (
            (["--lines", "--format", "ctm"], "--format ctm has words"),
            (["--longest", 3], "--longest goes with --split"),
            (["--pause", 3], "--pause goes with --split"),
            (["--wildcard-cost", 0.1], "--wildcard-cost goes with --gap"),
            (["--picture-from", 1], "--picture-from goes with --picture"),
        ):
            run(*align, *wrong, code=2, errs=errs)
        (root / "none.vtt").write_text("WEBVTT\n\nabc\n")
        fails(*align, root / "none.vtt", errs="none.vtt: holds no subtitle")


def test_mistakes():
    with folder() as root:
        (root / "tokens").write_text("<blank>\n \na\nb\n")
        (root / "x.npy").write_bytes(npy(spoken([0, 2, 0], 4)))
        x = root / "x.npy"
        fails("align", root / "tokens", x, errs=f"{root}/x.txt: cannot be opened")
        (root / "x.txt").write_text("abab")
        fails("align", root / "tokens", x, errs="x.npy: 3 frames have no alignment with 4 labels")
        (root / "x.txt").write_text(" \n")
        fails("align", root / "tokens", x, errs="x.txt: holds no word that could be aligned")
        (root / "x.txt").write_bytes(b"a\xff")
        fails("align", root / "tokens", x, errs="x.txt: ")
        (root / "x.txt").write_text("a")
        run("align", root / "tokens", x, "--format", "srt", code=2, errs="--frame-ms says how long a frame is")
        run("align", root / "tokens", x, "--split", root / "s", "--frame-ms", "20", code=2, errs="needs --recording")
        run("align", root / "tokens", x, "--out", root, code=2, errs="--out is for formats that are files; text goes to")
        run("align", root / "tokens", root, root / "x.txt", code=2, errs="a text goes with one recording")
        run("align", root / "tokens", "-", code=2, errs="standard input needs a file with its text")
        fails("align", root / "tokens", x, "--frame-ms", "20", "--split", x, "--recording", "a.wav", errs="--split")
        (root / "list.jsonl").write_text('{"features_filepath": "x.npy"}\n')
        fails("align", root / "tokens", root / "list.jsonl", errs='has no "text"')
        # A bad one does not keep the others from being aligned.
        (root / "list.jsonl").write_text('{"features_filepath": "x.npy", "text": "q"}\n'
                                         '{"features_filepath": "x.npy", "text": "a"}\n')
        out, _ = fails("align", root / "tokens", root / "list.jsonl", errs="'q' (U+0071)")
        check(out.endswith("\t1\t2\t0.9000\ta\n"), out)


main(globals())
