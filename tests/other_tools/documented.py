"""The programs of docs/other_tools.md do what the page says.

Runs in an environment with pyarrow, optuna, tensorboard and mlflow (tests/other_tools/run makes it); else like the tests of
tests/cli.
"""

import sys

sys.path.insert(0, str(__import__("pathlib").Path(__file__).resolve().parent.parent / "cli"))

import mlflow  # noqa: E402
import pyarrow  # noqa: E402
import pyarrow.parquet  # noqa: E402
from ranks_support import *  # noqa: E402,F403
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: E402
from tensorboard.util import tensor_util  # noqa: E402

PAGE = pathlib.Path(__file__).resolve().parent.parent.parent / "docs" / "other_tools.md"
PROGRAMS = dict(re.findall(r"^```python\n# (\S+\.py)\b(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL))


def run_program(name, *words, cwd, **variables):
    """What a program of the page writes."""
    (cwd / name).write_text("# " + PROGRAMS[name], encoding="utf-8")
    path = f"{pathlib.Path(RONDO).resolve().parent}:{os.environ['PATH']}"
    done = subprocess.run([sys.executable, name, *map(str, words)], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=TIMEOUT, env=dict(os.environ, PATH=path, **variables))
    check(done.returncode == 0, name, done.stdout, done.stderr)
    return done.stdout


def test_parquet_files_become_a_corpus():
    with folder() as root:
        tone_corpus(root, train=21, dev=9)
        texts = {}
        for part, file in (("train", "train-00000-of-00001"), ("dev", "validation-00000-of-00001"), ("test", "test-00000-of-00001")):
            lines = [json.loads(line) for line in (root / f"{part}.jsonl").read_text().splitlines()]
            texts[part] = [line["text"] for line in lines]
            names = [line["audio_filepath"] for line in lines]
            audio = [{"bytes": (root / name).read_bytes(), "path": name} for name in names]
            (root / "data").mkdir(exist_ok=True)
            pyarrow.parquet.write_table(pyarrow.table({"audio": audio, "sentence": texts[part]}), root / "data" / f"{file}.parquet")
        said = run_program("parquet_to_tar.py", "shards", "sentence", *sorted((root / "data").iterdir()), cwd=root)
        check("shards/train-00000-of-00001.tar: 21 recordings\n" in said, said)
        run("prepare", "tar", root / "mine", root / "shards", says="as the data are divided")
        for part, wanted in texts.items():
            lines = [json.loads(line) for line in (root / "mine" / f"{part}.jsonl").read_text().splitlines()]
            check([line["text"] for line in lines] == wanted, part, lines)
        train(root / "mine", root / "run", "training.max_steps=2", base=TONE)


def test_optuna_searches_for_settings():
    with folder() as root:
        tone_corpus(root, train=21, dev=9)
        (root / "tiny.toml").write_text("".join("{} = {}\n".format(*s.split("=")) for s in TONE if not s.startswith("model.hidden")))
        best = run_program("search.py", "tiny.toml", ".", 2, cwd=root).split()
        check([word.split("=")[0] for word in best] == ["optimizer.lr", "model.dropout", "model.hidden"], best)
        rates = [min(v["wer"] for v in log_of(root / "trials" / str(i), "validation")) for i in range(2)]
        config = (root / "trials" / str(rates.index(min(rates))) / "config.toml").read_text()
        check(f"hidden = {best[2].split('=')[1]}\n" in config, best, rates)


def test_logs_are_shown_by_tensorboard_and_mlflow():
    with folder() as root:
        tone_corpus(root, train=21, dev=9)
        train(root, root / "run", "training.epochs=4", "training.log_every_steps=5", base=TONE)
        validations, steps = log_of(root / "run", "validation"), log_of(root / "run", "step")
        check(len(validations) > 2 and len(steps) > 1, "nothing to show")

        run_program("to_tensorboard.py", "run", cwd=root)
        shown = EventAccumulator(str(root / "run" / "tensorboard"))
        shown.Reload()
        for tag, lines in (("step/loss", steps), ("step/lr", steps), ("validation/wer", validations)):
            found = [(e.step, float(tensor_util.make_ndarray(e.tensor_proto))) for e in shown.Tensors(tag)]
            wanted = [(line["step"], line[tag.split("/")[1]]) for line in lines]
            check([s for s, _ in found] == [s for s, _ in wanted], tag, found, wanted)
            check(all(abs(a - b) <= 1e-6 * abs(b) for (_, a), (_, b) in zip(found, wanted)), tag, found, wanted)

        store = f"sqlite:///{root}/mlflow.db"
        run_program("to_mlflow.py", "run", cwd=root, MLFLOW_TRACKING_URI=store)
        client = mlflow.MlflowClient(tracking_uri=store)
        noted, = client.search_runs(["0"])
        check(noted.data.params["optimizer.lr"] == "0.02", noted.data.params)
        found = [(m.step, m.value) for m in client.get_metric_history(noted.info.run_id, "validation.wer")]
        check(found == [(v["step"], v["wer"]) for v in validations], found)
        check([f.path for f in client.list_artifacts(noted.info.run_id)] == ["model.safetensors"], "no model")


if __name__ == "__main__":
    main(globals())
