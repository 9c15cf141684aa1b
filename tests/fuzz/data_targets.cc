// Data sets and what they hold: lists, features, recordings, images, pages.
#include <sndfile.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <set>

#include "engine/data/audio/audio.h"
#include "engine/data/audio/sound_decoder.h"
#include "engine/data/audio/sound_format.h"
#include "engine/data/features/feature_file.h"
#include "engine/data/features/kaldi_matrix.h"
#include "engine/data/features/npy.h"
#include "engine/data/image/image.h"
#include "engine/data/image/line_features.h"
#include "engine/data/image/line_shape.h"
#include "engine/data/manifest.h"
#include "engine/io/safetensors.h"
#include "engine/page/page_file.h"
#include "engine/page/page_writers.h"
#include "engine/text/unicode.h"
#include "engine/train/model/kraken_model.h"
#include "engine/train/model/tesseract_model.h"
#include "tests/data/jpeg_of.h"
#include "tests/data/png_of.h"
#include "tests/fuzz/targets.h"
#include "tests/train/tesseract_file.h"
#include "tools/corpus/lists/csv.h"
#include "tools/corpus/lists/layouts.h"
#include "tools/corpus/lists/named_texts.h"
#include "tools/corpus/lists/tar.h"
#include "tools/corpus/read_text.h"

using namespace rondo;

// libsndfile 1.2.0 loses the 5.8 kB of vorbis_info_init when opening a damaged Ogg file fails.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:vorbis_info_init"; }

namespace {

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
{"image_filepath": "p.png", "region": [1, 2, 30, 9], "baseline": [[1, 9], [30, 8]]}
{"image_filepath": "p.png", "region": [5, 6, 70, 8]})",
          "{\"audio_filepath\": \"\\u00e9\\ud83d\\ude00\", \"offset\": 3, \"x\": {\"y\": [null]}}"};
}

void require_whole(const ForeignModel& model) {
  require(static_cast<int64_t>(model.description.alphabet.size()) + 1 ==
              model.description.sizes.outputs,
          "an alphabet of another size");
  for (const ForeignModel::Tensor& t : model.tensors) {
    int64_t n = 1;
    for (int64_t s : t.shape) n *= s;
    require(n == static_cast<int64_t>(t.values.size()), "a tensor of another shape");
  }
}

// A model of kraken's.
void run_kraken(std::span<const std::byte> bytes) {
  const SafetensorsFile file(bytes, "kraken.safetensors");
  if (!is_kraken_model(file)) fail_input("no model of kraken's");
  require_whole(read_kraken_model(file));
}

void run_tesseract(std::span<const std::byte> bytes) {
  try {
    require_whole(read_tesseract_model(bytes, "x.traineddata"));
  } catch (const InputError& e) {
    require(std::string_view(e.what()).starts_with("x.traineddata"), "a message without the file");
    throw;
  }
}

std::vector<std::string> tesseract_seeds() {
  TesseractFile in_bytes;
  in_bytes.in_bytes = true;
  return {TesseractFile().bytes(), in_bytes.bytes()};
}

std::vector<std::string> kraken_seeds() {
  const std::string header =
      R"({"__metadata__":{"kraken_meta":"{\"m\":{\"_tasks\":[\"recognition\"],\"_model\":)"
      R"(\"TorchVGSLModel\",\"vgsl\":\"[1,4,0,1 S1(1x0)1,3 Lfx1 O1c2]\",\"codec\":)"
      R"({\"a\":[1]}}}"},"m.nn.L_1.layer.bias_hh_l0":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},)"
      R"("m.nn.L_1.layer.bias_ih_l0":{"dtype":"F32","shape":[4],"data_offsets":[16,32]},)"
      R"("m.nn.L_1.layer.weight_hh_l0":{"dtype":"F32","shape":[4,1],"data_offsets":[32,48]},)"
      R"("m.nn.L_1.layer.weight_ih_l0":{"dtype":"F32","shape":[4,4],"data_offsets":[48,112]},)"
      R"("m.nn.O_2.lin.bias":{"dtype":"F32","shape":[2],"data_offsets":[112,120]},)"
      R"("m.nn.O_2.lin.weight":{"dtype":"F32","shape":[2,1],"data_offsets":[120,128]}})";
  const uint64_t size = header.size();
  std::string file(reinterpret_cast<const char*>(&size), sizeof size);
  return {file + header + std::string(128, '\0')};
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
                  24),
      safetensors(R"({"features.scale":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"h":)"
                  R"({"dtype":"F16","shape":[2],"data_offsets":[8,12]},"features":{"dtype":"I8",)"
                  R"("shape":[2,3],"data_offsets":[12,18]}})",
                  18)};
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

// What builds without libsndfile decode.
void run_wav(std::span<const std::byte> bytes) {
  data::OpenedSound sound =
      data::open_wav({bytes.size(), [&](uint64_t offset, std::span<std::byte> to) {
                        if (offset >= bytes.size()) return size_t{0};
                        const auto there = bytes.subspan(static_cast<size_t>(offset));
                        const size_t n = std::min(to.size(), there.size());
                        std::copy_n(there.begin(), n, to.begin());
                        return n;
                      }});
  require(sound.problem.empty() == (sound.decoder != nullptr), "neither opened nor refused");
  if (!sound.decoder) fail_input(sound.problem);
  require(sound.info.frames >= 0 && sound.info.channels >= 1, "no recording");
  constexpr int64_t block = 16;
  std::vector<float> samples(static_cast<size_t>(block * sound.info.channels));
  int64_t frames = 0;
  while (const int64_t got = sound.decoder->read(samples.data(), block)) frames += got;
  require(frames == sound.info.frames, "another number of frames than was told");
}

std::vector<std::string> wav_seeds() {
  return {encode(SF_FORMAT_WAV | SF_FORMAT_PCM_U8, 8000, 1),
          encode(SF_FORMAT_WAV | SF_FORMAT_ULAW, 8000, 1),
          encode(SF_FORMAT_WAVEX | SF_FORMAT_PCM_24, 16000, 2),
          encode(SF_FORMAT_RF64 | SF_FORMAT_FLOAT, 16000, 1)};
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
  const int32_t lines = count_lines(image, line);
  require(lines == 0 || (lines >= 5 && lines < image.height), "more lines than rows");
  const Matrix m = line_features(line, image, line.scaled_width(size));
  for (float v : m.data) require(v >= 0 && v <= 1, "ink beyond 0 to 1");
  line.deskew = line.centre = true;
  const GreyImage level = shaped(line, image);
  require(level.width == image.width && level.height > 0 &&
              level.height <= std::max(2 * image.height, 4),
          "a line that is made level has another width, or is much higher");
}

// Of a palette, row by row and in the seven passes of an interlaced file; interlaced colours with
// their opacity.
void add_png_seeds(std::vector<std::string>& seeds) {
  const std::array<png_color, 4> palette = {
      {{0, 0, 0}, {255, 255, 255}, {200, 30, 60}, {9, 90, 200}}};
  const std::array<png_byte, 2> opacity = {0, 128};
  const auto set = [&](png_structp png, png_infop info) {
    png_set_PLTE(png, info, palette.data(), static_cast<int>(palette.size()));
    png_set_tRNS(png, info, opacity.data(), static_cast<int>(opacity.size()), nullptr);
  };
  test::Picture indices{9, 9, 2, 1, {}}, colours{9, 9, 16, 4, {}};
  for (uint32_t i = 0; i < 81; ++i) indices.samples.push_back(i * 7 % 4);
  for (uint32_t i = 0; i < 81 * 4; ++i) colours.samples.push_back(i * 9973 % 65536);
  seeds.push_back(test::png_of(indices, PNG_COLOR_TYPE_PALETTE, false, set));
  seeds.push_back(test::png_of(indices, PNG_COLOR_TYPE_PALETTE, true, set));
  seeds.push_back(test::png_of(colours, PNG_COLOR_TYPE_RGB_ALPHA, true));
}

// In one pass and in several; of four inks, in each way to store them.
void add_jpeg_seeds(std::vector<std::string>& seeds) {
  constexpr int width = 9, height = 9;
  std::vector<uint8_t> samples(width * 4);
  const auto row = [&](uint32_t y) {
    for (size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<uint8_t>(37 * i + 11 * y);
    return samples.data();
  };
  for (const bool progressive : {false, true})
    seeds.push_back(test::jpeg_of(width, height, 3, progressive, row));
  for (const test::Inks inks : {test::Inks::plain, test::Inks::adobe, test::Inks::ycck})
    seeds.push_back(test::jpeg_of(width, height, 4, false, row, inks));
}

std::vector<std::string> image_seeds() {
  GreyImage g(9, 5);
  for (size_t i = 0; i < g.pixels.size(); ++i) g.pixels[i] = static_cast<uint8_t>(i * 37);
  std::vector<std::string> seeds = {
      "P1\n3 2\n101\n0 1 0\n", "P2 #c\n2 1 4 0 4\n", "P3\n2 1\n255\n255 0 0  0 255 0\n",
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
  add_png_seeds(seeds);
  add_jpeg_seeds(seeds);
  return seeds;
}

// A line of a page of this image is no larger than it may be, and all of it has a place.
void require_cut(const GreyImage& image, const ImageRegion& region) {
  const GreyImage part = cut_out(image, region, "x.png");
  // Of a baseline, which is as long as twice round the box at most, and of what lies beyond its
  // ends; to either side it is not further than from corner to corner.
  const bool straight = region.baseline.empty();
  require(part.width > 0 && part.width <= (straight ? 200 : 3 * 600), "a line wider than its page");
  require(part.height > 0 && part.height <= 450, "a line higher than its page");
  const LinePlaces places(region, image.info(), "x.png");
  require(places.end() - places.first() == part.width, "places of other columns");
  for (const double at : {places.first() - 1, places.first() + part.width / 2.0, places.end()}) {
    const ImageBox box = places.between(at, at + 3);
    require(box.left >= 0 && box.top >= 0 && box.width > 0 && box.height > 0 &&
                box.left + box.width <= image.width && box.top + box.height <= image.height,
            "a place beyond the page");
  }
}

void run_page(std::span<const std::byte> bytes) {
  PageFile page = parse_page(text_of(bytes), "x.xml");
  set_regions(page, {200, 100});
  GreyImage image(200, 100);
  for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = static_cast<uint8_t>(i * 37);
  size_t cut = 0;
  std::set<const PageLine*> refused;
  for (const PageLine& line : page.lines) {
    require(!line.id.empty(), "a line without a name");
    require(!line.problem.empty() || line.region.corners.size() >= 3,
            "neither a region nor a problem");
    if (!line.problem.empty() || ++cut > 50) continue;
    try {
      require_cut(image, line.region);
    } catch (const InputError& e) {
      require(std::string_view(e.what()).starts_with("x.png: "), "a message without the image");
      refused.insert(&line);
    }
  }
  if (page.lines.size() > 50) return;
  // What is written of it, as of a page that was read from no file, is a page again.
  page.path.clear();
  std::vector<ReadLine> read;
  size_t readable = 0;
  for (const PageLine& line : page.lines) {
    std::vector<SeenLabel> labels;
    for (const char32_t c :
         refused.contains(&line) ? std::vector<char32_t>() : code_points(line.text)) {
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
<TextRegion id="r"><TextLine id="m"><Baseline points="20,40 100,44 190,39"/></TextLine>
<TextLine id="l"><Coords points="10,20 180,25 180,60 10,55"/><Baseline points="10,50 90,48 180,56"/>
<TextEquiv index="1"><Unicode>b</Unicode></TextEquiv><TextEquiv index="0"><Unicode>a &amp; c</Unicode>
</TextEquiv></TextLine></TextRegion></Page></PcGts>)",
      R"(<alto xmlns="http://www.loc.gov/standards/alto/ns-v4#"><Description><MeasurementUnit>mm10
</MeasurementUnit><sourceImageInformation><fileName>a.tif</fileName></sourceImageInformation>
</Description><Layout><Page WIDTH="2000" HEIGHT="1000"><PrintSpace><TextBlock ID="b">
<TextLine ID="l1" HPOS="10" VPOS="20.5" WIDTH="500" HEIGHT="90"><String CONTENT="ab"/><SP/>
<String CONTENT="c"/><HYP CONTENT="-"/></TextLine><TextLine BASELINE="1 80 300 85"><Shape><Polygon POINTS="1 2 300 2 300 90"/>
</Shape></TextLine></TextBlock></PrintSpace></Page></Layout></alto>)"};
}

void run_csv(std::span<const std::byte> bytes) {
  using corpus::Quoting;
  const std::string text(text_of(bytes));
  for (const char delimiter : {',', '\t'}) static_cast<void>(corpus::quoting_of(text, delimiter));
  std::string wrong;
  for (const Quoting quoting : {Quoting::none, Quoting::doubled, Quoting::backslash}) {
    corpus::CsvReader reader(text, ',', quoting);
    int64_t last = 0;
    for (corpus::CsvRow row; reader.next(row);) {
      require(!row.fields.empty() && row.line > last, "a row without fields or line");
      last = row.line;
      if (quoting == Quoting::doubled && !row.problem.empty()) wrong = row.problem;
    }
  }
  if (!wrong.empty()) fail_input(wrong);
}

std::vector<std::string> csv_seeds() {
  return {"path,sentence\na.wav,\"one, \"\"two\"\"\nthree\"\n",
          "a,\"b\"\"c\" ,\"d\"\r\n \"x\",\"y\",z\r\n", "a,b\r\n,\r\n\"\",x\r\n"};
}

// Text files that are compressed or in UTF-16.
void run_text_file(std::span<const std::byte> bytes) {
  const std::string content(text_of(bytes));
  const std::string text = corpus::decoded_text(content, "x.txt");
  require(!content.empty() || text.empty(), "text of nothing");
  code_points(text);
}

std::vector<std::string> text_file_seeds() {
  const std::string zero(1, '\0');
  // "one\n" by gzip.
  const std::string packed(
      "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff\xcb\xcf\x4b\xe5\x02\x00\x9f\xa8\x17\xf8\x04\x00\x00"
      "\x00",
      24);
  return {
      "\xff\xfe"
      "a" +
          zero + std::string("\x3d\xd8\0\xde", 4) + "\n" + zero,
      "\xfe\xff" + zero + "a" + zero + "b", "\xef\xbb\xbftext\n", packed};
}

void run_nemo(std::span<const std::byte> bytes) {
  const corpus::ListedUtterance u = corpus::nemo_entry(text_of(bytes), "/data");
  require(!u.file.path.empty() && u.offset >= 0, "an entry without a recording");
}

std::vector<std::string> nemo_seeds() {
  return {
      R"({"audio_filepath": "a/b.wav", "duration": 1.5, "text": "one two", "speaker": 7})",
      R"({"audio_filepath": "/b.wav", "offset": 3, "duration": 1, "text": null, "channel": 1})"};
}

void run_sound_format(std::span<const std::byte> bytes) {
  if (sound_format(text_of(bytes)).name.empty()) fail_input("no sound");
}

std::vector<std::string> sound_format_seeds() {
  return {std::string("\xff\xfb\x90\x64", 4), std::string("\xff\xf1\x50\x80", 4),
          "RIFF....WAVEfmt ",
          std::string("\0\0\0\x20"
                      "ftypM4A ",
                      12),
          "NIST_1A\n   1024\n"};
}

// The first byte stands for the ending of the file's name.
void run_named_texts(std::span<const std::byte> bytes) {
  constexpr const char* files[] = {"x.trn", "x", "x.jsonl", "x.ctm"};  // of t, i, j, c
  if (bytes.empty()) fail_input("no byte for the ending");
  const auto ending = std::to_integer<unsigned>(bytes[0]) % 4;
  const std::string content(text_of(bytes.subspan(1)));
  const auto parse = [&](TextRole role) {
    return parse_named_texts(content, files[ending], ending == 1, role);
  };
  const NamedTexts a = parse(TextRole::reference), b = parse(TextRole::hypothesis);
  const TextPairs pairs = pair_texts(a, b);
  require(pairs.hypotheses.size() == a.texts.size() && pairs.left_over.empty(),
          "a file has not the names of itself");
  for (size_t i = 0; i < a.texts.size(); ++i)
    require(pairs.hypotheses[i] == &b.texts[i], "a text belongs to another of itself");
}

std::vector<std::string> named_texts_seeds() {
  return {"tone two (a1)\n;; x\nthree (a2)\n", "ca1 1 0.5 0.2 one 0.9\na1 2 .1 0.2 two\n",
          "ia1 one\n\na2\t two\r\n",
          R"(j{"id": "a", "text": "b", "begin": 1})"
          "\n"
          R"({"audio_filepath": "c", "offset": 2.5, "reference": "d", "hypothesis": "e"})"
          "\n"};
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

}  // namespace

std::span<const FuzzTarget> data_targets() {
  static constexpr FuzzTarget targets[] = {
      {"manifest", run_manifest, manifest_seeds},
      {"kraken", run_kraken, kraken_seeds},
      {"tesseract", run_tesseract, tesseract_seeds},
      {"npy", run_npy, npy_seeds},
      {"safetensors", run_safetensors, safetensors_seeds},
      {"audio", run_audio, audio_seeds},
      {"wav", run_wav, wav_seeds},
      {"image", run_image, image_seeds},
      {"page", run_page, page_seeds},
      {"csv", run_csv, csv_seeds},
      {"text_file", run_text_file, text_file_seeds},
      {"nemo", run_nemo, nemo_seeds},
      {"sound_format", run_sound_format, sound_format_seeds},
      {"kaldi", run_kaldi, kaldi_seeds},
      {"named_texts", run_named_texts, named_texts_seeds},
      {"tar", run_tar, tar_seeds},
  };
  return targets;
}
