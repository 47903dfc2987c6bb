// Downloads files of a repository into its blobs: several connections, each for a piece of a file or for a
// small file; resumed, checked, and bounded in memory, time and in what it believes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "hub/cache.h"
#include "hub/client.h"

namespace doppler::hub {

struct DownloadItem {
  RepoFile file;  // with size and hash
  std::string url;
};

struct DownloadProgress {
  std::uint64_t bytes = 0, total = 0;  // of all files, those from earlier downloads included
  std::uint64_t received = 0;          // over the network
  std::size_t files = 0;               // that are whole
  std::string doing;                   // "reading what is here", or empty
};

struct DownloadOptions {
  Patience patience;
  std::uint32_t connections = 4;  // what saturates a home's line to one server that limits each connection
  // A request costs a round trip, so pieces are long; up to twice as many as there are connections wait in
  // memory for the one before them.
  std::uint64_t piece_bytes = 8 << 20;
  std::function<void(const DownloadProgress&)> on_progress = [](const DownloadProgress&) {};
  std::function<void(const std::string&)> on_note = [](const std::string&) {
  };  // a sentence about what went otherwise
  Cancelled cancelled = [] { return false; };
};

// Every item whole and checked in the repository's blobs, or an error; what has come of others stays as their
// beginning. Errors: kNotFound (refused), kIo (network, disk, cancelled), kCorrupt (a server that sends other
// bytes than the Hub says).
Status download(Http& http, const Places& places, const ModelName& name, const CachedRepo& repo,
                std::span<const DownloadItem> items, const DownloadOptions& options);

}  // namespace doppler::hub
