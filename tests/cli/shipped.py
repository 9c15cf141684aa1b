"""The main job of every command, by the program as it is shipped: without the simulator (-Dsim=false -Dtests=false).

That program is linked here from the objects of the ordinary build, but for those in which the simulator shows. So
it costs little, and the first test looks whether a build of its own would compile and link the same.
"""

import re
import shlex

from cli_support import *
from line_images import LINES, line_corpus
from serve_support import server

WITH_SIM, BUILD, SOURCES = (os.environ[name] for name in ("RONDO_WITH_SIM", "RONDO_BUILD", "RONDO_SOURCE_ROOT"))
TOLD = re.compile("RONDO_WITH_SIM|RONDO_SIM_|RONDO_GPU_VARIANTS")
commands_run = set()


def output_of_tool(*words):
    done = subprocess.run([*map(str, words)], capture_output=True, text=True)
    check(done.returncode == 0, *words, done.stdout[-3000:], done.stderr[-3000:])
    return done.stdout


def inputs_of(build, program):
    """What a program is made of, objects and the archives of others, as paths in the build folder."""
    return set(output_of_tool("ninja", "-C", build, "-t", "inputs", program).splitlines())


def compiled(build, objects):
    """{(source, flags)} of these objects, the same wherever the build folder lies."""
    pairs = set()
    for entry in json.loads((pathlib.Path(build) / "compile_commands.json").read_text()):
        words, flags = shlex.split(entry["command"]), []
        output = words[words.index("-o") + 1]
        if os.path.relpath(os.path.join(entry["directory"], output), build) not in objects:
            continue
        place = lambda path: os.path.relpath(os.path.join(entry["directory"], path), build)
        source = os.path.normpath(os.path.join(entry["directory"], entry["file"]))
        name = place(source) if source.startswith(f"{os.path.realpath(build)}/") else os.path.relpath(source, SOURCES)
        words = iter(words[next(i for i, word in enumerate(words) if word.startswith("-")):])
        for word in words:
            if word in ("-o", "-MF", "-MQ", "-c"):
                next(words)
            elif not word.startswith("-I"):  # private folders of libraries, which have other names
                flags.append(word)
        pairs.add((name, tuple(flags)))
    return pairs


def text_of(source):
    """Of a source as compiled() names it, which may be one that the build writes."""
    return next(path for path in (pathlib.Path(top, source) for top in (SOURCES, BUILD)) if path.is_file()).read_text()


def test_it_is_what_a_build_without_the_simulator_makes():
    options = {o["name"]: o["value"] for o in json.loads(output_of_tool("meson", "introspect", "--buildoptions", BUILD))}
    words = [f"-D{name}={','.join(value) if isinstance(value, list) else str(value).lower() if isinstance(value, bool) else value}"
             for name, value in options.items()
             if name in ("buildtype", "optimization", "debug", "werror", "cuda", "gpu_arch", "gloo", "mpi", "serve", "cpp_args",
                         "b_sanitize", "b_lundef", "precompiled_headers")]
    with folder() as root:
        output_of_tool("meson", "setup", root / "b", SOURCES, *words, "-Dsim=false", "-Dtests=false")
        wanted = compiled(root / "b", inputs_of(root / "b", "tools/rondo"))
        libraries = {os.path.basename(path) for path in inputs_of(root / "b", "tools/rondo") if path.endswith(".cu.o")}
    objects = inputs_of(BUILD, "tools/rondo_shipped")
    check(libraries <= {os.path.basename(path) for path in objects}, libraries)
    found = compiled(BUILD, objects)
    check(len(wanted) > 300, len(wanted))
    for source, flags in sorted(wanted):
        # An object that the macro changes nothing in serves both.
        with_sim = (source, tuple(sorted({*flags, "-DRONDO_WITH_SIM"})))
        ordered = {(name, tuple(sorted(f))) for name, f in found if name == source}
        check((source, tuple(sorted(set(flags)))) in {(n, tuple(sorted(set(f)))) for n, f in ordered} or
              (with_sim in {(n, tuple(sorted(set(f)))) for n, f in ordered} and
               not TOLD.search(text_of(source))),
              source, "is compiled otherwise:", flags, "and here", ordered)
    symbols = output_of_tool("nm", "-C", RONDO)
    check(len(symbols.splitlines()) > 1000, "the program has no symbols")
    found = re.findall(r".*rondo::(?:sim::|SimDevice|sim_device).*", symbols)
    check(not found, "it has the simulator:", found[:5])


def job(*words, **more):
    commands_run.add(words[0])
    if words[0] in ("lm", "prepare"):
        commands_run.add(f"{words[0]} {words[1]}")
    return run(*words, **more)


def commands_of(*words):
    """As --help lists them."""
    listed = run(*words, "--help")[0].split("ommands:")[1].split("\n\n")[0]
    return [name for name in re.findall(r"(?m)^  ([a-z]\S*)", listed)]


def test_the_main_job_of_every_command():
    with folder() as root:
        (root / "recordings").mkdir()
        tone_corpus(root / "recordings", train=40, dev=8)
        for part in ("train", "dev"):
            for line in map(json.loads, (root / "recordings" / f"{part}.jsonl").read_text().splitlines()):
                (root / "recordings" / line["audio_filepath"]).with_suffix(".txt").write_text(line["text"])
        prepare_everything(root)
        train_and_use(root)
        language_models(root)
        lines_and_classes(root)
        plan_bench_and_info(root)
        listed = commands_of()
        check(len(listed) >= 14, listed)
        left = [name for name in [*listed, *(f"lm {name}" for name in commands_of("lm"))] if name not in commands_run]
        check(not left, "commands whose main job is not run here:", left)


def prepare_everything(root):
    job("prepare", "folder", root / "recordings", root / "mine", "--dev", 0.1, "--test", 0.1, says="train with rondo train ")
    rows = ["file,text"] + [f"{path.name},{path.with_suffix('.txt').read_text()}"
                            for path in sorted((root / "recordings").glob("*.wav"))]
    (root / "recordings" / "all.csv").write_text("\n".join(rows) + "\n")
    job("prepare", "csv", root / "recordings" / "all.csv", root / "table", "--audio-column", "file", "--text-column", "text",
        says="train with rondo train ")


def train_and_use(root):
    data, model = root / "mine", root / "run"
    words = ["train", *TONE, f"data={data}", f"training.checkpoint_dir={model}"]
    job(*words, "training.epochs=8", says=["to validate", "best model: "])
    job("train", "--resume", model, "training.epochs=12", says="continuing after")
    job("launch", "-n", 2, "--", *words, "training.epochs=2", f"training.checkpoint_dir={root}/ranks", says="best model: ")
    job("eval", model, data / "test.jsonl", "--report", root / "report.html", says="WER ")
    recording = root / "recordings" / "dev000.wav"
    text = job("transcribe", model, recording)[0].strip()
    check(text and set(text) <= set("abc "), text)
    check(job("predict", model, recording)[0].strip() == text, text)
    serve(model, recording, text)
    job("transcribe", model, recording, "--format", "npy", "--out", root / "outputs")
    (root / "tokens").write_text("\n".join(["<blank>", *json.loads(job("info", "--model", model, "--json")[0])["alphabet"]]) + "\n")
    check(job("decode", root / "tokens", root / "outputs" / "dev000.npy", "--beam", 20)[0].strip(), "nothing decoded")
    job("align", model, recording, recording.with_suffix(".txt"))
    (root / "said.jsonl").write_text(job("transcribe", model, data / "test.jsonl", "--format", "jsonl")[0])
    job("score", data / "test.jsonl", root / "said.jsonl", says="WER ")
    (root / "rates.json").write_text(job("eval", model, data / "test.jsonl", "--json")[0])
    job("card", model, "--test", root / "rates.json", says=["pipeline_tag: automatic-speech-recognition", "    - type: wer"])
    for target, form in (("model.onnx", "onnx"), ("torch.safetensors", "pytorch")):
        job("convert", model, root / target, "--to", form, says=f"{target}: a model in ")
    for device, words in (("sim", "without the simulator"), ("gpu", "is no device")):
        run("transcribe", model, recording, "--device", device, code=1 if device == "sim" else 2, errs=words)


def serve(model, recording, text):
    commands_run.add("serve")
    try:
        with server(model) as s:
            check(s.text(recording.read_bytes()) == text, text)
            s.stop()
    except Skip:  # in a build without libwebsockets it says so
        run("serve", model, code=1, errs="install libwebsockets-dev")


def language_models(root):
    data, lm = root / "mine", root / "2gram.lm"
    job("lm", "train", data / "train.jsonl", "--order", 2, "--discount-fallback", "--out", root / "2gram.arpa")
    job("lm", "build", root / "2gram.arpa", lm)
    job("lm", "query", lm, data / "test.jsonl")
    job("eval", root / "run", data / "test.jsonl", "--lm", lm, says="WER ")
    job("tune", root / "run", data / "dev.jsonl", "--lm", lm, says="best: --lm-weight")


def lines_and_classes(root):
    line_corpus(root)
    job("prepare", "lines", root / "scans", root / "lines", "--preview", root / "sheet.svg", says="lines/train.toml data=")
    train(root / "lines", root / "reader", "training.epochs=2", "features.padding=16", "features.contrast=false", "features.cmvn=none",
          base=LINES)
    job("convert", root / "reader", root / "theirs.safetensors", says="in kraken's format")
    for name in ("a", "b"):
        (root / "sounds" / name).mkdir(parents=True)
        for i in range(6):
            write_wav(root / "sounds" / name / f"{i}.wav", tone_samples(name, random.Random(i)))
    job("prepare", "classes", root / "sounds", root / "classes", says="classes/train.toml data=")
    train(root / "classes", root / "classifier", "task=classify", "training.epochs=2", base=TONE)
    check(job("predict", root / "classifier", root / "sounds" / "a" / "1.wav")[0][0] in "ab", "no class")


def plan_bench_and_info(root):
    job("completion", "bash", says="complete -o filenames -F _rondo rondo")
    # What is predicted of GPUs does not depend on what is simulated here.
    for words in ([], ["model.hidden=1024", "model.layers=5", "training.dtype=bf16", "data.batch_frames=256000", "--devices", 16],
                  ["parallel.pipeline=2", "parallel.sequence=2", "--as-configured", "--timeline", root / "t.svg"]):
        out = job("plan", *words, says=["x h200", "GB each"])[0]
        check(out == run("plan", *words, program=WITH_SIM)[0], words, "is predicted otherwise:", out)
    # CPUs, as --measure writes them, which takes long on a busy machine.
    cost = dict.fromkeys(["launch", "step", "operation", "byte", "step_byte"], 1e-10)
    (root / "machine.json").write_text(json.dumps({
        "device": {"name": "cpu (1 thread)", "memory_bytes": 1e12, "cores": 4, "threads": 1, "rates": {"other/f32": cost}},
        "link": {"name": "shared memory", "latency": 1e-6, "bandwidth": 1e10}}))
    cpus = ["plan", *TONE, f"data={root}/mine", "--device", root / "machine.json", "--devices", 2]
    job(*cpus, says="2 x cpu (1 thread), shared memory")
    job("bench", "softmax", "--seconds", 0.001, says="softmax")
    fails("bench", "softmax", "--backend", "sim", errs="--backend sim: this program was built without the simulator")
    job("bench", "links", "--transport", "threads", "--ranks", 2, says="latency")
    job("info", says="cpu: ")
    check("sim" not in {line.split()[0] for line in job("info", "--kernels")[0].splitlines() if "chosen" in line}, "info")


main(globals())
