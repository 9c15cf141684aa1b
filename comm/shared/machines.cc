#include "comm/shared/machines.h"

#include <map>
#include <sstream>
#include <string>

#include "comm/shared/inbox.h"

namespace rondo {
namespace {

std::string place_key(int rank) { return str("machines/place/", rank); }

}  // namespace

std::vector<int> meet_machines(Store& store, int rank, int world_size, Deadline deadline) {
  const std::string all = "machines/of-ranks";
  std::string own = shared_transport::place_of_process();
  // Where /proc cannot be read no memory is shared either: such a rank is a machine of its own.
  if (own.empty()) own = str("rank ", rank);
  std::vector<int> machines;
  if (rank != 0) {
    store.set(place_key(rank), own, deadline);
    std::istringstream text(store.get(all, deadline));
    for (int machine = 0; text >> machine;) machines.push_back(machine);
    RONDO_CHECK(static_cast<int>(machines.size()) == world_size, "machines of ", machines.size(),
                " ranks, expected ", world_size);
    return machines;
  }
  std::map<std::string, int> numbers;
  std::string text;
  for (int r = 0; r < world_size; ++r) {
    const std::string place = r == 0 ? own : store.get(place_key(r), deadline);
    const int next = static_cast<int>(numbers.size());
    machines.push_back(numbers.emplace(place, next).first->second);
    text += str(machines.back(), " ");
  }
  store.set(all, text, deadline);
  return machines;
}

}  // namespace rondo
