"""What a command reads is not lost by what it writes: outputs that are inputs are refused."""

from cli_support import *


def refused(*words, keeps, errs, **more):
    """Fails with one sentence, and leaves the bytes of these files as they are."""
    before = [file.read_bytes() for file in keeps]
    fails(*words, errs=errs, **more)
    for file, content in zip(keeps, before, strict=True):
        check(file.read_bytes() == content, file, "has changed")


def test_of_transcribing_and_evaluating():
    with folder() as root:
        tone_corpus(root, train=4, dev=2)
        run_dir, manifest, recording = root / "run", root / "dev.jsonl", root / "dev000.wav"
        train(root, run_dir, "training.max_steps=1", base=TONE)
        model = run_dir / "model.safetensors"
        (root / "link.svg").symlink_to(recording)
        for picture in (recording, root / "link.svg", root / "." / "run" / ".." / "dev000.wav"):
            refused("transcribe", run_dir, recording, "--picture", picture, keeps=[recording],
                    errs=["--picture: ", "would overwrite the recording", "expected another file"])
        refused("transcribe", run_dir, recording, "--picture", model, keeps=[model],
                errs=["--picture: ", "would overwrite a file of the model"])
        shutil.copy(recording, root / "sound.npy")
        refused("transcribe", run_dir, root / "sound.npy", "--format", "npy", "--out", root,
                keeps=[root / "sound.npy"], errs=["--out: ", "sound.npy' would overwrite the features"])
        refused("transcribe", run_dir, recording, "--format", "npy", "--out", root, "--picture",
                root / "dev000.npy", keeps=[], errs=["would both be written to", "dev000.npy"])
        for file, kind in [(manifest, "the manifest"), (recording, "the recording"),
                           (model, "a file of the model"), (run_dir / "log.jsonl", "a file of the model")]:
            refused("eval", run_dir, manifest, "--hypotheses", file, keeps=[file],
                    errs=[f"--hypotheses: '{file}' would overwrite {kind}"])
        # What an earlier command wrote may be replaced, in the directory of the model too.
        for _ in range(2):
            run("eval", run_dir, manifest, "--hypotheses", run_dir / "hypotheses.jsonl")
            run("transcribe", run_dir, recording, "--picture", root / "picture.svg")


def test_of_training():
    with folder() as root:
        feature_corpus(root, "ctc", train=6, dev=3)
        run_dir, manifest = root / "run", root / "train.jsonl"
        notes, settings = root / "notes.txt", run_dir / "config.toml"
        notes.write_text("not a log\n")
        run_dir.mkdir()
        settings.write_text("# mine\n[training]\nmax_steps = 2\n")
        features = root / "train002.npy"
        words = ["train", *READY, f"data={root}", f"training.checkpoint_dir={run_dir}"]
        refused(*words, f"training.log={manifest}", keeps=[manifest],
                errs=["training.log: ", "would overwrite the manifest of data.train"])
        refused(*words, f"training.log={notes}", keeps=[notes], errs=[str(notes), "no log of a training run"])
        refused(*words, f"training.log={run_dir}/model.safetensors", keeps=[],
                errs=["training.log and the best model would both be written to"])
        refused(*words, "--timeline", manifest, keeps=[manifest],
                errs=["--timeline: ", "would overwrite the manifest of data.train"])
        refused(*words, "--timeline", features, keeps=[features],
                errs=["--timeline: ", "would overwrite the features"])
        refused(words[0], settings, *words[1:], keeps=[settings],
                errs=["the settings: ", "would overwrite the configuration"])
        settings.rename(root / "mine.toml")
        refused(words[0], root / "mine.toml", *words[1:], f"training.log={root}/mine.toml",
                keeps=[root / "mine.toml"], errs=["training.log: ", "would overwrite the configuration"])
        run(words[0], root / "mine.toml", *words[1:])
        # A run that goes on appends to its log, and may be given the settings that it wrote.
        lines = len((run_dir / "log.jsonl").read_text().splitlines())
        run("train", settings, "training.max_steps=3", "--resume", says="trained 3 steps")
        check(len((run_dir / "log.jsonl").read_text().splitlines()) > lines, "the log has not grown")
        model = run_dir / "model.safetensors"
        refused("train", *READY, f"data={root}", f"training.checkpoint_dir={root}/b", "--init-from",
                run_dir, "--timeline", model, keeps=[model], errs=["a file of training.init_from"])
        check(not (root / "b").exists(), "left behind")


def test_of_planning():
    with folder() as root:
        settings = root / "mine.toml"
        settings.write_text("# mine\n[model]\nhidden = 64\nlayers = 1\n")
        for option in ("--write", "--timeline"):
            refused("plan", settings, "--lengths", "5", "--devices", 2, option, settings, keeps=[settings],
                    errs=[f"{option}: ", "would overwrite the configuration"])


main(globals())
