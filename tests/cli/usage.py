"""Exit codes, --help, and what is said about a wrong command line or configuration."""

from cli_support import *

COMMANDS = [["prepare"], ["prepare", "speech-demo"], ["prepare", "fsdd"], ["train"], ["eval"],
            ["transcribe"], ["align"], ["info"], ["bench"], ["launch"], ["plan"],
            ["lm"], ["lm", "train"], ["lm", "build"]]


def test_every_help_has_an_example():
    run("--help", says=["Example:", "rondo train", "rondo transcribe"])
    for command in COMMANDS:
        run(*command, "--help", says=f"Example:  rondo {command[0]}")


def test_help_of_settings_lists_them_with_defaults():
    run("train", "--help-config", says=["[model]", "hidden = 256", "# LSTM cells"])


def layers_of_help(text):
    """Every type of layer: its options, each with its default and meaning."""
    layers = {}
    for line in text.split("any number of layers in order:")[1].splitlines():
        found = re.fullmatch(r"# (\w+) = (\S+) +# (.+)", line)
        if found and found[1] == "type":
            options = layers[found[2].strip('"')] = {}
        elif found:
            options[found[1]] = (found[2], found[3])
    return layers


def layers_of_docs(text):
    layers = {}
    for line in text.split("| type | key | default | meaning |")[1].splitlines()[2:]:
        found = re.fullmatch(r'\| (?:`"(\w+)"` )?\| (?:`(\w+)` )?\| (?:`(\S+)` )?\| (.+) \|', line)
        if not found:
            break
        if found[1]:
            options = layers[found[1]] = {}
        else:
            options[found[2]] = (found[3], found[4])
    return layers


# tests/support/layer_types_test.cc says by hand which there are, and of what bounds.
LAYERS = layers_of_docs((pathlib.Path(__file__).parents[2] / "docs" / "settings.md").read_text())


def test_types_of_layers_are_those_of_help_and_documentation():
    _, err = fails("train", 'model.layer=[{type="?"}]', "--print-config", errs="expected one of")
    accepted = re.findall(r'"(\w+)"', err.split("expected one of")[1])
    help = layers_of_help(run("train", "--help-config")[0])
    check(accepted == list(LAYERS) == list(help), accepted, help)
    for name, options in LAYERS.items():
        check(list(help[name].items()) == list(options.items()), name, help[name])


def test_options_of_layers():
    for name, options in LAYERS.items():
        resolved = run("train", f'model.layer=[{{type="{name}"}}]', "--print-config")[0]
        lines = [f'type = "{name}"'] + [f"{option} = {default}" for option, (default, _) in options.items()]
        check(resolved.split("[[model.layer]]\n")[1].splitlines() == lines, resolved)
        for option, (_, meaning) in options.items():
            said = f"model.layer.{option} is [], expected "
            _, err = fails("train", f'model.layer=[{{type="{name}",{option}=[]}}]', "--print-config", errs=said)
            expected = err.split(said)[1].rstrip("\n")
            check(expected == "true or false" or meaning.endswith(f" ({expected})"), meaning, expected)


def test_version_and_information():
    run("--version", says="rondo ")
    run("info", says=["cpu: ", "cuda: ", "built with: libsndfile 1.", "libpng 1.6"])
    run("info", "--kernels", says=["lstm_forward", "ctc", "default", "bf16, or f32 up to H = 256; H <= 512; no projection"])
    run("bench", "--list", "--backend", "cpu", says="lstm_forward")
    run("bench", "--list", "--device", "sim", says="sim:portable", not_says="cpu:")


def test_wrong_usage_is_2():
    for words, text in [
        ([], "expected a command: prepare, train, "),
        (["frobnicate"], "unknown command 'frobnicate'; expected prepare, train, "),
        (["trian"], "unknown command 'trian'; did you mean 'train'?"),
        (["--frobnicate"], "unknown option '--frobnicate'"),
        (["prepare"], "expected what to prepare: folder, classes, lines, csv, common-voice, librispeech, ljspeech, deepspeech, kaldi, nemo, tar, speech-demo or fsdd\n'rondo prepare --help'"),
        (["prepare", "frobnicate"], "unknown command 'frobnicate' of 'rondo prepare'; expected folder, classes, lines, csv, common-voice, librispeech, ljspeech, deepspeech, kaldi, nemo, tar, speech-demo or fsdd"),
        (["prepare", "fsd", "d", "out"], "unknown command 'fsd' of 'rondo prepare'; did you mean 'fsdd'?"),
        (["prepare", "fsdd"], "dir is required\n'rondo prepare fsdd --help'"),
        (["prepare", "speech-demo", "o", "--train", "-4"], "--train is '-4', expected a number from 1 to "),
        (["prepare", "speech-demo", "o", "--rate", "11025"], "--rate is '11025', expected one of 8000, 16000"),
        (["prepare", "fsdd", "d", "o", "--seed", "-1"], "--seed is '-1', expected a whole number of at least 0"),
        (["prepare", "fsdd", "d", "o", "--seed", "18446744073709551616"], "expected a whole number of at least 0"),
        (["prepare", "fsdd", "d", "o", "--seed", "abc"], "--seed is 'abc', expected a whole number of at least 0"),
        (["eval", "a", "b", "c"], "unexpected argument 'c' of 'rondo eval'"),
        (["launch", "-n", "2", "--", "info", "a"], "expected -- train ..."),
        (["transcribe", "model", ""], "files: an empty name, expected that of a file"),
        (["transcribe", "model", "a.wav", "--chunk-ms", "0.5"], "'0.5', expected a number from 1 to 3600000\n"),
        (["transcribe", "model", "a.wav", "--beam", "4", "--nbest", "5", "--format", "jsonl"], "a --beam that is at least as large"),
        (["transcribe", "model", "a.wav", "--nbest", "2", "--format", "srt"], "--nbest 2 takes --format jsonl, it is srt"),
        (["transcribe", "model", "a.wav", "--picture"], "--picture needs a value"),
        (["train", "--frobnicate"], "unknown option '--frobnicate' of 'rondo train'"),
        (["eval", "model", "m.jsonl", "--hypothesis", "h"], "'--hypothesis' of 'rondo eval'; did you mean '--hypotheses'?"),
        (["train", "a.toml", "b.toml"], "two configuration files: 'a.toml' and 'b.toml'"),
        (["train", "--device", "abacus"], "abacus"),
        (["train", "data=d", "--resume", "--init-from", "m"], "--init-from would start with those of another"),
        (["eval"], "model is required"),
        (["eval", "model"], "manifest is required"),
        (["transcribe", "model"], "files is required"),
        (["transcribe", "model", "a.wav", "--format", "doc"], "doc"),
        (["transcribe", "model", "a.wav", "--format", "npy"], "--format npy needs --out FOLDER"),
        (["transcribe", "model", "a.wav", "--out", "o"], "--out is for formats that are files"),
        (["transcribe", "model", "a.wav", "b.wav", "--picture", "p.svg"], "a single recording"),
        (["transcribe", "model", "a.wav", "--threads", "-3"], "--threads"),
        (["info", "--batch", "x"], "--batch"),
        (["bench", "--threads", "0"], "--threads"),
        (["plan", "--devcies", "8"], "unknown option '--devcies' of 'rondo plan'"),
        (["plan", "--scaling"], "unknown option '--scaling' of 'rondo plan'"),
        (["plan", "--devices", "0"], "--devices"),
        (["bench", "--backend", "abacus"], "abacus"),
        (["bench", "--seconds", "-1"], "--seconds"),
        (["bench", "--json=maybe"], "--json is 'maybe', expected true or false"),
        (["train", "--replicas", "1", "--replicas", "2"], "--replicas takes one value, not 2"),
        (["prepare", "speech-demo", "o", "--rate", "fast"], "--rate is 'fast', expected one of 8000, 16000"),
        # No number is not within limits.
        (["transcribe", "model", "a.wav", "--chunk-ms", "nan"], "--chunk-ms is 'nan', expected a number from 1 to "),
    ]:
        run(*words, code=2, errs=["rondo: ", text, "--help' shows what is expected"])


def test_what_was_probably_meant():
    with folder() as root:
        feature_corpus(root, "ctc", train=4, dev=2)
        train(root, root / "run", "training.max_steps=1")
        (root / "a.wav").write_bytes(b"RIFF0000WAVE")
        (root / "a.png").write_bytes(b"\x89PNG\r\n")
        (root / "pages").mkdir()
        (root / "pages" / "a.xml").write_text("<PcGts/>")
        model, lines = root / "run" / "model.safetensors", root / "train.jsonl"
        for words, says in [
            (["train", root / "run"], [f"'{root}/run' is a training run", f"--resume {root}/run continues", f"{root}/run/config.toml has its settings"]),
            (["info", "--model", root / "a.wav"], "is a recording, expected a model"),
            (["info", "--model", root], "is a folder with manifests, expected a model"),
            (["train", root], [f"'{root}' is a folder with manifests", f"data={root}"]),
            (["train", root / "run" / "none.toml", lines], "two configuration files"),
            (["train", lines], ["is a manifest", f"data.train={lines}"]),
            (["train", model], ["is a model", f"--init-from {model}"]),
            (["train", root / "a.wav"], ["is a recording", "a manifest"]),
            (["train", f"data={lines}"], ["names a folder", f"data.train={lines}"]),
            (["train", "--data", root], ["is no number of replicas, as --data was called before; a corpus", f"data={root}"]),
            (["eval", lines, root / "run"], ["which comes first", f"rondo eval {root}/run {lines}"]),
            (["eval", root / "run", root], [f"'{root}' is a folder with manifests", f"{root}/dev.jsonl, {root}/test.jsonl, {lines}"]),
            (["eval", root / "run", root / "a.wav"], "'rondo transcribe' takes recordings"),
            (["eval", root / "run", root / "a.png"], "'rondo transcribe' takes images"),
            (["eval", root / "run", root / "pages"], ["is a folder, expected a manifest", "'rondo prepare' writes"]),
            (["eval", root / "run", root / "pages" / "a.xml"], ["is a page (PAGE-XML or ALTO), expected a manifest", "'rondo prepare' writes"]),
            (["train", root / "pages" / "a.xml"], ["is a page", "expected a configuration"]),
            (["info", "--model", root / "a.png"], "is an image, expected a model"),
            (["eval", root, lines], "is a folder with manifests, expected a model"),
            (["prepare", "nemo", lines, root / "out"], ["comes first", f"rondo prepare nemo FOLDER {lines}"]),
            (["transcribe", root / "a.wav", model], ["which comes first", f"rondo transcribe {model} {root}/a.wav"]),
        ]:
            code = 2 if any(text in str(says) for text in ("two conf", "comes first", "no number")) else 1
            run(*words, code=code, errs=says)


def test_flags_of_splits_had_other_names():
    for now, before in (("--stages", "--pipeline"), ("--replicas", "--data"), ("--shards", "--sequence")):
        out = [run("train", name, 2, "--print-config")[0] for name in (now, before)]
        check(out[0] == out[1] != run("train", "--print-config")[0], now)
        help_text = run("train", "--help")[0]
        check(now in help_text and before + " " not in help_text, help_text)


def test_words_as_long_as_a_command_line_takes():
    word = "x" * 100000
    long = "x" * 60 + "... (100000 characters)"
    for words, text in [
        (["train", "--stages"], f"--stages is '{long}', expected a number from 1 to 4096"),
        (["train", "--device"], f"--device: '{long}' is no device"),
        (["bench", "--backend"], f"--backend is '{long}', expected one of cpu, sim, cuda"),
        (["prepare", "fsdd", "d", "o", "--seed"], f"--seed is '{long}', expected a whole number of at least 0"),
        (["eval", "a", "b"], f"unexpected argument '{long}' of 'rondo eval'"),
        ([], f"unknown command '{long}'; expected prepare, "),
    ]:
        run(*words, word, code=2, errs=["rondo: ", text, "--help' shows what is expected"])


def test_a_device_of_the_environment():
    wrong = {**os.environ, "RONDO_DEVICE": "abacus"}
    run("info", env=wrong, says="cpu: ", not_says="abacus")
    _, err = fails("eval", "model", "m.jsonl", env=wrong,
                   errs=["the environment's RONDO_DEVICE: 'abacus' is no device", "cuda:N"])
    check("--device" not in err, err)
    # The option goes before.
    fails("eval", "nowhere", "m.jsonl", "--device", "cpu", env=wrong, errs="nowhere")


def test_without_a_gpu():
    lines = run("info")[0].splitlines()
    why = next(line for line in lines if line.startswith("cuda: "))[len("cuda: "):]
    if "(cuda:" in why:
        raise Skip("there is a GPU")
    for device in ("cuda", "cuda:3"):
        fails("eval", "nowhere", "m.jsonl", "--device", device, errs=[f"--device {device}: {why}"])
    fails("eval", "nowhere", "m.jsonl", "--device", "auto", errs="nowhere: no such")
    # Training in a build with CUDA says what it does instead; one without has nothing to say.
    built = any(line.startswith("matrix products: ") for line in lines)
    with folder() as root:
        feature_corpus(root, "ctc", train=4, dev=2)
        out, err = run("train", *READY, f"data={root}", f"training.checkpoint_dir={root}/run",
                       "training.max_steps=1", "--device", "auto", says="trained 1 step, ")
        check((f"no GPU ({why}): on the CPU" in out) == built and not err, out, err)


def test_benchmarks_that_are_none():
    fails("bench", "frobnicate", errs="no benchmark fits 'frobnicate'; 'rondo bench --list'")
    fails("bench", "ctc", "frobnicate", errs="no benchmark fits 'frobnicate'; ")
    fails("bench", "lstm", "--variant", "abacus", errs="'lstm' --variant 'abacus'")
    # Checks of odd sizes are no benchmarks.
    listed = run("bench", "--list", "--backend", "cpu")[0].splitlines()
    check(listed and not any("ctc/sizes" in line for line in listed), listed[:5])


def test_every_op_has_a_benchmark():
    words = run("info", "--kernels")[0].splitlines()
    ops = [word for word in words if word and not word.startswith(" ") and ":" not in word][1:]
    check(len(ops) > 30 and len(ops) == len(set(ops)), "an op is twice in the table:", ops)
    timed = {line.split("/")[0] for line in run("bench", "--list")[0].splitlines()}
    timed.remove("lstm_step")  # the benchmarks' own, to be compared with cuDNN's
    check(set(ops) == timed, "not timed:", set(ops) - timed, "not in the table:", timed - set(ops))


def test_output_that_cannot_be_written():
    for words in (["--version"], ["info"], ["train", "--help-config"], ["bench", "--list"]):
        with open("/dev/full", "wb") as full:
            fails(*words, stdout=full, errs="rondo: standard output cannot be written")


def test_wrong_settings():
    for setting, text in [
        ("model.hiden=3", "unknown key 'model.hiden'; did you mean 'model.hidden'?"),
        ("trainng.epochs=3", "did you mean 'training.epochs'?"),
        ("model.hidden=many", 'model.hidden is "many", expected an integer from 1 to 65536'),
        ("model.hidden=0", "model.hidden is 0, expected an integer from 1 to 65536"),
        ("model.bidirectional=3", "expected true or false"),
        ("task=translate", 'one of "ctc", "classify", "regress"'),
    ]:
        fails("train", setting, errs=text)


def test_wrong_kernels():
    for choice, text in [
        ("lstm_forward", "--kernels 'lstm_forward': expected OP=VARIANT"),
        ("lstm_forward=", "expected OP=VARIANT"),
        ("=portable", "expected OP=VARIANT"),
        ("frobnicate=portable", "no op is called 'frobnicate'; the ops are beam_search, "),
        ("lstm_forward=portable,lstm_backward=fast",
         "op 'lstm_backward' has no variant 'fast' for sim; it has portable, cluster_split, "),
        ("lstm_forward=avx2", "op 'lstm_forward' has no variant 'avx2' for sim"),
    ]:
        fails("train", "--device", "sim", "--kernels", choice, errs=text)
    fails("train", "--device", "cpu", "--kernels", "lstm_forward=grid",
          errs="op 'lstm_forward' has no variant 'grid' for cpu; it has amx, avx512bf16, ")


def test_wrong_configuration_file():
    with folder() as root:
        fails("train", root / "none.toml", errs=["none.toml", "No such file"])
        file = root / "c.toml"
        file.write_text("[model]\nhidden = 8\nlayer_nrom = true\n")
        fails("train", file, errs=["c.toml:3: ", "'model.layer_nrom'", "'model.layer_norm'"])
        file.write_text("[model]\nhidden = 8\n\n[model\n")
        fails("train", file, errs="c.toml:4: ")
        file.write_text("[training]\nepochs = \"ten\"\n")
        fails("train", file, errs=["c.toml:2: ", "training.epochs", "expected an integer"])
        file.write_bytes(bytes(range(256)))
        fails("train", file, errs="c.toml:1: ")


def test_recipes_are_inside_the_program():
    """A copy of it alone knows them, wherever it runs. A file of the name goes first."""
    sources = sorted((pathlib.Path(__file__).parents[2] / "tools" / "recipes").glob("*.toml"), key=lambda path: path.stem)
    check(len(sources) >= 4, sources)
    with folder() as root:
        alone = root / "bin" / "rondo"
        alone.parent.mkdir()
        shutil.copy(RONDO, alone)
        here = {"program": alone, "cwd": root}
        out, _ = run("train", "--list", **here)
        listed = dict(line.split(None, 1) for line in out.splitlines())
        check(list(listed) == [path.stem for path in sources], out)
        for path in sources:
            text = path.read_text()
            check("# " + listed[path.stem] == text.splitlines()[0], out)
            check(run("train", "--show", path.stem, **here)[0] == text, path)
            check(run("train", path.stem, "--print-config", **here)[0] == run("train", path, "--print-config")[0], path)
        names = ", ".join(listed)
        fails("train", "line", "--print-config", **here,
              errs=[f"'line' is neither a file nor a folder in {root}, and no recipe; the recipes are {names}"])
        fails("train", "--show", "line", errs=f"'line' is no recipe; the recipes are {names}")
        fails("train", "lines", "training.epoch=3", **here, errs="did you mean 'training.epochs'?")
        run("plan", "speech-demo", **here, says="All figures are predicted")
        (root / "lines").write_text("[model]\nhidden = 7\n")
        run("train", "lines", "--print-config", **here, says="hidden = 7\n")


def test_what_cannot_be_opened_says_where_it_was_looked_for():
    with folder() as root:
        for words, name in [(["train", "./small"], "./small"), (["train", "my.toml"], "my.toml"),
                            (["train", "data=none"], "none/train.jsonl"), (["train", "data.train=m.jsonl"], "m.jsonl"),
                            (["lm", "train", "texts.txt", "--out", "x.lm"], "texts.txt"),
                            (["prepare", "csv", "a.csv", "out", "--audio-column", "a", "--text-column", "b"], "a.csv"),
                            (["prepare", "folder", "sounds", "out"], "sounds"), (["plan", "--device", "d.json"], "d.json"),
                            (["plan", "--link", "l.json"], "l.json")]:
            fails(*words, cwd=root, errs=[name, f"No such file or directory in {root}"])
        for words in (["eval", "run", "m.jsonl"], ["info", "--model", "run"], ["convert", "run", "out"],
                      ["train", "--init-from", "run", "data.train=m.jsonl"]):
            fails(*words, cwd=root, errs=f"run: no such model file or checkpoint directory in {root}")
        # Whose paths are whole says no more.
        _, err = fails("train", root / "my.toml", errs=f"{root}/my.toml: cannot be opened: No such file or directory")
        check(err.endswith("directory\n"), err)


def test_settings_override_the_file_and_are_printed():
    with folder() as root:
        (root / "c.toml").write_text("[model]\nhidden = 8\n[training]\nepochs = 7\n")
        run("train", root / "c.toml", "model.hidden=9", "--print-config",
            says=["hidden = 9\n", "epochs = 7\n"])


def test_nothing_to_train_on():
    with folder() as root:
        fails("train", cwd=root, errs="no training data: set data.train, or data=DIR for a prepared")
        fails("train", "data=none", cwd=root, errs="none/train.jsonl: cannot be opened")
        check(not list(root.iterdir()), "left behind:", list(root.iterdir()))


main(globals())
