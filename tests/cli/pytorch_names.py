"""rondo convert --to pytorch and back: names and shapes, the same weights after both ways, and what is refused.

That PyTorch computes the same is tests/pytorch."""

from bad_input_support import *


def converted(root):
    run("convert", root / "run", root / "torch.safetensors", "--to", "pytorch", says="in PyTorch's format")
    return read_safetensors(root / "torch.safetensors")


def test_names_and_shapes():
    with folder() as root:
        feature_corpus(root, "ctc", train=6, dev=3)
        (root / "model.toml").write_text("""
[[model.layer]]
type = "conv"
channels = 8
kernel = 3
[[model.layer]]
type = "relu"
[[model.layer]]
type = "lstm"
hidden = 5
layers = 2
projection = 3
dropout = 0.1
[[model.layer]]
type = "dropout"
[[model.layer]]
type = "layer_norm"
""")
        base = [s for s in READY if not s.startswith("model.")]
        run("train", root / "model.toml", *base, f"data={root}", f"training.checkpoint_dir={root}/run", "training.max_steps=2")
        tensors, metadata = converted(root)
        want = {"layers.0.weight": [8, 6, 3], "layers.0.bias": [8], "layers.3.weight": [6], "layers.3.bias": [6],
                "output.weight": [4, 6], "output.bias": [4]}
        for number, columns in ((1, 8), (2, 6)):
            for suffix in ("", "_reverse"):
                of = lambda part: f"layers.{number}.{part}_l0{suffix}"
                want.update({of("weight_ih"): [20, columns], of("weight_hh"): [20, 3], of("weight_hr"): [3, 5],
                             of("bias_ih"): [20], of("bias_hh"): [20]})
        check({name: shape for name, (shape, _) in tensors.items()} == want, want, tensors.keys())
        check(not any(tensors["layers.1.bias_hh_l0"][1]), "a second bias")
        own, _ = read_safetensors(root / "run" / "model.safetensors")
        check(tensors["layers.1.bias_ih_l0"][1] == own["lstm2.0.bias"][1], "the first bias")
        layers = json.loads(metadata["layers"])
        check(metadata["format"] == "pt" and [l["type"] for l in layers] ==
              ["conv", "relu", "lstm", "dropout", "lstm", "dropout", "layer_norm", "linear"], layers)
        check([(l["name"], l["input"]) for l in layers if "name" in l] ==
              [("layers.0", 6), ("layers.1", 8), ("layers.2", 6), ("layers.3", 6), ("output", 6)], layers)
        # Back, with and without a model to be like.
        for like in ([], ["--like", root / "run"]):
            run("convert", root / "torch.safetensors", root / "back.safetensors", *like, says="in rondo's format")
            back, _ = read_safetensors(root / "back.safetensors")
            check(back == own, back.keys(), own.keys())
        run("eval", root / "back.safetensors", root / "dev.jsonl", says="WER")


def test_both_biases_are_added():
    with folder() as root:
        feature_corpus(root, "ctc", train=6, dev=3)
        train(root, root / "run", "training.max_steps=2")
        tensors, metadata = converted(root)
        shape, bias = tensors["layers.0.bias_ih_l0"]
        half = array.array("f", [0.25] * shape[0])
        first = array.array("f", bias)
        write_safetensors(root / "torch.safetensors", {**tensors, "layers.0.bias_hh_l0": (shape, half.tobytes())}, metadata)
        run("convert", root / "torch.safetensors", root / "back.safetensors")
        back, _ = read_safetensors(root / "back.safetensors")
        want = array.array("f", [a + 0.25 for a in first])
        check(array.array("f", back["lstm0.0.bias"][1]) == want, "sums")


def write_safetensors(path, tensors, metadata):
    header, data = {"__metadata__": metadata} if metadata else {}, b""
    for name, (shape, values) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def test_what_is_refused():
    with folder() as root:
        feature_corpus(root, "ctc", train=6, dev=3)
        train(root, root / "run", "training.max_steps=1")
        tensors, metadata = converted(root)
        file, out = root / "wrong.safetensors", root / "out.safetensors"
        write_safetensors(file, tensors, {})
        fails("convert", file, out, errs="wrong.safetensors: ")
        run("convert", file, out, "--like", root / "run")
        write_safetensors(file, {k: v for k, v in tensors.items() if k != "layers.0.bias_hh_l0"}, metadata)
        fails("convert", file, out, errs=["wrong.safetensors: ", "layers.0.bias_hh_l0"])
        write_safetensors(file, {**tensors, "layers.7.weight": ([1], b"\0\0\0\0")}, metadata)
        fails("convert", file, out, errs=["wrong.safetensors: ", "layers.7.weight"])
        shape, values = tensors["output.weight"]
        write_safetensors(file, {**tensors, "output.weight": (shape[::-1], values)}, metadata)
        fails("convert", file, out, errs=["wrong.safetensors: ", "output.weight"])
        fails("convert", root / "run", out, "--like", root / "run", errs=["run: has no weights by PyTorch's names"])
        fails("convert", root / "torch.safetensors", out, "--to", "kraken", errs=["is of another program"])
        fails("convert", root / "torch.safetensors", root / "run" / "model.safetensors", "--like", root / "run",
              errs="would overwrite")
        run("convert", root / "run", out, "--to", "keras", code=2, errs="--to")


main(globals())
