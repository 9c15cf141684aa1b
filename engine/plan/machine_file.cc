// Machine files: what was measured, as JSON.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "engine/plan/machine.h"
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
  Fields(const nlohmann::json& value, std::string where) : where_(std::move(where)) {
    require(value.is_object(), where_, ": is ", value.type_name(), ", expected an object");
    object_ = &value;
  }

  const nlohmann::json& value(const char* key) {
    const auto found = object_->find(key);
    require(found != object_->end(), where_, ": has no field '", key, "'");
    known_.insert(key);
    return *found;
  }
  double number(const char* key) {
    const nlohmann::json& v = value(key);
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
    const nlohmann::json& v = value(key);
    require(v.is_string(), where_, ": '", key, "' should be a string");
    return v.get<std::string>();
  }
  Fields object(const char* key) {
    const nlohmann::json& v = value(key);
    require(v.is_object(), where_, ": '", key, "' should be an object");
    return Fields(v, str(where_, ": ", key));
  }
  const nlohmann::json& all() const { return *object_; }
  const std::string& where() const { return where_; }
  void done() const {
    for (const auto& [key, ignored] : object_->items()) {
      require(known_.contains(key), where_, ": unknown field '", key, "'");
    }
  }

 private:
  const nlohmann::json* object_ = nullptr;
  std::string where_;
  std::set<std::string> known_;
};

nlohmann::json parse_json(std::string_view text, const std::string& name) {
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& e) {
    const auto line =
        std::count(text.begin(),
                   text.begin() + static_cast<std::ptrdiff_t>(std::min(e.byte, text.size())), '\n');
    throw InputError(str(name, ":", line + 1, ": is not valid JSON"));
  } catch (const nlohmann::json::exception&) {
    throw InputError(str(name, ": holds a number that is out of range"));
  }
}

LinkModel read_link(Fields root) {
  Fields f = root.object("link");
  LinkModel link{f.text("name"), true, f.number("latency"), f.number("bandwidth")};
  require(link.bandwidth > 0, f.where(), ": 'bandwidth' is 0, expected bytes per second");
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
  for (const auto& [op, value] : ops.all().items()) {
    Fields cost(value, str(ops.where(), ": ", op));
    for (const auto& [name, constant] : constants) d.costs[op].*constant = cost.number(name);
    cost.done();
  }
  f.done();
  return d;
}

nlohmann::ordered_json json_of(const LinkModel& link) {
  nlohmann::ordered_json j = {
      {"name", link.name}, {"latency", link.latency}, {"bandwidth", link.bandwidth}};
  if (link.ring_bandwidth > 0) {
    j["ring"] = {{"latency", link.ring_latency}, {"bandwidth", link.ring_bandwidth}};
  }
  return j;
}

}  // namespace

std::string to_json(const MachineFile& machine) {
  nlohmann::ordered_json costs = nlohmann::ordered_json::object();
  for (const auto& [key, c] : machine.device.costs) {
    costs[key] = nlohmann::ordered_json::object();
    for (const auto& [name, constant] : constants) costs[key][name] = c.*constant;
  }
  const nlohmann::ordered_json j = {{"device",
                                     {{"name", machine.device.name},
                                      {"memory_bytes", machine.device.memory_bytes},
                                      {"cores", machine.device.cores},
                                      {"threads", machine.device.threads},
                                      {"cache_bytes", machine.device.cache_bytes},
                                      {"seconds_per", costs}}},
                                    {"link", json_of(machine.link)}};
  return j.dump(2) + "\n";
}

std::string to_json(const LinkModel& link) {
  nlohmann::ordered_json j = nlohmann::ordered_json::object();
  j["link"] = json_of(link);
  return j.dump(2) + "\n";
}

MachineFile parse_machine(std::string_view json, const std::string& name) {
  const nlohmann::json document = parse_json(json, name);
  const Fields root(document, name);
  MachineFile m{read_device(root), read_link(root)};
  require(document.size() == 2, name, ": has fields beside 'device' and 'link'");
  return m;
}

LinkModel parse_link(std::string_view json, const std::string& name) {
  const nlohmann::json document = parse_json(json, name);
  if (document.is_object() && document.contains("device")) return parse_machine(json, name).link;
  const Fields root(document, name);
  const LinkModel link = read_link(root);
  require(document.size() == 1, name, ": has fields beside 'link'");
  return link;
}

}  // namespace rondo::plan
