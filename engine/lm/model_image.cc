#include "engine/lm/model_image.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "engine/io/crc32c.h"
#include "engine/lm/quantizer.h"
#include "kernels/base/error.h"

namespace rondo::lm {
namespace {

static_assert(std::endian::native == std::endian::little, "images are read as they lie in files");

constexpr uint32_t byte_order = 0x01020304;
constexpr uint64_t slack = 8;  // readable bytes behind every section, for read_bits()
constexpr size_t crc_bytes = 4;

uint32_t width_of(uint64_t largest) { return static_cast<uint32_t>(std::bit_width(largest)); }

uint64_t record_bytes(const RecordLayout& r) { return (r.count * r.record_bits() + 7) / 8 + slack; }

// Bytes to `write`, gathered; values of any width one after the other.
class ImageWriter {
 public:
  explicit ImageWriter(FunctionRef<void(std::span<const std::byte>)> write)
      : write_(write), buffer_(capacity) {}

  void bytes(const void* data, size_t size) {
    const auto* from = static_cast<const std::byte*>(data);
    while (size > 0) {
      const size_t n = std::min(size, capacity - filled_);
      std::memcpy(buffer_.data() + filled_, from, n);
      filled_ += n;
      from += n;
      size -= n;
      if (filled_ == capacity) flush();
    }
  }
  template <class T>
  void value(const T& v) {
    bytes(&v, sizeof v);
  }
  void bits(uint32_t value, uint32_t width) {
    pending_ |= uint64_t{value} << used_;
    used_ += width;
    for (; used_ >= 8; used_ -= 8, pending_ >>= 8) {
      buffer_[filled_++] = static_cast<std::byte>(pending_);
      if (filled_ == capacity) flush();
    }
  }
  // Ends records.
  void close_section() {
    if (used_ > 0) bits(0, 8 - used_);
    value(uint64_t{0});
  }
  uint32_t crc() {
    flush();
    return crc_;
  }
  void flush() {
    const auto gathered = std::span<const std::byte>(buffer_).first(filled_);
    crc_ = crc32c(gathered, crc_);
    write_(gathered);
    filled_ = 0;
  }

 private:
  static constexpr size_t capacity = size_t{1} << 20;

  FunctionRef<void(std::span<const std::byte>)> write_;
  std::vector<std::byte> buffer_;
  size_t filled_ = 0;
  uint64_t pending_ = 0;
  uint32_t used_ = 0, crc_ = 0;
};

class ImageMaker {
 public:
  ImageMaker(const NgramTable& table, const Vocabulary& vocabulary, int32_t quantize)
      : table_(table), vocabulary_(vocabulary) {
    RONDO_CHECK(quantize == 0 || (quantize >= 2 && quantize <= 16), "quantize is ", quantize);
    lay_out(quantize);
  }

  void write(ImageWriter& out) {
    out.value(header_);
    for (const LevelLayout& level : levels_) out.value(level);
    const VocabularyView words = vocabulary_.view();
    out.bytes(words.ends, words.words * 8);
    out.bytes(words.texts.data(), words.texts.size());
    out.bytes(words.table, words.slots * 4);
    for (int32_t k = 1; k <= table_.order(); ++k) {
      write_contexts(k, out);
      write_arcs(k, out);
    }
    out.value(out.crc());
    out.flush();
  }

 private:
  void lay_out(int32_t quantize) {
    const auto order = static_cast<size_t>(table_.order());
    const VocabularyView words = vocabulary_.view();
    std::memcpy(header_.magic, image_magic, sizeof image_magic);
    header_.version = image_version;
    header_.byte_order = byte_order;
    header_.order = static_cast<uint32_t>(order);
    header_.quantized_bits = static_cast<uint32_t>(quantize);
    header_.words = words.words;
    header_.texts_bytes = words.texts.size();
    header_.slots = words.slots;
    levels_.resize(order);
    uint64_t at = sizeof header_ + order * sizeof(LevelLayout);
    const auto take = [&](uint64_t& section, uint64_t bytes) {
      section = at;
      at += bytes;
    };
    take(header_.ends_at, words.words * 8);
    take(header_.texts_at, words.texts.size());
    take(header_.table_at, words.slots * 4);
    for (int32_t k = 1; k <= table_.order(); ++k) {
      LevelLayout& level = levels_[static_cast<size_t>(k - 1)];
      level.first_state = header_.states;
      header_.states += table_.states(k - 1);
      const uint32_t weight_bits = quantize > 0 ? static_cast<uint32_t>(quantize) : 32;
      const uint64_t arcs = table_.entries(k).size();
      level.contexts = {table_.states(k - 1) + 1,
                        0,
                        0,
                        {width_of(arcs), k > 2 ? weight_bits : 32, width_of(level.first_state)},
                        0};
      const uint64_t later = k < table_.order() ? table_.states(k) : 0;
      level.arcs = {arcs,
                    0,
                    0,
                    {k > 1 ? width_of(header_.words) : 0, k > 1 ? weight_bits : 32,
                     width_of(header_.states + later)},
                    0};
      for (RecordLayout* r : {&level.contexts, &level.arcs}) {
        if (r->width[1] != 32) take(r->table_at, (uint64_t{1} << r->width[1]) * sizeof(float));
        take(r->at, record_bytes(*r));
      }
    }
    header_.bytes = at + crc_bytes;
  }

  // Calls f(index of the entry) for the contexts of k - 1 words.
  template <class F>
  void for_contexts(int32_t k, F&& f) {
    if (k == 1) return f(uint64_t{0});
    for (uint64_t i = 0; i < table_.entries(k - 1).size(); ++i) {
      if (table_.is_state(k - 1, i)) f(i);
    }
  }

  void write_contexts(int32_t k, ImageWriter& out) {
    const RecordLayout& r = levels_[static_cast<size_t>(k - 1)].contexts;
    const auto entry = [&](uint64_t i) {
      return k == 1 ? NgramTable::Entry{} : table_.entries(k - 1)[i];
    };
    Quantizer quantizer;
    if (r.table_at != 0) {
      for_contexts(k, [&](uint64_t i) { quantizer.add(entry(i).backoff); });
      quantizer.finish(r.width[1], true);
      out.bytes(quantizer.centres().data(), quantizer.centres().size() * sizeof(float));
    }
    for_contexts(k, [&](uint64_t i) {
      out.bits(table_.first_arc(k - 1, i), r.width[0]);
      write_weight(entry(i).backoff, r, quantizer, out);
      out.bits(table_.state_number(entry(i).link), r.width[2]);
    });
    out.bits(static_cast<uint32_t>(table_.entries(k).size()), r.width[0]);
    out.bits(0, r.width[1]);
    out.bits(0, r.width[2]);
    out.close_section();
  }

  void write_arcs(int32_t k, ImageWriter& out) {
    const RecordLayout& r = levels_[static_cast<size_t>(k - 1)].arcs;
    const std::vector<NgramTable::Entry>& entries = table_.entries(k);
    Quantizer quantizer;
    if (r.table_at != 0) {
      for (const NgramTable::Entry& e : entries) quantizer.add(e.probability);
      quantizer.finish(r.width[1], false);
      out.bytes(quantizer.centres().data(), quantizer.centres().size() * sizeof(float));
    }
    for (uint64_t i = 0; i < entries.size(); ++i) {
      out.bits(k > 1 ? entries[i].word : 0, r.width[0]);
      write_weight(entries[i].probability, r, quantizer, out);
      out.bits(table_.state_number(table_.target(k, i)), r.width[2]);
    }
    out.close_section();
  }

  static void write_weight(float value, const RecordLayout& r, const Quantizer& quantizer,
                           ImageWriter& out) {
    out.bits(r.table_at != 0 ? quantizer.code(value) : std::bit_cast<uint32_t>(value), r.width[1]);
  }

  const NgramTable& table_;
  const Vocabulary& vocabulary_;
  ImageHeader header_{};
  std::vector<LevelLayout> levels_;
};

[[noreturn]] void fail_image(const std::string& name, const std::string& what) {
  fail_input(name, ": is damaged: ", what);
}

void check_within(const ImageHeader& h, uint64_t at, uint64_t count, uint64_t bits,
                  const std::string& name) {
  const uint64_t all = h.bytes - crc_bytes;
  if (at > all || (bits != 0 && count > (all - at) * 8 / bits) ||
      (count * bits + 7) / 8 > all - at) {
    fail_image(name, "a section of it lies beyond its end");
  }
}

void check_records(const ImageHeader& h, const RecordLayout& r, const std::string& name) {
  for (const uint32_t width : r.width) {
    if (width > 32) fail_image(name, str("a field has ", width, " bits"));
  }
  if (r.count > UINT32_MAX) fail_image(name, str(r.count, " records of one kind"));
  check_within(h, r.at, r.count, r.record_bits(), name);
  check_within(h, r.at, record_bytes(r), 8, name);
  if (r.table_at != 0) {
    if (r.width[1] > 16) fail_image(name, "a table of weights is too large");
    check_within(h, r.table_at, uint64_t{1} << r.width[1], 32, name);
  } else if (r.width[1] != 32) {
    fail_image(name, "weights without a table");
  }
}

void check_levels(const ImageView& image, const std::string& name) {
  uint64_t states = 0;
  for (const LevelLayout& level : image.levels) {
    check_records(image.header, level.contexts, name);
    check_records(image.header, level.arcs, name);
    if (level.contexts.count == 0 || level.first_state != states) {
      fail_image(name, "its numbers of states contradict each other");
    }
    states += level.contexts.count - 1;
  }
  const LevelLayout& first = image.levels.front();
  if (states != image.header.states || first.contexts.count != 2 ||
      first.arcs.count != image.header.words || first.arcs.width[0] != 0) {
    fail_image(name, "its numbers of states contradict each other");
  }
}

void check_words(const ImageView& image, const std::string& name) {
  const ImageHeader& h = image.header;
  if (h.words == 0 || h.words >= UINT32_MAX || !std::has_single_bit(h.slots)) {
    fail_image(name, str(h.words, " words in ", h.slots, " places"));
  }
  uint64_t before = 0;
  for (uint64_t w = 0; w < h.words; ++w) {
    const auto end = VocabularyView::at<uint64_t>(image.vocabulary.ends, w);
    if (end < before || end > h.texts_bytes) fail_image(name, "the texts of its words overlap");
    before = end;
  }
}

}  // namespace

void write_image(const NgramTable& table, const Vocabulary& vocabulary, int32_t quantize,
                 FunctionRef<void(std::span<const std::byte>)> write) {
  ImageWriter out(write);
  ImageMaker(table, vocabulary, quantize).write(out);
}

ImageView view_image(std::span<const std::byte> bytes, const std::string& name) {
  ImageView image;
  ImageHeader& h = image.header;
  if (bytes.size() < sizeof h + crc_bytes) {
    fail_input(name, ": is damaged: it has ", bytes.size(), " bytes, fewer than its header");
  }
  std::memcpy(&h, bytes.data(), sizeof h);
  if (h.byte_order != byte_order) fail_image(name, "its byte order is none");
  if (h.version != image_version) {
    fail_input(name, ": is of version ", h.version, " of the format, expected ", image_version,
               ": make it anew by rondo lm build");
  }
  if (h.bytes != bytes.size()) {
    fail_input(name, ": is damaged: it has ", bytes.size(), " bytes, expected ", h.bytes);
  }
  uint32_t crc;
  std::memcpy(&crc, bytes.data() + bytes.size() - crc_bytes, crc_bytes);
  if (crc32c(bytes.first(bytes.size() - crc_bytes)) != crc) {
    fail_image(name, "its checksum is another one");
  }
  if (h.order < 1 || h.order > most_orders) fail_image(name, str("its order is ", h.order));
  check_within(h, sizeof h, h.order, sizeof(LevelLayout) * 8, name);
  image.levels.resize(h.order);
  std::memcpy(image.levels.data(), bytes.data() + sizeof h, h.order * sizeof(LevelLayout));
  check_within(h, h.ends_at, h.words, 64, name);
  check_within(h, h.texts_at, h.texts_bytes, 8, name);
  check_within(h, h.table_at, h.slots, 32, name);
  image.bytes = bytes;
  image.vocabulary = {bytes.data() + h.ends_at,
                      {reinterpret_cast<const char*>(bytes.data()) + h.texts_at, h.texts_bytes},
                      bytes.data() + h.table_at,
                      h.words,
                      h.slots};
  check_levels(image, name);
  check_words(image, name);
  return image;
}

}  // namespace rondo::lm
