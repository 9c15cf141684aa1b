#include "engine/data/audio/audio.h"

#include <sndfile.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/data/audio/resample.h"
#include "engine/data/audio/sound_format.h"
#include "engine/data/audio/sound_source.h"
#include "engine/data/features/endings.h"
#include "engine/data/features/files.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

using data::SoundSource;

constexpr int32_t lowest_rate = 100;
constexpr int32_t highest_rate = 768'000;

// One channel of frames that interleave `channels`, or their mean.
void mix_down(const float* interleaved, size_t channels, int32_t channel, std::vector<float>& mono,
              size_t from) {
  if (channel >= 0) {
    interleaved += channel;
    for (size_t i = from; i < mono.size(); ++i, interleaved += channels) mono[i] = *interleaved;
    return;
  }
  const float share = 1.0f / static_cast<float>(channels);
  for (size_t i = from; i < mono.size(); ++i, interleaved += channels) {
    float sum = 0;
    for (size_t c = 0; c < channels; ++c) sum += interleaved[c];
    mono[i] = sum * share;
  }
}

[[noreturn]] void fail_sample(const std::string& name, int64_t at, int32_t rate, float value) {
  throw SoundError(SoundFault::no_number,
                   str(name, ": sample ", at, " (", static_cast<double>(at) / rate, " s) is ",
                       std::isfinite(value) ? str(value, ", expected one of about -1 to 1")
                                            : std::string("not a finite number")));
}

// `count` frames from the `first`; `channel`: see AudioSegment.
std::vector<float> read_mono(SoundSource& source, const AudioInfo& info, int64_t first,
                             int64_t count, int32_t channel) {
  const std::string& name = source.name();
  // FLAC and Ogg seek slowly and, when damaged, not at all: only where needed.
  if (first > 0 && !source.seek(first))
    fail_input(name, ": cannot be read from sample ", first, " of ", info.frames,
               " (damaged or truncated)");
  constexpr int64_t block = 16384;
  const auto channels = static_cast<size_t>(info.channels);
  std::vector<float> interleaved;
  if (channels > 1) interleaved.resize(static_cast<size_t>(std::min(block, count)) * channels);
  std::vector<float> mono;
  // The header may lie about the length: memory grows with what is really there.
  mono.reserve(static_cast<size_t>(std::min<int64_t>(count, int64_t{1} << 24)));
  while (static_cast<int64_t>(mono.size()) < count) {
    const size_t done = mono.size();
    const auto want = std::min(block, count - static_cast<int64_t>(done));
    mono.resize(done + static_cast<size_t>(want));
    float* const to = mono.data() + done;
    const int64_t got = source.read(channels > 1 ? interleaved.data() : to, want);
    if (got <= 0 && source.salvages()) {
      mono.resize(done);
      break;
    }
    if (got <= 0)
      throw SoundError(
          SoundFault::truncated,
          str(name, ": ends after ", first + static_cast<int64_t>(done),
              " samples, its header announces ", info.frames, " (damaged or truncated)"));
    mono.resize(done + static_cast<size_t>(got));
    if (channels > 1) mix_down(interleaved.data(), channels, channel, mono, done);
    if (const int64_t at = find_no_sample({to, static_cast<size_t>(got)}); at >= 0)
      fail_sample(name, first + static_cast<int64_t>(done) + at, info.sample_rate, to[at]);
  }
  return mono;
}

Waveform decode(SoundSource& source, int32_t sample_rate, AudioSegment segment) {
  RONDO_CHECK(sample_rate == 0 || (sample_rate >= lowest_rate && sample_rate <= highest_rate),
              "sample rate is ", sample_rate);
  const AudioInfo shape = source.open();
  require_channel(shape, segment, source.name());
  const SampleRange range = sample_range(shape, segment);
  const bool whole = segment.offset == 0 && segment.duration < 0;
  if (range.count == 0 && !whole)
    fail_input(source.name(), ": the part from ", segment.offset, " s",
               segment.duration >= 0 ? str(" of ", segment.duration, " s") : "",
               " holds no samples (the recording has ", shape.seconds(), " s)");
  Waveform out;
  out.sample_rate = sample_rate == 0 ? shape.sample_rate : sample_rate;
  out.samples = read_mono(source, shape, range.first, range.count, segment.channel);
  if (out.sample_rate != shape.sample_rate && !out.samples.empty())
    out.samples = resample(out.samples, shape.sample_rate, out.sample_rate);
  return out;
}

}  // namespace

AudioInfo SndfileReader::info(const FilePart& file) const {
  SoundSource source(file, reading_);
  return source.open();
}

Waveform SndfileReader::read(const FilePart& file, int32_t sample_rate,
                             AudioSegment segment) const {
  SoundSource source(file, reading_);
  return decode(source, sample_rate, segment);
}

bool is_recording_name(std::string_view path) {
  constexpr std::string_view endings[] = {
      ".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aiff", ".aif", ".aifc", ".au",
      ".w64", ".caf",  ".sph", ".m4a", ".aac",  ".mp4", ".webm", ".mkv", ".mka",  ".mov",
      ".wma", ".amr",  ".3gp", ".ape", ".wv",   ".tta", ".mp2",  ".ac3", ".avi",  ".rf64"};
  return std::find(std::begin(endings), std::end(endings), ending_of(path)) != std::end(endings);
}

bool is_recording_file(const std::string& path) {
  // What lies beside recordings and is none: there is no need to look inside.
  static constexpr std::string_view others[] = {
      ".txt", ".json", ".jsonl", ".csv", ".tsv",  ".md",  ".xml",        ".html",     ".pdf",
      ".png", ".jpg",  ".jpeg",  ".svg", ".py",   ".sh",  ".lab",        ".textgrid", ".srt",
      ".vtt", ".zip",  ".gz",    ".tar", ".toml", ".npy", ".safetensors"};
  // What macOS keeps beside files on foreign disks is called like them.
  if (path.substr(path.rfind('/') + 1).starts_with("._")) return false;
  if (is_recording_name(path)) return true;
  if (std::find(std::begin(others), std::end(others), ending_of(path)) != std::end(others))
    return false;
  return holds_sound(path);
}

bool holds_sound(const FilePart& file) {
  try {
    return !sound_format(data::read_file_start(file, sound_format_bytes)).name.empty();
  } catch (const InputError&) {
    return false;  // who uses it says why
  }
}

Waveform decode_audio(std::span<const std::byte> bytes, std::string_view name, int32_t sample_rate,
                      AudioSegment segment) {
  SoundSource source(bytes, name);
  return decode(source, sample_rate, segment);
}

std::string make_wav(const Waveform& audio) {
  const auto bytes = static_cast<uint32_t>(2 * audio.samples.size());
  const auto rate = static_cast<uint32_t>(audio.sample_rate);
  std::string wav;
  const auto put = [&wav](uint32_t value, int size) {
    for (int i = 0; i < size; ++i) wav += static_cast<char>(value >> 8 * i & 0xff);
  };
  wav.reserve(44 + bytes);
  wav += "RIFF";
  put(36 + bytes, 4);
  wav += "WAVEfmt ";
  put(16, 4);        // bytes that follow of this part
  put(1, 2);         // PCM
  put(1, 2);         // one channel
  put(rate, 4);      // samples a second
  put(2 * rate, 4);  // bytes a second
  put(2, 2);         // bytes a sample
  put(16, 2);        // bits a sample
  wav += "data";
  put(bytes, 4);
  for (const float sample : audio.samples) {
    const long value = std::lround(std::clamp(sample, -1.0f, 1.0f) * 32767);
    put(static_cast<uint32_t>(value), 2);
  }
  return wav;
}

void write_wav(const std::string& path, const Waveform& audio, WavFormat format) {
  SF_INFO info{};
  info.samplerate = audio.sample_rate;
  info.channels = 1;
  info.format = SF_FORMAT_WAV | (format == WavFormat::pcm16 ? SF_FORMAT_PCM_16 : SF_FORMAT_FLOAT);
  RONDO_CHECK(sf_format_check(&info), "sample rate ", audio.sample_rate);
  std::unique_ptr<SNDFILE, int (*)(SNDFILE*)> file(sf_open(path.c_str(), SFM_WRITE, &info),
                                                   sf_close);
  if (!file) fail_input(path, ": cannot be written: ", sf_strerror(nullptr));
  sf_command(file.get(), SFC_SET_CLIPPING, nullptr, SF_TRUE);
  const auto count = static_cast<sf_count_t>(audio.samples.size());
  const bool written = sf_write_float(file.get(), audio.samples.data(), count) == count;
  const bool closed = sf_close(file.release()) == 0;
  if (written && closed) return;
  struct stat status {};
  // Never a device (/dev/full, a named pipe).
  if (stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode)) std::remove(path.c_str());
  fail_input(path, ": cannot be written to the end (is the disk full?)");
}

}  // namespace rondo
