// Folders of the Hugging Face cache: what a folder models--ORG--NAME stands for.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace doppler {

// The snapshot that such a folder's ref of this name (a branch or a tag) leads to; where it has no such ref,
// and the name is "main", its only snapshot. Nothing for any other folder, and for a ref to what is not
// there.
std::optional<std::filesystem::path> cached_snapshot(const std::filesystem::path& folder,
                                                     const std::string& ref = "main");

}  // namespace doppler
