#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "engine/data/audio/sound_decoder.h"
#include "kernels/base/error.h"

namespace rondo::data {
namespace {

using Byte = std::byte;

template <typename Unsigned>
Unsigned little(const Byte* p) {
  Unsigned v = 0;
  for (size_t i = sizeof v; i-- > 0;)
    v = static_cast<Unsigned>(v << 8 | std::to_integer<Unsigned>(p[i]));
  return v;
}

// G.711 as 16 bits: seven bits of a logarithmic curve of segments, and the sign.
int a_law(unsigned code) {
  const unsigned bits = code ^ 0x55u, segment = bits >> 4 & 7u, step = bits & 15u;
  const auto size =
      static_cast<int>(segment == 0 ? step << 4 | 8u : (step << 4 | 0x108u) << (segment - 1));
  return bits & 0x80u ? size : -size;
}
int mu_law(unsigned code) {
  const unsigned bits = ~code & 0xffu, segment = bits >> 4 & 7u, step = bits & 15u;
  const auto size = static_cast<int>(((step << 3 | 0x84u) << segment) - 0x84u);
  return bits & 0x80u ? -size : size;
}

// The bits of a sample at the top of 32, so that one scale fits all widths.
float of_top_bits(uint32_t bits) {
  return static_cast<float>(std::bit_cast<int32_t>(bits)) * 0x1p-31f;
}

using Sample = float (*)(const Byte*);
struct Encoding {
  unsigned tag, bits;
  Sample sample;
};
constexpr unsigned pcm = 1, floats = 3, a_law_tag = 6, mu_law_tag = 7, extensible = 0xfffe;
constexpr std::array encodings = std::to_array<Encoding>({
    {pcm, 8,
     [](const Byte* p) {
       return of_top_bits((std::to_integer<uint32_t>(*p) << 24) ^ 0x80000000u);
     }},
    {pcm, 16, [](const Byte* p) { return of_top_bits(uint32_t{little<uint16_t>(p)} << 16); }},
    {pcm, 24,
     [](const Byte* p) {
       return of_top_bits(uint32_t{little<uint16_t>(p)} << 8 | std::to_integer<uint32_t>(p[2])
                                                                   << 24);
     }},
    {pcm, 32, [](const Byte* p) { return of_top_bits(little<uint32_t>(p)); }},
    {floats, 32, [](const Byte* p) { return std::bit_cast<float>(little<uint32_t>(p)); }},
    {floats, 64,
     [](const Byte* p) { return static_cast<float>(std::bit_cast<double>(little<uint64_t>(p))); }},
    {a_law_tag, 8,
     [](const Byte* p) {
       return static_cast<float>(a_law(std::to_integer<unsigned>(*p))) * 0x1p-15f;
     }},
    {mu_law_tag, 8,
     [](const Byte* p) {
       return static_cast<float>(mu_law(std::to_integer<unsigned>(*p))) * 0x1p-15f;
     }},
});

bool is(const Byte* p, const char* four) { return std::memcmp(p, four, 4) == 0; }

class WavDecoder final : public SoundDecoder {
 public:
  explicit WavDecoder(SoundBytes bytes) : bytes_(std::move(bytes)) {}

  // Empty: it is open.
  std::string open(AudioInfo& info) {
    std::array<Byte, 12> head;
    if (bytes_.read_at(0, head) < head.size() || !is(head.data() + 8, "WAVE") ||
        !(is(head.data(), "RIFF") || is(head.data(), "RF64")))
      return "it is no WAV, and nothing else is decoded by a build without libsndfile";
    // Chunks are at least 8 bytes, so this ends; the bound keeps a hostile file cheap.
    constexpr int most_chunks = 1000;
    uint64_t at = head.size();
    for (int i = 0; i < most_chunks; ++i) {
      std::array<Byte, 8> chunk;
      if (bytes_.read_at(at, chunk) < chunk.size()) break;
      const uint64_t size = little<uint32_t>(chunk.data() + 4);
      at += chunk.size();
      if (is(chunk.data(), "data")) {
        if (sample_ == nullptr) return "its samples come before their format";
        take_samples(at, size);
        info = {rate_, channels_, frames_};
        return {};
      }
      if (is(chunk.data(), "ds64")) read_large_size(at, size);
      if (is(chunk.data(), "fmt ")) {
        if (std::string problem = read_format(at, size); !problem.empty()) return problem;
      }
      at += size + (size & 1);
    }
    return "it has no samples";
  }

  bool seek(int64_t frame) override {
    if (frame < 0 || frame > frames_) return false;
    next_ = frame;
    return true;
  }

  int64_t read(float* to, int64_t frames) override {
    const int64_t want = std::min(frames, frames_ - next_);
    if (want <= 0) return 0;
    buffer_.resize(static_cast<size_t>(want) * frame_bytes_);
    const uint64_t from = first_ + static_cast<uint64_t>(next_) * frame_bytes_;
    const size_t got = bytes_.read_at(from, buffer_) / frame_bytes_;
    const size_t bytes = frame_bytes_ / static_cast<size_t>(channels_);
    for (size_t i = 0; i < got * static_cast<size_t>(channels_); ++i)
      to[i] = sample_(buffer_.data() + i * bytes);
    next_ += static_cast<int64_t>(got);
    return static_cast<int64_t>(got);
  }

 private:
  std::string read_format(uint64_t at, uint64_t size) {
    std::array<Byte, 26> f{};
    const std::span there =
        std::span(f).first(static_cast<size_t>(std::min<uint64_t>(size, f.size())));
    if (size < 16 || bytes_.read_at(at, there) < there.size()) return "its format is cut off";
    unsigned tag = little<uint16_t>(f.data());
    // The first two bytes of a GUID whose others are always the same.
    if (tag == extensible && size >= f.size()) tag = little<uint16_t>(f.data() + 24);
    channels_ = little<uint16_t>(f.data() + 2);
    const auto rate = little<uint32_t>(f.data() + 4);
    frame_bytes_ = little<uint16_t>(f.data() + 12);
    const unsigned bits = little<uint16_t>(f.data() + 14);
    rate_ = static_cast<int32_t>(std::min<uint32_t>(rate, INT32_MAX));
    const auto* const found =
        std::find_if(encodings.begin(), encodings.end(),
                     [&](const Encoding& e) { return e.tag == tag && e.bits == bits; });
    if (found == encodings.end())
      return str(
          "its samples have format ", tag, " and ", bits,
          " bits, expected PCM of 8, 16, 24 or 32 bits, floats of 32 or 64, A-law or mu-law");
    if (channels_ < 1 || frame_bytes_ != static_cast<size_t>(channels_) * (bits / 8))
      return str("it has frames of ", frame_bytes_, " bytes, expected ", channels_, " samples of ",
                 bits, " bits");
    sample_ = found->sample;
    return {};
  }

  void read_large_size(uint64_t at, uint64_t size) {
    std::array<Byte, 16> sizes;
    if (size >= sizes.size() && bytes_.read_at(at, sizes) == sizes.size())
      large_size_ = little<uint64_t>(sizes.data() + 8);
  }

  void take_samples(uint64_t at, uint64_t size) {
    constexpr uint64_t in_ds64 = 0xffffffff;
    if (size == in_ds64 && large_size_) size = *large_size_;
    const uint64_t have = bytes_.size - std::min(at, bytes_.size);
    first_ = at;
    frames_ = static_cast<int64_t>((size == 0 ? have : std::min(size, have)) / frame_bytes_);
  }

  SoundBytes bytes_;
  Sample sample_ = nullptr;
  int32_t rate_ = 0, channels_ = 0;
  size_t frame_bytes_ = 0;
  std::optional<uint64_t> large_size_;
  uint64_t first_ = 0;  // byte of the first sample
  int64_t frames_ = 0, next_ = 0;
  std::vector<Byte> buffer_;
};

}  // namespace

OpenedSound open_wav(SoundBytes bytes) {
  OpenedSound opened;
  auto decoder = std::make_unique<WavDecoder>(std::move(bytes));
  opened.problem = decoder->open(opened.info);
  if (opened.problem.empty()) opened.decoder = std::move(decoder);
  return opened;
}

}  // namespace rondo::data
