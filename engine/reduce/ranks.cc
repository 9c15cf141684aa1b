#include "engine/reduce/ranks.h"

#include <algorithm>
#include <cmath>
#include <exception>

namespace rondo {
namespace {

constexpr size_t longest_message = 4096;

TensorView bytes_view(std::string& text) {
  return {text.data(), DType::u8, {static_cast<int64_t>(text.size())}};
}

}  // namespace

void Ranks::together(const std::function<void()>& action) const { agree(action, false); }

void Ranks::at_first(const std::function<void()>& action) const {
  together([&] {
    if (first()) action();
  });
}

void Ranks::read_at_first(const std::function<void()>& action) const {
  agree(
      [&] {
        if (first()) action();
      },
      true);
}

// `is_for_all`: what a rank finds wrong with its input is wrong for all.
void Ranks::agree(const std::function<void()>& action, bool is_for_all) const {
  if (size() == 1) {
    action();
    return;
  }
  std::exception_ptr mine;
  std::string whole, own;
  bool is_of_input = false;
  try {
    action();
  } catch (const CommError&) {
    throw;
  } catch (const std::exception& e) {
    mine = std::current_exception();
    whole = e.what();
    own = whole.substr(0, longest_message);
    is_of_input = dynamic_cast<const InputError*>(&e) != nullptr;
  }
  // By rank: 0 for success, otherwise the length of the message and one; below 0 of input.
  std::vector<double> lengths(static_cast<size_t>(size()));
  if (mine) {
    const auto length = static_cast<double>(own.size() + 1);
    lengths[static_cast<size_t>(rank())] = is_of_input ? -length : length;
  }
  sum(lengths);
  const auto failed =
      std::find_if(lengths.begin(), lengths.end(), [](double length) { return length != 0; });
  if (failed == lengths.end()) return;
  const int culprit = static_cast<int>(failed - lengths.begin());
  std::string message =
      culprit == rank() ? own : std::string(static_cast<size_t>(std::abs(*failed)) - 1, ' ');
  group_->broadcast(bytes_view(message), culprit, deadline()).wait();
  double alike = is_of_input && own == message ? 1 : 0;
  // Nobody leaves, and ends the world by it, before all have heard; who is still here when the
  // world ends has heard too.
  try {
    sum(std::span(&alike, 1));
    group_->barrier(deadline()).wait();
  } catch (const CommError&) {
  }
  if (alike == size() || (is_for_all && *failed < 0)) throw CommonFailure(mine ? whole : message);
  if (mine) std::rethrow_exception(mine);
  throw PeerFailed(culprit, message);
}

void Ranks::sum(std::span<double> values) const {
  if (size() == 1) return;
  const TensorView view(values.data(), DType::f64, {static_cast<int64_t>(values.size())});
  group_->all_reduce(view, Reduction::sum, deadline()).wait();
}

void Ranks::sum(std::span<float> values) const {
  if (size() == 1) return;
  const TensorView view(values.data(), DType::f32, {static_cast<int64_t>(values.size())});
  group_->all_reduce(view, Reduction::sum, deadline()).wait();
}

void Ranks::broadcast(const TensorView& data) const {
  if (size() == 1) return;
  group_->broadcast(data, 0, deadline()).wait();
}

void Ranks::broadcast(const TensorView& data, Device& device) const {
  if (size() == 1 || data.bytes() == 0) return;
  if (device.kind() == DeviceKind::cpu) return broadcast(data);
  const StagingBuffer host(device, data.bytes(), "weights by way of the host");
  Stream stream = device.make_stream();
  device.copy(stream, host.data(), data.data, data.bytes());
  stream.synchronize();
  TensorView staged = data;
  staged.data = host.data();
  broadcast(staged);
  device.copy(stream, data.data, host.data(), data.bytes());
  stream.synchronize();
}

std::string Ranks::broadcast(const std::string& text) const {
  if (size() == 1) return text;
  auto length = static_cast<int64_t>(text.size());
  broadcast(TensorView(&length, DType::i64, {1}));
  std::string result = first() ? text : std::string(static_cast<size_t>(length), ' ');
  broadcast(bytes_view(result));
  return result;
}

std::vector<std::string> Ranks::gather(const std::string& text) const {
  if (size() == 1) return {text};
  std::vector<double> lengths(static_cast<size_t>(size()));
  lengths[static_cast<size_t>(rank())] = static_cast<double>(text.size());
  sum(lengths);
  constexpr uint32_t tag = 0x67617468;
  if (!first()) {
    group_->send(0, tag, std::as_bytes(std::span(text)), deadline()).wait();
    return {};
  }
  std::vector<std::string> all{text};
  for (int r = 1; r < size(); ++r) {
    std::string& from = all.emplace_back(static_cast<size_t>(lengths[static_cast<size_t>(r)]), ' ');
    group_->recv(r, tag, std::as_writable_bytes(std::span(from)), deadline()).wait();
  }
  return all;
}

void rethrow_cause(const RankOutcome& outcome) {
  if (outcome.first_failed < 0) return;
  for (size_t r = 0; r < outcome.errors.size(); ++r) {
    if (!outcome.errors[r]) continue;
    const std::string who = str("rank ", r, ": ");
    try {
      std::rethrow_exception(outcome.errors[r]);
    } catch (const PeerFailed&) {
    } catch (const CommError&) {
    } catch (const CommonFailure&) {
      throw;
    } catch (const InputError& e) {
      throw InputError(who + e.what());
    } catch (const std::exception& e) {
      throw Error(who + e.what());
    }
  }
  // Only what ranks saw of each other: the first of it.
  std::rethrow_exception(outcome.errors[static_cast<size_t>(outcome.first_failed)]);
}

}  // namespace rondo
