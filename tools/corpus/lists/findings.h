// What is found out about data while they are made into manifests: each kind of fault stands once
// in a table, with what becomes of the entry and what can be done.
//
// Memory is bounded: of each kind the number and the first examples are kept.
// Thread safety: plain data.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace rondo::corpus {

enum class Finding : uint8_t {
  // The entry is left out.
  unreadable,
  dangling_link,
  no_file,
  text_alone,
  recording_alone,
  same_name,
  bad_row,
  wrong_fields,
  names_nothing,
  bad_line,
  command,
  doubled,
  doubled_otherwise,
  no_text,
  name_no_utf8,
  text_no_utf8,
  empty_text,
  beyond_end,
  too_short,
  several_lines,
  few_pixels,
  blank,
  too_narrow,
  too_wide,
  truncated,
  undecoded,
  no_number,
  silence,
  cancelled,
  // The entry is used, and ought to be looked at.
  joined_text,
  passed_over,
  text_elsewhere,
  sample_numbers,
  unread_list,
  page_as_line,
  several_pictures,
  page_image,
  light_ink,
  quiet,
  offset,
  clipped,
  integers,
  narrow_band,
  foreign,
  salvaged,
};

struct FindingKind {
  Finding finding;
  const char* key;    // for files: "no-text"
  const char* title;  // behind "left out, " or "warning, "
  bool leaves_out;    // otherwise it only warns
  const char* hint;   // what can be done, a sentence; empty: the title says it
};
const FindingKind& kind_of(Finding finding);

class Findings {
 public:
  static constexpr size_t most_examples = 10;  // of each kind

  struct Example {
    std::string where, what;  // printable; `where` may be empty
  };
  struct Found {
    int64_t count = 0;
    std::vector<Example> examples;  // the first ones
  };

  // `where`: "clips.csv:7", `what`: a sentence. Both may hold anything.
  void add(Finding finding, std::string_view where, std::string_view what);

  // In the order of the table; those alone that occurred.
  const std::map<Finding, Found>& all() const { return all_; }
  const Found& of(Finding finding) const;  // empty: it did not occur
  int64_t left_out() const;                // how many entries
  // "2 too short, 1 without a text": what is left out.
  std::string causes() const;

 private:
  std::map<Finding, Found> all_;
};

}  // namespace rondo::corpus
