"""From data to text: train, eval, transcribe, info, and the options of training, on tiny data."""

import array
import random
import tarfile

from cli_support import *


def rate(text):
    """The WER of `rondo eval`'s first line, in percent."""
    return float(text.split("WER ")[1].split("%")[0])


def loss_curve(directory):
    return [entry["loss"] for entry in log_of(directory, "step")]


def test_recordings_to_text():
    with folder() as root:
        tone_corpus(root)
        model, recording = root / "run", root / "dev001.wav"
        out, _ = train(root, model, "training.epochs=20", "training.samples=2",
                       f"training.tensorboard={root}/tb", base=TONE,
                       says=["60 utterances", "12 to validate", "reference", "hypothesis",
                             "best model: ", "dev WER "])
        out, _ = run("eval", model, root / "dev.jsonl", "--group-by", "speaker",
                     "--hypotheses", root / "hyp.jsonl",
                     says=["on 12 utterances", "speaker s0", "speaker s1", "times real time"])
        check(out.count("WER ") == 3, "the total is said twice:", out)
        seen = [{**json.loads(line), "seen": i % 3 > 0} for i, line in enumerate((root / "dev.jsonl").open())]
        write_manifest(root / "seen.jsonl", seen)
        run("eval", model, root / "seen.jsonl", says=["\nseen voices  ", "\nunseen voices  "])
        run("eval", model, root / "seen.jsonl", "--group-by", "seen", says=["\nseen true  ", "\nseen false  "])
        check(rate(out) < 20, "tones were not learnt:", out)
        events = b"".join(file.read_bytes() for file in (root / "tb").glob("events.out.tfevents.*"))
        check(all(tag in events for tag in (b"loss/train", b"learning_rate", b"loss/dev", b"wer/dev", b"samples")),
              "TensorBoard's file lacks a curve:", events[:500])
        entries = [json.loads(line) for line in (root / "dev.jsonl").open()]
        written = [json.loads(line) for line in (root / "hyp.jsonl").open()]
        check([w["reference"] for w in written] == [e["text"] for e in entries], written)

        rates = json.loads(run("eval", model, root / "dev.jsonl", "--json", "--group-by", "speaker")[0])
        check(abs(100 * rates["all"]["wer"] - rate(out)) < 0.006, rates, out)
        check(sum(g["words"] for g in rates["groups"].values()) == rates["all"]["words"], rates)
        check(set(rates["groups"]) == {"speaker=s0", "speaker=s1"}, rates)

        text = run("transcribe", model, recording)[0]
        check(text == written[1]["hypothesis"] + "\n", text, written[1])
        check(run("transcribe", model, "-", stdin=recording.read_bytes())[0] == text, "stdin differs")
        both = run("transcribe", model, recording, root / "dev002.wav")[0].splitlines()
        check(both == [f"{recording}\t{written[1]['hypothesis']}",
                       f"{root}/dev002.wav\t{written[2]['hypothesis']}"], both)
        check_times(model, recording, written[1]["hypothesis"], entries[1]["duration"])
        check_logits(model, recording, root / "logits", written[1]["hypothesis"])
        run("transcribe", model, recording, "--picture", root / "alignment.svg")
        check((root / "alignment.svg").read_text().startswith("<svg"), "no picture")
        check((model / "learning_curve.svg").read_text().startswith("<svg"), "no learning curve")
        check(f">{model.name}<" in (model / "learning_curve.svg").read_text(), "no title")
        run("info", "--model", model,
            says=["20 features -> 5 outputs", "alphabet: space a b c", "predicted:", "MiB"])


def test_streaming_writes_what_transcribing_writes():
    with folder() as root:
        tone_corpus(root)
        model, recording = root / "run", root / "dev001.wav"
        train(root, model, "training.epochs=12", "model.bidirectional=false",
              "features.cmvn=global", base=TONE)
        text = run("transcribe", model, recording)[0]
        check(len(text) > 2, "nothing was learnt:", text)
        check(run("transcribe", model, recording, "--stream", "--chunk-ms", "70")[0] == text, text)
        raw = recording.read_bytes()[44:]  # write_wav's header
        check(run("transcribe", model, "-", "--stream", stdin=raw)[0] == text, "from a pipe")
        (root / "letters").write_text("aa ab\nba bb\n")
        run("lm", "train", root / "letters", "--order", 2, "--discount-fallback", "--out", root / "letters.lm")
        by_search = [run("transcribe", model, recording, "--lm", root / "letters.lm", *more)[0]
                     for more in ([], ["--stream", "--chunk-ms", "70"])]
        check(by_search[0] == by_search[1], by_search)
        logits = []
        for name, more in (("whole", []), ("streamed", ["--stream", "--chunk-ms", "33"])):
            run("transcribe", model, recording, "--format", "npy", "--out", root / name, *more)
            logits.append((root / name / "dev001.npy").read_bytes())
        check(logits[0] == logits[1], "other logits")
        both = run("transcribe", model, recording, root / "dev002.wav")[0]
        check(run("transcribe", model, recording, root / "dev002.wav", "--stream")[0] == both, both)
        fails("transcribe", model, "-", "--stream", stdin=recording.read_bytes(),
              errs="standard input: is a recording with a header (RIFF)")
        check_utterances(root, model)
        check_pieces(root, model)
        check_memory(root, model)
        train(root, root / "both", "training.max_steps=1", "features.cmvn=global", base=TONE)
        fails("transcribe", root / "both", recording, "--stream", errs="has bidirectional layers")
        run("transcribe", model, recording, "--end-silence", 2, code=2, errs="--end-silence goes with --stream")


def check_utterances(root, model):
    """Three recordings with pauses between: a line, an object, words of each."""
    noise = random.Random(4)
    samples, ends = array.array("h"), []
    for name in ("dev001.wav", "dev002.wav", "dev003.wav"):
        samples.frombytes((root / name).read_bytes()[44:])
        samples.extend(noise.randrange(-60, 61) for _ in range(int(1.5 * RATE)))
        ends.append(len(samples) / RATE)
    write_wav(root / "three.wav", samples)
    stream = ["transcribe", model, root / "three.wav", "--stream"]
    whole = run("transcribe", model, root / "three.wav")[0]
    check(run(*stream, "--end-silence", 0, "--longest", 0)[0] == whole, "without ends it is the whole")
    text = run(*stream)[0]
    for chunk in (33, 60000):
        check(run(*stream, "--chunk-ms", chunk)[0] == text, chunk, text)
    check(run("transcribe", model, "-", "--stream", stdin=samples.tobytes())[0] == text, "from a pipe")
    check(len(text.splitlines()) == 3, text)
    check("".join(text.split()) == "".join(whole.split()), text, whole)
    said = [json.loads(line) for line in run(*stream, "--format", "jsonl")[0].splitlines()]
    check([u["text"] for u in said] == text.splitlines(), said)
    for u, start, end in zip(said, [0] + ends, ends):
        check(start - 0.6 < u["begin"] < u["words"][0]["begin"] < u["words"][-1]["end"] < u["end"] < end + 0.1, u, start, end)
        check(abs(u["end"] - u["begin"] - u["duration"]) < 1e-3, u)
    words = [w["text"] for u in said for w in u["words"]]
    ctm = [line.split() for line in run(*stream, "--format", "ctm")[0].splitlines()]
    check([line[4] for line in ctm] == words and float(ctm[-1][2]) > ends[1], ctm)
    subtitles = run(*stream, "--format", "srt")[0]
    check([w for line in subtitles.splitlines() for w in line.split() if w.isalpha()] == words, subtitles)
    named = run("transcribe", model, root / "three.wav", root / "three.wav", "--stream")[0]
    check(named == "".join(f"{root}/three.wav\t{line}\n" for line in text.splitlines()) * 2, named)
    check(len(run(*stream, "--end-silence", 0, "--longest", 2)[0].splitlines()) >= 3, "longest")


def check_pieces(root, model):
    """Files of any rate, read piece by piece; what is wrong with one, and what is behind it."""
    noise = random.Random(5)
    samples = array.array("h", (noise.randrange(-20000, 20001) for _ in range(3 * 48000)))
    for rate in (8000, 11025, 44100, 48000):
        for channels in (1, 2):
            with wave.open(str(root / "any.wav"), "wb") as file:
                file.setparams((channels, 2, rate, 0, "NONE", None))
                file.writeframes(samples[: 2 * rate * channels + channels].tobytes())
            logits = []
            for name, more in (("whole", []), ("streamed", ["--stream", "--chunk-ms", "33"]), ("long", ["--stream", "--chunk-ms", "5000"])):
                run("transcribe", model, root / "any.wav", "--format", "npy", "--out", root / name, *more)
                logits.append((root / name / "any.npy").read_bytes())
            check(logits[0] == logits[1] == logits[2], rate, channels, "other logits")
    good, bad = root / "dev001.wav", root / "bad.wav"
    text = run("transcribe", model, good, "--stream")[0].strip()
    # What is no number comes late: the utterances before it are written, and nothing of it gets into the next recording.
    three = (root / "three.wav").read_bytes()[44:]
    heard = struct.unpack(f"<{len(three) // 2}h", three)
    content = struct.pack(f"<{len(heard)}f", *(v / 32768 for v in heard[:-1]), math.nan)
    bad.write_bytes(b"RIFF" + struct.pack("<I", 36 + len(content)) + b"WAVEfmt " +
                    struct.pack("<IHHIIHH", 16, 3, 1, RATE, 4 * RATE, 4, 32) + b"data" + struct.pack("<I", len(content)) + content)
    why = f"bad.wav: sample {len(heard) - 1} ({(len(heard) - 1) / RATE:g} s) is not a finite number"
    fails("transcribe", model, bad, errs=why[:30])
    out, err = fails("transcribe", model, bad, good, "--stream", errs="is not a finite number")
    lines = out.splitlines()
    check(lines[-1] == f"{good}\t{text}" and 2 <= len(lines) <= 4, lines, text)
    check(all(line.startswith(f"{bad}\t") for line in lines[:-1]), lines)
    check(err == run("transcribe", model, bad, code=1)[1], err)
    out = fails("transcribe", model, bad, "--stream", errs="is not a finite number")[0]
    check(out.endswith("\n"), out)
    bad.write_bytes(good.read_bytes()[:-100])
    out, err = fails("transcribe", model, bad, "--stream", errs="bad.wav: is truncated")
    check(out == "" and err == run("transcribe", model, bad, code=1)[1], out, err)


def check_memory(root, model):
    """An hour takes no more of it than a minute."""
    if is_sanitized():
        return
    noise = random.Random(6)
    with wave.open(str(root / "minute.wav"), "wb") as file:
        file.setparams((1, 2, 11025, 0, "NONE", None))
        file.writeframes(array.array("h", (noise.randrange(-20000, 20001) for _ in range(60 * 11025))).tobytes())
    minute = (root / "minute.wav").read_bytes()
    size = 60 * (len(minute) - 44)
    with open(root / "hour.wav", "wb") as file:
        file.write(minute[:4] + struct.pack("<I", size + 36) + minute[8:40] + struct.pack("<I", size))
        for _ in range(60):
            file.write(minute[44:])
    words = ["--stream", "--format", "ctm"]
    few, many = (peak_memory("transcribe", model, root / name, *words) for name in ("minute.wav", "hour.wav"))
    check(many < few + 16000, few, many)  # kB; the hour's samples are 115 MB


def check_times(model, recording, text, duration):
    line = json.loads(run("transcribe", model, recording, "--format", "jsonl")[0])
    check(line["text"] == text and line["audio_filepath"] == str(recording), line)
    check(abs(line["duration"] - duration) < 0.01, line["duration"], duration)
    check("".join(c["text"] for c in line["characters"]) == text, line)
    check([w["text"] for w in line["words"]] == text.split(), line)
    at = 0
    for word in line["words"]:
        check(at <= word["begin"] < word["end"] <= duration + 0.03, "times out of order", line)
        check(0 < word["probability"] <= 1, line)
        at = word["end"]


def check_logits(model, recording, out, text):
    name = run("transcribe", model, recording, "--format", "npy", "--out", out)[0].strip()
    check(name == str(out / recording.with_suffix(".npy").name), name)
    (frames, classes), values = read_npy(pathlib.Path(name))
    check(classes == 5, classes)
    best = [max(range(classes), key=lambda c: values[f * classes + c]) for f in range(frames)]
    path = [b for f, b in enumerate(best) if b and (f == 0 or best[f - 1] != b)]
    check("".join(" abc"[b - 1] for b in path) == text, "the logits spell", path, "not", text)


def test_from_a_folder_of_recordings_to_a_model():
    with folder() as root:
        tone_corpus(root, train=60, dev=0)
        lines = [json.loads(line) for line in (root / "train.jsonl").open()]
        for line in lines:
            (root / "data" / line["speaker"]).mkdir(parents=True, exist_ok=True)
            place = root / "data" / line["speaker"] / line["audio_filepath"]
            shutil.copy(root / line["audio_filepath"], place)
            place.with_suffix(".txt").write_text(line["text"].upper() + "!\n")
        (root / "data" / "broken.wav").write_text("no sound")
        (root / "data" / "broken.txt").write_text("A")
        out, _ = run("prepare", "folder", root / "data", root / "mine", "--lowercase", "--strip-punctuation", "--dev", "0.2",
                     says=["divided by utterance", "4 characters: space a b c", "left out, missing or unreadable: 1 of 61",
                           "broken.wav: is not audio", f"train with rondo train {root}/mine/train.toml data={root}/mine"])
        check([line.split()[1] for line in out.splitlines()[1:4]] == ["45", "12", "3"], out)
        check((root / "mine" / "lengths.svg").read_text().startswith("<svg"), "no histogram")
        fails("prepare", "folder", root / "data", root / "mine", "--strict", lines=2, errs=["of 61 utterances", "broken.wav"])
        train(root / "mine", root / "run", "training.epochs=25", base=TONE, says="45 utterances")
        check(rate(run("eval", root / "run", root / "mine" / "dev.jsonl")[0]) < 30, "has not learnt")
        # A table of the same recordings.
        table = "".join(f"{line['speaker']}\t{line['audio_filepath']}\t{line['text']}\n" for line in lines)
        (root / "clips.tsv").write_text("who\tfile\tsaid\n" + table)
        run("prepare", "csv", root / "clips.tsv", root / "table", "--audio-column", "file", "--text-column", "said",
            "--speaker-column", "who", "--test", 0, says="not by speaker: 2 speakers cannot make parts of these shares")
        fails("prepare", "csv", root / "clips.tsv", root / "t2", "--audio-column", "wav", "--text-column", "said",
              errs="has no column 'wav', it has who, file, said")
        # The same in an archive, one recording after another.
        with tarfile.open(root / "data.tar", "w") as archive:
            for path in sorted((root / "data").rglob("*.*")):
                archive.add(path, path.relative_to(root / "data"))
        run("prepare", "tar", root / "shards", root / "data.tar", "--lowercase", "--strip-punctuation", "--dev", "0.2",
            says=["4 characters: space a b c", "left out, missing or unreadable: 1 of 61", "data.tar:broken.wav: "])
        train(root / "shards", root / "run2", "training.max_steps=4", base=TONE, says="45 utterances")
        out, _ = run("transcribe", root / "run", root / "shards" / "test.jsonl")
        names = [line.split("\t")[0] for line in out.splitlines()]
        check(len(names) == 3 and all((root / "data" / f"{name}.wav").exists() for name in names), names)
        apart, _ = run("transcribe", root / "run", *(root / "data" / f"{name}.wav" for name in names))
        check([a.split("\t")[1] for a in out.splitlines()] == [a.split("\t")[1] for a in apart.splitlines()], out, apart)
        (root / "data.tar").write_bytes((root / "data.tar").read_bytes()[:50000])
        fails("eval", root / "run2", root / "shards" / "test.jsonl", lines=4,
              errs=["data.tar, ", "the file ends before that"])
        (root / "map.txt").write_text("A=x\n\nB= \r\n")
        run("prepare", "folder", root / "data", root / "mapped", "--replace", root / "map.txt", says="4 characters: space ! C x")
        (root / "map.txt").write_text("A=x\nB\n")
        fails("prepare", "folder", root / "data", root / "mapped", "--replace", root / "map.txt", errs="map.txt:2: is 'B', expected FROM=TO")
        # Where something else is, it stays.
        fails("prepare", "folder", root / "data", root / "table", errs="holds a corpus of the kind 'csv'")


def test_what_can_be_transcribed():
    with folder() as root:
        tone_corpus(root, train=24, dev=6)
        train(root, root / "run", "training.epochs=2", base=TONE)
        model = root / "run" / "model.safetensors"
        lines = [json.loads(line) for line in (root / "dev.jsonl").open()]
        names = [line["audio_filepath"] for line in lines]
        alone = [run("transcribe", model, root / name)[0].rstrip("\n") for name in names]
        about = json.loads(run("info", "--model", model, "--json")[0])
        check(about["task"] == "ctc" and about["alphabet"] == [" ", "a", "b", "c"] and about["outputs"] == 5, about)
        check(about["features"]["rate"] == RATE and about["frame_seconds"] > 0, about)
        validated = log_of(root / "run", "validation")
        best = min(v["wer"] for v in validated)
        check(about["trained"]["dev"] == {"wer": best} and about["trained"]["rondo"].startswith(about["rondo"]), about["trained"])
        check(about["trained"]["updates"] in [v["step"] for v in validated if v["wer"] == best], about["trained"], validated)
        run("info", "--model", model, says=f"dev WER {100 * best:.2f}%")
        # A manifest with texts and without, and a folder at any depth: a line each, in order.
        by_manifest = run("transcribe", model, root / "dev.jsonl")[0].splitlines()
        check(by_manifest == [f"{name}\t{text}" for name, text in zip(names, alone)], by_manifest, alone)
        (root / "deep" / "er").mkdir(parents=True)
        for name in names:
            shutil.copy(root / name, root / "deep" / "er")
        (root / "deep" / "notes.txt").write_text("no recording")
        by_folder = run("transcribe", model, root / "deep")[0].splitlines()
        check(by_folder == [f"{root}/deep/er/{name}\t{text}" for name, text in zip(names, alone)], by_folder)
        # By a beam: the first of the best is the text, and its words have times.
        for line in run("transcribe", model, root / "dev.jsonl", "--beam", 30, "--nbest", 4, "--format", "jsonl")[0].splitlines():
            said = json.loads(line)
            best = said["alternatives"]
            check(len(best) == 4 and best[0]["text"] == said["text"] and
                  said["text"].split() == [w["text"] for w in said["words"]], said)
            scores = [b["log_probability"] for b in best]
            check(scores == sorted(scores, reverse=True) and scores[0] <= 0, scores)
            times = [w[key] for w in said["words"] for key in ("begin", "end")]
            check(times == sorted(times) and (not times or times[-1] <= said["duration"] + 0.1), times)
        # The search on a device says what the CPU's does.
        searches = [[json.loads(line) for line in run(
            "transcribe", model, root / "dev.jsonl", "--device", "sim", "--beam", 30, "--nbest", 4, "--confidence", "posterior",
            "--search-on", where, "--format", "jsonl")[0].splitlines()] for where in ("cpu", "device")]
        for cpu, device in zip(*searches, strict=True):
            check([a["text"] for a in cpu["alternatives"]] == [a["text"] for a in device["alternatives"]], cpu, device)
            check([w["begin"] for w in cpu["words"]] == [w["begin"] for w in device["words"]], cpu, device)
            for one, other in zip(cpu["alternatives"] + cpu["words"], device["alternatives"] + device["words"], strict=True):
                for key in one.keys() & {"score", "probability"}:
                    check(abs(one[key] - other[key]) < 1e-9, one, other)
        on_device = ["transcribe", model, root / names[0], "--search-on", "device"]
        run(*on_device, code=2, errs="--search-on device takes a search")
        run(*on_device, "--beam", 30, "--stream", code=2, errs="searches while it hears")
        fails(*on_device, "--device", "cpu", "--beam", 30, errs="the model's device, which is the CPU")
        fails(*on_device, "--device", "sim", "--beam", 300, errs="a beam of 300, and a device's search takes 128 at most")
        # With a language model: eval and transcribe say the same, and what one says is what tune says.
        run("lm", "train", root / "train.jsonl", "--order", 2, "--discount-fallback", "--out", root / "2gram.lm")
        best = run("tune", model, root / "dev.jsonl", "--lm", root / "2gram.lm")[0].splitlines()[-1]
        weights = best.split("best: ")[1].split("  (")[0].split()
        known = ["--lm", root / "2gram.lm", *weights]
        rates = run("eval", model, root / "dev.jsonl", *known, "--hypotheses", root / "known.jsonl")[0]
        check(best.split("(WER ")[1].split(" %")[0] == rates.split("WER ")[1].split("%")[0], best, rates)
        written = [json.loads(line)["hypothesis"] for line in (root / "known.jsonl").open()]
        heard = run("transcribe", model, root / "dev.jsonl", *known)[0].splitlines()
        check([line.split("\t")[1] for line in heard] == written, heard, written)
        by_beam = run("transcribe", model, root / "dev.jsonl", "--beam", 1)[0].splitlines()
        check([line.split("\t")[0] for line in by_beam] == names, by_beam)
        # Parts, which are known by where they begin; what the manifest says stays with them.
        whole = lines[0]["duration"]
        write_manifest(root / "parts.jsonl",
                       [{"audio_filepath": names[0], "offset": at, "duration": whole / 2, "who": "me", "text": "x", "label": "infer"}
                        for at in (0, whole / 2)])
        parts = [json.loads(line) for line in run("transcribe", model, root / "parts.jsonl", "--format", "jsonl")[0].splitlines()]
        check([p["offset"] if "offset" in p else 0 for p in parts] == [0, whole / 2], parts)
        check(all(p["who"] == "me" and p["reference"] == "x" and p["duration"] == whole / 2 for p in parts), parts)
        out = run("transcribe", model, root / "parts.jsonl", "--format", "npy", "--out", root / "logits")[0].splitlines()
        check(len(set(out)) == 2 and all(pathlib.Path(name).exists() for name in out), out)
        # Of several channels one can be chosen, on the line or in a manifest.
        mono = (root / names[0]).read_bytes()[44:]
        stereo = b"".join(mono[i:i + 2] + b"\0\0" for i in range(0, len(mono), 2))
        with wave.open(str(root / "two.wav"), "wb") as file:
            file.setparams((2, 2, RATE, 0, "NONE", ""))
            file.writeframes(stereo)
        check(run("transcribe", model, root / "two.wav", "--channel", 0)[0].rstrip("\n") == alone[0], "channel 0")
        write_manifest(root / "two.jsonl", [{"audio_filepath": "two.wav", "channel": c} for c in (0, 1)])
        both = run("transcribe", model, root / "two.jsonl")[0].splitlines()
        check(both == [f"two.wav:channel0\t{alone[0]}", "two.wav:channel1\t"], both)
        fails("transcribe", model, root / "two.wav", "--channel", 2, errs="two.wav: has no channel 2, it has 2")
        # What cannot be is said of each; the others are transcribed.
        out, err = run("transcribe", model, root / "notes.wav", root / names[0], root / "deep" / "notes.txt", code=1)
        check(out == f"{root}/{names[0]}\t{alone[0]}\n" and len(err.splitlines()) == 2, out, err)
        fails("transcribe", model, root / "run", errs="holds no recordings (.wav, .flac")
        (root / "x.npy").write_bytes(npy([[0.0] * 4] * 9))
        fails("transcribe", model, root / "x.npy", errs="holds ready features, ")
        fails("transcribe", model, root / "dev.jsonl", "--picture", root / "p.svg", errs="holds 6 inputs, --picture takes one")


def test_ready_features_npy_and_safetensors():
    with folder() as root:
        feature_corpus(root, "ctc")
        out, _ = train(root, root / "run", "training.epochs=12")
        check(rate(run("eval", root / "run", root / "dev.jsonl")[0]) < 20, out)
        # The same numbers from .safetensors give the same weights.
        for part in ("train", "dev"):
            lines = [json.loads(line) for line in (root / f"{part}.jsonl").open()]
            for line in lines:
                (frames, dim), v = read_npy(root / line["features_filepath"])
                rows = [v[f * dim:(f + 1) * dim] for f in range(frames)]
                key = line["features_filepath"]
                line["features_filepath"] = key.replace(".npy", ".safetensors")
                (root / line["features_filepath"]).write_bytes(safetensors({"features": rows}))
            write_manifest(root / f"{part}.jsonl", lines)
        first = json.loads((root / "dev.jsonl").read_text().splitlines()[0])["features_filepath"]
        said = [run("predict", root / "run", *words, **more)[0] for words, more in
                (([root / first], {}), (["-"], {"stdin": (root / first).read_bytes()}),
                 ([root / first.replace(".safetensors", ".npy")], {}))]
        check(said[0] == said[1] == said[2] != "\n", said)
        out, _ = train(root, root / "st", "training.epochs=12")
        check(rate(run("eval", root / "st", root / "dev.jsonl")[0]) < 20, out)


def test_classes_and_numbers():
    with folder() as root:
        feature_corpus(root, "classify")
        train(root, root / "run", "task=classify", "training.epochs=6", says="dev error ")
        out, _ = run("eval", root / "run", root / "dev.jsonl", "--hypotheses", root / "h.jsonl")
        check(float(out.split("error ")[1].split("%")[0]) < 10, out)
        given = [json.loads(line)["label"] for line in (root / "dev.jsonl").open()]
        said = [json.loads(line)["class"] for line in (root / "h.jsonl").open()]
        check(sum(g != s for g, s in zip(given, said)) <= 1, given, said)
        check(json.loads(run("eval", root / "run", root / "dev.jsonl", "--json")[0])["error"] < 0.1)
        fails("transcribe", root / "run", root / "dev000.npy", errs="writes no text; 'rondo predict'")
        # Files, a manifest, a folder and standard input are the same inputs.
        lines = run("predict", root / "run", root / "dev.jsonl")[0].splitlines()
        check([int(line.split("\t")[1]) for line in lines] == said, lines, said)
        files = run("predict", root / "run", *(root / line.split("\t")[0] for line in lines))[0].splitlines()
        check([line.split("\t")[1:] for line in files] == [line.split("\t")[1:] for line in lines], files)
        check(set(files) <= set(run("predict", root / "run", root)[0].splitlines()), "others in the folder")
        first = (root / lines[0].split("\t")[0]).read_bytes()
        check(run("predict", root / "run", "-", stdin=first)[0].split() == lines[0].split()[1:], "from standard input")
        rich = [json.loads(line) for line in run("predict", root / "run", root / "dev.jsonl", "--format", "jsonl")[0].splitlines()]
        for line, label in zip(rich, given):
            check(line["label"] == label and abs(sum(line["probabilities"]) - 1) < 1e-9, line)
            check(line["probability"] == max(line["probabilities"]) == line["probabilities"][line["class"]], line)
    with folder() as root:
        feature_corpus(root, "regress")
        train(root, root / "run", "task=regress", "training.epochs=12", says="dev loss ")
        run("eval", root / "run", root / "dev.jsonl", "--hypotheses", root / "h.jsonl", says="loss ")
        given = [json.loads(line)["target"] for line in (root / "dev.jsonl").open()]
        said = [json.loads(line)["values"] for line in (root / "h.jsonl").open()]
        rich = run("predict", root / "run", root / "dev.jsonl", "--format", "jsonl")[0].splitlines()
        check([json.loads(line)["values"] for line in rich] == said, "other values than eval's")
        plain = run("predict", root / "run", root / "dev.jsonl")[0].splitlines()[0].split("\t")[1].split()
        check(max(abs(float(a) - b) for a, b in zip(plain, said[0])) < 1e-4, plain, said[0])
        error = max(abs(a - b) for g, s in zip(given, said) for a, b in zip(g, s))
        check(error < 0.4, "the greatest error is", error)


def test_accumulation_is_a_larger_batch():
    # Two batches of half the size per update. Which utterances share a batch differs, so only
    # progress is compared, and the number of updates.
    with folder() as root:
        feature_corpus(root, "ctc")
        train(root, root / "run", "training.accumulation=3", "training.epochs=25", "training.log_every_steps=1",
              "data.batch_frames=60")
        batches = len(loss_curve(root / "run"))
        train(root, root / "one", "training.epochs=25", "training.log_every_steps=1",
              "data.batch_frames=60")
        ratio = len(loss_curve(root / "one")) / batches
        check(2.4 < ratio <= 3, "updates of one batch against three:", ratio)
        check(rate(run("eval", root / "run", root / "dev.jsonl")[0]) < 20, "not learnt")


def test_moving_average_of_weights():
    with folder() as root:
        feature_corpus(root, "ctc")
        train(root, root / "run", "training.ema=0.9", "training.epochs=15")
        check(rate(run("eval", root / "run", root / "dev.jsonl")[0]) < 20, "not learnt")
        newest = weights_of(root / "run")
        check(len(newest["optimizer"]) > 2.9 * len(newest["newest"]) - 10000, "no average is saved")


def test_moving_average_without_validation():
    with folder() as root:
        feature_corpus(root, "ctc", train=8, dev=2)
        train(root, root / "run", "training.ema=0.9", "training.epochs=3", "data.dev=",
              "data.test=")
        weights = weights_of(root / "run")
        check(weights["best"][-200:] != weights["newest"][-200:], "the model is not the average")


def test_average_of_the_best():
    with folder() as root:
        feature_corpus(root, "ctc")
        out, _ = train(root, root / "run", "training.average_best=3", "training.epochs=15",
                       says="average of the best 3 checkpoints: WER ")
        check(rate(run("eval", root / "run", root / "dev.jsonl")[0]) < 20, out)
        check(len(list((root / "run").glob("checkpoint-*"))) >= 3, "too few are kept")


def test_moving_averages_are_averaged():
    with folder() as root:
        feature_corpus(root, "ctc")
        # An average that forgets at once is the weights themselves, one that never moves is not.
        for name, ema in (("fast", "0.000001"), ("slow", "0.999999")):
            train(root, root / name, "training.average_best=3", "training.epochs=15",
                  f"training.ema={ema}", says="average of the best 3 checkpoints: WER ")
        fast, slow = (rate(run("eval", root / name, root / "dev.jsonl")[0])
                      for name in ("fast", "slow"))
        check(fast < 20 < slow, "averages of the wrong weights:", fast, slow)


def test_label_sequences_without_text():
    with folder() as root:
        feature_corpus(root, "labels")
        train(root, root / "run", "training.epochs=15", "training.samples=1",
              says=["reference  ", "dev WER "])
        check(rate(run("eval", root / "run", root / "dev.jsonl",
                       "--hypotheses", root / "hypotheses.jsonl")[0]) < 20, "not learnt")
        first = json.loads((root / "hypotheses.jsonl").read_text().splitlines()[0])
        check(set(first["reference"]) <= set("123 ") and " " in first["reference"], first)


def test_early_stopping():
    with folder() as root:
        feature_corpus(root, "classify")
        train(root, root / "run", "task=classify", "training.patience=3", "training.epochs=200",
              "optimizer.lr=1e-9", "optimizer.weight_decay=0")
        best = [entry["best"] for entry in log_of(root / "run", "validation")]
        check(len(best) < 200 and best[-3:] == [False] * 3, "no early stop:", best)


def test_stops_after_steps_and_seconds():
    with folder() as root:
        feature_corpus(root, "ctc")
        # The end is validated, though no epoch has ended.
        train(root, root / "run", "training.max_steps=7",
              says=["trained 7 steps", "step 7 ", "dev WER "])
        check((root / "run/model.safetensors").exists(), "no model")
        train(root, root / "b", "training.max_seconds=0.3", "training.epochs=100000")


def test_weights_of_another_run():
    with folder() as root:
        feature_corpus(root, "ctc")
        train(root, root / "a", "training.epochs=12")
        train(root, root / "b", "training.max_steps=1", "training.log_every_steps=1",
              "--init-from", root / "a", says="weights from ")
        train(root, root / "c", "training.max_steps=1", "training.log_every_steps=1")
        warm, cold = loss_curve(root / "b")[0], loss_curve(root / "c")[0]
        check(warm < 0.2 * cold, "first loss", warm, "after --init-from,", cold, "without")


def test_noise_out_of_recordings():
    with folder() as root:
        tone_corpus(root, train=12, dev=3)
        rng = random.Random(5)
        for name, seconds in [("hum", 0.05), ("hiss", 3)]:
            write_wav(root / f"{name}.wav", array.array(
                "h", [rng.randrange(-8000, 8001) for _ in range(int(RATE * seconds))]))
        write_manifest(root / "noise.jsonl", [{"audio_filepath": "hum.wav"},
                                              {"audio_filepath": "hiss.wav", "offset": 0.5}])
        losses = set()
        for number, settings in enumerate([[], ["augment.noise=1"], [
                "augment.noise=1", f"augment.noise_recordings={root}/noise.jsonl"]]):
            train(root, root / f"run{number}", "training.max_steps=1", "training.log_every_steps=1",
                  "data.sorta_grad=false", "augment.noise_snr_low=0", "augment.noise_snr_high=0",
                  *settings, base=TONE)
            losses.add(loss_curve(root / f"run{number}")[0])
        check(len(losses) == 3, "clean, white noise and recordings give the same:", losses)
        (root / "hiss.wav").write_bytes(b"")
        fails("train", *TONE, f"data={root}", f"training.checkpoint_dir={root}/b", "augment.noise=1",
              f"augment.noise_recordings={root}/noise.jsonl", errs=["noise.jsonl:2: ", "is empty"])


def test_bf16():
    with folder() as root:
        feature_corpus(root, "ctc")
        if "AVX-512 with bf16" not in run("info")[0]:
            raise Skip("this CPU has no bf16 instructions")
        train(root, root / "run", "training.dtype=bf16", "training.epochs=15", says="bf16")
        check(rate(run("eval", root / "run", root / "dev.jsonl")[0]) < 20, "not learnt")


def test_lockstep_with_the_reference():
    with folder() as root:
        feature_corpus(root, "ctc", train=8, dev=2)
        train(root, root / "run", "--lockstep-ref", "training.max_steps=2", "model.hidden=6",
              says="trained 2 steps")
        train(root, root / "b", "training.max_steps=2", "model.hidden=6")
        check(weights_of(root / "run")["newest"][-200:] == weights_of(root / "b")["newest"][-200:],
              "the reference beside it has changed the result")


def test_simulated_gpu():
    with folder() as root:
        feature_corpus(root, "ctc", train=6, dev=2)
        settings = ["training.max_steps=3", "model.hidden=6", "training.log_every_steps=1",
                    "data.batch_frames=60", "data.dev=", "data.test="]
        process = start("train", *READY, f"data={root}", f"training.checkpoint_dir={root}/sim",
                        *settings, "--device", "sim")
        err = output_of(process, TIMEOUT)[1]
        check(process.returncode == 0, err)
        train(root, root / "cpu", *settings)
        for sim, cpu in zip(loss_curve(root / "sim"), loss_curve(root / "cpu"), strict=True):
            # f32 sums in another order, through three updates.
            check(abs(sim - cpu) <= 1e-4 * abs(cpu), "loss", sim, "on sim,", cpu, "on cpu")


def test_a_terminal_and_a_pipe():
    with folder() as root:
        feature_corpus(root, "ctc")
        out, _ = train(root, root / "run", "training.epochs=2")
        check("\x1b" not in out and "\r" not in out, "control codes in a pipe:", repr(out))
        import pty
        try:
            main_end, end = pty.openpty()
        except OSError as error:
            raise Skip(f"no terminal: {error}")
        process = start("train", *READY, f"data={root}", f"training.checkpoint_dir={root}/t",
                        "training.epochs=2", stdout=end, stderr=end,
                        env={**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8"})
        os.close(end)
        shown = b""
        with contextlib.suppress(OSError):  # EIO: the other end is closed
            while piece := os.read(main_end, 65536):
                shown += piece
        check(process.wait(TIMEOUT) == 0, shown)
        check(b"\r" in shown and "█".encode() in shown, "no progress bar:", shown)


main(globals())
