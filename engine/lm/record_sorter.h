// Sorts more records than memory holds: sorted runs go to a file and are merged (Knuth 1998, The
// Art of Computer Programming 3, section 5.4.1).
//
// Memory is the budget that is given; what does not fit lies in a temporary file that has no name
// any more, so nothing is left behind, whatever happens. Records that come in order already are not
// sorted. Errors: InputError when the folder cannot be written or is full. Thread safety: one
// thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/io/descriptor.h"

namespace rondo::lm {

// Numbers that begin as anything, in pages of the system's larger size where it has them: sorting
// jumps about in them. Memory that nothing was written to costs nothing.
template <class T>
class LargeArray {
 public:
  LargeArray() = default;
  explicit LargeArray(uint64_t count);
  LargeArray(LargeArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  LargeArray& operator=(LargeArray other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~LargeArray();

  T& operator[](uint64_t i) { return data_[i]; }
  T* data() const { return data_; }

 private:
  T* data_ = nullptr;
  uint64_t bytes_ = 0;
};

// A record is `key_words` numbers, by which it is sorted, the first one first, and `value_words`.
class RecordSorter {
 public:
  struct Options {
    int32_t key_words = 0, value_words = 0;
    uint64_t memory = 0;  // bytes; at least room for a thousand records is taken
    std::string folder;   // of the temporary file
    // Of records with equal keys one is kept, whose value, of two words, is the sum of theirs.
    bool add_up = false;
  };

  explicit RecordSorter(Options options);
  RecordSorter(RecordSorter&&) noexcept;
  RecordSorter& operator=(RecordSorter&&) noexcept;
  ~RecordSorter();

  // Where to write the next record, before the next call.
  uint32_t* add();
  // After the last record.
  void sort();
  // After sort(): the next record in order, valid until the next call; nullptr: there is none.
  const uint32_t* next();

  uint64_t spilled_bytes() const { return file_end_; }

 private:
  struct Run;

  uint32_t* record(uint64_t i) { return records_.data() + i * stride_; }
  bool less(const uint32_t* a, const uint32_t* b) const;
  bool same_key(const uint32_t* a, const uint32_t* b) const;
  void order_records();
  void radix_sort(uint32_t bits);
  void sort_equal_prefixes();
  void spill();
  void note_order();
  const uint32_t* next_in_memory();
  const uint32_t* next_in_runs();
  bool refill(Run& run);
  const uint32_t* next_of_all() { return runs_.empty() ? next_in_memory() : next_in_runs(); }

  Options options_;
  size_t stride_ = 0;  // of records, in words
  uint64_t capacity_ = 0, count_ = 0, read_ = 0;
  LargeArray<uint32_t> records_;
  LargeArray<uint64_t> prefixes_, other_prefixes_;  // the keys' first words, packed
  LargeArray<uint32_t> sequence_, other_sequence_;  // the records in order, unless they are
  bool in_order_ = true;
  uint32_t all_bits_ = 0;  // of all keys, by or
  std::unique_ptr<Descriptor> file_;
  uint64_t file_end_ = 0;
  std::vector<Run> runs_;
  std::vector<size_t> heap_;  // runs, the one with the least record first
  size_t to_advance_ = SIZE_MAX;
  std::vector<uint32_t> sum_;        // the record that next() adds up in,
  const uint32_t* ahead_ = nullptr;  // and the one behind those
};

}  // namespace rondo::lm
