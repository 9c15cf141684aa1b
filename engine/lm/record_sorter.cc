#include "engine/lm/record_sorter.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <system_error>

#include "engine/io/file.h"
#include "kernels/base/error.h"

namespace rondo::lm {
namespace {

// What sorting takes besides a record: its key's beginning and its number, twice.
constexpr uint64_t sorting_bytes = 24;

// A file that is gone with its descriptor.
int open_nameless(const std::string& folder) {
  std::string name = folder + "/rondo-lm-XXXXXX";
  const int fd = ::mkostemp(name.data(), O_CLOEXEC);
  if (fd < 0) {
    fail_input(folder, ": no temporary file can be made: ", std::generic_category().message(errno));
  }
  ::unlink(name.c_str());
  return fd;
}

void add_value(uint32_t* sum, const uint32_t* value) {
  uint64_t a, b;
  std::memcpy(&a, sum, 8);
  std::memcpy(&b, value, 8);
  a += b;
  std::memcpy(sum, &a, 8);
}

}  // namespace

template <class T>
LargeArray<T>::LargeArray(uint64_t count) : bytes_(std::max<uint64_t>(count, 1) * sizeof(T)) {
  void* p = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  ::madvise(p, bytes_, MADV_HUGEPAGE);
  data_ = static_cast<T*>(p);
}

template <class T>
LargeArray<T>::~LargeArray() {
  if (data_) ::munmap(data_, bytes_);
}

template class LargeArray<uint32_t>;
template class LargeArray<uint64_t>;

// A sorted part of the file, read piece by piece.
struct RecordSorter::Run {
  uint64_t at = 0, end = 0;  // what was not read of it, in bytes
  std::vector<uint32_t> buffer;
  size_t first = 0, count = 0;  // records in the buffer

  const uint32_t* front(size_t stride) const { return buffer.data() + first * stride; }
};

RecordSorter::RecordSorter(Options options) : options_(std::move(options)) {
  RONDO_CHECK(options_.key_words > 0 && (!options_.add_up || options_.value_words == 2));
  stride_ = static_cast<size_t>(options_.key_words + options_.value_words);
  capacity_ =
      std::clamp<uint64_t>(options_.memory / (stride_ * 4 + sorting_bytes), 1000, UINT32_MAX - 1);
}

RecordSorter::RecordSorter(RecordSorter&&) noexcept = default;
RecordSorter& RecordSorter::operator=(RecordSorter&&) noexcept = default;
RecordSorter::~RecordSorter() = default;

bool RecordSorter::less(const uint32_t* a, const uint32_t* b) const {
  return std::lexicographical_compare(a, a + options_.key_words, b, b + options_.key_words);
}

bool RecordSorter::same_key(const uint32_t* a, const uint32_t* b) const {
  return std::equal(a, a + options_.key_words, b);
}

// Looks at the record that was written last.
void RecordSorter::note_order() {
  if (count_ == 0) return;
  const uint32_t* last = record(count_ - 1);
  for (int32_t k = 0; k < options_.key_words; ++k) all_bits_ |= last[k];
  if (in_order_ && count_ > 1) in_order_ = !less(last, record(count_ - 2));
}

uint32_t* RecordSorter::add() {
  note_order();
  if (count_ == capacity_) spill();
  if (!records_.data()) records_ = LargeArray<uint32_t>(capacity_ * stride_);
  return record(count_++);
}

// Sorts prefixes_ and sequence_ with them, the least significant digits first.
void RecordSorter::radix_sort(uint32_t bits) {
  constexpr uint32_t digit = 11;
  for (uint32_t shift = 0; shift < bits; shift += digit) {
    std::array<uint32_t, (1 << digit)> begins{};
    for (uint64_t i = 0; i < count_; ++i) ++begins[(prefixes_[i] >> shift) & ((1 << digit) - 1)];
    uint32_t sum = 0;
    for (uint32_t& begin : begins) sum += std::exchange(begin, sum);
    for (uint64_t i = 0; i < count_; ++i) {
      const uint32_t to = begins[(prefixes_[i] >> shift) & ((1 << digit) - 1)]++;
      other_prefixes_[to] = prefixes_[i];
      other_sequence_[to] = sequence_[i];
    }
    std::swap(prefixes_, other_prefixes_);
    std::swap(sequence_, other_sequence_);
  }
}

void RecordSorter::sort_equal_prefixes() {
  for (uint64_t begin = 0; begin < count_;) {
    uint64_t end = begin + 1;
    while (end < count_ && prefixes_[end] == prefixes_[begin]) ++end;
    if (end - begin > 1) {
      std::sort(sequence_.data() + begin, sequence_.data() + end,
                [this](uint32_t a, uint32_t b) { return less(record(a), record(b)); });
    }
    begin = end;
  }
}

void RecordSorter::order_records() {
  note_order();
  if (in_order_) return;
  // As many of the key's words as 64 bits hold decide nearly all.
  const uint32_t word_bits = std::max(1u, static_cast<uint32_t>(std::bit_width(all_bits_)));
  const auto words = std::min<uint32_t>(64 / word_bits, static_cast<uint32_t>(options_.key_words));
  if (!prefixes_.data()) {
    prefixes_ = LargeArray<uint64_t>(capacity_);
    other_prefixes_ = LargeArray<uint64_t>(capacity_);
    sequence_ = LargeArray<uint32_t>(capacity_);
    other_sequence_ = LargeArray<uint32_t>(capacity_);
  }
  for (uint64_t i = 0; i < count_; ++i) {
    const uint32_t* r = record(i);
    uint64_t prefix = 0;
    for (uint32_t k = 0; k < words; ++k) prefix = prefix << word_bits | r[k];
    prefixes_[i] = prefix;
    sequence_[i] = static_cast<uint32_t>(i);
  }
  radix_sort(words * word_bits);
  if (words < static_cast<uint32_t>(options_.key_words)) sort_equal_prefixes();
}

void RecordSorter::spill() {
  order_records();
  if (!file_) file_ = std::make_unique<Descriptor>(open_nameless(options_.folder));
  Run run;
  run.at = file_end_;
  std::vector<uint32_t> out;
  constexpr size_t piece = size_t{1} << 18;
  const auto write = [&] {
    write_all(file_->get(), std::as_bytes(std::span(out)), options_.folder);
    file_end_ += out.size() * 4;
    out.clear();
  };
  for (uint64_t i = 0; i < count_; ++i) {
    const uint32_t* r = record(in_order_ ? i : sequence_[i]);
    if (options_.add_up && !out.empty() && same_key(&out[out.size() - stride_], r)) {
      add_value(&out[out.size() - 2], r + options_.key_words);
      continue;
    }
    if (out.size() + stride_ > piece) write();
    out.insert(out.end(), r, r + stride_);
  }
  write();
  run.end = file_end_;
  runs_.push_back(std::move(run));
  count_ = 0;
  in_order_ = true;
}

bool RecordSorter::refill(Run& run) {
  const uint64_t bytes = std::min<uint64_t>(run.buffer.size() * 4, run.end - run.at);
  run.first = 0;
  run.count = bytes / (stride_ * 4);
  auto* to = reinterpret_cast<std::byte*>(run.buffer.data());
  for (uint64_t done = 0; done < bytes;) {
    const ssize_t n = ::pread(file_->get(), to + done, bytes - done, static_cast<off_t>(run.at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      fail_input(options_.folder, ": a temporary file cannot be read: ",
                 n == 0 ? "it is shorter than it was" : std::generic_category().message(errno));
    }
    done += static_cast<uint64_t>(n);
    run.at += static_cast<uint64_t>(n);
  }
  return run.count > 0;
}

void RecordSorter::sort() {
  if (!runs_.empty() && count_ > 0) {
    spill();
  } else if (runs_.empty()) {
    order_records();
  }
  // Only the sequence is read from here on.
  prefixes_ = LargeArray<uint64_t>();
  other_prefixes_ = LargeArray<uint64_t>();
  other_sequence_ = LargeArray<uint32_t>();
  read_ = 0;
  if (!runs_.empty()) {
    records_ = LargeArray<uint32_t>();
    sequence_ = LargeArray<uint32_t>();
    const uint64_t share = options_.memory / runs_.size() / (stride_ * 4);
    const uint64_t records = std::clamp<uint64_t>(share, 16, 1 << 16);
    for (size_t r = 0; r < runs_.size(); ++r) {
      runs_[r].buffer.resize(records * stride_);
      if (refill(runs_[r])) heap_.push_back(r);
    }
    const auto later = [this](size_t a, size_t b) {
      return less(runs_[b].front(stride_), runs_[a].front(stride_));
    };
    std::make_heap(heap_.begin(), heap_.end(), later);
  }
  if (options_.add_up) ahead_ = next_of_all();
}

const uint32_t* RecordSorter::next_in_memory() {
  if (read_ == count_) return nullptr;
  const uint64_t i = read_++;
  if (in_order_) return record(i);
  if (i + 8 < count_) __builtin_prefetch(record(sequence_[i + 8]));
  return record(sequence_[i]);
}

const uint32_t* RecordSorter::next_in_runs() {
  const auto later = [this](size_t a, size_t b) {
    return less(runs_[b].front(stride_), runs_[a].front(stride_));
  };
  // The record that was given last is stepped over only now, for it was to stay valid.
  if (to_advance_ != SIZE_MAX) {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    Run& run = runs_[to_advance_];
    ++run.first;
    --run.count;
    if (run.count > 0 || refill(run)) {
      std::push_heap(heap_.begin(), heap_.end(), later);
    } else {
      run.buffer = {};
      heap_.pop_back();
    }
  }
  to_advance_ = heap_.empty() ? SIZE_MAX : heap_.front();
  return heap_.empty() ? nullptr : runs_[heap_.front()].front(stride_);
}

const uint32_t* RecordSorter::next() {
  if (!options_.add_up) return next_of_all();
  if (!ahead_) return nullptr;
  sum_.assign(ahead_, ahead_ + stride_);
  while ((ahead_ = next_of_all()) && same_key(sum_.data(), ahead_)) {
    add_value(&sum_[stride_ - 2], ahead_ + options_.key_words);
  }
  return sum_.data();
}

}  // namespace rondo::lm
