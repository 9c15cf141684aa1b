#include "comm/store/memory_store.h"

#include <map>
#include <mutex>
#include <utility>

#include "comm/store/store_protocol.h"
#include "kernels/base/cpu/thread.h"

namespace rondo {

class MemoryTable {
 public:
  std::mutex mutex;
  ConditionVariable changed;
  std::map<std::string, std::string> values;
};

namespace {

class MemoryStore final : public Store {
 public:
  explicit MemoryStore(std::shared_ptr<MemoryTable> table) : table_(std::move(table)) {}

  void set(const std::string& key, std::string_view value, Deadline) override {
    check_store_key(key);
    check_store_value(key, value);
    const std::lock_guard lock(table_->mutex);
    table_->values[key] = value;
    table_->changed.notify_all();
  }

  std::string get(const std::string& key, Deadline deadline) override {
    wait({&key, 1}, deadline);
    return *try_get(key, deadline);
  }

  std::optional<std::string> try_get(const std::string& key, Deadline) override {
    check_store_key(key);
    const std::lock_guard lock(table_->mutex);
    const auto found = table_->values.find(key);
    if (found == table_->values.end()) return std::nullopt;
    return found->second;
  }

  int64_t add(const std::string& key, int64_t delta, Deadline) override {
    check_store_key(key);
    const std::lock_guard lock(table_->mutex);
    const auto found = table_->values.find(key);
    const std::string old = found == table_->values.end() ? "0" : found->second;
    const int64_t sum = add_to_store_value(key, old, delta);
    table_->values[key] = std::to_string(sum);
    table_->changed.notify_all();
    return sum;
  }

  void wait(std::span<const std::string> keys, Deadline deadline) override {
    const auto begin = CommClock::now();
    for (const std::string& key : keys) {
      check_store_key(key);
      std::unique_lock lock(table_->mutex);
      if (table_->changed.wait_until(lock, deadline,
                                     [&] { return table_->values.contains(key); })) {
        continue;
      }
      const std::chrono::duration<double> waited = CommClock::now() - begin;
      throw CommError(
          CommErrorKind::timeout, -1,
          str("store: waiting for '", key, "': timed out after ", waited.count(), " s"));
    }
  }

 private:
  std::shared_ptr<MemoryTable> table_;
};

}  // namespace

std::shared_ptr<MemoryTable> make_memory_table() { return std::make_shared<MemoryTable>(); }

std::unique_ptr<Store> make_memory_store(std::shared_ptr<MemoryTable> table) {
  return std::make_unique<MemoryStore>(std::move(table));
}

}  // namespace rondo
