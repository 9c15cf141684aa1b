#!/usr/bin/env python3
"""Text lines beside Tesseract and PyTorch: transcription of the same images, and training of the same nets.

    bench/peers/lines_peer.py --model run/model.safetensors --manifest mine/dev.jsonl
    bench/peers/lines_peer.py --model run/model.safetensors --manifest mine/dev.jsonl --train mine/train.jsonl

Without --model it is skipped. Tesseract reads with --language (Fraktur), of its own folder of models or of --tessdata, as single
lines (--psm 13), on one thread, all images in one call; ours on one thread as well. Both pay for their start and for reading PNG. Seconds are processor time,
the median of --rounds rounds, in which the programs take turns. CER is strict: characters as in the manifest, outer spaces
aside; "between the two" are the edits from one program's texts to the other's, of a model that rondo convert made of
Tesseract's. With --train, ours and Tesseract's lstmtraining train the net --net from scratch on the first --train-lines lines:
lines per second of processor time, without the start (Tesseract's data are prepared by itself first; that is not counted).
Then ours and PyTorch train kraken's default net for lines 48 high: PyTorch on batches of 8 lines of neighbouring widths, of
random pixels, nothing read or distorted, in f32 and under autocast to bf16; ours reads the images, and has batches of as many
columns. Debian has tesseract-ocr and tesseract-ocr-script-frak. Programs that are missing are said to be.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import common

# As Tesseract's usual net for lines 48 high, but for Lfx96 Lrx96 in the middle: an LSTM that reads backwards alone is none of ours.
NET = "Ct3,3,16 Mp3,3 Lfys64 Lbx96 Lfx384"
# kraken's default for lines 48 high.
KRAKEN = ("Cr3,13,32 Do0.1,2 Mp2,2 Cr3,13,32 Do0.1,2 Mp2,2 Cr3,9,64 Do0.1,2 Mp2,2 Cr3,9,64 Do0.1,2 S1(1x0)1,3 "
          "Lbx200 Do0.1,2 Lbx200 Do0.1,2 Lbx200 Do0.5")
HEIGHT, BATCH = 48, 8  # rows; lines of a batch beside PyTorch


def timed(command, out=None, **options):
    """Processor seconds of a program and what it started, and what it printed."""
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen([str(c) for c in command], stdout=out or said, stderr=said, text=True,
                                   env=dict(os.environ, OMP_THREAD_LIMIT="1", RONDO_DEVICE="cpu"), **options)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        text = said.read()
    if process.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit {process.returncode}\n{text[-2000:]}")
    return usage.ru_utime + usage.ru_stime, text


def edits(reference, hypothesis):
    row = list(range(len(hypothesis) + 1))
    for i, a in enumerate(reference, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(hypothesis, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]


def error_rate(lines, texts):
    if len(texts) != len(lines):
        sys.exit(f"{len(texts)} texts for {len(lines)} lines")
    errors = sum(edits(line["text"].strip(), text.strip()) for line, text in zip(lines, texts))
    return errors / sum(len(line["text"].strip()) for line in lines)


def read_lines(path, limit=None):
    lines = [json.loads(line) for line in open(path, encoding="utf-8") if line.strip()][:limit]
    for line in lines:
        line["image_filepath"] = str((pathlib.Path(path).parent / line["image_filepath"]).resolve())
    return lines


def models_of(args):
    return ["--tessdata-dir", args.tessdata] if args.tessdata else []


def tesseract_texts(args, lines, root):
    (root / "images.txt").write_text("".join(line["image_filepath"] + "\n" for line in lines))
    seconds, _ = timed(["tesseract", root / "images.txt", root / "read", "-l", args.language, "--psm", "13", "--dpi", "300",
                        *models_of(args)])
    pages = (root / "read.txt").read_text(encoding="utf-8").split("\f")  # which stands between them
    return seconds, [" ".join(page.split()) for page in pages]


def our_texts(rondo, model, manifest, root):
    out = root / "ours.jsonl"
    with out.open("w") as file:
        seconds, _ = timed([rondo, "transcribe", model, manifest, "--threads", 1, "--format", "jsonl"], out=file)
    return seconds, [json.loads(line)["text"] for line in out.open(encoding="utf-8")]


def transcription(args, root):
    lines = read_lines(args.manifest)
    readers = {"ours": lambda: our_texts(args.rondo, args.model, args.manifest, root),
               f"tesseract {args.language}": lambda: tesseract_texts(args, lines, root)}
    seconds, rates, found = {name: [] for name in readers}, {}, {}
    for _ in range(args.rounds):
        for name, read in readers.items():
            taken, texts = read()
            seconds[name].append(taken)
            rates[name] = error_rate(lines, texts)
            found[name] = texts
    rows = []
    for name in readers:
        taken = statistics.median(seconds[name])
        rows.append({"task": "transcription", "program": name, "lines": len(lines), "cpu_seconds": seconds[name],
                     "lines_per_cpu_second": round(len(lines) / taken, 2), "cer": rates[name],
                     "apart": sum(map(edits, *found.values())) / sum(map(len, texts))})
    return rows


def our_training(args, root, net, dtype):
    """Processor seconds of a pass over the lines: of three less those of one, so without the start and the last file."""
    lines = read_lines(args.train, args.train_lines)
    manifest = root / "train.jsonl"
    manifest.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    columns = sum(scaled_width(line) for line in lines)
    config = root / "net.toml"
    config.write_text(f'[features]\ntype = "image"\nheight = {HEIGHT}\n[model]\nvgsl = "[1,{HEIGHT},0,1 {net}]"\n'
                      f'[training]\ndtype = "{dtype}"\n[data]\nbatch_frames = {BATCH * columns // len(lines)}\n')
    taken = []
    for epochs in (1, 3):
        run = root / "run"
        seconds, _ = timed([args.rondo, "train", config, f"data.train={manifest}", "data.dev=", "data.test=", "training.threads=1",
                            f"training.epochs={epochs}", f"training.checkpoint_dir={run}"])
        shutil.rmtree(run)
        taken.append(seconds)
    return (taken[1] - taken[0]) / 2


def scaled_width(line):
    width, height = png_size(line["image_filepath"])
    return round(width * HEIGHT / height) + 16  # ours adds 8 columns of paper at each end


def torch_net(torch, classes):
    """KRAKEN as modules; what they make of [lines, 1, height, columns] and widths is [columns / 8, lines, classes], widths / 8."""
    nn, channels = torch.nn, 1
    images = nn.Sequential()
    for rows, columns, out, pools in ((3, 13, 32, True), (3, 13, 32, True), (3, 9, 64, True), (3, 9, 64, False)):
        images.extend([nn.Conv2d(channels, out, (rows, columns), padding=(rows // 2, columns // 2)), nn.ReLU(), nn.Dropout2d(0.1)])
        if pools:
            images.append(nn.MaxPool2d(2, 2))
        channels = out
    lstm = nn.LSTM(channels * (HEIGHT // 8), 200, num_layers=3, bidirectional=True, dropout=0.1)
    output = nn.Linear(400, classes)

    def forward(x, widths):
        y = images(x).flatten(1, 2).permute(2, 0, 1)
        packed = nn.utils.rnn.pack_padded_sequence(y, widths // 8, enforce_sorted=False)
        y, _ = nn.utils.rnn.pad_packed_sequence(lstm(packed)[0])
        return output(nn.functional.dropout(y, 0.5)).log_softmax(-1)
    parameters = [p for module in (images, lstm, output) for p in module.parameters()]
    return forward, parameters


def torch_training(args, torch, dtype):
    """Processor seconds of a pass over lines of these widths, in batches of neighbouring ones."""
    torch.set_num_threads(1)
    lines = sorted(read_lines(args.train, args.train_lines), key=scaled_width)
    classes = 1 + len({c for line in lines for c in line["text"]})
    forward, parameters = torch_net(torch, classes)
    optimizer = torch.optim.AdamW(parameters, lr=1e-3)

    def step(batch):
        widths = torch.tensor([scaled_width(line) for line in batch])
        lengths = torch.tensor([len(line["text"]) for line in batch])
        targets = torch.randint(1, classes, (int(lengths.sum()),))
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
            scores = forward(torch.rand(len(batch), 1, HEIGHT, int(widths.max())), widths)
        torch.nn.functional.ctc_loss(scores.float(), targets, widths // 8, lengths, zero_infinity=True).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 5)
        optimizer.step()

    batches = [lines[i:i + BATCH] for i in range(0, len(lines), BATCH)]
    step(batches[-1])
    begin = time.process_time()
    for batch in batches:
        step(batch)
    return time.process_time() - begin


def prepare_tesseract(args, root):
    """Lines, characters and an empty model as lstmtraining wants them."""
    lines, files, texts = read_lines(args.train, args.train_lines), [], root / "texts"
    texts.write_text("".join(line["text"] + "\n" for line in lines), encoding="utf-8")
    for i, line in enumerate(lines):
        base = root / f"line{i:05d}"
        shutil.copy(line["image_filepath"], base.with_suffix(".png"))
        width, height = png_size(base.with_suffix(".png"))
        base.with_suffix(".box").write_text(f"WordStr 0 0 {width} {height} 0 #{line['text']}\n\t {width} 0 {width + 1} {height} 0\n",
                                            encoding="utf-8")
        timed(["tesseract", base.with_suffix(".png"), base, "--psm", "13", "--dpi", "300", "lstm.train"])
        files.append(str(base.with_suffix(".lstmf")))
    (root / "files").write_text("\n".join(files) + "\n")
    timed(["unicharset_extractor", "--output_unicharset", root / "unicharset", "--norm_mode", "1", texts])
    (root / "radical-stroke.txt").write_text("1\t1 1\n")
    timed(["combine_lang_model", "--input_unicharset", root / "unicharset", "--script_dir", root, "--output_dir", root, "--lang", "lines",
           "--pass_through_recoder"])


def tesseract_training(args, root):
    """The same of lstmtraining; one line is one of its iterations."""
    taken = []
    for epochs in (1, 2):
        seconds, _ = timed(["lstmtraining", "--traineddata", root / "lines/lines.traineddata", "--net_spec", f"[1,48,0,1 {args.net} O1c1]",
                            "--model_output", root / f"net{time.monotonic_ns()}", "--train_listfile", root / "files", "--learning_rate", "1e-4",
                            "--max_iterations", epochs * args.train_lines])
        taken.append(seconds)
    return taken[1] - taken[0]


def png_size(path):
    header = pathlib.Path(path).read_bytes()[16:24]
    return int.from_bytes(header[:4], "big"), int.from_bytes(header[4:], "big")


def training(args, root):
    trainers = [("ours, bf16", args.net, lambda: our_training(args, root, args.net, "bf16"))]
    if all(map(shutil.which, ("lstmtraining", "combine_lang_model", "unicharset_extractor"))):
        prepare_tesseract(args, root)
        trainers.append(("lstmtraining", args.net, lambda: tesseract_training(args, root)))
    else:
        print("skipped: lstmtraining is not installed")
    try:
        import torch
    except ImportError as error:
        print(f"skipped: {error}")
    else:
        for dtype in ("f32", "bf16"):
            trainers.append((f"ours, {dtype}", KRAKEN, lambda dtype=dtype: our_training(args, root, KRAKEN, dtype)))
            trainers.append((f"PyTorch {torch.__version__}, {dtype}", KRAKEN, lambda dtype=dtype: torch_training(args, torch, dtype)))
    rows = []
    for name, net, train in trainers:
        seconds = statistics.median(train() for _ in range(args.rounds))
        rows.append({"task": "training", "program": name, "net": net, "lines": args.train_lines, "cpu_seconds": round(seconds, 2),
                     "lines_per_cpu_second": round(args.train_lines / seconds, 2)})
    return rows


def skip(words):
    print(f"skipped: {words}")
    sys.exit(common.SKIP)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rondo", default=common.ROOT / "build/tools/rondo", type=pathlib.Path)
    parser.add_argument("--model")
    parser.add_argument("--manifest")
    parser.add_argument("--language", default="Fraktur", help="a model of Tesseract, as it lists them")
    parser.add_argument("--tessdata", metavar="FOLDER", help="where the model of Tesseract lies")
    parser.add_argument("--train", metavar="MANIFEST")
    parser.add_argument("--train-lines", type=int, default=100)
    parser.add_argument("--net", default=NET, help="what stands in VGSL between the input and the output")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, help="ignored: both have one")
    parser.add_argument("--seconds", type=float, help="ignored: a round reads all lines once")
    parser.add_argument("--json", action="store_true", help="bench/results/<...>.json as well")
    args = parser.parse_args()
    if not args.train and not (args.model and args.manifest):
        skip("--model and --manifest name what is read, --train what is trained on")
    if not shutil.which("tesseract"):
        skip("tesseract is not installed")
    if args.model and args.language not in subprocess.run(["tesseract", "--list-langs", *models_of(args)], capture_output=True,
                                                            text=True).stdout.split():
        skip(f"tesseract has no {args.language} (tesseract-ocr-script-frak)")
    rows = []
    with tempfile.TemporaryDirectory(prefix="rondo-lines-peer-") as folder:
        if args.model:
            rows += transcription(args, pathlib.Path(folder))
        if args.train:
            rows += training(args, pathlib.Path(folder))
    for row in rows:
        print(f"{row['task']:<14} {row['program']:<30} {row['lines']:5d} lines  {row['lines_per_cpu_second']:9.2f} lines per processor "
              f"second" + (f"  CER {100 * row['cer']:.2f} %, {100 * row['apart']:.2f} % between the two" if "cer" in row else ""))
    if args.json:
        print(common.write_json("lines-peers", rows, threads=1))


if __name__ == "__main__":
    main()
