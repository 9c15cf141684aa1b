#include "engine/data/audio/audio.h"

#include <sndfile.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>

#include "engine/data/audio/container_check.h"
#include "engine/data/audio/resample.h"
#include "engine/data/features/files.h"
#include "kernels/base/cpu/copy_bytes.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

constexpr int32_t lowest_rate = 100;
constexpr int32_t highest_rate = 768'000;
constexpr int32_t most_channels = 256;

struct CloseSndfile {
  void operator()(SNDFILE* file) const { sf_close(file); }
};
using Sndfile = std::unique_ptr<SNDFILE, CloseSndfile>;

// An open recording, from a file or from memory, with the callbacks libsndfile wants.
class Source {
 public:
  explicit Source(const FilePart& part)
      : name_(part.name()),
        file_(std::in_place, part.path),
        first_(part.first),
        size_(part.size_in(file_->size())) {}
  Source(std::span<const std::byte> bytes, std::string_view name)
      : name_(name), bytes_(bytes), size_(bytes.size()) {}

  const std::string& name() const { return name_; }

  size_t read_at(uint64_t offset, std::span<std::byte> to) const {
    if (offset >= size_) return 0;
    const auto n = static_cast<size_t>(std::min<uint64_t>(to.size(), size_ - offset));
    if (!file_) {
      copy_bytes(to.data(), bytes_.data() + offset, n);
      return n;
    }
    return file_->read_at(first_ + offset, to.first(n));
  }

  Sndfile open(SF_INFO& info) {
    if (size_ == 0) fail_input(name_, ": is empty, expected audio");
    const std::string truncated = data::find_truncation(
        size_, [this](uint64_t offset, std::span<std::byte> to) { return read_at(offset, to); });
    if (!truncated.empty()) fail_input(name_, ": is truncated: ", truncated);
    static SF_VIRTUAL_IO callbacks = {&Source::length, &Source::seek, &Source::read, nullptr,
                                      &Source::tell};
    Sndfile file(sf_open_virtual(&callbacks, SFM_READ, &info, this));
    if (!file)
      fail_input(name_, ": is not audio that can be decoded (WAV, FLAC or Ogg expected): ",
                 sf_strerror(nullptr));
    check(info);
    return file;
  }

 private:
  void check(const SF_INFO& info) const {
    if (info.samplerate < lowest_rate || info.samplerate > highest_rate)
      fail_input(name_, ": has a sample rate of ", info.samplerate, " Hz, expected ", lowest_rate,
                 " to ", highest_rate);
    if (info.channels < 1 || info.channels > most_channels)
      fail_input(name_, ": has ", info.channels, " channels, expected 1 to ", most_channels);
    if (info.frames < 0 || info.frames == SF_COUNT_MAX)
      fail_input(name_, ": does not tell its length (damaged or truncated)");
  }

  static sf_count_t length(void* self) {
    return static_cast<sf_count_t>(static_cast<Source*>(self)->size_);
  }
  static sf_count_t seek(sf_count_t offset, int whence, void* self) {
    auto* source = static_cast<Source*>(self);
    sf_count_t base = 0;
    if (whence == SEEK_CUR) base = static_cast<sf_count_t>(source->at_);
    if (whence == SEEK_END) base = static_cast<sf_count_t>(source->size_);
    if (base + offset < 0) return -1;
    source->at_ = static_cast<uint64_t>(base + offset);
    return base + offset;
  }
  static sf_count_t read(void* to, sf_count_t count, void* self) {
    auto* source = static_cast<Source*>(self);
    if (count <= 0) return 0;
    const size_t n =
        source->read_at(source->at_, {static_cast<std::byte*>(to), static_cast<size_t>(count)});
    source->at_ += n;
    return static_cast<sf_count_t>(n);
  }
  static sf_count_t tell(void* self) {
    return static_cast<sf_count_t>(static_cast<Source*>(self)->at_);
  }

  std::string name_;
  std::optional<data::RegularFile> file_;  // none: from memory
  uint64_t first_ = 0;                     // byte of the file
  std::span<const std::byte> bytes_;
  uint64_t size_ = 0;
  uint64_t at_ = 0;
};

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

// Full scale is 1, and files with the numbers of 32-bit integers are read. The power of what is far
// beyond that is no float any more.
constexpr float largest_sample = 1e10f;

bool is_sample(float x) { return std::abs(x) <= largest_sample; }

// The first that is not finite, or absurdly large; n: none is.
size_t find_no_sample(const float* x, size_t n) {
  unsigned bad = 0;
  for (size_t i = 0; i < n; ++i) bad |= static_cast<unsigned>(!is_sample(x[i]));
  if (bad == 0) return n;
  return static_cast<size_t>(std::find_if_not(x, x + n, is_sample) - x);
}

[[noreturn]] void fail_sample(const std::string& name, int64_t at, int32_t rate, float value) {
  fail_input(
      name, ": sample ", at, " (", static_cast<double>(at) / rate, " s) is ",
      std::isfinite(value) ? str(value, ", expected one of about -1 to 1") : "not a finite number");
}

// `count` frames from the `first`; `channel`: see AudioSegment.
std::vector<float> read_mono(SNDFILE* file, const SF_INFO& info, const std::string& name,
                             int64_t first, int64_t count, int32_t channel) {
  // FLAC and Ogg seek slowly and, when damaged, not at all: only where needed.
  if (first > 0 && sf_seek(file, first, SEEK_SET) != first)
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
    const sf_count_t got = sf_readf_float(file, channels > 1 ? interleaved.data() : to, want);
    if (got <= 0)
      fail_input(name, ": ends after ", first + static_cast<int64_t>(done),
                 " samples, its header announces ", info.frames, " (damaged or truncated)");
    mono.resize(done + static_cast<size_t>(got));
    if (channels > 1) mix_down(interleaved.data(), channels, channel, mono, done);
    if (const size_t at = find_no_sample(to, static_cast<size_t>(got));
        at < static_cast<size_t>(got))
      fail_sample(name, first + static_cast<int64_t>(done + at), info.samplerate, to[at]);
  }
  return mono;
}

Waveform decode(Source& source, int32_t sample_rate, AudioSegment segment) {
  RONDO_CHECK(sample_rate == 0 || (sample_rate >= lowest_rate && sample_rate <= highest_rate),
              "sample rate is ", sample_rate);
  SF_INFO info{};
  const Sndfile file = source.open(info);
  const AudioInfo shape{info.samplerate, info.channels, info.frames};
  require_channel(shape, segment, source.name());
  const SampleRange range = sample_range(shape, segment);
  const bool whole = segment.offset == 0 && segment.duration < 0;
  if (range.count == 0 && !whole)
    fail_input(source.name(), ": the part from ", segment.offset, " s",
               segment.duration >= 0 ? str(" of ", segment.duration, " s") : "",
               " holds no samples (the recording has ", shape.seconds(), " s)");
  Waveform out;
  out.sample_rate = sample_rate == 0 ? info.samplerate : sample_rate;
  out.samples =
      read_mono(file.get(), info, source.name(), range.first, range.count, segment.channel);
  if (out.sample_rate != info.samplerate && !out.samples.empty())
    out.samples = resample(out.samples, info.samplerate, out.sample_rate);
  return out;
}

}  // namespace

AudioInfo SndfileReader::info(const FilePart& file) const {
  Source source(file);
  SF_INFO info{};
  const Sndfile opened = source.open(info);
  return {info.samplerate, info.channels, info.frames};
}

Waveform SndfileReader::read(const FilePart& file, int32_t sample_rate,
                             AudioSegment segment) const {
  Source source(file);
  return decode(source, sample_rate, segment);
}

bool is_recording_name(std::string_view path) {
  constexpr std::string_view endings[] = {".wav", ".flac", ".ogg", ".oga", ".opus",
                                          ".mp3", ".aiff", ".aif", ".au",  ".w64"};
  const size_t dot = path.rfind('.');
  if (dot == std::string_view::npos) return false;
  std::string ending(path.substr(dot));
  for (char& c : ending) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return std::find(std::begin(endings), std::end(endings), ending) != std::end(endings);
}

Waveform decode_audio(std::span<const std::byte> bytes, std::string_view name, int32_t sample_rate,
                      AudioSegment segment) {
  Source source(bytes, name);
  return decode(source, sample_rate, segment);
}

void write_wav(const std::string& path, const Waveform& audio, WavFormat format) {
  SF_INFO info{};
  info.samplerate = audio.sample_rate;
  info.channels = 1;
  info.format = SF_FORMAT_WAV | (format == WavFormat::pcm16 ? SF_FORMAT_PCM_16 : SF_FORMAT_FLOAT);
  RONDO_CHECK(sf_format_check(&info), "sample rate ", audio.sample_rate);
  Sndfile file(sf_open(path.c_str(), SFM_WRITE, &info));
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
