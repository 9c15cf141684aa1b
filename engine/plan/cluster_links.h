// Which links the messages of a split take. Ranks are numbered shards first, then stages, then
// replicas, and fill the nodes of a cluster in that order.
//
// Where messages leave a node, all that do so in one direction at the same time share its link.
// What is asked for is always the slowest of all replicas and shards, which the others wait for.
#pragma once

#include "engine/plan/machine.h"
#include "engine/plan/split.h"

namespace rondo::plan {

// From pipeline rank `from` to pipeline rank `to`, neighbours in a replica.
LinkModel stage_link(const Cluster& cluster, const Split& split, int from, int to);
// From shard `shard` to the next one.
LinkModel shard_link(const Cluster& cluster, const Split& split, int shard);
// From one member to the next of one ring for each stage, of its replicas and shards, all stages at
// once: LinkModel::in_ring().
LinkModel ring_link(const Cluster& cluster, const Split& split);

// A ring all-reduce of `bytes` over n ranks: 2(n - 1) messages of bytes / n, one after the other.
double ring_seconds(const LinkModel& link, int n, double bytes);
// Half of it: a reduce-scatter, or an all-gather of parts that are `bytes` together.
double half_ring_seconds(const LinkModel& link, int n, double bytes);

// How the gradients of a stage are summed over its replicas and shards, all stages at once
// (hierarchical_all_reduce() of comm/group/collectives.h): rings of `places` ranks within a
// machine, and of `machines`, one for each place. One machine: one ring of all.
struct GradientSums {
  int places = 1, machines = 1;
  LinkModel inside, between;
  double seconds(double bytes) const;
};
GradientSums gradient_sums(const Cluster& cluster, const Split& split);

// The sum of a few numbers, `bytes` together, over n ranks that fill nodes in their order:
// doubling_all_reduce() of comm/group/collectives.h.
double doubling_seconds(const Cluster& cluster, int n, double bytes);

}  // namespace rondo::plan
