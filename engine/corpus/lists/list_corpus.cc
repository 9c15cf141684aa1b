#include "engine/corpus/lists/list_corpus.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <span>

#include "engine/corpus/corpus_folder.h"
#include "engine/data/features/feature_file.h"
#include "engine/data/features/files.h"
#include "engine/data/features/kaldi_matrix.h"
#include "engine/data/features/random.h"
#include "engine/data/image/image.h"
#include "engine/io/json.h"
#include "engine/report/charts.h"
#include "engine/text/unicode.h"
#include "kernels/base/cpu.h"
#include "kernels/base/cpu/parallel.h"
#include "kernels/base/error.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;
using corpus::ListedUtterance;

// What is wrong with an utterance.
struct Flaw {
  std::string cause, what;
};

// Seconds; where a matrix ends is known from its header alone.
double measure(ListedUtterance& u, const AudioReader& audio) {
  if (u.kind == InputKind::recording) return audio.info(u.file).seconds();
  const std::string start = data::read_file_start(u.file, data::needed_kaldi_header_bytes);
  const std::span<const std::byte> bytes = std::as_bytes(std::span(start));
  u.file.size = data::parse_kaldi_header(bytes, u.file.name()).total_bytes();
  const FeatureShape shape = feature_file_shape(u.file, "");
  return static_cast<double>(shape.frames) * u.seconds_per_frame;
}

std::optional<Flaw> examine_sound(ListedUtterance& u, const AudioReader& audio,
                                  const PrepareListOptions& o) {
  const double seconds = measure(u, audio);
  if (u.duration < 0) u.duration = seconds - u.offset;
  if (u.offset + u.duration > 1.01 * seconds + 0.1) {
    return Flaw{"beyond the end of its recording",
                str(u.file.path, ": has ", seconds, " s, the part ends after ",
                    u.offset + u.duration, " s")};
  }
  if (!(u.duration >= o.least_seconds)) {
    return Flaw{"too short",
                str(u.file.path, ": has ", u.duration, " s, expected ", o.least_seconds)};
  }
  return std::nullopt;
}

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
    return Flaw{"with too few pixels", str(size, ", expected ", least_side, " each way")};
  }
  if (is_blank(image)) return Flaw{"blank", called(u) + ": nothing stands on it"};
  LineConfig line;
  line.direction = direction;
  line.ink = Ink::automatic;
  u.columns = line.scaled_width(image.info());
  const auto characters = static_cast<int64_t>(code_points(u.text).size());
  const std::string at_height =
      str(size, ", ", u.columns, " columns at a height of ", LineConfig().height);
  if (u.columns < least_columns * characters) {
    return Flaw{"narrower than their texts",
                str(at_height, ", for a text of ", characters, " characters")};
  }
  if (u.columns > most_line_columns ||
      u.columns > most_columns * std::max<int64_t>(characters, 4)) {
    return Flaw{"far wider than their texts",
                str(at_height, ", for a text of ", characters, " characters")};
  }
  if (u.region.is_whole()) u.warning = page_warning(image, line, u.file.path);
  return std::nullopt;
}

// By mistake, mostly.
std::vector<TextReplacement> unused_replacements(const std::vector<ListedUtterance>& list,
                                                 const TextRules& rules) {
  if (rules.replace.empty()) return {};
  std::vector<std::string> texts;
  for (const ListedUtterance& u : list) {
    try {
      texts.push_back(normalize_transcript(u.text));
    } catch (const InputError&) {
      continue;  // it is not UTF-8, and `examine` says so
    }
  }
  return never_found(rules.replace, texts);
}

TextFindings examine_texts(const std::vector<ListedUtterance>& list, const PrepareListOptions& o) {
  constexpr size_t often = 8192;  // a tenth of a second
  TextExaminer examiner(o.text, !list.empty() && list.front().kind == InputKind::image);
  for (size_t i = 0; i < list.size(); ++i) {
    const ListedUtterance& u = list[i];
    if (u.has_text) examiner.add(u.text, u.where.empty() ? called(u) : u.where);
    // No recording is done yet; who wants it to end is heard.
    if (o.progress && i % often == often - 1) o.progress(0, static_cast<int64_t>(list.size()));
  }
  return examiner.findings();
}

// Looks at the recording or the image, and applies the rules to the text.
std::optional<Flaw> examine(ListedUtterance& u, const MediaReaders& readers,
                            const PrepareListOptions& o) {
  if (!u.problem.empty()) return Flaw{"missing or unreadable", u.problem};
  if (!u.has_text) return Flaw{"without a text", called(u) + ": no text goes with it"};
  try {
    code_points(u.file.path);  // a manifest is UTF-8
    code_points(u.id);
  } catch (const InputError&) {
    return Flaw{"with a name that is not UTF-8", u.file.path + ": has to be renamed"};
  }
  if (u.kind == InputKind::image && u.text.find('\n') != std::string::npos) {
    return Flaw{"with a text of several lines", called(u) + ": its text has more than one line"};
  }
  const bool had_text = !u.text.empty();
  try {
    u.text = apply_rules(o.text, u.text);
  } catch (const InputError& e) {
    return Flaw{"with a text that is not UTF-8", str(called(u), ": ", e.what())};
  }
  if (u.text.empty())
    return Flaw{"with an empty text",
                called(u) + (had_text ? ": nothing is left of its text" : ": its text is empty")};
  try {
    return u.kind == InputKind::image ? examine_image(u, *readers.images, o.direction)
                                      : examine_sound(u, *readers.audio, o);
  } catch (const InputError& e) {
    return Flaw{"missing or unreadable", e.what()};
  }
}

// Leaves in `list` what can be used, in its order.
void sift(std::vector<ListedUtterance>& list, const MediaReaders& readers,
          const PrepareListOptions& o, DataSummary& summary) {
  constexpr size_t block = 512;
  ThreadPool pool(o.threads > 0 ? o.threads : usable_cpus());
  std::vector<ListedUtterance> kept;
  for (size_t begin = 0; begin < list.size(); begin += block) {
    const size_t count = std::min(block, list.size() - begin);
    std::vector<std::optional<Flaw>> flaws(count);
    pool.for_each(static_cast<int64_t>(count), [&](int64_t i) {
      flaws[static_cast<size_t>(i)] = examine(list[begin + static_cast<size_t>(i)], readers, o);
    });
    for (size_t i = 0; i < count; ++i) {
      ListedUtterance& u = list[begin + i];
      if (flaws[i]) {
        summary.left_out[flaws[i]->cause].push_back({u.where, flaws[i]->what});
      } else {
        if (!u.warning.empty()) summary.pages.push_back({u.where, u.warning});
        kept.push_back(std::move(u));
      }
    }
    if (o.progress) {
      o.progress(static_cast<int64_t>(begin + count), static_cast<int64_t>(list.size()));
    }
  }
  list = std::move(kept);
}

[[noreturn]] void fail_unusable(const DataSummary& summary, std::string_view noun,
                                const char* end) {
  std::string text;
  size_t shown = 0;
  for (const auto& [cause, problems] : summary.left_out) {
    text += str(text.empty() ? "" : ", ", problems.size(), " ", cause);
  }
  for (const auto& [cause, problems] : summary.left_out) {
    for (const DataSummary::Problem& p : problems) {
      if (shown++ < 10) text += str("\n  ", p.where.empty() ? "" : p.where + ": ", p.what);
    }
  }
  fail_input("of ", summary.listed, " ", noun, "s ", text, end);
}

// The same for every order of the list.
uint64_t draw(uint64_t seed, const std::string& what) {
  return data::combine64(seed, data::hash_name(what));
}

size_t share_of(double share, size_t all) {
  const auto wanted = static_cast<size_t>(std::llround(share * static_cast<double>(all)));
  return share > 0 && all >= 3 ? std::max<size_t>(wanted, 1) : wanted;
}

// What utterances have in common that a model should not know from its training: who speaks, or the
// book that lines are from.
const std::string& group_of(const ListedUtterance& u) {
  return u.kind == InputKind::image ? u.folder : u.speaker;
}

// Groups of utterances that belong together: those of a speaker, or each for itself.
using Groups = std::map<std::string, std::vector<ListedUtterance*>>;

// Gives whole groups to test and dev until their shares are reached. Whether both got some, if they
// are wanted.
bool deal(const Groups& groups, size_t all, const PrepareListOptions& o) {
  std::vector<std::pair<uint64_t, const std::vector<ListedUtterance*>*>> order;
  for (const auto& [name, members] : groups) order.emplace_back(draw(o.seed, name), &members);
  std::sort(order.begin(), order.end());
  const size_t all_test = share_of(o.test, all), all_dev = share_of(o.dev, all);
  size_t test = all_test, dev = all_dev, left = all;
  for (const auto& [key, members] : order) {
    // A group that is much larger than what is still wanted stays to train on.
    const auto take = [&](size_t& wanted) {
      if (wanted == 0 || members->size() > std::max<size_t>(2 * wanted, 1)) return false;
      // Without something to train on, the rest is of no use.
      if (members->size() >= left) return false;
      left -= members->size();
      wanted -= std::min(wanted, members->size());
      return true;
    };
    const char* split = take(test) ? "test" : take(dev) ? "dev" : "train";
    for (ListedUtterance* u : *members) u->split = split;
  }
  return (all_test == 0 || test < all_test) && (all_dev == 0 || dev < all_dev);
}

// How many characters of the paths name folders that all files are in.
size_t common_folder(const std::vector<ListedUtterance>& list) {
  std::string_view common = list.front().file.path;
  const auto shorten = [&] { common = common.substr(0, common.rfind('/') + 1); };
  shorten();
  for (const ListedUtterance& u : list) {
    while (!u.file.path.starts_with(common)) {
      common.remove_suffix(1);
      shorten();
    }
  }
  return common.size();
}

// Says how.
std::string divide(std::vector<ListedUtterance>& list, const PrepareListOptions& o) {
  const bool given =
      std::any_of(list.begin(), list.end(), [](const auto& u) { return !u.split.empty(); });
  if (given) {
    for (ListedUtterance& u : list) {
      if (u.split.empty()) u.split = "train";
    }
    return "as the data are divided";
  }
  Groups together, pages, alone;
  const size_t common = common_folder(list);
  bool known = true, pages_known = true;
  for (ListedUtterance& u : list) {
    known = known && !group_of(u).empty();
    pages_known = pages_known && !u.page.empty();
    together[group_of(u)].push_back(&u);
    pages[u.page].push_back(&u);
    // Wherever the data lie, the draw is the same.
    FilePart file = u.file;
    file.path.erase(0, common);
    alone[str(u.id, " ", u.offset, " ", file.name())].push_back(&u);
  }
  const bool images = list.front().kind == InputKind::image;
  constexpr size_t enough = 4;
  if (known && together.size() >= enough && deal(together, list.size(), o)) {
    return images ? "by folder: none is in two parts" : "by speaker: nobody is in two parts";
  }
  if (pages_known && pages.size() >= enough && deal(pages, list.size(), o)) {
    return "by page: none is in two parts";
  }
  deal(alone, list.size(), o);
  const char* how = images ? "by line, drawn with the seed" : "by utterance, drawn with the seed";
  if (!known) return how;
  return str(how, " (", together.size(), images ? " folder" : " speaker",
             together.size() == 1 ? " is" : "s are", " too few for parts of these shares)");
}

std::string written_path(const std::string& path, const fs::path& out) {
  const fs::path around = out.parent_path();
  const fs::path relative = fs::path(path).lexically_relative(out);
  const fs::path below = fs::path(path).lexically_relative(around);
  const bool near = !below.empty() && *below.begin() != "..";
  return near ? relative.string() : path;
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
    if (!group_of(*u).empty()) groups.insert(group_of(*u));
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
  entry.text = u.text;
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
  ThreadPool pool(threads > 0 ? threads : usable_cpus());
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
                         const PrepareListOptions& o) {
  corpus::CorpusFolder folder(o.out, o.kind, o.source);
  DataSummary summary;
  summary.listed = static_cast<int64_t>(list.size());
  summary.never_found = unused_replacements(list, o.text);
  summary.texts = examine_texts(list, o);
  const char* const noun = list.empty() ? "utterance" : noun_of(list.front().kind);
  sift(list, readers, o, summary);
  if (list.empty()) fail_unusable(summary, noun, "\nthere is nothing left to train on");
  if (o.strict && !summary.left_out.empty()) fail_unusable(summary, noun, "");
  summary.division = divide(list, o);
  if (o.cut) cut_lines(list, *readers.images, folder, o.threads);
  std::vector<corpus::Split> splits;
  for (const char* name : {"train", "dev", "test"}) {
    std::vector<const ListedUtterance*> members;
    corpus::Split& split = splits.emplace_back(corpus::Split{name, {}});
    for (const ListedUtterance& u : list) {
      if (u.split != name) continue;
      members.push_back(&u);
      split.entries.push_back(entry_of(u, folder.final_path()));
    }
    if (!members.empty()) summary.parts.push_back(part_of(name, members));
  }
  for (const ListedUtterance& u : list) {
    for (char32_t c : code_points(u.text)) ++summary.characters[to_utf8(c)];
  }
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
  folder.commit(splits, description.dump());
  return summary;
}

}  // namespace rondo
