"""Damaged models, runs that do not go together, and places that cannot be written: one clear sentence,
exit 1, and nothing is lost."""

from bad_input_support import *


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
              errs=["/run was trained with other settings: model.hidden: 24 -> 12", "go on with that run"])
        fails("train", *READY, f"data={root}", f"training.checkpoint_dir={root}/run", "--init-from", root / "run",
              errs=["training.checkpoint_dir is ", "where the model of training.init_from is"])
        fails("train", "--resume", f"training.checkpoint_dir={root}/none", errs="no run to go on with in ")


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
            # New characters begin as the mean of the old ones, each with a chance of its own.
            biases = [struct.unpack("<f", known[s][1])[0] for s in "abc "]
            check(all(abs(struct.unpack("<f", more[s][1])[0] - sum(biases) / 4) < 1e-6 for s in "Ax"), "new biases")
            check(more["A"][0] != more["x"][0], "new rows")
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


main(globals())
