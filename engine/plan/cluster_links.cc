#include "engine/plan/cluster_links.h"

#include <algorithm>
#include <vector>

#include "comm/group/collectives.h"

namespace rondo::plan {
namespace {

struct Hop {
  int from = 0, to = 0;  // ranks
  bool asked = false;
};

class Hops {
 public:
  Hops(const Cluster& cluster, const Split& split) : c_(cluster), s_(split) {}

  int rank(int replica, int stage, int shard) const {
    return (replica * s_.pipeline + stage) * s_.sequence + shard;
  }
  void add(int from, int to, bool asked) { hops_.push_back({from, to, asked}); }

  LinkModel slowest() const { return slowest(c_.link, c_.node_link); }
  // The slowest, given the links within nodes and between them.
  LinkModel slowest(const LinkModel& near, const LinkModel& far) const {
    const auto nodes = static_cast<size_t>(node_of(std::max(s_.devices(), c_.devices) - 1)) + 1;
    std::vector<int> leave(nodes), enter(nodes);
    for (const Hop& h : hops_) {
      if (node_of(h.from) == node_of(h.to)) continue;
      ++leave[static_cast<size_t>(node_of(h.from))];
      ++enter[static_cast<size_t>(node_of(h.to))];
    }
    int sharing = 0;
    for (const Hop& h : hops_) {
      if (!h.asked || node_of(h.from) == node_of(h.to)) continue;
      sharing = std::max({sharing, leave[static_cast<size_t>(node_of(h.from))],
                          enter[static_cast<size_t>(node_of(h.to))]});
    }
    if (sharing == 0) return near;
    LinkModel link = far;
    link.bandwidth = std::min(near.bandwidth, link.bandwidth / sharing);
    link.latency += (sharing - 1) * link.gap;
    return link;
  }

 private:
  int node_of(int rank) const { return rank / c_.per_node; }

  const Cluster& c_;
  const Split& s_;
  std::vector<Hop> hops_;
};

bool one_node(const Cluster& c, const Split& s) { return s.devices() <= c.per_node; }

// Fewer blocks than NCCL would take are slower.
LinkModel by_blocks(LinkModel link, const Cluster& c, const Split& s) {
  const int blocks = sum_blocks(c, s);
  if (blocks < c.device.sum_blocks) {
    link.bandwidth = std::min(link.bandwidth, blocks * c.device.sum_block_bandwidth);
  }
  return link;
}

}  // namespace

LinkModel stage_link(const Cluster& c, const Split& s, int from, int to) {
  if (one_node(c, s)) return c.link;
  // All that go the same way, up or down.
  const int way = to - from;
  Hops hops(c, s);
  for (int d = 0; d < s.data; ++d) {
    for (int p = std::max(0, -way); p < s.pipeline - std::max(0, way); ++p) {
      const int next = p + way;
      for (int k = 0; k < s.sequence; ++k) {
        hops.add(hops.rank(d, p, k), hops.rank(d, next, k), p == from && next == to);
      }
    }
  }
  return hops.slowest();
}

LinkModel shard_link(const Cluster& c, const Split& s, int shard) {
  if (one_node(c, s)) return c.link;
  Hops hops(c, s);
  for (int d = 0; d < s.data; ++d) {
    for (int p = 0; p < s.pipeline; ++p) {
      for (int k = 0; k + 1 < s.sequence; ++k) {
        hops.add(hops.rank(d, p, k), hops.rank(d, p, k + 1), k == shard);
      }
    }
  }
  return hops.slowest();
}

int sum_blocks(const Cluster& c, const Split& s) {
  const int most = c.device.sum_blocks;
  return s.nccl_blocks > 0 ? std::min(s.nccl_blocks, most) : most;
}

LinkModel ring_link(const Cluster& c, const Split& s) {
  if (one_node(c, s)) return by_blocks(c.link.in_ring(), c, s);
  const int members = s.data * s.sequence;
  Hops hops(c, s);
  for (int p = 0; p < s.pipeline; ++p) {
    const auto member = [&](int i) { return hops.rank(i / s.sequence, p, i % s.sequence); };
    for (int i = 0; i < members && members > 1; ++i) {
      hops.add(member(i), member((i + 1) % members), true);
    }
  }
  return by_blocks(hops.slowest(c.link.in_ring(), c.node_link.in_ring()), c, s);
}

GradientSums gradient_sums(const Cluster& c, const Split& s) {
  const int members = s.owners();
  GradientSums sums{members, 1, ring_link(c, s), {}};
  if (one_node(c, s)) return sums;
  Hops hops(c, s);
  // By stage alike: ranks are numbered so that stages differ by a shift.
  std::vector<int> machine_of;
  for (int i = 0; i < members; ++i) {
    machine_of.push_back(hops.rank(i / s.sequence, 0, i % s.sequence) / c.per_node);
  }
  const auto lie = machines_of(machine_of, 0);
  if (!lie) return sums;
  sums.places = static_cast<int>(lie->neighbours.size());
  sums.machines = static_cast<int>(lie->counterparts.size());
  for (int p = 0; p < s.pipeline; ++p) {
    for (int i = 0; i < members; ++i) {
      const auto rank = [&](int member) {
        return hops.rank(member / s.sequence, p, member % s.sequence);
      };
      hops.add(rank(i), rank((i + sums.places) % members), true);
    }
  }
  sums.inside = by_blocks(c.link.in_ring(), c, s);
  sums.between = by_blocks(hops.slowest(c.link.in_ring(), c.node_link.in_ring()), c, s);
  return sums;
}

double GradientSums::seconds(double bytes) const {
  return ring_seconds(inside, places, bytes) + ring_seconds(between, machines, bytes / places);
}

double doubling_seconds(const Cluster& c, int n, double bytes) {
  const Split all{n};
  int paired = 1;
  while (2 * paired <= n) paired *= 2;
  const auto round = [&](int ranks, int distance) {
    Hops hops(c, all);
    for (int r = 0; r < ranks; ++r) {
      hops.add(r, r ^ distance, true);
    }
    return hops.slowest().seconds(bytes);
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
