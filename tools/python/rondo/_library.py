"""librondo.so.0 by ctypes: the structures and functions of <rondo/c.h>, its errors, and who owns what it makes.

The library is the one inside the package; RONDO_LIBRARY names another. ctypes lets other threads of Python run while
a function of it works.
"""

from __future__ import annotations

import ctypes
import operator
import os
import pathlib
import threading
from ctypes import POINTER, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_void_p
from typing import Any, Callable, Optional

c_int32_p = POINTER(c_int32)
c_double_p = POINTER(c_double)


# ---- Errors


class Error(Exception):
    """What the library could not do, in its words."""


class InvalidError(Error, ValueError):
    """What came from outside is wrong: a file, data, an argument."""


class NoMemoryError(Error, MemoryError):
    """There is not enough memory, of the machine or of a device."""


class StoppedError(Error):
    """A function of the caller's has stopped it."""


_ERRORS = {1: InvalidError, 2: NoMemoryError, 4: StoppedError}


# ---- Structures, as c.h has them; tests/embed/c/sizes.txt has their sizes


class Matrix(ctypes.Structure):
    C_NAME = "rondo_matrix"
    _fields_ = [("data", c_void_p), ("rows", c_int64), ("columns", c_int64), ("row_stride", c_int64),
                ("column_stride", c_int64)]


class ModelInfo(ctypes.Structure):
    C_NAME = "rondo_model_info"
    _fields_ = [("size", c_size_t), ("task", c_int), ("kind", c_int), ("sample_rate", c_int32), ("features", c_int32),
                ("outputs", c_int32), ("can_stream", c_int32), ("frame_seconds", c_double), ("weights", c_int64)]


class Input(ctypes.Structure):
    C_NAME = "rondo_input"
    _fields_ = [("kind", c_int), ("sample_rate", c_int32), ("data", c_void_p), ("rows", c_int64), ("columns", c_int64),
                ("row_stride", c_int64), ("column_stride", c_int64)]


class Piece(ctypes.Structure):
    C_NAME = "rondo_piece"
    _fields_ = [("text", c_char_p), ("begin", c_double), ("end", c_double), ("probability", c_double)]


class HotWord(ctypes.Structure):
    C_NAME = "rondo_hot_word"
    _fields_ = [("phrase", c_char_p), ("weight", c_double)]


class DecoderOptions(ctypes.Structure):
    C_NAME = "rondo_decoder_options"
    _fields_ = [("size", c_size_t), ("beam", c_int32), ("nbest", c_int32), ("token_floor", c_double),
                ("language_model", c_void_p), ("lm_weight", c_double), ("word_score", c_double),
                ("unknown_score", c_double), ("words", POINTER(c_char_p)), ("word_count", c_size_t),
                ("hot_words", POINTER(HotWord)), ("hot_word_count", c_size_t), ("known_words", POINTER(c_char_p)),
                ("known_word_count", c_size_t), ("sentence_begin", c_int32), ("sentence_end", c_int32)]


class AlignOptions(ctypes.Structure):
    C_NAME = "rondo_align_options"
    _fields_ = [("size", c_size_t), ("skip_unspellable", c_int32), ("open_ends", c_int32), ("find_gaps", c_int32)]


class StreamOptions(ctypes.Structure):
    C_NAME = "rondo_stream_options"
    _fields_ = [("size", c_size_t), ("chunk_seconds", c_double), ("end_silence", c_double), ("longest", c_double),
                ("decoder", c_void_p)]


class Ctc(ctypes.Structure):
    C_NAME = "rondo_ctc"
    _fields_ = [("size", c_size_t), ("dtype", c_int), ("threads", c_int32), ("blank", c_int32), ("log_softmax", c_int32),
                ("zero_infinity", c_int32), ("reduction", c_int), ("frames", c_int64), ("sequences", c_int64),
                ("classes", c_int64), ("logits", c_void_p), ("strides", c_int64 * 3), ("lengths", c_int32_p),
                ("labels", c_int32_p), ("label_lengths", c_int32_p), ("gradient", c_void_p),
                ("gradient_strides", c_int64 * 3)]


class TrainingStep(ctypes.Structure):
    C_NAME = "rondo_training_step"
    _fields_ = [("step", c_int64), ("epoch", c_double), ("loss", c_double), ("learning_rate", c_double),
                ("gradient_norm", c_double)]


class Validation(ctypes.Structure):
    C_NAME = "rondo_validation"
    _fields_ = [("step", c_int64), ("loss", c_double), ("metric", c_double), ("best", c_int32)]


Message = ctypes.CFUNCTYPE(None, c_void_p, c_char_p)
Stepped = ctypes.CFUNCTYPE(None, c_void_p, POINTER(TrainingStep))
Validated = ctypes.CFUNCTYPE(None, c_void_p, POINTER(Validation))
Stop = ctypes.CFUNCTYPE(c_int, c_void_p)
Progress = ctypes.CFUNCTYPE(c_int, c_void_p, c_double, c_double)


class TrainOptions(ctypes.Structure):
    C_NAME = "rondo_train_options"
    _fields_ = [("size", c_size_t), ("user", c_void_p), ("message", Message), ("stepped", Stepped),
                ("validated", Validated), ("stop", Stop), ("resume", c_int32), ("threads", c_int32),
                ("device", c_char_p)]


class Training(ctypes.Structure):
    C_NAME = "rondo_training"
    _fields_ = [("size", c_size_t), ("steps", c_int64), ("epochs", c_int64), ("seconds", c_double),
                ("best_metric", c_double), ("stopped", c_int32)]


class SessionOptions(ctypes.Structure):
    C_NAME = "rondo_session_options"
    _fields_ = [("size", c_size_t), ("features", c_int64), ("alphabet", POINTER(c_char_p)), ("alphabet_size", c_size_t),
                ("threads", c_int32), ("device", c_char_p)]


class Example(ctypes.Structure):
    C_NAME = "rondo_example"
    _fields_ = [("features", Matrix), ("labels", c_int32_p), ("label_count", c_size_t)]


class SessionResult(ctypes.Structure):
    C_NAME = "rondo_session_result"
    _fields_ = [("size", c_size_t), ("step", c_int64), ("loss", c_double), ("gradient_norm", c_double),
                ("infeasible", c_int64), ("skipped", c_int32)]


# ---- Functions. Those of the first table return a status, which becomes an exception

_OUT = POINTER(c_void_p)
_TEXT_OUT = POINTER(c_char_p)
_CHECKED: dict[str, list[Any]] = {
    "model_open": [c_char_p, c_char_p, _OUT],
    "model_from_memory": [c_char_p, c_size_t, c_char_p, c_char_p, _OUT],
    "model_get_info": [c_void_p, POINTER(ModelInfo), c_size_t],
    "state_new": [c_void_p, c_int32, _OUT],
    "state_set_decoder": [c_void_p, c_void_p],
    "state_set_progress": [c_void_p, Progress, c_void_p],
    "state_trim": [c_void_p],
    "run": [c_void_p, POINTER(Input), c_size_t, _OUT],
    "vocabulary_open": [c_char_p, c_int32, c_char_p, _OUT],
    "vocabulary_new": [POINTER(c_char_p), c_size_t, c_int32, c_char_p, _OUT],
    "vocabulary_of_model": [c_void_p, _OUT],
    "language_model_open": [c_char_p, _OUT],
    "language_model_from_memory": [c_char_p, c_size_t, c_char_p, _OUT],
    "language_model_score": [c_void_p, POINTER(c_char_p), c_size_t, c_int32, c_double_p, c_double_p],
    "decoder_new": [c_void_p, POINTER(DecoderOptions), _OUT],
    "decoder_with_hot_words": [c_void_p, POINTER(HotWord), c_size_t, _OUT],
    "decode": [c_void_p, c_void_p, POINTER(Matrix), c_double, _OUT],
    "align": [c_void_p, POINTER(Matrix), c_double, c_char_p, POINTER(AlignOptions), _OUT],
    "stream_new": [c_void_p, POINTER(StreamOptions), _OUT],
    "stream_accept": [c_void_p, c_void_p, c_size_t, _TEXT_OUT],
    "stream_partial": [c_void_p, _TEXT_OUT, _TEXT_OUT],
    "stream_next": [c_void_p, _OUT],
    "stream_finish": [c_void_p],
    "stream_reset": [c_void_p],
    "streams_accept": [POINTER(c_void_p), POINTER(c_void_p), POINTER(c_size_t), c_size_t, _TEXT_OUT],
    "ctc_loss": [POINTER(Ctc), c_double_p],
    "train": [c_char_p, c_char_p, POINTER(TrainOptions), POINTER(Training)],
    "session_new": [c_char_p, c_char_p, POINTER(SessionOptions), _OUT],
    "session_train": [c_void_p, POINTER(Example), c_size_t, POINTER(SessionResult)],
    "session_evaluate": [c_void_p, POINTER(Example), c_size_t, POINTER(SessionResult)],
    "session_set_learning_rate": [c_void_p, c_double],
    "session_save": [c_void_p, c_char_p],
    "session_load": [c_void_p, c_char_p],
}
_OTHERS: dict[str, tuple[Any, list[Any]]] = {
    "message": (c_char_p, []),
    "version": (c_char_p, []),
    "model_free": (None, [c_void_p]),
    "model_class": (c_char_p, [c_void_p, c_int32]),
    "state_free": (None, [c_void_p]),
    "stream_free": (None, [c_void_p]),
    "vocabulary_free": (None, [c_void_p]),
    "language_model_free": (None, [c_void_p]),
    "decoder_free": (None, [c_void_p]),
    "decoder_warning": (c_char_p, [c_void_p, c_size_t]),
    "result_free": (None, [c_void_p]),
    "result_text": (c_char_p, [c_void_p]),
    "result_words": (POINTER(Piece), [c_void_p, POINTER(c_size_t)]),
    "result_characters": (POINTER(Piece), [c_void_p, POINTER(c_size_t)]),
    "result_times": (None, [c_void_p, c_double_p, c_double_p]),
    "result_score": (c_double, [c_void_p]),
    "result_alternatives": (c_size_t, [c_void_p]),
    "result_alternative": (c_void_p, [c_void_p, c_size_t]),
    "result_outputs": (Matrix, [c_void_p]),
    "result_class": (c_int32, [c_void_p, c_double_p]),
    "decoder_options_init": (None, [POINTER(DecoderOptions), c_size_t]),
    "align_options_init": (None, [POINTER(AlignOptions), c_size_t]),
    "stream_options_init": (None, [POINTER(StreamOptions), c_size_t]),
    "ctc_init": (None, [POINTER(Ctc), c_size_t]),
    "train_options_init": (None, [POINTER(TrainOptions), c_size_t]),
    "session_options_init": (None, [POINTER(SessionOptions), c_size_t]),
    "session_free": (None, [c_void_p]),
}


class _Functions:
    """rondo_NAME as .NAME."""

    def __init__(self, path: str) -> None:
        try:
            library = ctypes.CDLL(path)
            for name, (restype, argtypes) in _OTHERS.items():
                self._declare(library, name, restype, argtypes)
            for name, taken in _CHECKED.items():
                self._declare(library, name, c_int, taken).errcheck = self._check
        except (OSError, AttributeError) as e:
            raise ImportError(f"rondo: {path} is not a librondo.so.0 that can be loaded: {e}") from e

    def _declare(self, library: ctypes.CDLL, name: str, restype: Any, argtypes: list[Any]) -> Any:
        function = getattr(library, "rondo_" + name)
        function.restype, function.argtypes = restype, argtypes
        setattr(self, name, function)
        return function

    def _check(self, status: int, function: Any, arguments: Any) -> None:
        if status != 0:
            # The message is this thread's.
            raise _ERRORS.get(status, Error)(text_of(lib.message()))


def _library_path() -> str:
    own = pathlib.Path(__file__).parent / "lib" / "librondo.so.0"
    return os.environ.get("RONDO_LIBRARY") or str(own)


lib: Any = _Functions(_library_path())


# ---- Ownership


class _Shared:
    """What several owners free together."""

    def __init__(self, frees: list[tuple[Callable[[int], None], int]]) -> None:
        self._frees, self._owners = frees, 1
        self._lock = threading.RLock()  # an owner may go while another one of this thread comes

    def join(self) -> None:
        with self._lock:
            self._owners += 1

    def leave(self, _: int) -> None:
        with self._lock:
            self._owners -= 1
            if self._owners > 0:
                return
        for free, pointer in self._frees:
            free(pointer)


class Owner:
    """What the library made. It is freed when nobody refers to this any more, and not while a call has it.

    A call gets the Owner itself as its argument, and so keeps it alive.
    """

    __slots__ = ("_as_parameter_", "_frees", "_shared", "__weakref__")

    def __init__(self, pointer: int, free: Callable[[int], None]) -> None:
        self._as_parameter_: Optional[int] = pointer
        self._frees = [(free, pointer)]
        self._shared: Optional[_Shared] = None

    def then(self, other: "Owner") -> "Owner":
        """Frees what `other` has, after this: the collector of cycles knows no order."""
        self._frees += other._frees
        other._frees = []
        return self

    def share(self) -> "Owner":
        """Another owner of the same. What it is freed by waits for the last of them, whatever the order is."""
        if self._shared is None:
            self._shared = _Shared(self._frees)
            self._frees = [(self._shared.leave, 0)]
        other = Owner(self._as_parameter_ or 0, self._shared.leave)
        other._shared = self._shared
        self._shared.join()
        return other

    @property
    def address(self) -> Optional[int]:
        """For structures, which do not keep it alive."""
        return self._as_parameter_

    def __del__(self) -> None:
        for free, pointer in self._frees:
            free(pointer)
        self._frees = []


def make(function: Any, free: Any, *arguments: Any) -> Owner:
    """Calls a function that puts what it makes where its last argument says."""
    made = c_void_p()
    function(*arguments, ctypes.byref(made))
    assert made.value is not None
    return Owner(made.value, free)


class Handle:
    """What has to be freed. `with` or close() does so at once; otherwise it happens when nobody uses it any more."""

    def __init__(self, owner: Owner) -> None:
        self._owner: Optional[Owner] = owner

    def _live(self) -> Owner:
        owner = self._owner
        if owner is None:
            raise InvalidError(f"this {type(self).__name__} is closed")
        return owner

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._owner is None

    def close(self) -> None:
        """Gives back its memory, as soon as no other thread works with it. Closing twice does nothing."""
        self._owner = None

    def __enter__(self) -> Any:
        self._live()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# ---- Numbers, which ctypes would cut to 32 bits without a word


def int32(value: Any, name: str) -> int:
    """An integer for the library."""
    try:
        number = operator.index(value)
    except TypeError as e:
        raise TypeError(f"{name}: {type(value).__name__}, expected int") from e
    if not -2**31 <= number < 2**31:
        raise InvalidError(f"{name}: {number}, expected an integer of 32 bits")
    return number


def double(value: Any, name: str) -> float:
    """A number for the library."""
    try:
        return float(value)
    except (TypeError, ValueError) as e:
        raise TypeError(f"{name}: {type(value).__name__}, expected a number") from e


def set_options(options: ctypes.Structure, **values: Any) -> None:
    """Sets numbers of options by their names, but for those that are None."""
    kinds = {name: kind for name, kind, *_ in options._fields_}
    for name, value in values.items():
        if value is not None:
            setattr(options, name, (double if kinds[name] is c_double else int32)(value, name))


# ---- Texts


def bytes_of(text: str, name: str) -> bytes:
    """UTF-8 for the library."""
    if not isinstance(text, str):
        raise TypeError(f"{name}: {type(text).__name__}, expected str")
    encoded = text.encode("utf-8", "surrogateescape")
    if b"\0" in encoded:
        raise InvalidError(f"{name}: holds a zero byte")
    return encoded


def path_bytes(path: "str | os.PathLike[str]", name: str = "path") -> bytes:
    """A path for the library."""
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"{name}: {type(path).__name__}, expected str or os.PathLike")
    return bytes_of(os.fspath(path), name)


def text_of(given: Optional[bytes]) -> str:
    """A text of the library. Paths need not be UTF-8."""
    return (given or b"").decode("utf-8", "surrogateescape")


def texts(given: "list[bytes]") -> Any:
    """char* [], with NULL behind the last."""
    return (c_char_p * (len(given) + 1))(*given)
