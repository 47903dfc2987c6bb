#include "engine/cache_file.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/checked.h"
#include "base/files.h"
#include "base/sha256.h"
#include "base/text.h"
#include "model/fingerprint.h"

namespace doppler {
namespace {

static_assert(std::endian::native == std::endian::little, "the header is written as it lies in memory");

constexpr char kMagic[8] = {'D', 'O', 'P', 'P', 'L', 'E', 'R', 'C'};
constexpr std::uint32_t kVersion = 2;
constexpr std::size_t kHashBytes = 64;  // SHA-256 as hexadecimal digits

struct Header {
  char magic[8] = {};
  std::uint32_t version = 0;
  std::uint32_t type = 0;  // KvType
  std::uint64_t model = 0;
  std::uint64_t tokens = 0, cached = 0;
  std::uint64_t cache_bytes = 0;
  std::uint64_t text_bytes = 0;
};
static_assert(sizeof(Header) == 56 && std::is_trivially_copyable_v<Header>);

using Parts = std::array<std::span<const std::byte>, 4>;  // header, tokens, cache, text

// The hash of the parts' hashes, because the parts lie apart in memory.
std::string hash_of(const Parts& parts) {
  std::string hashes;
  for (const std::span<const std::byte> part : parts) hashes += sha256_hex(part);
  return sha256_hex(std::as_bytes(std::span(hashes)));
}

Error corrupt(const std::filesystem::path& file, std::string_view what) {
  return {ErrorCode::kCorrupt,
          fmt::format("The file {} is no sequence that Doppler has saved: {}. Save it again.",
                      printable(file.string(), 200), what)};
}

// A recurrent state that is not finite never becomes finite again.
Status check_states(const std::filesystem::path& file, std::span<const std::byte> cache, std::uint64_t length,
                    const CacheIdentity& identity) {
  return for_each_run(identity.layers, identity.type, length, {.context = identity.context},
                      [&](const CacheRun& run) -> Status {
                        if (run.part == CachePart::kKeys || run.part == CachePart::kValues) return {};
                        for (std::uint64_t at = 0; at < run.count; at += sizeof(float)) {
                          float value = 0;
                          std::memcpy(&value, &cache[run.in_bytes + at], sizeof(value));
                          if (!std::isfinite(value))
                            return std::unexpected(corrupt(file, "a recurrent state is not finite"));
                        }
                        return {};
                      });
}

// Checks the header against the file's size, the model and the context.
Status check_header(const std::filesystem::path& file, const Header& header, std::uint64_t size,
                    const CacheIdentity& identity) {
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0)
    return std::unexpected(corrupt(file, "it does not begin as one"));
  if (header.version != kVersion) {
    return fail(ErrorCode::kUnsupported, "The file {} has the version {}, but this doppler reads {}.",
                printable(file.string(), 200), header.version, kVersion);
  }
  const auto expected = (Checked(sizeof(Header)) + Checked(header.tokens) * Checked(sizeof(TokenId)) +
                         Checked(header.cache_bytes) + Checked(header.text_bytes) + Checked(kHashBytes))
                            .get();
  if (!expected || *expected != size || header.cached > header.tokens)
    return std::unexpected(corrupt(file, "its sizes do not fit together"));
  if (header.model != identity.model) {
    return fail(
        ErrorCode::kMismatch,
        "The file {} was saved with another model, or with a context that turns keys differently. Load "
        "the model that it was saved with.",
        printable(file.string(), 200));
  }
  if (header.type != static_cast<std::uint32_t>(identity.type)) {
    return fail(
        ErrorCode::kMismatch,
        "The file {} holds keys and values of another type than this engine's {}. Load the model with "
        "the same kv_type.",
        printable(file.string(), 200), kv_type_name(identity.type));
  }
  if (header.tokens > identity.context) {
    return fail(ErrorCode::kLimit,
                "The file {} holds {} tokens, but the context holds {}. Raise the context.",
                printable(file.string(), 200), header.tokens, identity.context);
  }
  const auto cache = cache_bytes(identity.layers, identity.type, header.cached);
  if (!cache || *cache != header.cache_bytes)
    return std::unexpected(corrupt(file, "its cache does not have the size of its tokens"));
  return {};
}

}  // namespace

CacheIdentity cache_identity(const Backend& backend, const Weights& weights) {
  const Plan& plan = backend.plan();
  Fingerprint print = fingerprint_of(weights);
  for (const KvLayer& layer : plan.kv_layers) {
    const std::uint32_t shape[] = {layer.kv_heads, layer.head_dim, layer.window};
    print.add(std::as_bytes(std::span(shape)));
    if (!layer.has_values) print.add(std::as_bytes(std::span("keys alone")));
    if (layer.recurrent_values() == 0) continue;
    const std::uint64_t states[] = {layer.conv_rows, layer.conv_channels, layer.state};
    print.add(std::as_bytes(std::span(states)));
  }
  for (const RopeTable& table : plan.rope_tables) {
    print.add(std::as_bytes(std::span(table.inverse_frequency)));
    print.add(std::as_bytes(std::span(&table.magnitude, 1)));
  }
  return {.model = print.value(),
          .type = backend.options().kv_type.value_or(KvType::kF32),
          .layers = plan.kv_layers,
          .vocab_size = plan.vocab_size,
          .context = backend.options().context};
}

Status save_sequence(const std::filesystem::path& file, const CachedSequence& sequence,
                     const CacheIdentity& identity) {
  Header header{.magic = {},
                .version = kVersion,
                .type = static_cast<std::uint32_t>(identity.type),
                .model = identity.model,
                .tokens = sequence.tokens.size(),
                .cached = sequence.cached,
                .cache_bytes = sequence.bytes.size(),
                .text_bytes = sequence.text.size()};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  const Parts parts = {std::as_bytes(std::span(&header, 1)), std::as_bytes(std::span(sequence.tokens)),
                       sequence.bytes, std::as_bytes(std::span(sequence.text))};
  DOPPLER_ASSIGN(OutputFile out, OutputFile::create(file));
  for (const std::span<const std::byte> part : parts) DOPPLER_TRY(out.write(part));
  DOPPLER_TRY(out.write(hash_of(parts)));
  return out.commit();
}

Result<CachedSequence> load_sequence(const std::filesystem::path& file, const CacheIdentity& identity) {
  DOPPLER_ASSIGN(const MappedFile mapped, MappedFile::open(file));
  return parse_sequence(mapped.bytes(), file, identity);
}

Result<CachedSequence> parse_sequence(std::span<const std::byte> all, const std::filesystem::path& file,
                                      const CacheIdentity& identity) {
  if (all.size() < sizeof(Header) + kHashBytes) return std::unexpected(corrupt(file, "it is too short"));
  Header header;
  std::memcpy(&header, all.data(), sizeof(header));
  DOPPLER_TRY(check_header(file, header, all.size(), identity));
  const std::span<const std::byte> content = all.first(all.size() - kHashBytes);
  const std::span<const std::byte> tokens = content.subspan(sizeof(Header), header.tokens * sizeof(TokenId));
  const std::span<const std::byte> cache =
      content.subspan(sizeof(Header) + tokens.size(), header.cache_bytes);
  const std::span<const std::byte> text = content.last(header.text_bytes);
  const std::string hash = hash_of({content.first(sizeof(Header)), tokens, cache, text});
  if (hash.size() != kHashBytes || std::memcmp(hash.data(), all.data() + content.size(), kHashBytes) != 0)
    return std::unexpected(corrupt(file, "its content has changed since"));
  DOPPLER_TRY(check_states(file, cache, header.cached, identity));
  CachedSequence sequence;
  sequence.tokens.resize(header.tokens);
  sequence.cached = header.cached;
  if (!tokens.empty()) std::memcpy(sequence.tokens.data(), tokens.data(), tokens.size());
  for (const TokenId id : sequence.tokens) {
    if (id < 0 || static_cast<std::uint32_t>(id) >= identity.vocab_size)
      return std::unexpected(corrupt(file, "it holds an id outside the vocabulary"));
  }
  sequence.bytes.assign(cache.begin(), cache.end());
  sequence.text.assign(reinterpret_cast<const char*>(text.data()), text.size());
  return sequence;
}

}  // namespace doppler
