#include "tools/recognition/divided_inputs.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "engine/io/json.h"
#include "engine/reduce/long_work.h"
#include "tools/command_line/command_line.h"
#include "tools/recognition/predictions.h"

namespace rondo {
namespace {

// So many inputs of a rank are read before rank 0 says something of them.
constexpr size_t inputs_at_once = 256;

// Which inputs are whose: numbers, rising, by rank.
using Parts = std::vector<std::vector<size_t>>;

// Of the inputs from *first on, which moves behind them. A rank's neighbours never seem to be of
// one page unless they are.
Parts next_parts(const std::vector<ModelInput>& inputs, size_t ranks, size_t* first) {
  Parts parts(ranks);
  const size_t most = *first + inputs_at_once * ranks;
  while (*first < std::min(most, inputs.size())) {
    size_t end = *first + 1;
    while (end < inputs.size() && are_of_one_page(inputs[end - 1], inputs[end])) ++end;
    std::vector<size_t>* least = nullptr;
    for (std::vector<size_t>& part : parts) {
      if (!part.empty() && are_of_one_page(inputs[part.back()], inputs[*first])) continue;
      if (!least || part.size() < least->size()) least = &part;
    }
    while (*first < end) least->push_back((*first)++);
  }
  return parts;
}

// By the number of the input that it is of.
using SaidOfInputs = std::map<size_t, std::vector<Said>>;

std::string to_text(const SaidOfInputs& said) {
  std::string text;
  for (const auto& [input, all] : said) {
    for (const Said& s : all) {
      text += str(input, ' ', static_cast<char>(s.kind), ' ', s.text.size(), ' ', s.text);
    }
  }
  return text;
}

void add(const std::string& text, SaidOfInputs& said) {
  for (size_t at = 0; at < text.size();) {
    const auto number = [&] {
      const size_t end = text.find(' ', at);
      const auto n = static_cast<size_t>(std::stoull(text.substr(at, end - at)));
      at = end + 1;
      return n;
    };
    const size_t input = number();
    const auto kind = static_cast<Said::Kind>(text[at]);
    at += 2;
    const size_t size = number();
    said[input].push_back({kind, text.substr(at, size)});
    at += size;
  }
}

}  // namespace

Speaker::~Speaker() {
  if (narrow_ > 1) warn(str("the same of ", narrow_ - 1, " more recordings"));
}

void Speaker::say(const Said& said) {
  switch (said.kind) {
    case Said::output:
      std::fputs(said.text.c_str(), stdout);
      std::fflush(stdout);
      break;
    case Said::warning:
      warn(said.text);
      break;
    case Said::narrow:
      if (narrow_++ == 0) warn(said.text);
      break;
    case Said::error:
      ++errors_;
      tell_error(said.text);
      break;
  }
}

int read_divided(const Ranks& ranks, CommClock::duration patience,
                 const std::vector<ModelInput>& inputs, const ReadInputs& read) {
  Speaker speaker;
  if (ranks.size() == 1) {
    read(inputs, [&](const ModelInput&, const Said& said) { speaker.say(said); });
    return speaker.errors();
  }
  for (size_t first = 0; first < inputs.size();) {
    const Parts parts = next_parts(inputs, static_cast<size_t>(ranks.size()), &first);
    const std::vector<size_t>& mine = parts[static_cast<size_t>(ranks.rank())];
    std::vector<ModelInput> part;
    for (const size_t i : mine) part.push_back(inputs[i]);
    SaidOfInputs said;
    together_at_length(ranks, patience, [&] {
      if (part.empty()) return;
      read(part, [&](const ModelInput& input, const Said& s) {
        said[mine[static_cast<size_t>(&input - part.data())]].push_back(s);
      });
    });
    SaidOfInputs all_said;
    for (const std::string& text : ranks.gather(to_text(said))) add(text, all_said);
    for (const auto& [input, all] : all_said) {
      for (const Said& s : all) speaker.say(s);
    }
  }
  return speaker.errors();
}

}  // namespace rondo
