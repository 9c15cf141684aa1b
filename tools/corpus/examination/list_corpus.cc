#include "tools/corpus/examination/list_corpus.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>

#include "engine/data/audio/audio.h"
#include "engine/data/audio/bandwidth.h"
#include "engine/data/audio/sound_format.h"
#include "engine/data/features/feature_file.h"
#include "engine/data/features/files.h"
#include "engine/data/features/kaldi_matrix.h"
#include "engine/data/features/random.h"
#include "engine/data/image/image.h"
#include "engine/io/json.h"
#include "engine/report/charts.h"
#include "engine/text/reading_order.h"
#include "engine/text/unicode.h"
#include "kernels/base/cpu.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/base/error.h"
#include "tools/corpus/corpus_folder.h"
#include "tools/corpus/examination/division.h"
#include "tools/corpus/examination/examine_sound.h"
#include "tools/corpus/examination/list_passes.h"
#include "tools/corpus/lists/list_files.h"
#include "tools/corpus/read_text.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;
using corpus::ListedUtterance;

using corpus::Doubles;
using corpus::draw;
using corpus::Drawn;
using corpus::Finding;
using corpus::Flaw;
using corpus::Pace;
using corpus::UnusedReplacements;

// Of a page's image many lines are parts.
const std::string& called(const ListedUtterance& u) {
  return u.region.is_whole() || u.id.empty() ? u.file.path : u.id;
}

// What no line of this text can look like. Print and handwriting take 10 to 30 columns a character
// at the usual height; what has a fifth of that is a page, a column of text, or another line's.
std::optional<Flaw> examine_image(ListedUtterance& u, const ImageReader& images,
                                  LineDirection direction) {
  constexpr int32_t least_side = 8;
  constexpr int64_t least_columns = 4, most_columns = 400;  // per character
  const GreyImage image = read_region(images, u.file, u.region);
  const std::string size = str(called(u), ": is ", image.width, " x ", image.height, " pixels");
  if (std::min(image.width, image.height) < least_side) {
    return Flaw{Finding::few_pixels, str(size, ", expected ", least_side, " each way")};
  }
  if (is_blank(image)) return Flaw{Finding::blank, called(u) + ": nothing stands on it"};
  LineConfig line;
  line.direction = direction;
  line.ink = Ink::automatic;
  u.columns = line.scaled_width(image.info());
  const auto characters = static_cast<int64_t>(code_points(u.text).size());
  const std::string at_height =
      str(size, ", ", u.columns, " columns at a height of ", LineConfig().height);
  if (u.columns < least_columns * characters) {
    return Flaw{Finding::too_narrow, str(at_height, ", for a text of ", characters, " characters")};
  }
  if (u.columns > most_line_columns ||
      u.columns > most_columns * std::max<int64_t>(characters, 4)) {
    return Flaw{Finding::too_wide, str(at_height, ", for a text of ", characters, " characters")};
  }
  u.is_light = is_light_on_dark(image);
  if (u.is_light)
    u.notes.push_back({Finding::light_ink, called(u) + ": its ink is lighter than its paper"});
  if (!u.region.is_whole()) return std::nullopt;
  const std::string page = page_warning(image, line, u.file.path);
  const std::string pictures = pictures_warning(images.pages(u.file), u.file.path);
  if (!page.empty()) u.notes.push_back({Finding::page_as_line, page});
  if (!pictures.empty()) u.notes.push_back({Finding::several_pictures, pictures});
  return std::nullopt;
}

bool is_sound(std::string_view start) { return !sound_format(start).name.empty(); }

// Reads the text that lies beside. Names may be the wrong way round: the content decides.
void fetch_text(ListedUtterance& u) {
  if (u.text_file.empty()) return;
  // More is no transcript, and may not fit into memory.
  constexpr size_t most_bytes = size_t{1} << 24;
  std::string content = data::read_file_start(u.text_file, most_bytes + 1);
  if (is_sound(content) && !is_sound(data::read_file_start(u.file, sound_format_bytes))) {
    std::swap(u.text_file, u.file.path);
    content = data::read_file_start(u.text_file, most_bytes + 1);
  }
  if (content.size() > most_bytes)
    fail_input(u.text_file, ": has more than ", most_bytes,
               " bytes, expected the text of one recording");
  u.text = corpus::trimmed(corpus::decoded_text(std::move(content), u.text_file));
  if (const size_t numbers = corpus::sample_numbers(u.text); numbers > 0) {
    u.notes.push_back({Finding::sample_numbers, str(u.text_file, ": ", u.text)});
    u.text.erase(0, numbers);
  }
  std::string().swap(u.text_file);
}

// How the examination goes on.
struct Examination {
  const MediaReaders& readers;
  const PrepareListOptions& options;
  corpus::SoundExamination sound;
};

// Looks at the recording or the image, and applies the rules to the text. `original` becomes the
// text before the rules, where there is one.
std::optional<Flaw> examine(ListedUtterance& u, const Examination& e, bool decode,
                            std::optional<std::string>& original) {
  const PrepareListOptions& o = e.options;
  if (!u.problem.empty()) return Flaw{u.finding, u.problem};
  if (!u.has_text) return Flaw{Finding::no_text, called(u) + ": no text goes with it"};
  // As a manifest is.
  if (!is_utf8(u.file.path) || !is_utf8(u.id) || !is_utf8(u.speaker))
    return Flaw{Finding::name_no_utf8, u.file.path + ": has to be renamed"};
  try {
    fetch_text(u);
  } catch (const InputError& error) {
    return Flaw{Finding::unreadable, error.what()};
  }
  if (u.kind == InputKind::image && u.text.find('\n') != std::string::npos)
    return Flaw{Finding::several_lines, called(u) + ": its text has more than one line"};
  try {
    if (u.label.empty()) original = u.text;
    u.text = apply_rules(o.text, u.text);
  } catch (const InputError& error) {
    return Flaw{Finding::text_no_utf8, str(called(u), ": ", error.what())};
  }
  if (u.text.empty() && u.label.empty())
    return Flaw{
        Finding::empty_text,
        called(u) + (original->empty() ? ": its text is empty" : ": nothing is left of its text")};
  if (u.kind != InputKind::image) {
    corpus::SoundExamination sound = e.sound;
    sound.decode = decode;
    return corpus::examine_sound(u, *e.readers.audio, sound);
  }
  try {
    return examine_image(u, *e.readers.images, o.direction.value_or(LineDirection::rightwards));
  } catch (const InputError& error) {
    return Flaw{Finding::unreadable, error.what()};
  }
}

// Who reads a header mostly waits for the disk, and others use the processor meanwhile.
int reading_threads(const std::vector<ListedUtterance>& list, const PrepareListOptions& o) {
  constexpr int for_each_cpu = 8, most = 64;
  const bool are_headers = o.examine == Examine::headers || list.size() > Drawn::most;
  if (list.empty() || list.front().kind == InputKind::image || !are_headers) return usable_cpus();
  return std::max(usable_cpus(), std::min(for_each_cpu * usable_cpus(), most));
}

// Leaves in `list` what can be used, in its order.
void sift(std::vector<ListedUtterance>& list, const MediaReaders& readers,
          const PrepareListOptions& o, DataSummary& summary) {
  using Clock = std::chrono::steady_clock;
  ThreadPool pool(o.threads > 0 ? o.threads : reading_threads(list, o));
  const Examination examination{readers, o, {o.least_seconds, true, o.channel, o.salvage}};
  const Drawn drawn(list, o.seed, o.examine == Examine::headers);
  UnusedReplacements replacements(o.text);
  TextExaminer texts(o.text, !list.empty() && list.front().kind == InputKind::image);
  Doubles doubles;
  Pace pace;
  size_t kept = 0;
  for (size_t begin = 0, count = 0; begin < list.size(); begin += count) {
    const Clock::time_point start = Clock::now();
    count = std::min(pace.entries(), list.size() - begin);
    std::vector<std::optional<Flaw>> flaws(count);
    std::vector<std::optional<std::string>> originals(count);
    pool.for_each(static_cast<int64_t>(count), [&](int64_t n) {
      const auto i = static_cast<size_t>(n);
      ListedUtterance& u = list[begin + i];
      flaws[i] = examine(u, examination, drawn.contains(u), originals[i]);
    });
    replacements.look_at(originals);
    for (size_t i = 0; i < count; ++i) {
      ListedUtterance& u = list[begin + i];
      for (const ListedUtterance::Note& note : u.notes)
        summary.findings.add(note.finding, u.where, note.what);
      if (originals[i]) texts.add(*originals[i], u.where.empty() ? called(u) : u.where);
      if (!flaws[i]) flaws[i] = doubles.look_at(u, list, kept);
      if (flaws[i]) {
        summary.findings.add(flaws[i]->finding, u.where, flaws[i]->what);
        u = {};
        continue;
      }
      summary.light += u.is_light;
      u.notes = {};
      if (&list[kept] != &u) list[kept] = std::move(u);
      ++kept;
    }
    pace.took(Clock::now() - start);
    if (o.progress) {
      o.progress(static_cast<int64_t>(begin + count), static_cast<int64_t>(list.size()));
    }
  }
  summary.never_found = replacements.unused();
  summary.texts = texts.findings();
  list.resize(kept);
}

[[noreturn]] void fail_unusable(const DataSummary& summary, std::string_view noun,
                                const char* end) {
  std::string text = summary.findings.causes();
  for (const auto& [finding, found] : summary.findings.all()) {
    if (!kind_of(finding).leaves_out) continue;
    for (const auto& example : found.examples)
      text += str("\n  ", example.where.empty() ? "" : example.where + ": ", example.what);
    const auto named = static_cast<int64_t>(found.examples.size());
    if (found.count > named)
      text += str("\n  and ", found.count - named, " more ", kind_of(finding).title);
  }
  for (const auto& hint : summary.findings.of(Finding::unread_list).examples)
    text += "\n" + hint.what;
  fail_input("of ", summary.listed, " ", noun, "s ", text, end);
}

std::string written_path(const std::string& path, const fs::path& out) {
  // What lies below the folder around.
  const std::string relative = fs::path(path).lexically_relative(out).string();
  const bool near = !relative.empty() && !relative.starts_with("../..");
  return near ? relative : path;
}

// Seconds, or columns.
double length_of(const ListedUtterance& u) {
  return u.kind == InputKind::image ? static_cast<double>(u.columns) : u.duration;
}

DataSummary::Part part_of(const std::string& name, const std::vector<const ListedUtterance*>& all) {
  DataSummary::Part part;
  part.name = name;
  std::set<std::string> groups;
  std::vector<double> lengths;
  for (const ListedUtterance* u : all) {
    ++part.utterances;
    part.words += static_cast<int64_t>(split_words(u->text).size());
    part.characters += static_cast<int64_t>(code_points(u->text).size());
    part.length += length_of(*u);
    lengths.push_back(length_of(*u));
    if (!corpus::group_of(*u).empty()) groups.insert(corpus::group_of(*u));
  }
  part.groups = static_cast<int64_t>(groups.size());
  std::sort(lengths.begin(), lengths.end());
  if (!lengths.empty()) {
    part.shortest = lengths.front();
    part.median = lengths[lengths.size() / 2];
    part.longest = lengths.back();
  }
  return part;
}

ManifestEntry entry_of(const ListedUtterance& u, const fs::path& out) {
  ManifestEntry entry;
  entry.path_as_written = written_path(u.file.path, out);
  entry.first_byte = u.file.first;
  entry.byte_count = u.file.size;
  entry.kind = u.kind;
  entry.region = u.region;
  entry.offset = u.offset;
  // To a tenth of a millisecond; a whole recording is measured again when it is used.
  if (u.kind == InputKind::recording) entry.duration = std::round(u.duration * 1e4) / 1e4;
  if (u.channel >= 0) entry.channel = u.channel;
  if (u.label.empty()) {
    entry.text = u.text;
  } else {
    entry.class_name = u.label;
  }
  entry.speaker = u.speaker;
  Json extra = Json::object({});
  if (!u.id.empty()) extra["id"] = u.id;
  if (!u.folder.empty()) extra["folder"] = u.folder;
  if (!u.page.empty()) extra["page"] = u.page;
  if (!extra.members().empty()) entry.extra = extra.dump();
  return entry;
}

// Each line of a page becomes a file of its own. They are as many as the disk has room for: none is
// synced by itself.
void cut_lines(std::vector<ListedUtterance>& list, const ImageReader& images,
               const corpus::CorpusFolder& folder, int threads) {
  folder.make_folder("lines");
  ThreadPool pool(cpu_threads(threads, "--threads"));
  pool.for_each(static_cast<int64_t>(list.size()), [&](int64_t i) {
    ListedUtterance& u = list[static_cast<size_t>(i)];
    if (u.region.is_whole()) return;
    char name[48];
    std::snprintf(name, sizeof name, "lines/%06lld.png", static_cast<long long>(i + 1));
    const std::string path = folder.path_of(name);
    std::ofstream file(path, std::ios::binary);
    file << make_png(read_region(images, u.file, u.region));
    if (!file.flush()) fail_input(path, ": cannot be written: ", std::strerror(errno));
    u.file = (folder.final_path() / name).string();
    u.region = {};
  });
}

// What can be used of recordings that are cut off becomes files of their own, for whoever reads
// them later refuses what is not whole.
void write_salvaged(std::vector<ListedUtterance>& list, const corpus::CorpusFolder& folder,
                    int threads) {
  std::vector<ListedUtterance*> cut_off;
  for (ListedUtterance& u : list)
    if (u.is_cut_off) cut_off.push_back(&u);
  if (cut_off.empty()) return;
  folder.make_folder("wav");
  const SndfileReader whatever_there_is({.salvage = true});
  ThreadPool pool(cpu_threads(threads, "--threads"));
  pool.for_each(static_cast<int64_t>(cut_off.size()), [&](int64_t i) {
    ListedUtterance& u = *cut_off[static_cast<size_t>(i)];
    char name[48];
    std::snprintf(name, sizeof name, "wav/salvaged-%06lld.wav", static_cast<long long>(i + 1));
    const Waveform part = whatever_there_is.read(u.file, 0, {u.offset, u.duration, u.channel});
    write_wav(folder.path_of(name), part);
    u.file = (folder.final_path() / name).string();
    u.offset = 0;
    u.channel = -1;
    u.duration = part.seconds();
  });
}

// How many recordings have which rate, and the rate for all of them: what most reach, if it is not
// far more than a part of them has.
void count_rates(const std::vector<ListedUtterance>& list, DataSummary& summary) {
  std::map<int32_t, int64_t> reached;
  int64_t all = 0;
  for (const ListedUtterance& u : list) {
    if (u.kind != InputKind::recording || u.sample_rate == 0) continue;
    ++summary.rates[u.sample_rate];
    ++reached[true_rate(u.sample_rate, u.bandwidth)];
    ++all;
  }
  // A tenth of the recordings is a part that counts.
  int64_t below = 0;
  for (const auto& [rate, count] : reached) {
    below += count;
    if (10 * below < all) continue;
    summary.fitting_rate = rate;
    return;
  }
}

bool is_mostly_leftwards(const std::map<std::string, int64_t>& characters) {
  int64_t leftwards = 0, rightwards = 0;
  for (const auto& [text, count] : characters) {
    const char32_t c = code_points(text).at(0);
    if (is_written_leftwards(c)) leftwards += count;
    if (is_written_rightwards(c)) rightwards += count;
  }
  return leftwards > rightwards;
}

// For the settings that fit them: of what is there to train on.
TrainingFacts facts_of(const std::vector<ListedUtterance>& list, const DataSummary& summary,
                       const PrepareListOptions& o) {
  TrainingFacts facts;
  facts.kind = list.front().kind;
  facts.rate = summary.fitting_rate;
  facts.direction = summary.direction;
  // One line of a hundred is a line that was mistaken for one, or not worth the mistakes.
  const auto used = static_cast<int64_t>(list.size());
  if (100 * summary.light > used)
    facts.ink = 100 * summary.light > 99 * used ? Ink::light : Ink::automatic;
  facts.classes = !list.front().label.empty();
  facts.text = o.text;
  facts.phones = summary.texts.like_phones;
  for (const ListedUtterance& u : list)
    if (u.split == "train") facts.add(length_of(u), u.text);
  return facts;
}

std::string histogram(const std::vector<ListedUtterance>& list, const std::string& title) {
  std::vector<double> lengths;
  for (const ListedUtterance& u : list) lengths.push_back(length_of(u));
  const bool images = list.front().kind == InputKind::image;
  return histogram_svg({title,
                        images ? str("columns at a height of ", LineConfig().height) : "seconds",
                        images ? "lines" : "recordings", lengths});
}

}  // namespace

DataSummary prepare_list(std::vector<ListedUtterance> list, const MediaReaders& readers,
                         const PrepareListOptions& o, corpus::Findings findings) {
  corpus::CorpusFolder folder(o.out, o.kind, o.source, o.overwrite);
  DataSummary summary;
  summary.findings = std::move(findings);
  summary.listed = static_cast<int64_t>(list.size()) + summary.findings.left_out();
  const char* const noun = list.empty() ? "utterance" : noun_of(list.front().kind);
  sift(list, readers, o, summary);
  if (list.empty()) fail_unusable(summary, noun, "\nthere is nothing left to train on");
  if (o.strict && summary.findings.left_out() > 0) fail_unusable(summary, noun, "");
  summary.decoded = o.examine == Examine::headers
                        ? 0
                        : std::min<int64_t>(summary.listed, static_cast<int64_t>(Drawn::most));
  count_rates(list, summary);
  summary.division = corpus::divide(list, {o.dev, o.test, o.seed});
  if (o.salvage) write_salvaged(list, folder, o.threads);
  if (o.cut) cut_lines(list, *readers.images, folder, o.threads);
  for (const char* name : {"train", "dev", "test"}) {
    std::vector<const ListedUtterance*> members;
    for (const ListedUtterance& u : list)
      if (u.split == name) members.push_back(&u);
    if (members.empty()) continue;
    summary.parts.push_back(part_of(name, members));
    folder.write_split(name, static_cast<int64_t>(members.size()), [&](int64_t i) {
      return entry_of(*members[static_cast<size_t>(i)], folder.final_path());
    });
  }
  for (const ListedUtterance& u : list) {
    for (char32_t c : code_points(u.text)) ++summary.characters[to_utf8(c)];
    if (!u.label.empty()) ++summary.classes[u.label];
  }
  summary.direction = o.direction                               ? *o.direction
                      : is_mostly_leftwards(summary.characters) ? LineDirection::leftwards
                                                                : LineDirection::rightwards;
  folder.write_settings(facts_of(list, summary, o));
  data::write_whole_file(folder.path_of("lengths.svg"), histogram(list, o.out));
  Json replacements = Json::array();
  for (const TextReplacement& r : o.text.replace) replacements.push_back(r.text());
  static constexpr const char* marks[] = {"keep", "drop", "token"};
  const Json description = Json::object({{"dev", o.dev},
                                         {"drop_invisible", o.text.drop_invisible},
                                         {"locale", o.text.locale.tag},
                                         {"lowercase", o.text.lowercase},
                                         {"marks", marks[static_cast<size_t>(o.text.marks)]},
                                         {"replace", replacements},
                                         {"seed", o.seed},
                                         {"source", o.source},
                                         {"strip_punctuation", o.text.strip_punctuation},
                                         {"test", o.test}});
  folder.commit(description.dump());
  return summary;
}

}  // namespace rondo
