// Machine files: what was measured, as JSON.
#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "engine/io/json.h"
#include "engine/plan/machine.h"
#include "kernels/base/error.h"

namespace rondo::plan {
namespace {

template <class... Args>
void require(bool condition, const Args&... message) {
  if (!condition) fail_input(message...);
}

constexpr std::pair<const char*, double Rates::*> rate_names[] = {
    {"launch", &Rates::launch}, {"step", &Rates::step},           {"operation", &Rates::operation},
    {"byte", &Rates::byte},     {"step_byte", &Rates::step_byte},
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

double bandwidth(Fields& f) {
  const double x = f.number("bandwidth");
  require(x > 0, f.where(), ": 'bandwidth' is 0, expected bytes per second");
  return x;
}

LinkModel read_link(Fields& root) {
  Fields f = root.object("link");
  LinkModel link{f.text("name"), true, f.number("latency"), bandwidth(f)};
  if (f.all().contains("gap")) link.gap = f.number("gap");
  if (f.all().contains("ring")) {
    Fields ring = f.object("ring");
    link.ring_latency = ring.number("latency");
    link.ring_bandwidth = bandwidth(ring);
    ring.done();
  }
  f.done();
  return link;
}

DeviceModel read_device(Fields& root) {
  Fields f = root.object("device");
  require(
      !f.all().contains("seconds_per"), f.where(),
      ": was measured by a rondo whose rates were others; measure again (rondo plan --measure)");
  DeviceModel d;
  d.name = f.text("name");
  d.measured = true;
  d.memory_bytes = f.number("memory_bytes");
  d.cores = f.count("cores");
  d.threads = f.count("threads");
  const Fields ops = f.object("rates");
  for (const auto& [op, value] : ops.all().members()) {
    Fields rates(value, str(ops.where(), ": ", op));
    for (const auto& [name, rate] : rate_names) d.rates[op].*rate = rates.number(name);
    rates.done();
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
  const DeviceModel& d = machine.device;
  Json rates = Json::object();
  for (const auto& [key, of_key] : d.rates) {
    rates[key] = Json::object();
    for (const auto& [name, rate] : rate_names) rates[key][name] = of_key.*rate;
  }
  const Json device = Json::object({{"name", d.name},
                                    {"memory_bytes", d.memory_bytes},
                                    {"cores", d.cores},
                                    {"threads", d.threads},
                                    {"rates", rates}});
  return Json::object({{"device", device}, {"link", json_of(machine.link)}}).dump(2) + "\n";
}

std::string to_json(const LinkModel& link) {
  return Json::object({{"link", json_of(link)}}).dump(2) + "\n";
}

MachineFile parse_machine(std::string_view json, const std::string& name) {
  const Json document = parse_json(json, name);
  Fields root(document, name);
  MachineFile m{read_device(root), read_link(root)};
  root.done();
  return m;
}

LinkModel parse_link(std::string_view json, const std::string& name) {
  const Json document = parse_json(json, name);
  if (document.contains("device")) return parse_machine(json, name).link;
  Fields root(document, name);
  const LinkModel link = read_link(root);
  root.done();
  return link;
}

}  // namespace rondo::plan
