"""Bad data and damaged models: one clear sentence, exit 1, and nothing is lost."""

from cli_support import *

_model = []


def tone_model():
    """A model of tones, trained once for all tests (it need not be good)."""
    if not _model:
        root = pathlib.Path(tempfile.mkdtemp(prefix="rondo-cli-"))
        tone_corpus(root, train=6, dev=3)
        train(root, root / "run", "training.epochs=1", base=TONE)
        _model.append(root)
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


def test_no_place_for_checkpoints():
    root = tone_model()
    fails("train", *READY, f"data={root}", "training.checkpoint_dir=",
          errs="training.checkpoint_dir is empty: name the directory")


def test_a_skipped_update_names_its_utterances():
    with folder() as root:
        feature_corpus(root, "ctc")
        diverging = ["train", *READY, f"data={root}", "training.epochs=1", "optimizer.lr=1e30",
                     "training.clip=0"]
        out, _ = fails(*diverging, f"training.checkpoint_dir={root}/run",
                       "training.non_finite_limit=3", errs="3 steps in a row")
        skipped = [line for line in out.splitlines() if "the gradient is not finite; skipped" in line]
        check(skipped and all("its utterances: " + str(root / "train.jsonl:") in line
                              for line in skipped), out)
        fails(*diverging, f"training.checkpoint_dir={root}/validated",
              errs=["the model's output is not a number", "optimizer.lr"])


def test_recordings_that_are_none():
    root = tone_model()
    good = root / "dev000.wav"
    (root / "empty.wav").write_bytes(b"")
    (root / "text.wav").write_text("this is no sound " * 100)
    (root / "short.wav").write_bytes(good.read_bytes()[:500])
    (root / "shorter.wav").write_bytes(good.read_bytes()[:20])
    (root / "random.flac").write_bytes(random.Random(3).randbytes(3000))
    for name, text in [("missing.wav", "No such file"), ("empty.wav", "is empty"),
                       ("text.wav", "is not audio"), ("short.wav", "is truncated"),
                       ("shorter.wav", "is truncated"), ("random.flac", "is not audio")]:
        fails("transcribe", root / "run", root / name, errs=text)
    # The good ones are transcribed all the same.
    run("transcribe", root / "run", root / "empty.wav", good, code=1, says="dev000.wav\t",
        errs="empty.wav: is empty")
    fails("transcribe", root / "run", "-", errs="standard input: is empty")


def test_recordings_shorter_than_a_frame():
    root = tone_model()
    write_wav(root / "click.wav", array.array("h", [100] * 50))
    check(run("transcribe", root / "run", root / "click.wav")[0] == "\n", "not empty")
    run("transcribe", root / "run", root / "click.wav", "--format", "npy", "--out", root / "o")
    check(read_npy(root / "o/click.npy")[0][0] == 0, "frames out of nothing")
    run("transcribe", root / "run", root / "click.wav", "--picture", root / "p.svg", code=1,
        errs="click.wav: is shorter than a frame")


def test_training_recordings_that_are_none():
    with folder() as root:
        tone_corpus(root, train=4, dev=2)
        whole = (root / "train002.wav").read_bytes()
        (root / "train002.wav").write_bytes(whole[:1000])
        fails_to_train(root, base=TONE, lines=2,
                       errs=["1 of 4 utterances", "train.jsonl:3: ", "train002.wav: is truncated"])
        (root / "train002.wav").unlink()
        fails_to_train(root, base=TONE, lines=2, errs=["train002.wav: cannot be opened"])
        # A few may be left out; not so many that something else must be wrong.
        skip = ["data.unreadable=skip", "training.epochs=1"]
        fails_to_train(root, *skip, base=TONE, lines=3,
                       errs=["1 of 4 utterances cannot be used: 1 unreadable", "than data.unreadable_limit, 0.01, allows"])
        train(root, root / "run", *skip, "data.unreadable_limit=0.25", base=TONE,
              says=["left out", "train002.wav: cannot be opened", "data: 3 utterances"])
        (root / "train001.wav").unlink()
        fails_to_train(root, *skip, "data.unreadable_limit=0.25", f"training.checkpoint_dir={root}/b", base=TONE, lines=4,
                       errs="2 of 4 utterances cannot be used: 2 unreadable")


def test_recordings_that_end_before_their_manifest_says():
    with folder() as root:
        tone_corpus(root, train=4, dev=2)
        for part, at in (("train", 3), ("dev", 2)):
            whole = (root / f"{part}.jsonl").read_text()
            lines = [json.loads(line) for line in whole.splitlines()]
            lines[at - 1]["duration"] = 99
            write_manifest(root / f"{part}.jsonl", lines)
            fails_to_train(root, base=TONE, lines=2,
                           errs=[f"{part}.jsonl:{at}: ", ".wav: ends after ", '"duration" 99'])
            fails("eval", tone_model() / "run", root / f"{part}.jsonl", lines=2, errs='"duration" 99')
            (root / f"{part}.jsonl").write_text(whole)


def test_nothing_to_learn():
    with folder() as root:
        features(root)
        for empty in ({"text": ""}, {"labels": []}):
            write_manifest(root / "train.jsonl", [{"features_filepath": f"train00{i}.npy", **empty}
                                                  for i in range(6)])
            fails_to_train(root, errs=["train.jsonl: the ", "are empty: there is no"])


def test_settings_that_ready_features_do_not_have():
    with folder() as root:
        features(root)
        for setting, text in [("augment.speed=[0.9, 1.1]", "augment.speed is [0.9, 1.1], but"),
                              ("augment.noise=0.5", "augment.noise is 0.5, but"),
                              ("features.bins=80", "features.bins is 80, but"),
                              ("features.dither=1", "features.dither is 1")]:
            fails_to_train(root, setting, errs=[text, 'features.type is "ready"'])
            check(not (root / "run").exists(), "left behind")
        # The time between frames is theirs too.
        train(root, root / "run", "features.hop_ms=20", "augment.spec_augment=true", "training.max_steps=1")


def test_names_that_are_not_utf8():
    with folder() as root:
        features(root)
        strange = os.fsdecode(os.fsencode(root) + b"/caf\xe9")
        for key in ("data.train", "training.checkpoint_dir"):
            fails("train", *READY, f"data={root}", f"{key}={strange}", errs=["override '", "is not UTF-8", "renamed"])
        # What is only read may be called so.
        train(root, root / "run", "training.max_steps=1")
        os.rename(root / "dev.jsonl", strange)
        run("eval", root / "run", strange, says="WER")
        # JSON cannot hold the name of an input; a line of text can.
        shutil.copy(next(root.rglob("*.npy")), strange + ".npy")
        inputs = [next(root.rglob("dev*.npy")), strange + ".npy"]
        out, _ = fails("transcribe", root / "run", *inputs, "--format", "jsonl",
                       errs=["a name that is not UTF-8", "rename the file"])
        check(out == "", "written before the names were looked at:", out)
        check("caf\ufffd.npy\t" in run("transcribe", root / "run", *inputs)[0], "another name")  # as run() reads it


def test_noise_for_no_utterance():
    root = tone_model()
    fails_to_train(root, "augment.noise_recordings=dev.jsonl", base=TONE,
                   errs=["augment.noise_recordings is 'dev.jsonl', but augment.noise is 0"])


def test_recordings_to_validate_and_test_with():
    with folder() as root:
        tone_corpus(root, train=4, dev=2)
        write_wav(root / "click.wav", array.array("h", [100] * 50))
        for part in ("dev", "test"):
            for name, text in [("none.wav", "cannot be opened"), ("click.wav", "than a single frame")]:
                whole = (root / f"{part}.jsonl").read_text()
                append(root / f"{part}.jsonl", {"audio_filepath": name, "text": "a"})
                fails_to_train(root, base=TONE, lines=2, errs=[f"{part}.jsonl:3: ", name, text])
                (root / f"{part}.jsonl").write_text(whole)
        (root / "test.jsonl").unlink()
        fails_to_train(root, base=TONE, errs=["test.jsonl: cannot be opened"])


def test_feature_files_that_are_none():
    with folder() as root:
        features(root)
        file = root / "train004.npy"
        whole = file.read_bytes()
        for content, text in [(b"", "is empty"), (whole[:40], "is truncated"),
                              (whole[:-5], "train004.npy"), (b"x" * 200, "train004.npy")]:
            file.write_bytes(content)
            fails_to_train(root, errs=["1 of 6 utterances", "train.jsonl:5: ", text], lines=2)
        file.write_bytes(npy([[1.0] * 5] * 20))
        fails_to_train(root, errs=["train.jsonl:5: ", "5"], lines=2)


def test_malformed_manifests():
    for line, text in [('{"features_filepath": "train000.npy", "text": "a\n', "not valid JSON"),
                       ('{"text": "a"}\n', 'has no "audio_filepath"'),
                       ('[1, 2]\n', "train.jsonl:7: "),
                       ('{"features_filepath": "train000.npy", "text": 5}\n', '"text" is 5, expected')]:
        with folder() as root:
            append(features(root) / "train.jsonl", line)
            _, err = run("train", *READY, f"data={root}", f"training.checkpoint_dir={root}/run", code=1,
                         errs=["train.jsonl:7: ", text])
            check(len(err.splitlines()) <= 2, err)
    with folder() as root:
        features(root)
        (root / "train.jsonl").write_text("\n \n")
        fails_to_train(root, errs="train.jsonl: holds blank lines only, expected one utterance")
        (root / "train.jsonl").write_text("")
        fails_to_train(root, errs="train.jsonl: is empty, expected one utterance per line")


def test_text_outside_the_alphabet():
    with folder() as root:
        append(features(root) / "train.jsonl", {"features_filepath": "train000.npy", "text": "aXé"})
        fails_to_train(root, "data.alphabet=abc", lines=2,
                       errs=["1 of 7 utterances", "train.jsonl:7: ", "'X' (U+0058)", "'é' (U+00E9)"])
        train(root, root / "run", "data.alphabet=abc", "data.text_outside_alphabet=skip",
              "training.epochs=1", says=["left out", "'X' (U+0058)", "data: 6 utterances"])
        check([e["where"] for e in log_of(root / "run", "left_out")] == [f"{root}/train.jsonl:7"],
              log_of(root / "run", "left_out"))
        shutil.rmtree(root / "run")
        write_manifest(root / "train.jsonl", [{"features_filepath": "train000.npy", "text": "X"}])
        fails_to_train(root, "data.alphabet=abc", "data.text_outside_alphabet=skip", lines=2,
                       errs=["1 of 1 utterances", "; leaving them out leaves none"])
        fails_to_train(root, "data.alphabet=abca", errs="data.alphabet: symbol 'a' (U+0061) occurs twice")


def test_references_that_the_model_cannot_write():
    with folder() as root:
        feature_corpus(root, "ctc", train=12, dev=4)
        append(root / "dev.jsonl", {"features_filepath": "dev000.npy", "text": "aę cę"})
        append(root / "test.jsonl", {"features_filepath": "dev000.npy", "text": "X"})
        cannot = "1 of 5 utterances holds 3 characters this model cannot write: 'ę' (U+0119) 2 times, ' ' (U+0020)"
        train(root, root / "run", "training.epochs=1", f"data.test={root}/test.jsonl",
              says=[f"warning: {root}/dev.jsonl: {cannot}", f"warning: {root}/test.jsonl: 1 of 5 utterances holds 1 "])
        told = [(e["where"], e["characters"], e["words"]) for e in log_of(root / "run", "unwritable")]
        check(told == [(f"{root}/dev.jsonl", 3, 2), (f"{root}/test.jsonl", 1, 1)], told)
        out, _ = run("eval", root / "run", root / "dev.jsonl", says=cannot)
        letters = sum(len(json.loads(line)["text"]) for line in (root / "dev.jsonl").read_text().splitlines())
        check(f"at least WER {100 * 2 / 6:.2f}% CER {100 * 3 / letters:.2f}% come of these alone" in out, out)
        said = json.loads(run("eval", root / "run", root / "dev.jsonl", "--json")[0])
        check(said["unwritable"]["cer"] == 3 / letters and said["all"]["cer"] >= 3 / letters, said)
        out, _ = run("eval", root / "run", root / "train.jsonl")
        check("cannot write" not in out, out)


def test_many_bad_utterances_are_all_named():
    with folder() as root:
        append(features(root) / "train.jsonl", "".join(
            json.dumps({"features_filepath": f"none{i:02}.npy", "text": "a"}) + "\n"
            for i in range(40)))
        fails_to_train(root, lines=41, errs=["40 of 46 utterances cannot be used: 40 unreadable",
                                             "none00.npy", "none39.npy"])


def test_text_too_long_for_its_frames():
    with folder() as root:
        append(features(root) / "train.jsonl",
               {"features_filepath": "train000.npy", "text": "abc" * 60})
        append(root / "train.jsonl", {"features_filepath": "train001.npy", "text": "aa" * 60})
        fails_to_train(root, lines=3, errs=["2 of 8 utterances", "train.jsonl:7: ", "train000.npy",
                                            "need 180 frames", "train.jsonl:8: ", "need 239 frames"])
        # Other problems are not skipped along with it.
        (root / "train003.npy").unlink()
        fails_to_train(root, "data.text_too_long=skip", lines=4, errs=["train003.npy: cannot be"])
        features(root)
        append(root / "train.jsonl", {"features_filepath": "train000.npy", "text": "abc" * 60})
        train(root, root / "run", "data.text_too_long=skip", "training.epochs=1",
              says=["left out", "1 of 7 utterances", "data: 6 utterances"])


def test_long_utterances_are_left_out():
    with folder() as root:
        features(root)
        (root / "train005.npy").write_bytes(npy([[0.5] * 6] * 300))
        train(root, root / "run", "data.max_frames=200", "training.epochs=1",
              says=["left out", "300 frames", "data: 5 utterances"])


def test_utterances_longer_than_a_batch():
    with folder() as root:
        features(root)
        (root / "train003.npy").write_bytes(npy([[1.0] * 6] * 130))
        fails_to_train(root, errs=["train.jsonl:4: ", "train003.npy has 130 frames, more than "
                                   "data.batch_frames = 100"])


def test_data_that_do_not_fit_the_task_or_each_other():
    with folder() as root, folder() as other:
        features(root)
        fails_to_train(root, "task=classify", errs='has no "label"', lines=7)
        (other / "dev.npy").write_bytes(npy([[1.0] * 5] * 20))
        (other / "dev.jsonl").write_text('{"features_filepath": "dev.npy", "text": "a"}\n')
        fails_to_train(root, f"data.dev={other}/dev.jsonl", errs=["dev.jsonl", "5 columns", "6"])
        train(root, root / "run", "training.epochs=1")
        fails("eval", root / "run", other / "dev.jsonl", errs=["dev.jsonl", "5 columns", "6"])
        feature_corpus(other, "classify", train=6, dev=3)
        append(other / "dev.jsonl", {"features_filepath": "dev000.npy", "label": 9})
        fails_to_train(other, "task=classify", errs=["dev.jsonl", "class 9"])
        feature_corpus(other, "regress", train=6, dev=3)
        (other / "dev.jsonl").write_text('{"features_filepath": "dev000.npy", "target": [1]}\n')
        fails_to_train(other, "task=regress", errs=["dev.jsonl", "targets have 1", "2"])


def test_recordings_and_ready_features_are_told_apart():
    with folder() as root, folder() as tones:
        features(root)
        tone_corpus(tones, train=2, dev=2)
        fails_to_train(root, "features.type=log_mel",
                       errs=["train.jsonl:1: ", 'features.type is not "ready"'])
        fails_to_train(tones, errs=["train.jsonl:1: ", 'features.type is "ready"'])
        fails("eval", tone_model() / "run", root / "dev.jsonl", errs="dev.jsonl:1: ")


def test_what_waits_for_validations():
    with folder() as root:
        features(root)
        for setting in ["training.patience=2", "training.average_best=2", "schedule.type=plateau"]:
            fails_to_train(root, "data.dev=", setting,
                           errs=[setting.split("=")[0], "needs validations, and data.dev is empty"])


def test_data_that_turn_out_to_be_bad():
    # Not a number: seen when the file is read, not when the manifest is checked.
    with folder() as root:
        features(root)
        file = root / "train003.npy"
        # The longest comes last; three batches.
        file.write_bytes(npy([[1.0] * 5 + [float("nan")]] * 60))
        fails("train", *READY, f"data={root}", f"training.checkpoint_dir={root}/run",
              "training.epochs=2", "data.batch_frames=60",
              errs=["train.jsonl:4: ", "train003.npy: frame 0 column 5 is not a finite"])
        file.write_bytes(npy([[1.0] * 6] * 60))
        train(root, root / "run", "training.epochs=2", "data.batch_frames=60", "--resume",
              says="continuing after step")


def test_more_memory_than_there_is():
    with folder() as root:
        features(root)
        fails_to_train(root, "model.hidden=65536", "model.layers=100",
                       errs=["out of memory on the host: ", "weights"])


def test_labels_that_are_no_labels():
    with folder() as root:
        append(features(root) / "train.jsonl",
               {"features_filepath": "train000.npy", "labels": [1, 20261121]})
        fails_to_train(root, errs=["train.jsonl:7: ", '"labels" is 20261121, expected'], lines=2)


def test_labels_that_the_model_does_not_have():
    with folder() as root:
        append(features(root) / "train.jsonl",
               {"features_filepath": "train000.npy", "labels": [1, 99]})
        fails_to_train(root, errs=["train.jsonl:7: ", "99"], lines=2)


def test_models_that_are_none():
    root = tone_model()
    good = root / "dev000.wav"
    fails("transcribe", root / "nowhere", good, errs="no such model file or checkpoint directory")
    with folder() as empty:
        fails("transcribe", empty, good, errs="holds no model and no checkpoint")
    fails("transcribe", good, good, errs="is a recording, expected a model")
    fails("info", "--model", good, errs="is a recording, expected a model")
    (root / "notes").write_text("this is no model " * 100)
    fails("info", "--model", root / "notes", errs="not a safetensors file")
    (root / "other.safetensors").write_bytes(safetensors({"x": [[1.0, 2.0]]}))
    fails("info", "--model", root / "other.safetensors", errs="is not a rondo model")


def test_damaged_models():
    root = tone_model()
    good, model = root / "dev000.wav", (root / "run/model.safetensors").read_bytes()
    damaged = root / "damaged.safetensors"
    rng = random.Random(5)
    places = [len(model) - 1, len(model) // 2, *(rng.randrange(len(model)) for _ in range(20))]
    for number, place in enumerate(places):
        flipped = bytearray(model)
        flipped[place] ^= 1 << rng.randrange(8)
        damaged.write_bytes(flipped)
        # The last byte is one of a weight: only the checksum can tell.
        fails("transcribe", damaged, good, errs=["damaged.safetensors", "CRC-32C of its content is"]
              if number == 0 else "damaged.safetensors")
        # Nothing is said of the machine, either.
        check(number or fails("info", "--model", damaged, errs="damaged")[0] == "", "more than the error")
    for length in [0, 5, 100, len(model) // 2, len(model) - 1]:
        damaged.write_bytes(model[:length])
        fails("transcribe", damaged, good, errs="damaged.safetensors")


def test_a_damaged_checkpoint_is_passed_over():
    for harm in ["flip", "truncate", "manifest"]:
        with folder() as root:
            features(root)
            train(root, root / "run", "training.epochs=2")
            newest = sorted((root / "run").glob("checkpoint-*"))[-1]
            file = newest / ("manifest.json" if harm == "manifest" else "model.safetensors")
            data = bytearray(file.read_bytes())
            if harm == "truncate":
                del data[-7:]
            else:
                data[len(data) // 2] ^= 16
            file.write_bytes(data)
            train(root, root / "run", "training.epochs=3", "--resume",
                  says=[newest.name, "continuing after step"])
            for checkpoint in (root / "run").glob("checkpoint-*"):
                (checkpoint / "model.safetensors").write_bytes(b"")
            fails("train", *READY, f"data={root}", f"training.checkpoint_dir={root}/run",
                  "training.epochs=4", "--resume", errs="checkpoint-")


def test_weights_of_another_model():
    with folder() as root:
        features(root)
        train(root, root / "run", "training.epochs=1")
        for setting, text in [("model.hidden=12", "model.hidden: 24 -> 12"), ("model.layers=2", "model.layers: 1 -> 2"),
                              ("model.subsample=2", "model.subsample: 1 -> 2"), ("features.cmvn=global", "features.cmvn: "),
                              ("task=classify", "task: ")]:
            fails("train", *READY, f"data={root}", f"training.checkpoint_dir={root}/b", setting,
                  "training.epochs=1", "--init-from", root / "run",
                  errs=["model.safetensors was trained with other settings: ", text, "leave them out to take the model's"])
        fails("train", *READY, f"data={root}", f"training.checkpoint_dir={root}/run",
              "model.hidden=12", "training.epochs=2", "--resume",
              errs=["checkpoint-", "model.safetensors"])


def metadata(model):
    whole = model.read_bytes()
    return json.loads(whole[8:8 + int.from_bytes(whole[:8], "little")])["__metadata__"]


def test_a_model_to_begin_with_brings_its_settings():
    with folder() as root:
        features(root)
        train(root, root / "run", "training.epochs=1", "features.cmvn=global", "model.hidden=7", "data.alphabet=abcd")
        write_manifest(root / "train.jsonl", [{"features_filepath": f"train00{i}.npy", "text": "a"} for i in range(2)])
        more = ["training.threads=1", "data.batch_frames=100", f"data.train={root}/train.jsonl", "training.epochs=1"]
        run("train", *more, "--init-from", root / "run", f"training.checkpoint_dir={root}/b", "model.dropout=0.3",
            says="weights from ")
        stored = [metadata(root / name / "model.safetensors") for name in ("run", "b")]
        for key in ("alphabet", "mean", "inverse_std"):
            check(stored[0][key] == stored[1][key] != "[]", key, stored)
        # What the run has is what it goes on with, though nothing of it is said again.
        run("train", *more, f"training.checkpoint_dir={root}/b", "training.epochs=2", "--resume", says="trained 2 steps",
            not_says="differs from the run so far: model")
        append(root / "train.jsonl", {"features_filepath": "train000.npy", "text": "x"})
        fails("train", *more, "--init-from", root / "run", f"training.checkpoint_dir={root}/c", lines=2,
              errs="outside the alphabet: 'x' (U+0078)")


def test_weights_for_a_run_that_has_some():
    with folder() as root:
        features(root)
        train(root, root / "a", "training.max_steps=1")
        train(root, root / "run", "training.max_steps=1", f"training.init_from={root}/a")
        # The command that began the run continues it; other weights would not be taken.
        train(root, root / "run", "training.max_steps=2", f"training.init_from={root}/a", "--resume",
              says="trained 2 steps")
        fails_to_train(root, "training.max_steps=3", f"training.init_from={root}/run", "--resume",
                       errs=[f"training.init_from is '{root}/run'", f"began with '{root}/a'"])


def test_a_run_to_continue():
    with folder() as root:
        features(root)
        fails_to_train(root, "--resume", errs=["run: holds no checkpoint to continue from", "--resume-or-start"])
        check(not (root / "run").exists(), "made a directory for a run that is not there")
        fails("train", "--resume", root / "nowhere", errs="nowhere: cannot be opened")
        fails("train", "--resume", root, errs="holds no training run to continue")
        train(root, root / "run", "training.max_steps=1", "--resume-or-start", says="starting anew")
        # A run has its settings with it, whatever it was called when they were written.
        (root / "run").rename(root / "moved")
        run("train", "--resume", root / "moved", "training.max_steps=3", says=["continuing after step 1", "trained 3 steps"])
        check(not (root / "run").exists(), "went on in the directory of before")
        run("train", "--resume-or-start", root / "moved", says="trained 3 steps")
        # It begins with another model only once.
        both = ["train", *READY, f"data={root}", "training.max_steps=2", "--init-from", root / "moved",
                "--resume-or-start", f"training.checkpoint_dir={root}/tuned"]
        run(*both, says="weights from ")
        run(*both, "training.max_steps=4", says=["continuing after step 2", "trained 4 steps"], not_says="weights from ")


def test_weights_for_other_characters():
    with folder() as root:
        features(root)
        train(root, root / "run", "training.epochs=1", "data.alphabet=abc")
        # As many, in another order.
        fails("train", *READY, f"data={root}", f"training.checkpoint_dir={root}/b",
              "training.epochs=1", "data.alphabet=cab", "--init-from", root / "run",
              errs=["model.safetensors writes 'abc' (3 characters), this run 'cab' (3 characters)"])


def rows_of(model):
    """The output layer of a model: the bytes of a row of weights and of a bias, by symbol ("": the blank)."""
    whole = (model / "model.safetensors").read_bytes()
    begin = 8 + int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8:begin])
    symbols = ["", *json.loads(header["__metadata__"]["alphabet"])]
    places = [header[f"output.{name}"]["data_offsets"] for name in ("weight", "bias")]
    weight, bias = (whole[begin + first:begin + last] for first, last in places)
    size = len(weight) // len(symbols)
    return {s: (weight[i * size:(i + 1) * size], bias[i * 4:(i + 1) * 4]) for i, s in enumerate(symbols)}


def test_fine_tuning_for_other_characters():
    with folder() as root:
        features(root)
        train(root, root / "run", "training.epochs=2", "data.alphabet=abc ")
        write_manifest(root / "train.jsonl", [{"features_filepath": f"train00{i}.npy", "text": t} for i, t in enumerate(["xb", "bA"])])
        tune = ["train", "features.type=ready", "training.threads=1", "data.batch_frames=100", f"data.train={root}/train.jsonl",
                "training.epochs=1", "optimizer.lr=1e-30", "--init-from", root / "run"]
        known = rows_of(root / "run")
        fails(*tune, f"training.checkpoint_dir={root}/keep", lines=3,
              errs=["2 with text outside the alphabet; --alphabet extend lets", "outside the alphabet: 'x' (U+0078)"])
        for word in ("extend", "union"):
            run(*tune, "--alphabet", word, f"training.checkpoint_dir={root}/{word}",
                says="alphabet: 'abc Ax' (6 characters), 4 of them known to that model")
            more = rows_of(root / word)
            check(list(more) == ["", *"abc Ax"], list(more))
            check(all(more[s] == row for s, row in known.items()), "known rows have changed")
            check(more["A"][0] != more["x"][0] and abs(struct.unpack("<f", more["A"][1])[0]) < 1e-20, "new rows")
        run(*tune, "--alphabet", "new", "text.lowercase=true", f"training.checkpoint_dir={root}/new",
            says="alphabet: 'abx' (3 characters), 2 of them known to that model")
        other = rows_of(root / "new")
        check(list(other) == ["", *"abx"] and all(other[s] == known[s] for s in ("", "a", "b")), list(other))
        # The rule for texts goes with the model: references are read by it.
        write_manifest(root / "test.jsonl", [{"features_filepath": "train000.npy", "text": "ABBA"}])
        run("eval", root / "new", root / "test.jsonl", not_says="cannot write", says="WER")
        run("eval", root / "extend", root / "test.jsonl", says="'B' (U+0042) 2 times")
        run(*tune, "--alphabet", "extend", 'text.replace=["A=a", "B=bb"]', f"training.checkpoint_dir={root}/replaced")
        run("eval", root / "replaced", root / "test.jsonl", "--hypotheses", root / "h.jsonl", not_says="cannot write", says="WER")
        check(json.loads((root / "h.jsonl").read_text())["reference"] == "abbbba", "the reference is not changed alike")
        (root / "map.txt").write_text("A=a\n\nB=bb\n")
        asked = [run("train", *words, "--print-config")[0] for words in (["--replace", root / "map.txt"], ['text.replace=["A=a", "B=bb"]'])]
        check(asked[0] == asked[1] != run("train", "--print-config")[0], asked[0])
        (root / "map.txt").write_text("A=a\nB\n")
        fails("train", "--replace", root / "map.txt", "--print-config", errs="map.txt:2: is 'B', expected FROM=TO")
        fails(*tune, 'text.replace=["A"]', f"training.checkpoint_dir={root}/no", errs='text.replace is ["A"], expected a list of "FROM=TO"')
        fails_with = run("train", *READY, f"data={root}", "--alphabet", "new", code=2)[1]
        check("--init-from's model" in fails_with, fails_with)


def test_a_run_is_not_overwritten():
    with folder() as root:
        features(root)
        train(root, root / "run", "training.epochs=1")
        before = weights_of(root / "run")
        fails_to_train(root, errs=["holds a training run already", "--resume"])
        check(weights_of(root / "run") == before, "the run has changed")
        # Nor is a model that was kept without its checkpoints.
        for checkpoint in (root / "run").glob("checkpoint-*"):
            shutil.rmtree(checkpoint)
        fails_to_train(root, errs=["holds a training run already", "--resume"])
        check((root / "run/model.safetensors").read_bytes() == before["best"], "another model")


def test_other_data_on_resume():
    with folder() as root:
        features(root)
        train(root, root / "run", "training.epochs=1")
        lines = (root / "train.jsonl").read_text()
        append(root / "train.jsonl", {"features_filepath": "dev000.npy", "text": "abc"})
        fails_to_train(root, "training.epochs=2", "--resume", errs="holds other utterances")
        # The same recordings with an edited text are other data, too; put right, they are the same again.
        first = json.loads(lines.splitlines()[0])["text"]
        (root / "train.jsonl").write_text(lines.replace(f'"{first}"', f'"{first}a"', 1))
        fails_to_train(root, "training.epochs=2", "--resume", errs="holds other utterances, texts or lengths")
        (root / "train.jsonl").write_text(lines)
        train(root, root / "run", "training.epochs=2", "--resume")


def test_places_that_cannot_be_written():
    with folder() as root:
        features(root)
        (root / "file").write_text("in the way")
        for setting in [f"training.checkpoint_dir={root}/file", "training.checkpoint_dir=/proc/x",
                        f"training.log={root}/none/log.jsonl"]:
            fails_to_train(root, setting, errs=setting.split("=")[1])
    root = tone_model()
    good = root / "dev000.wav"
    fails("transcribe", root / "run", good, "--format", "npy", "--out", "/proc/x", errs="/proc/x")
    # Not the name that the file has while it is written.
    fails("transcribe", root / "run", good, "--picture", "/nonexist/x.svg",
          errs="rondo: /nonexist/x.svg: cannot be created: No such file", not_says="tmp")
    fails("prepare", "speech-demo", "/proc/x", errs="/proc/x: cannot be made", not_says="partial")
    with open("/dev/full", "wb") as full:
        fails("transcribe", root / "run", good, stdout=full, errs="standard output cannot be written")
    fails("eval", root / "run", root / "dev.jsonl", "--hypotheses", "/nonexistent/h", errs="/nonex")
    fails("eval", root / "run", root / "dev.jsonl", "--group-by", "colour", errs="'colour'")


def test_results_of_one_name():
    root = tone_model()
    (root / "other").mkdir()
    shutil.copy(root / "dev000.wav", root / "other/dev000.wav")
    fails("transcribe", root / "run", root / "dev000.wav", root / "other/dev000.wav", "--format",
          "npy", "--out", root / "logits", errs=["other/dev000.wav' would both go to", "dev000.npy"])
    check(not (root / "logits").exists(), "something was written")


def test_output_to_a_device_goes_there():
    root = tone_model()
    os.mkfifo(root / "pipe")
    reader = subprocess.Popen(["cat", root / "pipe"], stdout=subprocess.PIPE)
    run("eval", root / "run", root / "dev.jsonl", "--hypotheses", root / "pipe")
    out = reader.communicate(timeout=TIMEOUT)[0]
    check(len(out.splitlines()) == 3, out)
    check((root / "pipe").is_fifo(), "the pipe was replaced by a file")


try:
    main(globals())
finally:
    for root in _model:
        shutil.rmtree(root, ignore_errors=True)
