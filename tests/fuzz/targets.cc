#include "tests/fuzz/targets.h"

#include <sndfile.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "comm/gloo/letter.h"
#include "comm/store/store_protocol.h"
#include "comm/tcp/handshake.h"
#include "engine/config/config.h"
#include "engine/config/vgsl.h"
#include "engine/corpus/lists/csv.h"
#include "engine/corpus/lists/tar.h"
#include "engine/data/audio/audio.h"
#include "engine/data/features/feature_file.h"
#include "engine/data/features/kaldi_matrix.h"
#include "engine/data/features/npy.h"
#include "engine/data/image/image.h"
#include "engine/data/image/line_features.h"
#include "engine/data/manifest.h"
#include "engine/decode/lexicon.h"
#include "engine/decode/transcript/text_alignment.h"
#include "engine/decode/transcript/transcript_formats.h"
#include "engine/decode/transcript/utterances.h"
#include "engine/decode/vocabulary.h"
#include "engine/io/checkpoint_manifest.h"
#include "engine/io/crc32c.h"
#include "engine/io/safetensors.h"
#include "engine/io/stage_index.h"
#include "engine/lm/language_model.h"
#include "engine/lm/model_image.h"
#include "engine/page/page_file.h"
#include "engine/page/page_writers.h"
#include "engine/plan/machine/machine.h"
#include "engine/text/alphabet.h"
#include "engine/text/error_rate.h"
#include "engine/text/unicode.h"
#include "kernels/base/error.h"
#include "tests/comm/string_pipe.h"

using namespace rondo;

// libsndfile 1.2.0 loses the 5.8 kB of vorbis_info_init when opening a damaged Ogg file fails.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:vorbis_info_init"; }

namespace {

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void require(bool ok, const char* what) {
  if (!ok) throw std::logic_error(what);
}

void run_manifest(std::span<const std::byte> bytes) {
  const Manifest m = parse_manifest(text_of(bytes), "corpus/m.jsonl");
  require(!m.entries.empty(), "a manifest without entries was accepted");
  // What was read must survive being written.
  std::string again;
  for (const ManifestEntry& e : m.entries) again += to_json_line(e) + "\n";
  const Manifest n = parse_manifest(again, "corpus/m.jsonl");
  require(n.entries.size() == m.entries.size(), "writing lost entries");
  for (size_t i = 0; i < m.entries.size(); ++i)
    require(m.entries[i].key() == n.entries[i].key() &&
                m.entries[i].region == n.entries[i].region &&
                m.entries[i].text == n.entries[i].text,
            "writing changed an entry");
}

std::vector<std::string> manifest_seeds() {
  return {R"({"audio_filepath": "a/b.wav", "duration": 1.5, "text": "one two", "speaker": "x"}
{"features_filepath": "/f.npy", "label": 3, "target": [1.5, -2e-3], "frame_labels": [0, 1]}
)",
          R"({"features_filepath": "f.safetensors", "features_key": "k", "labels": [1, 2, 3]})",
          R"({"image_filepath": "p.png", "region": [[1, 2], [30, 2], [29, 9]], "text": "a"}
{"image_filepath": "p.png", "region": [5, 6, 70, 8]})",
          "{\"audio_filepath\": \"\\u00e9\\ud83d\\ude00\", \"offset\": 3, \"x\": {\"y\": [null]}}"};
}

void run_npy(std::span<const std::byte> bytes) {
  const data::NpyHeader h = data::parse_npy_header(bytes, "x.npy");
  const std::vector<float> v = data::npy_floats(bytes, h, "x.npy");
  require(static_cast<int64_t>(v.size()) == h.numel(), "the wrong number of elements");
  if (h.kind != 'f')
    require(data::npy_integers(bytes, h, "x.npy").size() == v.size(), "the wrong number");
}

std::vector<std::string> npy_seeds() {
  const std::vector<int64_t> shape = {2, 3}, flat = {6};
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  std::string integers = data::make_npy(flat, values);
  integers.replace(integers.find("<f4"), 3, "<i4");
  std::string halves = data::make_npy(flat, values);
  halves.replace(halves.find("<f4"), 3, "<f2");
  return {data::make_npy(shape, values), integers, halves.substr(0, halves.size() - 12)};
}

void run_safetensors(std::span<const std::byte> bytes) {
  const SafetensorsFile file(bytes, "x.safetensors");
  const Matrix m = features_from(file, "");
  require(static_cast<int64_t>(m.data.size()) == m.frames * m.dim && m.frames > 0, "a wrong shape");
}

std::string safetensors(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string out(reinterpret_cast<const char*>(&length), 8);
  return out + header + std::string(data_bytes, '\x3f');
}

std::vector<std::string> safetensors_seeds() {
  return {
      safetensors(R"({"x":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})", 24),
      safetensors(R"({"__metadata__":{"a":"b"},"features":{"dtype":"BF16","shape":[4,1],)"
                  R"("data_offsets":[0,8]},"y":{"dtype":"I64","shape":[2],"data_offsets":[8,24]}})",
                  24)};
}

void run_audio(std::span<const std::byte> bytes) {
  const Waveform w = decode_audio(bytes, "-", 16000);
  require(w.sample_rate == 16000, "another sample rate");
  for (float v : w.samples) require(std::isfinite(v), "a sample is not finite");
}

// In memory, by libsndfile itself.
std::string encode(int format, int rate, int channels) {
  struct Sink {
    std::string data;
    size_t at = 0;
  } sink;
  SF_VIRTUAL_IO io = {
      [](void* p) { return static_cast<sf_count_t>(static_cast<Sink*>(p)->data.size()); },
      [](sf_count_t offset, int whence, void* p) {
        auto* s = static_cast<Sink*>(p);
        const size_t base = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? s->at : s->data.size();
        s->at = base + static_cast<size_t>(offset);
        return static_cast<sf_count_t>(s->at);
      },
      nullptr,
      [](const void* from, sf_count_t n, void* p) {
        auto* s = static_cast<Sink*>(p);
        s->data.resize(std::max(s->data.size(), s->at + static_cast<size_t>(n)));
        std::memcpy(s->data.data() + s->at, from, static_cast<size_t>(n));
        s->at += static_cast<size_t>(n);
        return n;
      },
      [](void* p) { return static_cast<sf_count_t>(static_cast<Sink*>(p)->at); }};
  SF_INFO info{};
  info.format = format;
  info.samplerate = rate;
  info.channels = channels;
  SNDFILE* file = sf_open_virtual(&io, SFM_WRITE, &info, &sink);
  require(file != nullptr, "libsndfile cannot encode a seed");
  std::vector<float> x(static_cast<size_t>(300 * channels));
  for (size_t i = 0; i < x.size(); ++i) x[i] = 0.3f * std::sin(static_cast<float>(i));
  sf_writef_float(file, x.data(), 300);
  sf_close(file);
  return sink.data;
}

std::vector<std::string> audio_seeds() {
  return {encode(SF_FORMAT_WAV | SF_FORMAT_PCM_16, 8000, 1),
          encode(SF_FORMAT_WAV | SF_FORMAT_FLOAT, 16000, 2),
          encode(SF_FORMAT_WAV | SF_FORMAT_IMA_ADPCM, 8000, 1),
          encode(SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 16000, 1),
          encode(SF_FORMAT_OGG | SF_FORMAT_VORBIS, 16000, 1)};
}

void run_image(std::span<const std::byte> bytes) {
  // What it takes may be many times the file; that is bounded, but slow to find out so often.
  constexpr int64_t most_pixels = 1 << 20;
  const ImageInfo size = image_info(bytes, "x.pgm");
  if (int64_t{size.width} * size.height > most_pixels) return;
  const GreyImage image = decode_image(bytes, "x.pgm");
  require(image.width == size.width && image.height == size.height, "two sizes");
  require(image.pixels.size() == static_cast<size_t>(size.width) * static_cast<size_t>(size.height),
          "the wrong number of pixels");
  LineConfig line;
  line.height = 8;
  line.ink = Ink::automatic;
  line.require_line(size, "x.pgm");
  const Matrix m = line_features(line, image, line.scaled_width(size));
  for (float v : m.data) require(v >= 0 && v <= 1, "ink beyond 0 to 1");
}

std::vector<std::string> image_seeds() {
  GreyImage g(9, 5);
  for (size_t i = 0; i < g.pixels.size(); ++i) g.pixels[i] = static_cast<uint8_t>(i * 37);
  return {"P1\n3 2\n101\n0 1 0\n", "P2 #c\n2 1 4 0 4\n", "P3\n2 1\n255\n255 0 0  0 255 0\n",
          std::string("P4\n10 1\n\x80\x40", 10),
          "P5\n9 5\n255\n" + std::string(g.pixels.begin(), g.pixels.end()),
          std::string("P6 1 1 65535\n\x00\x00\xff\xff\x12\x34", 19), make_png(g),
          // Of a TIFF: two rows of four pixels, not compressed.
          std::string("II*\0\x10\0\0\0\0\x40\x80\xff\xff\x80\x40\0", 16) +
              std::string("\x08\0"
                          "\0\1\4\0\1\0\0\0\4\0\0\0\1\1\4\0\1\0\0\0\2\0\0\0"
                          "\2\1\3\0\1\0\0\0\x08\0\0\0\3\1\3\0\1\0\0\0\1\0\0\0"
                          "\6\1\3\0\1\0\0\0\1\0\0\0\x11\1\4\0\1\0\0\0\x08\0\0\0"
                          "\x16\1\4\0\1\0\0\0\2\0\0\0\x17\1\4\0\1\0\0\0\x08\0\0\0"
                          "\0\0\0\0",
                          102)};
}

void run_page(std::span<const std::byte> bytes) {
  PageFile page = parse_page(text_of(bytes), "x.xml");
  set_regions(page, {200, 100});
  GreyImage image(200, 100);
  for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = static_cast<uint8_t>(i * 37);
  size_t cut = 0;
  for (const PageLine& line : page.lines) {
    require(!line.id.empty(), "a line without a name");
    require(!line.problem.empty() || line.region.corners.size() >= 3,
            "neither a region nor a problem");
    if (!line.problem.empty() || ++cut > 50) continue;
    const GreyImage part = cut_out(image, line.region, "x.png");
    require(part.width > 0 && part.width <= 200 && part.height > 0 && part.height <= 400,
            "a line larger than its page");
  }
  if (page.lines.size() > 200) return;
  // What is written of it, as of a page that was read from no file, is a page again.
  page.path.clear();
  std::vector<ReadLine> read;
  size_t readable = 0;
  for (const PageLine& line : page.lines) {
    std::vector<SeenLabel> labels;
    for (const char32_t c : code_points(line.text)) {
      const double at = static_cast<double>(labels.size());
      labels.push_back({to_utf8(c), at, at + 1, 0.5});
    }
    read.push_back(arrange(labels, 0, 200));
    readable += line.problem.empty();
  }
  to_hocr(page, read, "test");
  for (const std::string& written : {to_alto(page, read, "test"), to_page_xml(page, read, "test")})
    require(parse_page(written, "y.xml").lines.size() == readable, "lines are lost in writing");
}

std::vector<std::string> page_seeds() {
  return {
      R"(<?xml version="1.0" encoding="UTF-8"?>
<PcGts xmlns="http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15">
<Page imageFilename="a.png" imageWidth="200" imageHeight="100"><ReadingOrder><OrderedGroup id="g">
<RegionRefIndexed index="1" regionRef="r"/></OrderedGroup></ReadingOrder>
<TextRegion id="r"><TextLine id="l"><Coords points="10,20 180,25 180,60 10,55"/>
<TextEquiv index="1"><Unicode>b</Unicode></TextEquiv><TextEquiv index="0"><Unicode>a &amp; c</Unicode>
</TextEquiv></TextLine></TextRegion></Page></PcGts>)",
      R"(<alto xmlns="http://www.loc.gov/standards/alto/ns-v4#"><Description><MeasurementUnit>mm10
</MeasurementUnit><sourceImageInformation><fileName>a.tif</fileName></sourceImageInformation>
</Description><Layout><Page WIDTH="2000" HEIGHT="1000"><PrintSpace><TextBlock ID="b">
<TextLine ID="l1" HPOS="10" VPOS="20.5" WIDTH="500" HEIGHT="90"><String CONTENT="ab"/><SP/>
<String CONTENT="c"/><HYP CONTENT="-"/></TextLine><TextLine><Shape><Polygon POINTS="1 2 300 2 300 90"/>
</Shape></TextLine></TextBlock></PrintSpace></Page></Layout></alto>)"};
}

void run_text(std::span<const std::byte> bytes) {
  const std::string once = normalize_transcript(text_of(bytes));
  require(normalize_transcript(once) == once, "normalisation is not stable");
  const std::vector<std::string> texts = {once};
  const Alphabet a = Alphabet::from_transcripts(texts);
  const EncodedText e = a.encode(text_of(bytes));
  require(e.unknown.empty(), "an alphabet does not know its own text");
  require(a.decode(e.labels) == once, "decoding does not give the text back");
  require(Alphabet(a.symbols()).encode(once).labels == e.labels, "stored symbols differ");
  if (bytes.size() > 10000) return;  // errors are counted in quadratic time
  ErrorRate rate;
  rate.add(text_of(bytes), once);
  require(rate.cer() == 0, "a text differs from itself");
}

std::vector<std::string> text_seeds() {
  return {"the quick  brown fox\t", "e\xcc\x81t\xc3\xa9 \xe4\xb8\xad\xe6\x96\x87 \xf0\x9f\x98\x80",
          "\xea\xb0\x80\xe1\x84\x80\xe1\x85\xa1 \xef\xac\x81 \xe2\x80\x89\xc2\xa0"};
}

// A configuration; the same bytes as an override, too.
void run_config(std::span<const std::byte> bytes) {
  const std::string text(text_of(bytes));
  try {
    load_config("", std::span(&text, 1));
  } catch (const InputError&) {
  }
  const Config config = parse_config(text, "input.toml");
  require(parse_config(to_toml(config), "printed") == config, "printing changed a value");
}

std::vector<std::string> config_seeds() {
  return {
      "task = \"ctc\"\ndata = \"out\"\n[training]\nepochs = 3 # \xc3\xa4\nseed = 4\n[augment]\n"
      "speed = [0.9, 1.1]\n[optimizer]\ntype = '''adam'''\n",
      "[[model.layer]]\ntype = 'lstm'\nhidden = 8\n[[model.layer]]\ntype = \"relu\"\n",
      "[data]\nalphabet = \"\xc3\xa4\"\n",
      // A nesting that is allowed, from which more can grow.
      "model.layer = [{ type = 'lstm', hidden = 8 }, { type = 'relu' }]\ntraining.epochs = 2\n"};
}

void run_vgsl(std::span<const std::byte> bytes) {
  const VgslModel model = parse_vgsl(text_of(bytes), "input.toml:1: model.vgsl");
  require(model.height > 0 && !model.layers.empty(), "a model without layers was accepted");
  Config config;
  config.model.input_height = model.height;
  config.model.layer = model.layers;
  require(parse_config(to_toml(config), "printed") == config, "a layer is out of its bounds");
}

std::vector<std::string> vgsl_seeds() {
  return {"[1,48,0,1 Cr3,13,32 Do0.1,2 Mp2,2 S1(1x0)1,3 Lbx200 Do O1c99]",
          "[1,9,0,1 Cl{a}3,3,4,3,2,2,5 Mp{b}3,2,3,2 Lfx{c}7]", "[0,1,0,1 Cs1,7,5 Ct1,7,5 Do.25]"};
}

// The seal is computed anew, so that the mutations get past it.
void run_checkpoint(std::span<const std::byte> bytes) {
  const std::string body(text_of(bytes));
  const std::string sealed = body + "  \"manifest_crc32c\": \"" + hex32(crc32c(body)) + "\"\n}\n";
  const CheckpointManifest m = parse_checkpoint_manifest(sealed, "manifest.json");
  for (const CheckpointFile& f : m.files)
    require(valid_checkpoint_file(f.name), "a file name that is not plain");
}

std::vector<std::string> checkpoint_seeds() {
  const std::string text = format_checkpoint_manifest(
      {{7, 1234, 0.5}, {{"model.safetensors", 4096, 0xabcdef01}, {"state.json", 11, 0}}});
  return {text.substr(0, text.rfind("  \"manifest_crc32c"))};
}

// The index of a checkpoint that stages have written.
void run_stages(std::span<const std::byte> bytes) {
  const StageIndex index = StageIndex::from_json(text_of(bytes), "index.json");
  const std::string text = index.to_json();
  require(StageIndex::from_json(text, "again").to_json() == text, "writing an index changed it");
  for (const StageIndex::Stage& stage : index.optimizer) {
    require(!stage.files.empty(), "a stage without files");
    for (const auto& [name, offset] : stage.offsets) {
      require(offset >= 0 && offset < stage.elements, "an offset outside its array");
      require(index.tensors.contains(name), "a state without weights");
    }
  }
}

std::vector<std::string> stages_seeds() {
  StageIndex index;
  index.model = {{"format", "rondo-model-1"}};
  index.tensors = {{"a", "model-stage-0-of-2.safetensors"},
                   {"b", "model-stage-1-of-2.safetensors"}};
  index.optimizer = {{{"optimizer-stage-0-of-2.safetensors"}, 64, {{"a", 0}}},
                     {{"part-0", "part-1"}, 128, {{"b", 64}}}};
  return {index.to_json()};
}

// What a client sends after it has proved the token: frames, each a request.
void run_store(std::span<const std::byte> bytes) {
  std::string buffer(text_of(bytes));
  StoreTable table(4096);
  while (const auto frame = take_frame(buffer)) {
    const StoreRequest request = parse_store_request(*frame);
    require(encode(request) == *frame, "writing a request again changed it");
    const StoreReply reply = table.apply(request, true).value();
    const StoreReply again = parse_store_reply(encode(reply));
    require(again.status == reply.status && again.value == reply.value, "a reply was changed");
  }
  if (!buffer.empty()) parse_store_reply(buffer);
}

std::vector<std::string> store_seeds() {
  const auto request = [](StoreOp op, std::vector<std::string> keys, std::string value) {
    return framed(encode(StoreRequest{op, 100, 7, std::move(keys), std::move(value)}));
  };
  return {
      request(StoreOp::set, {"rank/0"}, "127.0.0.1:4711") + request(StoreOp::get, {"rank/0"}, ""),
      request(StoreOp::add, {"n"}, "") + request(StoreOp::wait, {"n", "m"}, "") +
          encode(StoreReply{StoreStatus::absent, 3, "m"})};
}

// What the other end of a Gloo connection sends.
void run_letter(std::span<const std::byte> bytes) {
  using namespace gloo_transport;
  const LetterView letter = parse_letter(bytes);
  require(letter.body.size() <= max_body_bytes, "a body over the limit was accepted");
  std::string again(reinterpret_cast<const char*>(&letter.head), sizeof(LetterHead));
  again += text_of(letter.body);
  const LetterView same = parse_letter(std::as_bytes(std::span(again)));
  require(same.head.number == letter.head.number && text_of(same.body) == text_of(letter.body),
          "writing a letter again changed it");
}

std::vector<std::string> letter_seeds() {
  using namespace gloo_transport;
  const auto letter = [](LetterKind kind, const std::string& body) {
    const LetterHead head{.kind = kind,
                          .body_bytes = static_cast<uint32_t>(body.size()),
                          .number = 7,
                          .tag = collective_tag(1, 3),
                          .size = 4096};
    return std::string(reinterpret_cast<const char*>(&head), sizeof(head)) + body;
  };
  return {letter(LetterKind::hello, std::string(32, 'x')), letter(LetterKind::announce, ""),
          letter(LetterKind::body, std::string(max_body_bytes, 'y')),
          letter(LetterKind::abort, "the disk is full"), letter(LetterKind::bye_seen, "")};
}

// What the other end of a channel sends, whole and cut into small pieces; with two recvs and a send
// under way, so that data and announcements meet something.
void run_frames(std::span<const std::byte> bytes) {
  using namespace channels;
  for (const size_t at_once : {size_t{13}, bytes.size() + 1}) {
    const auto in = std::make_shared<std::string>(text_of(bytes));
    const auto out = std::make_shared<std::string>();
    const auto channel =
        std::make_shared<StringChannel>(std::make_unique<StringPipe>(in, out, at_once), 0, 1);
    channel->hears = true;
    std::vector<std::byte> memory(3000);
    const Deadline far = within(std::chrono::hours(1));
    std::vector<Work> works;
    works.push_back(channel->post(Direction::recv, 1, memory.data(), 1000, far));
    works.push_back(channel->post(Direction::recv, 2, memory.data() + 1000, 0, far));
    works.push_back(channel->post(Direction::send, 3, memory.data() + 1000, 2000, far));
    while (channel->has_work()) channel->progress();
    channel->end("the input is over");
    for (Work& w : works) require(w.poll(), "an operation was left behind");
    for (size_t i = 1000; i < 3000; ++i) {
      require(memory[i] == std::byte{}, "memory was written that nobody may write");
    }
    if (!channel->lost.empty()) fail_input(channel->lost);
  }
}

std::vector<std::string> frame_seeds() {
  using namespace channels;
  const auto frame = [](FrameKind kind, uint64_t number, Tag tag, uint64_t size) {
    const Frame f{kind, number, tag, size};
    return std::string(reinterpret_cast<const char*>(&f), sizeof f);
  };
  return {frame(FrameKind::data, 0, 0, 1000) + std::string(1000, 'x') +
              frame(FrameKind::data, 1, 0, 0) + frame(FrameKind::announce, 0, 3, 2000),
          frame(FrameKind::mismatch, 0, 0, 7) + frame(FrameKind::announce, 4, 5, 6) +
              frame(FrameKind::revoke, 4, 5, 0) + frame(FrameKind::revoked, 1, 0, 0) +
              frame(FrameKind::announce, 0, 3, 2001),
          frame(FrameKind::abort, 1, 0, 4) + "fire", frame(FrameKind::bye, 0, 0, 0)};
}

// What a stranger says at the port at which a rank waits for others.
void run_answer(std::span<const std::byte> bytes) {
  using namespace tcp_transport;
  const auto answer = parse_answer(text_of(bytes), 4);
  if (!answer) return;
  require(answer->from < 4 && answer->to < 4 && answer->challenge.size() == nonce_bytes,
          "an impossible answer was accepted");
  const Job job{"secret", "attempt-1", 4};
  // The seed itself, and nothing else: the mutations know no token.
  const std::string challenge(nonce_bytes, 'c');
  const std::string known =
      encode_answer(job, answer->from, answer->to, challenge, answer->challenge);
  require(proves(job, *answer, challenge) == (known == text_of(bytes)), "a wrong proof");
}

std::vector<std::string> answer_seeds() {
  using namespace tcp_transport;
  const std::string challenge(nonce_bytes, 'c'), own(nonce_bytes, 'o');
  return {encode_answer({"secret", "attempt-1", 4}, 3, 1, challenge, own),
          encode_answer({"guess", "attempt-1", 4}, 3, 0, challenge, own)};
}

// What was measured of a machine, or of its links alone.
void run_machine(std::span<const std::byte> bytes) {
  const auto link = plan::parse_link(text_of(bytes), "m.json");
  require(link.bandwidth > 0 && link.latency >= 0 && std::isfinite(link.latency + link.bandwidth),
          "an impossible link");
  const std::string written = plan::to_json(link);
  require(plan::to_json(plan::parse_link(written, "again")) == written, "writing changed a link");
  if (text_of(bytes).find("\"device\"") == std::string_view::npos) return;
  const std::string whole = plan::to_json(plan::parse_machine(text_of(bytes), "m.json"));
  require(plan::to_json(plan::parse_machine(whole, "again")) == whole, "writing changed a machine");
}

std::vector<std::string> machine_seeds() {
  plan::MachineFile m;
  m.device.name = "cpu";
  m.device.memory_bytes = 1e9;
  m.device.cores = 2;
  m.device.costs["lstm/f32"] = {.call = 1e-6, .flop = 1e-11};
  m.link = {"threads", true, 1e-6, 1e9, 2e-6, 5e8};
  return {plan::to_json(m), plan::to_json(m.link),
          R"({"link": {"name": "by hand", "latency": 0, "bandwidth": 125e6}})"};
}

}  // namespace

namespace {

void run_csv(std::span<const std::byte> bytes) {
  const std::string text(text_of(bytes));
  for (const bool quotes : {true, false}) {
    for (const corpus::CsvRow& row : corpus::parse_csv(text, ',', quotes, "x.csv")) {
      require(!row.fields.empty() && row.line > 0, "a row without fields or line");
    }
  }
}

std::vector<std::string> csv_seeds() {
  return {"path,sentence\na.wav,\"one, \"\"two\"\"\nthree\"\n",
          "\xef\xbb\xbf"
          "a,b\r\n,\r\n\"\",x\r\n"};
}

void run_kaldi(std::span<const std::byte> bytes) {
  const data::KaldiHeader header = data::parse_kaldi_header(bytes, "x.ark");
  const std::vector<float> values = data::kaldi_floats(bytes, header, "x.ark");
  require(static_cast<int64_t>(values.size()) == int64_t{header.rows} * header.columns,
          "the wrong number of elements");
}

std::vector<std::string> kaldi_seeds() {
  const std::string zero(1, '\0'), magic = zero + "B", three = "\3" + zero + zero + zero,
                                   two = "\2" + zero + zero + zero, one("\0\0\x80\x3f", 4);
  return {magic + "FM \4" + two + "\4" + three + std::string(24, 'x'),
          magic + "DM \4" + two + "\4" + three + std::string(48, 'x'),
          magic + "CM " + one + one + two + three + std::string(24 + 6, 'x'),
          magic + "CM2 " + one + one + two + three + std::string(12, 'x'),
          magic + "CM3 " + one + one + two + three + std::string(6, 'x')};
}

void run_tar(std::span<const std::byte> bytes) {
  const data::ReadAt read_at = [&](uint64_t first, std::span<std::byte> to) {
    const size_t begin = std::min<uint64_t>(first, bytes.size());
    const size_t n = std::min(to.size(), bytes.size() - begin);
    std::copy_n(bytes.begin() + static_cast<ptrdiff_t>(begin), n, to.begin());
    return n;
  };
  for (const corpus::TarMember& m : corpus::tar_members(read_at, bytes.size(), "x.tar")) {
    require(m.first <= bytes.size() && m.size <= bytes.size() - m.first, "a file beyond the end");
  }
}

// A header of a file of `type` with its content.
std::string tar_file(const std::string& name, char type, const std::string& content) {
  std::string block(512, '\0');
  char size[12];
  std::snprintf(size, sizeof size, "%011zo", content.size());
  block.replace(0, name.size(), name);
  block.replace(124, 11, size);
  block.replace(148, 8, "        ");
  block[156] = type;
  block.replace(257, 8, std::string("ustar\0", 6) + "00");
  unsigned sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  char checksum[8];
  std::snprintf(checksum, sizeof checksum, "%06o", sum);
  block.replace(148, 7, checksum, 7);
  block += content;
  return block + std::string((512 - content.size() % 512) % 512, '\0');
}

std::vector<std::string> tar_seeds() {
  const std::string end(1024, '\0');
  return {tar_file("a.wav", '0', "sound") + tar_file("a.txt", '0', "text") + end,
          tar_file("@LongLink", 'L', "long/name.wav") + tar_file("x", '0', "") + end,
          tar_file("pax", 'x', "19 path=of/pax.wav\n10 size=1\n") + tar_file("x", '0', "y") + end,
          tar_file("dir", '5', "") + tar_file("g", 'g', "whatever")};
}

// Every word after every state that begins or follows: all must be a logarithm of something.
void require_scores(const LanguageModel& model) {
  LanguageModel::State state = model.begin_sentence();
  for (LanguageModel::Word w = 0; w < std::min<LanguageModel::Word>(model.words(), 50); ++w) {
    for (const LanguageModel::State from : {state, model.empty_context()}) {
      require(!std::isnan(model.score(from, w, state)), "a score that is no number");
      require(state < model.states(), "a state that does not exist");
    }
    require(model.word(model.text(w)) < model.words(), "a word that does not exist");
  }
}

void run_arpa(std::span<const std::byte> bytes) {
  require_scores(LanguageModel::parse(text_of(bytes), "m.arpa"));
}

std::vector<std::string> arpa_seeds() {
  return {
      "\\data\\\nngram 1=4\nngram 2=2\nngram 3=1\n\n\\1-grams:\n-99\t<s>\t-0.5\n-1\t</s>\n"
      "-0.5\ta\t-0.25\n-0.75\tb\n\n\\2-grams:\n-0.125\t<s> a\t-1\n-0.0625\ta b\n\n"
      "\\3-grams:\n-2\t<s> a b\n\n\\end\\\n",
      "\\data\\\r\nngram 1 = 3\r\n\\1-grams:\r\n-1 <unk>\r\n-1e-1 <s> 0\r\n-1 </s>\r\n\\end\\"};
}

// The model's checksum is made right again, so that what it covers is looked at.
void run_language_model(std::span<const std::byte> bytes) {
  std::string image(text_of(bytes));
  if (image.size() >= sizeof(lm::ImageHeader) + 4) {
    const uint64_t size = image.size();
    std::memcpy(image.data() + offsetof(lm::ImageHeader, bytes), &size, sizeof size);
    const uint32_t crc = crc32c(std::string_view(image).substr(0, image.size() - 4));
    std::memcpy(image.data() + image.size() - 4, &crc, 4);
  }
  require_scores(LanguageModel::parse(image, "m.lm"));
}

std::vector<std::string> language_model_seeds() {
  std::vector<std::string> images;
  for (const int32_t bits : {0, 4}) {
    lm::Vocabulary vocabulary;
    lm::NgramTable table(vocabulary);
    const std::string arpa = arpa_seeds().front();
    LineReader lines(arpa, "seed");
    lm::read_arpa(lines, vocabulary, table);
    table.end();
    images.emplace_back();
    lm::write_image(table, vocabulary, bits, [&](std::span<const std::byte> piece) {
      images.back().append(text_of(piece));
    });
  }
  return images;
}

void run_vocabulary(std::span<const std::byte> bytes) {
  const Vocabulary v = Vocabulary::parse(text_of(bytes), {}, "", "tokens");
  std::vector<int32_t> labels;
  for (int32_t label = 0; label < v.classes(); ++label) {
    labels.push_back(label);
    if (v.token(label).is_written) require(v.find(v.token(label).name) == label, "another class");
  }
  v.spell(v.text(labels));
}

std::vector<std::string> vocabulary_seeds() {
  return {"<blank>\na\nb\n \n", "<blk> 0\n\xe2\x96\x81the 2\n\xe2\x96\x81 1\n",
          "[\"\", \"|\", \"a\"]", "{\"a\": 1, \"[PAD]\": 0, \"<unk>\": 2}"};
}

void run_word_lists(std::span<const std::byte> bytes) {
  static const Vocabulary letters({"<blank>", "|", "a", "b", "\xc3\xa9"}, {}, "", "tokens");
  const std::string_view text = text_of(bytes);
  bool read = false;
  std::string why;
  try {
    for (const Spelling& s : parse_lexicon(text, letters, "words")) {
      require(!s.word.empty() && !s.labels.empty(), "a word of nothing");
      for (const int32_t label : s.labels)
        require(label > letters.separator() && label < letters.classes(), "a label of no letter");
    }
    read = true;
  } catch (const InputError& e) {
    why = e.what();
  }
  try {
    for (const HotWord& h : parse_hot_words(text, 1, "words"))
      require(!h.phrase.empty() && std::isfinite(h.weight), "a hot word of nothing");
    read = true;
  } catch (const InputError& e) {
    why = e.what();
  }
  if (!read) throw InputError(why);
}

std::vector<std::string> word_list_seeds() {
  return {"ab\ta b\nab a a b\n\nb\r\n", "a b\t-2.5\nb\t3\n", "\xc3\xa9\t\xc3\xa9\n"};
}

// Any text is aligned or refused, and what is found is written in every format.
void run_given_text(std::span<const std::byte> bytes) {
  static const Vocabulary vocabulary({"<blank>", " ", "a", "b", "\xc3\xa9"}, {}, "", "tokens");
  SpellingOptions options;
  options.rules.lowercase = true;
  options.gap_word = "*";
  options.open_ends = bytes.size() % 2 == 0;
  options.unspellable = static_cast<UnspellableText>(bytes.size() % 3);
  const SpelledText text = TextSpeller(vocabulary, options).spell(text_of(bytes), "text");
  constexpr int32_t frames = 64;
  std::vector<float> logits;
  for (int32_t i = 0; i < frames * vocabulary.classes(); ++i)
    logits.push_back(static_cast<float>(i * 7 % 11));
  const AlignedText found = align_text(logits, vocabulary, text, {}, 0.1);
  require(found.transcript.words.size() == text.words.size(), "another number of words");
  size_t words = 0;
  for (const Utterance& u : split_into_utterances(found, 6.4, {})) {
    require(u.begin <= u.end, "an utterance ends before it begins");
    words += static_cast<size_t>(u.end_word - u.first_word);
  }
  require(words == text.words.size(), "words are in no utterance, or in two");
  to_ctm(found.transcript, text_of(bytes));
  to_text_grid(found.transcript, 6.4);
  to_srt(subtitles_of(found.transcript, {}));
  to_vtt(subtitles_of(found.transcript, {}));
}

std::vector<std::string> given_text_seeds() {
  return {"a b ab", "A * \xc3\x89 1a2\nb. - ab a", "ba * ab a?"};
}

}  // namespace

const std::vector<FuzzTarget>& fuzz_targets() {
  static const std::vector<FuzzTarget> targets = {
      {"manifest", run_manifest, manifest_seeds},
      {"npy", run_npy, npy_seeds},
      {"safetensors", run_safetensors, safetensors_seeds},
      {"audio", run_audio, audio_seeds},
      {"image", run_image, image_seeds},
      {"page", run_page, page_seeds},
      {"text", run_text, text_seeds},
      {"config", run_config, config_seeds},
      {"vgsl", run_vgsl, vgsl_seeds},
      {"checkpoint", run_checkpoint, checkpoint_seeds},
      {"stages", run_stages, stages_seeds},
      {"store", run_store, store_seeds},
      {"letter", run_letter, letter_seeds},
      {"frames", run_frames, frame_seeds},
      {"answer", run_answer, answer_seeds},
      {"machine", run_machine, machine_seeds},
      {"csv", run_csv, csv_seeds},
      {"kaldi", run_kaldi, kaldi_seeds},
      {"tar", run_tar, tar_seeds},
      {"arpa", run_arpa, arpa_seeds},
      {"vocabulary", run_vocabulary, vocabulary_seeds},
      {"given_text", run_given_text, given_text_seeds},
      {"word_lists", run_word_lists, word_list_seeds},
      {"language_model", run_language_model, language_model_seeds},
  };
  return targets;
}
