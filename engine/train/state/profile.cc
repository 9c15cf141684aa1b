#include "engine/train/state/profile.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "engine/io/file.h"
#include "engine/io/json.h"
#include "kernels/base/text.h"

namespace rondo {
namespace {

using Track = TraceSpan::Track;

constexpr std::pair<Track, const char*> tracks[] = {
    {Track::host, "host"}, {Track::device, "device"}, {Track::messages, "messages"}};

// A name for a rank, or for one of its tracks.
Json naming(const char* what, int rank, int track, std::string name) {
  return Json::object({{"name", what},
                       {"ph", "M"},
                       {"pid", rank},
                       {"tid", track},
                       {"args", Json::object({{"name", std::move(name)}})}});
}

Json event(const TraceSpan& span, int rank) {
  const double seconds = span.end - span.begin;
  Json::Object about;
  for (const auto& [name, number] : span.numbers) {
    if (number == 0) continue;
    about.push_back({name, number});
    if (name == "gflop" && seconds > 0) about.push_back({"gflop_per_s", number / seconds});
  }
  return Json::object({{"name", span.name},
                       {"cat", span.phase.empty() ? "other" : span.phase},
                       {"ph", "X"},
                       {"ts", std::round(1e9 * span.begin) / 1e3},
                       {"dur", std::round(1e9 * seconds) / 1e3},
                       {"pid", rank},
                       {"tid", static_cast<int>(span.track)},
                       {"args", std::move(about)}});
}

// One rank's events, with commas between.
std::string events_of(const std::vector<TraceSpan>& spans, int rank) {
  std::string all = naming("process_name", rank, 0, str("rank ", rank)).dump();
  for (const auto& [track, name] : tracks) {
    const auto of_track = [track = track](const TraceSpan& s) { return s.track == track; };
    if (std::ranges::none_of(spans, of_track)) continue;
    all += ",\n" + naming("thread_name", rank, static_cast<int>(track), name).dump();
  }
  for (const TraceSpan& span : spans) all += ",\n" + event(span, rank).dump();
  return all;
}

// Where the time of the updates went: "lstm.1 38 %, lstm.0 31 %, output 9 %".
std::string largest_shares(const std::vector<TraceSpan>& spans, double whole) {
  std::map<std::string, double> seconds;
  for (const TraceSpan& s : spans) {
    const bool waits = s.name == "wait for data" || s.name == "sum gradients over ranks";
    if (s.track == Track::device || waits) seconds[s.name] += s.end - s.begin;
  }
  std::vector<std::pair<double, std::string>> sorted;
  for (const auto& [name, of] : seconds) sorted.emplace_back(-of, name);
  std::ranges::sort(sorted);
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(5, sorted.size()); ++i) {
    const auto percent = std::lround(-100 * sorted[i].first / whole);
    if (percent > 0) text += str(text.empty() ? "" : ", ", sorted[i].second, " ", percent, " %");
  }
  return text;
}

}  // namespace

void Profile::before_update(int64_t step) {
  if (records_ || seen_++ != skipped) return;
  ranks_.together([] {});
  trace_.start();
  records_ = true;
  first_ = step;
}

std::string Profile::finish(int64_t step) {
  if (!records_) {
    return str("warning: --profile has nothing to show: the first ", skipped,
               " updates are left out, and there were no others");
  }
  records_ = false;
  trace_.stop();
  const std::vector<TraceSpan>& spans = trace_.spans();
  const std::vector<std::string> all = ranks_.gather(events_of(spans, ranks_.rank()));
  ranks_.at_first([&] {
    std::string text = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
    for (const std::string& events : all) text += (&events == all.data() ? "" : ",\n") + events;
    replace_text_file(path_, text + "\n]}\n");
  });
  double whole = 0;
  for (const TraceSpan& s : spans) whole += s.name == "update" ? s.end - s.begin : 0;
  const auto updates = static_cast<double>(step - first_ + 1);
  return str("profile: updates ", first_, " to ", step, " took ",
             fixed_text(1e3 * whole / updates, 1), " ms each (", largest_shares(spans, whole),
             "); ", path_, " shows them in ui.perfetto.dev");
}

}  // namespace rondo
