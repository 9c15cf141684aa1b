"""rondo convert --to int8: a model of a quarter of the size, whose outputs have the same bits on every processor."""

from bad_input_support import *

LAYERS = """
[[model.layer]]
type = "conv"
channels = 24
kernel = 3
context = "past"
[[model.layer]]
type = "relu"
[[model.layer]]
type = "lstm"
hidden = 40
layers = 2
bidirectional = false
[[model.layer]]
type = "lstm"
hidden = 24
projection = 16
bidirectional = false
"""


def with_layers(root, settings):
    (root / "model.toml").write_text(LAYERS)
    return [root / "model.toml", *[s for s in settings if not s.startswith("model.")], f"data={root}"]


def test_the_same_everywhere():
    with folder() as root:
        feature_corpus(root, "regress", train=12, dev=4)
        run("train", *with_layers(root, READY), "task=regress", "model.pooling=last", f"training.checkpoint_dir={root}/run",
            "training.max_steps=5")
        small = root / "small.safetensors"
        run("convert", root / "run", small, "--to", "int8", says="in rondo's format, with weights of 8 bits")
        values = lambda model, **more: run("predict", model, root / "dev.jsonl", **more)[0]
        check(values(small, env={**os.environ, "RONDO_ISA": "generic"}) == values(small), "other instructions, other results")
        check(values(small) != values(root / "run"), "8 bits make no difference")
        large, own = read_safetensors(root / "run" / "model.safetensors"), read_safetensors(small)
        size = lambda model: sum(len(data) for _, data in model[0].values())
        check(size(own) < 0.3 * size(large), size(own), size(large))
        check(own[1]["weights"] == "int8" and "weights" not in large[1], own[1].keys())
        first = small.read_bytes()
        run("convert", root / "run", small, "--to", "int8")
        check(small.read_bytes() == first, "written twice, two files")


def test_what_reads_models_reads_it():
    with folder() as root:
        tone_corpus(root, train=40, dev=6)
        settings = [*with_layers(root, TONE), "features.cmvn=global"]
        run("train", *settings, f"training.checkpoint_dir={root}/run", "training.max_steps=60")
        small = root / "small.safetensors"
        run("convert", root / "run", small, "--to", "int8")
        text = run("transcribe", small, root / "dev.jsonl")[0]
        check(run("transcribe", small, root / "dev.jsonl", "--stream", "--end-silence", "0")[0] == text, "streamed")
        run("info", "--model", small, says="weights of 8 bits")
        rates = [json.loads(run("eval", model, root / "dev.jsonl", "--json")[0])["all"]["cer"]
                 for model in (root / "run", small)]
        check(abs(rates[0] - rates[1]) < 0.05, rates)
        run("convert", small, root / "torch.safetensors", "--to", "pytorch")
        run("train", *settings, "--init-from", small, f"training.checkpoint_dir={root}/tuned", "training.max_steps=2")
        check("weights" not in read_safetensors(root / "tuned" / "model.safetensors")[1], "a tuned model is of f32 again")
        fails("convert", small, root / "again.safetensors", "--to", "int8", errs="has weights of 8 bits already")


def test_damage():
    with folder() as root:
        feature_corpus(root, "ctc", train=6, dev=3)
        train(root, root / "run", "training.max_steps=1")
        small = root / "small.safetensors"
        run("convert", root / "run", small, "--to", "int8")
        data = bytearray(small.read_bytes())
        data[-1] ^= 1
        small.write_bytes(data)
        fails("transcribe", small, root / "dev.jsonl", errs="is damaged")


main(globals())
