#include "convert/partial_folder.h"

#include "base/files.h"
#include "system/files.h"

namespace doppler::convert {

PartialFolder::PartialFolder(const std::filesystem::path& name)
    : name_(name), partial_(name.string() + ".partial") {}

PartialFolder::~PartialFolder() {
  if (!made_) return;
  for (const std::filesystem::path& file : sorted_entries(partial_)) system::remove_file(file);
  system::remove_file(partial_);
}

Status PartialFolder::make() {
  if (system::exists(partial_)) {
    return fail(ErrorCode::kUsage,
                "The folder {} is left from an earlier try. Remove it, or give another name.",
                printable_path(partial_));
  }
  const std::error_code error = system::create_folders(partial_);
  made_ = !error;
  if (made_) return {};
  return fail(ErrorCode::kIo, "The folder {} cannot be made: {}. Give another name.",
              printable_path(partial_), error.message());
}

Status PartialFolder::commit() {
  if (const std::error_code error = system::replace_file(partial_, name_)) {
    return fail(ErrorCode::kIo, "The folder {} cannot get its name: {}.", printable_path(name_),
                error.message());
  }
  made_ = false;
  return {};
}

}  // namespace doppler::convert
