"""Where the words of a given text are, and where given labels are."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Optional, Sequence, Union

import numpy as np

from ._arrays import Array, as_array, floats, integers, matrix_of, shaped
from ._library import AlignOptions, InvalidError, bytes_of, double, int32, lib
from ._result import Result, result_from
from .decoding import Path, Vocabulary, as_vocabulary


def align(scores: Array, vocabulary: Union[Vocabulary, Sequence[str], Path], text: str, *, frame_seconds: float = 1.0,
          skip_unspellable: bool = False, open_ends: bool = False, find_gaps: bool = False) -> Result:
    """When the words and characters of a text are said, by scores [frames, classes] of a CTC model.

    skip_unspellable: characters that no token stands for are not said, instead of an error.
    open_ends: more may be said before the text and behind it; find_gaps: between any two words.
    The result's score tells how well the text fits; 0 is perfect.
    """
    m, _kept = matrix_of(scores, ("frames", "classes"), "scores")
    o = AlignOptions()
    lib.align_options_init(ctypes.byref(o), ctypes.sizeof(o))
    o.skip_unspellable, o.open_ends, o.find_gaps = int(skip_unspellable), int(open_ends), int(find_gaps)
    known = as_vocabulary(vocabulary)._live()
    seconds = double(frame_seconds, "frame_seconds")
    return result_from(lib.align, known, ctypes.byref(m), seconds, bytes_of(text, "text"), ctypes.byref(o))


class Alignment(NamedTuple):
    """What torchaudio.functional.forced_align returns: the class of each frame, and its score."""

    labels: "np.ndarray[Any, Any]"
    scores: "np.ndarray[Any, Any]"


@dataclass
class TokenSpan:
    """A token with its first frame, the one behind its last, and its mean score; as in torchaudio."""

    token: int
    start: int
    end: int
    score: float

    def __len__(self) -> int:
        return self.end - self.start


def _letter(label: int) -> str:
    """A character for a class: of those for private use, which no rule of Unicode changes."""
    if label < 0x1900:
        return chr(0xE000 + label)
    return chr((0xF0000 if label < 0x10000 else 0x100000 - 0x10000) + label)


@lru_cache(maxsize=8)
def _letters(classes: int, blank: int) -> Vocabulary:
    return Vocabulary([_letter(label) for label in range(classes)], blank=blank, border="none")


def forced_align(log_probs: Array, targets: Array, input_lengths: Optional[Array] = None,
                 target_lengths: Optional[Array] = None, blank: int = 0) -> Alignment:
    """torchaudio.functional.forced_align(): the most probable path of each target through the frames.

    log_probs: [sequences, frames, classes]; targets: [sequences, labels], without blanks.
    input_lengths, target_lengths: of each sequence; None: all.
    Returns labels and scores [sequences, frames]. Frames past a sequence's length have the blank and 0. Unlike
    torchaudio, it takes any number of sequences.
    """
    x = floats(shaped(as_array(log_probs, "log_probs"), ("sequences", "frames", "classes"), "log_probs"), "log_probs")
    labels = shaped(integers(targets, "targets"), ("sequences", "labels"), "targets")
    n, frames, classes = x.shape
    if len(labels) != n:
        raise InvalidError(f"targets: {len(labels)} sequences, expected {n}")
    blank = int32(blank, "blank")
    if not 0 <= blank < classes:
        raise InvalidError(f"blank: {blank}, expected 0 to {classes - 1}")
    if classes > 0x1FFFE:
        raise InvalidError(f"log_probs: {classes} classes, expected at most {0x1FFFE}")
    lengths = _lengths(input_lengths, n, frames, "input_lengths")
    counts = _lengths(target_lengths, n, labels.shape[1], "target_lengths")
    paths = np.full((n, frames), blank, np.int32)
    scores = np.zeros((n, frames), np.float32)
    for i in range(n):
        length, wanted = lengths[i], labels[i, :counts[i]]
        _align_one(x[i, :length], wanted, blank, f"targets[{i}]", paths[i])
        scores[i, :length] = np.take_along_axis(x[i, :length], paths[i, :length, None].astype(np.int64), 1)[:, 0]
    return Alignment(paths, scores)


def _align_one(scores: "np.ndarray[Any, Any]", labels: "np.ndarray[Any, Any]", blank: int, name: str,
               path: "np.ndarray[Any, Any]") -> None:
    """Writes the labels where they are into a path of blanks."""
    classes = scores.shape[1]
    for at in np.flatnonzero((labels < 0) | (labels >= classes) | (labels == blank)):
        raise InvalidError(f"{name}: label {labels[at]} at {at}, expected 0 to {classes - 1} and not the blank, {blank}")
    if len(labels) == 0:
        return
    needed = len(labels) + int((labels[1:] == labels[:-1]).sum())
    if needed > len(scores):
        raise InvalidError(f"{name}: {len(labels)} labels need {needed} frames, there are {len(scores)}")
    found = align(scores, _letters(classes, blank), "".join(_letter(label) for label in labels.tolist()))
    for label, piece in zip(labels, found.characters):
        path[round(piece.begin):round(piece.end)] = label


def _lengths(given: Optional[Array], count: int, most: int, name: str) -> list[int]:
    if given is None:
        return [most] * count
    each: list[int] = integers(given, name).ravel().tolist()
    if len(each) != count:
        raise InvalidError(f"{name}: {len(each)} numbers, expected {count}")
    for i, length in enumerate(each):
        if not 0 <= length <= most:
            raise InvalidError(f"{name}[{i}]: {length}, expected 0 to {most}")
    return each


def merge_tokens(tokens: Array, scores: Array, blank: int = 0) -> list[TokenSpan]:
    """torchaudio.functional.merge_tokens(): the spans of the labels [frames] of a path, without blanks, with the means of
    their scores [frames]."""
    labels = shaped(integers(tokens, "tokens"), ("frames",), "tokens")
    given = shaped(as_array(scores, "scores"), ("frames",), "scores")
    if len(labels) != len(given):
        raise InvalidError(f"scores: {len(given)} frames, expected {len(labels)}")
    edges = np.flatnonzero(np.diff(labels)) + 1
    starts, ends = [0, *edges.tolist()], [*edges.tolist(), len(labels)]
    return [TokenSpan(int(labels[s]), s, e, float(given[s:e].mean()))
            for s, e in zip(starts, ends) if e > s and labels[s] != blank]
