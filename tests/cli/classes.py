"""Classes with names, from folders and manifests to what predict, eval and info write; numbers as targets."""

from cli_support import *

NAMES = {"a": "high note", "b": "LOW", "c": "mid/«x»"}  # of the tones; none in the order of the others
CLASSIFY = ["task=classify", "training.epochs=30"]


def class_folders(root, each=12, seed=5):
    """root/NAME/*.wav: a tone each."""
    rng = random.Random(seed)
    for tone, name in NAMES.items():
        place = root / name.replace("/", "-")
        place.mkdir(parents=True)
        for i in range(each):
            write_wav(place / f"{i}.wav", tone_samples(tone, rng))


def named(root, names, parts=("train", "dev", "test")):
    """The numbers of a corpus of classes, by their names."""
    for part in parts:
        lines = manifest(root / f"{part}.jsonl")
        for line in lines:
            line["label"] = names[line["label"]]
        write_manifest(root / f"{part}.jsonl", lines)


def manifest(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def arrays_of(model):
    """What a .safetensors file holds behind its header, which has the names."""
    return model[8 + struct.unpack("<Q", model[:8])[0]:]


def jsonl(out):
    return [json.loads(line) for line in out.splitlines()]


def test_a_folder_for_each_class():
    with folder() as root:
        class_folders(root / "sounds")
        classes = sorted(name.replace("/", "-") for name in NAMES.values())
        out, _ = run("prepare", "classes", root / "sounds", root / "mine", "--dev", 0.2, "--test", 0.2,
                     says=["3 classes: " + ", ".join(f"{name} 12" for name in classes), "within each class",
                           f"train with rondo train {root}/mine/train.toml data={root}/mine\n"])
        check("characters" not in out and "left out" not in out, out)
        for part, count in (("train", 8), ("dev", 2), ("test", 2)):
            labels = [line["label"] for line in manifest(root / "mine" / f"{part}.jsonl")]
            check(sorted(labels) == sorted(classes * count), part, labels)
        train(root / "mine", root / "run", *CLASSIFY, base=TONE,
              says=["24 utterances", "6 to validate", "best model on the test data: error 0.00%"])
        test = root / "mine" / "test.jsonl"
        out, _ = run("predict", root / "run", test, "--format", "jsonl")
        for line in jsonl(out):
            check(line["class"] == line["label"] and line["classes"] == classes, line)
            check(line["probabilities"][classes.index(line["class"])] == line["probability"] > 0.5, line)
        out, _ = run("predict", root / "run", *sorted((root / "sounds" / "LOW").glob("*.wav"))[:2])
        check([line.split("\t")[1] for line in out.splitlines()] == ["LOW", "LOW"], out)
        out, _ = run("predict", root / "run", root / "sounds" / "LOW" / "1.wav")
        check(out.split("\t")[0] == "LOW", out)
        report = root / "report.html"
        run("eval", root / "run", test, "--hypotheses", root / "h.jsonl", "--report", report, says="error 0.00%")
        check(all(line["class"] == line["reference"] in classes for line in manifest(root / "h.jsonl")), "eval")
        check('<th scope="row"><bdi>mid-«x»</bdi></th><td></td><td></td><td class="right">2</td>' in report.read_text(), report)
        run("info", "--model", root / "run", says="classes: " + ", ".join(classes) + "\n")
        check(json.loads(run("info", "--model", root / "run", "--json")[0])["classes"] == classes, "info")
        run("plan", *TONE, "task=classify", f"data={root}/mine", says="All figures are predicted")
        for words in (["--lowercase"], ["--strip-punctuation"]):
            run("prepare", "classes", root / "sounds", root / "other", *words, code=2, errs="are for texts")


def test_names_in_a_manifest():
    """The same data with names train the same model as with numbers, if the names are in that order."""
    with folder() as root:
        feature_corpus(root, "classify")
        train(root, root / "numbers", *CLASSIFY)
        named(root, ["first", "second", "third"])
        train(root, root / "names", *CLASSIFY)
        numbers, names = (arrays_of(weights_of(root / run)["newest"]) for run in ("numbers", "names"))
        check(numbers == names, "other weights")
        out, _ = run("eval", root / "names", root / "dev.jsonl", "--json")
        result = json.loads(out)
        dev = manifest(root / "dev.jsonl")
        check([(c["class"], c["utterances"]) for c in result["classes"]] ==
              [(name, sum(line["label"] == name for line in dev)) for name in ("first", "second", "third")], result)
        # Wrong ones are named too, and by field.
        names = {"first": "second", "second": "first", "third": "third"}
        write_manifest(root / "wrong.jsonl", [{**line, "label": names[line["label"]], "mine": line["label"]} for line in dev])
        out, _ = run("eval", root / "names", root / "wrong.jsonl", "--group-by", "mine",
                     says=["most confused: ", "second as first (", "mine third", "error 0.00%", "mine first", "error 100.00%"])
        result = json.loads(run("eval", root / "names", root / "wrong.jsonl", "--json", "--group-by", "mine")[0])
        check({tuple(c[:2]) for c in result["confused"]} == {("first", "second"), ("second", "first")}, result)
        check(result["groups"]["mine=third"]["wrong"] == 0 < result["groups"]["mine=first"]["wrong"], result)
        # The run goes on with them, and stays as it is.
        train(root, root / "names", *CLASSIFY, "training.epochs=31", "--resume", says="continuing after")
        check(json.loads(run("info", "--model", root / "names", "--json")[0])["classes"] == ["first", "second", "third"], "info")


def test_the_task_is_named_that_fits():
    with folder() as root:
        for kind, what in (("classify", 'classes ("label") and no texts: task=classify learns them'),
                           ("regress", 'numbers ("target") and no texts: task=regress learns them')):
            feature_corpus(root, kind, train=6, dev=3)
            for command in ("train", "plan"):
                fails(command, *READY, f"data={root}", errs=[f"{root}/train.jsonl: has {what}"])


def test_names_that_the_model_does_not_know():
    with folder() as root:
        feature_corpus(root, "classify", train=12, dev=6)
        numbers = {part: (root / f"{part}.jsonl").read_text() for part in ("train", "dev")}
        train(root, root / "numbers", "task=classify", "training.max_steps=1")
        named(root, ["x", "y", "z"])
        train(root, root / "names", "task=classify", "training.max_steps=1")
        known = 'expected "x", "y" or "z"'

        def refused(errs, *words, lines=2, data=root):
            fails("train", *READY, "task=classify", f"data={data}", f"training.checkpoint_dir={root}/b", *words, lines=lines,
                  errs=errs)

        for part, old in (("dev", "y"), ("test", "x")):
            whole = (root / f"{part}.jsonl").read_text()
            (root / f"{part}.jsonl").write_text(whole.replace(f'"{old}"', '"w"', 1))
            number = next(i for i, line in enumerate(whole.splitlines(), 1) if f'"{old}"' in line)
            refused([f"{part}.jsonl:{number}: ", f'its "label" is "w", no class of the model; {known}'])
            fails("eval", root / "names", root / f"{part}.jsonl", lines=2, errs=[f"{part}.jsonl:{number}: ", known])
            (root / f"{part}.jsonl").write_text(whole)
        # Names and numbers are different things.
        (root / "numbers.jsonl").write_text(numbers["dev"])
        fails("eval", root / "names", root / "numbers.jsonl", lines=7, errs=["no class of the model", known])
        fails("eval", root / "numbers", root / "dev.jsonl", lines=7, errs="expected a number, as the model knows its classes by")
        refused("expected names or numbers throughout", f"data.train={root}/mixed.jsonl", lines=1,
                data=mixed(root, numbers["train"]))
        refused(['all lines are of the class "x"', "expected two classes or more"], f"data.train={root}/one.jsonl", lines=1,
                data=only(root, "x"))
        refused("model.outputs is 4, and", "model.outputs=4", lines=1)
        # Beginning with the weights of a model, the classes are that model's, or more.
        first = ["--init-from", root / "names", "training.max_steps=1"]
        (root / "train.jsonl").write_text((root / "train.jsonl").read_text().replace('"y"', '"new"'))
        (root / "dev.jsonl").write_text((root / "dev.jsonl").read_text().replace('"y"', '"new"'))
        refused(["--alphabet extend lets the model learn them", '"new", no class of the model', known], *first, "data.test=",
                lines=1 + (root / "train.jsonl").read_text().count('"new"'))
        for how, classes in (("extend", ["x", "y", "z", "new"]), ("new", ["new", "x", "z"])):
            run("train", *READY, "task=classify", f"data={root}", f"training.checkpoint_dir={root}/{how}", *first, "data.test=",
                "--alphabet", how, says=["(%d classes)" % len(classes), "of them known to that model"])
            check(json.loads(run("info", "--model", root / how, "--json")[0])["classes"] == classes, how)


def mixed(root, numbered):
    (root / "mixed.jsonl").write_text((root / "train.jsonl").read_text() + numbered)
    return root


def only(root, name):
    write_manifest(root / "one.jsonl", [line for line in manifest(root / "train.jsonl") if line["label"] == name])
    return root


def test_numbers_have_errors_of_their_own():
    with folder() as root:
        feature_corpus(root, "regress")
        train(root, root / "run", "task=regress", "training.epochs=12")
        run("eval", root / "run", root / "dev.jsonl", says=["MAE ", "  number 1: MAE ", "  number 2: MAE ", "loss "])
        result = json.loads(run("eval", root / "run", root / "dev.jsonl", "--json", "--hypotheses", root / "h.jsonl")[0])
        targets = [line["target"] for line in manifest(root / "dev.jsonl")]
        answers = [line["values"] for line in manifest(root / "h.jsonl")]
        for column, figures in enumerate(result["columns"]):
            wanted = [target[column] for target in targets]
            errors = [answer[column] - target for answer, target in zip(answers, wanted)]
            mean = sum(wanted) / len(wanted)
            expected = {"mae": sum(map(abs, errors)) / len(errors),
                        "rmse": math.sqrt(sum(e * e for e in errors) / len(errors)),
                        "r2": 1 - sum(e * e for e in errors) / sum((w - mean) ** 2 for w in wanted)}
            for name, value in expected.items():
                check(math.isclose(figures[name], value, rel_tol=1e-4), name, figures, expected)
        check(math.isclose(result["r2"], sum(c["r2"] for c in result["columns"]) / 2, rel_tol=1e-9), result)
        check(result["r2"] > 0.5, result)
        fails("eval", root / "run", root / "dev.jsonl", "--group-by", "target", errs="--group-by is for models")


main(globals())
