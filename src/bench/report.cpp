#include "bench/report.h"

#include <algorithm>

#include "base/json.h"
#include "base/layout.h"
#include "base/text.h"
#include "engine/fallbacks.h"

namespace doppler::bench {
namespace {

Json to_json(const OpTable& table, double limit) {
  Json rows = Json::array();
  for (const OpRow& row : table.rows) {
    const double bandwidth = row.seconds > 0 ? static_cast<double>(row.bytes) / row.seconds : 0;
    rows.push_back({{"op", row.name},
                    {"calls", row.calls},
                    {"seconds", row.seconds},
                    {"share", row.seconds / table.seconds},
                    {"bytes", row.bytes},
                    {"bandwidth", bandwidth},
                    {"share_of_limit", limit > 0 ? bandwidth / limit : 0}});
  }
  return {{"phase", table.phase}, {"seconds", table.seconds}, {"rows", std::move(rows)}};
}

Json to_json(const DeviceCounters& c) {
  return {{"submits", c.submits},
          {"dispatches", c.dispatches},
          {"read_backs", c.read_backs},
          {"read_back_bytes", c.read_back_bytes},
          {"written_bytes", c.written_bytes}};
}

// "a token: 0.125 submits, 130.0 dispatches, ...".
std::string counters_text(const DecodeResult& d) {
  const auto per_token = [&](std::uint64_t count) {
    return static_cast<double>(count) / static_cast<double>(d.tokens);
  };
  const DeviceCounters& c = *d.counters;
  return fmt::format(
      "a token: {:.3f} submits, {:.1f} dispatches, {:.3f} read-backs ({:.1f} B), {:.1f} B written; {}",
      per_token(c.submits), per_token(c.dispatches), per_token(c.read_backs), per_token(c.read_back_bytes),
      per_token(c.written_bytes),
      d.submit_tokens > 0 ? fmt::format("{} tokens a submission", d.submit_tokens)
                          : "every token fed by the host");
}

std::string interval(const Summary& s, double scale, int digits) {
  return fmt::format("{:.{}f}..{:.{}f}", s.low * scale, digits, s.high * scale, digits);
}

std::string ops_text(const OpTable& ops, double limit, std::size_t width) {
  using enum Column::Kind;
  Table table({{ops.phase + ", by op"},
               {"calls", kNumber},
               {"ms", kNumber},
               {"time", kNumber},
               {"MB", kNumber},
               {"GB/s", kNumber},
               {"of limit", kNumber}});
  for (const OpRow& row : ops.rows) {
    const double bandwidth = row.seconds > 0 ? static_cast<double>(row.bytes) / row.seconds : 0;
    const bool reads = row.bytes > 0;
    table.add({row.name, std::to_string(row.calls), fmt::format("{:.3f}", row.seconds * 1e3),
               fmt::format("{:.1f}%", 100 * row.seconds / ops.seconds),
               reads ? fmt::format("{:.1f}", static_cast<double>(row.bytes) / 1e6) : "",
               reads ? fmt::format("{:.2f}", bandwidth / 1e9) : "",
               reads ? fmt::format("{:.1f}%", 100 * bandwidth / limit) : ""});
  }
  return "\n" + table.text(width);
}

}  // namespace

Json to_json(const Summary& s) {
  return {{"count", s.count}, {"median", s.median}, {"low", s.low},  {"high", s.high},
          {"min", s.min},     {"max", s.max},       {"runs", s.runs}};
}

Json memory_json(std::uint64_t peak_bytes, std::uint64_t file_bytes, const MemoryUse& memory) {
  return {{"peak_bytes", peak_bytes},
          {"file_bytes", file_bytes},
          {"cache_bytes", memory.cache},
          {"activation_bytes", memory.activations},
          {"weight_bytes", memory.weights}};
}

Json to_json(const DeviceInfo& device) {
  return {{"name", device.name}, {"kind", device.kind}, {"api", device.api}, {"driver", device.driver}};
}

Json to_json(const BenchResult& r) {
  Json decode = Json::array(), ops = Json::array();
  for (const DecodeResult& line : r.decode) {
    decode.push_back({{"depth", line.depth},
                      {"sequences", line.sequences},
                      {"drawn", line.drawn},
                      {"tokens_per_second", to_json(line.tokens_per_second)},
                      {"token_seconds",
                       {{"p50", line.token_seconds.p50},
                        {"p99", line.token_seconds.p99},
                        {"each", line.each_token_seconds}}},
                      {"step_bytes", line.step_bytes},
                      {"bandwidth", line.bandwidth},
                      {"share_of_limit", line.share},
                      {"tokens", line.tokens},
                      {"submit_tokens", line.submit_tokens},
                      {"counters", line.counters ? to_json(*line.counters) : Json(nullptr)}});
  }
  for (const OpTable& table : r.ops) ops.push_back(to_json(table, r.read_bandwidth.median));
  return {
      {"schema", kReportSchema},
      {"suite", "inference"},
      {"model", r.model},
      {"date", r.date},
      {"cpu", r.cpu},
      {"backend", r.backend},
      {"backend_choice", r.choice},
      {"fallbacks", fallbacks_json(r.fallbacks)},
      {"device", r.device ? to_json(*r.device) : Json(nullptr)},
      {"threads", r.threads},
      {"kv_type", r.kv_type},
      {"load_seconds", to_json(r.load_seconds)},
      {"cold_token_seconds", r.cold_token_seconds},
      {"time_to_first_token", {{"prompt_tokens", r.prefill}, {"seconds", to_json(r.first_token_seconds)}}},
      {"prefill", {{"tokens", r.prefill}, {"tokens_per_second", to_json(r.prefill_tokens_per_second)}}},
      {"decode", std::move(decode)},
      {"read_bandwidth", to_json(r.read_bandwidth)},
      {"quality", to_json(r.quality)},
      {"memory", memory_json(r.peak_bytes, r.file_bytes, r.memory)},
      {"ops", std::move(ops)}};
}

std::string to_text(const BenchResult& r, std::size_t width) {
  using enum Column::Kind;
  const std::string yardstick = r.device ? "the device's read bandwidth" : "the plain loop";
  std::string about = fmt::format("{}\n{}, backend {}, {} threads, KV cache {}, {}\n", r.model, r.cpu,
                                  r.backend, r.threads, r.kv_type, r.date);
  if (r.device) about += fmt::format("{} adapter {}\n", r.device->kind, r.device->describe());
  Table table(
      {{""}, {"median", kNumber}, {fmt::format("95% interval of {}", r.first_token_seconds.count), kText}});
  const auto line = [&](const std::string& name, const Summary& s, double scale, int digits) {
    table.add({name, fmt::format("{:.{}f}", s.median * scale, digits), interval(s, scale, digits)});
  };
  line("load, s", r.load_seconds, 1, 3);
  table.add({"load and one token, first time, s", fmt::format("{:.3f}", r.cold_token_seconds)});
  line(fmt::format("first token of {}, s", r.prefill), r.first_token_seconds, 1, 3);
  line(fmt::format("prefill {}, tok/s", r.prefill), r.prefill_tokens_per_second, 1, 1);
  for (const DecodeResult& d : r.decode) {
    line(decode_name(d.depth, d.sequences, d.drawn) + ", tok/s", d.tokens_per_second, 1, 2);
    table.add(
        {"  reads, GB/s", fmt::format("{:.2f}", d.bandwidth / 1e9),
         fmt::format("a step reads {}; {:.1f}% of {}", human_bytes(d.step_bytes), 100 * d.share, yardstick)});
    table.add({"  a token, ms", fmt::format("{:.3f}", d.token_seconds.p50 * 1e3),
               fmt::format("99 of 100 within {:.3f}", d.token_seconds.p99 * 1e3)});
    if (d.counters && d.tokens > 0) table.add({"", "", counters_text(d)});
  }
  line(r.device ? "device reads its memory, GB/s" : "plain read loop, GB/s", r.read_bandwidth, 1e-9, 2);
  const double file_bytes = static_cast<double>(std::max<std::uint64_t>(r.file_bytes, 1));
  table.add(
      {"peak memory, GB", fmt::format("{:.3f}", static_cast<double>(r.peak_bytes) / 1e9),
       fmt::format("{:.3f} x the file of {:.3f} GB; the backend's: weights {:.3f} GB, cache {:.3f}, "
                   "activations {:.3f}",
                   static_cast<double>(r.peak_bytes) / file_bytes, static_cast<double>(r.file_bytes) / 1e9,
                   static_cast<double>(r.memory.weights) / 1e9, static_cast<double>(r.memory.cache) / 1e9,
                   static_cast<double>(r.memory.activations) / 1e9)});
  std::string out = wrap(about, width, 4) + table.text(width) + wrap(to_text(r.quality), width, 4);
  for (const OpTable& ops : r.ops) out += ops_text(ops, r.read_bandwidth.median, width);
  return out;
}

}  // namespace doppler::bench
