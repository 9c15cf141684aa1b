// Machine files: what was measured, as JSON.
#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "engine/io/json.h"
#include "engine/plan/machine/machine.h"
#include "kernels/base/error.h"

namespace rondo::plan {
namespace {

template <class... Args>
void require(bool condition, const Args&... message) {
  if (!condition) fail_input(message...);
}

constexpr std::pair<const char*, double OpCost::*> constants[] = {
    {"call", &OpCost::call},
    {"step", &OpCost::step},
    {"exchange", &OpCost::exchange},
    {"flop", &OpCost::flop},
    {"recurrent_flop", &OpCost::recurrent_flop},
    {"byte", &OpCost::byte},
    {"cell", &OpCost::cell},
    {"weight_byte", &OpCost::weight_byte},
    {"far_weight_byte", &OpCost::far_weight_byte},
};

// An object of a file: each field is asked for by name, and done() refuses those nobody asked for.
class Fields {
 public:
  Fields(const Json& value, std::string where) : where_(std::move(where)) {
    require(value.is_object(), where_, ": is ", value.type_name(), ", expected an object");
    object_ = &value;
  }

  const Json& value(const char* key) {
    const Json* found = object_->find(key);
    require(found != nullptr, where_, ": has no field '", key, "'");
    known_.insert(key);
    return *found;
  }
  double number(const char* key) {
    const Json& v = value(key);
    require(v.is_number(), where_, ": '", key, "' should be a number");
    const auto x = v.get<double>();
    require(std::isfinite(x) && x >= 0, where_, ": '", key, "' is ", x,
            ", expected a number of at least 0");
    return x;
  }
  int count(const char* key) {
    const double x = number(key);
    require(x == std::floor(x) && x >= 1 && x <= 65536, where_, ": '", key, "' is ", x,
            ", expected a whole number from 1 to 65536");
    return static_cast<int>(x);
  }
  std::string text(const char* key) {
    const Json& v = value(key);
    require(v.is_string(), where_, ": '", key, "' should be a string");
    return v.get<std::string>();
  }
  Fields object(const char* key) {
    const Json& v = value(key);
    require(v.is_object(), where_, ": '", key, "' should be an object");
    return Fields(v, str(where_, ": ", key));
  }
  const Json& all() const { return *object_; }
  const std::string& where() const { return where_; }
  void done() const {
    for (const auto& [key, ignored] : object_->members()) {
      require(known_.contains(key), where_, ": unknown field '", key, "'");
    }
  }

 private:
  const Json* object_ = nullptr;
  std::string where_;
  std::set<std::string> known_;
};

Json parse_json(std::string_view text, const std::string& name) {
  try {
    return Json::parse(text);
  } catch (const JsonError& e) {
    if (e.kind != JsonError::Kind::syntax) throw InputError(str(name, ": ", e.what()));
    const auto line =
        std::count(text.begin(),
                   text.begin() + static_cast<std::ptrdiff_t>(std::min(e.byte, text.size())), '\n');
    throw InputError(str(name, ":", line + 1, ": is not valid JSON"));
  }
}

LinkModel read_link(Fields root) {
  Fields f = root.object("link");
  LinkModel link{f.text("name"), true, f.number("latency"), f.number("bandwidth")};
  require(link.bandwidth > 0, f.where(), ": 'bandwidth' is 0, expected bytes per second");
  if (f.all().contains("gap")) link.gap = f.number("gap");
  if (f.all().contains("ring")) {
    Fields ring = f.object("ring");
    link.ring_latency = ring.number("latency");
    link.ring_bandwidth = ring.number("bandwidth");
    require(link.ring_bandwidth > 0, ring.where(), ": 'bandwidth' is 0, expected bytes per second");
    ring.done();
  }
  f.done();
  return link;
}

DeviceModel read_device(Fields root) {
  Fields f = root.object("device");
  DeviceModel d;
  d.name = f.text("name");
  d.measured = true;
  d.memory_bytes = f.number("memory_bytes");
  d.cores = f.count("cores");
  d.threads = f.count("threads");
  d.cache_bytes = f.number("cache_bytes");
  const Fields ops = f.object("seconds_per");
  for (const auto& [op, value] : ops.all().members()) {
    Fields cost(value, str(ops.where(), ": ", op));
    for (const auto& [name, constant] : constants) d.costs[op].*constant = cost.number(name);
    cost.done();
  }
  f.done();
  return d;
}

Json json_of(const LinkModel& link) {
  Json j =
      Json::object({{"name", link.name}, {"latency", link.latency}, {"bandwidth", link.bandwidth}});
  if (link.gap > 0) j["gap"] = link.gap;
  if (link.ring_bandwidth > 0) {
    j["ring"] = Json::object({{"latency", link.ring_latency}, {"bandwidth", link.ring_bandwidth}});
  }
  return j;
}

}  // namespace

std::string to_json(const MachineFile& machine) {
  Json costs = Json::object();
  for (const auto& [key, c] : machine.device.costs) {
    costs[key] = Json::object();
    for (const auto& [name, constant] : constants) costs[key][name] = c.*constant;
  }
  const Json device = Json::object({{"name", machine.device.name},
                                    {"memory_bytes", machine.device.memory_bytes},
                                    {"cores", machine.device.cores},
                                    {"threads", machine.device.threads},
                                    {"cache_bytes", machine.device.cache_bytes},
                                    {"seconds_per", costs}});
  const Json j = Json::object({{"device", device}, {"link", json_of(machine.link)}});
  return j.dump(2) + "\n";
}

std::string to_json(const LinkModel& link) {
  Json j = Json::object();
  j["link"] = json_of(link);
  return j.dump(2) + "\n";
}

MachineFile parse_machine(std::string_view json, const std::string& name) {
  const Json document = parse_json(json, name);
  const Fields root(document, name);
  MachineFile m{read_device(root), read_link(root)};
  require(document.size() == 2, name, ": has fields beside 'device' and 'link'");
  return m;
}

LinkModel parse_link(std::string_view json, const std::string& name) {
  const Json document = parse_json(json, name);
  if (document.is_object() && document.contains("device")) return parse_machine(json, name).link;
  const Fields root(document, name);
  const LinkModel link = read_link(root);
  require(document.size() == 1, name, ": has fields beside 'link'");
  return link;
}

}  // namespace rondo::plan
