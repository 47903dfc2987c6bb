// What every system must do, whichever folder of src/system does it.
#include <algorithm>
#include <atomic>
#include <string>

#include "system/clock.h"
#include "system/files.h"
#include "system/memory.h"
#include "system/numbers.h"
#include "system/process.h"
#include "system/processor.h"
#include "system/terminal.h"
#include "system/threads.h"
#include "testing.h"

namespace doppler::system {
namespace {

using testing::read_file;
using testing::TempDir;
using testing::write_file;

TEST(Files, KindsOfPathsAreToldApart) {
  TempDir dir;
  write_file(dir / "file", "12345");
  EXPECT_EQ(kind_of(dir / "file"), PathKind::kFile);
  EXPECT_EQ(kind_of(dir.path()), PathKind::kFolder);
  EXPECT_EQ(kind_of(dir / "none"), PathKind::kMissing);
  EXPECT_EQ(kind_of(dir / "file" / "below"), PathKind::kMissing);
  EXPECT_TRUE(system::exists(dir.path()) && is_folder(dir.path()) && !is_file(dir.path()));
  EXPECT_TRUE(is_file(dir / "file") && !system::exists(dir / "none") && !system::exists(""));
  EXPECT_EQ(system::file_size(dir / "file"), 5u);
  EXPECT_EQ(system::file_size(dir / "none"), std::nullopt);
  EXPECT_TRUE(same_file(dir / "file", dir.path() / "." / "file"));
  EXPECT_FALSE(same_file(dir / "none", dir / "none"));
  EXPECT_FALSE(same_file("", ""));
}

TEST(Files, FoldersAreMadeListedAndEmptied) {
  TempDir dir;
  EXPECT_FALSE(create_folders(dir / "a" / "b"));
  EXPECT_FALSE(create_folders(dir / "a" / "b"));
  write_file(dir / "a" / "file", "");
  auto entries = list_folder(dir / "a");
  ASSERT_TRUE(entries);
  std::ranges::sort(*entries);
  EXPECT_EQ(*entries, (std::vector<Path>{dir / "a" / "b", dir / "a" / "file"}));
  EXPECT_FALSE(remove_file(dir / "a" / "file"));
  EXPECT_EQ(list_folder(dir / "a")->size(), 1u);
  EXPECT_FALSE(list_folder(dir / "none"));
  EXPECT_GT(free_space(dir.path()).value_or(0), 0u);
}

TEST(Files, AreReadInPiecesAndMapped) {
  TempDir dir;
  write_file(dir / "file", "0123456789");
  const auto file = InputFile::open(dir / "file");
  ASSERT_TRUE(file);
  std::string part(4, '-');
  EXPECT_FALSE(file->read_at(5, std::as_writable_bytes(std::span(part))));
  EXPECT_EQ(part, "5678");
  EXPECT_TRUE(file->read_at(7, std::as_writable_bytes(std::span(part))));  // beyond the end
  EXPECT_EQ(file->regular_size().value(), 10u);
  std::string text(7, '-');
  EXPECT_EQ(file->read(std::as_writable_bytes(std::span(text))), 7u);
  EXPECT_EQ(text, "0123456");
  EXPECT_EQ(file->read(std::as_writable_bytes(std::span(text))), 3u);
  EXPECT_EQ(text, "7893456");
  const auto mapped = file->map(10);
  ASSERT_TRUE(mapped);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(mapped->get()), 10), "0123456789");
  release_pages({mapped->get(), 10});
  EXPECT_EQ(std::to_integer<char>(mapped->get()[9]), '9');
  EXPECT_EQ(InputFile::open(dir / "none").error(), std::errc::no_such_file_or_directory);
}

TEST(Files, NewOnesTakeNobodysPlaceUnlessTold) {
  TempDir dir;
  const auto made = create_file(dir / "new");
  ASSERT_TRUE(made);
  EXPECT_EQ(std::fwrite("line\n", 1, 5, *made), 5u);
  EXPECT_FALSE(put_on_disk(*made));
  EXPECT_EQ(std::fclose(*made), 0);
  EXPECT_EQ(create_file(dir / "new").error(), std::errc::file_exists);
  write_file(dir / "old", "before");
  EXPECT_FALSE(replace_file(dir / "new", dir / "old"));
  EXPECT_EQ(read_file(dir / "old"), "line\n");
  EXPECT_FALSE(system::exists(dir / "new"));
  for (const bool append : {true, false}) {
    const auto opened = open_output(dir / "old", append);
    ASSERT_TRUE(opened);
    std::fputs("more\n", *opened);
    std::fclose(*opened);
    EXPECT_EQ(read_file(dir / "old"), append ? "line\nmore\n" : "more\n");
  }
}

TEST(Files, ScratchIsReadWhereItWasWrittenAndLeavesNothing) {
  TempDir dir;
  {
    const auto scratch = ScratchFile::create(dir / "out");
    ASSERT_TRUE(scratch);
    const std::string text = "in the middle";
    EXPECT_FALSE(scratch->write_at(100'000, std::as_bytes(std::span(text))));
    std::string back(text.size(), '-');
    EXPECT_FALSE(scratch->read_at(100'000, std::as_writable_bytes(std::span(back))));
    EXPECT_EQ(back, text);
    EXPECT_TRUE(
        scratch->read_at(100'001, std::as_writable_bytes(std::span(back))));  // ends before the last byte
  }
  EXPECT_TRUE(list_folder(dir.path())->empty());
  EXPECT_FALSE(ScratchFile::create(dir / "none" / "out"));
}

TEST(Memory, IsZeroedAndBeginsOnAPage) {
  for (const Pages pages : {Pages::kNormal, Pages::kHuge}) {
    constexpr std::size_t kBytes = 5 << 20;
    auto memory = ZeroedMemory::reserve(kBytes, pages);
    ASSERT_TRUE(memory);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory->data()) % 4096, 0u);
    ZeroedMemory moved = std::move(*memory);
    const std::span bytes(static_cast<char*>(moved.data()), kBytes);
    EXPECT_TRUE(std::ranges::all_of(bytes, [](char c) { return c == 0; }));
    std::ranges::fill(bytes, 'x');
  }
  EXPECT_FALSE(ZeroedMemory::reserve(UINT64_MAX, Pages::kHuge));
  EXPECT_FALSE(ZeroedMemory::reserve(std::uint64_t{1} << 62, Pages::kNormal));
  EXPECT_GT(available_memory(), 1u << 20);
  EXPECT_GT(peak_resident_bytes(), 1u << 20);
}

TEST(Threads, WaitForEachOther) {
  EXPECT_GE(processor_share().count, 1u);
  EXPECT_NE(processor_share().why.find(" processor"), std::string::npos);
  Mutex mutex;
  Condition changed;
  int turn = 0;
  {
    const auto other = Thread::start([&] {
      for (int mine = 1; mine < 200; mine += 2) {
        const Lock lock(mutex);
        while (turn != mine) changed.wait(mutex);
        ++turn;
        changed.notify_all();
      }
    });
    ASSERT_TRUE(other);
    for (int mine = 0; mine < 200; mine += 2) {
      const Lock lock(mutex);
      while (turn != mine) changed.wait(mutex);
      ++turn;
      changed.notify_all();
    }
  }  // the thread has ended
  EXPECT_EQ(turn, 200);
}

TEST(Process, KnowsItselfAndItsEnvironment) {
  EXPECT_NE(process_id(), 0u);
  EXPECT_EQ(environment_variable("DOPPLER_NOBODY_SETS_THIS"), std::nullopt);
  set_environment_default("DOPPLER_NOBODY_SETS_THIS", "first");
  set_environment_default("DOPPLER_NOBODY_SETS_THIS", "second");
  EXPECT_EQ(environment_variable("DOPPLER_NOBODY_SETS_THIS"), "first");
  EXPECT_FALSE(processor_name().empty());
}

TEST(Clock, CountsFromTheYearsOwnBeginning) {
  const std::tm now = utc_time();
  EXPECT_GT(now.tm_year, 120);  // since 1900
  EXPECT_LE(std::abs(local_time().tm_year - now.tm_year), 1);
}

TEST(Numbers, AreReadToTheNearestDouble) {
  const auto read = [](std::string_view text) {
    double value = -1;
    const auto result = read_double(text.data(), text.data() + text.size(), value);
    return std::tuple(value, result.ptr - text.data(), result.ec);
  };
  EXPECT_EQ(read("0.1"), std::tuple(0.1, 3, std::errc()));
  EXPECT_EQ(read("-2.5e3 rest"), std::tuple(-2500.0, 6, std::errc()));
  EXPECT_EQ(read("1e999"), std::tuple(-1.0, 5, std::errc::result_out_of_range));
  EXPECT_EQ(read("word"), std::tuple(-1.0, 0, std::errc::invalid_argument));
}

}  // namespace
}  // namespace doppler::system
