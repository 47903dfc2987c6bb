#include "convert/tensor_writer.h"

#include <algorithm>
#include <cstring>

#include "base/text.h"
#include "system/memory.h"
#include "system/threads.h"

namespace doppler::convert {
namespace {

// Values that are encoded before they are written: 8 MB as floats. The best search of scales takes some tens
// of milliseconds a core for them, so that progress and Ctrl-C are smooth.
constexpr std::uint64_t kPieceValues = std::uint64_t{1} << 21;
// Values a thread takes at a time: long enough to make handing out cheap, short enough that all end together.
constexpr std::uint64_t kGrainValues = std::uint64_t{1} << 14;

// Row 2i + half of a head in llama.cpp's order is row half * pairs + i in Hugging Face's.
std::uint64_t paired_source(std::uint64_t row, std::uint64_t head_rows) {
  const std::uint64_t head = row / head_rows, within = row % head_rows;
  return head * head_rows + within % 2 * (head_rows / 2) + within / 2;
}

struct PartRow {
  const TensorView* part;
  std::uint64_t row;
};

PartRow find_row(const SourceTensor& tensor, std::uint64_t row) {
  const std::uint64_t columns = tensor.columns();
  for (const TensorView& part : tensor.parts) {
    const std::uint64_t rows = element_count(part.shape).value_or(0) / columns;
    if (row < rows) return {&part, row};
    row -= rows;
  }
  return {nullptr, 0};  // shapes of parts add up to the tensor's
}

bool is_paired_vector(const SourceTensor& tensor) {
  return tensor.paired_heads > 0 && tensor.shape.size() < 2;
}

bool is_plain_copy(const SourceTensor& tensor, DType type) {
  return tensor.values.empty() && tensor.added == 0 && tensor.column_order.empty() &&
         tensor.factors.empty() && !is_paired_vector(tensor) &&
         std::ranges::all_of(tensor.parts, [&](const TensorView& part) { return part.dtype == type; });
}

std::uint64_t row_bytes(DType type, std::uint64_t columns) {
  const DTypeInfo& info = dtype_info(type);
  return columns / info.block_values * info.block_bits / 8;
}

// Releases the pages of rows that will not be read again.
void release_rows(const SourceTensor& tensor, std::uint64_t first, std::uint64_t count) {
  const std::uint64_t columns = tensor.columns();
  std::uint64_t begin = 0;
  for (const TensorView& part : tensor.parts) {
    const std::uint64_t rows = element_count(part.shape).value_or(0) / columns;
    const std::uint64_t from = std::clamp(first, begin, begin + rows) - begin;
    const std::uint64_t to = std::clamp(first + count, begin, begin + rows) - begin;
    const std::uint64_t bytes = row_bytes(part.dtype, columns);
    if (part.mapped && from < to) system::release_pages(part.data.subspan(from * bytes, (to - from) * bytes));
    begin += rows;
  }
}

std::uint64_t source_row(const SourceTensor& tensor, std::uint64_t row) {
  if (!tensor.row_order.empty()) return tensor.row_order[row];
  if (tensor.paired_heads == 0 || tensor.shape.size() < 2) return row;
  return paired_source(row, tensor.rows() / tensor.paired_heads);
}

}  // namespace

std::optional<std::uint64_t> stored_bytes(const SourceTensor& tensor, DType type) {
  return byte_size(type, tensor.shape);
}

TensorWriter::TensorWriter(std::size_t threads, EncodeSearch search, OnBytes on_bytes)
    : pool_(threads), search_(search), on_bytes_(std::move(on_bytes)), scratch_(pool_.size()) {}

Result<std::optional<EncodingError>> TensorWriter::write(const SourceTensor& tensor, DType type,
                                                         const Sink& sink) {
  for (Scratch& scratch : scratch_) {
    scratch.values.resize(tensor.columns());
    scratch.decoded.resize(tensor.columns());
    scratch.error = {};
  }
  const std::uint64_t rows = tensor.rows();
  const std::uint64_t piece = std::clamp<std::uint64_t>(kPieceValues / tensor.columns(), 1, rows);
  for (std::uint64_t first = 0; first < rows; first += piece) {
    const std::uint64_t count = std::min(piece, rows - first);
    bytes_.resize(count * row_bytes(type, tensor.columns()));
    DOPPLER_TRY(make_rows(tensor, type, first, count));
    DOPPLER_TRY(sink(bytes_));
    const bool last = first + count == rows;
    if (tensor.paired_heads == 0 && tensor.row_order.empty())
      release_rows(tensor, first, count);
    else if (last)
      release_rows(tensor, 0, rows);
    if (!on_bytes_(bytes_.size(), tensor.name))
      return fail(ErrorCode::kIo, "The conversion was interrupted. Nothing is left of its output.");
  }
  if (is_plain_copy(tensor, type)) return std::nullopt;
  EncodingErrorSum sum;
  for (const Scratch& scratch : scratch_) sum.merge(scratch.error);
  return std::optional(sum.get());
}

Status TensorWriter::make_rows(const SourceTensor& tensor, DType type, std::uint64_t first,
                               std::uint64_t count) {
  system::Mutex mutex;
  std::optional<Error> error;
  const std::uint64_t bytes = row_bytes(type, tensor.columns());
  const std::uint64_t grain = std::max<std::uint64_t>(kGrainValues / tensor.columns(), 1);
  pool_.parallel_chunks(count, grain, [&](std::size_t thread, std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const std::span<std::byte> out = std::span(bytes_).subspan(i * bytes, bytes);
      const Status status = make_row(tensor, type, first + i, out, thread);
      if (status) continue;
      const system::Lock lock(mutex);
      if (!error) error = status.error();
      return;
    }
  });
  if (!error) return {};
  return fail(error->code, "The tensor {} ({}) cannot be stored as {}. {}", printable(tensor.name),
              describe_shape(tensor.shape), dtype_name(type), error->message);
}

Status TensorWriter::make_row(const SourceTensor& tensor, DType type, std::uint64_t row,
                              std::span<std::byte> out, std::size_t thread) {
  const std::uint64_t columns = tensor.columns();
  const PartRow place = find_row(tensor, source_row(tensor, row));
  if (is_plain_copy(tensor, type)) {
    std::memcpy(out.data(), place.part->data.data() + place.row * out.size(), out.size());
    return {};
  }
  Scratch& scratch = scratch_[thread];
  if (tensor.values.empty()) {
    DOPPLER_TRY(decode_f32(*place.part, place.row * columns, scratch.values));
  } else {
    std::ranges::copy(std::span(tensor.values).subspan(row * columns, columns), scratch.values.begin());
  }
  if (!tensor.column_order.empty()) {
    scratch.unordered = scratch.values;
    for (std::uint64_t i = 0; i < columns; ++i) scratch.values[i] = scratch.unordered[tensor.column_order[i]];
  }
  if (!tensor.factors.empty()) {
    for (float& value : scratch.values) value *= tensor.factors[row];
  }
  if (is_paired_vector(tensor)) {
    scratch.unordered = scratch.values;
    for (std::uint64_t i = 0; i < columns; ++i)
      scratch.values[i] = scratch.unordered[paired_source(i, columns / tensor.paired_heads)];
  }
  if (tensor.added != 0) {
    for (float& value : scratch.values) value += tensor.added;
  }
  DOPPLER_TRY(encode(type, scratch.values, out, search_));
  DOPPLER_TRY(decode_f32(TensorView{tensor.name, type, {columns}, out}, 0, scratch.decoded));
  scratch.error.add_row(row, scratch.values, scratch.decoded);
  return {};
}

}  // namespace doppler::convert
