#include "bench/kernels.h"

#include <algorithm>

#include "base/json.h"
#include "base/layout.h"
#include "bench/report.h"

namespace doppler::bench {
namespace {

double bandwidth_of(const KernelTime& row) {
  return row.seconds > 0 ? static_cast<double>(row.bytes) / row.seconds : 0;
}

double share_of(double part, double whole) {
  return whole > 0 ? part / whole : 0;
}

}  // namespace

double KernelTable::seconds() const {
  double sum = 0;
  for (const KernelTime& row : rows) sum += row.seconds;
  return sum;
}

Result<KernelTable> measure_kernels(Loaded& loaded, std::uint64_t depth, std::uint32_t sequences,
                                    std::uint64_t yardstick_bytes) {
  Backend& backend = *loaded.backend;
  DeviceView* device = backend.device();
  if (device == nullptr) {
    return fail(
        ErrorCode::kUnsupported,
        "The {} backend runs no kernels on a device. Choose --backend gpu, or run doppler bench MODEL, "
        "which times every op.",
        backend.name());
  }
  for (std::uint32_t slot = 0; slot < sequences; ++slot)
    DOPPLER_TRY(feed_bench_tokens(backend, slot, depth + 1));
  KernelTable table{.model = loaded.model->files.folder.string(),
                    .backend = std::string(backend.name()),
                    .device = device->info(),
                    .depth = depth,
                    .sequences = sequences,
                    .read_bandwidth = 0,
                    .rows = {}};
  DOPPLER_ASSIGN(table.rows, device->time_kernels(sequences));
  DOPPLER_ASSIGN(table.read_bandwidth, device->measure_read_bandwidth(yardstick_bytes));
  std::ranges::sort(table.rows, [](const KernelTime& a, const KernelTime& b) {
    return a.seconds != b.seconds ? a.seconds > b.seconds : a.what < b.what;
  });
  return table;
}

Json to_json(const KernelTable& table) {
  Json rows = Json::array();
  for (const KernelTime& row : table.rows) {
    rows.push_back({{"op", row.what},
                    {"kernel", row.kernel},
                    {"calls", row.calls},
                    {"seconds", row.seconds},
                    {"share", share_of(row.seconds, table.seconds())},
                    {"bytes", row.bytes},
                    {"bandwidth", bandwidth_of(row)},
                    {"share_of_limit", share_of(bandwidth_of(row), table.read_bandwidth)}});
  }
  return {{"schema", kReportSchema},
          {"suite", "kernels"},
          {"model", table.model},
          {"backend", table.backend},
          {"device", to_json(table.device)},
          {"depth", table.depth},
          {"sequences", table.sequences},
          {"read_bandwidth", table.read_bandwidth},
          {"seconds", table.seconds()},
          {"kernels", std::move(rows)}};
}

std::string to_text(const KernelTable& kernels, std::size_t width) {
  using enum Column::Kind;
  const bool many = kernels.sequences > 1;
  const std::string who = many ? fmt::format("a token of {} sequences", kernels.sequences) : "a token";
  Table table({{fmt::format("{} at {}, by kernel", who, kernels.depth)},
               {"", kText},
               {"calls", kNumber},
               {"us a call", kNumber},
               {"ms", kNumber},
               {"time", kNumber},
               {"MB", kNumber},
               {"GB/s", kNumber},
               {"of limit", kNumber}});
  for (const KernelTime& row : kernels.rows) {
    const double calls = static_cast<double>(std::max<std::uint64_t>(row.calls, 1));
    const bool reads = row.bytes > 0;
    table.add(
        {row.what, row.kernel, std::to_string(row.calls), fmt::format("{:.2f}", row.seconds / calls * 1e6),
         fmt::format("{:.4f}", row.seconds * 1e3),
         fmt::format("{:.1f}%", 100 * share_of(row.seconds, kernels.seconds())),
         reads ? fmt::format("{:.2f}", static_cast<double>(row.bytes) / 1e6) : "",
         reads ? fmt::format("{:.1f}", bandwidth_of(row) / 1e9) : "",
         reads ? fmt::format("{:.1f}%", 100 * share_of(bandwidth_of(row), kernels.read_bandwidth)) : ""});
  }
  const std::string about =
      fmt::format("{}\n{} adapter {}\n", kernels.model, kernels.device.kind, kernels.device.describe());
  const std::string sums = fmt::format(
      "together {:.4f} ms: {:.1f} tok/s if nothing came between\nthe limit: the device reads its memory "
      "at {:.1f} GB/s\n",
      kernels.seconds() * 1e3, share_of(kernels.sequences, kernels.seconds()), kernels.read_bandwidth / 1e9);
  return wrap(about, width, 4) + "\n" + table.text(width) + wrap(sums, width, 4);
}

}  // namespace doppler::bench
