#include "tools/corpus/examination/examine_sound.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <span>

#include "engine/data/audio/bandwidth.h"
#include "engine/data/audio/sound_check.h"
#include "engine/data/features/feature_file.h"
#include "engine/data/features/files.h"
#include "engine/data/features/kaldi_matrix.h"
#include "kernels/base/error.h"

namespace rondo::corpus {
namespace {

// Seconds; where a matrix ends is known from its header alone.
double measure_features(ListedUtterance& u) {
  const std::string start = data::read_file_start(u.file, data::needed_kaldi_header_bytes);
  const std::span<const std::byte> bytes = std::as_bytes(std::span(start));
  u.file.size = data::parse_kaldi_header(bytes, u.file.name()).total_bytes();
  const FeatureShape shape = feature_file_shape(u.file, "");
  return static_cast<double>(shape.frames) * u.seconds_per_frame;
}

std::string short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

std::optional<Flaw> examine_length(ListedUtterance& u, double seconds, double least) {
  if (u.duration < 0) u.duration = seconds - u.offset;
  if (u.offset + u.duration > 1.01 * seconds + 0.1) {
    return Flaw{Finding::beyond_end, str(u.file.path, ": has ", seconds, " s, the part ends after ",
                                         u.offset + u.duration, " s")};
  }
  if (!(u.duration >= least)) {
    return Flaw{Finding::too_short, str(u.file.path, ": has ", u.duration, " s, expected ", least)};
  }
  return std::nullopt;
}

// What cannot be used, of what was decoded.
std::optional<Flaw> examine_power(const ListedUtterance& u, const SoundReport& r) {
  constexpr double nothing = 1e-12;
  const std::string name = u.file.name();
  if (r.info.channels > 1 && u.channel < 0 && r.channel_power > nothing &&
      r.power < 0.01 * r.channel_power) {
    return Flaw{Finding::cancelled,
                str(name, ": its ", r.info.channels,
                    " channels are opposite, and their mean is next to nothing")};
  }
  if (!(r.power > nothing))
    return Flaw{Finding::silence,
                str(name, ": is silent, all its samples are ", short_number(r.mean))};
  return std::nullopt;
}

// What is used, and ought to be looked at.
void note_sound(ListedUtterance& u, const SoundReport& r) {
  const std::string name = u.file.name();
  const auto note = [&](Finding finding, const std::string& what) {
    u.notes.push_back({finding, name + ": " + what});
  };
  constexpr double integers = 8, hardly = 1e-3;
  if (r.peak > integers) {
    note(Finding::integers, str("has samples up to ", short_number(r.peak),
                                ", where 1 is the largest: integers written as floats"));
  } else if (r.peak < hardly) {
    note(Finding::quiet, str("its loudest sample is ", short_number(r.peak), " of full scale"));
  }
  constexpr double offset = 0.1;
  if (r.peak <= integers && std::abs(r.mean) > offset)
    note(Finding::offset, str("its samples are ", short_number(r.mean), " on average, expected 0"));
  constexpr double clipped_share = 1e-3;
  if (static_cast<double>(r.clipped) > clipped_share * static_cast<double>(r.samples) &&
      r.peak > 0.5) {
    note(Finding::clipped,
         str(r.clipped, " of ", r.samples, " samples stand at the peak, ", short_number(r.peak)));
  }
  const int32_t rate = true_rate(r.info.sample_rate, r.bandwidth);
  if (rate < r.info.sample_rate) {
    note(Finding::narrow_band, str("has ", r.info.sample_rate, " Hz and nothing above ",
                                   std::lround(r.bandwidth), " Hz, as if made from ", rate, " Hz"));
  }
  if (r.is_foreign) u.notes.push_back({Finding::foreign, name});
}

Finding finding_of(SoundFault fault) {
  switch (fault) {
    case SoundFault::truncated:
      return Finding::truncated;
    case SoundFault::foreign:
      return Finding::undecoded;
    case SoundFault::no_number:
      return Finding::no_number;
  }
  return Finding::unreadable;
}

std::optional<Flaw> examine_samples(ListedUtterance& u, const SoundExamination& o) {
  const SoundReport r = check_sound(u.file, {u.offset, u.duration, u.channel}, {o.salvage});
  u.sample_rate = r.info.sample_rate;
  u.bandwidth = r.bandwidth;
  double seconds = r.info.seconds();
  if (!r.truncation.empty()) {
    seconds = u.offset + static_cast<double>(r.samples) / r.info.sample_rate;
    u.is_cut_off = true;
    if (u.duration >= 0) u.duration = std::min(u.duration, std::max(seconds - u.offset, 0.0));
    u.notes.push_back({Finding::salvaged, str(u.file.name(), ": ", r.truncation, "; ",
                                              short_number(seconds), " s of it are used")});
  }
  if (auto flaw = examine_length(u, seconds, o.least_seconds)) return flaw;
  if (auto flaw = examine_power(u, r)) return flaw;
  note_sound(u, r);
  return std::nullopt;
}

}  // namespace

std::optional<Flaw> examine_sound(ListedUtterance& u, const AudioReader& audio,
                                  const SoundExamination& o) {
  try {
    if (u.kind == InputKind::features)
      return examine_length(u, measure_features(u), o.least_seconds);
    if (o.channel >= 0 && u.channel < 0) {
      const AudioInfo info = SndfileReader({o.salvage}).info(u.file);
      if (info.channels > 1) u.channel = o.channel;
    }
    if (o.decode) return examine_samples(u, o);
    try {
      const AudioInfo info = audio.info(u.file);
      require_channel(info, {0, -1, u.channel}, u.file.name());
      u.sample_rate = info.sample_rate;
      return examine_length(u, info.seconds(), o.least_seconds);
    } catch (const SoundError& e) {
      if (e.fault != SoundFault::truncated || !o.salvage) throw;
      return examine_samples(u, o);
    }
  } catch (const SoundError& e) {
    return Flaw{finding_of(e.fault), e.what()};
  } catch (const InputError& e) {
    return Flaw{Finding::unreadable, e.what()};
  }
}

}  // namespace rondo::corpus
