// Texts, configurations, and what is known of a language.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/config/config.h"
#include "engine/config/vgsl.h"
#include "engine/decode/lexicon.h"
#include "engine/decode/transcript/text_alignment.h"
#include "engine/decode/transcript/transcript_formats.h"
#include "engine/decode/transcript/utterances.h"
#include "engine/decode/vocabulary.h"
#include "engine/io/crc32c.h"
#include "engine/lm/language_model.h"
#include "engine/lm/model_image.h"
#include "engine/text/alphabet.h"
#include "engine/text/error_rate.h"
#include "engine/text/text_rules.h"
#include "engine/text/unicode.h"
#include "kernels/base/error.h"
#include "tests/fuzz/targets.h"
#include "tests/lm/kenlm_golden.h"

using namespace rondo;

namespace {

void run_text(std::span<const std::byte> bytes) {
  const std::string once = normalize_transcript(text_of(bytes));
  require(normalize_transcript(once) == once, "normalisation is not stable");
  const std::vector<std::string> texts = {once};
  const Alphabet a = Alphabet::from_transcripts(texts);
  const EncodedText e = a.encode(text_of(bytes));
  require(e.unknown.empty(), "an alphabet does not know its own text");
  require(a.decode(e.labels) == once, "decoding does not give the text back");
  require(Alphabet(a.symbols()).encode(once).labels == e.labels, "stored symbols differ");
  // The same with a label for each word, and for each mark.
  TextRules rules;
  for (const TextUnit unit : {TextUnit::character, TextUnit::word}) {
    rules.marks = Marks::token;
    rules.unit = unit;
    const std::vector<std::string> ruled = {apply_rules(rules, once)};
    require(apply_rules(rules, ruled[0]) == ruled[0], "marks are not stable");
    const Alphabet b = Alphabet::from_transcripts(ruled, rules);
    require(b.encode(ruled[0]).unknown.empty(), "marks or words are not known");
    if (!b.is_of_numbers())
      require(b.decode(b.encode(ruled[0]).labels) == ruled[0], "marks or words do not come back");
    const Alphabet turned = b.reading_leftwards();
    require(turned.encode(ruled[0]).unknown.empty(), "marks are turned round");
  }
  rules = {.lowercase = true, .strip_punctuation = true, .drop_invisible = true};
  apply_rules(rules, once);
  if (bytes.size() > 10000) return;  // errors are counted in quadratic time
  ErrorRate rate;
  rate.add(text_of(bytes), once);
  require(rate.cer() == 0, "a text differs from itself");
}

std::vector<std::string> text_seeds() {
  return {"the quick  brown fox\t", "<unk> a [ no ise ] {x} (( )) ((b)) 3.14, -5% 1...2",
          "e\xcc\x81t\xc3\xa9 \xe4\xb8\xad\xe6\x96\x87 \xf0\x9f\x98\x80",
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
      "-0.5\ta\t-0.25\n-inf\tb\n\n\\2-grams:\n-0.125\t<s> a\t-1\n-0.0625\ta b\n\n"
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

void run_kenlm(std::span<const std::byte> bytes) {
  require_scores(LanguageModel::parse(text_of(bytes), "m.binary"));
}

std::vector<std::string> kenlm_seeds() {
  std::vector<std::string> binaries;
  for (const KenlmGolden& golden : kenlm_goldens)
    for (const KenlmBinary& b : golden.binaries) binaries.push_back(unpacked(b));
  return binaries;
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
  return {"<blank>\na\nb\n \n",
          "<blk> 0\n\xe2\x96\x81the 2\n\xe2\x96\x81 1\n",
          "[\"\", \"|\", \"a\"]",
          "{\"a\": 1, \"[PAD]\": 0, \"<unk>\": 2}",
          "<unk>\t0\n\xe2\x96\x81t\t-1.5\n<pad>\t-2\n",
          "<pad> 900\nE 51\nT 7\n",
          "[PAD]\nre\n##ad\n<0xE7>\n<0x88>\n",
          "<blk> 0\na 1\n#0 2\n#1 3\n"};
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
  // Of known words any text is a list.
  if (is_utf8(text)) {
    const std::vector<std::string> known = parse_known_words(text, "words");
    for (size_t i = 0; i < known.size(); ++i)
      require(!known[i].empty() && (i == 0 || known[i - 1] < known[i]), "known words twice");
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
  TextAlignmentOptions how;
  how.find_gaps = bytes.size() % 5 == 0;
  const AlignedText found = align_text(logits, vocabulary, text, how, 0.1);
  require(found.transcript.words.size() == text.words.size(), "another number of words");
  size_t words = 0;
  for (const Utterance& u : split_into_utterances(found, 6.4, {})) {
    require(u.begin <= u.end, "an utterance ends before it begins");
    words += static_cast<size_t>(u.end_word - u.first_word);
  }
  require(words == text.words.size(), "words are in no utterance, or in two");
  to_ctm(found.transcript, text_of(bytes));
  to_text_grid(found.transcript, 6.4);
  to_srt(subtitles_of(found.transcript, 6.4, {}));
  to_vtt(subtitles_of(found.transcript, 6.4, {}));
}

// Any file is subtitles or refused; what was read is written and read again.
void run_subtitles(std::span<const std::byte> bytes) {
  std::vector<Subtitle> all;
  for (const std::string& text : texts_of_subtitles(text_of(bytes), "file")) {
    require(!split_words(text).empty(), "a subtitle of nothing");
    all.push_back({0, 1, {text}});
  }
  to_vtt(all);
}

std::vector<std::string> subtitle_seeds() {
  return {
      "1\n00:00:01,000 --> 00:00:02,000\na <i>b</i>\nc\n\n2\n00:00:03,000 --> 00:00:04,000\nd\n",
      "WEBVTT\n\nNOTE x\n\na\n00:01.000 --> 00:02.000 line:0\n{\\an8}x &amp; y\n3\n1 --> 2\nz"};
}

std::vector<std::string> given_text_seeds() {
  return {"a b ab", "A * \xc3\x89 1a2\nb. - ab a", "ba * ab a?"};
}

}  // namespace

std::span<const FuzzTarget> text_targets() {
  static constexpr FuzzTarget targets[] = {
      {"text", run_text, text_seeds},
      {"config", run_config, config_seeds},
      {"vgsl", run_vgsl, vgsl_seeds},
      {"arpa", run_arpa, arpa_seeds},
      {"vocabulary", run_vocabulary, vocabulary_seeds},
      {"given_text", run_given_text, given_text_seeds},
      {"subtitles", run_subtitles, subtitle_seeds},
      {"word_lists", run_word_lists, word_list_seeds},
      {"language_model", run_language_model, language_model_seeds},
      {"kenlm", run_kenlm, kenlm_seeds},
  };
  return targets;
}
