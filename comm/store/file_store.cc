#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <thread>

#include "comm/socket.h"
#include "comm/store/store_protocol.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

// Any key as a file name: letters and digits stand for themselves, other bytes for "_" and two
// hexadecimal digits. Long ones go by their hash.
std::string file_name(const std::string& key) {
  constexpr char digits[] = "0123456789abcdef";
  std::string name = "k";
  for (const char c : key) {
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) {
      name += c;
    } else {
      name += {'_', digits[static_cast<uint8_t>(c) >> 4], digits[static_cast<uint8_t>(c) & 15]};
    }
  }
  if (name.size() <= 200) return name;
  name = "h";
  for (const uint8_t byte : sha256(key)) name += {digits[byte >> 4], digits[byte & 15]};
  return name;
}

class FileStore final : public Store {
 public:
  explicit FileStore(const std::string& directory) : directory_(directory) {
    std::error_code error;
    fs::create_directories(directory_, error);
    if (error) fail_input("cannot create '", directory, "': ", error.message());
  }

  void set(const std::string& key, std::string_view value, Deadline) override {
    check_store_key(key);
    check_store_value(key, value);
    std::lock_guard lock(mutex_);
    write(key, value);
  }

  std::optional<std::string> try_get(const std::string& key, Deadline) override {
    check_store_key(key);
    std::ifstream in(directory_ / file_name(key), std::ios::binary);
    if (!in) return std::nullopt;
    std::string value((std::istreambuf_iterator<char>(in)), {});
    if (in.bad()) fail_input("cannot read '", (directory_ / file_name(key)).string(), "'");
    return value;
  }

  std::string get(const std::string& key, Deadline deadline) override {
    auto pause = std::chrono::milliseconds(1);
    for (;;) {
      if (auto value = try_get(key, deadline)) return std::move(*value);
      const auto now = CommClock::now();
      if (now >= deadline) {
        throw CommError(CommErrorKind::timeout, -1,
                        str("store in '", directory_.string(), "': get '", key, "': timed out"));
      }
      std::this_thread::sleep_until(std::min(deadline, now + pause));
      pause = std::min(2 * pause, std::chrono::milliseconds(50));
    }
  }

  int64_t add(const std::string& key, int64_t delta, Deadline deadline) override {
    check_store_key(key);
    std::lock_guard lock(mutex_);
    const Socket held = lock_directory(deadline);
    const int64_t sum = add_to_store_value(key, try_get(key, deadline).value_or(""), delta);
    write(key, std::to_string(sum));
    return sum;
  }

  void wait(std::span<const std::string> keys, Deadline deadline) override {
    for (const std::string& key : keys) get(key, deadline);
  }

 private:
  // Held until the descriptor is closed, also when the process dies.
  Socket lock_directory(Deadline deadline) {
    const fs::path path = directory_ / "lock";
    Socket file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!file) fail_input("cannot open '", path.string(), "': ", std::strerror(errno));
    while (flock(file.fd(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) {
        fail_input("cannot lock '", path.string(), "': ", std::strerror(errno));
      }
      if (CommClock::now() >= deadline) {
        throw CommError(CommErrorKind::timeout, -1,
                        str("store in '", directory_.string(), "': its lock: timed out"));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return file;
  }

  void write(const std::string& key, std::string_view value) {
    static std::atomic<uint64_t> counter{0};
    // Names that no two writers share, on any machine.
    const fs::path part = directory_ / str("w", getpid(), "-", counter++, "-", unique_, "-",
                                           file_name(key).substr(0, 20));
    std::ofstream out(part, std::ios::binary);
    out.write(value.data(), static_cast<std::streamsize>(value.size()));
    out.close();
    std::error_code error;
    if (out) fs::rename(part, directory_ / file_name(key), error);
    if (!out || error) {
      const std::string why = error ? error.message() : std::strerror(errno);
      fs::remove(part, error);
      fail_input("cannot write '", (directory_ / file_name(key)).string(), "': ", why);
    }
  }

  const fs::path directory_;
  const std::string unique_ = random_token().substr(0, 16);
  std::mutex mutex_;
};

class PrefixStore final : public Store {
 public:
  PrefixStore(Store& store, const std::string& prefix) : store_(store), prefix_(prefix + "/") {}

  void set(const std::string& key, std::string_view value, Deadline deadline) override {
    store_.set(prefix_ + key, value, deadline);
  }
  std::string get(const std::string& key, Deadline deadline) override {
    return store_.get(prefix_ + key, deadline);
  }
  std::optional<std::string> try_get(const std::string& key, Deadline deadline) override {
    return store_.try_get(prefix_ + key, deadline);
  }
  int64_t add(const std::string& key, int64_t delta, Deadline deadline) override {
    return store_.add(prefix_ + key, delta, deadline);
  }
  void wait(std::span<const std::string> keys, Deadline deadline) override {
    std::vector<std::string> all;
    for (const std::string& key : keys) all.push_back(prefix_ + key);
    store_.wait(all, deadline);
  }

 private:
  Store& store_;
  const std::string prefix_;
};

}  // namespace

std::unique_ptr<Store> make_file_store(const std::string& directory) {
  return std::make_unique<FileStore>(directory);
}

std::unique_ptr<Store> make_prefix_store(Store& store, const std::string& prefix) {
  return std::make_unique<PrefixStore>(store, prefix);
}

}  // namespace rondo
