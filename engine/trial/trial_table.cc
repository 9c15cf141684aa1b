#include "engine/trial/trial_table.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "engine/io/file.h"
#include "engine/io/json.h"
#include "kernels/base/error.h"
#include "kernels/base/hash.h"
#include "kernels/base/text.h"

namespace rondo {
namespace {

constexpr TrialRow::Outcome outcomes[] = {TrialRow::right, TrialRow::wrong, TrialRow::ended,
                                          TrialRow::declines};
constexpr int64_t version = 1;  // of the cache's files

TrialRow row_from(const Json& json) {
  TrialRow row;
  row.calls = {json.at("op").get<std::string>(), json.at("calls").get<std::string>()};
  row.variant = json.at("variant").get<std::string>();
  const auto outcome = json.at("outcome").get<std::string>();
  const auto* const found = std::find_if(std::begin(outcomes), std::end(outcomes),
                                         [&](auto o) { return outcome == name_of(o); });
  if (found == std::end(outcomes))
    throw JsonError(JsonError::Kind::type, "no outcome is '" + outcome + "'");
  row.outcome = *found;
  row.us = json.at("us").get<double>();
  row.why = json.at("why").get<std::string>();
  if (row.outcome == TrialRow::right && !(row.us > 0 && std::isfinite(row.us)))
    throw JsonError(JsonError::Kind::type, "'us' of a right variant is not above 0");
  return row;
}

std::string us_text(double us) { return fixed_text(us, us < 10 ? 2 : 1); }

}  // namespace

const char* name_of(TrialRow::Outcome outcome) {
  switch (outcome) {
    case TrialRow::right:
      return "right";
    case TrialRow::wrong:
      return "wrong";
    case TrialRow::ended:
      return "ended";
    case TrialRow::declines:
      return "declines";
  }
  return "?";
}

bool TrialTable::knows(const TriedCalls& calls) const {
  return std::any_of(rows.begin(), rows.end(), [&](const TrialRow& r) { return r.calls == calls; });
}

void TrialTable::add(const std::vector<TrialRow>& more) {
  for (const TrialRow& row : more)
    std::erase_if(rows, [&](const TrialRow& old) { return old.calls == row.calls; });
  rows.insert(rows.end(), more.begin(), more.end());
}

std::string chosen_of(const TrialTable& table, const TriedCalls& calls) {
  const TrialRow *first = nullptr, *quickest = nullptr;
  for (const TrialRow& row : table.rows) {
    if (row.calls != calls || row.outcome != TrialRow::right) continue;
    if (first == nullptr) first = &row;
    if (quickest == nullptr || row.us < quickest->us) quickest = &row;
  }
  if (first == nullptr) return "";
  return quickest->us * worth <= first->us ? quickest->variant : first->variant;
}

std::vector<KernelChoice> choices_of(const TrialTable& table, Backend backend) {
  std::vector<KernelChoice> choices;
  for (const TrialRow& row : table.rows) {
    KernelChoice choice = {backend, row.calls.op, row.calls.call_class,
                           chosen_of(table, row.calls)};
    const bool is_new = std::find(choices.begin(), choices.end(), choice) == choices.end();
    if (is_new && !choice.variant.empty()) choices.push_back(std::move(choice));
  }
  return choices;
}

std::map<std::string, std::string> written(const std::vector<KernelChoice>& choices) {
  std::map<std::string, std::string> text;
  for (const KernelChoice& c : choices)
    text[str(name_of(c.backend), " ", c.op, "/", c.call_class)] = c.variant;
  return text;
}

std::vector<KernelChoice> choices_written(const std::map<std::string, std::string>& text) {
  std::vector<KernelChoice> choices;
  for (const auto& [calls, variant] : text) {
    const size_t space = calls.find(' '), slash = calls.find('/');
    if (space == std::string::npos || slash == std::string::npos || slash < space) continue;
    for (const Backend backend : {Backend::sim, Backend::cuda}) {
      if (calls.substr(0, space) != name_of(backend)) continue;
      choices.push_back(
          {backend, calls.substr(space + 1, slash - space - 1), calls.substr(slash + 1), variant});
    }
  }
  return choices;
}

std::vector<KernelChoice> choices_after(const std::vector<KernelChoice>& before,
                                        const TrialTable& table, Backend backend,
                                        std::vector<std::string>* changed) {
  std::vector<KernelChoice> choices = choices_of(table, backend);
  for (const KernelChoice& b : before) {
    if (b.backend != backend) continue;
    const TriedCalls calls{b.op, b.call_class};
    const auto same_calls = [&](const KernelChoice& c) {
      return c.op == b.op && c.call_class == b.call_class;
    };
    const bool right = std::any_of(table.rows.begin(), table.rows.end(), [&](const TrialRow& r) {
      return r.calls == calls && r.variant == b.variant && r.outcome == TrialRow::right;
    });
    const auto now = std::find_if(choices.begin(), choices.end(), same_calls);
    if (right || !table.knows(calls)) {
      if (now == choices.end()) {
        choices.push_back(b);
      } else {
        now->variant = b.variant;
      }
    } else {
      changed->push_back(str(b.op, " ", b.call_class, " was computed by ", b.variant,
                             ", which is not right here, and is now by ",
                             now == choices.end() ? std::string("none") : now->variant));
    }
  }
  return choices;
}

std::string line_of(const TrialTable& table, const TriedCalls& calls) {
  const std::string chosen = chosen_of(table, calls);
  std::string text = str(calls.op, " ", calls.call_class, ": ");
  text += chosen.empty() ? "no variant is right" : chosen;
  std::string others;
  for (const TrialRow& row : table.rows) {
    if (row.calls != calls || row.outcome == TrialRow::declines) continue;
    const std::string us = us_text(row.us);
    if (row.variant == chosen) {
      text += str(", ", us, " us a time step");
      continue;
    }
    others += str(others.empty() ? "" : ", ", row.variant, " ",
                  row.outcome == TrialRow::right ? us : str(name_of(row.outcome), ": ", row.why));
  }
  return others.empty() ? text : str(text, " (", others, ")");
}

std::string to_json(const TrialTable& table) {
  Json rows = Json::array();
  for (const TrialRow& r : table.rows) {
    rows.push_back(Json::object({{"op", r.calls.op},
                                 {"calls", r.calls.call_class},
                                 {"variant", r.variant},
                                 {"outcome", name_of(r.outcome)},
                                 {"us", r.us},
                                 {"why", r.why}}));
  }
  const Json all = Json::object({{"trials", version}, {"device", table.device}, {"rows", rows}});
  return all.dump_replacing();
}

TrialTable trial_table_from_json(std::string_view text, const std::string& name) {
  try {
    const Json all = Json::parse(text);
    if (all.at("trials").get<int64_t>() != version)
      throw JsonError(JsonError::Kind::type, "'trials' is not " + std::to_string(version));
    TrialTable table;
    table.device = all.at("device").get<std::string>();
    for (const Json& row : all.at("rows").elements()) table.rows.push_back(row_from(row));
    return table;
  } catch (const JsonError& e) {
    fail_input(name, ": ", e.what());
  }
}

std::filesystem::path trial_cache(const std::string& device) {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  std::filesystem::path folder;
  if (cache && *cache == '/') {  // others are to be ignored, says the specification
    folder = cache;
  } else if (home && *home) {
    folder = std::filesystem::path(home) / ".cache";
  } else {
    return {};
  }
  char name[40];
  std::snprintf(name, sizeof name, "kernels-%016llx.json",
                static_cast<unsigned long long>(fnv1a(device)));
  return folder / "rondo" / name;
}

TrialTable read_trial_cache(const std::string& device) {
  const std::filesystem::path path = trial_cache(device);
  std::ifstream file(path, std::ios::binary);
  TrialTable table;
  if (!path.empty() && file) {
    std::ostringstream text;
    text << file.rdbuf();
    try {
      table = trial_table_from_json(text.str(), path.string());
    } catch (const InputError&) {
      table.rows.clear();  // it is tried again, and written anew
    }
  }
  if (table.device != device) table.rows.clear();
  table.device = device;
  return table;
}

std::string write_trial_cache(const TrialTable& table) {
  const std::filesystem::path path = trial_cache(table.device);
  if (path.empty()) return "neither XDG_CACHE_HOME nor HOME names a folder";
  try {
    make_directories(path.parent_path());
    replace_text_file(path, to_json(table) + "\n");
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace rondo
