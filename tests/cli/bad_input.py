"""Bad data: one clear sentence, exit 1, and nothing is lost."""

from bad_input_support import *


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
    (root / "page.xml").write_text("<PcGts/>")
    for name, text in [("missing.wav", "No such file"), ("empty.wav", "is empty"),
                       ("text.wav", "is not audio"), ("short.wav", "is truncated"),
                       ("shorter.wav", "is truncated"), ("random.flac", "is not audio"),
                       ("page.xml", ["page.xml: holds a page of lines, ", "reads recordings"])]:
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
                       errs=["1 of 4 utterances", "data.unreadable=skip leaves files of this kind out", "train.jsonl:3: ", "train002.wav: is truncated"])
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
        fails_to_train(root, f"data.test={root}/test.jsonl", base=TONE, errs=["test.jsonl: cannot be opened"])


def test_a_folder_without_all_splits():
    """What is not there is done without, and said; what is named is missed."""
    with folder() as root:
        feature_corpus(root, "ctc", train=6, dev=3)
        brief = "training.max_steps=1"
        train(root, root / "a", brief, says="6 utterances to train on, 3 to validate\n")
        (root / "test.jsonl").unlink()
        train(root, root / "b", brief, says="to train on, 3 to validate, none to test with (no data.test)\n")
        for words in (["data.test=none.jsonl", f"data={root}"], [f"data={root}", "data.test=none.jsonl"]):
            fails("train", *READY, *words, f"training.checkpoint_dir={root}/c", errs="none.jsonl: cannot be opened")
        (root / "dev.jsonl").unlink()
        train(root, root / "d", brief, says="to train on, none to validate (no data.dev), none to test with (no data.test)\n")
        run("plan", *READY, f"data={root}", says="All figures are predicted")
        for wish, instead in [("training.patience=3", "training.patience=0"), ("training.average_best=2", "training.average_best=0"),
                              ("lr.type=plateau", "lr.type=cosine")]:
            fails("train", *READY, f"data={root}", f"training.checkpoint_dir={root}/c", wish,
                  errs=[wish.split("=")[0], "data.dev is empty; expected a manifest there, or " + instead])
        (root / "train.jsonl").unlink()
        for command in ("train", "plan"):
            fails(command, f"data={root}", errs=f"override 'data={root}': the folder '{root}' has no train.jsonl")


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
        for setting in ["training.patience=2", "training.average_best=2", "lr.type=plateau"]:
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


main(globals())
