"""Models that `rondo train` made, and the texts they find in recordings, images and features, whole or as they arrive."""

from __future__ import annotations

import ctypes
import os
import threading
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Callable, Iterator, NamedTuple, Optional, Sequence, Union

import numpy as np

from . import _library as c
from ._arrays import Array, as_array, floats, shaped, strided
from ._library import Handle, InvalidError, Owner, int32, lib, make, path_bytes, set_options, text_of
from ._result import Result
from ._wav import read_wav
from .decoding import Decoder, Path, Vocabulary

_TASKS = ("ctc", "classify", "regress")
_FEATURES, _SAMPLES, _IMAGE = 0, 1, 2
_KINDS = ("features", "samples", "image")
Progress = Callable[[float, float], object]


class ModelInfo(NamedTuple):
    """What a model is for."""

    task: str  # "ctc", "classify" or "regress"
    kind: str  # of its inputs: "samples", "image" or "features"; each model takes features, too
    sample_rate: int  # of samples, in Hz; 0 for other inputs
    features: int  # columns that it reads
    outputs: int  # columns that it writes: classes of ctc, the blank at 0
    can_stream: bool  # whether stream() takes it
    frame_seconds: float  # from an output to the next; of images, pixels of the scaled line
    weights: int


class Partial(NamedTuple):
    """Of the utterance that is being heard: what will not change any more, and the best so far, which begins with it."""

    stable: str
    text: str


def _samples(x: Array, name: str) -> Any:
    a = shaped(as_array(x, name), ("samples",), name)
    if a.dtype in (np.int16, np.int32):
        return a.astype(np.float32) / np.float32(-float(np.iinfo(a.dtype).min))
    if a.dtype.kind != "f":
        raise TypeError(f"{name}: dtype {a.dtype}, expected float32 in [-1, 1], int16 or int32")
    return floats(a, name)


def _input_of(given: Any, rate: Optional[int], model_rate: int, name: str) -> "tuple[c.Input, np.ndarray[Any, Any]]":
    """A rondo_input, and the array that must live as long."""
    if isinstance(given, (str, os.PathLike)):
        given, rate = read_wav(given)
    a = as_array(given, name)
    if a.ndim == 1:
        a, strides = strided(_samples(a, name))
        hertz = model_rate if rate is None else int32(rate, "sample_rate")
        return c.Input(_SAMPLES, hertz, a.ctypes.data, len(a), 1, strides[0], 0), a
    if a.ndim != 2:
        raise InvalidError(f"{name}: shape {list(a.shape)}, expected samples [samples], features [frames, columns] or a "
                           "grey image [height, width] of uint8")
    is_image = a.dtype == np.uint8
    a, strides = strided(a if is_image else floats(a, name))
    return c.Input(_IMAGE if is_image else _FEATURES, 0, a.ctypes.data, a.shape[0], a.shape[1], *strides), a


class _State:
    """Memory to compute in, and the decoder it has."""

    def __init__(self, model: Owner, threads: int) -> None:
        self.owner = make(lib.state_new, lib.state_free, model, threads)
        self._decoder: Optional[Owner] = None

    def use(self, decoder: Optional[Decoder]) -> None:
        wanted = None if decoder is None else decoder._live()
        if wanted is not self._decoder:
            lib.state_set_decoder(self.owner, wanted)
            self._decoder = wanted

    @contextmanager
    def telling(self, progress: Optional[Progress]) -> Iterator[None]:
        """What is computed within tells `progress`. Python's signals are heard there, even without one."""
        raised: list[BaseException] = []

        def tell(_: Any, done: float, whole: float) -> int:
            try:
                if progress is not None:
                    progress(done, whole)
            except BaseException as e:  # it must not go through the library
                raised.append(e)
            return len(raised)

        function = c.Progress(tell)
        lib.state_set_progress(self.owner, function, None)
        try:
            yield
        except c.StoppedError:
            raise raised[0] from None
        finally:
            lib.state_set_progress(self.owner, c.Progress(0), None)


class Recognizer(Handle):
    """A model that `rondo train` made.

    model: its file, the folder of a run, or the bytes of a file.
    device: "cpu" (None), "cuda" or "cuda:1".
    threads: that one call computes with; 0: as many as there are processors.
    decoder: how texts are found; None: by the best class of each frame.
    Any number of threads may use one at once; each call has memory of its own, which is kept for later ones.
    """

    def __init__(self, model: Union[Path, bytes], *, device: Optional[str] = None, threads: int = 1,
                 decoder: Optional[Decoder] = None) -> None:
        where = None if device is None else c.bytes_of(device, "device")
        if isinstance(model, bytes):
            made = make(lib.model_from_memory, lib.model_free, model, len(model), b"the model", where)
        else:
            made = make(lib.model_open, lib.model_free, path_bytes(model, "model"), where)
        super().__init__(made)
        self.decoder = decoder
        self._threads = int32(threads, "threads")
        self._idle: list[_State] = []

    @cached_property
    def info(self) -> ModelInfo:
        """What the model is for."""
        i = c.ModelInfo()
        lib.model_get_info(self._live(), ctypes.byref(i), ctypes.sizeof(i))
        return ModelInfo(_TASKS[i.task], _KINDS[i.kind], i.sample_rate, i.features, i.outputs, bool(i.can_stream),
                         i.frame_seconds, i.weights)

    @cached_property
    def classes(self) -> list[str]:
        """What each output stands for; "" for the blank and where there is none."""
        return [text_of(lib.model_class(self._live(), i)) for i in range(self.info.outputs)]

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The classes of a ctc model, for Decoder, decode() and align()."""
        return Vocabulary._of_model(self._live())

    @contextmanager
    def _state(self, decoder: Optional[Decoder]) -> Iterator[_State]:
        model = self._live()
        try:
            state = self._idle.pop()
        except IndexError:
            state = _State(model, self._threads)
        try:
            state.use(decoder or self.decoder)
            yield state
        finally:
            if not self.closed:
                self._idle.append(state)

    def transcribe(self, recording: Any, sample_rate: Optional[int] = None, *, decoder: Optional[Decoder] = None,
                   progress: Optional[Progress] = None) -> Result:
        """What is said or written in one input.

        recording: the path of a WAVE file; samples [samples], of floats in [-1, 1] or int16; a grey image
            [height, width] of uint8, 0 black; or features [frames, columns] of floats.
        sample_rate: of samples, in Hz; None: the model's.
        decoder: instead of the recognizer's.
        progress: called now and then with the seconds of sound that are done, and with all. What it raises ends the call
            and is raised. Ctrl-C ends the call there, too.
        """
        return self._run([recording], sample_rate, decoder, ["recording"], progress)[0]

    def transcribe_batch(self, recordings: Sequence[Any], sample_rate: Optional[int] = None, *,
                         decoder: Optional[Decoder] = None, progress: Optional[Progress] = None) -> list[Result]:
        """transcribe() of several, which is faster than one after the other and gives the same bits."""
        names = [f"recordings[{i}]" for i in range(len(recordings))]
        return self._run(recordings, sample_rate, decoder, names, progress)

    def _run(self, given: Sequence[Any], rate: Optional[int], decoder: Optional[Decoder], names: list[str],
             progress: Optional[Progress]) -> list[Result]:
        if not given:
            return []
        model_rate = self.info.sample_rate
        pairs = [_input_of(x, rate, model_rate, name) for x, name in zip(given, names)]
        inputs = (c.Input * len(pairs))(*(i for i, _ in pairs))
        found = (ctypes.c_void_p * len(pairs))()
        with self._state(decoder) as state, state.telling(progress):
            lib.run(state.owner, inputs, len(pairs), found)
        return [Result(Owner(pointer, lib.result_free)) for pointer in found if pointer is not None]

    def stream(self, *, chunk_seconds: Optional[float] = None, end_silence: Optional[float] = None,
               longest: Optional[float] = None, decoder: Optional[Decoder] = None) -> "Stream":
        """A stream, which finds text while the sound arrives.

        chunk_seconds: computed at a time (0.2).
        end_silence: seconds behind speech that end an utterance (1); 0: none does.
        longest: seconds after which it ends at its next silent frame (30); 0: never.
        decoder: instead of the recognizer's.
        """
        return self.stream_group().stream(chunk_seconds=chunk_seconds, end_silence=end_silence, longest=longest,
                                          decoder=decoder)

    def stream_group(self) -> "StreamGroup":
        """For the streams of many speakers, which are computed together: in less time, with the same bits."""
        return StreamGroup(_State(self._live(), self._threads).owner, lambda: self.decoder)

    def trim(self) -> None:
        """Gives back the memory that earlier calls have taken, which otherwise stays for the next."""
        self._live()
        self._idle.clear()

    def close(self) -> None:
        """Gives back its memory, as soon as no other thread works with it. Streams go on."""
        super().close()
        self._idle.clear()


class StreamGroup(Handle):
    """Streams with the same model that share the memory to compute in. One thread at a time computes with them."""

    def __init__(self, owner: Owner, usual_decoder: Callable[[], Optional[Decoder]]) -> None:
        super().__init__(owner)
        self._lock = threading.Lock()
        self._usual_decoder = usual_decoder

    def stream(self, *, chunk_seconds: Optional[float] = None, end_silence: Optional[float] = None,
               longest: Optional[float] = None, decoder: Optional[Decoder] = None) -> "Stream":
        """Recognizer.stream(), within the group."""
        o = c.StreamOptions()
        lib.stream_options_init(ctypes.byref(o), ctypes.sizeof(o))
        set_options(o, chunk_seconds=chunk_seconds, end_silence=end_silence, longest=longest)
        used = decoder or self._usual_decoder()
        decoding = None if used is None else used._live()
        o.decoder = None if decoding is None else decoding.address
        with self._lock:
            state = self._live()
            made = make(lib.stream_new, lib.stream_free, state, ctypes.byref(o))
            return Stream(made.then(state.share()), self._lock)

    def accept(self, streams: "Sequence[Stream]", samples: Sequence[Array]) -> list[str]:
        """Stream.accept() of several of its streams, each there once: samples[i] is what streams[i] hears."""
        if len(streams) != len(samples):
            raise InvalidError(f"samples: {len(samples)} arrays, expected one for each of {len(streams)} streams")
        heard = [np.ascontiguousarray(_samples(x, f"samples[{i}]")) for i, x in enumerate(samples)]
        texts = (ctypes.c_char_p * len(heard))()
        for i, stream in enumerate(streams):
            if stream._lock is not self._lock:
                raise InvalidError(f"streams[{i}]: is of another group")
        with self._lock:
            self._live()
            owners = [stream._live() for stream in streams]
            lib.streams_accept((ctypes.c_void_p * len(owners))(*(o.address for o in owners)),
                               (ctypes.c_void_p * len(heard))(*(x.ctypes.data for x in heard)),
                               (ctypes.c_size_t * len(heard))(*map(len, heard)), len(heard), texts)
            return [text_of(text) for text in texts]


class Stream(Handle):
    """One speaker's sound, with what has been heard of it. Memory and the time for a second of sound stay the same."""

    def __init__(self, owner: Owner, lock: threading.Lock) -> None:
        super().__init__(owner)
        self._lock = lock

    def accept(self, samples: Array) -> str:
        """Hears samples [samples] at the model's rate, of floats in [-1, 1] or int16.

        Returns the text that is final now and was not before, with a line feed behind each utterance that has ended.
        """
        a = np.ascontiguousarray(_samples(samples, "samples"))
        text = ctypes.c_char_p()
        with self._lock:
            stream = self._live()  # which has the text
            lib.stream_accept(stream, a.ctypes.data, len(a), ctypes.byref(text))
            return text_of(text.value)

    def partial(self) -> Partial:
        """What is known of the utterance that is being heard."""
        stable, text = ctypes.c_char_p(), ctypes.c_char_p()
        with self._lock:
            stream = self._live()
            lib.stream_partial(stream, ctypes.byref(stable), ctypes.byref(text))
            return Partial(text_of(stable.value), text_of(text.value))

    def endpoint(self) -> Optional[Result]:
        """The next utterance that has ended and has not been asked for; None: none."""
        found = ctypes.c_void_p()
        with self._lock:
            lib.stream_next(self._live(), ctypes.byref(found))
        return None if found.value is None else Result(Owner(found.value, lib.result_free))

    def finish(self) -> list[Result]:
        """The sound is over: the utterances that have not been asked for, with the last. The stream is as new."""
        with self._lock:
            lib.stream_finish(self._live())
        found = []
        while (utterance := self.endpoint()) is not None:
            found.append(utterance)
        return found

    def reset(self) -> None:
        """Forgets what it has heard."""
        with self._lock:
            lib.stream_reset(self._live())
