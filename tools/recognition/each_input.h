// The loop over what a command is given to read.
#pragma once

#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "kernels/base/cpu/parallel.h"
#include "kernels/base/error.h"
#include "tools/recognition/inputs.h"

namespace rondo {

// Runs `action`, whose InputError is told, without `tell` on standard error: other inputs may be
// fine where this one is not. Whether it went well.
bool attempt(const std::function<void()>& action,
             const std::function<void(const std::string&)>& tell = {});

// What is done with each input.
template <class Read>
struct InputWork {
  size_t most = 256;  // so many inputs are in hand at a time
  // In the pool's threads. Without `enough` for all of a group at once, with it for one per thread
  // until there is enough.
  std::function<void(const ModelInput&, Read&)> read;
  std::function<bool(const std::vector<Read>&)> enough = {};
  // Of a group, what could be read.
  std::function<void(std::span<Read* const>)> together = {};
  // One after the other, in the inputs' order.
  std::function<void(const ModelInput&, Read&)> write;
  // In place of write(), of what could not be read.
  std::function<void(const ModelInput&)> left_out = {};
  // Is told why there is no output of an input; without it that goes to standard error.
  std::function<void(const ModelInput&, const std::string&)> tell = {};
};

// An InputError in read(), write() or left_out() is told, and the other inputs go on. Returns how
// many there were.
template <class Read>
int for_each_input(const std::vector<ModelInput>& inputs, ThreadPool& pool,
                   const InputWork<Read>& work) {
  const size_t at_once = work.enough ? static_cast<size_t>(pool.size()) : work.most;
  int failures = 0;
  for (size_t first = 0, end = 0; first < inputs.size(); first = end) {
    std::vector<Read> group;
    std::vector<std::string> wrong;
    do {
      const size_t begin = end;
      end = std::min({begin + at_once, first + work.most, inputs.size()});
      group.resize(end - first);
      wrong.resize(end - first);
      pool.for_each(static_cast<int64_t>(end - begin), [&](int64_t i) {
        const size_t n = begin - first + static_cast<size_t>(i);
        try {
          work.read(inputs[first + n], group[n]);
        } catch (const InputError& e) {
          wrong[n].assign(e.what());
        }
      });
    } while (end < inputs.size() && end - first < work.most && work.enough && !work.enough(group));
    std::vector<Read*> there;
    for (size_t n = 0; n < group.size(); ++n) {
      if (wrong[n].empty()) there.push_back(&group[n]);
    }
    if (work.together) work.together(there);
    for (size_t n = 0; n < group.size(); ++n) {
      const ModelInput& input = inputs[first + n];
      std::function<void(const std::string&)> tell;
      if (work.tell) tell = [&](const std::string& why) { work.tell(input, why); };
      if (wrong[n].empty()) {
        failures += !attempt([&] { work.write(input, group[n]); }, tell);
        continue;
      }
      failures += !attempt([&] { throw InputError(wrong[n]); }, tell);
      if (work.left_out) failures += !attempt([&] { work.left_out(input); }, tell);
    }
  }
  return failures;
}

}  // namespace rondo
