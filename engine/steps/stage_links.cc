#include "engine/steps/stage_links.h"

#include <algorithm>
#include <span>
#include <utility>

#include "kernels/base/error.h"

namespace rondo {
namespace {

// The first message.
void connect(DeviceGroup& link) {
  const Buffer memory(link.device(), 256, "the first message of a connection");
  const std::span bytes(memory.as<std::byte>(), memory.bytes());
  if (link.rank() == 0) {
    link.device().fill_bytes(link.stream(), memory.data(), 0, memory.bytes());
    link.send(1, 0, bytes).wait();
  } else {
    link.recv(0, 0, bytes).wait();
  }
}

}  // namespace

StageLinks::StageLinks(const DeviceGroupMaker& make, const std::vector<int>& members, int rank,
                       uint16_t first_id) {
  const int pairs = static_cast<int>(members.size()) - 1;
  RONDO_CHECK(first_id + 2 * pairs < 65536, members.size(), " ranks in a pipeline");
  // In the same order on all ranks.
  for (int pair = 0; pair < pairs; ++pair) {
    const int lower = pair, upper = pair + 1;
    for (const bool up : {true, false}) {
      const int sender = up ? lower : upper, receiver = up ? upper : lower;
      if (rank != sender && rank != receiver) continue;
      auto link =
          make({members[static_cast<size_t>(sender)], members[static_cast<size_t>(receiver)]},
               static_cast<uint16_t>(first_id + 2 * pair + (up ? 0 : 1)));
      connect(*link);
      (rank == sender ? to_[receiver] : from_[sender]) = link.get();
      links_.push_back(std::move(link));
    }
  }
}

StageLinks::~StageLinks() {
  for (auto& link : links_) link.reset();
}

std::vector<int> StageLinks::neighbours() const {
  std::vector<int> peers;
  for (const auto& [peer, link] : to_) peers.push_back(peer);
  return peers;
}

bool StageLinks::hold_device() const {
  return std::any_of(links_.begin(), links_.end(), [](const auto& l) { return l->holds_device(); });
}

void StageLinks::abort(const std::string& reason) noexcept {
  for (const auto& link : links_) link->abort(reason);
}

}  // namespace rondo
