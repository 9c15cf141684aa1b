#include "engine/plan/cluster_links.h"

#include <algorithm>
#include <vector>

#include "comm/group/collectives.h"

namespace rondo::plan {
namespace {

// The slowest link of all messages that leave at once: from every rank below `ranks` to to(rank),
// which is none where that is negative. Only those with asked(rank) count; the others share their
// links.
template <class To, class Asked>
LinkModel slowest(const Cluster& c, int ranks, const LinkModel& near, const LinkModel& far, To to,
                  Asked asked) {
  const auto node_of = [&c](int rank) { return static_cast<size_t>(rank / c.per_node); };
  const auto crosses = [&](int rank) {
    return to(rank) >= 0 && node_of(rank) != node_of(to(rank));
  };
  int last = 0;
  for (int rank = 0; rank < ranks; ++rank) last = std::max({last, rank, to(rank)});
  std::vector<int> leave(node_of(last) + 1), enter(leave.size());
  for (int rank = 0; rank < ranks; ++rank) {
    if (!crosses(rank)) continue;
    ++leave[node_of(rank)];
    ++enter[node_of(to(rank))];
  }
  int sharing = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    if (!crosses(rank) || !asked(rank)) continue;
    sharing = std::max({sharing, leave[node_of(rank)], enter[node_of(to(rank))]});
  }
  if (sharing == 0) return near;
  LinkModel link = far;
  link.bandwidth = std::min(near.bandwidth, link.bandwidth / sharing);
  link.latency += (sharing - 1) * link.gap;
  return link;
}

constexpr auto all = [](int) { return true; };

// The rank so many members further in the ring of a stage, of its replicas and shards.
int further(const Split& s, int rank, int members) {
  const int shard = rank % s.sequence, stage = rank / s.sequence % s.pipeline;
  const int replica = rank / s.sequence / s.pipeline;
  const int member = (replica * s.sequence + shard + members) % s.owners();
  return (member / s.sequence * s.pipeline + stage) * s.sequence + member % s.sequence;
}

LinkModel ring_of(const Cluster& c, const Split& s, int members) {
  return slowest(
      c, s.owners() > 1 ? s.devices() : 0, c.link.in_ring(), c.node_link.in_ring(),
      [&](int rank) { return further(s, rank, members); }, all);
}

}  // namespace

LinkModel stage_link(const Cluster& c, const Split& s, int from, int to) {
  const int way = to - from;
  const auto stage = [&s](int rank) { return rank / s.sequence % s.pipeline; };
  return slowest(
      c, s.devices(), c.link, c.node_link,
      [&](int rank) {  // all that go the same way, up or down
        const int next = stage(rank) + way;
        return next < 0 || next >= s.pipeline ? -1 : rank + way * s.sequence;
      },
      [&](int rank) { return stage(rank) == from; });
}

LinkModel shard_link(const Cluster& c, const Split& s, int shard) {
  return slowest(
      c, s.devices(), c.link, c.node_link,
      [&s](int rank) { return rank % s.sequence + 1 < s.sequence ? rank + 1 : -1; },
      [&](int rank) { return rank % s.sequence == shard; });
}

LinkModel ring_link(const Cluster& c, const Split& s) { return ring_of(c, s, 1); }

GradientSums gradient_sums(const Cluster& c, const Split& s) {
  GradientSums sums{s.owners(), 1, ring_link(c, s), {}};
  if (s.devices() <= c.per_node) return sums;
  // By stage alike: ranks are numbered so that stages differ by a shift.
  std::vector<int> machine_of;
  for (int i = 0; i < s.owners(); ++i) machine_of.push_back(further(s, 0, i) / c.per_node);
  const auto lie = machines_of(machine_of, 0);
  if (!lie) return sums;
  sums.places = static_cast<int>(lie->neighbours.size());
  sums.machines = static_cast<int>(lie->counterparts.size());
  sums.inside = c.link.in_ring();
  sums.between = ring_of(c, s, sums.places);
  return sums;
}

double GradientSums::seconds(double bytes) const {
  return ring_seconds(inside, places, bytes) + ring_seconds(between, machines, bytes / places);
}

double doubling_seconds(const Cluster& c, int n, double bytes) {
  int paired = 1;
  while (2 * paired <= n) paired *= 2;
  const auto round = [&](int ranks, int distance) {
    return slowest(
               c, ranks, c.link, c.node_link, [&](int r) { return r ^ distance; }, all)
        .seconds(bytes);
  };
  double seconds = 0;
  for (int distance = 1; distance < paired; distance *= 2) seconds += round(paired, distance);
  if (n > paired) seconds += 2 * round(n - paired, paired);
  return seconds;
}

double ring_seconds(const LinkModel& link, int n, double bytes) {
  return 2 * half_ring_seconds(link, n, bytes);
}

double half_ring_seconds(const LinkModel& link, int n, double bytes) {
  return n == 1 ? 0 : (n - 1) * link.seconds(bytes / n);
}

}  // namespace rondo::plan
