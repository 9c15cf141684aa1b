"""What a model or a search found."""

from __future__ import annotations

import ctypes
from functools import cached_property
from typing import Any, NamedTuple, Optional

import numpy as np

from ._library import Owner, lib, make, text_of


class Piece(NamedTuple):
    """A word or a character. Times are seconds, of images pixels from the left; of decode() frames, unless
    frame_seconds says how long one is."""

    text: str
    begin: float
    end: float
    probability: float


def _pieces(function: Any, owner: Owner, pointer: Any) -> list[Piece]:
    count = ctypes.c_size_t()
    first = function(pointer, ctypes.byref(count))
    return [Piece(text_of(p.text), p.begin, p.end, p.probability) for p in first[:count.value]]


class Result:
    """A text with its words, characters and times, and what the model said."""

    def __init__(self, owner: Owner, pointer: Optional[int] = None) -> None:
        # An alternative belongs to its result, whose owner it keeps.
        self._owner = owner
        self._pointer: Any = owner if pointer is None else pointer
        self.text = text_of(lib.result_text(self._pointer))

    @cached_property
    def words(self) -> list[Piece]:
        """The words of the text; [] where it has none."""
        return _pieces(lib.result_words, self._owner, self._pointer)

    @cached_property
    def characters(self) -> list[Piece]:
        """The characters or tokens of the text."""
        return _pieces(lib.result_characters, self._owner, self._pointer)

    @cached_property
    def times(self) -> tuple[float, float]:
        """When an utterance of a stream began and ended; of other results, 0 and the end of the outputs."""
        begin, end = ctypes.c_double(), ctypes.c_double()
        lib.result_times(self._pointer, ctypes.byref(begin), ctypes.byref(end))
        return begin.value, end.value

    @cached_property
    def score(self) -> float:
        """Of a search: ln p(text | outputs) and all that it knows besides. Of an alignment: how well the text fits, 0
        is perfect. Otherwise 0."""
        return float(lib.result_score(self._pointer))

    @cached_property
    def alternatives(self) -> "list[Result]":
        """Of a decoder with nbest: the texts, the best first."""
        count = lib.result_alternatives(self._pointer)
        return [Result(self._owner, lib.result_alternative(self._pointer, i)) for i in range(count)]

    @cached_property
    def outputs(self) -> "np.ndarray[Any, Any]":
        """What the model said, float32. ctc: logits [frames, classes]; others: [1, classes] or [1, numbers]."""
        m = lib.result_outputs(self._pointer)
        if not m.data:
            return np.empty((0, 0), np.float32)
        seen = (ctypes.c_float * (m.rows * m.columns)).from_address(m.data)
        return np.array(seen, np.float32).reshape(m.rows, m.columns)

    @cached_property
    def _class(self) -> tuple[int, float]:
        probability = ctypes.c_double()
        index = lib.result_class(self._pointer, ctypes.byref(probability))
        return index, probability.value

    @property
    def class_index(self) -> int:
        """Of a model of classes: the most probable one, which `text` names. -1 of others."""
        return self._class[0]

    @property
    def probability(self) -> float:
        """Of class_index; 0 of others."""
        return self._class[1]

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Result({self.text!r}, score={self.score:.3f})"


def result_from(function: Any, *arguments: Any) -> Result:
    """Calls a function that makes one result."""
    return Result(make(function, lib.result_free, *arguments))
