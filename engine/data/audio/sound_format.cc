#include "engine/data/audio/sound_format.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "engine/data/features/endings.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

struct Mark {
  size_t at;
  std::string_view bytes;
  SoundFormat format;
};

using std::string_view_literals::operator""sv;

constexpr bool foreign = true;

constexpr std::array marks = std::to_array<Mark>({
    {8, "WAVE"sv, {"WAV", false}},
    {0, "fLaC"sv, {"FLAC", false}},
    {0, "OggS"sv, {"Ogg", false}},
    {0, "ID3"sv, {"MP3", false}},
    {8, "AIFF"sv, {"AIFF", false}},
    {8, "AIFC"sv, {"AIFF-C", false}},
    {0, "caff"sv, {"CAF", false}},
    {0, "NIST_1A"sv, {"NIST SPHERE (sph)", false}},
    {0, ".snd"sv, {"AU", false}},
    {0, "dns."sv, {"AU", false}},
    {0, "riff\x2e\x91\xcf\x11"sv, {"Wave64", false}},
    {0, "Creative Voice File"sv, {"VOC", false}},
    {4, "ftyp"sv, {"MPEG-4 (m4a, mp4, 3gp, mov)", foreign}},
    {4, "moov"sv, {"QuickTime (mov)", foreign}},
    {4, "mdat"sv, {"QuickTime (mov)", foreign}},
    {0, "\x1a\x45\xdf\xa3"sv, {"Matroska (webm, mkv)", foreign}},
    {0, "\x30\x26\xb2\x75\x8e\x66\xcf\x11"sv, {"Windows Media (wma)", foreign}},
    {0, "#!AMR"sv, {"AMR", foreign}},
    {0, "wvpk"sv, {"WavPack", foreign}},
    {0, "MAC "sv, {"Monkey's Audio (ape)", foreign}},
    {0, "TTA1"sv, {"TTA", foreign}},
    {0, "MPCK"sv, {"Musepack", foreign}},
    {0, "MP+"sv, {"Musepack", foreign}},
    {0, "FLV\x01"sv, {"Flash video", foreign}},
    {0, "ADIF"sv, {"AAC", foreign}},
    {0, "DSD "sv, {"DSF", foreign}},
    {0, ".RMF"sv, {"RealMedia", foreign}},
    {8, "AVI "sv, {"AVI", foreign}},
    {0, "\x00\x00\x01\xba"sv, {"MPEG", foreign}},
    {0, "\x0b\x77"sv, {"AC-3", foreign}},
});

// A frame of MPEG audio, of its layers 2 and 3 or AAC with ADTS headers, begins with twelve bits
// that are set; fields with values that do not exist tell what is none.
SoundFormat mpeg_frame(std::string_view start) {
  const auto byte = [&](size_t i) {
    return static_cast<unsigned>(static_cast<unsigned char>(start[i]));
  };
  if (start.size() < 4 || byte(0) != 0xff) return {};
  if ((byte(1) & 0xf6u) == 0xf0u) {
    constexpr unsigned rates = 13;
    return (byte(2) >> 2 & 0xfu) < rates ? SoundFormat{"AAC", foreign} : SoundFormat{};
  }
  const bool is_synchronous = (byte(1) & 0xe0u) == 0xe0u;
  const unsigned version = byte(1) >> 3 & 3u, layer = byte(1) >> 1 & 3u;
  const unsigned bit_rate = byte(2) >> 4, rate = byte(2) >> 2 & 3u;
  const bool exists =
      version != 1 && (layer == 1 || layer == 2) && bit_rate != 0 && bit_rate != 15 && rate != 3;
  return is_synchronous && exists ? SoundFormat{"MP3", false} : SoundFormat{};
}

}  // namespace

SoundFormat sound_format(std::string_view start) {
  for (const Mark& mark : marks) {
    if (start.size() >= mark.at && start.substr(mark.at).starts_with(mark.bytes))
      return mark.format;
  }
  return mpeg_frame(start);
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

}  // namespace rondo
