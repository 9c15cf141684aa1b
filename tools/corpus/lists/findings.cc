#include "tools/corpus/lists/findings.h"

#include <array>

#include "kernels/base/cpu/printable.h"
#include "kernels/base/error.h"

namespace rondo::corpus {
namespace {

constexpr bool out = true, warns = false;

constexpr std::array kinds = std::to_array<FindingKind>({
    {Finding::unreadable, "unreadable", "missing or unreadable", out, ""},
    {Finding::dangling_link, "dangling-link", "links that lead nowhere", out, ""},
    {Finding::no_file, "no-file", "no regular files", out, ""},
    {Finding::text_alone, "text-alone", "texts without a recording or an image", out,
     "they have one name: a.wav, a.txt"},
    {Finding::recording_alone, "recording-alone", "recordings that no list names", out, ""},
    {Finding::same_name, "same-name", "with the name of another recording", out,
     "one text goes with one recording; the other one is used"},
    {Finding::bad_row, "bad-row", "rows with quotes that do not fit", out,
     "a quote within a quoted field is written twice: \"say \"\"no\"\"\""},
    {Finding::wrong_fields, "wrong-fields", "rows with more or fewer fields than the others", out,
     "a field that holds the delimiter is quoted: \"one, two\""},
    {Finding::names_nothing, "names-nothing", "rows that name nothing there is", out, ""},
    {Finding::bad_line, "bad-line", "lines that cannot be understood", out, ""},
    {Finding::command, "command", "output of commands", out,
     "run the commands once, and name the files that they wrote"},
    {Finding::doubled, "doubled", "listed twice", out, "the first one is used"},
    {Finding::doubled_otherwise, "doubled-otherwise", "listed twice, with another text", out,
     "the first one is used: look which text is right"},
    {Finding::no_text, "no-text", "without a text", out, ""},
    {Finding::name_no_utf8, "name-no-utf8", "with a name that is not UTF-8", out, ""},
    {Finding::text_no_utf8, "text-no-utf8", "with a text that is not UTF-8", out,
     "iconv -f WINDOWS-1252 -t UTF-8 converts a text file of western Europe; others are "
     "WINDOWS-1250 "
     "(central Europe), 1251 (Cyrillic), 1254 (Turkish)"},
    {Finding::empty_text, "empty-text", "with an empty text", out, ""},
    {Finding::beyond_end, "beyond-end", "beyond the end of its recording", out, ""},
    {Finding::too_short, "too-short", "too short", out, ""},
    {Finding::several_lines, "several-lines", "with a text of several lines", out, ""},
    {Finding::few_pixels, "few-pixels", "with too few pixels", out, ""},
    {Finding::blank, "blank", "blank", out, ""},
    {Finding::too_narrow, "too-narrow", "narrower than their texts", out, ""},
    {Finding::too_wide, "too-wide", "far wider than their texts", out, ""},
    {Finding::truncated, "truncated", "cut off", out, "--salvage uses what there is of them"},
    {Finding::undecoded, "undecoded", "that only ffmpeg can decode", out, ""},
    {Finding::no_number, "no-number", "with samples that are no numbers", out, ""},
    {Finding::silence, "silence", "silent", out, ""},
    {Finding::cancelled, "cancelled", "with channels that cancel each other out", out,
     "--channel left uses one of them"},
    {Finding::joined_text, "joined-text", "texts with an unquoted delimiter, which was kept", warns,
     "a field that holds the delimiter is quoted: \"one, two\""},
    {Finding::passed_over, "passed-over", "files that are neither recordings nor texts", warns, ""},
    {Finding::text_elsewhere, "text-elsewhere", "texts with another name or in another place",
     warns, ""},
    {Finding::sample_numbers, "sample-numbers", "texts behind two numbers of samples, left away",
     warns, ""},
    {Finding::unread_list, "unread-list", "lists that were not read", warns, ""},
    {Finding::page_as_line, "page-as-line", "pages given as lines", warns, ""},
    {Finding::several_pictures, "several-pictures", "files of several pictures", warns, ""},
    {Finding::page_image, "page-image", "pages whose images want a look", warns, ""},
    {Finding::light_ink, "light-ink", "light ink on darker paper", warns, ""},
    {Finding::quiet, "quiet", "hardly anything is heard", warns, ""},
    {Finding::offset, "offset", "far from zero on average", warns, ""},
    {Finding::clipped, "clipped", "clipped", warns, ""},
    {Finding::integers, "integers", "integers written as floats", warns,
     "divide by 32768, or write 16-bit files: they sound far louder than others"},
    {Finding::narrow_band, "narrow-band", "made from a lower rate", warns, ""},
    {Finding::foreign, "foreign", "decoded by ffmpeg, anew whenever they are read", warns,
     "training is quicker when they are WAV or FLAC: ffmpeg -i a.m4a a.flac"},
    {Finding::salvaged, "salvaged", "cut off, and used as far as they go", warns, ""},
});

constexpr bool in_order() {
  for (size_t i = 0; i < kinds.size(); ++i)
    if (kinds[i].finding != static_cast<Finding>(i)) return false;
  return true;
}
static_assert(in_order(), "the table has a line for each finding, in their order");

// An example is for people: a line of a few hundred bytes.
constexpr size_t most_bytes = 600;

}  // namespace

const FindingKind& kind_of(Finding finding) { return kinds.at(static_cast<size_t>(finding)); }

void Findings::add(Finding finding, std::string_view where, std::string_view what) {
  Found& found = all_[finding];
  ++found.count;
  if (found.examples.size() >= most_examples) return;
  found.examples.push_back({printable_start(where, most_bytes), printable_start(what, most_bytes)});
}

const Findings::Found& Findings::of(Finding finding) const {
  static const Found none;
  const auto at = all_.find(finding);
  return at == all_.end() ? none : at->second;
}

int64_t Findings::left_out() const {
  int64_t count = 0;
  for (const auto& [finding, found] : all_)
    if (kind_of(finding).leaves_out) count += found.count;
  return count;
}

std::string Findings::causes() const {
  std::string text;
  for (const auto& [finding, found] : all_) {
    const FindingKind& kind = kind_of(finding);
    if (kind.leaves_out) text += str(text.empty() ? "" : ", ", found.count, " ", kind.title);
  }
  return text;
}

}  // namespace rondo::corpus
