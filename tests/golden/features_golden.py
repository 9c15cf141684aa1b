#!/usr/bin/env python3
"""Writes tests/data/features_golden.h: features of a synthetic signal by kaldi-native-fbank.

Needs numpy and kaldi-native-fbank; run by hand when a case is added:
    python3 tests/golden/features_golden.py > tests/data/features_golden.h
The signal is made of integers alone, so that the C++ test builds the same one bit for bit.
"""
import kaldi_native_fbank as knf


def signal(n):
    """16-bit samples: a sawtooth that rises in pitch, plus noise of a small generator."""
    out, phase, state = [], 0, 12345
    for i in range(n):
        phase = (phase + 900 + i // 2) % 65536
        state = (state * 1103515245 + 12345) % 2147483648
        noise = (state >> 16) % 2001 - 1000
        out.append((phase - 32768) // 4 + noise + 300)
    return out


def common(opts, rate, dither=0.0):
    opts.frame_opts.samp_freq = rate
    opts.frame_opts.dither = dither
    return opts


def fbank(name, rate, n, bins, **kw):
    opts = common(knf.FbankOptions(), rate)
    opts.mel_opts.num_bins = bins
    opts.mel_opts.low_freq = kw.get("low", 20)
    opts.mel_opts.high_freq = kw.get("high", 0)
    opts.frame_opts.snip_edges = kw.get("snip", True)
    opts.frame_opts.window_type = kw.get("window", "povey")
    opts.use_energy = kw.get("energy", False)
    opts.raw_energy = kw.get("raw_energy", True)
    opts.use_power = kw.get("power", True)
    opts.frame_opts.remove_dc_offset = kw.get("dc", True)
    opts.frame_opts.preemph_coeff = kw.get("preemph", 0.97)
    return run(name, knf.OnlineFbank(opts), rate, n)


def mfcc(name, rate, n, bins, ceps, energy):
    opts = common(knf.MfccOptions(), rate)
    opts.mel_opts.num_bins = bins
    opts.num_ceps = ceps
    opts.use_energy = energy
    return run(name, knf.OnlineMfcc(opts), rate, n)


def run(name, extractor, rate, n):
    extractor.accept_waveform(rate, [float(v) for v in signal(n)])
    extractor.input_finished()
    rows = [extractor.get_frame(i) for i in range(extractor.num_frames_ready)]
    # Every frame is counted; three are stored.
    chosen = sorted({0, len(rows) // 2, len(rows) - 1})
    return name, len(rows), [(i, rows[i]) for i in chosen]


cases = [
    fbank("fbank80_16k", 16000, 4000, 80),
    fbank("fbank40_8k_centered", 8000, 1500, 40, snip=False),
    fbank("fbank23_energy", 16000, 3000, 23, energy=True, high=-400),
    fbank("fbank23_windowed_energy", 16000, 3000, 23, energy=True, raw_energy=False, low=64),
    fbank("fbank30_hamming_magnitude", 22050, 4000, 30, window="hamming", power=False),
    fbank("fbank30_blackman_plain", 16000, 3000, 30, window="blackman", dc=False, preemph=0.0),
    fbank("fbank30_hanning", 11025, 2000, 30, window="hanning"),
    fbank("fbank30_rectangular", 16000, 2000, 30, window="rectangular"),
    mfcc("mfcc13_16k", 16000, 4000, 23, 13, False),
    mfcc("mfcc20_8k_energy", 8000, 2000, 40, 20, True),
]

print("// Made by tests/golden/features_golden.py (kaldi-native-fbank", knf.__version__ + "); not to be edited.")
print("#pragma once\n\n#include <vector>\n")
print("struct GoldenFrame {\n  int frame;\n  std::vector<float> values;\n};")
print("struct GoldenFeatures {\n  const char* name;\n  int frames;\n  std::vector<GoldenFrame> rows;\n};\n")
print("inline const std::vector<GoldenFeatures> golden_features = {")
for name, frames, rows in cases:
    print(f'    {{"{name}", {frames}, {{')
    for i, row in rows:
        print(f"        {{{i}, {{" + ", ".join(f"{v:.9g}f" if "." in f"{v:.9g}" or "e" in f"{v:.9g}" else f"{v:.9g}.0f" for v in row) + "}},")
    print("    }},")
print("};")
