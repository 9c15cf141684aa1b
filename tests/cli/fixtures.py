"""Models and runs that programs before this one wrote: they are read, evaluated and gone on with ever after."""

import pathlib
import sys

from cli_support import *

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "fixtures"))
from make_run import FOLDER, dev_loss, go_on, unpack  # noqa: E402

# Whose results hang on which rank came first.
OUT_OF_STEP = ("async",)
# Made with what is no more; they go on in another way.
NO_MORE = ("local", "block")


def near(found, expected, what):
    # Another processor, or another number of threads, adds in another order.
    check(abs(found - expected) <= 1e-3 * abs(expected), what, found, "expected", expected)


def each_fixture():
    files = sorted(FOLDER.glob("*.tar.xz"))
    check(len(files) >= 20, "fixtures are missing")
    for file in files:
        with folder() as root:
            unpack(file, root)
            yield file.name.split(".")[0], root, json.loads((root / "fixture.json").read_text())


def test_models_are_read():
    for name, root, about in each_fixture():
        run("info", "--model", "run", says="output.weight", cwd=root)
        near(dev_loss(root), about["loss"], f"{name}: the loss is")


def test_what_is_no_more_is_told():
    for name, key, value in (("local", "parallel.sync", '"local"'), ("block", "parallel.outer_lr", "0.9"),
                             ("every_setting", "training.weights_beside", "true"),
                             ("interleaved", "parallel.schedule", '"interleaved"'), ("interleaved", "parallel.chunks", "2")):
        with folder() as root:
            unpack(FOLDER / f"{name}.tar.xz", root)
            words = ["train", *json.loads((root / "fixture.json").read_text())["flags"], "--resume", "run"]
            run(*words, "training.max_steps=9", cwd=root,
                says=["warning: a setting of the run so far is ignored: ", f"{key} = {value} is no more: "])
            # Its own settings do not say it any more.
            run(*words, "training.max_steps=10", cwd=root, not_says="is ignored")
            fails(*words, f"{key}={value}", cwd=root, errs="is no more")


def test_names_of_before_are_read_and_those_of_now_written():
    for name, before, now in (("one_rank", "[schedule]", "[lr]"),
                              ("divided_optimizer", "shard_optimizer = true", "divide_optimizer = true"),
                              ("elastic", "virtual_shards = 4", "batch_parts = 4")):
        with folder() as root:
            unpack(FOLDER / f"{name}.tar.xz", root)
            settings = root / "run" / "config.toml"
            check(before in settings.read_text(), name, "was not written by an earlier program")
            flags = json.loads((root / "fixture.json").read_text())["flags"]
            # An override of either name is one of the run's setting.
            go_on(root, flags, "schedule.warmup_steps=201", "lr.final_factor=0.5")
            written = settings.read_text()
            check(now in written and before not in written, name, written)
            check("warmup_steps = 201" in written and "final_factor = 0.5" in written, name, written)
            text = (root / "run" / "model.safetensors").read_bytes()
            check(now.encode() in text and before.encode() not in text, name)


def test_runs_go_on():
    for name, root, about in each_fixture():
        later = go_on(root, about["flags"])
        if name in OUT_OF_STEP + NO_MORE:
            check(later < about["loss"], f"{name}: the loss rises from", about["loss"], "to", later)
        else:
            near(later, about["loss_later"], f"{name}: after three more updates the loss is")


main(globals())
