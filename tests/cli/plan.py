"""rondo plan: its ranking, the configurations it writes, which train, and what it says about wrong input."""

import os
import re
import resource
import xml.etree.ElementTree

from cli_support import *

LARGE = ["model.hidden=1024", "model.layers=5", "training.dtype=bf16", "data.batch_frames=256000"]


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def splits(out):
    """(data, pipeline, sequence) by place, and milliseconds."""
    rows = re.findall(r"^ +\d+ +(\d+) x +(\d+) x +(\d+)  .{16} +([\d.]+)", out, re.M)
    return [tuple(map(int, row[:3])) for row in rows], [float(row[3]) for row in rows]


def test_ranking_of_eight_gpus_in_two_seconds():
    # It is a core's time: what else the machine does counts little.
    began = cpu_seconds()
    out, _ = run("plan", *LARGE, "--devices", 8, says=["All figures are predicted", "8 x h200, nvlink"])
    took = cpu_seconds() - began
    check(took < 2 or is_sanitized(), f"{took:.1f} s")
    found, times = splits(out)
    check(len(found) == len(set(found)) == 9, found)
    check(all(d * p * s == 8 for d, p, s in found), found)
    check(times == sorted(times), times)
    run("plan", *LARGE, "--devices", 16, says="within nodes, between them infiniband")


def test_a_predicted_update_is_drawn():
    """One replica's ranks, however many there are."""
    with folder() as root:
        file = root / "update.svg"
        for devices, settings, ranks, title in [
            (8, ["parallel.pipeline=4", "parallel.schedule=zero_bubble", "parallel.micro_batches=8"], 4,
             "predicted: data 2 x pipeline 4 x sequence 1, zero_bubble, 8 micro-batches; one of 2 replicas"),
            (1024, ["parallel.pipeline=2", "parallel.sequence=2", "parallel.micro_batches=2",
                    "data.batch_frames=1024000"], 4,
             "predicted: data 256 x pipeline 2 x sequence 2, 1f1b, 2 micro-batches; one of 256 replicas"),
            (3, ["parallel.sequence=3"], 3, "predicted: data 1 x pipeline 1 x sequence 3, 1 micro-batch"),
            (2, ["training.accumulation=3"], 1,
             "predicted: data 2 x pipeline 1 x sequence 1, 3 micro-batches; one of 2 replicas"),
        ]:
            out, _ = run("plan", *LARGE, *settings, "--devices", devices, "--as-configured", "--timeline", file,
                         says=[f"{file}: drawn, "])
            picture = xml.etree.ElementTree.parse(file).getroot()
            texts = [e.text for e in picture.iter("{http://www.w3.org/2000/svg}text")]
            check(picture.tag.endswith("}svg") and texts[0] == title, texts[:1])
            rows = [t for t in texts if t.startswith("rank ")]
            check(rows == [f"rank {r}" for r in range(ranks)], rows)
            # The rest are the update of the weights and small sums, which take long on many devices.
            drawn = float(re.search(r"gradients are summed: ([\d.]+) ms", out)[1])
            least = 0.9 if devices <= 8 else 0.4
            check(least * splits(out)[1][0] < drawn < splits(out)[1][0], out)
        # Without --as-configured it is the first of the ranking.
        out, _ = run("plan", *LARGE, "--timeline", file)
        best = " x ".join(f"{name} {n}" for name, n in zip(["data", "pipeline", "sequence"], splits(out)[0][0]))
        check(f"predicted: {best}" in file.read_text(), best)
        # Before anything is planned.
        for path, text in [(root / "no" / "t.svg", "no is not a directory"), (root, "is a directory, not a file")]:
            out, _ = fails("plan", *LARGE, "--timeline", path, errs=text)
            check(out == "", out)
        fails("plan", *LARGE, "--timeline", file, "--write", file, errs="--timeline")
        if os.geteuid() != 0:
            (root / "shut").mkdir(mode=0o500)
            fails("plan", *LARGE, "--timeline", root / "shut" / "t.svg", errs="Permission denied")


def machine():
    """A machine whose nodes cost next to nothing but their arithmetic."""
    free = dict.fromkeys(["launch", "step", "operation", "byte", "step_byte"], 0)
    rates = {f"{op}/f32": {**free, "operation": 1e-9} for op in ["lstm", "lstm_backward", "lstm_weight_grad"]}
    rates["other/f32"] = free
    return {"device": {"name": "made up", "memory_bytes": 1e12, "cores": 16, "threads": 1, "rates": rates},
            "link": {"name": "made up", "latency": 0, "bandwidth": 1e12}}


def test_links_are_measured_and_planned_with():
    with folder() as root:
        for transport, ranks in [("threads", 2), ("tcp", 3)]:
            file = root / f"{transport}.json"
            out, _ = run("bench", "links", "--transport", transport, "--ranks", ranks, "--out", file,
                         says=[f"{transport} ({ranks} ranks): latency", "a step of its rings: latency", f"{file}: for"])
            check(len(re.findall(r"^(message|ring) +\d+ +[\d.]+ +[\d.]+ +[\d.]+$", out, re.M)) == 12, out)
            link = json.loads(file.read_text())["link"]
            check(0 <= link["latency"] < 1 and link["bandwidth"] > 0 and link["ring"]["bandwidth"] > 0, link)
            run("plan", "model.hidden=64", "--link", file, "--devices", 2, says=f"2 x h200, {transport} ({ranks} ranks)")
        # Slow links show.
        slow = {"link": {"name": "slow", "latency": 1, "bandwidth": 1e9}}
        (root / "slow.json").write_text(json.dumps(slow))
        _, fast = splits(run("plan", "model.hidden=64", "--devices", 2)[0])
        _, times = splits(run("plan", "model.hidden=64", "--devices", 2, "--link", root / "slow.json")[0])
        check(min(times) > 1000 > 10 * max(fast), times, fast)
        # So slow that fewer devices are faster: it says how many, and by how much.
        faster = r"^fewer are faster: an update takes 1 device ([\d.]+) ms, ([\d.]+) of what it takes (\d)$"
        for devices in (2, 3, 8):
            out, _ = run("plan", "model.hidden=64", "--devices", devices, "--link", root / "slow.json")
            told = re.search(faster, out, re.M)
            check(told and int(told[3]) == devices, out)
            _, alone = splits(run("plan", "model.hidden=64", "--devices", 1)[0])
            check(float(told[1]) == min(alone), told, alone)
            check(abs(float(told[2]) - min(alone) / splits(out)[1][0]) <= 0.006, told, out)
        # The slow link is between nodes alone: one node is the fastest.
        out, _ = run("plan", *LARGE, "--devices", 8, "--per-node", 2, "--node-link", root / "slow.json")
        check("fewer are faster: an update takes 2 devices " in out, out)
        run("plan", *LARGE, "--devices", 8, not_says="fewer are faster")
        # Whatever a launcher has started measures what is between.
        run("launch", "-n", 2, "--", "bench", "links", says="auto (2 ranks): latency")
        fails("bench", "links", "--out", root / "no" / "l.json", errs="is not a directory")


def test_written_configurations_train():
    with folder() as root:
        data = root / "data"
        data.mkdir()
        feature_corpus(data, "ctc")
        base = [*READY, "model.layers=2", "data.batch_frames=200", f"data={data}", "training.max_steps=3",
                "training.threads=1", "data.dev=", "data.test="]
        (root / "m.json").write_text(json.dumps(machine()))
        # Each split is the best of those that the memory of a device allows, or the only one.
        for devices, settings, expected in [(2, [], (2, 1, 1)), (2, ["parallel.pipeline=2"], (1, 2, 1)),
                                            (2, ["parallel.sequence=2"], (1, 1, 2)),
                                            (4, ["parallel.pipeline=2"], (2, 2, 1)),
                                            (4, ["parallel.pipeline=2", "parallel.sequence=2"], (1, 2, 2)),
                                            (2, ["parallel.divide_optimizer=true"], (2, 1, 1)),
                                            (1, ["training.accumulation=2"], (1, 1, 1))]:
            written = root / f"{devices}{len(settings)}{expected}.toml"
            only = ["--as-configured"] if settings else []
            out, _ = run("plan", *base, *settings, "--device", root / "m.json", "--devices", devices, *only, "--write",
                         written, says=[f"{written}: data {expected[0]} x pipeline {expected[1]} x sequence"])
            check(splits(out)[0][0] == expected, out)
            how = f"rondo launch -n {devices} -- train {written}" if devices > 1 else f"rondo train {written}"
            check(f"\n  {how}\n" in out, out)
            log = root / f"run{devices}{len(settings)}{expected}"
            run("train", written, f"training.checkpoint_dir={log}", "--ranks", devices)
            ended = [e["step"] for e in log_of(log, "start")]
            check(ended == [0], ended)
            check("parallel" in written.read_text(), written.read_text())
            divided = "divide_optimizer = true" in written.read_text()
            check(divided == ("optimizer divided" in out) == ("divide_optimizer" in str(settings)), out)


def test_the_optimizer_is_divided_where_that_is_faster():
    with folder() as root:
        slow = machine()
        slow["device"]["rates"]["optimizer/f32"] = {**slow["device"]["rates"]["other/f32"], "byte": 1e-3}
        (root / "m.json").write_text(json.dumps(slow))
        out, _ = run("plan", "model.hidden=64", "model.layers=1", "--device", root / "m.json", "--devices", 4, "--write",
                     root / "c.toml", says="optimizer divided")
        check("divide_optimizer = true" in (root / "c.toml").read_text(), out)


def test_what_the_data_say():
    with folder() as root:
        feature_corpus(root, "ctc")
        (root / "m.json").write_text(json.dumps(machine()))
        out, _ = run("plan", *READY, f"data={root}", "--device", root / "m.json", "--devices", 2,
                     says=["Preparing 1000 frames takes", "measured now"])
        # 6 columns, 24 cells in each direction, 4 classes (a, b, c, blank).
        weights = 2 * 4 * 24 * (6 + 24 + 1) + 4 * (2 * 24 + 1)
        check(f"{weights} weights" in out, weights, out)
        run("plan", *READY, f"data={root}", "--device", root / "m.json", "--devices", 32, "--per-node", 32,
            says="32 threads on the 16 cores of a machine take turns")
        # What nobody measured is said, links as well.
        words = ["plan", "model.hidden=64", "--device", root / "m.json"]
        for more, measured in [(["--devices", 2], True), (["--devices", 2, "--link", "pcie"], False),
                               (["--devices", 1, "--link", "pcie"], True), (["--devices", 16], False),
                               (["--devices", 16, "--node-link", root / "m.json"], True)]:
            said, _ = run(*words, *more, says="rates measured on the machine the file names")
            check(("those of links are a data sheet's" in said) != measured, more, said)
        run("plan", "model.hidden=64", says="from the rates of a data sheet; nothing of it was measured.")


def test_batches_are_those_of_the_sampler():
    """Time steps alone take time here: those of the longest utterance of each batch, three passes in all."""
    with folder() as root:
        slow = machine()
        for op in ["lstm", "lstm_backward", "lstm_weight_grad"]:
            slow["device"]["rates"][f"{op}/f32"].update(operation=0, step=1e-3)
        (root / "m.json").write_text(json.dumps(slow))
        (root / "wav").mkdir()

        def corpus(*lengths):
            """Prepared in no time."""
            lines = []
            for i, seconds in enumerate(lengths):
                write_wav(root / "wav" / f"{i}.wav", array.array("h", [0] * int(seconds * RATE)))
                lines.append({"audio_filepath": f"wav/{i}.wav", "duration": seconds, "text": "a"})
            (root / "train.jsonl").write_text("".join(json.dumps(e) + "\n" for e in lines))

        corpus(1, 2, 3)
        words = ["plan", f"data.train={root}/train.jsonl", "model.layers=1", "model.subsample=1",
                 "--device", root / "m.json", "--devices", 1]
        # Buckets keep lengths that differ so much apart: batches of 100, 200 and 300 frames.
        _, apart = splits(run(*words, "data.batch_frames=1000")[0])
        _, given = splits(run(*words, "data.batch_frames=1000", "--lengths", "2")[0])
        check(given == [400.0], given)
        # Ten of 1 s, five of 2 s, three of 3 s: of 2000 each, 67, 134 and 222 batches.
        check(abs(apart[0] - 2 * (67 * 100 + 134 * 200 + 222 * 300) / 423) < 12, apart)
        # Lengths of one bucket are mixed, and the longest of a batch counts.
        corpus(2.1, 2.2)
        _, mixed = splits(run(*words, "data.batch_frames=8000")[0])
        check(mixed == [440.0], mixed)


def test_wrong_input_is_one_sentence():
    with folder() as root:
        (root / "m.json").write_text("{}")
        (root / "line.json").write_text('{"link":\n {"name": "x",\n "latency": }}')
        whole = machine()
        whole["device"]["cores"] = 0
        (root / "cores.json").write_text(json.dumps(whole))
        (root / "older.json").write_text('{"device": {"name": "x", "seconds_per": {}}, "link": {}}')
        for words, text in [
            (["--link", "ethernet"], "unknown link 'ethernet', expected pcie, nvlink, infiniband, infiniband8 or a file"),
            (["--node-link", root / "m.json"], "m.json: has no field 'link'"),
            (["--link", root / "line.json"], "line.json:3: is not valid JSON"),
            (["--device", "h300"], "'h300' is neither the device h200 nor a file"),
            (["--device", root / "m.json"], "m.json: has no field 'device'"),
            (["--device", root / "cores.json"], "cores.json: device: 'cores' is 0"),
            (["--device", root / "older.json"], "older.json: device: was measured by a rondo whose rates were others"),
            (["--lengths", "3:x"], "'x' is not a number above 0"),
            (["--lengths", "100", "data.batch_frames=500"], "has 10000 frames, more than batch_frames = 500"),
            (["--write", root / "no" / "c.toml"], "is not a directory"),
            (["--measure", root / "no" / "m.json"], "is not a directory"),
            (["modle.hidden=3"], "did you mean 'model.hidden'?"),
            (["features.type=ready"], "give --features"),
            (["data=/nowhere"], "/nowhere/train.jsonl"),
            (["--devices", "65536"], "no split of 65536 devices is possible"),
            (["--as-configured", "parallel.pipeline=3"], "8 ranks cannot be shared out to pipelines of 3 ranks"),
            (["--as-configured", "parallel.pipeline=8"], "8 stages of a model with 4 layers"),
            (["--as-configured", "parallel.pipeline=2", "parallel.data=3"], "--replicas 3 x --stages 2 is 6 ranks, not the 8 there are"),
        ]:
            fails("plan", *words, errs=text)


main(globals())
