// What ranks tell each other and keep: checkpoints, messages, measured machines.
#include <cmath>

#include "comm/gloo/letter.h"
#include "comm/store/store_protocol.h"
#include "comm/tcp/handshake.h"
#include "engine/io/checkpoint_manifest.h"
#include "engine/io/crc32c.h"
#include "engine/io/safetensors.h"
#include "engine/io/stage_index.h"
#include "engine/parallel/elastic_protocol.h"
#include "engine/plan/machine.h"
#include "engine/trial/trial_table.h"
#include "kernels/base/error.h"
#include "tests/comm/string_pipe.h"
#include "tests/fuzz/targets.h"

using namespace rondo;

namespace {

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
  m.device.rates["linear/f32"] = {.launch = 1e-6, .operation = 1e-11};
  m.link = {"threads", true, 1e-6, 1e9, 2e-6, 5e8};
  return {plan::to_json(m), plan::to_json(m.link),
          R"({"link": {"name": "by hand", "latency": 0, "bandwidth": 125e6}})"};
}

// The cache of what trials of kernels found.
void run_trials(std::span<const std::byte> bytes) {
  const TrialTable table = trial_table_from_json(text_of(bytes), "cache");
  require(trial_table_from_json(to_json(table), "again").rows == table.rows,
          "writing changed a table of trials");
  for (const TrialRow& row : table.rows) {
    require(row.outcome != TrialRow::right || row.us > 0, "a right variant that takes no time");
    require(!line_of(table, row.calls).empty(), "a row without a line");
  }
  for (const KernelChoice& c : choices_of(table, Backend::cuda))
    require(!c.variant.empty(), "a choice of nothing");
}

std::vector<std::string> trials_seeds() {
  const TriedCalls calls{"lstm_forward", "bf16 h512 d2 n32"};
  return {to_json({"a GPU",
                   {{calls, "portable", TrialRow::right, 4.5, ""},
                    {calls, "grid", TrialRow::wrong, 0, "y[4]: 1 of 4 differ"},
                    {calls, "cluster_split", TrialRow::right, 1.25, ""}}})};
}

// What an elastic launcher finds in the store, and what its ranks do there.
void run_elastic(std::span<const std::byte> bytes) {
  const std::string text(text_of(bytes));
  try {
    const elastic::Seat seat = elastic::parse_seat(text);
    require(seat.rank >= 0 && seat.rank < seat.size, "a rank outside its world");
    require(elastic::parse_seat(elastic::encode(seat)).generation == seat.generation,
            "writing a seat again changed it");
  } catch (const InputError&) {
    const elastic::Arrival a = elastic::parse_arrival(text);
    require(std::isfinite(a.patience) && a.progress.step >= -1, "an arrival out of range");
    const elastic::Arrival again = elastic::parse_arrival(elastic::encode(a));
    require(again.progress == a.progress && again.why == a.why,
            "writing an arrival again changed it");
  }
}

std::vector<std::string> elastic_seeds() {
  return {elastic::encode(elastic::Seat{7, 2, 3}),
          elastic::encode(elastic::Arrival{3, {120, 2}, 300, "rank 1 is lost: reset by peer"}),
          elastic::encode(elastic::Arrival{1, {}, 0.5, ""})};
}

}  // namespace

std::span<const FuzzTarget> ranks_targets() {
  static constexpr FuzzTarget targets[] = {
      {"checkpoint", run_checkpoint, checkpoint_seeds},
      {"stages", run_stages, stages_seeds},
      {"store", run_store, store_seeds},
      {"letter", run_letter, letter_seeds},
      {"frames", run_frames, frame_seeds},
      {"answer", run_answer, answer_seeds},
      {"elastic", run_elastic, elastic_seeds},
      {"machine", run_machine, machine_seeds},
      {"trials", run_trials, trials_seeds},
  };
  return targets;
}
